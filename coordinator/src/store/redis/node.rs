//! The shared command connection to one server. It reconnects if the connection is lost or silent.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{
    Client, Cmd, ErrorKind, FromRedisValue, ProtocolVersion, RedisError, RedisResult,
    ServerErrorKind,
};
use tokio::time::{Instant, timeout};

use super::library;
use super::lookup::connecting;
use super::sentinels::{self, Sentinels};
use crate::store::BEGUN_WITHIN;

/// The deadline of one attempt to connect.
pub(super) const CONNECT_DEADLINE: Duration = Duration::from_secs(1);
/// The deadline of one command. Giving up is safe, because every command can be repeated, and no function begins later.
const COMMAND_DEADLINE: Duration = BEGUN_WITHIN;
/// How long commands fail at once after a failed attempt, without another attempt.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// How many commands may wait to be written; further commands wait in their callers.
const QUEUE: usize = 512;

/// How the server is found.
pub(super) enum Route {
    /// A fixed address.
    Fixed(Client),
    /// The address reported by sentinels.
    Sentinels(Sentinels),
}

/// A connection shared by all callers. Concurrent commands are sent as one pipeline.
pub(super) struct Node {
    way: Route,
    /// The name of the server in log messages and errors.
    name: String,
    current: Mutex<CurrentConnection>,
    /// Allows one attempt at a time; other callers use its result.
    dialling: tokio::sync::Mutex<()>,
}

/// The state of the connection; `number` identifies each connection.
#[derive(Default)]
struct CurrentConnection {
    number: u64,
    live: Option<MultiplexedConnection>,
    refused: Option<(Instant, RedisError)>,
}

impl Node {
    /// Makes the handle without connecting; the first command connects.
    pub(super) fn new(way: Route, name: String) -> Self {
        Self {
            way,
            name,
            current: Mutex::default(),
            dialling: tokio::sync::Mutex::new(()),
        }
    }

    /// Returns the name of the server in log messages and errors. It contains no password.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns a client for the present address of the server.
    pub(super) async fn client(&self) -> RedisResult<Client> {
        match &self.way {
            Route::Fixed(client) => Ok(client.clone()),
            Route::Sentinels(sentinels) => sentinels.client().await,
        }
    }

    /// Runs a command. If it calls a function that the server does not have, loads the library and retries.
    pub(super) async fn call<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let (number, mut live) = self.get().await?;
        let mut answer = command.query_async(&mut live).await;
        if answer.as_ref().is_err_and(is_unknown_function) {
            answer = match load(&mut live).await {
                Ok(()) => command.query_async(&mut live).await,
                Err(error) => Err(error),
            };
        }
        self.judge(number, answer)
    }

    /// Runs a command on a slot that is being moved to this server.
    pub(super) async fn call_asking<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let (number, mut live) = self.get().await?;
        let loaded = load(&mut live).await;
        self.judge(number, loaded)?;
        let mut asking = redis::pipe();
        asking.cmd("ASKING").ignore().add_command(command.clone());
        let answer: RedisResult<(T,)> = asking.query_async(&mut live).await;
        self.judge(number, answer).map(|(value,)| value)
    }

    async fn get(&self) -> RedisResult<(u64, MultiplexedConnection)> {
        if let Some(live) = self.live() {
            return Ok(live);
        }
        let _turn = self.dialling.lock().await;
        if let Some(live) = self.live() {
            return Ok(live);
        }
        if let Some(refused) = self.just_refused() {
            return Err(refused);
        }
        let made = timeout(CONNECT_DEADLINE, self.dial())
            .await
            .unwrap_or_else(|_| Err(too_slow("connecting")));
        let mut current = self.lock();
        match made {
            Ok(live) => {
                if current.number > 0 {
                    tracing::info!("connected to Redis at {} again", self.name);
                }
                *current = CurrentConnection {
                    number: current.number + 1,
                    live: Some(live.clone()),
                    refused: None,
                };
                Ok((current.number, live))
            }
            Err(error) => {
                current.refused = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Opens a separate connection for published messages, so that neither connection delays the other.
    pub(super) async fn dial_listening(
        &self,
        pushes: impl AsyncPushSender,
    ) -> RedisResult<MultiplexedConnection> {
        let client = self.client().await?;
        let info = client.get_connection_info().clone();
        // Published messages are pushed only in version 3 of the protocol.
        let settings = info
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP3);
        let config = connecting()
            .set_connection_timeout(Some(CONNECT_DEADLINE))
            .set_response_timeout(Some(COMMAND_DEADLINE))
            .set_push_sender(pushes);
        let client = Client::open(info.set_redis_settings(settings))?;
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
    }

    async fn dial(&self) -> RedisResult<MultiplexedConnection> {
        let config = connecting()
            .set_connection_timeout(Some(CONNECT_DEADLINE))
            .set_response_timeout(Some(COMMAND_DEADLINE))
            .set_pipeline_buffer_size(QUEUE);
        let mut live = self
            .client()
            .await?
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        if let Route::Sentinels(_) = &self.way {
            sentinels::must_be_master(&mut live).await?;
        }
        Ok(live)
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

    /// Drops a connection that will not recover.
    ///
    /// A silent connection is dropped as well, because its peer may have gone without closing it. Its pending commands fail.
    fn judge<T>(&self, number: u64, answer: RedisResult<T>) -> RedisResult<T> {
        answer.inspect_err(|error| {
            let replica = error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly);
            if error.is_unrecoverable_error() || error.is_io_error() || replica {
                let mut current = self.lock();
                if current.number == number && current.live.take().is_some() {
                    tracing::warn!("the connection to Redis at {} was lost: {error}", self.name);
                }
            }
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CurrentConnection> {
        // A panic cannot leave it half-written: every change is one assignment.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Loads the library. Another coordinator may already have loaded it.
async fn load(live: &mut MultiplexedConnection) -> RedisResult<()> {
    match library::load().query_async::<String>(live).await {
        Err(error)
            if !error
                .detail()
                .is_some_and(|detail| detail.contains("already exists")) =>
        {
            Err(error)
        }
        _ => Ok(()),
    }
}

fn is_unknown_function(error: &RedisError) -> bool {
    error.detail() == Some("Function not found")
}

/// Returns a timeout error.
pub(super) fn too_slow(what: &'static str) -> RedisError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, what).into()
}
