//! Making, changing and revoking keys, and admitting hosts by invites.

use std::time::Duration;

use c3po_shared::join::{Fingerprint, JoinCode, JoinReply, JoinRequest, NAME_PATTERN, check_name};
use c3po_shared::limits::{
    GLOBS_MAX, INVITE_LIFE, INVITE_LIFE_MAX, INVITE_USES_MAX, INVITES_MAX, KEY_LIFE_MAX, KEYS_MAX, LABEL_MAX,
};
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Principal;
use super::globs::{self, AgentGlobs};
use super::hosts::{free_host, proven_host, settle_host};
use super::secret::{self, Fresh, NoRandomness};
use crate::store::{Invite, Key, Store};

/// How many times a change is retried after a concurrent change of the same key.
const CHANGE_TRIES: usize = 8;

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

/// The properties of a new invite.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewInvite {
    /// The agents that the keys cover.
    #[serde(default = "all_agents")]
    #[schemars(length(min = 1, max = GLOBS_MAX), inner(regex(pattern = globs::pattern())))]
    pub(crate) agents: Vec<String>,
    /// The scope of the keys.
    #[serde(default = "for_agents")]
    pub(crate) scope: Scope,
    /// How many hosts it admits.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = INVITE_USES_MAX))]
    pub(crate) uses: u32,
    /// Its lifetime in seconds; 15 minutes by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = INVITE_LIFE_MAX.as_secs()))]
    pub(crate) expires_in: Option<u64>,
    /// The lifetime of the keys in seconds; unlimited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = KEY_LIFE_MAX.as_secs()))]
    pub(crate) key_expires_in: Option<u64>,
    /// The host that it admits. That host gets this name and its agents, whatever name it sends. Such an invite has one use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LABEL_MAX), regex(pattern = NAME_PATTERN))]
    pub(crate) host: Option<String>,
}

fn for_agents() -> Scope {
    Scope::Agent
}

fn all_agents() -> Vec<String> {
    vec!["*".to_owned()]
}

fn one() -> u32 {
    1
}

impl Default for NewInvite {
    fn default() -> Self {
        Self {
            agents: all_agents(),
            scope: for_agents(),
            uses: one(),
            expires_in: None,
            key_expires_in: None,
            host: None,
        }
    }
}

impl From<NoRandomness> for Refusal {
    fn from(error: NoRandomness) -> Self {
        Self::new(ErrorCode::Internal, error.to_string())
    }
}

/// Makes a key. Returns it with its secret, which is not stored.
pub(crate) async fn create(store: &dyn Store, new: NewKey, by: &Principal) -> Result<(Key, String), Refusal> {
    let (key, text) = draft(new, by.name())?;
    for _ in 0..CHANGE_TRIES {
        let keys = store.keys().await.map_err(unchanged)?;
        vouching(&keys, by.presented())?;
        make_room(store, &keys).await?;
        let host = host_of(store, key.host.as_deref(), &key.name, &keys).await?;
        let kept = Key { host: Some(host), ..key.clone() };
        if store.put_key(&kept, KEYS_MAX).await? {
            let kept = if key.host.is_some() { kept } else { settle_host(store, kept).await? };
            return Ok((kept, text));
        }
    }
    Err(Refusal::new(ErrorCode::Conflict, "other keys are being created at the same time; try again"))
}

/// Returns the given host of a new key, or else a free one that is named after the key.
async fn host_of(store: &dyn Store, given: Option<&str>, name: &str, keys: &[Key]) -> Result<String, Refusal> {
    match given {
        Some(host) => Ok(host.to_owned()),
        None => free_host(store, name, keys).await.map_err(unchanged),
    }
}

/// Returns a new key that is not stored yet, with its secret.
fn draft(new: NewKey, by: &str) -> Result<(Key, String), Refusal> {
    let agents = checked(&new.name, &new.agents)?;
    new.host.as_deref().map_or(Ok(()), |host| check_name("host", host))?;
    let life = life("expires_in", new.expires_in, KEY_LIFE_MAX)?;
    let (fresh, now) = (Fresh::make()?, Timestamp::now());
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
        revision: 1,
    };
    Ok((key, fresh.text))
}

/// Deletes an ended key if there is no room for another key. The store enforces the limit against concurrent calls.
///
/// Errors: `CONFLICT` if all keys are valid.
async fn make_room(store: &dyn Store, keys: &[Key]) -> Result<(), Refusal> {
    match in_the_way(keys, Timestamp::now())? {
        Some(oldest) => store.forget_key(oldest).await.map_err(unchanged),
        None => Ok(()),
    }
}

/// Revokes a key and returns it. An ended key stays unchanged, and false is returned with it.
pub(crate) async fn revoke(store: &dyn Store, id: &str, by: &Principal) -> Result<(Key, bool), Refusal> {
    let now = Timestamp::now();
    change(store, id, by.presented(), |key| {
        let ends = key.is_valid(now);
        if ends {
            key.revoked_at = Some(now);
        }
        Ok(ends)
    })
    .await
}

/// Replaces the secret of a key; the old one becomes invalid. Returns the key with the new secret.
pub(crate) async fn rotate(store: &dyn Store, id: &str, by: &Principal) -> Result<(Key, String), Refusal> {
    let fresh = Fresh::of(id.to_owned())?;
    let (key, _) = change(store, id, by.presented(), |key| {
        if !key.is_valid(Timestamp::now()) {
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

/// Moves all keys of a host to another host, and returns them. Their links and requests end and reconnect under the new host.
pub(crate) async fn rename_host(store: &dyn Store, from: &str, to: &str, by: &Principal) -> Result<Vec<Key>, Refusal> {
    let keys = store.keys().await.map_err(unchanged)?;
    vouching(&keys, by.presented())?;
    let mut renamed = Vec::new();
    for id in keys.iter().filter(|key| key.host() == from).map(|key| key.id.clone()) {
        // No key is checked here: the caller's own key has another revision once it was renamed itself.
        let (key, _) = change(store, &id, None, |key| {
            key.host = Some(to.to_owned());
            Ok(true)
        })
        .await?;
        renamed.push(key);
    }
    Ok(renamed)
}

/// Applies `change` to a key, which returns whether there is something to write. Returns the key and that result.
async fn change(
    store: &dyn Store,
    id: &str,
    presented: Option<(&str, u64)>,
    change: impl Fn(&mut Key) -> Result<bool, Refusal>,
) -> Result<(Key, bool), Refusal> {
    for _ in 0..CHANGE_TRIES {
        let keys = store.keys().await.map_err(unchanged)?;
        vouching(&keys, presented)?;
        let Some(mut key) = keys.into_iter().find(|key| key.id == id) else {
            let error = format!("there is no key {}", id.chars().take(LABEL_MAX).collect::<String>());
            return Err(Refusal::new(ErrorCode::KeyNotFound, error));
        };
        if !change(&mut key)? {
            return Ok((key, false));
        }
        key.revision += 1;
        if store.put_key(&key, KEYS_MAX).await? {
            return Ok((key, true));
        }
    }
    Err(Refusal::new(ErrorCode::Conflict, format!("the key {id} is being changed by another request; try again")))
}

/// Returns the key of this id if it is still valid at this revision; `None` if no key was presented.
///
/// The request was admitted by the cached keys, which may be a second old. Durable changes must therefore be checked against
/// the store.
///
/// Errors: `UNAUTHORIZED` if the key has ended or was changed.
fn vouching<'a>(keys: &'a [Key], presented: Option<(&str, u64)>) -> Result<Option<&'a Key>, Refusal> {
    let Some((id, revision)) = presented else { return Ok(None) };
    let now = Timestamp::now();
    let key = keys.iter().find(|key| key.id == id && key.revision == revision && key.is_valid(now));
    key.map(Some).ok_or_else(super::ended)
}

/// Makes an invite in the name of `by`, with the id and revision of the key that it is made with, if any. Returns it with its
/// code.
pub(crate) async fn invite(
    store: &dyn Store,
    new: NewInvite,
    by: &str,
    key: Option<(&str, u64)>,
    fingerprint: Option<Fingerprint>,
) -> Result<(Invite, JoinCode), Refusal> {
    let agents = checked("invite", &new.agents)?;
    if !(1..=INVITE_USES_MAX).contains(&new.uses) {
        return Err(Refusal::invalid(format!("uses is {}; it must be from 1 to {INVITE_USES_MAX}", new.uses)));
    }
    match &new.host {
        Some(_) if new.uses > 1 => return Err(Refusal::invalid("host: an invite for one host has one use")),
        Some(host) => check_name("host", host)?,
        None => {}
    }
    let lasts = life("expires_in", new.expires_in, INVITE_LIFE_MAX)?.unwrap_or(INVITE_LIFE);
    life("key_expires_in", new.key_expires_in, KEY_LIFE_MAX)?;
    let keys = store.keys().await.map_err(unchanged)?;
    let key_hash = vouching(&keys, key)?.map(|key| key.hash.clone());
    if store.invites().await.map_err(unchanged)?.len() >= INVITES_MAX {
        let error = format!("the limit of {INVITES_MAX} open invites is reached");
        return Err(Refusal::new(ErrorCode::Conflict, error).suggest(
            "Revoke unneeded invites: `c3po-coordinator invites list`, then `c3po-coordinator invites revoke ID`.",
        ));
    }
    let code = secret::join_code(fingerprint)?;
    let invite = Invite {
        host: new.host,
        id: secret::id()?,
        made_by: Some(by.to_owned()),
        key_hash,
        hash: secret::hash(&code.secret()),
        agents,
        scope: new.scope,
        uses: new.uses,
        expires_at: Timestamp::now() + lasts,
        key_seconds: new.key_expires_in,
    };
    store.put_invite(&invite).await?;
    Ok((invite, code))
}

/// Returns every open invite, ordered by expiry.
pub(crate) async fn invites(store: &dyn Store) -> Result<Vec<Invite>, Refusal> {
    let (invites, keys, now) = (store.invites().await?, store.keys().await?, Timestamp::now());
    let standing = invites.into_iter().filter_map(|invite| standing(invite, &keys, now));
    let mut invites: Vec<Invite> = standing.map(|standing| standing.invite).collect();
    invites.sort_by(|a, b| (a.expires_at, &a.id).cmp(&(b.expires_at, &b.id)));
    Ok(invites)
}

/// Revokes an invite, so that its code becomes invalid. Returns the revoked invite.
///
/// Errors: `INVITE_NOT_FOUND` if no open invite has that id.
pub(crate) async fn revoke_invite(store: &dyn Store, id: &str, by: &Principal) -> Result<Invite, Refusal> {
    let keys = store.keys().await.map_err(unchanged)?;
    vouching(&keys, by.presented())?;
    let found = store.invites().await.map_err(unchanged)?.into_iter().find(|invite| invite.id == id);
    let ended = match found.and_then(|invite| standing(invite, &keys, Timestamp::now())) {
        Some(OpenInvite { invite, .. }) => store.forget_invite(&invite.hash).await?,
        None => None,
    };
    ended.ok_or_else(|| {
        let error = format!("there is no open invite {}", id.chars().take(LABEL_MAX).collect::<String>());
        Refusal::new(ErrorCode::InviteNotFound, error)
    })
}

/// Adds to an error from before any change that nothing was applied.
fn unchanged(error: impl Into<Refusal>) -> Refusal {
    error.into().detail("applied", "no")
}

/// An open invite.
pub(crate) struct OpenInvite {
    pub(crate) invite: Invite,
    /// The key that it was made with, if any.
    made_with: Option<Key>,
}

/// Returns the invite if it is open; `None` if the key that made it has ended.
fn standing(invite: Invite, keys: &[Key], now: Timestamp) -> Option<OpenInvite> {
    let made_with = match &invite.key_hash {
        None => None,
        Some(hash) => Some(keys.iter().find(|key| key.hash == *hash && key.is_valid(now))?.clone()),
    };
    Some(OpenInvite { invite, made_with })
}

/// An invite whose code was presented, with the keys at that time.
pub(crate) struct PresentedInvite {
    pub(crate) standing: OpenInvite,
    keys: Vec<Key>,
}

impl PresentedInvite {
    /// Returns whether the host's previous key is valid; `None` if this fleet does not have it.
    pub(crate) fn older_key_is_valid(&self, request: &JoinRequest) -> Option<bool> {
        let id = request.older_key.as_deref()?;
        self.keys.iter().find(|key| key.id == id).map(|key| key.is_valid(Timestamp::now()))
    }
}

/// Returns the invite for the code of a joining host without using it up. Objections to the host are found before a use is
/// spent.
///
/// Returns `None` if the code never existed, was used or has expired. The same applies if the key that made the invite has
/// ended or was changed.
pub(crate) async fn invited(store: &dyn Store, request: &JoinRequest) -> Result<Option<PresentedInvite>, Refusal> {
    request.check()?;
    let Some(invite) = store.invite(&secret::hash(request.code.trim())).await? else { return Ok(None) };
    let (keys, now) = (store.keys().await?, Timestamp::now());
    let Some(standing) = standing(invite, &keys, now) else { return Ok(None) };
    in_the_way(&keys, now)?;
    Ok(Some(PresentedInvite { standing, keys }))
}

/// Admits a host by the invite that it presented. One atomic step spends a use and stores the key. Returns the key with the
/// reply to the host; `None` if the invite was used up or revoked meanwhile.
pub(crate) async fn join(
    store: &dyn Store,
    request: &JoinRequest,
    mut presented: PresentedInvite,
) -> Result<Option<(Key, JoinReply)>, Refusal> {
    for _ in 0..CHANGE_TRIES {
        let PresentedInvite { standing: OpenInvite { invite, made_with }, keys } = presented;
        let (name, agents) = (invite.host.clone().unwrap_or_else(|| request.host.clone()), invite.agents.clone());
        let lasting = invite.host.clone().or_else(|| proven_host(request, &keys));
        let new = NewKey { name, scope: invite.scope, agents, expires_in: invite.key_seconds, host: None };
        let (key, text) = draft(new, &format!("invite {}", invite.id))?;
        let host = host_of(store, lasting.as_deref(), &key.name, &keys).await?;
        let key = Key { host: Some(host), ..key };
        make_room(store, &keys).await?;
        if store.redeem(&invite.hash, &key, made_with.as_ref(), KEYS_MAX).await? {
            let key = if lasting.is_some() { key } else { settle_host(store, key).await? };
            let (key_id, agents, host) = (key.id.clone(), key.agents.clone(), Some(key.host().to_owned()));
            let expires_at = key.expires_at.map(|end| end.to_string());
            return Ok(Some((key, JoinReply { key: text, key_id, agents, expires_at, host, older_key: None })));
        }
        // A concurrent call used or revoked the invite, or took the last room for a key.
        let Some(again) = invited(store, request).await? else { return Ok(None) };
        presented = again;
    }
    Err(Refusal::new(ErrorCode::Conflict, "other hosts are joining at the same time; try again"))
}

fn checked(name: &str, agents: &[String]) -> Result<Vec<String>, Refusal> {
    check_name("name", name)?;
    let globs = AgentGlobs::new(agents.to_vec()).map_err(|error| Refusal::invalid(format!("agents: {error}")))?;
    Ok(globs.as_slice().to_vec())
}

/// Returns the key to delete before another one can be stored: the one that ended first.
///
/// Errors: `CONFLICT` if all keys are valid.
fn in_the_way(keys: &[Key], now: Timestamp) -> Result<Option<&Key>, Refusal> {
    if keys.len() < KEYS_MAX {
        return Ok(None);
    }
    let ended = keys.iter().filter_map(|key| key.ended_at(now).map(|end| (end, key)));
    let (_, oldest) = ended.min_by_key(|(end, _)| *end).ok_or_else(|| {
        Refusal::new(ErrorCode::Conflict, format!("the limit of {KEYS_MAX} valid keys is reached"))
            .suggest("Revoke unused keys: `c3po-coordinator keys list`, then `c3po-coordinator keys revoke ID`.")
    })?;
    Ok(Some(oldest))
}

fn life(what: &str, seconds: Option<u64>, most: Duration) -> Result<Option<Duration>, Refusal> {
    match seconds.map(Duration::from_secs) {
        Some(life) if life.is_zero() || life > most => {
            let most = most.as_secs();
            Err(Refusal::invalid(format!("{what} is {} seconds; it must be from 1 to {most}", life.as_secs())))
        }
        life => Ok(life),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            revision: 1,
        };
        let mut keys: Vec<Key> = (0..KEYS_MAX).map(valid).collect();
        let place = |keys: &[Key], now| {
            in_the_way(keys, at(now)).map(|key| key.map(|key| key.id.clone())).map_err(|refusal| refusal.code)
        };
        assert_eq!(place(&keys[1..], 10), Ok(None));
        assert_eq!(place(&keys, 10), Err(ErrorCode::Conflict));
        (keys[7].revoked_at, keys[8].revoked_at, keys[9].expires_at) = (Some(at(6)), Some(at(5)), Some(at(3)));
        assert_eq!(place(&keys, 2), Ok(Some("8".to_owned())));
        assert_eq!(place(&keys, 10), Ok(Some("9".to_owned())));
    }
}
