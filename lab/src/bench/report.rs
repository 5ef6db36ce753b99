//! The figures as people read them, and as programs do.

use serde::Serialize;

/// One figure, with its floor and its goal where it has them.
#[derive(Debug, Clone, Serialize)]
struct Row {
    what: String,
    value: f64,
    unit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    floor: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    goal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    met: Option<bool>,
}

/// What a figure has to reach.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    /// At most that much.
    Below(f64),
    /// At least that much.
    Above(f64),
    /// At most that much more than the floor.
    FloorAnd(f64),
    /// At most that many times the floor.
    Times(f64),
    /// At most that much, and at most that many times the floor.
    BelowAndTimes(f64, f64),
}

/// All figures of a run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

impl Report {
    /// Notes and prints a floor.
    pub(crate) fn floor(&mut self, what: &str, value: f64, unit: &'static str) {
        println!("  {what:<58} {value:>10.3} {unit}");
        self.rows.push(Row { what: what.to_owned(), value, unit, floor: None, ratio: None, goal: None, met: None });
    }

    /// Prints that a figure could not be taken here.
    pub(crate) fn left_out(&self, what: &str, why: &str) {
        println!("  {what:<58} not measured: {why}");
    }

    /// Prints what belongs to the figure before it.
    pub(crate) fn note(&self, what: &str) {
        println!("    {what}");
    }

    /// Notes and prints a figure.
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
            Goal::Above(least) => value >= least,
            Goal::FloorAnd(more) => floor.is_none_or(|floor| value <= floor + more),
            Goal::Times(times) => ratio.is_none_or(|ratio| ratio <= times),
            Goal::BelowAndTimes(most, times) => value <= most && ratio.is_none_or(|ratio| ratio <= times),
        });
        let goal = goal.map(|goal| match goal {
            Goal::Below(most) => format!("<= {most} {unit}"),
            Goal::Above(least) => format!(">= {least} {unit}"),
            Goal::FloorAnd(more) => format!("<= floor + {more} {unit}"),
            Goal::Times(times) => format!("<= {times} x"),
            Goal::BelowAndTimes(most, times) => format!("<= {most} {unit} and <= {times} x"),
        });
        let ratio_text = ratio.map_or(String::new(), |ratio| format!("{ratio:.1} x floor"));
        let verdict = match met {
            Some(true) => "met",
            Some(false) => "NOT MET",
            None => "",
        };
        let goal_text = goal.as_deref().unwrap_or_default();
        println!("  {what:<58} {value:>10.3} {unit:<4} {ratio_text:>14}  {goal_text:<24} {verdict}");
        self.rows.push(Row { what: what.to_owned(), value, unit, floor, ratio, goal, met });
    }

    /// Returns all figures as JSON.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(&self.rows).expect("rows are plain numbers and texts")
    }

    /// Returns whether no goal was missed.
    pub(crate) fn all_goals_met(&self) -> bool {
        self.rows.iter().all(|row| row.met != Some(false))
    }
}
