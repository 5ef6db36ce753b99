//! Runs the commands of the store. Only this file distinguishes one Redis, its socket, sentinels and a cluster.

use std::fmt;
use std::sync::Arc;

use c3po_shared::time::Timestamp;
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{Client, Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult};
use tokio::time::timeout;

use super::OPERATION_DEADLINE;
use super::cluster::Cluster;
use super::key_names::KeyNames;
use super::library::{AGAIN, Call, LATE};
use super::node::{CONNECT_DEADLINE, Node, Route, too_slow};
use super::open_error::OpenError;
use super::reach::Reach;
use super::sentinels::Sentinels;
use crate::clock;
use crate::config::{RedisAddress, Topology};
use crate::store::{BEGUN_WITHIN, Result, StoreError};

/// The servers of a store.
pub(super) struct RedisConnection {
    servers: Servers,
    address: String,
}

enum Servers {
    One(Arc<Node>),
    Cluster(Box<Cluster>),
}

impl fmt::Debug for RedisConnection {
    /// Leaves out the clients, which hold the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.address).finish()
    }
}

/// Returns the one server that this client reaches, whose name is in log messages.
fn fixed(client: RedisResult<Client>, name: &str) -> Result<Servers, OpenError> {
    let client = client.map_err(|error| OpenError::Unreachable {
        address: name.to_owned(),
        reason: error.to_string(),
    })?;
    let node = Node::new(Route::Fixed(client), name.to_owned());
    Ok(Servers::One(Arc::new(node)))
}

impl RedisConnection {
    /// Makes the handle without connecting; the first command connects. Errors concern the address and its files.
    pub(super) fn new(address: &RedisAddress, names: &KeyNames) -> Result<Self, OpenError> {
        let reach = Reach::new(address)?;
        let name = address.to_string();
        let servers = match (&address.topology, address.servers.first()) {
            (Topology::Cluster, _) => Servers::Cluster(Box::new(Cluster::new(
                reach,
                address.servers.clone(),
                names,
            ))),
            (Topology::Sentinel(master), _) => {
                let sentinels = Sentinels::new(reach, address.servers.clone(), master.clone());
                Servers::One(Arc::new(Node::new(
                    Route::Sentinels(sentinels),
                    name.clone(),
                )))
            }
            (Topology::One, Some(server)) => fixed(reach.client(server), &name)?,
            (Topology::Socket(path), _) => fixed(reach.client_of_socket(path), &name)?,
            (Topology::One, None) => {
                return Err(OpenError::Unreachable {
                    address: name,
                    reason: "it names no server".into(),
                });
            }
        };
        Ok(Self {
            servers,
            address: name,
        })
    }

    /// Returns the addresses of the servers, without the password.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Returns whether it is a cluster.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.servers, Servers::Cluster(_))
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
            let command = call.command(clock::of_store() + BEGUN_WITHIN);
            match self.try_run(&command).await {
                Err(error) if error.code() == Some(AGAIN) => {}
                // If the machine was suspended, the caller has given up, whatever its clocks are.
                Err(error) if error.code() == Some(LATE) && is_early(began) => {
                    let Some(time) = late_since(&error) else {
                        return Err(error);
                    };
                    // The way there may have taken long, also for a new connection, so only the way back counts.
                    clock::follow(Timestamp::now(), time);
                }
                answer => return answer,
            }
        }
    }

    /// Runs a command once, and returns the original Redis error.
    pub(super) async fn try_run<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        match &self.servers {
            Servers::One(node) => node.call(command).await,
            Servers::Cluster(cluster) => cluster.call(command).await,
        }
    }

    /// Returns the server that stores the fleet.
    pub(super) async fn master(&self) -> RedisResult<Arc<Node>> {
        match &self.servers {
            Servers::One(node) => Ok(Arc::clone(node)),
            Servers::Cluster(cluster) => cluster.master().await,
        }
    }

    /// Returns every server that may have data of an earlier build.
    pub(super) async fn masters(&self) -> RedisResult<Vec<Arc<Node>>> {
        match &self.servers {
            Servers::One(node) => Ok(vec![Arc::clone(node)]),
            Servers::Cluster(cluster) => cluster.masters().await,
        }
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
