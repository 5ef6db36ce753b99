//! The one connection that carries every command, made anew whenever it is lost or silent.
//!
//! Nothing else in the store knows whether there is one Redis or a cluster of them behind it.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, RedisError, ScriptInvocation, ServerErrorKind,
};
use tokio::time::{Instant, timeout};

use crate::store::{Result, StoreError};

/// How long one attempt to connect may take.
pub(super) const CONNECT_DEADLINE: Duration = Duration::from_secs(1);
/// How long one command may take. It is safe to give up: whatever was sent may be sent again.
const COMMAND_DEADLINE: Duration = Duration::from_secs(1);
/// After a failed attempt, for how long commands are refused without another one.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// How many commands may wait to be written; those beyond wait in their callers.
const QUEUE: usize = 512;

/// A connection shared by all who call. Commands that run at the same time travel as one pipeline.
pub(super) struct Connection {
    client: Client,
    current: Mutex<Current>,
    /// One attempt at a time; the others take what it made.
    dialling: tokio::sync::Mutex<()>,
}

/// What is known of the connection; `number` tells one from the next.
#[derive(Default)]
struct Current {
    number: u64,
    live: Option<MultiplexedConnection>,
    refused: Option<(Instant, RedisError)>,
}

impl fmt::Debug for Connection {
    /// Leaves out the client, which holds the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.address()).finish()
    }
}

impl Connection {
    /// Makes the handle; the first command connects.
    pub(super) fn new(client: Client) -> Self {
        Self { client, current: Mutex::default(), dialling: tokio::sync::Mutex::new(()) }
    }

    /// Returns where the server is, without the password.
    pub(super) fn address(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }

    /// Runs a command.
    pub(super) async fn run<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        let (number, mut live) = self.get().await?;
        let answer = command.query_async(&mut live).await;
        self.judge(number, answer)
    }

    /// Runs a script, loading it where the server does not have it.
    pub(super) async fn invoke<T: FromRedisValue>(&self, script: &ScriptInvocation<'_>) -> Result<T> {
        let (number, mut live) = self.get().await?;
        let answer = script.invoke_async(&mut live).await;
        self.judge(number, answer)
    }

    async fn get(&self) -> Result<(u64, MultiplexedConnection)> {
        if let Some(live) = self.live() {
            return Ok(live);
        }
        let _turn = self.dialling.lock().await;
        if let Some(live) = self.live() {
            return Ok(live);
        }
        if let Some(refused) = self.just_refused() {
            return Err(unavailable(&refused));
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_DEADLINE))
            .set_response_timeout(Some(COMMAND_DEADLINE))
            .set_pipeline_buffer_size(QUEUE);
        let dial = self.client.get_multiplexed_async_connection_with_config(&config);
        let made = timeout(CONNECT_DEADLINE, dial).await.unwrap_or_else(|_| Err(too_slow("connecting")));
        let mut current = self.lock();
        match made {
            Ok(live) => {
                if current.number > 0 {
                    tracing::info!("connected to Redis at {} again", self.address());
                }
                *current = Current { number: current.number + 1, live: Some(live.clone()), refused: None };
                Ok((current.number, live))
            }
            Err(error) => {
                let answer = unavailable(&error);
                current.refused = Some((Instant::now(), error));
                Err(answer)
            }
        }
    }

    fn live(&self) -> Option<(u64, MultiplexedConnection)> {
        let current = self.lock();
        current.live.clone().map(|live| (current.number, live))
    }

    fn just_refused(&self) -> Option<RedisError> {
        let current = self.lock();
        let (at, error) = current.refused.as_ref()?;
        (at.elapsed() < RETRY_PAUSE).then(|| error.clone())
    }

    /// Turns an answer into ours, and gives up a connection that will not answer better.
    ///
    /// A silent one is given up as well: its other end may be gone without a word. What is under way on it ends there.
    fn judge<T>(&self, number: u64, answer: Result<T, RedisError>) -> Result<T> {
        let error = match answer {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let replica = error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly);
        if error.is_unrecoverable_error() || error.is_io_error() || replica {
            let mut current = self.lock();
            if current.number == number && current.live.take().is_some() {
                tracing::warn!("the connection to Redis at {} was lost: {error}", self.address());
            }
        }
        Err(store_error(&error))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Current> {
        // A panic cannot leave it half-written: every change is one assignment.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn too_slow(what: &'static str) -> RedisError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, what).into()
}

fn unavailable(error: &RedisError) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

/// Tells what the server holds from what it cannot do at the moment.
fn store_error(error: &RedisError) -> StoreError {
    match error.kind() {
        ErrorKind::UnexpectedReturnType => StoreError::Corrupt(error.to_string()),
        ErrorKind::Extension if error.code() == Some("WRONGTYPE") => StoreError::Corrupt(error.to_string()),
        _ => unavailable(error),
    }
}
