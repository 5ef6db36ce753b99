//! The duration of a Redis server's scripts, summed over all its processes, because each process counts only its own.

use std::ops::AddAssign;

use anyhow::{Context, Result};

use crate::redis::Redis;

/// Redis counts in buckets with doubling bounds, in microseconds. This is the bucket closest to the limit of 2 ms for a
/// script.
const BUCKET: u64 = 2_113;

/// The counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scripts {
    /// The number of script calls.
    pub calls: u64,
    /// The number of calls that took longer than 2 ms.
    pub slow: u64,
}

/// The statistics of a command: `calls N histogram_usec [BOUND, HOW MANY WITHIN, …]`.
type Histogram = (String, u64, String, Vec<(u64, u64)>);

impl Scripts {
    /// Returns the counts of a Redis since its start.
    ///
    /// Errors: it does not respond.
    pub(super) async fn of(redis: &Redis) -> Result<Self> {
        let mut connection = ::redis::Client::open(redis.url())?
            .get_multiplexed_async_connection()
            .await?;
        let mut command = ::redis::cmd("LATENCY");
        command.arg("HISTOGRAM").arg("evalsha").arg("fcall");
        let found: Vec<(String, Histogram)> = command
            .query_async(&mut connection)
            .await
            .context("LATENCY HISTOGRAM")?;
        let mut scripts = Self::default();
        for (_, (_, calls, _, buckets)) in found {
            let within = buckets
                .iter()
                .take_while(|(bound, _)| *bound <= BUCKET)
                .last()
                .map_or(0, |(_, within)| *within);
            scripts += Self {
                calls,
                slow: calls - within,
            };
        }
        Ok(scripts)
    }

    /// Returns whether their 99th percentile is within 2 ms.
    pub fn are_short(self) -> bool {
        self.slow * 100 <= self.calls
    }
}

impl AddAssign for Scripts {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.slow += other.slow;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn short_and_long_scripts_are_counted() -> Result<()> {
        let redis = Redis::start().await?;
        assert_eq!(Scripts::of(&redis).await?, Scripts::default());
        let loaded = redis
            .tell(&[
                "SCRIPT",
                "LOAD",
                "for _ = 1, tonumber(ARGV[1]) do end return 1",
            ])
            .await?;
        let script = loaded
            .lines()
            .nth(1)
            .context("no name of the script")?
            .to_owned();
        for turns in ["1", "1", "2000000"] {
            redis.tell(&["EVALSHA", &script, "0", turns]).await?;
        }
        let scripts = Scripts::of(&redis).await?;
        assert_eq!(
            (scripts, scripts.are_short()),
            (Scripts { calls: 3, slow: 1 }, false)
        );
        Ok(())
    }
}
