//! Acts as an agent without a session: for commands of people, and for REST.

use std::sync::Arc;

use c3po_shared::ids::AgentId;
use c3po_shared::refusal::{ErrorCode, Refusal};
use uuid::Uuid;

use super::identity::{check_host, check_name, foreign, is_held};
use super::{Caller, Memory, Services, begin_call};
use crate::auth::Principal;
use crate::store::Agent;

/// The agent as which a person wants to act.
#[derive(Debug)]
pub(crate) struct PersonWish<'a> {
    /// Its name.
    pub(crate) name: &'a AgentId,
    /// The host.
    pub(crate) host: &'a str,
    /// Processes that the host reports as dead.
    pub(crate) dead: Vec<Uuid>,
    /// Whether a new agent may be made even without a key.
    pub(crate) may_make: bool,
}

/// Makes the principal a caller that acts as an agent without a session. With a key, the name may be a new name of its host.
/// Without a login, `human` means the person of its host, unless the coordinator is open to its machine alone.
///
/// Errors: `FORBIDDEN` for a name that the key does not cover or another host's, `CONFLICT` if a session holds the agent,
/// `AGENT_NOT_FOUND`.
pub(crate) async fn act_as(
    services: &Services,
    principal: &Arc<Principal>,
    wish: PersonWish<'_>,
) -> Result<(Caller, Agent), Refusal> {
    let (wished, host) = (wish.name, wish.host);
    let own = principal.person(wished, host);
    let name = own.unwrap_or_else(|| wished.clone());
    let is_own = name != *wished;
    check_name(services, principal, &name)?;
    let _place = begin_call(principal).await?;
    let caller = Caller {
        agent: name.clone(),
        principal: Arc::clone(principal),
        host: Some(host.to_owned()),
        tenure: None,
        dead: wish.dead.into(),
        renamable: false,
        memory: Arc::new(Memory::default()),
    };
    let is_human = name == AgentId::human();
    let known = services.store.agent(&name).await?;
    if known
        .as_ref()
        .is_some_and(|agent| !is_human && is_held(agent, &caller))
    {
        let error = format!("{name} is held by a connected session, so no command can act as it");
        return Err(
            Refusal::new(ErrorCode::Conflict, error).suggest("Leave out --as to act as yourself.")
        );
    }
    // A key limits the possible names. Without keys, a mistyped name would become an agent.
    let may_make = wish.may_make || principal.presented().is_some();
    let of = services
        .persons
        .host_of(services.store.as_ref(), &name)
        .await?;
    if let Some(of) = of.filter(|of| of != host) {
        return Err(foreign(&name, &of, host));
    }
    if known.is_none() && !principal.may_make(&name) {
        let error = format!("{name} ends like the name of a host's person, and this is {host}");
        return Err(Refusal::new(ErrorCode::Forbidden, error).suggest("Act as another agent."));
    }
    let exists = is_human || is_own || may_make || known.is_some();
    if !exists || (name.is_reserved() && !is_human) {
        return Err(Refusal::agent_not_found(name.as_str(), &[]));
    }
    if let Some(agent) = known {
        check_host(services, principal, &agent, host)?;
    }
    let quota = services.quota(principal);
    // `human` is every person's: a rule about a host must not count for all of them.
    let of = Some(host).filter(|_| !is_human);
    let agent = services.store.introduce(&name, of, &quota).await?;
    Ok((caller, agent))
}
