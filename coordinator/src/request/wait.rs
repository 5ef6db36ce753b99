//! Waits for the next message, for an answer, or for a stage of a receipt. Uses no threads and no polling.

use std::sync::Arc;
use std::time::Duration;

use c3po_shared::catalogue::{self as tools, Reply, TimedOut};
use c3po_shared::ids::MessageId;
use c3po_shared::limits::{PAGE_BYTES, WAIT_DEFAULT};
use c3po_shared::message::Message;
use c3po_shared::receipt::{Stage, Step, furthest};
use c3po_shared::refusal::{Advice, ErrorCode, Refusal};
use c3po_shared::vocabulary::KindFilter;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::outcome::outcome;
use super::part::{ReadFrom, part, size};
use super::price::{note_page, note_search};
use super::receipts::{own_message, tracked};
use super::{
    CALL_DEADLINE, Caller, Done, Services, begin_read, check_read, check_speaker, room_for_texts,
    room_of_person,
};
use crate::auth::Principal;
use crate::presence::{Listener, News, Subject};
use crate::store::{Arrival, Mark, Selection, StoreError};
use crate::unfinished::Charge;

/// How long a wait goes without news before it reads the store anyway, because a hint may have been lost.
const LOOK_AGAIN: Duration = Duration::from_secs(20);
/// How long an agent is recorded as waiting for an answer. A cancelled wait counts until then.
const WAITS_FOR: Duration = LOOK_AGAIN.saturating_add(RECORDED_FOR);
/// How long a wait for an answer is not recorded again, whatever news it gets: each record checks for cycles.
const RECORDED_FOR: Duration = Duration::from_secs(10);
/// How many waits a check for cycles looks at for the price of a call, rounded down.
const WAITS_PER_CALL: u32 = 8;
/// The pause before a wait retries after a store error.
const RETRY: Duration = Duration::from_secs(1);
/// How many unshown messages are read at once. More than one is needed only if other waits were given some.
const LOOKED_AT: usize = 8;
/// The pause between two searches of an inbox by one wait.
const SEARCH_PAUSE: Duration = Duration::from_millis(500);
/// The limit of bytes read at once: usually only the first message is needed.
const LOOKED_AT_BYTES: usize = 16 * 1024;

/// The condition that ends a wait.
pub(super) enum Wanted {
    Next(KindFilter),
    Answer(MessageId),
    /// The outcome of a question to people.
    OfPeople(MessageId),
    Stage(MessageId, Stage),
}

/// `wait_for_message`
///
/// If the first read of the store fails, the call is refused. Later reads are retried until the deadline.
pub(super) async fn wait_for_message(
    services: &Services,
    caller: &Caller,
    call: tools::WaitForMessage,
) -> Result<Done, Refusal> {
    let seconds = call.timeout.unwrap_or(WAIT_DEFAULT);
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let _counted = Principal::begin_wait(&caller.principal)?;
    let about = call.message_id.clone();
    let wanted = match (call.message_id, call.until) {
        (None, _) => Wanted::Next(call.kind.unwrap_or_default()),
        (Some(id), None) => Wanted::Answer(id),
        (Some(id), Some(stage)) => Wanted::Stage(id, stage),
    };
    if let Some(done) = until(services, caller, &wanted, deadline).await? {
        return Ok(done);
    }
    let timed_out = Reply::TimedOut(match about {
        Some(id) => TimedOut::of(id, seconds),
        None => {
            let pending = pending(services, caller).await;
            check_read(services, caller).await?;
            TimedOut::any(seconds, pending)
        }
    });
    Ok(timed_out.into())
}

/// Waits for the condition until the deadline. Returns nothing after that. The caller is counted as a wait.
pub(super) async fn until(
    services: &Services,
    caller: &Caller,
    wanted: &Wanted,
    deadline: Instant,
) -> Result<Option<Done>, Refusal> {
    let mut listener = services.presence.listen(wanted.subject(caller));
    let (mut news_at, mut recorded) = (None, None);
    // Its question is stored by now: a client that called again would ask twice.
    let is_of_people = matches!(wanted, Wanted::OfPeople(_));
    // Later looks have no price: others cause them.
    caller.principal.note_calls(1);
    loop {
        let looked_at = Instant::now();
        let look = look_in_turn(services, caller, wanted, news_at, deadline, &mut recorded);
        let next_look = match look.await {
            Ok((Some(reply), held)) => return given(services, caller, reply, held).map(Some),
            Ok((None, _)) => look_again(caller, Instant::now()),
            Err(Refusal {
                code: ErrorCode::StoreUnavailable | ErrorCode::RateLimited,
                ..
            }) if news_at.is_some() || is_of_people => RETRY,
            Err(refusal) => return Err(refusal),
        };
        let until = deadline.min(Instant::now() + next_look);
        let arrivals = news_for(wanted, &mut listener, looked_at, until).await;
        news_at = Some(Instant::now());
        // One that came when its agent was another session's is read from the store, which checks that.
        let meets = |arrival: &&Arc<Arrival>| {
            arrival.is_for(caller.tenure.as_ref()) && wanted.is_met_by(arrival, caller)
        };
        if let Some(arrival) = arrivals.iter().find(meets) {
            let place = ReadFrom::Inbox(arrival.position);
            let reply = result(caller, arrival.message.clone(), &place);
            return given(services, caller, reply, None).map(Some);
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
    }
}

/// Returns the reply with its charge, and records the part that it holds. Many waits of a host that does not read may end
/// together: without room, the wait is refused, and another way takes its message.
fn given(
    services: &Services,
    caller: &Caller,
    reply: Reply,
    held: Option<Charge>,
) -> Result<Done, Refusal> {
    let held = match &reply {
        Reply::Message(message) if held.is_none() => {
            let room = caller.principal.room();
            let taken = services.unfinished.room_for_answer(room, 2 * size(message));
            taken.inspect_err(|_| {
                caller.memory.take_back(&message.id);
                let inbox = Subject::Inbox(caller.agent.clone());
                services.presence.wake(&inbox, &[]);
            })?
        }
        _ => held,
    };
    caller.begin_cut(&reply);
    Ok(Done {
        held,
        ..reply.into()
    })
}

/// Records that a session waits for an answer, unless that was done a moment ago. Refuses the wait if it would close a cycle
/// of waiting agents.
///
/// If the store does not respond, the wait is allowed.
async fn check_cycle(
    services: &Services,
    caller: &Caller,
    wanted: &Wanted,
    deadline: Instant,
    recorded: &mut Option<Instant>,
) -> Result<(), Refusal> {
    let Wanted::Answer(id) = wanted else {
        return Ok(());
    };
    let is_recorded = recorded.is_some_and(|at| at.elapsed() < RECORDED_FOR);
    if caller.is_person() || is_recorded {
        return Ok(());
    }
    // Checks that were long are paid off before the next one.
    if timeout_at(deadline, caller.principal.rest()).await.is_err() {
        return Ok(());
    }
    *recorded = Some(Instant::now());
    let lease = WAITS_FOR.min(deadline.duration_since(Instant::now()));
    let noting = services
        .store
        .await_answer(id, caller.tenure.as_ref(), lease);
    match timeout(CALL_DEADLINE, noting).await {
        Ok(Err(taken @ StoreError::TakenOver(_))) => Err(taken.into()),
        Ok(Ok(check)) => {
            caller.principal.note_calls(check.waits / WAITS_PER_CALL);
            match &check.cycle[..] {
                [] => Ok(()),
                cycle => Err(Refusal::would_deadlock(id, cycle)),
            }
        }
        _ => Ok(()),
    }
}

/// Returns the number of messages in the caller's inbox, or zero if there is no place for a read, or the store does not respond
/// in time.
async fn pending(services: &Services, caller: &Caller) -> usize {
    let Ok(_reading) = begin_read(&caller.principal).await else {
        return 0;
    };
    caller.principal.note_calls(1);
    let counted = timeout(CALL_DEADLINE, services.store.pending(&caller.agent)).await;
    counted
        .ok()
        .and_then(Result::ok)
        .map_or(0, |pending| pending.count)
}

/// Returns when a wait without a result reads the store again. A withheld message may be released earlier.
fn look_again(caller: &Caller, now: Instant) -> Duration {
    caller
        .memory
        .next_release(now)
        .map_or(LOOK_AGAIN, |at| LOOK_AGAIN.min(at.duration_since(now)))
}

/// Returns the reply of a wait: the whole message, or the part that fits.
fn result(caller: &Caller, message: Message, place: &ReadFrom) -> Reply {
    if caller.is_person() {
        return Reply::Message(message);
    }
    Reply::Message(part(message, 0, PAGE_BYTES, place))
}

impl Wanted {
    /// Returns the subject whose news may meet the condition. Others send messages and receipts as often as they like, so those
    /// about other messages do not wake the wait.
    fn subject(&self, caller: &Caller) -> Subject {
        match self {
            Self::Next(_) => Subject::Inbox(caller.agent.clone()),
            Self::Answer(id) | Self::OfPeople(id) | Self::Stage(id, _) => {
                Subject::Message(id.clone())
            }
        }
    }

    /// Returns whether a look searches the inbox for a kind.
    fn is_search(&self) -> bool {
        matches!(self, Self::Next(kind) if *kind != KindFilter::Any)
    }

    /// Returns whether the arrival is a reason to look at the store.
    fn admits(&self, arrival: &Arrival) -> bool {
        match self {
            Self::Next(kind) => kind.admits(arrival.message.kind),
            _ => true,
        }
    }

    /// Returns whether the arrival ends the wait. Only a message without unshown predecessors counts as the next one.
    fn is_met_by(&self, arrival: &Arrival, caller: &Caller) -> bool {
        let message = &arrival.message;
        match self {
            Self::Next(kind) => {
                arrival.sole
                    && arrival.is_fresh()
                    && kind.admits(message.kind)
                    // A verdict is for the client, not for its model.
                    && message.verdict().is_none()
                    && caller.memory.hand(&message.id, Instant::now())
            }
            Self::Answer(id) => {
                message.reply_to.as_ref() == Some(id) && message.to_agent == caller.agent
            }
            // The outcome needs the question too.
            Self::OfPeople(_) | Self::Stage(..) => false,
        }
    }
}

/// Waits for news that may meet the condition, or until that time. Returns the arrivals, if they are known. Others send messages
/// of other kinds as often as they like, and a search of the inbox for a kind is long.
async fn news_for(
    wanted: &Wanted,
    listener: &mut Listener,
    looked_at: Instant,
    until: Instant,
) -> News {
    loop {
        let Ok(arrivals) = timeout_at(until, listener.news()).await else {
            return Vec::new();
        };
        if arrivals.is_empty() && wanted.is_search() {
            sleep_until(until.min(looked_at + SEARCH_PAUSE)).await;
        }
        if arrivals.is_empty() || arrivals.iter().any(|arrival| wanted.admits(arrival)) {
            return arrivals;
        }
    }
}

/// Looks after news of that time, `None` for the first look, which its caller pays for. Waits of a session for any message take
/// turns, and do not look if a look since the news found nothing. Other waits look for something of their own.
async fn look_in_turn(
    services: &Services,
    caller: &Caller,
    wanted: &Wanted,
    news_at: Option<Instant>,
    deadline: Instant,
    recorded: &mut Option<Instant>,
) -> Result<(Option<Reply>, Option<Charge>), Refusal> {
    let is_shared = matches!(wanted, Wanted::Next(KindFilter::Any)) && !caller.is_person();
    let Some(news_at) = news_at.filter(|_| is_shared) else {
        return look_with_room(services, caller, wanted, deadline, recorded).await;
    };
    let turn = timeout_at(deadline, caller.memory.turn_to_look(&caller.agent, news_at)).await;
    let Ok(Some(turn)) = turn else {
        return Ok((None, None));
    };
    let look = look_with_room(services, caller, wanted, deadline, recorded).await;
    if matches!(look, Ok((None, _))) {
        turn.found_nothing();
    }
    look
}

/// Returns the reply if the condition is met, with the room that its texts take. Otherwise records a wait for an answer.
///
/// Errors: `STORE_UNAVAILABLE` and `RATE_LIMITED` at the deadline of a call, `WOULD_DEADLOCK`, and those of the condition.
async fn look_with_room(
    services: &Services,
    caller: &Caller,
    wanted: &Wanted,
    deadline: Instant,
    recorded: &mut Option<Instant>,
) -> Result<(Option<Reply>, Option<Charge>), Refusal> {
    let held = match wanted {
        // An outcome has whole texts.
        Wanted::OfPeople(_) => Some(room_for_texts(services, &caller.principal).await?),
        _ => room_of_person(services, caller).await?,
    };
    let _reading = begin_read(&caller.principal).await?;
    let looked = timeout(CALL_DEADLINE, look(services, caller, wanted)).await;
    let reply = looked.unwrap_or_else(|_| Err(Refusal::store_unavailable()))?;
    match &reply {
        // A next message was checked before it was handed to this wait.
        Some(_) if matches!(wanted, Wanted::Next(_)) => {}
        Some(_) => check_read(services, caller).await?,
        None if caller.is_person() => check_speaker(services, caller).await?,
        None => check_cycle(services, caller, wanted, deadline, recorded).await?,
    }
    Ok((reply, held))
}

/// Returns the reply if the condition is met.
async fn look(
    services: &Services,
    caller: &Caller,
    wanted: &Wanted,
) -> Result<Option<Reply>, Refusal> {
    match wanted {
        Wanted::Next(kind) => next_message(services, caller, *kind).await,
        Wanted::Answer(id) => answer(services, caller, id).await,
        Wanted::OfPeople(id) => {
            let outcome = outcome(services, caller, id).await?;
            Ok(outcome.map(|outcome| Reply::UserAnswer(Box::new(outcome))))
        }
        Wanted::Stage(id, stage) => {
            let kept = own_message(services, caller, id).await?;
            let reached = furthest(&kept.history);
            Ok(
                (reached.reaches(*stage) || reached.is_final() || has_expired(&kept.history))
                    .then(|| Reply::Tracked(tracked(kept))),
            )
        }
    }
}

/// Returns the oldest message that this session was not shown and that no other wait of it was given. Whether it may be read
/// is checked first: a message that was handed to a wait which then fails would come after its successors.
async fn next_message(
    services: &Services,
    caller: &Caller,
    kind: KindFilter,
) -> Result<Option<Reply>, Refusal> {
    let mut after = 0;
    loop {
        let selection = Selection {
            kind,
            thread: None,
            after,
            limit: LOOKED_AT,
            bytes: LOOKED_AT_BYTES,
        };
        let page = services.store.unshown(&caller.agent, selection).await?;
        let complete = !selection.is_filled_by(&page);
        note_page(&caller.principal, &page);
        if complete && kind != KindFilter::Any {
            let pending = services.store.pending(&caller.agent).await?;
            note_search(&caller.principal, selection, pending.count);
        }
        if !page.is_empty() {
            check_read(services, caller).await?;
        }
        for placed in page {
            after = placed.position;
            if placed.message.verdict().is_none()
                && caller.memory.hand(&placed.message.id, Instant::now())
            {
                return Ok(Some(result(
                    caller,
                    placed.message,
                    &ReadFrom::Inbox(placed.position),
                )));
            }
        }
        if complete {
            return Ok(None);
        }
    }
}

/// Returns the reply to a message that the caller sent, even if it was returned before.
async fn answer(
    services: &Services,
    caller: &Caller,
    id: &MessageId,
) -> Result<Option<Reply>, Refusal> {
    let kept = own_message(services, caller, id).await?;
    if kept.message.from_agent != caller.agent {
        return Err(
            Refusal::invalid(format!("{id} was sent to you, not by you")).advise(Advice::AnswerIt),
        );
    }
    match kept.reply {
        Some(reply) => Ok(services
            .message(&caller.principal, &reply)
            .await?
            .map(|kept| {
                // It may no longer be in the inbox.
                let place = ReadFrom::Thread(Mark::of(&kept.message));
                result(caller, kept.message, &place)
            })),
        None if has_expired(&kept.history) => {
            let mut timed_out = TimedOut::of(id.clone(), 0);
            timed_out.message = "The message expired before it was answered".to_owned();
            timed_out.suggestion = "Send it again if it still matters.".to_owned();
            Ok(Some(Reply::TimedOut(timed_out)))
        }
        None => Ok(None),
    }
}

/// Returns whether a message expired, also if evidence that arrived later follows.
fn has_expired(history: &[Step]) -> bool {
    history.iter().any(|step| step.stage == Stage::Expired)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::presence::Presence;

    /// Another host made a search of the inbox as often as it sent a message.
    #[tokio::test(start_paused = true)]
    async fn a_search_goes_on_with_a_message_of_its_kind_and_not_too_often() {
        const WITHIN: Duration = Duration::from_secs(5);
        let inbox = Subject::Inbox("a".parse().expect("an id"));
        let presence = Presence::default();
        let mut listener = presence.listen(inbox.clone());
        let arrival = |kind: &str| {
            let message = json!({
                "id": "b::a::00000001", "thread_id": "b::a::00000001", "kind": kind, "from_agent": "b", "to_agent": "a",
                "message": "hello", "priority": "normal", "requires_response": false,
                "timestamp": "2026-01-15T10:30:00.000Z", "expires_at": "2026-01-16T10:30:00.000Z",
            });
            let message = serde_json::from_value(message).expect("an envelope");
            vec![Arc::new(Arrival::sole(1, message))]
        };
        let search = Wanted::Next(KindFilter::Reply);
        let any = Wanted::Next(KindFilter::Any);
        for (wanted, news, found, after) in [
            (&search, arrival("message"), 0, WITHIN),
            (&search, arrival("reply"), 1, Duration::ZERO),
            (&search, Vec::new(), 0, SEARCH_PAUSE),
            (&any, arrival("message"), 1, Duration::ZERO),
            (&any, Vec::new(), 0, Duration::ZERO),
        ] {
            let began = Instant::now();
            presence.wake(&inbox, &news);
            let heard = news_for(wanted, &mut listener, began, began + WITHIN).await;
            let waited = began.elapsed();
            assert_eq!(heard.len(), found);
            assert!(waited >= after && waited <= after + Duration::from_millis(2));
        }
    }
}
