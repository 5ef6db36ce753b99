//! `human` counts as online while a terminal prints their messages as they arrive.

use std::time::Duration;

use c3po_shared::ids::AgentId;
use c3po_shared::limits::SILENCE_MAX;
use c3po_shared::receipt::Via;
use c3po_shared::vocabulary::State;
use c3po_shared::wire::SessionChange;

use crate::presence::ReadingAlong;
use crate::request::Services;
use crate::store::{Amendment, StoreError};

/// Registers a terminal, and `human` as online.
pub(super) async fn begin(services: &Services) -> Result<ReadingAlong, StoreError> {
    let reading_along = services.presence.read_along();
    extend(services).await?;
    Ok(reading_along)
}

/// Keeps `human` online for another heartbeat interval.
pub(super) async fn extend(services: &Services) -> Result<(), StoreError> {
    let change = SessionChange {
        state: Some(State::Ready),
        reach: Some(vec![Via::Terminal]),
        ..SessionChange::default()
    };
    last(services, SILENCE_MAX, change).await
}

/// Takes `human` offline if this was the last terminal at this coordinator. A terminal at another coordinator corrects that
/// with its next heartbeat.
pub(super) async fn end(services: &Services, reading_along: ReadingAlong) {
    if reading_along.end()
        && let Err(error) = last(services, Duration::ZERO, SessionChange::default()).await
    {
        tracing::warn!("human stays online for at most {SILENCE_MAX:?}: {error}");
    }
}

async fn last(
    services: &Services,
    attends: Duration,
    change: SessionChange,
) -> Result<(), StoreError> {
    let amendment = Amendment {
        attends: Some(attends),
        ..Amendment::from(change)
    };
    services
        .store
        .amend(&AgentId::human(), None, &amendment)
        .await
        .map(|_| ())
}
