//! Real Redis servers that real sentinels watch: a master, its replicas, and who makes one of them the next master.

use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::try_join_all;

use crate::certificates::Certificates;
use crate::eventually::eventually;
use crate::ports::free_port;
use crate::redis::Redis;

/// The name under which the sentinels know the master.
pub const MASTER: &str = "mymaster";
/// How long everybody may take to know of everybody.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// How the sentinels work: what is silent for a second is down.
const RULES: &str = "sentinel down-after-milliseconds mymaster 1000\nsentinel failover-timeout mymaster 5000\n";

/// A master, replicas, and sentinels.
#[derive(Debug)]
pub struct Watched {
    /// The first one is the master at the start, the others are its replicas.
    pub servers: Vec<Redis>,
    /// Who watches them.
    pub sentinels: Vec<Redis>,
}

impl Watched {
    /// Starts a master with that many replicas, and that many sentinels, the most of which decide.
    ///
    /// # Panics
    ///
    /// Where there is no redis-server in the `PATH`.
    pub async fn start(replicas: usize, sentinels: usize) -> Result<Self> {
        let master = Redis::start().await?;
        let port = master.port().to_string();
        let of_master = ["--replicaof", &format!("127.0.0.1 {port}"), "--repl-diskless-sync-delay", "0"];
        let mut servers = vec![master];
        servers.extend(try_join_all((0..replicas).map(|_| Redis::start_with(&of_master))).await?);
        let most = sentinels / 2 + 1;
        let lines = format!("sentinel monitor {MASTER} 127.0.0.1 {port} {most}\n{RULES}");
        let sentinels = try_join_all((0..sentinels).map(|_| Redis::start_sentinel(&lines))).await?;
        let watched = Self { servers, sentinels };
        watched.ready().await?;
        Ok(watched)
    }

    /// Starts a master and a sentinel that speak TLS on second ports, and returns the address of that of the sentinel.
    ///
    /// # Panics
    ///
    /// Where there is no redis-server in the `PATH`.
    pub async fn start_with_tls(certificates: &Certificates) -> Result<(Self, String)> {
        let (master, _) = Redis::start_with_tls_and(certificates, &["--tls-replication", "yes"]).await?;
        let (master_port, port) = (master.client_port(), free_port()?);
        let settings = certificates.settings();
        let settings = settings.chunks(2).map(|pair| format!("{} {}\n", pair[0].trim_start_matches('-'), pair[1]));
        let lines = format!(
            "sentinel monitor {MASTER} 127.0.0.1 {master_port} 1\n{RULES}{}tls-port {port}\ntls-replication yes\n",
            settings.collect::<String>()
        );
        let watched = Self { servers: vec![master], sentinels: vec![Redis::start_sentinel(&lines).await?] };
        watched.ready().await?;
        Ok((watched, format!("rediss+sentinel://127.0.0.1:{port}/{MASTER}")))
    }

    /// Returns the address by which c3po reaches the master.
    pub fn url(&self) -> String {
        let places: Vec<_> = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
        format!("redis+sentinel://{}/{MASTER}", places.join(","))
    }

    /// Waits until every sentinel knows the others and every replica.
    async fn ready(&self) -> Result<()> {
        let replicas = format!("num-slaves\r\n${}\r\n{}\r\n", 1, self.servers.len() - 1);
        let others = format!("num-other-sentinels\r\n${}\r\n{}\r\n", 1, self.sentinels.len() - 1);
        eventually("the sentinels know each other and the replicas", READY_LIMIT, async || {
            for sentinel in &self.sentinels {
                let told = sentinel.tell(&["SENTINEL", "MASTER", MASTER]).await.ok()?;
                (told.contains(&replicas) && told.contains(&others)).then_some(())?;
            }
            // Two links each: to the master for questions and for what it publishes.
            for sentinel in &self.sentinels {
                let told = sentinel.tell(&["SENTINEL", "MASTER", MASTER]).await.ok()?;
                told.contains("\nflags\r\n$6\r\nmaster\r\n").then_some(())?;
            }
            for replica in &self.servers[1..] {
                replica.tell(&["INFO", "replication"]).await.ok()?.contains("master_link_status:up").then_some(())?;
            }
            Some(())
        })
        .await
    }

    /// Returns the port of the master that a sentinel names now.
    pub async fn master_port(&self) -> Result<u16> {
        let told = self.sentinels[0].tell(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]).await?;
        told.lines().last().context("an answer")?.parse().context("a port")
    }
}
