//! Loop guard: counts the messages between two agents, and stops them at a limit until a person intervenes.

use c3po_shared::audit::{Entry, Event};
use c3po_shared::guard::{GuardList, GuardedPair};
use c3po_shared::ids::{AgentId, CallId, MessageId};
use c3po_shared::limits::PAGE_DEFAULT;
use c3po_shared::policy::Verb;
use c3po_shared::refusal::Refusal;
use tokio::time::Instant;

use super::inbox::READ_AT_ONCE;
use super::price::note_part_of_thread;
use super::{Caller, Services, begin_read, target};
use crate::auth::Principal;
use crate::clock;
use crate::guard::{self, Suspicion};
use crate::store::{Pair, StoreError, Stretch};

/// How many parts of a thread are searched for a message from a person.
const STRETCHES_MAX: usize = 20;

/// A message or a reply that is about to be sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exchange<'a> {
    /// The call that sends it.
    pub(super) call: CallId,
    /// The recipient.
    pub(super) to: &'a AgentId,
    /// Whether it is a message or a reply.
    pub(super) verb: Verb,
    /// The thread that it continues; `None` if it begins one.
    pub(super) thread: Option<&'a MessageId>,
}

/// Counts a turn between two agents and sends it, or refuses it. A turn that was not sent is not counted.
pub(super) async fn bounded<T>(
    services: &Services,
    caller: &Caller,
    turn: Exchange<'_>,
    sending: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    if !is_between_agents(&caller.agent, turn.to) {
        return sending.await;
    }
    let pair = Pair::of(&caller.agent, turn.to);
    if let Err(suspicion) = count(services, caller, &pair, turn).await? {
        let refusal = refusal(&pair, suspicion);
        services.metrics.loops_suspected.inc();
        let entry = caller
            .entry(Event::LoopSuspected)
            .to(turn.to)
            .verb(turn.verb.as_str());
        services.audit.note(entry.because(refusal.error.clone()));
        return Err(refusal);
    }
    sending
        .await
        .inspect_err(|_| services.guard.give_back(&pair, turn.call))
}

/// Returns whether these are two different agents and neither is a person.
fn is_between_agents(one: &AgentId, other: &AgentId) -> bool {
    one != other && !one.is_reserved() && !other.is_reserved()
}

fn refusal(pair: &Pair, suspicion: Suspicion) -> Refusal {
    match suspicion {
        Suspicion::Loop { count, limit } => Refusal::loop_suspected(pair.agents(), count, limit),
        Suspicion::Stopped => Refusal::pair_stopped(pair.agents()),
    }
}

/// Counts the turn. The store is searched for a person only if the pair is at its limit.
async fn count(
    services: &Services,
    caller: &Caller,
    pair: &Pair,
    turn: Exchange<'_>,
) -> Result<Result<(), Suspicion>, Refusal> {
    let counted = services.guard.take(pair, turn.call, Instant::now());
    if !matches!(counted, Err(Suspicion::Loop { .. })) {
        return Ok(counted);
    }
    if let Some(thread) = turn.thread
        && has_a_person(services, &caller.principal, thread).await?
    {
        return Ok(Ok(()));
    }
    count_from_last_prompt(services, pair).await?;
    Ok(services.guard.take(pair, turn.call, Instant::now()))
}

/// Returns whether a person wrote in the thread, as far as its first parts show. Others read between these.
async fn has_a_person(
    services: &Services,
    principal: &Principal,
    thread: &MessageId,
) -> Result<bool, Refusal> {
    let person = AgentId::human();
    if thread.from() == person {
        return Ok(true);
    }
    let mut after = None;
    for _ in 0..STRETCHES_MAX {
        let stretch = Stretch {
            reader: &person,
            after: after.as_ref(),
            limit: PAGE_DEFAULT,
            bytes: READ_AT_ONCE,
        };
        let _reading = begin_read(principal).await?;
        note_part_of_thread(principal);
        let excerpt = services.store.thread(thread, stretch).await?;
        if excerpt
            .messages
            .iter()
            .any(|found| found.message.from_agent == person)
        {
            return Ok(true);
        }
        after = excerpt.next;
        if after.is_none() {
            break;
        }
    }
    Ok(false)
}

/// Drops the count before a person last typed a prompt in either session, at any coordinator.
async fn count_from_last_prompt(services: &Services, pair: &Pair) -> Result<(), StoreError> {
    let [one, other] = pair.agents();
    let (one, other) =
        futures_util::try_join!(services.store.agent(one), services.store.agent(other))?;
    let prompted_at = [one, other]
        .into_iter()
        .flatten()
        .filter_map(|agent| agent.prompted_at)
        .max();
    let ago = prompted_at.map(|at| clock::now().since(at));
    if let Some(moment) = ago.and_then(|ago| Instant::now().checked_sub(ago)) {
        services.guard.forget_before(pair, moment);
    }
    Ok(())
}

/// Returns the pairs that this coordinator reports to a person.
pub(crate) async fn list(services: &Services) -> Result<GuardList, StoreError> {
    guard::load(&services.guard, services.store.as_ref()).await?;
    let mut pairs = Vec::new();
    for pair in services.guard.suspects(Instant::now()) {
        count_from_last_prompt(services, &pair).await?;
        pairs.push(services.guard.standing(&pair, Instant::now()));
    }
    pairs.sort_by(|a, b| (b.count, &a.agents).cmp(&(a.count, &b.agents)));
    Ok(GuardList {
        limit: services.guard.limit(),
        pairs,
    })
}

/// Stops a pair of agents, or allows it and restarts its count. Returns the new state of the pair.
pub(crate) async fn rule(
    services: &Services,
    principal: &Principal,
    agents: &[AgentId; 2],
    is_stopped: bool,
) -> Result<GuardedPair, Refusal> {
    let [one, other] = agents;
    if !is_between_agents(one, other) {
        let error =
            format!("{one} and {other} are not two agents; messages of a person are not counted");
        return Err(Refusal::invalid(error));
    }
    if is_stopped {
        // Not checked for `allow`, because an allowed agent may already be deleted.
        for agent in agents {
            target::find(services, principal, agent).await?;
        }
    }
    let pair = Pair::of(one, other);
    let (verb, by) = (if is_stopped { "stop" } else { "allow" }, principal.name());
    let entry = Entry::new(Event::GuardChanged)
        .by(one)
        .to(other)
        .verb(verb)
        .because(format!("by {by}"));
    let entry = principal.sign(entry);
    services.store.rule(&pair, is_stopped, Some(&entry)).await?;
    tracing::info!("{by} changed the pair {one} and {other}: {verb}");
    if let Err(error) = guard::load(&services.guard, services.store.as_ref()).await {
        tracing::debug!("could not reload the stopped pairs immediately: {error}");
    }
    Ok(services.guard.standing(&pair, Instant::now()))
}
