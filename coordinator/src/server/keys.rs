//! Keys over HTTP: listing, making, revoking and rotating them.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use c3po_shared::audit::{Entry, Event};
use c3po_shared::host::is_same;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::{Scope, Validity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AppState;
use super::endpoint::{Body, By, InPath, RestAnswer};
use crate::auth::invites;
use crate::auth::issue::{self, NewKey};
use crate::auth::logins::vouch_again;
use crate::auth::offspring::{self, MadeCredential};
use crate::auth::{self, Principal};
use crate::clock;
use crate::store::{Invite, Key, Store};

/// The id of a key or an invite in a path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Named {
    #[schemars(regex(pattern = "^[0-9a-f]{8}$"))]
    pub(super) id: String,
}

/// A key as lists show it, without its hash.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Key")]
pub(super) struct ListedKey {
    /// The id of the key.
    id: String,
    /// The name of its holder.
    name: String,
    /// The host that the key authenticates.
    host: String,
    /// The scope of the key.
    scope: Scope,
    /// The agents that it covers, as globs.
    agents: Vec<String>,
    /// Whether the key is valid.
    state: Validity,
    /// When it was made.
    created_at: Timestamp,
    /// When it expires; null if it does not expire.
    expires_at: Option<Timestamp>,
    /// When it was revoked.
    revoked_at: Option<Timestamp>,
    /// The key or invite that it was made with.
    made_by: String,
    /// When it was last used, to the minute; null if unknown.
    last_used_at: Option<Timestamp>,
}

/// A key with a new secret.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct MadeKey {
    #[serde(flatten)]
    shown: ListedKey,
    /// The secret, which is returned only once.
    key: String,
}

/// A revoked key, and others that stay valid.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RevokedKey {
    #[serde(flatten)]
    shown: ListedKey,
    #[serde(flatten)]
    left: Left,
}

/// A key with a new secret, and others that stay valid: the holder of the old secret may have them.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RotatedKey {
    #[serde(flatten)]
    made: MadeKey,
    #[serde(flatten)]
    left: Left,
}

/// The credentials that outlive a key, or its old secret.
#[derive(Debug, Default, Serialize, JsonSchema)]
struct Left {
    /// The other valid keys of the same host, which the holder of this key may have made or taken too.
    same_host: Vec<OtherKey>,
    /// The id of the invite with which the host joined, if it is still open: it admits every program that has read its code.
    #[serde(skip_serializing_if = "Option::is_none")]
    open_invite: Option<String>,
    /// The ids of the open invites that name this host: each gives a key of it to a program that has read its code.
    host_invites: Vec<String>,
    /// The valid credentials that a key of the scope `admin` made. They outlive it.
    made: Vec<MadeCredential>,
    /// Whether these lists could be read. Otherwise revoke the key, also once more, which lists them again.
    is_whole: bool,
}

/// Another key of a host.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct OtherKey {
    /// The id of the key.
    id: String,
    /// The name of its holder.
    name: String,
}

/// Keys, the newest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Keys {
    /// All keys, including ended ones.
    keys: Vec<ListedKey>,
}

/// `GET /api/keys`
pub(super) async fn list(State(server): State<AppState>) -> RestAnswer<Keys> {
    let (store, now) = (&server.services.store, clock::now());
    let mut keys = store.keys().await?;
    let mut used: HashMap<String, Timestamp> = HashMap::new();
    // A use that this coordinator recorded itself is at least as recent as a stored one.
    for (id, at) in store.uses().await?.into_iter().chain(
        server
            .auth
            .keyring
            .used_since(Timestamp::from_millis(0), now),
    ) {
        let latest = used.entry(id).or_insert(at);
        *latest = at.max(*latest);
    }
    keys.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
    let with_use = |key: Key| {
        let last_used_at = used.get(&key.id).copied();
        ListedKey {
            last_used_at,
            ..shown(key, now)
        }
    };
    Ok(Json(Keys {
        keys: keys.into_iter().map(with_use).collect(),
    }))
}

/// `POST /api/keys`
pub(super) async fn create(
    State(server): State<AppState>,
    By(principal): By,
    Body(new, _held): Body<NewKey>,
) -> RestAnswer<MadeKey> {
    let made = issue::create(server.services.store.as_ref(), new, &principal).await;
    made_key(&server, "created", None, &principal, made).await
}

/// `POST /api/keys/{id}/rotate`
pub(super) async fn rotate(
    State(server): State<AppState>,
    By(principal): By,
    InPath(Named { id }): InPath<Named>,
) -> RestAnswer<RotatedKey> {
    let store = server.services.store.as_ref();
    let rotated = issue::rotate(store, &id, &principal).await;
    let Json(made) = made_key(&server, "rotated", Some(&id), &principal, rotated).await?;
    let left = left_by(store, &id).await;
    Ok(Json(RotatedKey { made, left }))
}

/// Returns the new secret to the client, and publishes the change of the key.
async fn made_key(
    server: &AppState,
    verb: &str,
    id: Option<&str>,
    principal: &Principal,
    made: Result<(Key, String), Refusal>,
) -> RestAnswer<MadeKey> {
    let by = principal.name();
    let (key, text) = made.inspect_err(|refusal| unsure(server, verb, id, by, refusal))?;
    changed(server, verb, &key.id, by).await;
    vouch_again(server.services.store.as_ref(), principal).await?;
    Ok(Json(MadeKey {
        shown: shown(key, clock::now()),
        key: text,
    }))
}

/// `DELETE /api/keys/{id}`
pub(super) async fn revoke(
    State(server): State<AppState>,
    By(principal): By,
    InPath(Named { id }): InPath<Named>,
) -> RestAnswer<RevokedKey> {
    let (by, store) = (principal.name(), server.services.store.as_ref());
    let ended = issue::revoke(store, &id, &principal).await;
    let (key, is_news) = match ended {
        Err(refusal) if refusal.code == ErrorCode::KeyNotFound => {
            return Err(offspring::name_those_of_a_lost_maker(store, id, refusal)
                .await
                .into());
        }
        ended => ended.inspect_err(|refusal| unsure(&server, "revoked", Some(&id), by, refusal))?,
    };
    if is_news {
        changed(&server, "revoked", &key.id, by).await;
    }
    // Afterwards, so that nothing delays the revocation and nothing that came meanwhile is missing.
    let left = left_by(store, &id).await;
    Ok(Json(RevokedKey {
        left,
        shown: shown(key, clock::now()),
    }))
}

/// Returns the credentials that outlive a key or its old secret. If they cannot be read, the reason is logged, and the result
/// is not whole.
async fn left_by(store: &dyn Store, id: &str) -> Left {
    let left = read_left(store, id).await;
    left.unwrap_or_else(|error| {
        tracing::warn!("the list of what outlives the key {id} is not whole: {error}");
        Left::default()
    })
}

/// Returns the other valid keys of a key's host, the open invites with which it was made or that name the host, and the valid
/// credentials that it made.
async fn read_left(store: &dyn Store, id: &str) -> Result<Left, Refusal> {
    let (keys, now) = (store.keys().await?, clock::now());
    let is_whole = true;
    let Some(key) = keys.iter().find(|key| key.id == id) else {
        return Ok(Left {
            is_whole,
            ..Left::default()
        });
    };
    let is_other =
        |other: &&Key| other.host() == key.host() && other.id != key.id && other.is_valid(now);
    let other = |Key { id, name, .. }: &Key| OtherKey {
        id: id.clone(),
        name: name.clone(),
    };
    let invites = invites::invites(store).await?;
    let is_maker = |invite: &&Invite| offspring::label_of_invite(&invite.id) == key.made_by;
    let names_host = |invite: &&Invite| {
        let host = invite.host.as_deref();
        host.is_some_and(|host| is_same(host, key.host()))
    };
    let id = |invite: &Invite| invite.id.clone();
    Ok(Left {
        same_host: keys.iter().filter(is_other).map(other).collect(),
        open_invite: invites.iter().find(is_maker).map(id),
        host_invites: invites.iter().filter(names_host).map(id).collect(),
        made: offspring::of(store, &key.into()).await?,
        is_whole,
    })
}

/// Logs a change of a key with its author, and applies it here at once. Other coordinators reload keys by themselves, as does
/// this one if it cannot read them now.
pub(super) async fn changed(server: &AppState, verb: &str, key: &str, by: &str) {
    tracing::info!("the key {key} was {verb} by {by}");
    if let Err(error) = auth::watch::load(&server.auth, server.services.store.as_ref()).await {
        tracing::debug!("could not reload the keys immediately: {error}");
    }
}

/// Records a change with an unknown outcome, because the store did not reply in time.
pub(super) fn unsure(
    server: &AppState,
    verb: &str,
    key: Option<&str>,
    by: &str,
    refusal: &Refusal,
) {
    if refusal
        .details
        .get("applied")
        .is_some_and(|applied| applied == "unknown")
    {
        let entry = Entry::new(Event::KeyChanged).verb(verb).under(key);
        let why = format!("by {by}, with an unknown outcome");
        server.services.audit.note(entry.because(why));
    }
}

fn shown(key: Key, now: Timestamp) -> ListedKey {
    let state = match Validity::of(key.is_valid(now), key.revoked_at.is_some()) {
        Validity::Valid if key.awaits_host => Validity::Unfinished,
        state => state,
    };
    let host = key.host().to_owned();
    let Key {
        id,
        name,
        scope,
        agents,
        created_at,
        expires_at,
        revoked_at,
        made_by,
        ..
    } = key;
    ListedKey {
        id,
        name,
        host,
        scope,
        agents,
        state,
        created_at,
        expires_at,
        revoked_at,
        made_by,
        last_used_at: None,
    }
}
