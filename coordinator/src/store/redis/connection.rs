//! What runs the store's commands: the one place that knows whether one Redis, sentinels or a cluster is behind it.

use std::fmt;
use std::sync::Arc;

use futures_util::future::try_join_all;
use redis::aio::PubSub;
use redis::{Arg, Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult};
use tokio::time::timeout;

use super::OpenError;
use super::cluster::Cluster;
use super::node::{CONNECT_DEADLINE, Node, Way, too_slow};
use super::reach::Reach;
use super::scripts::Call;
use super::sentinels::Sentinels;
use crate::config::{RedisAddress, Topology};
use crate::store::{Result, StoreError};

/// The servers of a store.
pub(super) struct Connection {
    servers: Servers,
    address: String,
}

enum Servers {
    One(Arc<Node>),
    Cluster(Cluster),
}

impl fmt::Debug for Connection {
    /// Leaves out the clients, which hold the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.address).finish()
    }
}

impl Connection {
    /// Makes the handle; the first command connects. Errors are those of the address and of its files.
    pub(super) fn new(address: &RedisAddress) -> Result<Self, OpenError> {
        let reach = Reach::new(address)?;
        let name = address.to_string();
        let servers = match (&address.topology, address.servers.first()) {
            (Topology::Cluster, _) => Servers::Cluster(Cluster::new(reach, address.servers.clone())),
            (Topology::Sentinel(master), _) => {
                let sentinels = Sentinels::new(reach, address.servers.clone(), master.clone());
                Servers::One(Arc::new(Node::new(Way::Sentinels(sentinels), name.clone())))
            }
            (Topology::One, Some(server)) => {
                let client = reach
                    .client(server)
                    .map_err(|error| OpenError::Unreachable { address: name.clone(), reason: error.to_string() })?;
                Servers::One(Arc::new(Node::new(Way::Fixed(client), name.clone())))
            }
            (Topology::One, None) => {
                return Err(OpenError::Unreachable { address: name, reason: "it names no server".into() });
            }
        };
        Ok(Self { servers, address: name })
    }

    /// Returns where the servers are, without the password.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Returns whether it is a cluster.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.servers, Servers::Cluster(_))
    }

    /// Runs a command whose first argument is its one key.
    pub(super) async fn run<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        let answer = match &self.servers {
            Servers::One(node) => node.run(command).await,
            Servers::Cluster(cluster) => match command.args_iter().nth(1) {
                Some(Arg::Simple(key)) => cluster.run(key, command, None).await,
                _ => Err((ErrorKind::Client, "a command without a key goes to no server of a cluster").into()),
            },
        };
        answer.map_err(|error| store_error(&error))
    }

    /// Runs a script, loading it where the server does not have it.
    pub(super) async fn invoke<T: FromRedisValue>(&self, call: &Call) -> Result<T> {
        let answer = match &self.servers {
            Servers::One(node) => node.call(call.command(), call.script()).await,
            Servers::Cluster(cluster) => cluster.run(call.key(), call.command(), Some(call.script())).await,
        };
        answer.map_err(|error| store_error(&error))
    }

    /// Returns every server that holds a part of the store.
    pub(super) async fn masters(&self) -> RedisResult<Vec<Arc<Node>>> {
        match &self.servers {
            Servers::One(node) => Ok(vec![Arc::clone(node)]),
            Servers::Cluster(cluster) => cluster.masters().await,
        }
    }

    /// Returns a connection for hearing what is published. What any server of a cluster is told they all pass on.
    pub(super) async fn listen(&self) -> RedisResult<PubSub> {
        let nodes = match &self.servers {
            Servers::One(node) => vec![Arc::clone(node)],
            Servers::Cluster(cluster) => cluster.servers().await?,
        };
        let mut refused = None;
        for node in nodes {
            let attempt = async { node.client().await?.get_async_pubsub().await };
            match timeout(CONNECT_DEADLINE, attempt).await.unwrap_or_else(|_| Err(too_slow("subscribing"))) {
                Ok(line) => return Ok(line),
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.unwrap_or_else(|| (ErrorKind::Client, "no server of the cluster is known").into()))
    }
}

/// Asks every server whether it is there.
pub(super) async fn check(connection: &Connection) -> Result<()> {
    let masters = connection.masters().await.map_err(|error| store_error(&error))?;
    let asked = masters.into_iter().map(|node| async move {
        let answer: RedisResult<()> = node.run(&redis::cmd("PING")).await;
        answer.map_err(|error| StoreError::Unavailable(format!("the Redis at {}: {error}", node.name())))
    });
    try_join_all(asked).await.map(drop)
}

/// Tells what the server holds from what it cannot do at the moment.
pub(super) fn store_error(error: &RedisError) -> StoreError {
    match (error.kind(), error.code()) {
        (ErrorKind::UnexpectedReturnType, _) | (_, Some("WRONGTYPE")) => StoreError::Corrupt(error.to_string()),
        (_, Some("OOM")) => StoreError::Full("Redis has used all of its maxmemory".into()),
        _ => StoreError::Unavailable(error.to_string()),
    }
}
