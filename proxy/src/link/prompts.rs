//! Whether a person typed a prompt that was not yet reported to the coordinator.

use std::time::Duration;

use tokio::time::Instant;

/// How often a prompt is reported: few messages between two agents fit into that time.
const EVERY: Duration = Duration::from_secs(5);

/// The prompts of one session.
#[derive(Debug, Default)]
pub(super) struct Prompts {
    is_new: bool,
    reported: Option<Instant>,
}

impl Prompts {
    /// Records a typed prompt. Returns whether it is to be reported.
    pub(super) fn typed(&mut self, now: Instant) -> bool {
        self.is_new |= self
            .reported
            .is_none_or(|at| now.duration_since(at) >= EVERY);
        self.is_new
    }

    /// Returns whether a prompt is to be reported.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Returns whether a prompt is to be reported, and marks it as reported. A lost report is not repeated.
    pub(super) fn report(&mut self, now: Instant) -> bool {
        if self.is_new {
            self.reported = Some(now);
        }
        std::mem::take(&mut self.is_new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_reported_once_and_not_faster_than_every_few_seconds() {
        let (mut prompts, start) = (Prompts::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!prompts.report(at(0)));
        assert!(prompts.typed(at(0)) && prompts.is_new());
        assert!(prompts.report(at(1)));
        assert!(!prompts.report(at(1)) && !prompts.is_new());
        assert!(!prompts.typed(at(5)));
        assert!(prompts.typed(at(6)));
        assert!(prompts.report(at(6)));
    }
}
