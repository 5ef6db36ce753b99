//! Which name a session gets: the wished one, or the next free with a number.

use c3po_shared::audit::{Entry, Event};
use c3po_shared::ids::AgentId;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::time::Timestamp;

use super::{Caller, Office};
use crate::auth::{Principal, Right};
use crate::store::{Agent, Claim, StoreError, Tenure};

/// How many numbered names are tried.
const SUFFIX_MAX: u32 = 1_000;

/// Refuses whoever may not do that, and notes it.
pub(crate) fn check_right(office: &Office, principal: &Principal, right: Right) -> Result<(), Refusal> {
    principal.check(right).inspect_err(|refusal| {
        let entry = Entry::new(Event::Denied).verb(right.word()).because(refusal.error.clone());
        office.audit.note(principal.sign(entry));
    })
}

/// Refuses whoever may not speak as that agent, whether or not there is one, and notes that.
pub(crate) fn check_name(office: &Office, principal: &Principal, name: &AgentId) -> Result<(), Refusal> {
    principal.speaks_as(name).inspect_err(|refusal| {
        let entry = Entry::new(Event::Denied).to(name).verb("speak").because(refusal.error.clone());
        office.audit.note(principal.sign(entry));
    })
}

/// Makes a session an agent: of the wished name where no other session holds it, else `name-2`, `name-3`, ….
///
/// A reserved name, and one that its key does not cover, count as held. Errors: `FORBIDDEN` where the wished name is not
/// covered, `CONFLICT` where a thousand names are held, `STORE_UNAVAILABLE`.
pub(crate) async fn settle_name(office: &Office, principal: &Principal, wish: Claim) -> Result<Tenure, Refusal> {
    check_name(office, principal, &wish.name)?;
    let base = wish.name.clone();
    let (mut claim, is_made) = (wish.clone(), wish.suffixed);
    for number in 1..=SUFFIX_MAX {
        claim.suffixed = is_made || number > 1;
        claim.name = if number > 1 { base.suffixed(number) } else { base.clone() };
        if claim.name.is_reserved() || !principal.covers(&claim.name) {
            continue;
        }
        if let Some(tenure) = office.store.claim(&claim).await? {
            return Ok(tenure);
        }
    }
    let error = format!("{base} and {SUFFIX_MAX} names after it are taken or not covered by the key");
    Err(Refusal::new(ErrorCode::Conflict, error).suggest("Set C3PO_AGENT_ID to another name."))
}

/// Makes sure that no session has the name of a person's command by now: nobody speaks for a session.
///
/// Errors: `TakenOver` where one has.
pub(crate) async fn check_speaker(office: &Office, caller: &Caller) -> Result<(), StoreError> {
    if caller.tenure.is_some() || caller.agent == AgentId::human() {
        return Ok(());
    }
    let lives = |agent: &Agent| agent.is_online(Timestamp::now()) && !caller.dead.contains(&agent.instance);
    match office.store.agent(&caller.agent).await? {
        Some(agent) if lives(&agent) => Err(StoreError::TakenOver(agent.id)),
        _ => Ok(()),
    }
}
