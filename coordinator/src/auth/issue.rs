//! Making, changing and revoking keys.

use std::time::Duration;

use c3po_shared::audit::{Entry, Event};
use c3po_shared::ids::AgentId;
use c3po_shared::join::{NAME_PATTERN, check_name};
use c3po_shared::limits::{GLOBS_MAX, KEY_LIFE_MAX, KEYS_MAX, LABEL_MAX};
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Principal;
use super::globs::{self, AgentGlobs};
use super::hosts::{check_free, free_host};
use super::secret::{self, Fresh, NoRandomness};
use super::settling::{settle_host, unsettled};
use crate::clock;
use crate::store::{Key, Store};

/// How many times a change is retried after a concurrent change of the same key.
pub(super) const CHANGE_TRIES: usize = 8;

/// The properties of a new key.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewKey {
    /// The name of its holder.
    #[schemars(length(max = LABEL_MAX), regex(pattern = NAME_PATTERN))]
    pub(crate) name: String,
    /// The scope of the key.
    #[serde(default = "for_agents")]
    pub(crate) scope: Scope,
    /// The agents that it covers, as globs; all by default.
    #[serde(default = "all_agents")]
    #[schemars(length(min = 1, max = GLOBS_MAX), inner(regex(pattern = globs::pattern())))]
    pub(crate) agents: Vec<String>,
    /// Its lifetime in seconds; unlimited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = KEY_LIFE_MAX.as_secs()))]
    pub(crate) expires_in: Option<u64>,
    /// The host that the key authenticates, even if another key has the same. By default the key's name, with a number if
    /// that is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LABEL_MAX), regex(pattern = NAME_PATTERN))]
    pub(crate) host: Option<String>,
}

impl From<NoRandomness> for Refusal {
    fn from(error: NoRandomness) -> Self {
        Self::new(ErrorCode::Internal, error.to_string())
    }
}

/// The verb of the entry for a new secret of a key.
pub(super) const ROTATED: &str = "rotated";
/// The beginning of the reason in an entry for a change.
pub(super) const BY: &str = "by ";

/// Returns the entry in the log for a change of a key or an invite.
pub(crate) fn entry(verb: &str, id: &str, by: &str) -> Entry {
    let entry = Entry::new(Event::KeyChanged).verb(verb);
    entry.under(Some(id)).because(format!("{BY}{by}"))
}

/// Returns the one that made the change of an entry, by its reason.
pub(super) fn maker_in(why: &str) -> Option<&str> {
    why.strip_prefix(BY)
}

/// Makes a key. Returns it with its secret, which is not stored.
pub(crate) async fn create(
    store: &dyn Store,
    new: NewKey,
    by: &Principal,
) -> Result<(Key, String), Refusal> {
    let (key, text) = draft(new, by.name())?;
    for _ in 0..CHANGE_TRIES {
        let keys = kept_keys(store).await?;
        let made_with = vouching(&keys, by.presented())?;
        make_room(store, &keys).await?;
        let host = host_of(store, key.host.as_deref(), &key.name, &keys).await?;
        let kept = Key {
            host: Some(host),
            ..key.clone()
        };
        let entry = entry("created", &kept.id, by.name());
        let is_given = key.host.is_some();
        let (stored, logged) = stored_first(&kept, is_given, &entry);
        let put = store.put_key(&stored, made_with, KEYS_MAX, logged);
        if put.await? {
            let settled = if is_given {
                settle_given(store, kept, None).await
            } else {
                settle_host(store, kept, made_with, &entry).await
            };
            if settled.is_err() {
                // The caller's own key may be the one that was changed.
                check_standing(store, by).await?;
            }
            return Ok((settled?, text));
        }
    }
    Err(Refusal::new(
        ErrorCode::Conflict,
        "other keys are being created at the same time; try again",
    ))
}

/// Returns a new key as it is stored first, with its entry in the log. A key whose host is not given gets the entry when that is
/// settled.
pub(super) fn stored_first<'a>(
    key: &Key,
    is_given: bool,
    entry: &'a Entry,
) -> (Key, Option<&'a Entry>) {
    if is_given {
        (key.clone(), Some(entry))
    } else {
        (unsettled(key), None)
    }
}

/// Returns every key. One whose making broke off before its host was settled is deleted, so that its name is free.
pub(super) async fn kept_keys(store: &dyn Store) -> Result<Vec<Key>, Refusal> {
    let (keys, now) = (store.keys().await.map_err(unchanged)?, clock::now());
    let is_kept = |key: &Key| !key.awaits_host || key.is_valid(now);
    let (kept, broken): (Vec<_>, Vec<_>) = keys.into_iter().partition(is_kept);
    for key in &broken {
        store.forget_key(key).await.map_err(unchanged)?;
    }
    Ok(kept)
}

/// Returns the given host of a new key, or else a free one that is named after the key.
pub(super) async fn host_of(
    store: &dyn Store,
    given: Option<&str>,
    name: &str,
    keys: &[Key],
) -> Result<String, Refusal> {
    match given {
        Some(host) => {
            let has_host = |key: &Key| key.host() == host && !key.holds_a_former_name();
            if !keys.iter().any(has_host) {
                check_free(store, host, host).await.map_err(unchanged)?;
            }
            Ok(host.to_owned())
        }
        None => free_host(store, name, keys, 0).await.map_err(unchanged),
    }
}

/// Keeps the given host of a new key. It is withdrawn if the `proven` key that the host has was revoked, rotated or moved to
/// another host meanwhile, or if the host had no other key, and another host got its person's name.
pub(super) async fn settle_given(
    store: &dyn Store,
    key: Key,
    proven: Option<&Key>,
) -> Result<Key, Refusal> {
    let (keys, now) = (store.keys().await?, clock::now());
    let stands = |known: &Key| {
        keys.iter()
            .filter(|key| {
                (&key.id, &key.hash, key.host()) == (&known.id, &known.hash, known.host())
            })
            .any(|key| key.is_valid(now))
    };
    let mut others = keys.iter().filter(|other| other.id != key.id);
    let refused = match proven.filter(|known| !stands(known)) {
        Some(ended) => {
            let error = format!(
                "the key {} of this host ended or got another secret meanwhile",
                ended.id
            );
            Refusal::new(ErrorCode::Conflict, error)
                .suggest("Join with the command that `invite --host NAME` prints.")
        }
        None if others.any(|other| other.host() == key.host() && !other.holds_a_former_name()) => {
            return Ok(key);
        }
        None => match check_free(store, key.host(), key.host()).await {
            Ok(()) => return Ok(key),
            Err(refused) => refused,
        },
    };
    let ended = Key {
        revoked_at: Some(clock::now()),
        revision: key.revision + 1,
        ..key
    };
    let entry = entry("revoked", &ended.id, &ended.made_by);
    store.put_key(&ended, None, KEYS_MAX, Some(&entry)).await?;
    store.forget_key(&ended).await?;
    Err(refused)
}

/// Returns a new key that is not stored yet, with its secret.
pub(super) fn draft(new: NewKey, by: &str) -> Result<(Key, String), Refusal> {
    let agents = checked(&new.name, &new.agents)?;
    new.host
        .as_deref()
        .map_or(Ok(()), |host| check_name("host", host))?;
    let life = life("expires_in", new.expires_in, KEY_LIFE_MAX)?;
    let (fresh, now) = (Fresh::make(secret::KEY_PREFIX)?, clock::now());
    let key = Key {
        id: fresh.id,
        hash: secret::hash(&fresh.text),
        name: new.name,
        host: new.host,
        scope: new.scope,
        agents,
        created_at: now,
        expires_at: life.map(|life| now + life),
        revoked_at: None,
        made_by: by.to_owned(),
        awaits_host: false,
        revision: 1,
    };
    Ok((key, fresh.text))
}

/// Deletes an ended key if there is no room for another key. The store enforces the limit against concurrent calls.
///
/// Errors: `CONFLICT` if all keys are valid.
pub(super) async fn make_room(store: &dyn Store, keys: &[Key]) -> Result<(), Refusal> {
    match in_the_way(keys, clock::now())? {
        Some(oldest) => store.forget_key(oldest).await.map_err(unchanged),
        None => Ok(()),
    }
}

/// Revokes a key and returns it. An ended key stays unchanged, and false is returned with it.
pub(crate) async fn revoke(
    store: &dyn Store,
    id: &str,
    by: &Principal,
) -> Result<(Key, bool), Refusal> {
    let entry = entry("revoked", id, by.name());
    for _ in 0..CHANGE_TRIES {
        let made_with = vouching_key(store, by.presented()).await?;
        let (key, now) = (stored_key(store, id).await?, clock::now());
        if !key.is_valid(now) {
            return Ok((key, false));
        }
        let revoke = store.revoke_key(id, now, made_with.as_ref(), Some(&entry));
        if revoke.await? {
            return Ok((stored_key(store, id).await.unwrap_or(key), true));
        }
        // Another call has revoked it, or has changed the key that was presented.
    }
    Err(is_being_changed(id))
}

/// Replaces the secret of a key; the old one becomes invalid. Returns the key with the new secret.
pub(crate) async fn rotate(
    store: &dyn Store,
    id: &str,
    by: &Principal,
) -> Result<(Key, String), Refusal> {
    let fresh = Fresh::of(secret::KEY_PREFIX, id.to_owned())?;
    let entry = entry(ROTATED, id, by.name());
    let (key, _) = change(store, id, by.presented(), &entry, |key| {
        if key.awaits_host {
            return Err(is_being_changed(id));
        }
        if !key.is_valid(clock::now()) {
            return Err(Refusal::new(
                ErrorCode::Conflict,
                format!("the key {id} was revoked or has expired; create a new one"),
            ));
        }
        key.hash = secret::hash(&fresh.text);
        Ok(true)
    })
    .await?;
    Ok((key, fresh.text))
}

/// Applies `change` to a key, which returns whether there is something to write, with its entry in the log. Returns the key and
/// that result.
pub(super) async fn change(
    store: &dyn Store,
    id: &str,
    presented: Option<(&str, u64)>,
    entry: &Entry,
    change: impl Fn(&mut Key) -> Result<bool, Refusal>,
) -> Result<(Key, bool), Refusal> {
    for _ in 0..CHANGE_TRIES {
        let made_with = vouching_key(store, presented).await?;
        let mut key = stored_key(store, id).await?;
        if !change(&mut key)? {
            return Ok((key, false));
        }
        key.revision += 1;
        let put = store.put_key(&key, made_with.as_ref(), KEYS_MAX, Some(entry));
        if put.await? {
            return Ok((key, true));
        }
    }
    Err(is_being_changed(id))
}

/// Returns the stored key of that id.
///
/// Errors: `KEY_NOT_FOUND`.
async fn stored_key(store: &dyn Store, id: &str) -> Result<Key, Refusal> {
    let found = store.key(id).await.map_err(unchanged)?;
    found.ok_or_else(|| {
        let id: String = id.chars().take(LABEL_MAX).collect();
        Refusal::new(ErrorCode::KeyNotFound, format!("there is no key {id}"))
    })
}

fn is_being_changed(id: &str) -> Refusal {
    let error = format!("the key {id} is being changed by another request; try again");
    Refusal::new(ErrorCode::Conflict, error)
}

/// Returns the key that was presented, as [`vouching`], with one small read.
async fn vouching_key(
    store: &dyn Store,
    presented: Option<(&str, u64)>,
) -> Result<Option<Key>, Refusal> {
    let Some((id, _)) = presented else {
        return Ok(None);
    };
    let key = store.key(id).await.map_err(unchanged)?;
    vouching(key.as_slice(), presented).map(<Option<&Key>>::cloned)
}

/// Returns the key of this id if it is still valid at this revision; `None` if no key was presented.
///
/// The request was admitted by the cached keys, which may be two seconds old. Durable changes must therefore be checked against
/// the store.
///
/// Errors: `UNAUTHORIZED` if the key has ended or was changed.
pub(super) fn vouching<'a>(
    keys: &'a [Key],
    presented: Option<(&str, u64)>,
) -> Result<Option<&'a Key>, Refusal> {
    let Some((id, revision)) = presented else {
        return Ok(None);
    };
    let now = clock::now();
    let key = keys
        .iter()
        .find(|key| key.id == id && key.revision == revision && key.is_valid(now));
    key.map(Some).ok_or_else(super::ended)
}

/// Checks in the store that the key that was presented still stands.
///
/// Errors: `UNAUTHORIZED` if it has ended or was changed.
pub(crate) async fn check_standing(store: &dyn Store, by: &Principal) -> Result<(), Refusal> {
    vouching_key(store, by.presented()).await.map(drop)
}

/// Adds to an error from before any change that nothing was applied.
pub(super) fn unchanged(error: impl Into<Refusal>) -> Refusal {
    error.into().detail("applied", "no")
}

/// Returns the key to delete before another one can be stored: the one that ended first.
///
/// Errors: `CONFLICT` if all keys are valid.
pub(super) fn in_the_way(keys: &[Key], now: Timestamp) -> Result<Option<&Key>, Refusal> {
    if keys.len() < KEYS_MAX {
        return Ok(None);
    }
    let ended = keys
        .iter()
        .filter_map(|key| key.ended_at(now).map(|end| (end, key)));
    let (_, oldest) = ended.min_by_key(|(end, _)| *end).ok_or_else(|| {
        Refusal::new(ErrorCode::Conflict, format!("the limit of {KEYS_MAX} valid keys is reached"))
            .suggest("Revoke unused keys: `c3po-coordinator keys list`, then `c3po-coordinator keys revoke ID`.")
    })?;
    Ok(Some(oldest))
}

pub(super) fn life(
    what: &str,
    seconds: Option<u64>,
    most: Duration,
) -> Result<Option<Duration>, Refusal> {
    match seconds.map(Duration::from_secs) {
        Some(life) if life.is_zero() || life > most => {
            let most = most.as_secs();
            Err(Refusal::invalid(format!(
                "{what} is {} seconds; it must be from 1 to {most}",
                life.as_secs()
            )))
        }
        life => Ok(life),
    }
}

pub(super) fn for_agents() -> Scope {
    Scope::Agent
}

pub(super) fn all_agents() -> Vec<String> {
    vec!["*".to_owned()]
}

pub(super) fn checked(name: &str, agents: &[String]) -> Result<Vec<String>, Refusal> {
    check_name("name", name)?;
    let globs = AgentGlobs::new(agents.to_vec())
        .map_err(|error| Refusal::invalid(format!("agents: {error}")))?;
    let human = AgentId::human();
    if agents.iter().any(|glob| glob == human.as_str()) {
        let error = format!("agents: no key covers {human}, only a login acts as {human}");
        return Err(Refusal::invalid(error).suggest(
            "Leave it out, and get a login for the person: `c3po-coordinator login NAME`.",
        ));
    }
    Ok(globs.as_slice().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Fleet;
    use crate::store::KeyStore;
    use crate::store::sqlite::SqliteStore;

    #[tokio::test]
    async fn a_key_makes_no_other_after_its_revocation() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c3po.db");
        let store = SqliteStore::open(&path, &Fleet::default()).await;
        let (store, local) = (store.expect("a store"), Principal::local());
        let make = async |by: &Principal| {
            let new = NewKey {
                name: "nas".into(),
                scope: Scope::Admin,
                agents: all_agents(),
                expires_in: None,
                host: None,
            };
            create(&store, new, by).await
        };
        let (maker, _) = make(&local).await.expect("a key");
        let globs = AgentGlobs::new(all_agents()).expect("globs");
        let (id, host) = (maker.id.clone(), maker.host().to_owned());
        let by = Principal::key(id, maker.revision, Scope::Admin, globs, host);
        let counting = async || {
            let keys = store.keys().await.expect("keys");
            keys.iter().filter(|key| !key.awaits_host).count()
        };
        let revoked = async {
            let (_, is_news) = revoke(&store, &maker.id, &local).await.expect("revoked");
            assert!(is_news);
            counting().await
        };
        let (left, ..) = tokio::join!(revoked, make(&by), make(&by), make(&by));
        assert_eq!(counting().await, left);
        let refused = make(&by).await.map_err(|refusal| refusal.code);
        assert_eq!(refused.err(), Some(ErrorCode::Unauthorized));
    }

    #[test]
    fn a_key_takes_the_place_of_the_one_that_ended_first() {
        let at = Timestamp::from_millis;
        let valid = |number: usize| Key {
            id: number.to_string(),
            hash: String::new(),
            name: String::new(),
            host: None,
            scope: Scope::Agent,
            agents: Vec::new(),
            created_at: at(1),
            expires_at: Some(at(1_000)),
            revoked_at: None,
            made_by: String::new(),
            awaits_host: false,
            revision: 1,
        };
        let mut keys: Vec<Key> = (0..KEYS_MAX).map(valid).collect();
        let place = |keys: &[Key], now| {
            in_the_way(keys, at(now))
                .map(|key| key.map(|key| key.id.clone()))
                .map_err(|refusal| refusal.code)
        };
        assert_eq!(place(&keys[1..], 10), Ok(None));
        assert_eq!(place(&keys, 10), Err(ErrorCode::Conflict));
        (keys[7].revoked_at, keys[8].revoked_at, keys[9].expires_at) =
            (Some(at(6)), Some(at(5)), Some(at(3)));
        assert_eq!(place(&keys, 2), Ok(Some("8".to_owned())));
        assert_eq!(place(&keys, 10), Ok(Some("9".to_owned())));
    }
}
