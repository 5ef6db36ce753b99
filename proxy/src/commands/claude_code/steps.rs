//! The steps of `install` and `uninstall`: printed one by one, or as one document at the end.

use c3po_shared::text::harmless;
use serde::Serialize;

use crate::commands::failure::Failure;
use crate::commands::print::{Printer, Tone};

/// The outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::commands) enum Outcome {
    /// Something was changed.
    Done,
    /// No change was needed.
    Unchanged,
    /// It would be done without `--dry-run`.
    Would,
    /// It was left to the user, with instructions.
    Left,
}

#[derive(Debug, Serialize)]
struct PlannedStep {
    step: &'static str,
    outcome: Outcome,
    text: String,
}

/// The steps so far.
#[derive(Debug)]
pub(in crate::commands) struct Steps<'a> {
    printer: &'a Printer,
    steps: Vec<PlannedStep>,
    /// Whether this is a dry run.
    pub(in crate::commands) dry: bool,
}

impl<'a> Steps<'a> {
    /// Creates an empty report.
    pub(in crate::commands) fn new(printer: &'a Printer, dry: bool) -> Self {
        Self {
            printer,
            steps: Vec::new(),
            dry,
        }
    }

    /// Returns whether the output is JSON, for a program.
    pub(in crate::commands) fn is_json(&self) -> bool {
        self.printer.json
    }

    /// Reports a step.
    pub(in crate::commands) fn tell(
        &mut self,
        step: &'static str,
        outcome: Outcome,
        text: impl Into<String>,
    ) -> Result<(), Failure> {
        let text = text.into();
        if !self.printer.json {
            let mark = match outcome {
                Outcome::Done => self.printer.tinted(Tone::Good, "done "),
                Outcome::Unchanged => self.printer.tinted(Tone::Quiet, "there"),
                Outcome::Would => self.printer.tinted(Tone::Strong, "would"),
                Outcome::Left => self.printer.tinted(Tone::Alarm, "left "),
            };
            // Parts of it may be of another side.
            let text = harmless(&text, true).replace('\n', "\n                     ");
            self.printer.line(&format!("{mark}  {step:<12}  {text}"))?;
        }
        self.steps.push(PlannedStep {
            step,
            outcome,
            text,
        });
        Ok(())
    }

    /// Reports the next step for the user, after all steps.
    pub(in crate::commands) fn end(self, next: &str) -> Result<(), Failure> {
        if self.printer.json {
            let document =
                serde_json::json!({"dry_run": self.dry, "steps": self.steps, "next": next});
            return self.printer.document(&document);
        }
        self.printer.line(&format!("\n{next}"))
    }
}
