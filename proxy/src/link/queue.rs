//! Queued calls: stored in the journal while no coordinator is reachable, sent in order after the reconnect.

use std::fs::File;
use std::io;
use std::time::Duration;

use c3po_shared::catalogue::{Call, Received, SendMessage};
use c3po_shared::ids::{AgentId, CallId};
use c3po_shared::receipt::{Receipt, Stage};
use c3po_shared::refusal::{Advice, ErrorCode, Refusal};
use c3po_shared::time::Timestamp;
use c3po_shared::wire::{Arriving, Deliver};
use serde::Serialize;
use tokio::time::Instant;

use super::journal::{Journal, Line, Unnamed};
use super::outgoing_call::{CallResult, OutgoingCall};
use super::{Kind, Link, Shared, State, notice, rules};

/// The pause before a retry of a line that the coordinator could not take for now.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// How long a call waits for earlier queued calls, which go first.
const BEHIND_MAX: Duration = Duration::from_secs(2);

/// How often such a call reads the journal again: another session of this host may send what a dead one queued.
const BEHIND_AGAIN: Duration = Duration::from_millis(100);

/// The pause before the next disk access after an error.
const DISK_AGAIN: Duration = Duration::from_secs(10);

/// The message of the reply if no coordinator is reachable.
const FOR_LATER: &str = "The coordinator is unreachable. This is on this host's disk, and is sent once, in order, when the \
     coordinator is back; it is not delivered before that.";

/// The same if one is reachable.
const BEHIND: &str = "Earlier messages are still queued on this host. This is on this host's disk behind them, and is sent once, \
     in order; it is not delivered before that.";

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
    /// How often calls were added to the file of this process without a name, and how many of these additions were moved from
    /// it to a journal.
    unnamed: u64,
    moved: u64,
    /// The lock of that file.
    held: Option<File>,
    /// The latest call that was sent from the journal.
    tried: Option<CallId>,
    /// Why the oldest call is still queued although the link is up.
    held_up: Option<Refusal>,
}

/// Returns whether the agent has no queued calls. The disk is read once, and again after a call was queued, so that
/// a send does not wait for it.
pub(super) async fn is_empty(shared: &Shared, agent: &AgentId) -> bool {
    let kept = {
        let known = shared.known();
        if known.unnamed > known.moved {
            return false;
        }
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
    let has_name = shared.kind != Kind::Session || shared.status.borrow().welcome.is_some();
    let appended = if has_name {
        on_disk(shared, move |journal| journal.append(&owner, &line)).await
    } else {
        keep_unnamed(shared, line).await
    };
    if let Err(error) = appended {
        let mut refusal = down.unwrap_or_else(|| shared.status.borrow().down(false));
        refusal.error = format!(
            "{}; it could not be queued on this host: {error}",
            refusal.error
        );
        return Err(refusal);
    }
    has_more(shared);
    let receipt = Receipt {
        stage: Stage::QueuedOnHost,
        at: Some(at),
    };
    let message = if down.is_none() && is_up(shared) {
        BEHIND
    } else {
        FOR_LATER
    };
    let kept = QueuedReply {
        call_id: call.call_id,
        receipt,
        message,
    };
    Ok(Received::of(&kept))
}

/// The journal has more calls: it is read again.
pub(super) fn has_more(shared: &Shared) {
    shared.known().kept += 1;
    shared.kept.notify_one();
}

/// Returns the owner of the file in which calls are queued before a coordinator has given a session its name.
fn unnamed(shared: &Shared) -> Unnamed {
    Unnamed {
        wished: shared.config.agent.clone(),
        process: shared.instance,
    }
}

/// Queues a call in the file of this process.
async fn keep_unnamed(shared: &Shared, line: Line) -> io::Result<()> {
    let of = unnamed(shared);
    // Counted before it is there, so that no call overtakes it, and afterwards, so that it is moved in any case.
    shared.known().unnamed += 1;
    let kept = on_disk(shared, move |journal| {
        // Locked first, so that no other process takes it for that of a dead one.
        let held = journal.hold(&of)?;
        journal.append(&of, &line)?;
        Ok(held)
    });
    let kept = kept.await;
    let mut known = shared.known();
    known.unnamed += 1;
    kept.map(|held| known.held = known.held.take().or(held))
}

/// Moves the calls that this process queued without a name to the journal of its name.
async fn take_over(shared: &Shared, agent: &AgentId) -> io::Result<()> {
    let added = {
        let known = shared.known();
        if known.unnamed == known.moved {
            return Ok(());
        }
        known.unnamed
    };
    let (from, to) = (unnamed(shared), agent.clone());
    let moved = on_disk(shared, move |journal| journal.hand_over(&from, &to)).await;
    let mut known = shared.known();
    known.kept += 1;
    moved.map(|_| known.moved = added)
}

fn is_up(shared: &Shared) -> bool {
    shared.status.borrow().state == State::Connected
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
            // Its end is as good as the wake-up.
            let _ = tokio::time::timeout(BEHIND_AGAIN, taken).await;
        }
    };
    tokio::time::timeout(BEHIND_MAX, sent)
        .await
        .map_err(|_| held_up(shared))
}

/// Returns the refusal of a call that would overtake the queued ones.
fn held_up(shared: &Shared) -> Refusal {
    let error =
        "earlier messages are still queued on this host for the coordinator; nothing was sent";
    let why = shared.known().held_up.clone();
    let refusal = match (is_up(shared), why) {
        (true, Some(why)) => Refusal {
            error: format!("{error}: {}", why.error),
            ..why
        },
        (true, None) => Refusal::new(ErrorCode::Timeout, error),
        (false, _) => Refusal::new(ErrorCode::CoordDown, error),
    };
    refusal
        .advise(Advice::SendAgain)
        .detail("applied", rules::applied(false))
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
    if let Err(error) = take_over(shared, agent).await {
        tracing::error!("cannot move queued calls to the journal of {agent}: {error}");
        return Some(DISK_AGAIN);
    }
    let owner = agent.clone();
    let line = match on_disk(shared, move |journal| journal.first(&owner)).await {
        Ok(line) => line?,
        Err(error) => {
            tracing::error!("cannot read the journal of {agent}: {error}");
            return Some(DISK_AGAIN);
        }
    };
    let age = Timestamp::now().since(line.at);
    // A dead session may have sent it, or this one.
    let may_be_applied =
        shared.kind == Kind::Leftover || shared.known().tried == Some(line.call_id);
    let call = Call::parse(&line.tool, &line.arguments);
    let is_person = matches!(shared.kind, Kind::Person { .. });
    let is_queued = |call: Call| match queues(&call, is_person) {
        true => Ok(call),
        false => Err(Refusal::invalid(UNQUEUED)),
    };
    let call = call.and_then(is_queued);
    let answer = match call.and_then(|call| aged(call, age, may_be_applied.into())) {
        Ok(call) => {
            shared.known().tried = Some(line.call_id);
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
            After::Pause(pause) => {
                shared.known().held_up = Some(refusal);
                return Some(pause);
            }
            After::Refused => refuse(shared, agent, line, refusal).await,
        },
    };
    match settled {
        Ok(()) => {
            shared.known().held_up = None;
            shared.taken.notify_waiters();
            Some(Duration::ZERO)
        }
        Err(error) => {
            tracing::error!("cannot take call {call_id} out of the journal: {error}");
            Some(DISK_AGAIN)
        }
    }
}

/// Why a line of the journal is not sent.
const UNQUEUED: &str =
    "no such call is queued by c3po, so another program wrote it into the journal";

/// Returns whether such a call is ever queued: by a person's command only a message, and no answer. A project, or a program
/// that ran here, may have written the journal.
fn queues(call: &Call, is_person: bool) -> bool {
    matches!(call, Call::SendMessage(_)) || matches!(call, Call::Reply(_)) && !is_person
}

/// Returns the call with the rest of its message's life in seconds: the time in the queue is a part of it. One that may have been
/// applied keeps the `least`, because only its own reply has the outcome.
///
/// Errors: its life is over.
fn aged(mut call: Call, age: Duration, least: u64) -> Result<Call, Refusal> {
    if let Call::SendMessage(SendMessage {
        expires_in: Some(life),
        ..
    }) = &mut call
    {
        *life = life.saturating_sub(age.as_secs()).max(least);
        if *life == 0 {
            let error = "it expired while it was queued on this host";
            return Err(Refusal::new(ErrorCode::Timeout, error));
        }
    }
    Ok(call)
}

/// Puts a refused line aside, and gives its session a notice.
async fn refuse(shared: &Shared, agent: &AgentId, line: Line, refusal: Refusal) -> io::Result<()> {
    let (owner, call_id) = (agent.clone(), line.call_id);
    tracing::warn!("queued call {call_id} was refused: {refusal}; moved to the refused messages");
    let notice = notice::of_refusal(agent, &line, &refusal);
    let messages = vec![Arriving::at(notice, Timestamp::now())];
    shared.deliveries.arrived(Deliver {
        messages,
        position: 0,
    });
    let moved = on_disk(shared, move |journal| journal.refuse(&owner, line, refusal)).await;
    match moved {
        // The session has its notice: a full disk does not hold up the calls behind it.
        Err(error) if shared.kind == Kind::Session => {
            tracing::error!("could not store the refused call {call_id}: {error}");
            let owner = agent.clone();
            on_disk(shared, move |journal| journal.remove(&owner, call_id)).await
        }
        moved => moved,
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
    work: impl FnOnce(&Journal) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let journal = shared.journal.clone();
    tokio::task::spawn_blocking(move || work(&journal))
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

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

    #[test]
    fn the_time_in_the_queue_is_a_part_of_the_life_of_a_message() {
        let left = |life: Option<u64>, age: u64, least: u64| {
            let call = Call::SendMessage(SendMessage {
                expires_in: life,
                ..SendMessage::default()
            });
            match aged(call, Duration::from_secs(age), least) {
                Ok(Call::SendMessage(send)) => Some(send.expires_in),
                _ => None,
            }
        };
        assert_eq!(left(None, 900_000, 0), Some(None));
        assert_eq!(left(Some(60), 0, 0), Some(Some(60)));
        assert_eq!(left(Some(60), 59, 0), Some(Some(1)));
        assert_eq!(left(Some(60), 60, 0), None);
        assert_eq!(left(Some(60), 900_000, 0), None);
        assert_eq!(
            left(Some(60), 900_000, 1),
            Some(Some(1)),
            "it may have been applied"
        );
    }

    #[test]
    fn only_calls_that_are_queued_are_sent_from_the_journal() {
        let sent = |tool: &str, arguments: serde_json::Value, is_person: bool| {
            let arguments = to_raw_value(&arguments).expect("it is JSON");
            let call = Call::parse(tool, &arguments);
            queues(&call.expect("a call"), is_person)
        };
        let message = json!({"target": "a", "message": "b"});
        let reply = json!({"message_id": "a::b::0a1b2c3d", "response": "c"});
        let part = json!({"message_id": "a::human::0a1b2c3d", "part": {"id": "1", "text": "yes"}});
        for is_person in [false, true] {
            assert!(sent("send_message", message.clone(), is_person));
            assert_eq!(sent("reply", reply.clone(), is_person), !is_person);
            assert!(!sent("answer_in_dialog", part.clone(), is_person));
            assert!(!sent("list_agents", json!({}), is_person));
        }
    }
}
