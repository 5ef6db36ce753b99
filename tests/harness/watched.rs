//! Real Redis servers with real sentinels: a master, its replicas, and the sentinels that promote a replica.

use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::try_join_all;

use crate::certificates::Certificates;
use crate::eventually::eventually;
use crate::ports::free_port;
use crate::redis::Redis;

/// The sentinels' name for the master.
pub const MASTER: &str = "mymaster";
/// How long the servers may take to discover each other: a sentinel whose machine paused for 2 s changes nothing for 30 s.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// The sentinels' settings: a server that is silent for a second is down.
const RULES: &str =
    "sentinel down-after-milliseconds mymaster 1000\nsentinel failover-timeout mymaster 5000\n";

/// A master, replicas, and sentinels.
#[derive(Debug)]
pub struct Watched {
    /// The master at the start is the first; the others are its replicas.
    pub servers: Vec<Redis>,
    /// The sentinels.
    pub sentinels: Vec<Redis>,
}

impl Watched {
    /// Starts a master with that many replicas, and that many sentinels with a majority as their quorum.
    ///
    /// # Panics
    ///
    /// Panics if there is no redis-server in the `PATH`.
    pub async fn start(replicas: usize, sentinels: usize) -> Result<Self> {
        let master = Redis::start().await?;
        let port = master.port().to_string();
        let of_master = [
            "--replicaof",
            &format!("127.0.0.1 {port}"),
            "--repl-diskless-sync-delay",
            "0",
        ];
        let mut servers = vec![master];
        servers.extend(try_join_all((0..replicas).map(|_| Redis::start_with(&of_master))).await?);
        let most = sentinels / 2 + 1;
        let lines = format!("sentinel monitor {MASTER} 127.0.0.1 {port} {most}\n{RULES}");
        let sentinels = try_join_all((0..sentinels).map(|_| Redis::start_sentinel(&lines))).await?;
        let watched = Self { servers, sentinels };
        watched.ready().await?;
        Ok(watched)
    }

    /// Starts a master and a sentinel with TLS on additional ports, and returns the TLS address of the sentinel.
    ///
    /// # Panics
    ///
    /// Panics if there is no redis-server in the `PATH`.
    pub async fn start_with_tls(certificates: &Certificates) -> Result<(Self, String)> {
        let (master, _) =
            Redis::start_with_tls_and(certificates, &["--tls-replication", "yes"]).await?;
        let (master_port, port) = (master.client_port(), free_port()?);
        let settings = certificates.settings();
        let settings = settings
            .chunks(2)
            .map(|pair| format!("{} {}\n", pair[0].trim_start_matches('-'), pair[1]));
        let lines = format!(
            "sentinel monitor {MASTER} 127.0.0.1 {master_port} 1\n{RULES}{}tls-port {port}\ntls-replication yes\n",
            settings.collect::<String>()
        );
        let watched = Self {
            servers: vec![master],
            sentinels: vec![Redis::start_sentinel(&lines).await?],
        };
        watched.ready().await?;
        Ok((
            watched,
            format!("rediss+sentinel://127.0.0.1:{port}/{MASTER}"),
        ))
    }

    /// Returns the URL for the master through its sentinels.
    pub fn url(&self) -> String {
        let places: Vec<_> = self
            .sentinels
            .iter()
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port()))
            .collect();
        format!("redis+sentinel://{}/{MASTER}", places.join(","))
    }

    /// Waits until every sentinel has found the others and every replica.
    async fn ready(&self) -> Result<()> {
        let replicas = format!("num-slaves\r\n${}\r\n{}\r\n", 1, self.servers.len() - 1);
        let others = format!(
            "num-other-sentinels\r\n${}\r\n{}\r\n",
            1,
            self.sentinels.len() - 1
        );
        eventually(
            "the sentinels know each other and the replicas",
            READY_LIMIT,
            async || {
                for sentinel in &self.sentinels {
                    let told = sentinel.tell(&["SENTINEL", "MASTER", MASTER]).await.ok()?;
                    (told.contains(&replicas) && told.contains(&others)).then_some(())?;
                }
                // A sentinel has two links to the master, for commands and for its publications. Any problem would add a flag.
                for sentinel in &self.sentinels {
                    let told = sentinel.tell(&["SENTINEL", "MASTER", MASTER]).await.ok()?;
                    told.contains("\nflags\r\n$6\r\nmaster\r\n").then_some(())?;
                }
                for replica in &self.servers[1..] {
                    replica
                        .tell(&["INFO", "replication"])
                        .await
                        .ok()?
                        .contains("master_link_status:up")
                        .then_some(())?;
                }
                Some(())
            },
        )
        .await
    }

    /// Returns the port of the master that a sentinel currently names.
    pub async fn master_port(&self) -> Result<u16> {
        let told = self.sentinels[0]
            .tell(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER])
            .await?;
        told.lines()
            .last()
            .context("an answer")?
            .parse()
            .context("a port")
    }
}
