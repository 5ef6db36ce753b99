//! The last steps of a new key: until its host has a final name, it grants no access.

use std::time::Duration;

use c3po_shared::audit::Entry;
use c3po_shared::host;
use c3po_shared::limits::KEYS_MAX;
use c3po_shared::refusal::{ErrorCode, Refusal};

use super::hosts::{free_host, invited, is_free, known_agents};
use crate::clock;
use crate::store::{Key, Store, StoreError};

/// How many times a new key is moved to another host name while other coordinators race for the same name.
const HOST_TRIES: usize = 100;

/// How long a new key may await its host.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);

/// Returns a new key as it is stored until its host is settled. If its making breaks off, it expires.
pub(super) fn unsettled(key: &Key) -> Key {
    let end = key.created_at + SETTLED_WITHIN;
    Key {
        awaits_host: true,
        expires_at: Some(key.expires_at.map_or(end, |own| own.min(end))),
        ..key.clone()
    }
}

/// Settles the host of a new key that is stored as [`unsettled`]. The last step stores it as `key`, with its final host and the
/// `entry`, unless `made_with`, the key with which it is made, was changed. Returns the stored key.
pub(super) async fn settle_host(
    store: &dyn Store,
    key: Key,
    made_with: Option<&Key>,
    entry: &Entry,
) -> Result<Key, Refusal> {
    let (id, expires_at) = (key.id.clone(), key.expires_at);
    let settled = async {
        let named = name_host(store, unsettled(&key)).await?;
        let is_late = !named.is_valid(clock::now());
        let settled = Key {
            awaits_host: false,
            expires_at,
            revision: named.revision + 1,
            ..named
        };
        let put = async || {
            store
                .put_key(&settled, made_with, KEYS_MAX, Some(entry))
                .await
        };
        if is_late || !put().await? {
            return Err(changed_before(&id));
        }
        Ok(settled)
    };
    let settled = settled.await;
    if settled.is_err()
        && let Err(error) = withdraw(store, &id).await
    {
        tracing::warn!("the unfinished key {id} was not deleted: {error}");
    }
    settled
}

/// Moves a new key to another host name if another key, an agent of one or an open invite has the same name by now, or another
/// host its person's name. Returns the stored key.
///
/// The caller always moves its own key, because the owner of the other key may have finished its check earlier. Concurrent
/// moves choose different names, by the order of the key ids.
pub(super) async fn name_host(store: &dyn Store, mut key: Key) -> Result<Key, Refusal> {
    for _ in 0..HOST_TRIES {
        let mut others = store.keys().await?;
        others.retain(|other| other.id != key.id);
        let same: Vec<&Key> = others
            .iter()
            .filter(|other| host::is_same(other.host(), key.host()))
            .collect();
        let (known, hosts) = known_agents(store).await?;
        let invited = invited(store, &others).await?;
        let mut others_hosts = invited.iter().chain(&hosts);
        let is_others = others_hosts.any(|host| host::is_same(host, key.host()));
        if same.is_empty() && !is_others && is_free(store, &known, key.host(), key.host()).await? {
            return Ok(key);
        }
        let moves_before = |other: &&&Key| other.awaits_host && other.id < key.id;
        let rank = same.iter().filter(moves_before).count();
        let host = free_host(store, &key.name, &others, rank).await?;
        key = Key {
            host: Some(host),
            revision: key.revision + 1,
            ..key
        };
        if !store.put_key(&key, None, KEYS_MAX, None).await? {
            return Err(changed_before(&key.id));
        }
    }
    Err(Refusal::new(
        ErrorCode::Conflict,
        "other keys are being created at the same time; try again",
    ))
}

fn changed_before(id: &str) -> Refusal {
    let error = format!("the key {id} was changed or had ended before its host had a name");
    Refusal::new(ErrorCode::Conflict, error)
}

/// Deletes a key whose host will not be settled. A key that counts by now stays.
async fn withdraw(store: &dyn Store, id: &str) -> Result<(), StoreError> {
    match store.key(id).await? {
        Some(key) if key.awaits_host => store.forget_key(&key).await,
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use c3po_shared::audit::Event;
    use c3po_shared::vocabulary::Scope;
    use tempfile::TempDir;

    use super::*;
    use crate::auth::Principal;
    use crate::auth::issue::{NewKey, create, draft, revoke, rotate};
    use crate::auth::keyring::Keyring;
    use crate::config::Fleet;
    use crate::store::KeyStore;
    use crate::store::sqlite::SqliteStore;

    async fn store() -> (SqliteStore, TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c3po.db");
        let store = SqliteStore::open(&path, &Fleet::default()).await;
        (store.expect("a store"), folder)
    }

    /// Stores a new key with a host that is not settled yet. Returns it as it is to become.
    async fn unsettled_key(store: &SqliteStore, life: Option<u64>) -> Key {
        let new = NewKey {
            name: "nas".into(),
            host: Some("nas".into()),
            scope: Scope::Agent,
            agents: vec!["*".into()],
            expires_in: None,
        };
        let (key, _) = draft(new, "test").expect("a key");
        let ends = life.map(|millis| key.created_at + Duration::from_millis(millis));
        let stored = Key {
            expires_at: ends.or(unsettled(&key).expires_at),
            ..unsettled(&key)
        };
        let put = store.put_key(&stored, None, KEYS_MAX, None).await;
        assert!(put.expect("stored"));
        key
    }

    #[tokio::test]
    async fn a_key_counts_once_its_host_is_settled_and_is_withdrawn_if_its_maker_ended() {
        let (store, _folder) = store().await;
        let entry = Entry::new(Event::KeyChanged);
        let key = unsettled_key(&store, None).await;
        let ring = Keyring::<Key>::default();
        let is_empty = async || {
            let keys = store.keys().await.expect("keys");
            ring.replace(ring.begin(), 1, keys, clock::now());
            ring.is_empty()
        };
        assert!(is_empty().await, "it does not count yet");
        let expected = Key {
            revision: 2,
            ..key.clone()
        };
        let settled = settle_host(&store, key, None, &entry).await;
        assert_eq!(settled.expect("settled"), expected);
        let stored = store.keys().await.expect("keys");
        assert_eq!(stored, std::slice::from_ref(&expected));
        assert!(!is_empty().await);

        let (maker, key) = (expected, unsettled_key(&store, None).await);
        let ended = store.revoke_key(&maker.id, clock::now(), None, None).await;
        assert!(ended.expect("revoked"));
        let refused = settle_host(&store, key, Some(&maker), &entry).await;
        assert_eq!(
            refused.map_err(|error| error.code),
            Err(ErrorCode::Conflict)
        );
        assert_eq!(store.keys().await.expect("keys").len(), 1);
        assert!(is_empty().await);
    }

    #[tokio::test]
    async fn a_key_that_was_revoked_or_deleted_before_its_host_had_a_name_never_counts() {
        let (store, _folder) = store().await;
        let entry = Entry::new(Event::KeyChanged);
        let revoked = unsettled_key(&store, None).await;
        let local = Principal::local();
        let (_, is_news) = revoke(&store, &revoked.id, &local).await.expect("revoked");
        assert!(is_news);
        assert!(rotate(&store, &revoked.id, &local).await.is_err());
        let deleted = unsettled_key(&store, None).await;
        store.forget_key(&deleted).await.expect("deleted");
        for key in [revoked, deleted] {
            assert!(settle_host(&store, key, None, &entry).await.is_err());
        }
        assert_eq!(store.keys().await.expect("keys"), []);
    }

    #[tokio::test]
    async fn a_host_whose_join_broke_off_leaves_its_name_to_the_next() {
        let (store, _folder) = store().await;
        let broken = unsettled_key(&store, Some(0)).await;
        let entry = Entry::new(Event::KeyChanged);
        let new = NewKey {
            name: "nas".into(),
            host: None,
            scope: Scope::Agent,
            agents: vec!["*".into()],
            expires_in: None,
        };
        let made = create(&store, new, &Principal::local()).await;
        assert_eq!(made.expect("a key").0.host(), "nas");
        let late = settle_host(&store, broken, None, &entry).await;
        assert!(late.is_err());
    }
}
