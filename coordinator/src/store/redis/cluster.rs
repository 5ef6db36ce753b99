//! Redis Cluster: sends each command to the master of the fleet's slot, and follows the slot when it moves.
//!
//! The cluster client of the `redis` crate is not used. It delays all commands while it dials or queries one node, and it
//! retries beyond our deadlines.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::time::{Instant, sleep, timeout};

use super::key_names::KeyNames;
use super::node::{Node, Route, too_slow};
use super::reach::Reach;
use super::slots::{self, Redirect, Slots};
use crate::config::ServerAddress;

/// The limit of redirects per command. A slot rarely moves twice during one command.
const REDIRECTIONS: usize = 4;
/// How long, and at which interval, a command is retried while its slot moves.
const MOVING_LIMIT: Duration = Duration::from_secs(1);
const MOVING_PAUSE: Duration = Duration::from_millis(20);
/// The deadline for fetching the slot map.
const LOOK_DEADLINE: Duration = Duration::from_millis(500);
/// How long a slot map is used before it may be fetched again, even after errors.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// The cluster that stores the fleet.
pub(super) struct Cluster {
    reach: Reach,
    /// The slot of every key of the fleet.
    slot: u16,
    /// The configured servers: the first to be asked for the slot map, and the fallback when all other servers are down.
    named: Vec<ServerAddress>,
    map: Mutex<Arc<Map>>,
    /// Allows one fetch of the slot map at a time; other callers use its result.
    looking: tokio::sync::Mutex<()>,
}

/// The slot map and the connections to its servers.
#[derive(Default)]
struct Map {
    slots: Slots,
    nodes: HashMap<ServerAddress, Arc<Node>>,
    looked: Option<Instant>,
}

impl Cluster {
    /// Makes the handle without connecting; the first command connects.
    pub(super) fn new(reach: Reach, named: Vec<ServerAddress>, names: &KeyNames) -> Self {
        let slot = slots::slot(names.key("-").as_bytes());
        Self {
            reach,
            slot,
            named,
            map: Mutex::default(),
            looking: tokio::sync::Mutex::new(()),
        }
    }

    /// Runs a command on the master of the fleet.
    pub(super) async fn call<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let mut map = self.known().await?;
        let Some(mut server) = map.slots.master(self.slot).cloned() else {
            self.look_again(&map).await;
            return Err(no_master());
        };
        let (mut asking, mut left) = (false, REDIRECTIONS);
        let moving = Instant::now() + MOVING_LIMIT;
        while left > 0 {
            let node = self.node(&map, &server)?;
            let answer = if asking {
                node.call_asking(command).await
            } else {
                node.call(command).await
            };
            let Err(error) = answer else { return answer };
            match slots::redirect(&error, &server) {
                // The slot is moving. The command is retried until one server has all its keys, so that it never runs on half
                // of them.
                _ if is_moving(&error) && Instant::now() < moving => sleep(MOVING_PAUSE).await,
                Some(Redirect::Ask(there)) => {
                    (server, asking) = (there, true);
                    left -= 1;
                }
                Some(Redirect::Moved(there)) => {
                    asking = false;
                    left -= 1;
                    self.look_again(&map).await;
                    map = self.keep(&there)?;
                    server = there;
                }
                None => {
                    if may_have_moved(&error) {
                        self.look_again(&map).await;
                    }
                    return Err(error);
                }
            }
        }
        Err((ErrorKind::Client, "too many redirects for this key").into())
    }

    /// Returns the map with a connection to this server added. Commands can use the server before the next fetch lists it.
    fn keep(&self, server: &ServerAddress) -> RedisResult<Arc<Map>> {
        let mut current = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        if !current.nodes.contains_key(server) {
            let mut nodes = current.nodes.clone();
            nodes.insert(server.clone(), self.new_node(server)?);
            *current = Arc::new(Map {
                slots: current.slots.clone(),
                nodes,
                looked: current.looked,
            });
        }
        Ok(Arc::clone(&current))
    }

    /// Returns every master.
    pub(super) async fn masters(&self) -> RedisResult<Vec<Arc<Node>>> {
        let map = self.known().await?;
        map.slots
            .masters()
            .iter()
            .map(|server| self.node(&map, server))
            .collect()
    }

    /// Returns the master of the fleet.
    pub(super) async fn master(&self) -> RedisResult<Arc<Node>> {
        let map = self.known().await?;
        match map.slots.master(self.slot) {
            Some(server) => self.node(&map, server),
            None => Err(no_master()),
        }
    }

    /// Returns the names of the configured servers.
    pub(super) fn address(&self) -> String {
        self.named
            .iter()
            .map(ServerAddress::to_string)
            .collect::<Vec<_>>()
            .join(",")
    }

    /// Returns the connection to a server, or a new one if the map has none.
    fn node(&self, map: &Map, server: &ServerAddress) -> RedisResult<Arc<Node>> {
        match map.nodes.get(server) {
            Some(node) => Ok(Arc::clone(node)),
            None => self.new_node(server),
        }
    }

    fn new_node(&self, server: &ServerAddress) -> RedisResult<Arc<Node>> {
        Ok(Arc::new(Node::new(
            Route::Fixed(self.reach.client(server)?),
            server.to_string(),
        )))
    }

    /// Returns the slot map, fetching it first if there is none.
    async fn known(&self) -> RedisResult<Arc<Map>> {
        let map = self.map();
        if !map.nodes.is_empty() {
            return Ok(map);
        }
        self.look(&map).await?;
        Ok(self.map())
    }

    /// Fetches the slot map again unless it was fetched just now. The map stays unchanged if no server responds.
    async fn look_again(&self, seen: &Arc<Map>) {
        if seen.looked.is_some_and(|at| at.elapsed() < LOOK_PAUSE) {
            return;
        }
        if let Err(error) = self.look(seen).await {
            tracing::debug!(
                "could not fetch the slot map of the cluster at {}: {error}",
                self.address()
            );
        }
    }

    async fn look(&self, seen: &Arc<Map>) -> RedisResult<()> {
        let _turn = self.looking.lock().await;
        let map = self.map();
        if !Arc::ptr_eq(&map, seen) {
            return Ok(());
        }
        let found = timeout(LOOK_DEADLINE, self.ask_around(&map))
            .await
            .unwrap_or_else(|_| Err(too_slow("looking")));
        let (next, answer) = match found {
            Ok(next) => (next, Ok(())),
            // The same slots with a new fetch time, so that a failing command does not trigger another fetch at once.
            Err(error) => (
                Map {
                    slots: map.slots.clone(),
                    nodes: map.nodes.clone(),
                    looked: Some(Instant::now()),
                },
                Err(error),
            ),
        };
        *self.map.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        answer
    }

    /// Asks every server for the slot map concurrently and uses the first valid reply.
    async fn ask_around(&self, map: &Map) -> RedisResult<Map> {
        let mut nodes = map.nodes.clone();
        for server in &self.named {
            if !nodes.contains_key(server) {
                nodes.insert(server.clone(), self.new_node(server)?);
            }
        }
        let mut answers: FuturesUnordered<_> = nodes
            .iter()
            .map(|(server, node)| ask(server, node))
            .collect();
        let mut refused = None;
        let slots = loop {
            match answers.next().await {
                Some(Ok(slots)) => break slots,
                Some(Err(error)) => refused = Some(error),
                None => {
                    return Err(
                        refused.unwrap_or_else(|| (ErrorKind::Client, "no server is named").into())
                    );
                }
            }
        };
        drop(answers);
        let mut kept = HashMap::new();
        for server in self.named.iter().cloned().chain(slots.masters()) {
            let node = match nodes.remove(&server) {
                Some(node) => node,
                None if kept.contains_key(&server) => continue,
                None => self.new_node(&server)?,
            };
            kept.insert(server, node);
        }
        Ok(Map {
            slots,
            nodes: kept,
            looked: Some(Instant::now()),
        })
    }

    fn map(&self) -> Arc<Map> {
        Arc::clone(&self.map.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn no_master() -> RedisError {
    (
        ErrorKind::Client,
        "no server of the cluster serves the slot of this fleet",
    )
        .into()
}

fn is_moving(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::TryAgain)
}

async fn ask(server: &ServerAddress, node: &Node) -> RedisResult<Slots> {
    let answer: Value = node.call(redis::cmd("CLUSTER").arg("SLOTS")).await?;
    // A server that lost its configuration, or never joined, belongs to no cluster and has no slots.
    let slots = Slots::read(&answer, server).filter(|slots| !slots.masters().is_empty());
    slots.ok_or_else(|| (ErrorKind::Client, "it did not return a slot map").into())
}

/// Returns whether the error may come from a server that is no longer the master.
fn may_have_moved(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Io
            | ErrorKind::Server(
                ServerErrorKind::ReadOnly
                    | ServerErrorKind::ClusterDown
                    | ServerErrorKind::MasterDown
            )
    )
}
