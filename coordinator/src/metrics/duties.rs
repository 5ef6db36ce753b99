//! The metrics of duties: how many ended, and how late the oldest one is.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use crate::store::DutyKind;

/// How the work of a duty ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum DutyOutcome {
    /// It was done, and its claim ended.
    Done,
    /// It was done, but its claim was over before: it may be done a second time.
    Outdated,
    /// It was not done. It is tried again when the claim has run out.
    Failed,
}

impl DutyOutcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Outdated => "outdated",
            Self::Failed => "failed",
        }
    }
}

/// The metrics of the duties that this coordinator did.
#[derive(Debug, Default)]
pub(crate) struct DutyMetrics {
    ended: Family<EndedLabels, Counter>,
    taken_over: Family<KindLabels, Counter>,
    late_seconds: Gauge,
    /// When the earliest duty that is not done is due, as of the last look at the store.
    oldest: Mutex<Option<Instant>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndedLabels {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

impl DutyMetrics {
    /// Makes and registers the metrics.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "duties",
            "Duties by kind and outcome",
            metrics.ended.clone(),
        );
        registry.register(
            "duties_taken_over",
            "Duties whose earlier claim had run out",
            metrics.taken_over.clone(),
        );
        registry.register(
            "duties_late_seconds",
            "How long ago the oldest duty that is not done was due",
            metrics.late_seconds.clone(),
        );
        metrics
    }

    /// Counts a duty whose work ended.
    pub(crate) fn ended(&self, kind: DutyKind, outcome: DutyOutcome) {
        let (kind, outcome) = (kind.as_str(), outcome.as_str());
        self.ended
            .get_or_create(&EndedLabels { kind, outcome })
            .inc();
    }

    /// Counts a duty whose earlier claim had run out.
    pub(crate) fn taken_over(&self, kind: DutyKind) {
        let kind = kind.as_str();
        self.taken_over.get_or_create(&KindLabels { kind }).inc();
    }

    /// Notes when the earliest duty that is not done is due; it may be in the future.
    pub(crate) fn oldest_is_due(&self, at: Option<Instant>) {
        *self.oldest.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    /// Updates the age of the oldest duty.
    pub(super) fn refresh(&self) {
        let oldest = *self.oldest.lock().unwrap_or_else(PoisonError::into_inner);
        let late = oldest.map_or(Duration::ZERO, |at| Instant::now().duration_since(at));
        self.late_seconds
            .set(i64::try_from(late.as_secs()).unwrap_or(i64::MAX));
    }
}
