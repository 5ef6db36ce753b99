//! What a crowd has seen: how many, how fast, and what went wrong.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::trouble::Trouble;

/// The counts and times of a crowd since they were last taken.
#[derive(Debug)]
pub struct Tally {
    began: Instant,
    counted: Mutex<Counted>,
}

/// What was counted.
#[derive(Debug, Default, Clone)]
pub struct Counted {
    /// Sends that were accepted, and how long their answers took.
    pub sent: Times,
    /// Messages that ended a wait, and how long after their sending.
    pub arrived: Times,
    /// What went wrong, by what it was.
    pub troubles: BTreeMap<String, u64>,
}

/// Durations, in microseconds.
#[derive(Debug, Default, Clone)]
pub struct Times(Vec<u32>);

impl Default for Tally {
    fn default() -> Self {
        Self { began: Instant::now(), counted: Mutex::default() }
    }
}

impl Tally {
    /// Returns the time by the crowd's clock, in microseconds: what a message is stamped with.
    pub fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// A send was accepted, which was begun at that time.
    pub fn sent(&self, begun: u64) {
        let took = self.now().saturating_sub(begun);
        self.counted().sent.add(took);
    }

    /// A message arrived. Without a stamp nobody of this crowd sent it.
    pub fn arrived(&self, stamp: Option<u64>) {
        let Some(stamp) = stamp else { return };
        let took = self.now().saturating_sub(stamp);
        self.counted().arrived.add(took);
    }

    /// Something went wrong.
    pub fn trouble(&self, trouble: &Trouble) {
        *self.counted().troubles.entry(trouble.to_string()).or_default() += 1;
    }

    /// Returns how many messages were sent and how many arrived since the last taking.
    pub fn progress(&self) -> (usize, usize) {
        let counted = self.counted();
        (counted.sent.count(), counted.arrived.count())
    }

    /// Takes what was counted since the last taking.
    pub fn take(&self) -> Counted {
        std::mem::take(&mut self.counted())
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Times {
    fn add(&mut self, microseconds: u64) {
        self.0.push(u32::try_from(microseconds).unwrap_or(u32::MAX));
    }

    /// Returns how many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the time that a share of them stayed below, 0.5 for the median; zero where there are none.
    pub fn percentile(&self, share: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let index = (share * sorted.len() as f64) as usize;
        let time = sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default();
        Duration::from_micros(time.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_the_times_are_read_off_them() {
        let mut times = Times::default();
        assert_eq!(times.percentile(0.5), Duration::ZERO);
        (1..=100).rev().for_each(|time| times.add(time));
        let read = |share| times.percentile(share).as_micros();
        assert_eq!((read(0.5), read(0.99), read(1.0)), (51, 100, 100));
    }
}
