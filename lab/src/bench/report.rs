//! The figures as text for people, and as JSON for programs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One figure, with its floor and its goal if it has them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) what: String,
    pub(super) value: f64,
    pub(super) unit: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    floor: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    goal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    met: Option<bool>,
}

/// The goal of a figure.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    /// At most this value.
    Below(f64),
    /// At most the floor plus this value.
    FloorAnd(f64),
    /// At most the floor times this value.
    Times(f64),
    /// At least this share of the floor.
    Share(f64),
}

/// All figures of a run.
#[derive(Debug)]
pub(crate) struct Report {
    rows: Vec<Row>,
    quick: bool,
    silent: bool,
    failed: bool,
}

impl Report {
    /// Creates the report of a full or of a quick run. It prints every line immediately unless it is silent.
    pub(crate) fn new(quick: bool, silent: bool) -> Self {
        Self {
            rows: Vec::new(),
            quick,
            silent,
            failed: false,
        }
    }

    /// Returns the number of rounds in this run, given that of a full run.
    pub(crate) fn rounds(&self, full: usize) -> usize {
        if self.quick { (full / 5).max(10) } else { full }
    }

    /// Returns this run's share of the time of a full run.
    pub(crate) fn span(&self, full: Duration) -> Duration {
        if self.quick { full / 2 } else { full }
    }

    fn print(&self, line: &str) {
        if !self.silent {
            println!("{line}");
        }
    }

    /// Prints the subject of the next figures.
    pub(crate) fn heading(&self, what: &str) {
        self.print(&format!("\n{what}"));
    }

    /// Records and prints a floor.
    pub(crate) fn floor(&mut self, what: &str, value: f64, unit: &'static str) {
        self.figure(what, value, unit, None, None);
    }

    /// Records and prints a figure with a mandatory goal: if it is missed, the run fails.
    pub(crate) fn must(&mut self, what: &str, value: f64, unit: &'static str, goal: Goal) {
        self.figure(what, value, unit, None, Some(goal));
        self.failed |= self.rows.last().is_some_and(|row| row.met == Some(false));
    }

    /// Prints that a figure could not be measured here.
    pub(crate) fn left_out(&self, what: &str, why: &str) {
        self.print(&format!("  {what:<58} not measured: {why}"));
    }

    /// Prints a note on the figure before it.
    pub(crate) fn note(&self, what: &str) {
        self.print(&format!("    {what}"));
    }

    /// Records and prints a figure.
    pub(crate) fn figure(
        &mut self,
        what: &str,
        value: f64,
        unit: &'static str,
        floor: Option<f64>,
        goal: Option<Goal>,
    ) {
        let ratio = floor.map(|floor| value / floor);
        let met = goal.map(|goal| match goal {
            Goal::Below(most) => value <= most,
            Goal::FloorAnd(more) => floor.is_none_or(|floor| value <= floor + more),
            Goal::Times(times) => ratio.is_none_or(|ratio| ratio <= times),
            Goal::Share(share) => ratio.is_none_or(|ratio| ratio >= share),
        });
        let goal = goal.map(|goal| match goal {
            Goal::Below(most) => format!("<= {most} {unit}"),
            Goal::FloorAnd(more) => format!("<= floor + {more} {unit}"),
            Goal::Times(times) => format!("<= {times} x"),
            Goal::Share(share) => format!(">= {share} x"),
        });
        let ratio_text = ratio.map_or(String::new(), |ratio| format!("{ratio:.2} x floor"));
        let verdict = match met {
            Some(true) => "met",
            Some(false) => "NOT MET",
            None => "",
        };
        let goal_text = goal.as_deref().unwrap_or_default();
        self.print(&format!(
            "  {what:<58} {value:>10.3} {unit:<4} {ratio_text:>14}  {goal_text:<18} {verdict}"
        ));
        self.rows.push(Row {
            what: what.to_owned(),
            value,
            unit: unit.to_owned(),
            floor,
            ratio,
            goal,
            met,
        });
    }

    /// Returns all figures as JSON.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(&self.rows).expect("rows are plain numbers and texts")
    }

    /// Returns whether all goals were met.
    pub(crate) fn all_goals_met(&self) -> bool {
        self.rows.iter().all(|row| row.met != Some(false))
    }

    /// Returns whether a mandatory goal was missed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }
}
