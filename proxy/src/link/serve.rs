//! One connection in use: writes pending frames, replies to the coordinator, and notices the end.

use std::pin::pin;
use std::time::Duration;

use c3po_shared::agent::AgentRecord;
use c3po_shared::catalogue::{Call, Received};
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::time::Timestamp;
use c3po_shared::wire::{
    Arriving, Empty, Frame, Heartbeat, HeartbeatReply, Outgoing, RequestId, RpcError, ToProxy,
    Welcome,
};
use serde_json::value::RawValue;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::connection::{Incoming, LinkSocket};
use super::own_seat::OwnSeat;
use super::{Kind, Shared, rules};

/// How long a connection is used after the coordinator announced its shutdown: pending calls get their replies.
const DRAIN: Duration = Duration::from_millis(500);
/// How long `goodbye` may take.
const GOODBYE_MAX: Duration = Duration::from_millis(40);

/// How a connection ended.
#[derive(Debug)]
pub(super) enum End {
    /// This process stops it.
    Stopped,
    /// The connection broke, or the coordinator was silent or left a call without an answer for too long.
    Lost(String),
    /// The coordinator shuts down.
    Draining,
    /// Another session took over the agent.
    TakenOver,
    /// Another process of the client runs the session now.
    Moved,
}

/// Uses a connection until it ends.
pub(super) async fn serve(
    shared: &Shared,
    connection: &mut LinkSocket,
    welcome: &Welcome,
    seat: &mut OwnSeat,
    stop: &CancellationToken,
) -> End {
    let mut heartbeat =
        tokio::time::interval(Duration::from_secs(welcome.heartbeat_seconds.max(1)));
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    heartbeat.reset();
    let mut leave_at = None;
    let mut heard = Instant::now();
    let mut moved = pin!(shared.client_session.ends());
    // Requests from before this connection are written first.
    shared.to_write.notify_one();
    loop {
        let lost_at = lost_at(shared, heard);
        let done = tokio::select! {
            incoming = connection.read() => {
                heard = Instant::now();
                took(shared, connection, seat, incoming, &mut leave_at).await
            }
            () = shared.to_write.notified() => write_pending(shared, connection).await,
            _ = heartbeat.tick() => beat(shared, connection).await,
            () = seat.comes(shared) => Ok(()),
            () = tokio::time::sleep_until(lost_at) => Err(End::Lost("the coordinator does not answer".to_owned())),
            () = super::sleep_until(leave_at) => Err(End::Draining),
            () = &mut moved, if shared.kind == Kind::Session => Err(End::Moved),
            () = stop.cancelled() => Err(End::Stopped),
        };
        if let Err(end) = done {
            if matches!(end, End::Stopped | End::Draining | End::Moved) {
                // A `goodbye` that takes longer is not worth the session's time.
                let _ = tokio::time::timeout(GOODBYE_MAX, leave(shared, connection, &end)).await;
            }
            return end;
        }
    }
}

/// Returns when the connection counts as lost, with the time of its last input.
fn lost_at(shared: &Shared, heard: Instant) -> Instant {
    let others = shared.directory.entry().coordinators.urls.len() > 1;
    rules::lost_at(heard, shared.pending().owed_since(), others)
}

/// Leaves in order: buffered frames go out; only the end of the session here sends a goodbye.
async fn leave(shared: &Shared, connection: &mut LinkSocket, end: &End) {
    // Failures here are sent again on the next connection, or end with the session.
    let _ = write_pending(shared, connection).await;
    if matches!(end, End::Stopped | End::Moved) {
        connection.goodbye().await;
    }
}

async fn write_pending(shared: &Shared, connection: &mut LinkSocket) -> Result<(), End> {
    loop {
        let now = Instant::now();
        let next = shared.pending().next_frame(now, &|| shared.report(now));
        let Some((frame, addressees)) = next else {
            break;
        };
        if let Some(addressees) = addressees
            && !shared.relays_to(&addressees).await
        {
            // It was asked for while the relay was on, maybe on another link. Its caller asks again, or gives up.
            let held = shared.pending().answered(addressees.number);
            if let Some(call) = held {
                call.pass_on(Err(rules::relay_is_off()));
            }
            continue;
        }
        connection.feed(frame).await.map_err(End::Lost)?;
    }
    connection.flush().await.map_err(End::Lost)
}

async fn beat(shared: &Shared, connection: &mut LinkSocket) -> Result<(), End> {
    shared.pending().write_postponed();
    shared.to_write.notify_one();
    let id = RequestId::Number(shared.pending().beat());
    let beat = Heartbeat {
        timestamp: Timestamp::now(),
    };
    connection
        .write(&Outgoing::request(&id, "heartbeat", &beat).text())
        .await
        .map_err(End::Lost)
}

async fn took(
    shared: &Shared,
    connection: &mut LinkSocket,
    seat: &mut OwnSeat,
    incoming: Incoming,
    leave_at: &mut Option<Instant>,
) -> Result<(), End> {
    let text = match incoming {
        Incoming::Text(text) => text,
        Incoming::Alive => return Ok(()),
        Incoming::TakenOver => return Err(End::TakenOver),
        Incoming::Closed(why) => {
            return Err(if leave_at.is_some() {
                End::Draining
            } else {
                End::Lost(why)
            });
        }
    };
    let answer = match Frame::parse(&text) {
        Ok(Frame::Response { id, outcome }) => {
            answered(shared, seat, &id, outcome).await;
            None
        }
        Ok(Frame::Request { id, method, params }) => Some(match ToProxy::parse(&method, params) {
            Ok(asked) => answer(shared, &id, asked),
            Err(refusal) => Outgoing::error(Some(&id), &refusal.into()).text(),
        }),
        Ok(Frame::Notification { method, params }) => {
            match ToProxy::parse(&method, params) {
                Ok(ToProxy::Draining) => *leave_at = Some(Instant::now() + DRAIN),
                Ok(_) | Err(_) => tracing::debug!("ignored the notification {method}"),
            }
            None
        }
        Err(error) => Some(Outgoing::error(None, &error.rpc_error()).text()),
    };
    match answer {
        Some(frame) => connection.write(&frame).await.map_err(End::Lost),
        None => Ok(()),
    }
}

/// Returns the reply to a request of the coordinator.
fn answer(shared: &Shared, id: &RequestId, asked: ToProxy) -> String {
    match asked {
        ToProxy::Deliver(mut deliver) => {
            if let Some(shown) = &mut *shared.shown() {
                for Arriving { message, .. } in &mut deliver.messages {
                    message.repeated |= shown.had(&message.id);
                }
            }
            shared.deliveries.arrived(deliver);
            Outgoing::result(id, &Empty {}).text()
        }
        ToProxy::Draining => Outgoing::result(id, &Empty {}).text(),
    }
}

/// Passes a reply on to its caller.
async fn answered(
    shared: &Shared,
    seat: &mut OwnSeat,
    id: &RequestId,
    outcome: Result<&RawValue, RpcError>,
) {
    let RequestId::Number(number) = id else {
        return;
    };
    if shared.pending().is_beat(*number) {
        let beaten = outcome
            .ok()
            .and_then(|reply| serde_json::from_str::<HeartbeatReply>(reply.get()).ok());
        // No caller waits for this.
        shared.status.send_if_modified(|status| {
            status.agents_online = beaten.and_then(|reply| reply.agents_online);
            false
        });
        return;
    }
    let refusal = outcome.as_ref().err().cloned().map(Refusal::from);
    let passes = refusal
        .as_ref()
        .is_some_and(|refusal| refusal.code == ErrorCode::StoreUnavailable);
    if passes && shared.pending().postpone(*number) {
        return;
    }
    // Receipts and abandoned calls have no waiting caller.
    let Some(answered) = shared.pending().answered(*number) else {
        if let Some(refusal) = refusal {
            tracing::debug!("request {number} was refused: {refusal}");
        }
        return;
    };
    let outcome = outcome.map_err(Refusal::from).and_then(Received::parse);
    if let Ok(reply) = &outcome {
        note(shared, seat, &answered.call.call, reply).await;
    }
    answered.pass_on(outcome);
}

/// Records the facts about the session itself in a successful call.
async fn note(shared: &Shared, seat: &mut OwnSeat, call: &Call, reply: &Received) {
    match call {
        Call::RegisterAgent(_) => {
            let Ok(record) = reply.read::<AgentRecord>() else {
                return;
            };
            if shared.status.borrow().agent != record.id {
                shared.deliveries.begins(&record.id, 0);
            }
            // Before the next frame, which may bring messages for the new name.
            seat.sit(shared, &record.id).await;
            shared.status.send_if_modified(|status| {
                let other = status.agent != record.id;
                status.agent = record.id;
                other
            });
        }
        Call::SetStatus(said) => {
            // Not reported: the coordinator knows it from the call itself.
            shared.facts().state = Some(said.status);
        }
        _ => {}
    }
}
