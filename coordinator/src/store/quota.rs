//! The quota of a key: how many bytes of messages may be stored with it within a day, counted by the hour, and how many agents
//! may be made with it.

use c3po_shared::limits::QUOTA_HOURS;
use c3po_shared::time::Timestamp;

/// Milliseconds of an hour.
const HOUR: u64 = 60 * 60 * 1_000;
/// The bytes of a message beside its envelope: its indexes, its place in the inbox, its history.
const RECORD_BYTES: u64 = 1_024;

/// Whose quota something counts against.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quota {
    /// The id of the key, or a word for those who have none.
    pub key: String,
    /// How many bytes may be stored with it within a day; `None` for any number, and nothing is counted.
    pub bytes: Option<u64>,
    /// How many agents there may be that were made with it; `None` for any number.
    pub agents: Option<usize>,
}

/// A quota that has no room for what was to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exceeded {
    /// Whose it is.
    pub key: String,
    /// How many bytes were stored within the last day.
    pub count: u64,
    /// How many may be.
    pub limit: u64,
    /// From when on there is room for it.
    pub until: Timestamp,
}

/// A key that has as many agents as it may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crowded {
    /// Which one.
    pub key: String,
    /// How many it has.
    pub count: usize,
    /// How many it may have.
    pub limit: usize,
}

/// Returns what a message counts whose envelope has so many bytes.
pub(in crate::store) fn cost(envelope: usize) -> u64 {
    u64::try_from(envelope).unwrap_or(u64::MAX).saturating_add(RECORD_BYTES)
}

/// Returns the number of the hour in which that moment is.
pub(in crate::store) fn hour(at: Timestamp) -> u64 {
    at.millis() / HOUR
}

/// Returns from when on so many bytes count no more, of those of each hour, the earliest first.
pub(in crate::store) fn freed_at(hours: &[(u64, u64)], excess: u64) -> Timestamp {
    let mut left = excess;
    let enough = hours.iter().find(|(_, bytes)| {
        left = left.saturating_sub(*bytes);
        left == 0
    });
    let (last, _) = enough.or(hours.last()).copied().unwrap_or_default();
    Timestamp::from_millis((last + QUOTA_HOURS) * HOUR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_comes_back_hour_by_hour() {
        let hours = [(100, 10), (101, 20), (110, 30)];
        let check = |excess: u64, expected: u64| {
            assert_eq!(freed_at(&hours, excess).millis(), expected * HOUR, "{excess}");
        };
        check(1, 124);
        check(10, 124);
        check(11, 125);
        check(31, 134);
        // More than was ever stored: all of it is gone then.
        check(61, 134);
    }
}
