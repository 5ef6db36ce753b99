//! `human` counts as online while a terminal prints their messages as they arrive.

use std::time::Duration;

use c3po_shared::ids::AgentId;
use c3po_shared::limits::SILENCE_MAX;
use c3po_shared::receipt::Via;
use c3po_shared::vocabulary::State;
use c3po_shared::wire::SessionChange;

use crate::presence::ReadingAlong;
use crate::request::Office;
use crate::store::{Amendment, StoreError};

/// Registers a terminal, and `human` as online.
pub(super) async fn begin(office: &Office) -> Result<ReadingAlong, StoreError> {
    let reading_along = office.presence.read_along();
    extend(office).await?;
    Ok(reading_along)
}

/// Keeps `human` online for another heartbeat interval.
pub(super) async fn extend(office: &Office) -> Result<(), StoreError> {
    let change =
        SessionChange { state: Some(State::Ready), reach: Some(vec![Via::Terminal]), ..SessionChange::default() };
    last(office, SILENCE_MAX, change).await
}

/// Takes `human` offline if this was the last terminal at this coordinator. A terminal at another coordinator corrects that
/// with its next heartbeat.
pub(super) async fn end(office: &Office, reading_along: ReadingAlong) {
    if reading_along.end()
        && let Err(error) = last(office, Duration::ZERO, SessionChange::default()).await
    {
        tracing::warn!("human stays online for at most {SILENCE_MAX:?}: {error}");
    }
}

async fn last(office: &Office, attends: Duration, change: SessionChange) -> Result<(), StoreError> {
    let amendment = Amendment { attends: Some(attends), ..Amendment::from(change) };
    office.store.amend(&AgentId::human(), None, &amendment).await.map(|_| ())
}
