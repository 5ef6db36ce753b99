//! The host of a key: unique among keys, and kept by a host that joins again only if it proves its identity.

use std::collections::HashSet;

use c3po_shared::host;
use c3po_shared::ids::AgentId;
use c3po_shared::join::{Fingerprint, JoinRequest};
use c3po_shared::proof::ProofOf;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::vocabulary::Scope;

use super::secret;
use crate::clock;
use crate::store::{AGENTS_STEP, Agent, Invite, Key, Store};

/// How many names are tried for a host whose name others have: each costs as much as all before it.
const NAMES_TRIED: usize = 20;

/// Returns a host name that no key has, not even an ended one, no agent that was made with a key, no reservation of such an
/// agent's name, and no open invite, so that no host inherits another's messages. Its person's name is neither that of another
/// host's agent, in any spelling, nor reserved for another host. The first `before` such names are skipped.
pub(super) async fn free_host(
    store: &dyn Store,
    name: &str,
    keys: &[Key],
    mut before: usize,
) -> Result<String, Refusal> {
    let (known, hosts) = known_agents(store).await?;
    let mut taken = invited(store, keys).await?;
    taken.extend(hosts);
    taken.extend(keys.iter().map(|key| key.host().to_owned()));
    for _ in 0..NAMES_TRIED + before {
        let host = host::unique(name, taken.iter().map(String::as_str));
        if is_free(store, &known, &host, &host).await? {
            if before == 0 {
                return Ok(host);
            }
            before -= 1;
        }
        taken.push(host);
    }
    let error = format!(
        "other hosts have agents with the names of the persons of {name} and the hosts after it"
    );
    Err(Refusal::new(ErrorCode::Conflict, error).suggest("Choose another name for the host."))
}

/// Returns the hosts that open invites name; one that was made with a key of these that has ended is not open.
pub(super) async fn invited(store: &dyn Store, keys: &[Key]) -> Result<Vec<String>, Refusal> {
    let (invites, now) = (store.invites().await?, clock::now());
    let vouches = |hash: &String| {
        keys.iter()
            .any(|key| key.hash == *hash && key.is_valid(now))
    };
    let is_open =
        |invite: &Invite| invite.expires_at > now && invite.key_hash.as_ref().is_none_or(vouches);
    let open = invites.into_iter().filter(is_open);
    Ok(open.filter_map(|invite| invite.host).collect())
}

/// Returns whether the name of the host's person is free for it, also under its former name. `known` are the agents with such
/// names.
pub(super) async fn is_free(
    store: &dyn Store,
    known: &[Agent],
    host: &str,
    before: &str,
) -> Result<bool, Refusal> {
    let person = AgentId::of_person(host);
    let mut alike = known.iter().filter(|agent| agent.id.looks_like(&person));
    let is_own = |of: &String| of == host || of == before;
    // The agents were read in several steps, which may miss a name that is made and removed all the time.
    let of = store.holder(&person).await?.map(|holder| holder.host);
    Ok(
        alike.all(|agent| agent.id == person && agent.host.as_ref().is_none_or(is_own))
            && of.as_ref().is_none_or(is_own),
    )
}

/// Refuses a given name for a host, which had the other one before, if the name reads like that of a host with a key, or if
/// another host has the name of its person.
pub(crate) async fn check_free(store: &dyn Store, host: &str, before: &str) -> Result<(), Refusal> {
    let keys = store.keys().await?;
    // A former name is exact: messages name their host by it.
    let mut alike = keys
        .iter()
        .filter(|key| !key.holds_a_former_name())
        .map(Key::host)
        .filter(|other| *other != host && *other != before && host::is_same(other, host));
    if let Some(other) = alike.next() {
        let error = format!("the host {other} has, or had, a key, and its name reads like {host}");
        return Err(Refusal::new(ErrorCode::Conflict, error).suggest(format!(
            "Choose another name for the host, or name it {other}."
        )));
    }
    let (known, _) = known_agents(store).await?;
    if is_free(store, &known, host, before).await? {
        return Ok(());
    }
    let person = AgentId::of_person(host);
    let error = format!(
        "another host has an agent {person}, or one that looks like it: the name of the person of {host}"
    );
    Err(Refusal::new(ErrorCode::Conflict, error).suggest(format!(
        "Free the name with `c3po-coordinator agents rm {person}`, or choose another name for the host."
    )))
}

/// Returns the agents whose names look like those of hosts' persons, and the hosts of agents that were made with keys, which
/// may be deleted by now, and of reservations of such names.
pub(super) async fn known_agents(
    store: &dyn Store,
) -> Result<(Vec<Agent>, HashSet<String>), Refusal> {
    let (mut found, mut hosts) = (Vec::new(), HashSet::new());
    let mut after = None;
    loop {
        let page = store.agents(after.as_ref(), AGENTS_STEP).await?;
        after = page.last().map(|agent| agent.id.clone());
        let is_last = page.len() < AGENTS_STEP;
        let of_keys = page.iter().filter(|agent| secret::is_id(&agent.made_by));
        hosts.extend(of_keys.filter_map(|agent| agent.host.clone()));
        found.extend(
            page.into_iter()
                .filter(|agent| agent.id.is_person_of_a_host()),
        );
        if is_last {
            break;
        }
    }
    // Afterwards: the name of an agent that was deleted meanwhile is reserved by now.
    hosts.extend(store.former_hosts().await?);
    Ok((found, hosts))
}

/// Returns the valid key of an agent's or an administrator's host that the joining client has, if it proves that to the
/// coordinator with this certificate.
pub(super) fn proven<'a>(
    request: &JoinRequest,
    keys: &'a [Key],
    own: Option<Fingerprint>,
) -> Option<&'a Key> {
    let (proof, now) = (request.proof.as_deref()?, clock::now());
    let expected = |key: &Key| ProofOf::Host.with_hash(&key.hash, &request.code, own);
    let speaks = |key: &Key| matches!(key.scope, Scope::Agent | Scope::Admin);
    keys.iter()
        .find(|key| key.is_valid(now) && speaks(key) && expected(key).as_deref() == Some(proof))
}

#[cfg(test)]
mod tests {
    use c3po_shared::limits::KEYS_MAX;
    use c3po_shared::vocabulary::Scope;
    use tempfile::TempDir;

    use super::*;
    use crate::auth::Principal;
    use crate::auth::issue::{NewKey, draft, settle_given};
    use crate::auth::renames::hold_host;
    use crate::auth::settling::name_host;
    use crate::config::Fleet;
    use crate::store::sqlite::SqliteStore;
    use crate::store::{KeyStore, Quota};

    async fn store() -> (SqliteStore, TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c3po.db");
        let store = SqliteStore::open(&path, &Fleet::default()).await;
        (store.expect("a store"), folder)
    }

    #[tokio::test]
    async fn a_name_to_which_a_host_is_moved_is_not_free() {
        let (store, _folder) = store().await;
        let by = Principal::local();
        let held = hold_host(&store, "attic", &by, None).await.expect("held");
        let free = async || {
            let keys = store.keys().await.expect("keys");
            free_host(&store, "attic", &keys, 0).await.expect("a name")
        };
        assert_eq!(free().await, "attic-2");
        store.forget_key(&held).await.expect("deleted");
        assert_eq!(free().await, "attic");
    }

    /// Stores a new key of the host `nas`.
    async fn key_of_nas(store: &SqliteStore) -> Key {
        let new = NewKey {
            name: "nas".into(),
            host: Some("nas".into()),
            scope: Scope::Agent,
            agents: vec!["*".into()],
            expires_in: None,
        };
        let (key, _) = draft(new, "test").expect("a key");
        assert!(
            store
                .put_key(&key, None, KEYS_MAX, None)
                .await
                .expect("stored")
        );
        key
    }

    #[tokio::test]
    async fn a_new_key_is_not_of_a_host_whose_person_became_another_hosts() {
        let (store, _folder) = store().await;
        let moved = key_of_nas(&store).await;
        let quota = Quota::default();
        let person = AgentId::of_person("nas");
        let made = store.introduce(&person, Some("laptop"), &quota).await;
        made.expect("an agent of another host");
        let settled = name_host(&store, moved).await.expect("settled");
        assert_eq!(settled.host(), "nas-2");
        let given = key_of_nas(&store).await;
        let id = given.id.clone();
        let refused = settle_given(&store, given, None).await;
        assert_eq!(
            refused.map_err(|error| error.code).err(),
            Some(ErrorCode::Conflict)
        );
        let keys = store.keys().await.expect("keys");
        assert!(!keys.iter().any(|key| key.id == id), "it is withdrawn");
        // Another key of a host that has one already is not checked.
        let (_first, further) = (key_of_nas(&store).await, key_of_nas(&store).await);
        assert!(settle_given(&store, further, None).await.is_ok());
    }

    #[tokio::test]
    async fn a_key_that_another_one_proved_does_not_outlive_its_revocation_or_rotation() {
        let (store, _folder) = store().await;
        let (proven, stays) = (key_of_nas(&store).await, key_of_nas(&store).await);
        assert!(settle_given(&store, stays, Some(&proven)).await.is_ok());
        let rotated = Key {
            hash: secret::hash("another secret"),
            revision: proven.revision + 1,
            ..proven.clone()
        };
        let revoked = Key {
            revoked_at: Some(clock::now()),
            revision: rotated.revision + 1,
            ..proven.clone()
        };
        for changed in [rotated, revoked] {
            let goes = key_of_nas(&store).await;
            let put = store.put_key(&changed, None, KEYS_MAX, None).await;
            assert!(put.expect("stored"));
            let id = goes.id.clone();
            assert!(settle_given(&store, goes, Some(&proven)).await.is_err());
            let keys = store.keys().await.expect("keys");
            assert!(!keys.iter().any(|key| key.id == id), "it is withdrawn");
        }
    }

    #[tokio::test]
    async fn a_host_whose_keys_were_deleted_keeps_its_name_while_it_has_agents_or_their_names() {
        let (store, _folder) = store().await;
        let key = key_of_nas(&store).await;
        let of_key = Quota {
            key: key.id.clone(),
            is_of_key: true,
            ..Quota::default()
        };
        let bank: AgentId = "bank".parse().expect("a name");
        let made = store.introduce(&bank, Some("nas"), &of_key).await;
        made.expect("an agent");
        // One that was made without keys belongs to the host that joins under its name.
        let open: AgentId = "open".parse().expect("a name");
        let quota = Quota::default();
        let made = store.introduce(&open, Some("attic"), &quota).await;
        made.expect("an agent");
        store.forget_key(&key).await.expect("deleted");
        let free = async |name| free_host(&store, name, &[], 0).await.expect("a name");
        let check = async || {
            assert_eq!(free("nas").await, "nas-2");
            assert_eq!(free("NAS").await, "NAS-2");
            assert_eq!(free("attic").await, "attic");
            let settled = name_host(&store, key_of_nas(&store).await).await;
            let settled = settled.expect("settled");
            assert_eq!(settled.host(), "nas-2");
            store.forget_key(&settled).await.expect("deleted");
            // A name that an administrator gives is the host's own.
            assert!(check_free(&store, "nas", "nas").await.is_ok());
        };
        check().await;
        let remove = async |frees| store.remove(&bank, None, frees, None).await;
        remove(false).await.expect("removed");
        assert_eq!(store.agent(&bank).await.expect("read"), None);
        check().await;
        remove(true).await.expect("freed");
        assert_eq!(free("nas").await, "nas");
    }

    #[tokio::test]
    async fn a_host_that_moves_to_another_name_gets_one_whose_person_is_free() {
        let (store, _folder) = store().await;
        let person = AgentId::of_person("nas-2");
        let quota = Quota::default();
        let made = store.introduce(&person, Some("laptop"), &quota).await;
        made.expect("an agent of another host");
        let mut keys = Vec::new();
        for _ in 0..2 {
            keys.push(key_of_nas(&store).await);
        }
        let mut hosts = Vec::new();
        for key in keys {
            let settled = name_host(&store, key).await.expect("settled");
            hosts.push(settled.host().to_owned());
        }
        assert_ne!(hosts[0], hosts[1]);
        assert!(!hosts.contains(&"nas-2".to_owned()), "{hosts:?}");
    }
}
