//! The metrics of the coordinator in the format of Prometheus.

mod duties;

use std::fmt::Write as _;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use self::duties::DutyMetrics;
pub(crate) use self::duties::DutyOutcome;
use crate::store::Fill;

/// The counters of one coordinator.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    calls: Family<CallLabels, Counter>,
    call_seconds: Histogram,
    /// Messages that the store accepted.
    pub(crate) messages_stored: Counter,
    /// Messages refused because two agents seem to answer each other without end, or because their pair is stopped.
    pub(crate) loops_suspected: Counter,
    /// Connections that were refused before the upgrade.
    pub(crate) connections_refused: Counter,
    /// Audit entries that were written.
    pub(crate) audit_entries: Counter,
    /// Audit entries that were lost.
    pub(crate) audit_lost: Counter,
    /// Connections with a slot.
    pub(crate) connections: Gauge,
    /// The number of connection slots.
    pub(crate) connections_max: Gauge,
    /// The duties that were done.
    pub(crate) duties: DutyMetrics,
    pushes: Family<PushLabels, Counter>,
    limits: Family<LimitLabels, Gauge>,
    store_bytes: Family<LimitLabels, Gauge>,
    agents_connected: Gauge,
    listeners: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    tool: &'static str,
    outcome: &'static str,
}

/// How a push ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PushOutcome {
    /// The server accepted it.
    Accepted,
    /// The server did not respond, or rejected it. It is tried again.
    Failed,
    /// Anyone could read the topic, so it was not sent.
    Refused,
}

impl PushOutcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PushLabels {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    of: &'static str,
}

impl Metrics {
    /// Makes and registers the metrics.
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("c3po");
        let mut metrics = Self {
            duties: DutyMetrics::register(&mut registry),
            registry,
            calls: Family::default(),
            call_seconds: Histogram::new(exponential_buckets(0.000_1, 4.0, 10)),
            messages_stored: Counter::default(),
            loops_suspected: Counter::default(),
            connections_refused: Counter::default(),
            audit_entries: Counter::default(),
            audit_lost: Counter::default(),
            connections: Gauge::default(),
            connections_max: Gauge::default(),
            pushes: Family::default(),
            limits: Family::default(),
            store_bytes: Family::default(),
            agents_connected: Gauge::default(),
            listeners: Gauge::default(),
        };
        metrics.register_calls();
        metrics.register_connections();
        metrics.register_pushes();
        metrics
    }

    fn register_calls(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "calls",
            "Tool calls by tool and outcome",
            self.calls.clone(),
        );
        registry.register(
            "call_seconds",
            "How long calls took, except waits",
            self.call_seconds.clone(),
        );
        registry.register(
            "messages_stored",
            "Messages that were accepted",
            self.messages_stored.clone(),
        );
        let loops = self.loops_suspected.clone();
        registry.register(
            "loops_suspected",
            "Messages that were refused with LOOP_SUSPECTED",
            loops,
        );
        registry.register(
            "connections_refused",
            "Links refused before the upgrade",
            self.connections_refused.clone(),
        );
        registry.register(
            "audit_entries",
            "Audit entries that were written",
            self.audit_entries.clone(),
        );
        registry.register(
            "audit_lost",
            "Audit entries that were lost",
            self.audit_lost.clone(),
        );
    }

    fn register_pushes(&mut self) {
        let pushes = self.pushes.clone();
        self.registry
            .register("pushes", "Pushes to people by outcome", pushes);
    }

    /// Counts a push.
    pub(crate) fn pushed(&self, outcome: PushOutcome) {
        let outcome = outcome.as_str();
        self.pushes.get_or_create(&PushLabels { outcome }).inc();
    }

    fn register_connections(&mut self) {
        let registry = &mut self.registry;
        registry.register("connections", "Connections with a slot: open ones, and ended ones with bytes that their clients have not acknowledged", self.connections.clone());
        registry.register(
            "connections_max",
            "The connection limit",
            self.connections_max.clone(),
        );
        registry.register(
            "limit",
            "The limits of a connection, in the unit of the name",
            self.limits.clone(),
        );
        let store = self.store_bytes.clone();
        registry.register(
            "store_bytes",
            "Bytes of the embedded store: used, its limit, free on its disk, kept free",
            store,
        );
        registry.register(
            "agents_connected",
            "Agents linked to this coordinator",
            self.agents_connected.clone(),
        );
        registry.register(
            "listeners",
            "Waits and links that listen for new messages",
            self.listeners.clone(),
        );
    }

    /// Counts a call; `outcome` is `ok` or an error code.
    pub(crate) fn called(&self, tool: &'static str, outcome: &'static str, took: Option<Duration>) {
        self.calls
            .get_or_create(&CallLabels { tool, outcome })
            .inc();
        if let Some(took) = took {
            self.call_seconds.observe(took.as_secs_f64());
        }
    }

    /// Publishes a limit; its name ends in its unit.
    pub(crate) fn limit(&self, of: &'static str, value: u64) {
        self.limits
            .get_or_create(&LimitLabels { of })
            .set(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// Publishes how full the embedded store is.
    pub(crate) fn fill(&self, fill: &Fill) {
        let of = [
            ("used", Some(fill.bytes)),
            ("max", fill.max),
            ("free", Some(fill.free)),
            ("floor", Some(fill.floor)),
        ];
        for (of, bytes) in of.into_iter().filter_map(|(of, bytes)| Some((of, bytes?))) {
            self.store_bytes
                .get_or_create(&LimitLabels { of })
                .set(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }

    /// Returns all metrics in the OpenMetrics text format.
    pub(crate) fn text(&self, connected: usize, listening: usize) -> String {
        self.agents_connected
            .set(i64::try_from(connected).unwrap_or(i64::MAX));
        self.listeners
            .set(i64::try_from(listening).unwrap_or(i64::MAX));
        self.duties.refresh();
        let mut text = String::new();
        if encode(&mut text, &self.registry).is_err() {
            // Writing to a String cannot fail; if it did, the page would report it, because a metric is no reason to panic.
            text.clear();
            text.write_str("# the counters could not be written\n")
                .unwrap_or_default();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::store::DutyKind;

    #[test]
    fn counters_are_published_by_name() {
        let metrics = Metrics::new();
        metrics.called("ping", "ok", Some(Duration::from_millis(1)));
        metrics.messages_stored.inc();
        metrics.connections.inc();
        metrics.limit("head_seconds", 10);
        metrics.fill(&Fill {
            bytes: 7,
            max: None,
            free: 9,
            floor: 8,
        });
        metrics.duties.ended(DutyKind::Expire, DutyOutcome::Done);
        metrics.duties.taken_over(DutyKind::Withdraw);
        let due = Instant::now().checked_sub(Duration::from_secs(7));
        metrics.duties.oldest_is_due(due);
        let text = metrics.text(3, 4);
        for line in [
            r#"c3po_calls_total{tool="ping",outcome="ok"} 1"#,
            "c3po_messages_stored_total 1",
            "c3po_connections 1",
            r#"c3po_limit{of="head_seconds"} 10"#,
            r#"c3po_store_bytes{of="used"} 7"#,
            r#"c3po_store_bytes{of="floor"} 8"#,
            r#"c3po_duties_total{kind="expire",outcome="done"} 1"#,
            r#"c3po_duties_taken_over_total{kind="withdraw"} 1"#,
            "c3po_duties_late_seconds 7",
            "c3po_agents_connected 3",
            "c3po_listeners 4",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
