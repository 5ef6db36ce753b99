//! Timestamps in c3po's format: RFC 3339, UTC, milliseconds.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::parsed::parsed;

/// The last millisecond of the year 9999.
const LATEST: u64 = 253_402_300_799_999;

/// Milliseconds since the Unix epoch; in text `2026-01-15T10:30:00.000Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Returns the current time of this machine's clock.
    pub fn now() -> Self {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// Returns the time that is `millis` milliseconds after the Unix epoch.
    ///
    /// Times after the year 9999 have no text form and become its last millisecond.
    pub fn from_millis(millis: u64) -> Self {
        Self(millis.min(LATEST))
    }

    /// Returns the milliseconds since the Unix epoch.
    pub fn millis(self) -> u64 {
        self.0
    }

    /// Returns the time that passed from `earlier` to `self`, or zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Returns by how many milliseconds `self` is later than `other`; negative if it is earlier.
    pub fn millis_ahead_of(self, other: Self) -> i64 {
        self.0.cast_signed() - other.0.cast_signed()
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self::from_millis(
            self.0
                .saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)),
        )
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = i128::from(self.0) * 1_000_000;
        let moment = OffsetDateTime::from_unix_timestamp_nanos(nanos).map_err(|_| fmt::Error)?;
        let (year, month, day) = moment.to_calendar_date();
        let (hour, minute, second, millis) = moment.to_hms_milli();
        let mut text = *b"0000-00-00T00:00:00.000Z";
        write_digits(
            &mut text[0..4],
            u16::try_from(year).map_err(|_| fmt::Error)?,
        );
        write_digits(&mut text[5..7], u8::from(month).into());
        write_digits(&mut text[8..10], day.into());
        write_digits(&mut text[11..13], hour.into());
        write_digits(&mut text[14..16], minute.into());
        write_digits(&mut text[17..19], second.into());
        write_digits(&mut text[20..23], millis);
        f.write_str(str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// Writes a number in decimal over these digits. Each message has several times, and the formatting of `time` and of `std` took a
/// thirtieth of a send's time in the coordinator.
fn write_digits(digits: &mut [u8], mut number: u16) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
    }
}

impl FromStr for Timestamp {
    type Err = time::error::Parse;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Not converted to UTC first: the last hours of the year 9999 have no UTC date, and the conversion would panic.
        let millis = OffsetDateTime::parse(text, &Rfc3339)?.unix_timestamp_nanos() / 1_000_000;
        Ok(Self::from_millis(u64::try_from(millis).unwrap_or_default()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl JsonSchema for Timestamp {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        parsed(from)
    }
}

/// Returns how long something has taken, as people read it: `25 s`, `4 min`, `2 h 3 min`, `3 d 2 h`.
pub fn age(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        ..60 => format!("{seconds} s"),
        60..3_600 => format!("{minutes} min"),
        3_600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// A duration in text form: a number and s, m, h or d.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(Duration);

/// The text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("write a number and s, m, h or d, such as 15m")]
pub struct SpanError;

impl Span {
    /// Returns the duration.
    pub fn duration(self) -> Duration {
        self.0
    }
}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let unit = text.chars().last().ok_or(SpanError)?;
        let seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            _ => return Err(SpanError),
        };
        let count: u64 = text[..text.len() - 1].parse().map_err(|_| SpanError)?;
        count
            .checked_mul(seconds)
            .map(Duration::from_secs)
            .map(Self)
            .ok_or(SpanError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_readable() {
        for (seconds, text) in [
            (25, "25 s"),
            (275, "4 min"),
            (7_380, "2 h 3 min"),
            (266_400, "3 d 2 h"),
        ] {
            assert_eq!(age(seconds), text);
        }
    }

    #[test]
    fn spans_are_read() {
        let check = |text: &str, expected: Option<u64>| {
            assert_eq!(
                text.parse().ok(),
                expected.map(|seconds| Span(Duration::from_secs(seconds))),
                "{text}"
            );
        };
        check("90s", Some(90));
        check("15m", Some(900));
        check("2h", Some(7_200));
        check("30d", Some(2_592_000));
        for wrong in [
            "",
            "m",
            "15",
            "-1m",
            "1.5h",
            "1w",
            "99999999999999999999s",
            "999999999999999999d",
            "5ä",
        ] {
            check(wrong, None);
        }
    }

    #[test]
    fn times_are_rfc_3339_in_utc_with_milliseconds() {
        assert_eq!(
            Timestamp::from_millis(1_768_473_000_007).to_string(),
            "2026-01-15T10:30:00.007Z"
        );
    }

    #[test]
    fn a_clock_is_ahead_of_another_or_behind_it() {
        let (early, late) = (
            Timestamp::from_millis(1_000),
            Timestamp::from_millis(u64::MAX),
        );
        assert_eq!(early.millis_ahead_of(Timestamp::from_millis(3_500)), -2_500);
        assert_eq!(late.millis_ahead_of(early), 253_402_300_798_999);
    }

    #[test]
    fn every_time_can_be_written_and_read_back() {
        for text in [
            "9999-12-31T23:59:59-23:59",
            "0000-01-01T00:00:00+23:59",
            "1969-12-31T23:59:59Z",
        ] {
            let time: Timestamp = text.parse().expect("RFC 3339");
            assert_eq!(
                time.to_string().parse::<Timestamp>().ok(),
                Some(time),
                "{text}"
            );
        }
        let last = Timestamp::from_millis(u64::MAX) + Duration::MAX;
        assert_eq!(last.to_string(), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn times_parse_back_from_any_offset() {
        let expected = Timestamp::from_millis(1_768_473_000_000);
        for text in [
            "2026-01-15T10:30:00.000Z",
            "2026-01-15T10:30:00Z",
            "2026-01-15T12:30:00+02:00",
        ] {
            assert_eq!(text.parse::<Timestamp>().ok(), Some(expected), "{text}");
        }
    }
}
