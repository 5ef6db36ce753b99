//! The measurements of a crowd: counts, times and errors.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::trouble::Trouble;

/// The counts and times of a crowd since the last [`take`](Tally::take).
#[derive(Debug)]
pub struct Tally {
    began: Instant,
    counted: Mutex<Counted>,
}

/// Counts and times.
#[derive(Debug, Default, Clone)]
pub struct Counted {
    /// The accepted sends, with their response times.
    pub sent: Times,
    /// The messages that ended a wait, with their time in transit.
    pub arrived: Times,
    /// The number of errors, by kind.
    pub troubles: BTreeMap<String, u64>,
}

/// Durations, in microseconds.
#[derive(Debug, Default, Clone)]
pub struct Times(Vec<u32>);

impl Default for Tally {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            counted: Mutex::default(),
        }
    }
}

impl Tally {
    /// Returns the time on the crowd's clock in microseconds, which is the stamp of a message.
    pub fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Records an accepted send that began at that time.
    pub fn sent(&self, begun: u64) {
        let took = self.now().saturating_sub(begun);
        self.counted().sent.add(took);
    }

    /// Records the arrival of a message. Without a stamp it is not from this crowd, and is ignored.
    pub fn arrived(&self, stamp: Option<u64>) {
        let Some(stamp) = stamp else { return };
        let took = self.now().saturating_sub(stamp);
        self.counted().arrived.add(took);
    }

    /// Records an error.
    pub fn trouble(&self, trouble: &Trouble) {
        *self
            .counted()
            .troubles
            .entry(trouble.to_string())
            .or_default() += 1;
    }

    /// Returns how many messages were sent and how many arrived since the last [`take`](Self::take).
    pub fn progress(&self) -> (usize, usize) {
        let counted = self.counted();
        (counted.sent.count(), counted.arrived.count())
    }

    /// Takes the counts since the last call, and starts again at zero.
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

    /// Returns the number of durations.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the duration below which that share of them lies, 0.5 for the median; zero if there are none.
    pub fn percentile(&self, share: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let index = (share * sorted.len() as f64) as usize;
        let time = sorted
            .get(index.min(sorted.len().saturating_sub(1)))
            .copied()
            .unwrap_or_default();
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
