//! The keys over HTTP: listing, making, ending and renewing them, and inviting hosts.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use c3po_shared::audit::{Entry, Event};
use c3po_shared::refusal::Refusal;
use c3po_shared::time::Timestamp;
use serde_json::{Value, json};

use super::Server;
use super::rest::answer;
use crate::auth::issue::{self, NewInvite, NewKey};
use crate::auth::{self, Principal, Right};
use crate::store::Key;

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
    let outcome = async {
        principal.check(Right::Administer)?;
        let Json(new) = new.map_err(unreadable)?;
        let (key, text) = issue::create(server.office.store.as_ref(), new, principal.name()).await?;
        changed(&server, "created", &key.id, principal.name()).await;
        Ok(with_text(&key, text))
    };
    answer(outcome.await)
}

/// `DELETE /api/keys/{id}`
pub(super) async fn revoke(
    State(server): State<Server>,
    Extension(principal): Extension<Arc<Principal>>,
    Path(id): Path<String>,
) -> Response {
    let outcome = async {
        principal.check(Right::Administer)?;
        let key = issue::revoke(server.office.store.as_ref(), &id).await?;
        changed(&server, "revoked", &key.id, principal.name()).await;
        Ok(shown(&key, Timestamp::now()))
    };
    answer(outcome.await)
}

/// `POST /api/keys/{id}/rotate`
pub(super) async fn rotate(
    State(server): State<Server>,
    Extension(principal): Extension<Arc<Principal>>,
    Path(id): Path<String>,
) -> Response {
    let outcome = async {
        principal.check(Right::Administer)?;
        let (key, text) = issue::rotate(server.office.store.as_ref(), &id).await?;
        changed(&server, "rotated", &key.id, principal.name()).await;
        Ok(with_text(&key, text))
    };
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
        let invite = server.joins.invite(server.office.store.as_ref(), new).await?;
        tracing::info!("{} made an invite that ends at {}", principal.name(), invite.expires_at);
        Ok(json!({"line": invite.line, "install": invite.install, "expires_at": invite.expires_at}))
    };
    answer(outcome.await)
}

/// Says in log and audit what became of a key, and by whom, and lets it count here at once. The other coordinators, and
/// this one where it cannot read now, find it by themselves.
pub(super) async fn changed(server: &Server, verb: &str, key: &str, by: &str) {
    tracing::info!("the key {key} was {verb} by {by}");
    let entry = Entry::new(Event::KeyChanged).verb(verb).because(format!("by {by}"));
    server.office.audit.note(Entry { key: Some(key.to_owned()), ..entry });
    if let Err(error) = auth::watch::load(&server.auth, server.office.store.as_ref()).await {
        tracing::debug!("keys were not read again at once: {error}");
    }
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
