//! Quiet hours: the time of a day in which only urgent messages are pushed.

use std::time::Duration;

use c3po_shared::time::Timestamp;
use jiff::tz::TimeZone;

/// The minutes of a day.
const DAY: u64 = 24 * 60;

/// Quiet hours in a time zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QuietHours {
    /// The minutes of the day at which they begin and end.
    begin: u64,
    end: u64,
    zone: TimeZone,
}

impl QuietHours {
    /// Parses hours such as `22:00-07:00`. Without the name of a zone they are in that of this machine.
    ///
    /// Errors: they are something else, or the zone is unknown.
    pub(super) fn parse(hours: &str, zone: Option<&str>) -> Result<Self, String> {
        let wrong = || format!("quiet is {hours}; write it as 22:00-07:00");
        let (begin, end) = hours.split_once('-').ok_or_else(wrong)?;
        let begin = minute(begin).ok_or_else(wrong)?;
        let end = minute(end).filter(|end| *end != begin).ok_or_else(wrong)?;
        let zone = match zone {
            Some(name) => {
                TimeZone::get(name).map_err(|_| format!("there is no time zone {name}"))?
            }
            None => TimeZone::system(),
        };
        Ok(Self { begin, end, zone })
    }

    /// Returns how long they still last, or `None` outside of them.
    pub(super) fn left(&self, now: Timestamp) -> Option<Duration> {
        let millis = i64::try_from(now.millis()).ok()?;
        let local = jiff::Timestamp::from_millisecond(millis).ok()?;
        let local = local.to_zoned(self.zone.clone()).time();
        let present =
            u64::try_from(local.hour()).ok()? * 60 + u64::try_from(local.minute()).ok()?;
        let since = (present + DAY - self.begin) % DAY;
        let length = (self.end + DAY - self.begin) % DAY;
        let seconds =
            (length.checked_sub(since)? * 60).checked_sub(u64::try_from(local.second()).ok()?);
        seconds.filter(|left| *left > 0).map(Duration::from_secs)
    }
}

fn minute(text: &str) -> Option<u64> {
    let (hours, minutes) = text.trim().split_once(':')?;
    let (hours, minutes): (u64, u64) = (hours.parse().ok()?, minutes.parse().ok()?);
    (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_end_in_the_morning_of_their_zone() {
        // 2026-01-15T00:00:00Z, when Berlin is an hour ahead.
        let midnight = 1_768_435_200_000;
        let check = |hours: &str, zone: &str, at: u64, left: Option<u64>| {
            let quiet = QuietHours::parse(hours, Some(zone)).expect("hours");
            let now = Timestamp::from_millis(midnight + at * 1_000);
            assert_eq!(
                quiet.left(now),
                left.map(Duration::from_secs),
                "{hours} {zone} {at}"
            );
        };
        check("22:00-07:00", "UTC", 0, Some(7 * 3600));
        check("22:00-07:00", "Europe/Berlin", 0, Some(6 * 3600));
        check("22:00-07:00", "UTC", 7 * 3600 - 1, Some(1));
        check("22:00-07:00", "UTC", 7 * 3600, None);
        check("22:00-07:00", "UTC", 22 * 3600 - 1, None);
        check("22:00-07:00", "UTC", 22 * 3600, Some(9 * 3600));
        check("12:00-13:30", "UTC", 12 * 3600 + 90, Some(5400 - 90));
        for wrong in ["22-7", "22:00", "24:00-07:00", "07:00-07:00", "7:60-8:00"] {
            assert!(QuietHours::parse(wrong, None).is_err(), "{wrong}");
        }
        assert!(QuietHours::parse("22:00-07:00", Some("Mars/Olympus")).is_err());
    }
}
