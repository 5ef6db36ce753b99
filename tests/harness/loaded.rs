//! A coordinator and its store under load, with their resource usage.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::coordinator::Coordinator;
use crate::redis::Redis;
use crate::vitals::{Vitals, wake_ups};
use anyhow::{Context, Result};

/// The coordinator under load.
#[derive(Debug)]
pub struct Loaded {
    /// The address on which it listens.
    pub address: SocketAddr,
    process: Option<u32>,
    redis: Option<Redis>,
    /// Stopped when this is dropped.
    _coordinator: Option<Coordinator>,
}

/// Processor time, in total or between two measurements.
#[derive(Debug, Default, Clone, Copy)]
pub struct Used {
    /// The time of the coordinator.
    pub coordinator: Duration,
    /// The time of its Redis.
    pub redis: Duration,
}

/// Resident memory, in bytes.
#[derive(Debug, Default, Clone, Copy)]
pub struct Memory {
    /// The memory of the coordinator.
    pub coordinator: u64,
    /// The memory of its Redis.
    pub redis: u64,
}

impl Loaded {
    /// Uses a running coordinator, and its process if that is known.
    ///
    /// Errors: the address is invalid.
    pub fn running(address: &str, process: Option<u32>) -> Result<Self> {
        let address = address
            .trim_start_matches("http://")
            .parse()
            .with_context(|| address.to_owned())?;
        Ok(Self {
            address,
            process,
            redis: None,
            _coordinator: None,
        })
    }

    /// Starts a coordinator on a new Redis, without a rate limit.
    ///
    /// Errors: one of the two does not start.
    pub async fn on_redis(folder: &Path) -> Result<Self> {
        let redis = Redis::start().await?;
        let url = redis.url();
        Self::start(folder, &url, Some(redis)).await
    }

    /// Starts a coordinator with the embedded store, without a rate limit.
    ///
    /// Errors: it does not start.
    pub async fn on_sqlite(folder: &Path) -> Result<Self> {
        Self::start(
            folder,
            &format!("sqlite:{}", folder.join("loaded.db").display()),
            None,
        )
        .await
    }

    async fn start(folder: &Path, store: &str, redis: Option<Redis>) -> Result<Self> {
        let mut coordinator = Coordinator::absent(folder, store)?.quietly().unlimited();
        coordinator.restart().await?;
        let process = Some(coordinator.process()?.id()?);
        Ok(Self {
            address: coordinator.address(),
            process,
            redis,
            _coordinator: Some(coordinator),
        })
    }

    /// Returns the URL of its Redis, if it was started with one.
    pub fn redis_url(&self) -> Option<String> {
        self.redis.as_ref().map(Redis::url)
    }

    /// Returns how often the coordinator and its Redis were woken since their start.
    ///
    /// Errors: one of them has exited.
    pub fn wake_ups(&self) -> Result<[u64; 2]> {
        let of = |process: Option<u32>| process.map_or(Ok(0), wake_ups);
        Ok([of(self.process)?, of(self.redis.as_ref().map(Redis::id))?])
    }

    /// Returns the processor time since the start of the processes; zero for unknown ones.
    ///
    /// Errors: one of them has exited.
    pub fn used(&self) -> Result<Used> {
        let (coordinator, redis) = self.vitals()?;
        let used =
            |vitals: Option<Vitals>| vitals.map(|vitals| vitals.processor).unwrap_or_default();
        Ok(Used {
            coordinator: used(coordinator),
            redis: used(redis),
        })
    }

    /// Returns the memory in use.
    ///
    /// Errors: one of the two has exited.
    pub fn memory(&self) -> Result<Memory> {
        let (coordinator, redis) = self.vitals()?;
        let held =
            |vitals: Option<Vitals>| vitals.map(|vitals| vitals.resident).unwrap_or_default();
        Ok(Memory {
            coordinator: held(coordinator),
            redis: held(redis),
        })
    }

    fn vitals(&self) -> Result<(Option<Vitals>, Option<Vitals>)> {
        let redis = self.redis.as_ref().map(Redis::id);
        Ok((
            self.process.map(Vitals::of).transpose()?,
            redis.map(Vitals::of).transpose()?,
        ))
    }
}

impl Used {
    /// Returns the difference to an earlier measurement.
    pub fn since(self, before: &Self) -> Self {
        Self {
            coordinator: self.coordinator.saturating_sub(before.coordinator),
            redis: self.redis.saturating_sub(before.redis),
        }
    }

    /// Returns the average per second over that many seconds.
    pub fn per_second(self, seconds: f64) -> Self {
        let each = |used: Duration| {
            if seconds > 0.0 {
                used.div_f64(seconds)
            } else {
                Duration::ZERO
            }
        };
        Self {
            coordinator: each(self.coordinator),
            redis: each(self.redis),
        }
    }
}
