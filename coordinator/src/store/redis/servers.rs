//! The servers that store a fleet. Only this file distinguishes one Redis, its socket, sentinels and a cluster.

use std::sync::Arc;

use redis::{Client, Cmd, FromRedisValue, RedisResult};

use super::cluster::Cluster;
use super::key_names::KeyNames;
use super::node::{Node, Route};
use super::open_error::OpenError;
use super::reach::Reach;
use super::sentinels::Sentinels;
use crate::config::{RedisAddress, Topology};

/// The servers of a store.
pub(super) enum Servers {
    One(Arc<Node>),
    Cluster(Box<Cluster>),
}

impl Servers {
    /// Makes the handle without connecting; the first command connects. Errors concern the address and its files.
    pub(super) fn new(address: &RedisAddress, names: &KeyNames) -> Result<Self, OpenError> {
        let reach = Reach::new(address)?;
        let name = address.to_string();
        match (&address.topology, address.servers.first()) {
            (Topology::Cluster, _) => Ok(Self::Cluster(Box::new(Cluster::new(
                reach,
                address.servers.clone(),
                names,
            )))),
            (Topology::Sentinel(master), _) => {
                let sentinels = Sentinels::new(reach, address.servers.clone(), master.clone());
                let node = Node::new(Route::Sentinels(sentinels), name);
                Ok(Self::One(Arc::new(node)))
            }
            (Topology::One, Some(server)) => fixed(reach.client(server), name),
            (Topology::Socket(path), _) => fixed(reach.client_of_socket(path), name),
            (Topology::One, None) => Err(OpenError::Unreachable {
                address: name,
                reason: "it names no server".into(),
            }),
        }
    }

    /// Returns whether it is a cluster.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Runs a command once.
    pub(super) async fn run<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        match self {
            Self::One(node) => node.call(command).await,
            Self::Cluster(cluster) => cluster.call(command).await,
        }
    }

    /// Returns the server that stores the fleet.
    pub(super) async fn master(&self) -> RedisResult<Arc<Node>> {
        match self {
            Self::One(node) => Ok(Arc::clone(node)),
            Self::Cluster(cluster) => cluster.master().await,
        }
    }

    /// Returns every server that may have data of an earlier build.
    pub(super) async fn masters(&self) -> RedisResult<Vec<Arc<Node>>> {
        match self {
            Self::One(node) => Ok(vec![Arc::clone(node)]),
            Self::Cluster(cluster) => cluster.masters().await,
        }
    }
}

/// Returns the one server that this client reaches, whose name is in log messages.
fn fixed(client: RedisResult<Client>, name: String) -> Result<Servers, OpenError> {
    match client {
        Ok(client) => Ok(Servers::One(Arc::new(Node::new(
            Route::Fixed(client),
            name,
        )))),
        Err(error) => Err(OpenError::Unreachable {
            address: name,
            reason: error.to_string(),
        }),
    }
}
