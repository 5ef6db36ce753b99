//! The rate limit of the log: clients cause lines, and none may fill the disk with them.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// How many lines of one kind may be written at once.
const BURST: u32 = 500;
/// The time in which one more line of a kind becomes possible.
const PER_LINE: Duration = Duration::from_millis(200);

/// Writes lines to the standard error stream. Each place in the code that logs has its own rate limit, so that a flood of one
/// kind of line hides no other. Debug output has none.
#[derive(Debug, Default)]
pub struct LimitedLog {
    allowances: Mutex<HashMap<Identifier, Allowance>>,
}

impl<'a> MakeWriter<'a> for LimitedLog {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line::Written
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line {
        if *meta.level() > Level::INFO {
            return Line::Written;
        }
        let mut allowances = self
            .allowances
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match allowances
            .entry(meta.callsite())
            .or_default()
            .take(Instant::now())
        {
            None => Line::Dropped,
            Some(0) => Line::Written,
            Some(dropped) => {
                // The coordinator goes on without its log.
                let _ = writeln!(
                    io::stderr(),
                    "rate limit: {dropped} lines like the next one were not logged"
                );
                Line::Written
            }
        }
    }
}

/// One line of the log.
#[derive(Debug)]
pub enum Line {
    /// It is written.
    Written,
    /// It exceeds the rate limit.
    Dropped,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            // The coordinator goes on without its log: on an error, the caller would print to the same stream, and panic.
            Self::Written => Ok(io::stderr().write(bytes).unwrap_or(bytes.len())),
            Self::Dropped => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines that one place in the code may still write.
#[derive(Debug)]
struct Allowance {
    lines: u32,
    dropped: u64,
    /// The time up to which lines were added.
    counted: Option<Instant>,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            lines: BURST,
            dropped: 0,
            counted: None,
        }
    }
}

impl Allowance {
    /// Takes one line. Returns how many lines were dropped before it, or `None` if it is to be dropped as well.
    fn take(&mut self, now: Instant) -> Option<u64> {
        let counted = *self.counted.get_or_insert(now);
        let due = now.duration_since(counted).as_millis() / PER_LINE.as_millis();
        let due = u32::try_from(due).unwrap_or(u32::MAX);
        if due > 0 {
            self.lines = self.lines.saturating_add(due).min(BURST);
            self.counted = Some(
                counted
                    .checked_add(PER_LINE * due.min(BURST))
                    .filter(|_| due < BURST)
                    .unwrap_or(now),
            );
        }
        if self.lines == 0 {
            self.dropped += 1;
            return None;
        }
        self.lines -= 1;
        Some(std::mem::take(&mut self.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_to_the_rate_and_its_lines_are_counted() {
        let (mut allowance, start) = (Allowance::default(), Instant::now());
        let written = (0..5_000)
            .filter(|_| allowance.take(start).is_some())
            .count();
        assert_eq!(written, 500);
        let later = start + PER_LINE;
        assert_eq!(allowance.take(later), Some(4_500));
        assert_eq!(allowance.take(later), None);
        let much_later = start + Duration::from_secs(3_600);
        assert_eq!(allowance.take(much_later), Some(1));
        let written = (0..5_000)
            .filter(|_| allowance.take(much_later).is_some())
            .count();
        assert_eq!(written, 499);
    }
}
