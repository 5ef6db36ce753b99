//! Runs the commands and the calls of the store, and repeats those that have to be.

use std::fmt;
use std::sync::Arc;

use c3po_shared::time::Timestamp;
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, Value};
use tokio::time::timeout;

use super::OPERATION_DEADLINE;
use super::batches::Batcher;
use super::key_names::KeyNames;
use super::library::{AGAIN, Call, LATE};
use super::node::{CONNECT_DEADLINE, Node, too_slow};
use super::open_error::OpenError;
use super::servers::Servers;
use crate::clock;
use crate::config::RedisAddress;
use crate::store::{BEGUN_WITHIN, Result, StoreError};

/// The servers of a store.
pub(super) struct RedisConnection {
    servers: Arc<Servers>,
    batcher: Arc<Batcher>,
    address: String,
}

impl fmt::Debug for RedisConnection {
    /// Leaves out the clients, which hold the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.address).finish()
    }
}

impl RedisConnection {
    /// Makes the handle without connecting; the first command connects. Errors concern the address and its files.
    pub(super) fn new(address: &RedisAddress, names: &KeyNames) -> Result<Self, OpenError> {
        let servers = Arc::new(Servers::new(address, names)?);
        Ok(Self {
            batcher: Arc::new(Batcher::new(Arc::clone(&servers))),
            servers,
            address: address.to_string(),
        })
    }

    /// Returns the addresses of the servers, without the password.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Returns whether it is a cluster.
    pub(super) fn is_cluster(&self) -> bool {
        self.servers.is_cluster()
    }

    /// Runs a command about keys of the fleet.
    pub(super) async fn run<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        self.try_run(command)
            .await
            .map_err(|error| store_error(&error))
    }

    /// Calls a function, and repeats the call while it must expire messages first, or if it was too late by the server's clock,
    /// which is followed then. The caller's deadline limits this.
    pub(super) async fn invoke<T: FromRedisValue>(&self, call: &Call) -> Result<T> {
        self.try_invoke(call)
            .await
            .map_err(|error| store_error(&error))
    }

    /// Calls a function like `invoke`, and returns the original Redis error.
    pub(super) async fn try_invoke<T: FromRedisValue>(&self, call: &Call) -> RedisResult<T> {
        let began = Timestamp::now();
        loop {
            let answer = self.try_run(&call.command(latest())).await;
            if !must_repeat(&answer, began) {
                return answer;
            }
        }
    }

    /// Calls a function like `invoke`, in a batch with other such calls that are made meanwhile. `messages` is the number of
    /// messages that it changes. A call that must be repeated goes alone then: it may expire more messages, and keeps no others
    /// waiting.
    pub(super) async fn invoke_batched(&self, call: Call, messages: usize) -> Result<Value> {
        let (call, began) = (Arc::new(call), Timestamp::now());
        let answer = self
            .batcher
            .call(Arc::clone(&call), messages, latest())
            .await;
        if must_repeat(&answer, began) {
            // In a box, because it is rare: each call in a batch would be as large.
            return Box::pin(self.invoke(&call)).await;
        }
        answer.map_err(|error| store_error(&error))
    }

    /// Runs a command once, and returns the original Redis error.
    pub(super) async fn try_run<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        self.servers.run(command).await
    }

    /// Returns the server that stores the fleet.
    pub(super) async fn master(&self) -> RedisResult<Arc<Node>> {
        self.servers.master().await
    }

    /// Returns every server that may have data of an earlier build.
    pub(super) async fn masters(&self) -> RedisResult<Vec<Arc<Node>>> {
        self.servers.masters().await
    }

    /// Returns a separate connection to the server that stores the fleet, for its published messages.
    pub(super) async fn listen(
        &self,
        pushes: impl AsyncPushSender,
    ) -> RedisResult<MultiplexedConnection> {
        let attempt = async { self.master().await?.dial_listening(pushes).await };
        timeout(CONNECT_DEADLINE, attempt)
            .await
            .unwrap_or_else(|_| Err(too_slow("subscribing")))
    }
}

/// Returns the time of the server's clock after which a call that is made now does nothing.
fn latest() -> Timestamp {
    clock::of_store() + BEGUN_WITHIN
}

/// Returns whether a call that began then must be repeated: it had to expire messages first, or was too late by the server's
/// clock, which is followed then.
fn must_repeat<T>(answer: &RedisResult<T>, began: Timestamp) -> bool {
    let Err(error) = answer else { return false };
    match error.code() {
        Some(AGAIN) => true,
        // If the machine was suspended, the caller has given up, whatever its clocks are.
        Some(LATE) if is_early(began) => late_since(error).is_some_and(|time| {
            // The way there may have taken long, also for a new connection, so only the way back counts.
            clock::follow(Timestamp::now(), time);
            true
        }),
        _ => false,
    }
}

/// Checks that the server of the fleet responds.
pub(super) async fn check(connection: &RedisConnection) -> Result<()> {
    let master = connection
        .master()
        .await
        .map_err(|error| store_error(&error))?;
    let answer: RedisResult<()> = master.call(&redis::cmd("PING")).await;
    answer.map_err(|error| {
        StoreError::Unavailable(format!("the Redis at {}: {error}", master.name()))
    })
}

/// Returns whether a call that began then may be repeated.
fn is_early(began: Timestamp) -> bool {
    Timestamp::now().since(began) < OPERATION_DEADLINE
}

/// Returns the server's time in the error of a call that was too late.
fn late_since(error: &RedisError) -> Option<Timestamp> {
    let time = error.detail()?.split(' ').next()?.parse().ok()?;
    Some(Timestamp::from_millis(time))
}

/// Converts a Redis error, separating corrupt data and a full store from temporary failures.
pub(super) fn store_error(error: &RedisError) -> StoreError {
    match (error.kind(), error.code()) {
        (ErrorKind::UnexpectedReturnType, _) | (_, Some("WRONGTYPE")) => {
            StoreError::Corrupt(error.to_string())
        }
        (_, Some("OOM")) => StoreError::Full("Redis has used all of its maxmemory".into()),
        _ => StoreError::Unavailable(error.to_string()),
    }
}
