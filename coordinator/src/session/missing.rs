//! The receipts of one link that were refused temporarily: no later one is recorded before its host has repeated them.

use std::collections::BTreeMap;

use c3po_shared::limits::SILENCE_MAX;
use c3po_shared::wire::RequestId;
use tokio::time::Instant;

use super::bounds::MISSING_MAX;

/// The numbers of these receipts, each with the time of its refusal.
#[derive(Debug, Default)]
pub(super) struct Missing(BTreeMap<i64, Instant>);

impl Missing {
    /// Records that a receipt was refused temporarily. Its host repeats it under the same number.
    pub(super) fn misses(&mut self, receipt: &RequestId) {
        if let RequestId::Number(number) = receipt {
            self.0.insert(*number, Instant::now());
        }
        while self.0.len() > MISSING_MAX {
            self.0.pop_first();
        }
    }

    /// Processes the arrival of a receipt. Returns whether an earlier receipt is missing, which may be the evidence that this
    /// one needs.
    ///
    /// A receipt that was not repeated for several heartbeats was given up by its host, and blocks no other.
    pub(super) fn is_ahead(&mut self, receipt: &RequestId) -> bool {
        let RequestId::Number(number) = receipt else {
            return false;
        };
        self.0.remove(number);
        self.0.retain(|_, since| since.elapsed() < SILENCE_MAX);
        self.0.range(..number).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_receipt_waits_for_those_before_it_until_their_host_has_given_them_up() {
        let (mut missing, number) = (Missing::default(), RequestId::Number);
        missing.misses(&number(4));
        missing.misses(&number(5));
        assert!(!missing.is_ahead(&number(3)) && missing.is_ahead(&number(6)));
        missing.misses(&number(6));
        assert!(
            !missing.is_ahead(&number(4)),
            "it is the first that is missing"
        );
        assert!(missing.is_ahead(&number(7)), "the fifth has not come yet");
        assert!(!missing.is_ahead(&number(5)) && !missing.is_ahead(&number(6)));
        missing.misses(&number(8));
        tokio::time::advance(SILENCE_MAX).await;
        assert!(!missing.is_ahead(&number(9)));
        (10..=10 + 2 * MISSING_MAX as i64).for_each(|receipt| missing.misses(&number(receipt)));
        assert_eq!(missing.0.len(), MISSING_MAX);
    }
}
