//! A coordinator under load, with its store, and what the two have used.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::coordinator::Coordinator;
use crate::redis::Redis;
use crate::vitals::{Vitals, wake_ups};
use anyhow::{Context, Result};

/// What is loaded.
#[derive(Debug)]
pub struct Loaded {
    /// Where it listens.
    pub address: SocketAddr,
    process: Option<u32>,
    redis: Option<Redis>,
    /// Ends with this.
    _coordinator: Option<Coordinator>,
}

/// Processor time, since the start or between two looks.
#[derive(Debug, Default, Clone, Copy)]
pub struct Used {
    /// The coordinator's.
    pub coordinator: Duration,
    /// Its Redis's.
    pub redis: Duration,
}

/// Resident memory, in bytes.
#[derive(Debug, Default, Clone, Copy)]
pub struct Memory {
    /// The coordinator's.
    pub coordinator: u64,
    /// Its Redis's.
    pub redis: u64,
}

impl Loaded {
    /// Takes one that runs, and its process where that is known.
    ///
    /// Errors: that is no address.
    pub fn running(address: &str, process: Option<u32>) -> Result<Self> {
        let address = address.trim_start_matches("http://").parse().with_context(|| address.to_owned())?;
        Ok(Self { address, process, redis: None, _coordinator: None })
    }

    /// Starts one on a Redis of its own, without a limit on sends.
    ///
    /// Errors: one of the two does not start.
    pub async fn on_redis(folder: &Path) -> Result<Self> {
        let redis = Redis::start().await?;
        let url = redis.url();
        Self::start(folder, &url, Some(redis)).await
    }

    /// Starts one with the embedded store, without a limit on sends.
    ///
    /// Errors: it does not start.
    pub async fn on_sqlite(folder: &Path) -> Result<Self> {
        Self::start(folder, &format!("sqlite:{}", folder.join("loaded.db").display()), None).await
    }

    async fn start(folder: &Path, store: &str, redis: Option<Redis>) -> Result<Self> {
        let mut coordinator = Coordinator::absent(folder, store)?.quietly().unlimited();
        coordinator.restart().await?;
        let process = Some(coordinator.process()?.id()?);
        Ok(Self { address: coordinator.address(), process, redis, _coordinator: Some(coordinator) })
    }

    /// Returns the address of its Redis, if it has one of its own.
    pub fn redis_url(&self) -> Option<String> {
        self.redis.as_ref().map(Redis::url)
    }

    /// Returns how often the coordinator and its Redis were woken since they started.
    ///
    /// Errors: one of them has ended.
    pub fn wake_ups(&self) -> Result<[u64; 2]> {
        let of = |process: Option<u32>| process.map_or(Ok(0), wake_ups);
        Ok([of(self.process)?, of(self.redis.as_ref().map(Redis::id))?])
    }

    /// Returns what was used since the processes started; nothing of those that are unknown.
    ///
    /// Errors: one of them has ended.
    pub fn used(&self) -> Result<Used> {
        let (coordinator, redis) = self.vitals()?;
        let used = |vitals: Option<Vitals>| vitals.map(|vitals| vitals.processor).unwrap_or_default();
        Ok(Used { coordinator: used(coordinator), redis: used(redis) })
    }

    /// Returns what is held now.
    ///
    /// Errors: one of the two has ended.
    pub fn memory(&self) -> Result<Memory> {
        let (coordinator, redis) = self.vitals()?;
        let held = |vitals: Option<Vitals>| vitals.map(|vitals| vitals.resident).unwrap_or_default();
        Ok(Memory { coordinator: held(coordinator), redis: held(redis) })
    }

    fn vitals(&self) -> Result<(Option<Vitals>, Option<Vitals>)> {
        let redis = self.redis.as_ref().map(Redis::id);
        Ok((self.process.map(Vitals::of).transpose()?, redis.map(Vitals::of).transpose()?))
    }
}

impl Used {
    /// Returns what was used since an earlier look.
    pub fn since(self, before: &Self) -> Self {
        Self {
            coordinator: self.coordinator.saturating_sub(before.coordinator),
            redis: self.redis.saturating_sub(before.redis),
        }
    }

    /// Returns what was used in each second of so many.
    pub fn per_second(self, seconds: f64) -> Self {
        let each = |used: Duration| if seconds > 0.0 { used.div_f64(seconds) } else { Duration::ZERO };
        Self { coordinator: each(self.coordinator), redis: each(self.redis) }
    }
}
