//! A real Redis Cluster of three masters without replicas: with its own folders and free ports, ended with the test.

use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::try_join_all;

use crate::certificates::Certificates;
use crate::eventually::eventually;
use crate::redis::Redis;

/// How long a cluster may take until every slot is served. Redis itself waits two seconds.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// The first and the last slot of each master.
const SLOTS: [(u16, u16); 3] = [(0, 5_460), (5_461, 10_922), (10_923, 16_383)];
/// The settings of a cluster that detects lost servers soon and continues without them.
const SETTINGS: [&str; 8] = [
    "--cluster-enabled",
    "yes",
    "--cluster-require-full-coverage",
    "no",
    "--cluster-node-timeout",
    "1000",
    "--repl-diskless-sync-delay",
    "0",
];

/// Three masters that share all slots.
#[derive(Debug)]
pub struct Cluster {
    /// The masters; each has a third of the slots, in order.
    pub masters: Vec<Redis>,
}

impl Cluster {
    /// Starts three servers, makes them one cluster, and waits until it serves every slot.
    ///
    /// # Panics
    ///
    /// Panics if there is no redis-server in the `PATH`.
    pub async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    /// Starts a cluster whose servers have additional settings.
    ///
    /// # Panics
    ///
    /// Panics if there is no redis-server in the `PATH`.
    pub async fn start_with(settings: &[&str]) -> Result<Self> {
        let settings = [&SETTINGS, settings].concat();
        Self::join(try_join_all(SLOTS.iter().map(|_| Redis::start_with(&settings))).await?).await
    }

    /// Starts a cluster with TLS on additional ports, and returns its TLS address.
    ///
    /// # Panics
    ///
    /// Panics if there is no redis-server in the `PATH`.
    pub async fn start_with_tls(certificates: &Certificates) -> Result<(Self, String)> {
        let settings = [&SETTINGS[..], &["--tls-cluster", "yes"]].concat();
        let started = SLOTS
            .iter()
            .map(|_| Redis::start_with_tls_and(certificates, &settings));
        let (masters, urls): (Vec<_>, Vec<_>) = try_join_all(started).await?.into_iter().unzip();
        let url = urls
            .first()
            .context("there are three")?
            .replace("rediss", "rediss+cluster");
        Ok((Self::join(masters).await?, url))
    }

    async fn join(masters: Vec<Redis>) -> Result<Self> {
        let first = masters.first().context("there are three")?;
        for (master, (from, to)) in masters.iter().zip(SLOTS) {
            master
                .tell(&[
                    "CLUSTER",
                    "ADDSLOTSRANGE",
                    &from.to_string(),
                    &to.to_string(),
                ])
                .await?;
            first
                .tell(&[
                    "CLUSTER",
                    "MEET",
                    "127.0.0.1",
                    &master.client_port().to_string(),
                ])
                .await?;
        }
        let cluster = Self { masters };
        cluster.ready().await?;
        Ok(cluster)
    }

    /// Starts a replica of that master, and waits until it is in sync.
    ///
    /// # Panics
    ///
    /// Panics if there is no redis-server in the `PATH`.
    pub async fn replica_of(&self, master: usize) -> Result<Redis> {
        let (master, replica) = (&self.masters[master], Redis::start_with(&SETTINGS).await?);
        replica
            .tell(&["CLUSTER", "MEET", "127.0.0.1", &master.port().to_string()])
            .await?;
        let told = master.tell(&["CLUSTER", "MYID"]).await?;
        let id = told.lines().last().context("an id")?;
        // `REPLICATE` fails until the two have met.
        eventually("the replica knows its master", READY_LIMIT, async || {
            replica.tell(&["CLUSTER", "REPLICATE", id]).await.ok()
        })
        .await?;
        // The other masters do not vote for an unknown replica.
        eventually(
            "everybody knows that the replica follows its master",
            READY_LIMIT,
            async || {
                for master in &self.masters {
                    let told = master.tell(&["CLUSTER", "REPLICAS", id]).await.ok()?;
                    told.contains(&format!(":{}@", replica.port()))
                        .then_some(())?;
                }
                let told = replica.tell(&["CLUSTER", "INFO"]).await.ok()?;
                told.contains("cluster_size:3").then_some(())?;
                let told = replica.tell(&["INFO", "replication"]).await.ok()?;
                told.contains("master_link_status:up").then_some(())
            },
        )
        .await?;
        Ok(replica)
    }

    /// Returns the URL of the cluster, with two of its servers.
    pub fn url(&self) -> String {
        let servers: Vec<String> = self.masters[..2]
            .iter()
            .map(|master| format!("127.0.0.1:{}", master.port()))
            .collect();
        format!("redis+cluster://{}", servers.join(","))
    }

    /// Waits until every master reports that all slots are served.
    pub async fn ready(&self) -> Result<()> {
        eventually("the cluster serves every slot", READY_LIMIT, async || {
            for master in &self.masters {
                let told = master.tell(&["CLUSTER", "INFO"]).await.ok()?;
                let ready =
                    told.contains("cluster_state:ok") && told.contains("cluster_slots_ok:16384");
                (ready && told.contains("cluster_known_nodes:3")).then_some(())?;
            }
            Some(())
        })
        .await
    }

    /// Returns the index of the master that serves that key.
    pub async fn master_of(&self, key: &str) -> Result<usize> {
        self.place(&self.masters[0], key).await
    }

    /// Returns the same, asking that server.
    pub async fn place(&self, asked: &Redis, key: &str) -> Result<usize> {
        let told = asked.tell(&["CLUSTER", "KEYSLOT", key]).await?;
        let slot: u16 = told
            .trim()
            .trim_start_matches(':')
            .parse()
            .with_context(|| told.clone())?;
        SLOTS
            .iter()
            .position(|(from, to)| (*from..=*to).contains(&slot))
            .context("every slot has a master")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_master_keeps_the_keys_of_its_slots_alone() -> Result<()> {
        let cluster = Cluster::start().await?;
        for key in ["c3po:{a}:agent", "c3po:{b}:agent", "c3po:{c}:agent"] {
            let place = cluster.master_of(key).await?;
            for (number, master) in cluster.masters.iter().enumerate() {
                let answer = master.tell(&["SET", key, "1"]).await;
                assert_eq!(
                    answer.is_ok(),
                    number == place,
                    "{key} at {number}: {answer:?}"
                );
            }
        }
        Ok(())
    }
}
