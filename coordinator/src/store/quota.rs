//! Quota of a key: bytes of messages stored per day, counted by the hour, and number of agents.

use c3po_shared::limits::QUOTA_HOURS;
use c3po_shared::time::Timestamp;

/// Milliseconds of an hour.
const HOUR: u64 = 60 * 60 * 1_000;
/// The bytes of a message besides its envelope: its indexes, its inbox entry, its history.
const RECORD_BYTES: u64 = 1_024;

/// The quota that an operation is charged to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quota {
    /// The id of the key, or a fixed word for callers without a key.
    pub key: String,
    /// Whether that is a key, which proves its host.
    pub is_of_key: bool,
    /// The limit of bytes stored per day; `None` for no limit, and nothing is counted.
    pub bytes: Option<u64>,
    /// The limit of agents made with the key; `None` for no limit.
    pub agents: Option<usize>,
}

/// A charge that exceeds a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exceeded {
    /// The key of the quota.
    pub key: String,
    /// The bytes stored within the last day.
    pub count: u64,
    /// The limit of these bytes.
    pub limit: u64,
    /// When there is room for the charge.
    pub until: Timestamp,
}

/// A key that has reached its limit of agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crowded {
    /// The key.
    pub key: String,
    /// The number of its agents.
    pub count: usize,
    /// The limit of its agents.
    pub limit: usize,
}

/// Returns the charge for a message with an envelope of this many bytes.
pub(in crate::store) fn cost(envelope: usize) -> u64 {
    u64::try_from(envelope)
        .unwrap_or(u64::MAX)
        .saturating_add(RECORD_BYTES)
}

/// Returns the number of the hour that contains this time.
pub(in crate::store) fn hour(at: Timestamp) -> u64 {
    at.millis() / HOUR
}

/// Returns when at least `excess` bytes no longer count, given the bytes of each hour, earliest first.
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
            assert_eq!(
                freed_at(&hours, excess).millis(),
                expected * HOUR,
                "{excess}"
            );
        };
        check(1, 124);
        check(10, 124);
        check(11, 125);
        check(31, 134);
        // More than was ever stored: all of it is freed by then.
        check(61, 134);
    }
}
