//! Inviting hosts, and making the keys of those that join.

use c3po_shared::host::check_chosen;
use c3po_shared::join::{Fingerprint, JoinCode, JoinReply, JoinRequest, NAME_PATTERN, check_name};
use c3po_shared::limits::{
    GLOBS_MAX, INVITE_LIFE, INVITE_LIFE_MAX, INVITE_USES_MAX, INVITES_MAX, KEY_LIFE_MAX, KEYS_MAX,
    LABEL_MAX,
};
use c3po_shared::proof::ProofOf;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Principal;
use super::globs::{self};
use super::hosts::proven;
use super::issue::{
    CHANGE_TRIES, NewKey, all_agents, checked, draft, entry, for_agents, host_of, in_the_way,
    kept_keys, life, make_room, settle_given, stored_first, unchanged, vouching,
};
use super::offspring::label_of_invite;
use super::secret::{self};
use super::settling::settle_host;
use crate::clock;
use crate::store::{Invite, Key, Store};

/// How many invites whose makers have ended a new invite deletes: more than one, so that they do not grow in number.
const ENDED_FORGOTTEN: usize = 20;

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
        return Err(Refusal::invalid(format!(
            "uses is {}; it must be from 1 to {INVITE_USES_MAX}",
            new.uses
        )));
    }
    match &new.host {
        Some(_) if new.uses > 1 => {
            return Err(Refusal::invalid("host: an invite for one host has one use"));
        }
        Some(host) => check_name("host", host)?,
        None => {}
    }
    let lasts = life("expires_in", new.expires_in, INVITE_LIFE_MAX)?.unwrap_or(INVITE_LIFE);
    life("key_expires_in", new.key_expires_in, KEY_LIFE_MAX)?;
    // First: the key of an invite that is read here has ended if it is missing afterwards.
    let kept = store.invites().await.map_err(unchanged)?;
    let keys = store.keys().await.map_err(unchanged)?;
    let key_hash = vouching(&keys, key)?.map(|key| key.hash.clone());
    let now = clock::now();
    let is_open = |invite: &Invite| standing(invite.clone(), &keys, now).is_some();
    let (open, ended): (Vec<_>, Vec<_>) = kept.into_iter().partition(is_open);
    for invite in ended.iter().take(ENDED_FORGOTTEN) {
        store
            .forget_invite(&invite.hash, None)
            .await
            .map_err(unchanged)?;
    }
    if open.len() >= INVITES_MAX {
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
        expires_at: clock::now() + lasts,
        key_seconds: new.key_expires_in,
    };
    let entry = entry("invited", &invite.id, by);
    store.put_invite(&invite, Some(&entry)).await?;
    Ok((invite, code))
}

/// Returns every open invite, ordered by expiry.
pub(crate) async fn invites(store: &dyn Store) -> Result<Vec<Invite>, Refusal> {
    let (invites, keys, now) = (store.invites().await?, store.keys().await?, clock::now());
    let standing = invites
        .into_iter()
        .filter_map(|invite| standing(invite, &keys, now));
    let mut invites: Vec<Invite> = standing.map(|standing| standing.invite).collect();
    invites.sort_by(|a, b| (a.expires_at, &a.id).cmp(&(b.expires_at, &b.id)));
    Ok(invites)
}

/// Revokes an invite, so that its code becomes invalid. Returns the revoked invite.
///
/// Errors: `INVITE_NOT_FOUND` if no open invite has that id.
pub(crate) async fn revoke_invite(
    store: &dyn Store,
    id: &str,
    by: &Principal,
) -> Result<Invite, Refusal> {
    let keys = store.keys().await.map_err(unchanged)?;
    vouching(&keys, by.presented())?;
    let found = store
        .invites()
        .await
        .map_err(unchanged)?
        .into_iter()
        .find(|invite| invite.id == id);
    let ended = match found.and_then(|invite| standing(invite, &keys, clock::now())) {
        Some(OpenInvite { invite, .. }) => {
            let entry = entry("revoked", id, by.name());
            store.forget_invite(&invite.hash, Some(&entry)).await?
        }
        None => None,
    };
    ended.ok_or_else(|| {
        let error = format!(
            "there is no open invite {}",
            id.chars().take(LABEL_MAX).collect::<String>()
        );
        Refusal::new(ErrorCode::InviteNotFound, error)
    })
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
        Some(hash) => Some(
            keys.iter()
                .find(|key| key.hash == *hash && key.is_valid(now))?
                .clone(),
        ),
    };
    Some(OpenInvite { invite, made_with })
}

/// An invite whose code was presented, with the keys at that time.
pub(crate) struct PresentedInvite {
    pub(crate) standing: OpenInvite,
    keys: Vec<Key>,
}

impl PresentedInvite {
    /// Returns whether the host's previous key is valid, and the proof that this fleet has it; `None` if it does not.
    pub(crate) fn older_key(
        &self,
        request: &JoinRequest,
        own: Option<Fingerprint>,
    ) -> Option<(bool, Option<String>)> {
        let id = request.older_key.as_deref()?;
        let key = self.keys.iter().find(|key| key.id == id)?;
        let proof = ProofOf::Fleet.with_hash(&key.hash, &request.code, own);
        Some((key.is_valid(clock::now()), proof))
    }
}

/// Returns the invite for the code of a joining host without using it up. Objections to the host are found before a use is
/// spent.
///
/// Returns `None` if the code never existed, was used or has expired. The same applies if the key that made the invite has
/// ended or was changed.
pub(crate) async fn invited(
    store: &dyn Store,
    request: &JoinRequest,
    own: Option<Fingerprint>,
) -> Result<Option<PresentedInvite>, Refusal> {
    request.check()?;
    let Some(invite) = store.invite(&secret::hash(request.code.trim())).await? else {
        return Ok(None);
    };
    let (keys, now) = (kept_keys(store).await?, clock::now());
    let Some(standing) = standing(invite, &keys, now) else {
        return Ok(None);
    };
    // Any name that an administrator gave stays.
    let given = standing.invite.host.is_some();
    if !given && proven(request, &keys, own).is_none_or(|key| key.host() != request.host) {
        check_chosen(&request.host)?;
    }
    in_the_way(&keys, now)?;
    Ok(Some(PresentedInvite { standing, keys }))
}

/// Admits a host by the invite that it presented. One atomic step spends a use and stores the key, which counts once its host
/// is settled. Returns the key with the
/// reply to the host; `None` if the invite was used up or revoked meanwhile.
pub(crate) async fn join(
    store: &dyn Store,
    request: &JoinRequest,
    own: Option<Fingerprint>,
    mut presented: PresentedInvite,
) -> Result<Option<(Key, JoinReply)>, Refusal> {
    for _ in 0..CHANGE_TRIES {
        let PresentedInvite {
            standing: OpenInvite { invite, made_with },
            keys,
        } = presented;
        let name = invite.host.clone().unwrap_or_else(|| request.host.clone());
        let proven = proven(request, &keys, own).filter(|_| invite.host.is_none());
        let narrowed = proven.map(|key| narrowed(&invite.agents, &key.agents));
        let proven = proven.filter(|_| !matches!(narrowed, Some(None)));
        let agents = narrowed.flatten().unwrap_or_else(|| invite.agents.clone());
        let of_proven = || proven.map(|key| key.host().to_owned());
        let lasting = invite.host.clone().or_else(of_proven);
        let new = NewKey {
            name,
            scope: invite.scope,
            agents,
            expires_in: invite.key_seconds,
            host: None,
        };
        let (key, text) = draft(new, &label_of_invite(&invite.id))?;
        let host = host_of(store, lasting.as_deref(), &key.name, &keys).await?;
        // The proven key gives no longer life than its own.
        let ends = proven.and_then(|key| key.expires_at);
        let key = Key {
            host: Some(host),
            expires_at: [key.expires_at, ends].into_iter().flatten().min(),
            ..key
        };
        make_room(store, &keys).await?;
        let (made_with, entry) = (made_with.as_ref(), entry("joined", &key.id, &key.made_by));
        let (stored, logged) = stored_first(&key, lasting.is_some(), &entry);
        let redeem = store.redeem(&invite.hash, &stored, made_with, KEYS_MAX, logged);
        if redeem.await? {
            let key = if lasting.is_some() {
                settle_given(store, key, proven).await?
            } else {
                settle_host(store, key, made_with, &entry).await?
            };
            let reply = reply_with(&key, text);
            return Ok(Some((key, reply)));
        }
        // A concurrent call used or revoked the invite, or took the last room for a key.
        let Some(again) = invited(store, request, own).await? else {
            return Ok(None);
        };
        presented = again;
    }
    Err(Refusal::new(
        ErrorCode::Conflict,
        "other hosts are joining at the same time; try again",
    ))
}

/// Returns the agents of a key that a host gets with an invite and the proof that it has another key: those that both cover,
/// because a key makes none for more names. `None` if no list has those; then the proof does not count.
fn narrowed(invited: &[String], proven: &[String]) -> Option<Vec<String>> {
    let is_all = |agents: &[String]| agents.iter().any(|glob| glob == "*");
    if is_all(proven) || invited.iter().all(|glob| proven.contains(glob)) {
        return Some(invited.to_vec());
    }
    let is_within = is_all(invited) || proven.iter().all(|glob| invited.contains(glob));
    is_within.then(|| proven.to_vec())
}

fn reply_with(key: &Key, text: String) -> JoinReply {
    JoinReply {
        key: text,
        key_id: key.id.clone(),
        agents: key.agents.clone(),
        expires_at: key.expires_at.map(|end| end.to_string()),
        host: Some(key.host().to_owned()),
        older_key: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::issue::{create, revoke};
    use crate::config::Fleet;
    use crate::store::KeyStore;
    use crate::store::sqlite::SqliteStore;

    #[tokio::test]
    async fn invites_of_a_key_that_has_ended_take_no_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c3po.db");
        let store = SqliteStore::open(&path, &Fleet::default()).await;
        let (store, local) = (store.expect("a store"), Principal::local());
        let new = NewKey {
            name: "nas".into(),
            scope: Scope::Admin,
            agents: all_agents(),
            expires_in: None,
            host: None,
        };
        let (key, _) = create(&store, new, &local).await.expect("a key");
        let make = async |by| invite(&store, NewInvite::default(), "test", by, None).await;
        for _ in 0..INVITES_MAX {
            let made = make(Some((key.id.as_str(), key.revision))).await;
            made.expect("an invite");
        }
        let refused = make(None).await.map_err(|refusal| refusal.code);
        assert_eq!(refused.err(), Some(ErrorCode::Conflict));
        revoke(&store, &key.id, &local).await.expect("revoked");
        make(None).await.expect("an invite");
        // Each further one deletes more than it adds.
        let kept = store.invites().await.expect("invites").len();
        assert_eq!(kept, INVITES_MAX - ENDED_FORGOTTEN + 1);
    }

    #[test]
    fn a_key_with_a_proof_covers_no_more_than_the_proven_one() {
        let check = |invited: &[&str], proven: &[&str], expected: Option<&[&str]>| {
            let list = |globs: &[&str]| -> Vec<String> {
                globs.iter().map(|glob| (*glob).to_owned()).collect()
            };
            let found = narrowed(&list(invited), &list(proven));
            assert_eq!(found, expected.map(list), "{invited:?} {proven:?}");
        };
        check(&["*"], &["*"], Some(&["*"]));
        check(&["web-*"], &["*"], Some(&["web-*"]));
        check(&["*"], &["web-*"], Some(&["web-*"]));
        check(&["web", "api"], &["api"], Some(&["api"]));
        check(&["api"], &["web", "api"], Some(&["api"]));
        check(&["db-*"], &["web-*"], None);
    }
}
