//! Drives the link: dial, `hello`, serve, back off, and repeat, until it is stopped. A refused session waits for a
//! changed configuration, or for a minute.

use std::time::Duration;

use c3po_shared::ids::AgentId;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::wire::{Hello, PROTOCOL_VERSION, SessionChange, Welcome};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::connection::LinkSocket;
use super::directory::Endpoints;
use super::failed::{self, DialError, Stage};
use super::own_seat::OwnSeat;
use super::serve::{End, serve};
use super::{GRACE, Kind, Link, LinkStatus, PoisonError, Shared, queue, rules};
use crate::config::as_written;

/// The shortest pause between two attempts, however many calls want the link.
const REDIAL_MIN: Duration = Duration::from_secs(1);
/// How long one of several coordinators may take to answer before the next one is tried.
const TURN_MAX: Duration = Duration::from_secs(3);

/// Keeps the link up until it is stopped. Waiting calls are answered in any case.
pub async fn run(link: Link, stop: CancellationToken) {
    let shared = &*link.shared;
    if stop
        .run_until_cancelled(session_is_real(shared))
        .await
        .is_some()
    {
        link.begin();
        tokio::select! {
            () = keep_connected(shared, &stop) => {}
            // Never returns by itself.
            () = kept_is_sent(&link) => {}
        }
    }
    stop.cancelled().await;
    shared.status.send_modify(|status| {
        status.has_ended();
        status.refusal = Some(rules::ending());
    });
}

/// Sends the queued calls of this host. A person's command leaves that to the sessions.
async fn kept_is_sent(link: &Link) {
    match link.shared.kind {
        Kind::Session => queue::drain(link).await,
        Kind::Person { .. } | Kind::Leftover => std::future::pending().await,
    }
}

async fn session_is_real(shared: &Shared) {
    let grace = async {
        shared.initialized.wait().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        _ = shared.real.wait() => {}
        () = grace => {}
    }
}

/// The next attempt, and its name.
struct Course {
    /// Which of the URLs comes first.
    next_url: usize,
    /// The name for `hello`: the wished one at first, the canonical one after the first reply.
    name: AgentId,
    /// The seat of that name on this host, if this process has it.
    seat: OwnSeat,
    /// Whether this process asked for a name before.
    has_begun: bool,
}

impl Course {
    /// Waits until this process may ask for a name.
    async fn begins(&mut self, shared: &Shared) {
        shared.client_session.runs().await;
        if !self.has_begun {
            shared.client_session.is_left().await;
            self.has_begun = true;
        }
    }
}

async fn keep_connected(shared: &Shared, stop: &CancellationToken) {
    let mut course = Course {
        next_url: 0,
        name: shared.config.agent.clone(),
        seat: OwnSeat::default(),
        has_begun: false,
    };
    let mut backoff = rules::backoff();
    while !stop.is_cancelled() {
        if shared.kind == Kind::Session
            && stop
                .run_until_cancelled(course.begins(shared))
                .await
                .is_none()
        {
            return;
        }
        let mut first_delay = None;
        match stop
            .run_until_cancelled(dial_all(shared, &mut course))
            .await
        {
            None => return,
            Some(Err(refusal)) => {
                first_delay = Some(is_refused(shared, refusal));
                if shared.kind != Kind::Session {
                    return;
                }
            }
            Some(Ok(None)) => shared.status.send_modify(LinkStatus::round_failed),
            Some(Ok(Some((mut connection, welcome)))) => {
                let began = Instant::now();
                let end = serve(shared, &mut connection, &welcome, &mut course.seat, stop).await;
                let stable = began.elapsed() >= rules::STABLE;
                if stable {
                    backoff = rules::backoff();
                }
                // A draining coordinator announced its end, so the connection counts as stable.
                let stable = stable || matches!(end, End::Draining);
                let urls = shared.directory.entry().coordinators.urls.len();
                first_delay = rules::first_delay(urls, stable, shared.instance.as_u128());
                if !goes_on(shared, &mut course, end) {
                    return;
                }
            }
        }
        let delay = first_delay
            .or_else(|| backoff.next())
            .unwrap_or(Duration::from_secs(30));
        tracing::debug!("reconnecting in {delay:?}");
        if stop
            .run_until_cancelled(pause(shared, delay))
            .await
            .is_none()
        {
            return;
        }
    }
}

/// Records a refusal, and returns the pause after it. A repeated refusal is logged once.
fn is_refused(shared: &Shared, refusal: Refusal) -> Duration {
    let before = shared
        .status
        .borrow()
        .refusal
        .as_ref()
        .map(|before| before.code);
    let is_first = before != Some(refusal.code);
    let delay = rules::refused_delay(refusal.code, is_first, shared.instance.as_u128());
    let is_news = shared.status.borrow().refusal.as_ref() != Some(&refusal);
    // A command prints the refusal itself.
    if is_news && shared.kind == Kind::Session {
        let file = shared.config.places.config_file.display();
        tracing::error!("refused: {refusal}; retrying every minute, and when {file} changes");
    }
    shared
        .status
        .send_modify(|status| status.is_refused(refusal));
    delay
}

/// Pauses before the next attempt. The pause is shorter if a call found no link or is unanswered, or if the
/// configuration changes.
async fn pause(shared: &Shared, delay: Duration) {
    let is_refused = shared.status.borrow().refusal.is_some();
    let wanted = async {
        tokio::time::sleep(REDIAL_MIN).await;
        if is_refused {
            // The answer would be the same, and each attempt adds an audit entry at the coordinator.
            std::future::pending::<()>().await;
        }
        if !shared.pending().has_impatient_calls() {
            shared.wanted.notified().await;
        }
    };
    tokio::select! {
        () = tokio::time::sleep(delay) => {}
        () = shared.directory.changes() => tracing::debug!("the configuration has changed"),
        () = wanted => tracing::debug!("a call needs the link"),
    }
}

/// Records how a connection ended. Returns whether to dial again.
fn goes_on(shared: &Shared, course: &mut Course, end: End) -> bool {
    course.name = shared.status.borrow().agent.clone();
    let lost = |why: String| shared.status.send_modify(|status| status.is_lost(why));
    match end {
        End::Stopped => return false,
        End::Lost(why) => {
            // Another coordinator first: a dial to an unreachable one takes seconds.
            course.next_url += 1;
            tracing::info!("the link is down: {why}");
            lost(why);
        }
        End::Draining => {
            course.next_url += 1;
            lost("the coordinator is shutting down".to_owned());
        }
        End::TakenOver => {
            let agent = &course.name;
            tracing::warn!("another session took over {agent}: taking another name");
            let refusal = Refusal::new(ErrorCode::Conflict, format!("another session took over {agent}"))
                .suggest("Call ping to see your current name, then check with message_status whether it was sent.")
                .detail("applied", "unknown");
            shared.pending().taken_over(&refusal);
            course.name = shared.config.agent.clone();
            lost("another session took over the agent".to_owned());
        }
        End::Moved => {
            tracing::info!(
                "the client runs this session in another process now, which gets the name"
            );
            if let Err(error) = course.seat.leave() {
                tracing::debug!("could not leave a seat: {error}");
            }
            course.name = shared.config.agent.clone();
            lost("the client runs this session in another process".to_owned());
        }
    }
    true
}

/// Tries every coordinator once. `Err` is their common refusal, which a retry would not change soon.
async fn dial_all(
    shared: &Shared,
    course: &mut Course,
) -> Result<Option<(LinkSocket, Welcome)>, Refusal> {
    shared.directory.refresh(&shared.config).await;
    let entry = shared.directory.entry();
    let urls = &entry.coordinators.urls;
    if urls.is_empty() {
        let refusal = Refusal::new(ErrorCode::InvalidRequest, shared.config.problems.join("; "));
        return Err(refusal
            .suggest("Correct c3po's configuration; the session then reconnects automatically."));
    }
    let name = course.name.clone();
    course.seat.sit(shared, &name).await;
    if shared.kind == Kind::Leftover && course.seat.is_none() {
        return Err(Refusal::new(
            ErrorCode::Conflict,
            format!("a running process of this host holds {name}"),
        ));
    }
    let (mut refused, mut all_refuse) = (None, true);
    for _ in 0..urls.len() {
        let target = &urls[course.next_url % urls.len()];
        let error = match dial_in_turn(shared, &entry, target, course).await {
            Ok(dialled) => return Ok(Some(is_up(shared, course, target, dialled).await)),
            Err(error) => error,
        };
        tracing::debug!("{target}: {error}");
        course.next_url += 1;
        match error {
            // Another coordinator may accept us.
            DialError::Refused(refusal) if rules::is_final(refusal.code, shared.kind) => {
                refused.get_or_insert(refusal.detail("coordinator", as_written(target)));
            }
            error => {
                all_refuse = false;
                let why = error.to_string();
                let refusal =
                    failed::for_host(error.into_refusal(&as_written(target)), &entry.coordinators);
                shared
                    .status
                    .send_modify(|status| status.attempt_failed(why, refusal));
            }
        }
    }
    let Some(refusal) = refused else {
        return Ok(None);
    };
    if all_refuse {
        return Err(refusal);
    }
    shared
        .status
        .send_modify(|status| status.another_refused(&refusal));
    Ok(None)
}

/// A connection, its welcome, and the state of the session that was sent on it.
type Dialled = (LinkSocket, Welcome, SessionChange);

/// Records that the link is up.
async fn is_up(
    shared: &Shared,
    course: &mut Course,
    target: &str,
    dialled: Dialled,
) -> (LinkSocket, Welcome) {
    let (connection, welcome, told) = dialled;
    shared.directory.links_to(target, connection.pinned());
    course.seat.sit(shared, &welcome.agent_id).await;
    shared
        .deliveries
        .begins(&welcome.agent_id, welcome.generation);
    shared.pending().write_all_again();
    if *shared.facts() != told || shared.prompts().is_new() {
        shared.pending().tell_facts();
    }
    tracing::info!(agent.id = %welcome.agent_id, "connected to {target} as {}", welcome.agent_id);
    shared
        .status
        .send_modify(|status| status.is_up(target, welcome.clone()));
    (connection, welcome)
}

/// Dials one of several and leaves time for the next: one may hang, and a caller does not wait for long.
async fn dial_in_turn(
    shared: &Shared,
    entry: &Endpoints,
    target: &str,
    course: &Course,
) -> Result<Dialled, DialError> {
    // Boxed because the future is large and short-lived.
    let stage = Stage::default();
    let dialling = Box::pin(dial_one(shared, entry, target, course, &stage));
    if entry.coordinators.urls.len() == 1 {
        return dialling.await;
    }
    tokio::time::timeout(TURN_MAX, dialling)
        .await
        .unwrap_or_else(|_| Err(stage.gave_up(TURN_MAX)))
}

async fn dial_one(
    shared: &Shared,
    entry: &Endpoints,
    target: &str,
    course: &Course,
    stage: &Stage,
) -> Result<Dialled, DialError> {
    let mut connection = LinkSocket::dial(
        target,
        entry.coordinators.token.as_ref(),
        &entry.trust,
        stage,
    )
    .await?;
    let facts = shared.facts().clone();
    let told = facts.clone();
    let hello = Hello {
        protocol_version: PROTOCOL_VERSION.to_owned(),
        name: shared.status.borrow().wished_for(&course.name),
        host: shared.config.host.clone(),
        instance: shared.instance,
        session_id: facts.session_id,
        client: shared
            .client
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone(),
        last_delivered: shared.deliveries.position(&course.name),
        person: shared.kind != Kind::Session,
        one_shot: shared.kind == Kind::Session && shared.config.one_shot,
        leftover: shared.kind == Kind::Leftover,
        reach: facts.reach.unwrap_or_default(),
        context: facts.context.unwrap_or_default(),
        state: facts.state,
        succeeds: course.seat.succeeds(),
    };
    let welcome = connection.hello(&hello).await?;
    Ok((connection, welcome, told))
}
