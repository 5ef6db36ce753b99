//! Asking sentinels which server is the master at present.

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

/// How long the others may take once the first sentinel has answered. One that was cut off may know an older master.
const PATIENCE: Duration = Duration::from_millis(200);

/// Sentinels that watch a master.
pub(super) struct Sentinels {
    reach: Reach,
    servers: Vec<ServerAddress>,
    master: String,
}

/// What one sentinel says: the master and the number of the failover that made it one.
type Word = (u64, ServerAddress);

impl Sentinels {
    /// Makes the handle; nobody is asked yet.
    pub(super) fn new(reach: Reach, servers: Vec<ServerAddress>, master: String) -> Self {
        Self { reach, servers, master }
    }

    /// Returns what dials the present master: the one of the latest failover that any sentinel knows.
    pub(super) async fn client(&self) -> RedisResult<Client> {
        self.reach.client(&self.present().await?)
    }

    async fn present(&self) -> RedisResult<ServerAddress> {
        let mut answers: FuturesUnordered<_> = self.servers.iter().map(|sentinel| self.ask(sentinel)).collect();
        let (mut latest, mut refused): (Option<Word>, Option<RedisError>) = (None, None);
        let mut end: Option<Instant> = None;
        loop {
            let next = match end {
                // Who has not answered by now is not waited for.
                Some(end) => timeout_at(end, answers.next()).await.unwrap_or(None),
                None => answers.next().await,
            };
            match next {
                Some(Ok(word)) => {
                    end = end.or_else(|| Some(Instant::now() + PATIENCE));
                    latest =
                        Some(latest.into_iter().chain([word]).max_by_key(|(epoch, _)| *epoch).expect("one is there"));
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
        // Most sentinels know no users, and refuse a login; those that know some refuse whoever has none.
        let anonymous = self.ask_as(self.reach.client_of_nobody(sentinel)).await;
        match anonymous {
            Err(error) if wants_login(&error) => self.ask_as(self.reach.client_of_sentinel(sentinel)).await,
            answer => answer,
        }
        .map_err(told)
    }

    async fn ask_as(&self, client: RedisResult<Client>) -> RedisResult<Word> {
        let mut line = client?.get_multiplexed_async_connection_with_config(&connecting()).await?;
        let facts: HashMap<String, String> =
            redis::cmd("SENTINEL").arg("MASTER").arg(&self.master).query_async(&mut line).await?;
        let fact = |name: &str| facts.get(name).map(String::as_str).unwrap_or_default();
        match (fact("port").parse(), fact("ip")) {
            (Ok(port), host) if !host.is_empty() => {
                Ok((fact("config-epoch").parse().unwrap_or(0), ServerAddress { host: host.to_owned(), port }))
            }
            _ => Err((ErrorKind::Client, "it does not say where the master is").into()),
        }
    }
}

fn wants_login(error: &RedisError) -> bool {
    error.code() == Some("NOAUTH") || error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
}

/// Returns an error unless the server is a master. Right after a failover the old one may not know yet that it is none.
pub(super) async fn must_be_master(line: &mut MultiplexedConnection) -> RedisResult<()> {
    let role: RedisResult<Vec<redis::Value>> = redis::cmd("ROLE").query_async(line).await;
    let is_master = match role {
        Ok(role) => role
            .first()
            .is_some_and(|word| redis::from_redis_value_ref::<String>(word).ok().as_deref() == Some("master")),
        // A user that may not ask finds out by what is refused to a replica.
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) => true,
        Err(error) => return Err(error),
    };
    if is_master {
        Ok(())
    } else {
        Err(std::io::Error::other("the server that sentinels name is no master yet").into())
    }
}
