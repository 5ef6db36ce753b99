//! The doctor's findings: printed one by one, or as one document at the end.

use serde::Serialize;

use crate::commands::failure::Failure;
use c3po_shared::text::harmless;

use crate::commands::print::{Printer, Tone};

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CheckResult {
    /// As expected.
    Ok,
    /// It works, but needs attention.
    Warn,
    /// It does not work.
    Fail,
    /// It could not be tested, because an earlier check failed.
    Skip,
}

#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    verdict: CheckResult,
    found: String,
    /// The next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

/// All findings so far.
#[derive(Debug)]
pub(super) struct Report<'a> {
    printer: &'a Printer,
    findings: Vec<Finding>,
}

impl<'a> Report<'a> {
    /// Creates an empty report.
    pub(super) fn new(printer: &'a Printer) -> Self {
        Self {
            printer,
            findings: Vec::new(),
        }
    }

    /// Reports a check that passed.
    pub(super) fn ok(
        &mut self,
        check: &'static str,
        found: impl Into<String>,
    ) -> Result<(), Failure> {
        self.tell(Finding {
            check,
            verdict: CheckResult::Ok,
            found: found.into(),
            advice: None,
        })
    }

    /// Reports a check that works, but needs attention.
    pub(super) fn warn(
        &mut self,
        check: &'static str,
        found: impl Into<String>,
        advice: &str,
    ) -> Result<(), Failure> {
        self.tell(Finding {
            check,
            verdict: CheckResult::Warn,
            found: found.into(),
            advice: Some(advice.to_owned()),
        })
    }

    /// Reports a check that failed.
    pub(super) fn fail(
        &mut self,
        check: &'static str,
        found: impl Into<String>,
        advice: &str,
    ) -> Result<(), Failure> {
        self.tell(Finding {
            check,
            verdict: CheckResult::Fail,
            found: found.into(),
            advice: Some(advice.to_owned()),
        })
    }

    /// Reports a check that could not be made.
    pub(super) fn skip(
        &mut self,
        check: &'static str,
        why: impl Into<String>,
    ) -> Result<(), Failure> {
        self.tell(Finding {
            check,
            verdict: CheckResult::Skip,
            found: why.into(),
            advice: None,
        })
    }

    fn tell(&mut self, finding: Finding) -> Result<(), Failure> {
        if !self.printer.json {
            let mark = match finding.verdict {
                CheckResult::Ok => self.printer.tinted(Tone::Good, "ok  "),
                CheckResult::Warn => self.printer.tinted(Tone::Strong, "warn"),
                CheckResult::Fail => self.printer.tinted(Tone::Alarm, "FAIL"),
                CheckResult::Skip => self.printer.tinted(Tone::Quiet, "skip"),
            };
            self.printer.line(&format!(
                "{mark}  {:<13}  {}",
                finding.check,
                indented(&finding.found)
            ))?;
            if let Some(advice) = &finding.advice {
                self.printer
                    .line(&format!("      {:<13}  -> {}", "", indented(advice)))?;
            }
        }
        self.findings.push(finding);
        Ok(())
    }

    /// Ends the report; fails if any check failed.
    pub(super) fn end(self) -> Result<(), Failure> {
        let failed = self
            .findings
            .iter()
            .filter(|finding| finding.verdict == CheckResult::Fail)
            .count();
        if self.printer.json {
            let document = Document {
                version: env!("CARGO_PKG_VERSION"),
                failed,
                findings: &self.findings,
            };
            self.printer.document(&document)?;
        }
        if failed == 0 {
            return Ok(());
        }
        Err(Failure::Stopped {
            why: format!("{failed} of {} checks failed", self.findings.len()),
            advice: "Do what the lines with -> recommend, from top to bottom, then run `c3po doctor` again.".to_owned(),
        })
    }
}

/// The JSON output.
#[derive(Serialize)]
struct Document<'a> {
    version: &'static str,
    failed: usize,
    findings: &'a [Finding],
}

/// Returns a text whose further lines are indented below its first one. It cannot control the terminal.
fn indented(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(|line| harmless(line, false)).collect();
    lines.join("\n                     ")
}
