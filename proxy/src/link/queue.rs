//! Queued calls: stored in the journal while no coordinator is reachable, sent in order after the reconnect.

use std::time::Duration;

use c3po_shared::catalogue::{Call, Received};
use c3po_shared::ids::{AgentId, CallId};
use c3po_shared::receipt::{Receipt, Stage};
use c3po_shared::refusal::{Advice, ErrorCode, Refusal};
use c3po_shared::time::Timestamp;
use c3po_shared::wire::{Arriving, Deliver};
use serde::Serialize;
use tokio::time::Instant;

use super::journal::{Journal, Line};
use super::outgoing_call::{CallResult, OutgoingCall};
use super::{Link, Shared, State, notice, rules};

/// The pause before a retry of a line that the coordinator could not take for now.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// How long a call waits for earlier queued calls, which go first.
const BEHIND_MAX: Duration = Duration::from_secs(2);

/// How often such a call reads the journal again: another session of this host may send what a dead one queued.
const BEHIND_AGAIN: Duration = Duration::from_millis(100);

/// The pause before the next disk access after an error.
const DISK_AGAIN: Duration = Duration::from_secs(10);

/// The reply to a queued call.
#[derive(Serialize)]
struct QueuedReply {
    call_id: CallId,
    receipt: Receipt,
    message: &'static str,
}

/// The state of the journal in this process, without a look at the disk.
#[derive(Debug, Default)]
pub(super) struct JournalState {
    /// How many calls this process has queued.
    kept: u64,
    /// An agent whose journal was empty, and the value of `kept` at that time.
    empty: Option<(AgentId, u64)>,
}

/// Returns whether the agent has no queued calls. The disk is read once, and again after a call was queued, so that
/// a send does not wait for it.
pub(super) async fn is_empty(shared: &Shared, agent: &AgentId) -> bool {
    let kept = {
        let known = shared.known();
        if known
            .empty
            .as_ref()
            .is_some_and(|(whose, kept)| whose == agent && *kept == known.kept)
        {
            return true;
        }
        known.kept
    };
    let owner = agent.clone();
    let empty = on_disk(shared, move |journal| Ok(journal.is_empty(&owner)))
        .await
        .unwrap_or(false);
    if empty {
        shared.known().empty = Some((agent.clone(), kept));
    }
    empty
}

/// Queues a call on this host's disk. If that fails too, returns the link's refusal.
pub(super) async fn keep(
    shared: &Shared,
    agent: &AgentId,
    call: &OutgoingCall,
    down: Option<Refusal>,
) -> CallResult {
    let at = Timestamp::now();
    let line = Line::of(
        call.call_id,
        &call.call,
        at,
        shared.directory.entry().coordinators.urls.clone(),
    );
    let owner = agent.clone();
    if let Err(error) = on_disk(shared, move |journal| journal.append(&owner, &line)).await {
        let mut refusal = down.unwrap_or_else(|| shared.status.borrow().down(false));
        refusal.error = format!(
            "{}; it could not be queued on this host: {error}",
            refusal.error
        );
        return Err(refusal);
    }
    shared.known().kept += 1;
    shared.kept.notify_one();
    let receipt = Receipt {
        stage: Stage::QueuedOnHost,
        at: Some(at),
    };
    let message = "The coordinator is unreachable. This is on this host's disk, and is sent once, in order, when the \
                   coordinator is back; it is not delivered before that.";
    let kept = QueuedReply {
        call_id: call.call_id,
        receipt,
        message,
    };
    Ok(Received::of(&kept))
}

/// Waits until earlier queued calls were sent, so that none is overtaken when the link comes up. It does not wait if the
/// link has been down for so long that none will be sent.
///
/// Errors: earlier calls are still queued after a moment, so this one is not sent either.
pub(super) async fn wait_behind(shared: &Shared, agent: &AgentId) -> Result<(), Refusal> {
    let sent = async {
        loop {
            let taken = shared.taken.notified();
            let mut taken = std::pin::pin!(taken);
            // Registered before the check, so that no wake-up is lost.
            taken.as_mut().enable();
            let refused = shared
                .status
                .borrow()
                .refused_at_once(Instant::now())
                .is_some();
            if refused || is_empty(shared, agent).await {
                return;
            }
            let _ = tokio::time::timeout(BEHIND_AGAIN, taken).await;
        }
    };
    tokio::time::timeout(BEHIND_MAX, sent).await.map_err(|_| {
        let error =
            "earlier messages are still queued on this host for the coordinator; nothing was sent";
        Refusal::new(ErrorCode::CoordDown, error)
            .advise(Advice::SendAgain)
            .detail("applied", rules::applied(false))
    })
}

/// Sends queued calls, oldest first, whenever the link is up. Never ends by itself.
pub(super) async fn drain(link: &Link) {
    let mut status = link.shared.status.subscribe();
    loop {
        let (up, agent) = {
            let now = status.borrow_and_update();
            (now.state == State::Connected, now.agent.clone())
        };
        if up && let Some(pause) = drain_one(link, &agent).await {
            tokio::time::sleep(pause).await;
            continue;
        }
        tokio::select! {
            // The sender lives as long as the link.
            _ = status.changed() => {}
            () = link.shared.kept.notified() => {}
        }
    }
}

/// Sends the oldest line. Returns the pause before the next one; `None` if there is nothing to do for now.
pub(super) async fn drain_one(link: &Link, agent: &AgentId) -> Option<Duration> {
    let shared = &link.shared;
    let owner = agent.clone();
    let line = match on_disk(shared, move |journal| journal.first(&owner)).await {
        Ok(line) => line?,
        Err(error) => {
            tracing::error!("cannot read the journal of {agent}: {error}");
            return Some(DISK_AGAIN);
        }
    };
    let answer = match Call::parse(&line.tool, &line.arguments) {
        Ok(call) => {
            link.call_now(OutgoingCall::new(line.call_id, call, Instant::now()))
                .await
        }
        Err(refusal) => Err(refusal),
    };
    let (owner, call_id) = (agent.clone(), line.call_id);
    let settled = match answer {
        Ok(_) => on_disk(shared, move |journal| journal.remove(&owner, call_id)).await,
        Err(refusal) => match after(&refusal) {
            After::LinkChanges => return None,
            After::Pause(pause) => return Some(pause),
            After::Refused => {
                tracing::warn!(
                    "queued call {call_id} was refused: {refusal}; moved to the refused messages"
                );
                let notice = notice::of_refusal(agent, &line, &refusal);
                let messages = vec![Arriving::at(notice, Timestamp::now())];
                shared.deliveries.arrived(Deliver {
                    messages,
                    position: 0,
                });
                on_disk(shared, move |journal| journal.refuse(&owner, line, refusal)).await
            }
        },
    };
    match settled {
        Ok(()) => {
            shared.taken.notify_waiters();
            Some(Duration::ZERO)
        }
        Err(error) => {
            tracing::error!("cannot take call {call_id} out of the journal: {error}");
            Some(DISK_AGAIN)
        }
    }
}

/// The next step for a line that was not accepted.
#[derive(Debug, PartialEq)]
enum After {
    /// Nothing until the link changes.
    LinkChanges,
    /// Retry later.
    Pause(Duration),
    /// Reject it: it will never be accepted.
    Refused,
}

fn after(refusal: &Refusal) -> After {
    match refusal.code {
        // A conflict means that the session was taken over: the next session of the agent sends its queued calls.
        ErrorCode::CoordDown
        | ErrorCode::Interrupted
        | ErrorCode::Conflict
        | ErrorCode::Unauthorized
        | ErrorCode::VersionMismatch => After::LinkChanges,
        ErrorCode::StoreUnavailable => After::Pause(TRY_AGAIN),
        ErrorCode::RateLimited => {
            let seconds = refusal
                .details
                .get("retry_after_seconds")
                .and_then(serde_json::Value::as_u64);
            After::Pause(seconds.map_or(TRY_AGAIN, Duration::from_secs))
        }
        // It may have been applied, and is safe to send again: only its own reply has the outcome.
        _ if refusal
            .details
            .get("applied")
            .is_some_and(|applied| applied == "unknown") =>
        {
            After::Pause(TRY_AGAIN)
        }
        _ => After::Refused,
    }
}

/// Runs disk work beside the runtime's thread.
async fn on_disk<T: Send + 'static>(
    shared: &Shared,
    work: impl FnOnce(&Journal) -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    let journal = shared.journal.clone();
    tokio::task::spawn_blocking(move || work(&journal))
        .await
        .unwrap_or_else(|error| Err(std::io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_message_that_is_refused_for_good_is_put_aside() {
        let check = |code: ErrorCode, expected: After| {
            assert_eq!(after(&Refusal::new(code, "no")), expected, "{code}")
        };
        check(ErrorCode::CoordDown, After::LinkChanges);
        check(ErrorCode::StoreUnavailable, After::Pause(TRY_AGAIN));
        check(ErrorCode::Unauthorized, After::LinkChanges);
        check(ErrorCode::Conflict, After::LinkChanges);
        for code in [
            ErrorCode::AgentNotFound,
            ErrorCode::InvalidRequest,
            ErrorCode::AlreadyAnswered,
            ErrorCode::InboxFull,
        ] {
            check(code, After::Refused);
        }
        let unknown =
            Refusal::new(ErrorCode::Internal, "the link broke").detail("applied", "unknown");
        assert_eq!(after(&unknown), After::Pause(TRY_AGAIN));
        assert_eq!(
            after(&Refusal::rate_limited(200, 200, 12)),
            After::Pause(Duration::from_secs(12))
        );
    }
}
