//! The coordinator under load, with its store, and what the two have used.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use harness::coordinator::Coordinator;
use harness::redis::Redis;
use harness::vitals::Vitals;

use crate::Store;

/// What is loaded.
pub(crate) struct Server {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    process: Option<u32>,
    redis: Option<Redis>,
    /// Ends with this.
    _coordinator: Option<Coordinator>,
}

/// Processor time, since the start or between two looks.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Used {
    /// The coordinator's.
    pub(crate) coordinator: Duration,
    /// Its Redis's.
    pub(crate) redis: Duration,
}

/// Resident memory, in bytes.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Memory {
    /// The coordinator's.
    pub(crate) coordinator: u64,
    /// Its Redis's.
    pub(crate) redis: u64,
}

impl Server {
    /// Takes one that runs.
    pub(crate) fn running(address: &str, process: Option<u32>) -> Result<Self> {
        let address = address.trim_start_matches("http://").parse().with_context(|| address.to_owned())?;
        Ok(Self { address, process, redis: None, _coordinator: None })
    }

    /// Starts one with a store of its own in `folder`.
    pub(crate) async fn start(store: Store, folder: &Path) -> Result<Self> {
        let redis = match store {
            Store::Redis => Some(Redis::start().await?),
            Store::Sqlite => None,
        };
        let url = match &redis {
            Some(redis) => redis.url(),
            None => format!("sqlite:{}", folder.join("c3po.db").display()),
        };
        let mut coordinator = Coordinator::absent(folder, &url)?.quietly().unlimited();
        coordinator.restart().await?;
        let process = Some(coordinator.process()?.id()?);
        Ok(Self { address: coordinator.address(), process, redis, _coordinator: Some(coordinator) })
    }

    /// Returns what was used since the processes started; nothing of those that are unknown.
    pub(crate) fn used(&self) -> Result<Used> {
        let (coordinator, redis) = self.vitals()?;
        let used = |vitals: Option<Vitals>| vitals.map(|vitals| vitals.processor).unwrap_or_default();
        Ok(Used { coordinator: used(coordinator), redis: used(redis) })
    }

    /// Returns what is held now.
    pub(crate) fn memory(&self) -> Result<Memory> {
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
    pub(crate) fn since(self, before: &Self) -> Self {
        Self {
            coordinator: self.coordinator.saturating_sub(before.coordinator),
            redis: self.redis.saturating_sub(before.redis),
        }
    }

    /// Returns what was used in each second of so many.
    pub(crate) fn per_second(self, seconds: f64) -> Self {
        let each = |used: Duration| if seconds > 0.0 { used.div_f64(seconds) } else { Duration::ZERO };
        Self { coordinator: each(self.coordinator), redis: each(self.redis) }
    }
}
