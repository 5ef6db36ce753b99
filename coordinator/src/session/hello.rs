//! The beginning of a link: `hello`, its checks, and the reply.

use std::sync::Arc;

use c3po_shared::ids::AgentId;
use c3po_shared::limits::{CONTEXT_MAX, HEARTBEAT, LABEL_MAX, SILENCE_MAX, SUCCEEDS_MAX};
use c3po_shared::receipt::Via;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::text::{check_plain, harmless};
use c3po_shared::vocabulary::State;
use c3po_shared::wire::{
    CLOSE_REFUSED, Frame, Hello, Outgoing, PROTOCOL_VERSION, RequestId, RpcError, ToCoordinator,
    Welcome, compatible,
};
use tokio::time::timeout;
use uuid::Uuid;

use super::attendance;
use super::bounds::{HELLO_DEADLINE, REACH_MAX};
use super::connection::{Connection, Gone};
use crate::auth::Principal;
use crate::presence::{Present, ReadingAlong};
use crate::request::{Caller, Memory, PersonWish, Services, act_as, begin_call, settle_name};
use crate::store::{Claim, Owner, Quota};

/// How many messages a connection may send up to its `hello`; some pings and pongs count as one, and so do many frames of one
/// message.
const BEFORE_HELLO: usize = 16;

/// A link that was accepted.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) caller: Caller,
    /// `None` for a person, who has no session.
    pub(super) present: Option<Present>,
    /// Set if a terminal prints the messages of `human` as they arrive.
    pub(super) reading_along: Option<ReadingAlong>,
    /// The last position delivered to a person's command.
    pub(super) delivered: u64,
    /// Whether messages are pushed to it.
    pub(super) pushes: bool,
    /// Whether the session has not been active since it began.
    pub(super) is_new: bool,
    /// The context number of the session.
    pub(super) context: u64,
}

/// Waits for `hello` and replies to it. Returns `None` if the link ends with that.
pub(super) async fn receive(
    connection: &mut Connection,
    services: &Services,
    principal: &Arc<Principal>,
) -> Option<Admitted> {
    let (id, hello) = timeout(HELLO_DEADLINE, first(connection))
        .await
        .ok()?
        .ok()?;
    match admit(services, principal, hello).await {
        Ok((admitted, welcome)) => {
            connection
                .send_one(Outgoing::result(&id, &welcome).text())
                .await
                .ok()?;
            connection.welcome();
            Some(admitted)
        }
        Err(refusal) => {
            tracing::warn!("a hello was refused: {refusal}");
            connection
                .send_one(Outgoing::error(Some(&id), &RpcError::from(refusal)).text())
                .await
                .ok()?;
            connection.close(CLOSE_REFUSED, "hello was refused").await;
            None
        }
    }
}

/// Returns the first `hello`. A few earlier requests are refused; then the connection is closed.
async fn first(connection: &mut Connection) -> Result<(RequestId, Hello), Gone> {
    for _ in 0..BEFORE_HELLO {
        let Some((text, _held)) = connection.receive().await? else {
            continue;
        };
        let (id, error) = match Frame::parse(&text) {
            Ok(Frame::Request { id, method, params }) => {
                match ToCoordinator::parse(&method, params) {
                    Ok(ToCoordinator::Hello(hello)) => return Ok((id, hello)),
                    Ok(_) => (
                        Some(id),
                        RpcError::from(Refusal::invalid("send hello first")),
                    ),
                    Err(refusal) => (Some(id), RpcError::from(refusal)),
                }
            }
            Ok(Frame::Notification { .. } | Frame::Response { .. }) => continue,
            Err(error) => (None, error.rpc_error()),
        };
        connection
            .send_one(Outgoing::error(id.as_ref(), &error).text())
            .await?;
    }
    connection
        .close(CLOSE_REFUSED, "too many frames before hello")
        .await;
    Err(Gone)
}

async fn admit(
    services: &Services,
    principal: &Arc<Principal>,
    hello: Hello,
) -> Result<(Admitted, Welcome), Refusal> {
    check_version(&hello.protocol_version)?;
    check_labels(&hello)?;
    if hello.person {
        admit_person(services, principal, hello).await
    } else {
        admit_session(services, principal, hello).await
    }
}

fn check_version(version: &str) -> Result<(), Refusal> {
    if compatible(version) {
        return Ok(());
    }
    let theirs: String = harmless(version, false).chars().take(20).collect();
    let major = |version: &str| {
        version
            .split('.')
            .next()
            .and_then(|major| major.parse::<u32>().ok())
    };
    let older = if major(&theirs) < major(PROTOCOL_VERSION) {
        "c3po on this host"
    } else {
        "the coordinator"
    };
    Err(Refusal::new(
        ErrorCode::VersionMismatch,
        format!("this host uses link protocol {theirs}, the coordinator uses {PROTOCOL_VERSION}"),
    )
    .suggest(format!("Update {older}.")))
}

/// Checks the texts and numbers that the host chose.
fn check_labels(hello: &Hello) -> Result<(), Refusal> {
    let labels = [
        Some(&hello.host),
        hello.session_id.as_ref(),
        Some(&hello.client.name),
        Some(&hello.client.version),
    ];
    if let Some(count) = labels
        .into_iter()
        .flatten()
        .map(|label| label.chars().count())
        .find(|count| *count > LABEL_MAX)
    {
        return Err(Refusal::too_large(
            "host, session_id or client",
            count,
            LABEL_MAX,
        ));
    }
    for label in labels.into_iter().flatten() {
        check_plain("host, session_id or client", label)?;
    }
    if hello.reach.len() > REACH_MAX {
        return Err(Refusal::invalid(format!(
            "reach has {} ways",
            hello.reach.len()
        )));
    }
    if hello.context > CONTEXT_MAX {
        return Err(Refusal::invalid(format!(
            "context {} is beyond {CONTEXT_MAX}",
            hello.context
        )));
    }
    Ok(())
}

async fn admit_session(
    services: &Services,
    principal: &Arc<Principal>,
    hello: Hello,
) -> Result<(Admitted, Welcome), Refusal> {
    let host = principal.host(&hello.host);
    let pushes = !hello.one_shot;
    let wish = claim(principal, &host, hello);
    let (state, context) = (wish.state, wish.context);
    let begun = begin_call(principal).await?;
    let tenure = settle_name(services, principal, wish, None).await?;
    drop(begun);
    let present = services.presence.enter(&tenure.agent);
    let store = &services.store;
    let (agent, pending) =
        futures_util::try_join!(store.agent(&tenure.agent), store.pending(&tenure.agent))?;
    // A state reported by the host is trusted.
    let is_new = state.is_none()
        && agent
            .as_ref()
            .is_some_and(|agent| agent.state == State::Starting);
    let wished = agent
        .and_then(|agent| agent.owner)
        .map(|owner| owner.base)
        .filter(|base| *base != tenure.agent);
    let welcome = welcome(
        tenure.agent.clone(),
        tenure.uid,
        tenure.generation,
        pending.count,
        &host,
    );
    let welcome = Welcome { wished, ..welcome };
    let caller = Caller {
        agent: tenure.agent.clone(),
        principal: Arc::clone(principal),
        host: Some(host),
        tenure: Some(tenure),
        dead: Arc::default(),
        renamable: true,
        memory: Arc::new(Memory::default()),
    };
    // The host may have lost messages that were pushed before a break, so all unshown messages are pushed again.
    let present = Some(present);
    Ok((
        Admitted {
            caller,
            present,
            reading_along: None,
            delivered: 0,
            pushes,
            is_new,
            context,
        },
        welcome,
    ))
}

fn claim(principal: &Principal, host: &str, hello: Hello) -> Claim {
    Claim {
        owner: Owner {
            base: hello.name.clone(),
            host: host.to_owned(),
            slot: 1,
        },
        name: hello.name,
        instance: Principal::process_of_links(hello.instance),
        session_id: hello.session_id,
        reach: if hello.reach.is_empty() {
            vec![Via::WaitForMessage, Via::GetMessages]
        } else {
            hello.reach
        },
        context: hello.context,
        state: hello.state,
        succeeds: dead(principal, &hello.succeeds, Some(hello.instance)),
        fleeting: hello.one_shot,
        one_shot: hello.one_shot,
        reserved: false,
        lease: SILENCE_MAX,
        quota: Quota::default(),
        key: None,
        kind: "session",
    }
}

/// Admits a person, who acts as an agent that no session holds and takes over nothing. With a key, the name may be a new name
/// of its host.
async fn admit_person(
    services: &Services,
    principal: &Arc<Principal>,
    hello: Hello,
) -> Result<(Admitted, Welcome), Refusal> {
    let host = principal.host(&hello.host);
    let wish = PersonWish {
        name: &hello.name,
        host: &host,
        dead: dead(principal, &hello.succeeds, None),
        may_make: hello.leftover,
    };
    let (caller, agent) = act_as(services, principal, wish).await?;
    let is_human = agent.id == AgentId::human();
    let pending = services.store.pending(&agent.id).await?.count;
    let welcome = welcome(
        agent.id.clone(),
        agent.uid,
        agent.generation,
        pending,
        &host,
    );
    let pushes = hello.reach.contains(&Via::Terminal);
    let delivered = hello.last_delivered.unwrap_or_default();
    let reading_along = if is_human && pushes {
        Some(attendance::begin(services).await?)
    } else {
        None
    };
    let admitted = Admitted {
        caller,
        present: None,
        reading_along,
        delivered,
        pushes,
        is_new: false,
        context: 0,
    };
    Ok((admitted, welcome))
}

/// Returns the processes that the host reports as dead, and `own` as earlier builds knew it: its lease of before the upgrade is
/// the process's own.
fn dead(principal: &Principal, succeeds: &[Uuid], own: Option<Uuid>) -> Vec<Uuid> {
    let dead = || succeeds.iter().take(SUCCEEDS_MAX);
    let now = dead().map(|dead| Principal::process_of_links(*dead));
    let former = dead().copied().chain(own);
    now.chain(former.flat_map(|process| principal.former_processes(process)))
        .collect()
}

fn welcome(agent_id: AgentId, uid: Uuid, generation: u64, pending: usize, host: &str) -> Welcome {
    Welcome {
        agent_id,
        uid,
        generation,
        heartbeat_seconds: HEARTBEAT.as_secs(),
        coordinator_version: env!("CARGO_PKG_VERSION").to_owned(),
        pending,
        host: Some(host.to_owned()),
        wished: None,
    }
}
