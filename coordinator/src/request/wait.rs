//! Waiting: for the next message, for the answer to one, for a stage of its receipt. No thread, no polling.

use std::sync::Arc;
use std::time::Duration;

use c3po_shared::catalogue::{self as tools, Reply, TimedOut};
use c3po_shared::ids::MessageId;
use c3po_shared::limits::{PAGE_BYTES, WAIT_DEFAULT};
use c3po_shared::message::Message;
use c3po_shared::receipt::{Stage, furthest};
use c3po_shared::refusal::{Advice, ErrorCode, Refusal};
use c3po_shared::vocabulary::KindFilter;
use tokio::time::{Instant, sleep_until, timeout};

use super::part::{ReadFrom, part};
use super::receipts::{own_message, tracked};
use super::{CALL_DEADLINE, Caller, Office, check_speaker};
use crate::presence::{Listener, News};
use crate::store::{Arrival, Mark, Selection};

/// After how long without news a wait looks at the store all the same: a hint may have been lost.
const LOOK_AGAIN: Duration = Duration::from_secs(20);
/// How long it is known that an agent waits for an answer, from each look on. One that was cancelled counts until then.
const WAITS_FOR: Duration = LOOK_AGAIN.saturating_add(Duration::from_secs(10));
/// How soon a wait looks again after the store failed it.
const RETRY: Duration = Duration::from_secs(1);
/// How many unshown messages are read at once: more than one only where other waits were handed some.
const LOOKED_AT: usize = 8;
/// How many bytes of them: long ones are mostly read for the first.
const LOOKED_AT_BYTES: usize = 16 * 1024;

/// What a wait is for.
enum Wanted {
    Next(KindFilter),
    Answer(MessageId),
    Stage(MessageId, Stage),
}

/// `wait_for_message`
///
/// A store that fails at the first look refuses the call; later ones are tried again until the time is up.
pub(super) async fn wait_for_message(
    office: &Office,
    caller: &Caller,
    call: tools::WaitForMessage,
) -> Result<Reply, Refusal> {
    let seconds = call.timeout.unwrap_or(WAIT_DEFAULT);
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let about = call.message_id.clone();
    let wanted = match (call.message_id, call.until) {
        (None, _) => Wanted::Next(call.kind.unwrap_or_default()),
        (Some(id), None) => Wanted::Answer(id),
        (Some(id), Some(stage)) => Wanted::Stage(id, stage),
    };
    check_speaker(office, caller).await?;
    let mut listener = office.presence.listen(&caller.agent);
    let mut first = true;
    loop {
        let next_look = match timeout(CALL_DEADLINE, look(office, caller, &wanted)).await {
            Ok(Ok(Some(reply))) => return Ok(reply),
            Ok(Ok(None)) => {
                check_cycle(office, caller, &wanted, deadline).await?;
                look_again(caller, Instant::now())
            }
            Ok(Err(refusal)) if first || refusal.code != ErrorCode::StoreUnavailable => return Err(refusal),
            Err(_) if first => return Err(Refusal::store_unavailable()),
            Ok(Err(_)) | Err(_) => RETRY,
        };
        first = false;
        let arrivals = tokio::select! {
            arrivals = news_for(&wanted, &mut listener) => arrivals,
            () = sleep_until(deadline.min(Instant::now() + next_look)) => Vec::new(),
        };
        if let Some(arrival) = arrivals.iter().find(|arrival| wanted.is_met_by(arrival, caller)) {
            return Ok(result(caller, arrival.message.clone(), &ReadFrom::Inbox(arrival.position)));
        }
        if Instant::now() >= deadline {
            return Ok(Reply::TimedOut(match about {
                Some(id) => TimedOut::of(id, seconds),
                None => TimedOut::any(seconds, pending(office, caller).await),
            }));
        }
    }
}

/// Notes that a session waits for an answer. Refuses to wait where another agent waits, in the end, for this session.
///
/// A store that does not answer forbids no wait.
async fn check_cycle(office: &Office, caller: &Caller, wanted: &Wanted, deadline: Instant) -> Result<(), Refusal> {
    let Wanted::Answer(id) = wanted else { return Ok(()) };
    if caller.is_person() {
        return Ok(());
    }
    let lease = WAITS_FOR.min(deadline.duration_since(Instant::now()));
    let noted = timeout(CALL_DEADLINE, office.store.await_answer(id, lease)).await;
    match noted.ok().and_then(Result::ok).unwrap_or_default().as_slice() {
        [] => Ok(()),
        cycle => Err(Refusal::would_deadlock(id, cycle)),
    }
}

/// Returns how many messages are in the caller's inbox; none where the store does not answer in time.
async fn pending(office: &Office, caller: &Caller) -> usize {
    let counted = timeout(CALL_DEADLINE, office.store.pending(&caller.agent)).await;
    counted.ok().and_then(Result::ok).map_or(0, |pending| pending.count)
}

/// Returns after how long a wait that found nothing looks again: a message that is held back may be free before that.
fn look_again(caller: &Caller, now: Instant) -> Duration {
    caller.memory.next_release(now).map_or(LOOK_AGAIN, |at| LOOK_AGAIN.min(at.duration_since(now)))
}

/// Returns what a wait returns of a message: all of it, or the part that has room. No wait begins that one again soon.
fn result(caller: &Caller, message: Message, place: &ReadFrom) -> Reply {
    if caller.is_person() {
        return Reply::Message(message);
    }
    let message = part(message, 0, PAGE_BYTES, place);
    if message.rest.is_some() {
        caller.memory.begin(&message.id, Instant::now());
    }
    Reply::Message(message)
}

impl Wanted {
    /// Returns whether the wait ends with what came. The next message is one that no other stands before.
    fn is_met_by(&self, arrival: &Arrival, caller: &Caller) -> bool {
        let message = &arrival.message;
        match self {
            Self::Next(kind) => {
                arrival.sole
                    && arrival.is_fresh()
                    && kind.admits(message.kind)
                    && caller.memory.hand(&message.id, Instant::now())
            }
            Self::Answer(id) => message.reply_to.as_ref() == Some(id) && message.to_agent == caller.agent,
            Self::Stage(..) => false,
        }
    }
}

/// Resolves when what is waited for may be there, with what came where it is known. Receipts bring no next message.
async fn news_for(wanted: &Wanted, listener: &mut Listener) -> Vec<Arc<Arrival>> {
    loop {
        match listener.news().await {
            News::Inbox(arrivals) => return arrivals,
            News::Receipt if matches!(wanted, Wanted::Next(_)) => {}
            News::Receipt => return Vec::new(),
        }
    }
}

/// Returns what is waited for, if it is there.
async fn look(office: &Office, caller: &Caller, wanted: &Wanted) -> Result<Option<Reply>, Refusal> {
    match wanted {
        Wanted::Next(kind) => next_message(office, caller, *kind).await,
        Wanted::Answer(id) => answer(office, caller, id).await,
        Wanted::Stage(id, stage) => {
            let kept = own_message(office, caller, id).await?;
            let reached = furthest(&kept.history);
            Ok((reached.reaches(*stage) || reached.is_final()).then(|| Reply::Tracked(tracked(kept))))
        }
    }
}

/// Returns the oldest message that this session was not shown, and that no other wait of it was handed.
async fn next_message(office: &Office, caller: &Caller, kind: KindFilter) -> Result<Option<Reply>, Refusal> {
    let mut after = 0;
    loop {
        let selection = Selection { kind, thread: None, after, limit: LOOKED_AT, bytes: LOOKED_AT_BYTES };
        let page = office.store.unshown(&caller.agent, selection).await?;
        let complete = !selection.is_filled_by(&page);
        for placed in page {
            after = placed.position;
            if caller.memory.hand(&placed.message.id, Instant::now()) {
                return Ok(Some(result(caller, placed.message, &ReadFrom::Inbox(placed.position))));
            }
        }
        if complete {
            return Ok(None);
        }
    }
}

/// Returns the reply to a message that the caller sent; also a second time.
async fn answer(office: &Office, caller: &Caller, id: &MessageId) -> Result<Option<Reply>, Refusal> {
    let kept = own_message(office, caller, id).await?;
    if kept.message.from_agent != caller.agent {
        return Err(Refusal::invalid(format!("{id} was sent to you, not by you")).advise(Advice::AnswerIt));
    }
    match kept.reply {
        Some(reply) => Ok(office.store.message(&reply).await?.map(|kept| {
            // It may be in the inbox no more.
            let place = ReadFrom::Thread(Mark::of(&kept.message));
            result(caller, kept.message, &place)
        })),
        None if furthest(&kept.history) == Stage::Expired => {
            let mut timed_out = TimedOut::of(id.clone(), 0);
            timed_out.message = "The message expired before anybody answered".to_owned();
            timed_out.suggestion = "Send it again if it still matters.".to_owned();
            Ok(Some(Reply::TimedOut(timed_out)))
        }
        None => Ok(None),
    }
}
