//! Whether memory and descriptors stay flat, by medians that no single sample moves, and whether nothing failed.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::samples::{FAILED, Sample, Samples};

/// Growth in an hour that counts as none: this share of the total, or so many bytes, whichever is more.
const SHARE: f64 = 0.05;
const BYTES: f64 = 1024.0 * 1024.0;
/// A difference between middle and end that does not count as growth, however short the run.
const NOISE: f64 = 128.0 * 1024.0;
/// Descriptors that may come and go.
const DESCRIPTORS: f64 = 4.0;
/// Redis stores every message for seven days, so it grows with the traffic.
const KEEPS: &str = "redis";

/// The verdict on every process, and on the whole.
#[derive(Debug)]
pub(crate) struct Verdict {
    rows: Vec<Row>,
    counts: BTreeMap<String, u64>,
    processor_share: f64,
}

/// One process.
#[derive(Debug)]
struct Row {
    name: String,
    private: f64,
    growth_per_hour: f64,
    descriptors: f64,
    descriptors_per_hour: f64,
    processor_share: f64,
    flat: Option<bool>,
}

/// Judges all processes that ran for the whole time after the warm-up.
pub(crate) fn of(samples: &Samples, warm_up: Duration) -> Verdict {
    let rows: Vec<_> = samples
        .taken
        .iter()
        .filter_map(|(name, taken)| row(name, taken, warm_up))
        .collect();
    let processor_share = rows.iter().map(|row| row.processor_share).sum();
    Verdict {
        rows,
        counts: samples.counts.clone(),
        processor_share,
    }
}

impl Verdict {
    /// Returns whether nothing grows that should not, and nothing failed.
    pub(crate) fn holds(&self) -> bool {
        self.rows.iter().all(|row| row.flat != Some(false))
            && !self.counts.keys().any(|what| what.contains(FAILED))
    }
}

fn row(name: &str, taken: &[Sample], warm_up: Duration) -> Option<Row> {
    let judged: Vec<_> = taken.iter().filter(|sample| sample.at >= warm_up).collect();
    let (first, last) = (*judged.first()?, *judged.last()?);
    let third = judged.len() / 3;
    if third == 0 {
        return None;
    }
    let hours = (last.at - first.at).as_secs_f64() / 3_600.0;
    let (second, third) = (&judged[third..2 * third], &judged[2 * third..]);
    // The middles of two neighbouring thirds are a third of the time apart.
    let per_hour = |read: &dyn Fn(&Sample) -> f64| {
        (median(third, read) - median(second, read)) / (hours / 3.0)
    };
    let private = |sample: &Sample| sample.vitals.private as f64;
    let descriptors = |sample: &Sample| sample.vitals.descriptors as f64;
    let (growth_per_hour, descriptors_per_hour) = (per_hour(&private), per_hour(&descriptors));
    let (held, open) = (median(third, &private), median(third, &descriptors));
    let restarted = judged.iter().any(|sample| sample.process != first.process);
    let memory_is_flat = name == KEEPS
        || growth_per_hour <= (held * SHARE).max(BYTES)
        || growth_per_hour * hours / 3.0 <= NOISE;
    let flat =
        (!restarted).then_some(memory_is_flat && descriptors_per_hour * hours / 3.0 <= DESCRIPTORS);
    let used = last.vitals.processor.saturating_sub(first.vitals.processor);
    let processor_share = if restarted {
        0.0
    } else {
        used.as_secs_f64() / (hours * 3_600.0)
    };
    Some(Row {
        name: name.to_owned(),
        private: held,
        growth_per_hour,
        descriptors: open,
        descriptors_per_hour,
        processor_share,
        flat,
    })
}

fn median(samples: &[&Sample], read: &dyn Fn(&Sample) -> f64) -> f64 {
    let mut values: Vec<_> = samples.iter().map(|sample| read(sample)).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<16} {:>10} {:>12} {:>12} {:>10} {:>8}",
            "process", "memory MB", "MB per hour", "descriptors", "per hour", "cpu %"
        )?;
        for row in &self.rows {
            let verdict = match row.flat {
                Some(true) if row.name == KEEPS => "keeps every message",
                Some(true) => "flat",
                Some(false) => "NOT FLAT",
                None => "restarted on purpose",
            };
            writeln!(
                f,
                "{:<16} {:>10.2} {:>12.3} {:>12.0} {:>10.2} {:>8.2}  {verdict}",
                row.name,
                row.private / 1e6,
                row.growth_per_hour / 1e6,
                row.descriptors,
                row.descriptors_per_hour,
                row.processor_share * 100.0
            )?;
        }
        writeln!(
            f,
            "all together {:.1} % of one processor",
            self.processor_share * 100.0
        )?;
        for (what, count) in &self.counts {
            writeln!(f, "{count:>10} {what}")?;
        }
        Ok(())
    }
}
