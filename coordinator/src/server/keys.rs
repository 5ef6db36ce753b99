//! The keys over HTTP: listing, making, ending and renewing them.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use c3po_shared::audit::{Entry, Event};
use c3po_shared::refusal::Refusal;
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AppState;
use super::endpoint::{Body, By, InPath, RestAnswer};
use crate::auth;
use crate::auth::issue::{self, NewKey};
use crate::store::Key;

/// The name of a key or an invite in a path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Named {
    #[schemars(regex(pattern = "^[0-9a-f]{8}$"))]
    pub(super) id: String,
}

/// A key as lists show it: without its hash.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Key")]
pub(super) struct ListedKey {
    /// What it is called.
    id: String,
    /// Whose it is.
    name: String,
    /// Which host whoever presents it is.
    host: String,
    /// What it is for.
    scope: Scope,
    /// Which agents it covers, as globs.
    agents: Vec<String>,
    /// Whether it admits anybody.
    state: KeyState,
    /// When it was made.
    created_at: Timestamp,
    /// When it ends by itself; never where null.
    expires_at: Option<Timestamp>,
    /// When it was revoked.
    revoked_at: Option<Timestamp>,
    /// Which key or invite it was made with.
    made_by: String,
    /// When it was last used, to the minute; null where that is not known.
    last_used_at: Option<Timestamp>,
}

/// Whether a key admits anybody.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum KeyState {
    Valid,
    Expired,
    Revoked,
}

/// A key whose text was just made.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct MadeKey {
    #[serde(flatten)]
    shown: ListedKey,
    /// Its text, which is said this once.
    key: String,
}

/// Keys, the newest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Keys {
    /// All of them, those that have ended as well.
    keys: Vec<ListedKey>,
}

/// `GET /api/keys`
pub(super) async fn list(State(server): State<AppState>) -> RestAnswer<Keys> {
    let (store, now) = (&server.office.store, Timestamp::now());
    let mut keys = store.keys().await?;
    let mut used: HashMap<String, Timestamp> = HashMap::new();
    // What this coordinator knows itself is not older than what any has noted of it.
    for (id, at) in
        store.uses().await?.into_iter().chain(server.auth.keyring.used_since(Timestamp::from_millis(0), now))
    {
        let latest = used.entry(id).or_insert(at);
        *latest = at.max(*latest);
    }
    keys.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
    let with_use = |key: Key| {
        let last_used_at = used.get(&key.id).copied();
        ListedKey { last_used_at, ..shown(key, now) }
    };
    Ok(Json(Keys { keys: keys.into_iter().map(with_use).collect() }))
}

/// `POST /api/keys`
pub(super) async fn create(
    State(server): State<AppState>,
    By(principal): By,
    Body(new): Body<NewKey>,
) -> RestAnswer<MadeKey> {
    let by = principal.name();
    let made = issue::create(server.office.store.as_ref(), new, &principal).await;
    made_key(&server, "created", None, by, made).await
}

/// `POST /api/keys/{id}/rotate`
pub(super) async fn rotate(
    State(server): State<AppState>,
    By(principal): By,
    InPath(Named { id }): InPath<Named>,
) -> RestAnswer<MadeKey> {
    let rotated = issue::rotate(server.office.store.as_ref(), &id, &principal).await;
    made_key(&server, "rotated", Some(&id), principal.name(), rotated).await
}

/// Tells whoever asked for the text of a key what came of that, and everybody else that the key has changed.
async fn made_key(
    server: &AppState,
    verb: &str,
    id: Option<&str>,
    by: &str,
    made: Result<(Key, String), Refusal>,
) -> RestAnswer<MadeKey> {
    let (key, text) = made.inspect_err(|refusal| unsure(server, verb, id, by, refusal))?;
    changed(server, verb, &key.id, by).await;
    Ok(Json(MadeKey { shown: shown(key, Timestamp::now()), key: text }))
}

/// `DELETE /api/keys/{id}`
pub(super) async fn revoke(
    State(server): State<AppState>,
    By(principal): By,
    InPath(Named { id }): InPath<Named>,
) -> RestAnswer<ListedKey> {
    let by = principal.name();
    let ended = issue::revoke(server.office.store.as_ref(), &id, &principal).await;
    let (key, is_news) = ended.inspect_err(|refusal| unsure(&server, "revoked", Some(&id), by, refusal))?;
    if is_news {
        changed(&server, "revoked", &key.id, by).await;
    }
    Ok(Json(shown(key, Timestamp::now())))
}

/// Says in log and audit what became of a key, and by whom, and lets it count here at once. The other coordinators, and
/// this one where it cannot read now, find it by themselves.
pub(super) async fn changed(server: &AppState, verb: &str, key: &str, by: &str) {
    tracing::info!("the key {key} was {verb} by {by}");
    noted(server, verb, Some(key), by);
    if let Err(error) = auth::watch::load(&server.auth, server.office.store.as_ref()).await {
        tracing::debug!("keys were not read again at once: {error}");
    }
}

/// Notes a change of which nobody knows whether it was done: the store did not answer in time.
pub(super) fn unsure(server: &AppState, verb: &str, key: Option<&str>, by: &str, refusal: &Refusal) {
    if refusal.details.get("applied").is_some_and(|applied| applied == "unknown") {
        noted(server, verb, key, &format!("{by}, but whether it was done is not known"));
    }
}

/// Says in the audit what became of a key or an invite, and by whom.
pub(super) fn noted(server: &AppState, verb: &str, key: Option<&str>, by: &str) {
    let entry = Entry::new(Event::KeyChanged).verb(verb).because(format!("by {by}"));
    server.office.audit.note(Entry { key: key.map(str::to_owned), ..entry });
}

fn shown(key: Key, now: Timestamp) -> ListedKey {
    let state = match &key {
        Key { revoked_at: Some(_), .. } => KeyState::Revoked,
        key if key.is_valid(now) => KeyState::Valid,
        _ => KeyState::Expired,
    };
    let host = key.host().to_owned();
    let Key { id, name, scope, agents, created_at, expires_at, revoked_at, made_by, .. } = key;
    ListedKey { id, name, host, scope, agents, state, created_at, expires_at, revoked_at, made_by, last_used_at: None }
}
