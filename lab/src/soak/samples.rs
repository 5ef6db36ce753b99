//! The memory and descriptors of every process at each look, and the traffic in between.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use harness::crowd::Crowd;
use harness::vitals::Vitals;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::say;

/// The mark in the name of a count that must stay zero.
pub(crate) const FAILED: &str = "FAILED";
/// Failures for want of time: of the machine, if it does other work too. They are counted only.
const LATE: [&str; 2] = ["STORE_UNAVAILABLE", "COORD_DOWN"];

/// The processes by name.
#[derive(Debug, Default)]
pub(crate) struct Roster(Mutex<BTreeMap<String, u32>>);

/// The actions of the sessions, and their failures.
#[derive(Debug, Default)]
pub(crate) struct Traffic(Mutex<BTreeMap<String, u64>>);

/// One process at one time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) at: Duration,
    pub(crate) process: u32,
    pub(crate) vitals: Vitals,
}

/// All samples so far.
#[derive(Debug)]
pub(crate) struct Samples {
    began: Instant,
    processes: BufWriter<File>,
    traffic: BufWriter<File>,
    /// By the name of the process, in the order in which they were taken.
    pub(crate) taken: BTreeMap<String, Vec<Sample>>,
    /// The traffic, by kind.
    pub(crate) counts: BTreeMap<String, u64>,
}

impl Roster {
    /// Sets the process of a name.
    pub(crate) fn enter(&self, name: &str, process: u32) {
        self.names().insert(name.to_owned(), process);
    }

    /// Removes a name that has no process for a while.
    pub(crate) fn leave(&self, name: &str) {
        self.names().remove(name);
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<String, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the name of the count of a failure.
pub(crate) fn failure(what: &str, reason: &str) -> String {
    let is_late = LATE.iter().any(|code| reason.contains(code));
    format!(
        "{what}: {}: {reason}",
        if is_late { "late" } else { FAILED }
    )
}

impl Traffic {
    /// Adds one to a count.
    pub(crate) fn count(&self, what: impl Into<String>) {
        *self.counts().entry(what.into()).or_default() += 1;
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Samples {
    /// Creates the two files.
    pub(crate) fn create(processes: &Path, traffic: &Path) -> Result<Self> {
        let create = |path: &Path, head: &str| {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
            }
            let mut file =
                BufWriter::new(File::create(path).with_context(|| path.display().to_string())?);
            writeln!(file, "{head}")?;
            anyhow::Ok(file)
        };
        Ok(Self {
            began: Instant::now(),
            processes: create(
                processes,
                "seconds,process,pid,resident_kb,private_kb,descriptors,processor_seconds",
            )?,
            traffic: create(
                traffic,
                "seconds,waiting,sent,arrived,answer_p50_ms,answer_p99_ms,delivery_p50_ms,delivery_p99_ms",
            )?,
            taken: BTreeMap::new(),
            counts: BTreeMap::new(),
        })
    }

    /// Takes samples periodically.
    ///
    /// Errors: a file cannot be written.
    pub(crate) async fn take_every(
        &mut self,
        every: Duration,
        roster: &Roster,
        crowd: &Crowd,
        traffic: &Traffic,
    ) -> Result<Infallible> {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks = 0_u32;
        loop {
            ticks.tick().await;
            self.look_at_processes(roster)?;
            let line = self.look_at_traffic(crowd)?;
            self.counts.append(&mut traffic.counts().clone());
            if looks.is_multiple_of(6) {
                say(&line);
            }
            looks += 1;
        }
    }

    fn look_at_processes(&mut self, roster: &Roster) -> Result<()> {
        let at = self.began.elapsed();
        let names = roster.names().clone();
        for (name, process) in names {
            // The process may be about to end, or to begin.
            let Ok(vitals) = Vitals::of(process) else {
                continue;
            };
            writeln!(
                self.processes,
                "{:.1},{name},{process},{},{},{},{:.2}",
                at.as_secs_f64(),
                vitals.resident / 1024,
                vitals.private / 1024,
                vitals.descriptors,
                vitals.processor.as_secs_f64()
            )?;
            self.taken.entry(name).or_default().push(Sample {
                at,
                process,
                vitals,
            });
        }
        Ok(self.processes.flush()?)
    }

    fn look_at_traffic(&mut self, crowd: &Crowd) -> Result<String> {
        let counted = crowd.tally().take();
        for (name, count) in [
            ("crowd: sent", counted.sent.count()),
            ("crowd: arrived", counted.arrived.count()),
        ] {
            *self.counts.entry(name.to_owned()).or_default() += count as u64;
        }
        for (trouble, count) in counted.troubles {
            let what = failure("crowd", &trouble);
            *self.counts.entry(what).or_default() += count;
        }
        let milliseconds = |time: Duration| format!("{:.3}", time.as_secs_f64() * 1e3);
        let at = self.began.elapsed().as_secs_f64();
        let (waiting, sent, arrived) = (
            crowd.waiting(),
            counted.sent.count(),
            counted.arrived.count(),
        );
        let times = [
            counted.sent.percentile(0.5),
            counted.sent.percentile(0.99),
            counted.arrived.percentile(0.5),
            counted.arrived.percentile(0.99),
        ]
        .map(milliseconds);
        writeln!(
            self.traffic,
            "{at:.1},{waiting},{sent},{arrived},{}",
            times.join(",")
        )?;
        self.traffic.flush()?;
        let [_, _, p50, p99] = times;
        Ok(format!(
            "{at:.0} s: {waiting} wait, {sent} sent and {arrived} arrived since the last look, p50 {p50} p99 {p99} ms"
        ))
    }
}
