//! Asks sentinels for the present master.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{Client, ErrorKind, RedisError, RedisResult, ServerErrorKind};
use tokio::time::{Instant, timeout_at};

use super::lookup::connecting;
use super::reach::Reach;
use crate::config::ServerAddress;

/// How long to wait for other sentinels after the first reply. A sentinel that was cut off may report an older master.
const PATIENCE: Duration = Duration::from_millis(200);

/// The sentinels that watch a master.
pub(super) struct Sentinels {
    reach: Reach,
    servers: Vec<ServerAddress>,
    master: String,
}

/// The reply of one sentinel: the failover epoch of the master, and its address.
type Word = (u64, ServerAddress);

impl Sentinels {
    /// Makes the handle without connecting.
    pub(super) fn new(reach: Reach, servers: Vec<ServerAddress>, master: String) -> Self {
        Self {
            reach,
            servers,
            master,
        }
    }

    /// Returns a client for the present master, which is the one with the latest epoch among the replies.
    pub(super) async fn client(&self) -> RedisResult<Client> {
        self.reach.client(&self.present().await?)
    }

    async fn present(&self) -> RedisResult<ServerAddress> {
        let mut answers: FuturesUnordered<_> = self
            .servers
            .iter()
            .map(|sentinel| self.ask(sentinel))
            .collect();
        let (mut latest, mut refused): (Option<Word>, Option<RedisError>) = (None, None);
        let mut end: Option<Instant> = None;
        loop {
            let next = match end {
                // Sentinels that have not replied by now are ignored.
                Some(end) => timeout_at(end, answers.next()).await.unwrap_or(None),
                None => answers.next().await,
            };
            match next {
                Some(Ok(word)) => {
                    end = end.or_else(|| Some(Instant::now() + PATIENCE));
                    latest = Some(
                        latest
                            .into_iter()
                            .chain([word])
                            .max_by_key(|(epoch, _)| *epoch)
                            .expect("one is there"),
                    );
                }
                Some(Err(error)) => refused = Some(error),
                None => break,
            }
        }
        match (latest, refused) {
            (Some((_, server)), _) => Ok(server),
            (None, Some(error)) => Err(error),
            (None, None) => Err((ErrorKind::EmptySentinelList, "no sentinel is named").into()),
        }
    }

    async fn ask(&self, sentinel: &ServerAddress) -> RedisResult<Word> {
        let told = |error: RedisError| {
            let text = format!("the sentinel {sentinel} about {}: {error}", self.master);
            RedisError::from(std::io::Error::other(text))
        };
        // Most sentinels have no users and refuse a login; sentinels with users refuse clients without one.
        let anonymous = self.ask_as(self.reach.client_of_nobody(sentinel)).await;
        match anonymous {
            Err(error) if wants_login(&error) => {
                self.ask_as(self.reach.client_of_sentinel(sentinel)).await
            }
            answer => answer,
        }
        .map_err(told)
    }

    async fn ask_as(&self, client: RedisResult<Client>) -> RedisResult<Word> {
        let mut line = client?
            .get_multiplexed_async_connection_with_config(&connecting())
            .await?;
        let facts: HashMap<String, String> = redis::cmd("SENTINEL")
            .arg("MASTER")
            .arg(&self.master)
            .query_async(&mut line)
            .await?;
        let fact = |name: &str| facts.get(name).map(String::as_str).unwrap_or_default();
        match (fact("port").parse(), fact("ip")) {
            (Ok(port), host) if !host.is_empty() => Ok((
                fact("config-epoch").parse().unwrap_or(0),
                ServerAddress {
                    host: host.to_owned(),
                    port,
                },
            )),
            _ => Err((ErrorKind::Client, "it did not return the master's address").into()),
        }
    }
}

fn wants_login(error: &RedisError) -> bool {
    error.code() == Some("NOAUTH") || error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
}

/// Returns an error unless the server is a master. Right after a failover the old master may not yet have stepped down.
pub(super) async fn must_be_master(line: &mut MultiplexedConnection) -> RedisResult<()> {
    let role: RedisResult<Vec<redis::Value>> = redis::cmd("ROLE").query_async(line).await;
    let is_master = match role {
        Ok(role) => role.first().is_some_and(|word| {
            redis::from_redis_value_ref::<String>(word).ok().as_deref() == Some("master")
        }),
        // If the user may not run `ROLE`, a replica is detected later because it refuses writes.
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) => true,
        Err(error) => return Err(error),
    };
    if is_master {
        Ok(())
    } else {
        Err(std::io::Error::other("the server that the sentinels name is not a master yet").into())
    }
}
