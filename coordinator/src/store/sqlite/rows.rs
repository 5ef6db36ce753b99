//! Conversion of values to and from columns.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use c3po_shared::time::Timestamp;
use rusqlite::{ErrorCode, Row};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::store::{Result, StoreError};

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::Error;
        match (&error, error.sqlite_error_code()) {
            (_, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
            | (
                Error::FromSqlConversionFailure(..)
                | Error::InvalidColumnType(..)
                | Error::Utf8Error(..),
                _,
            ) => Self::Corrupt(error.to_string()),
            (_, Some(ErrorCode::DiskFull)) => Self::Full(error.to_string()),
            _ => Self::Unavailable(error.to_string()),
        }
    }
}

/// Returns the time as the integer of a column.
pub(super) fn stamp(time: Timestamp) -> i64 {
    i64::try_from(time.millis()).unwrap_or(i64::MAX)
}

/// Returns the duration in the unit of columns.
pub(super) fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Returns the time from `now` to the time in a column, or zero if that is in the past.
pub(super) fn time_until(now: Timestamp, column: i64) -> Duration {
    Timestamp::from_millis(u64::try_from(column).unwrap_or_default()).since(now)
}

/// Returns the count as the integer of a column.
pub(super) fn integer(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Returns the count stored in a column.
pub(super) fn count(integer: i64) -> usize {
    usize::try_from(integer).unwrap_or_default()
}

/// Returns the value as the JSON text of a column.
pub(super) fn json<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| StoreError::Corrupt(error.to_string()))
}

/// Returns the time in that column.
pub(super) fn moment(row: &Row<'_>, column: &str) -> Result<Timestamp> {
    Ok(Timestamp::from_millis(
        u64::try_from(row.get::<_, i64>(column)?).unwrap_or_default(),
    ))
}

/// Parses the text in that column.
pub(super) fn parsed<T: FromStr<Err: Display>>(row: &Row<'_>, column: &str) -> Result<T> {
    let text = row
        .get_ref(column)?
        .as_str()
        .map_err(|error| unreadable(column, error))?;
    text.parse().map_err(|error| unreadable(column, error))
}

/// Parses the JSON in that column.
pub(super) fn from_json<T: DeserializeOwned>(row: &Row<'_>, column: &str) -> Result<T> {
    let text = row
        .get_ref(column)?
        .as_str()
        .map_err(|error| unreadable(column, error))?;
    serde_json::from_str(text).map_err(|error| unreadable(column, error))
}

fn unreadable(column: &str, error: impl Display) -> StoreError {
    StoreError::Corrupt(format!("{column}: {error}"))
}
