//! The keys over HTTP: listing, making, ending and renewing them, and inviting hosts.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use c3po_shared::audit::{Entry, Event};
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::time::Timestamp;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use super::Server;
use super::rest::answer;
use crate::auth::issue::{self, NewInvite, NewKey};
use crate::auth::{self, Principal, Right};
use crate::store::Key;

/// What the paths of keys begin with.
pub(super) const PATH: &str = "/api/keys";

/// `GET /api/keys`: all of them, the newest first, without their hashes.
pub(super) async fn list(State(server): State<Server>, Extension(principal): Extension<Arc<Principal>>) -> Response {
    let outcome = async {
        principal.check(Right::Administer)?;
        let mut keys = server.office.store.keys().await?;
        keys.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        let now = Timestamp::now();
        Ok(json!({"keys": keys.iter().map(|key| shown(key, now)).collect::<Vec<_>>()}))
    };
    answer(outcome.await)
}

/// `POST /api/keys`
pub(super) async fn create(
    State(server): State<Server>,
    Extension(principal): Extension<Arc<Principal>>,
    new: Result<Json<NewKey>, JsonRejection>,
) -> Response {
    let outcome = to_the_end(server.tasks.clone(), async move {
        principal.check(Right::Administer)?;
        let Json(new) = new.map_err(unreadable)?;
        let made = issue::create(server.office.store.as_ref(), new, principal.name()).await;
        let (key, text) = made.inspect_err(|refusal| unsure(&server, "created", None, principal.name(), refusal))?;
        changed(&server, "created", &key.id, principal.name()).await;
        Ok(with_text(&key, text))
    });
    answer(outcome.await)
}

/// `DELETE /api/keys/{id}`
pub(super) async fn revoke(
    State(server): State<Server>,
    Extension(principal): Extension<Arc<Principal>>,
    Path(id): Path<String>,
) -> Response {
    let outcome = to_the_end(server.tasks.clone(), async move {
        principal.check(Right::Administer)?;
        let ended = issue::revoke(server.office.store.as_ref(), &id).await;
        let (key, is_news) =
            ended.inspect_err(|refusal| unsure(&server, "revoked", Some(&id), principal.name(), refusal))?;
        if is_news {
            changed(&server, "revoked", &key.id, principal.name()).await;
        }
        Ok(shown(&key, Timestamp::now()))
    });
    answer(outcome.await)
}

/// `POST /api/keys/{id}/rotate`
pub(super) async fn rotate(
    State(server): State<Server>,
    Extension(principal): Extension<Arc<Principal>>,
    Path(id): Path<String>,
) -> Response {
    let outcome = to_the_end(server.tasks.clone(), async move {
        principal.check(Right::Administer)?;
        let rotated = issue::rotate(server.office.store.as_ref(), &id).await;
        let (key, text) =
            rotated.inspect_err(|refusal| unsure(&server, "rotated", Some(&id), principal.name(), refusal))?;
        changed(&server, "rotated", &key.id, principal.name()).await;
        Ok(with_text(&key, text))
    });
    answer(outcome.await)
}

/// `POST /api/invites`: returns the code, and the lines that a new host is given.
pub(super) async fn invite(
    State(server): State<Server>,
    Extension(principal): Extension<Arc<Principal>>,
    new: Result<Json<NewInvite>, JsonRejection>,
) -> Response {
    let outcome = async {
        principal.check(Right::Administer)?;
        let Json(new) = new.map_err(unreadable)?;
        let invite = server.joins.invite(server.office.store.as_ref(), new, principal.key_id()).await?;
        tracing::info!("{} made the invite {}, which ends at {}", principal.name(), invite.id, invite.expires_at);
        noted(&server, "invited", Some(&invite.id), principal.name());
        Ok(json!({"id": invite.id, "line": invite.line, "install": invite.install, "expires_at": invite.expires_at}))
    };
    answer(outcome.await)
}

/// Does what changes a key in a task of its own, so that nothing is left half-way where whoever asked is gone: what was
/// done is noted, and counts here.
pub(super) async fn to_the_end<T: Send + 'static>(
    tasks: TaskTracker,
    change: impl Future<Output = Result<T, Refusal>> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tasks.spawn(change).await;
    done.unwrap_or_else(|error| {
        Err(Refusal::new(ErrorCode::Internal, format!("a change of keys ended early: {error}")))
    })
}

/// Says in log and audit what became of a key, and by whom, and lets it count here at once. The other coordinators, and
/// this one where it cannot read now, find it by themselves.
pub(super) async fn changed(server: &Server, verb: &str, key: &str, by: &str) {
    tracing::info!("the key {key} was {verb} by {by}");
    noted(server, verb, Some(key), by);
    if let Err(error) = auth::watch::load(&server.auth, server.office.store.as_ref()).await {
        tracing::debug!("keys were not read again at once: {error}");
    }
}

/// Notes a change of which nobody knows whether it was done: the store did not answer in time.
pub(super) fn unsure(server: &Server, verb: &str, key: Option<&str>, by: &str, refusal: &Refusal) {
    if refusal.details.get("applied").is_some_and(|applied| applied == "unknown") {
        noted(server, verb, key, &format!("{by}, but whether it was done is not known"));
    }
}

/// Says in the audit what became of a key or an invite, and by whom.
pub(super) fn noted(server: &Server, verb: &str, key: Option<&str>, by: &str) {
    let entry = Entry::new(Event::KeyChanged).verb(verb).because(format!("by {by}"));
    server.office.audit.note(Entry { key: key.map(str::to_owned), ..entry });
}

fn shown(key: &Key, now: Timestamp) -> Value {
    let state = match key {
        Key { revoked_at: Some(_), .. } => "revoked",
        key if key.is_valid(now) => "valid",
        _ => "expired",
    };
    json!({
        "id": key.id, "name": key.name, "scope": key.scope, "agents": key.agents, "state": state,
        "created_at": key.created_at, "expires_at": key.expires_at, "revoked_at": key.revoked_at, "made_by": key.made_by,
    })
}

fn with_text(key: &Key, text: String) -> Value {
    let mut shown = shown(key, Timestamp::now());
    shown["key"] = Value::String(text);
    shown
}

pub(super) fn unreadable(error: JsonRejection) -> Refusal {
    Refusal::invalid(error.body_text())
}
