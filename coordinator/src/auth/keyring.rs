//! The cache of keys: every request reads it, and it is reloaded from the store when keys change.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use c3po_shared::time::Timestamp;

use super::globs::AgentGlobs;
use super::principal::Principal;
use super::secret;
use crate::store::Key;

/// The valid keys.
#[derive(Debug, Default)]
pub(crate) struct Keyring {
    /// `None` until the keys were loaded for the first time.
    known: RwLock<Option<KnownKeys>>,
    /// How many loads were started.
    readings: AtomicU64,
}

/// The number of a load. A later start has a larger number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reading(u64);

/// The result of a lookup.
#[derive(Debug)]
pub(crate) enum Found {
    /// A valid key, with its principal.
    Key(Arc<Principal>),
    /// Not a valid key.
    Nothing,
    /// Unknown, because the keys are not loaded yet.
    NotRead,
}

#[derive(Debug)]
struct KnownKeys {
    reading: Reading,
    /// The change counter of the store before that load.
    changes: u64,
    held: HashMap<String, CachedKey>,
}

#[derive(Debug)]
struct CachedKey {
    key: Key,
    hash: blake3::Hash,
    principal: Arc<Principal>,
}

impl Keyring {
    /// Returns the number of a load that starts now.
    pub(crate) fn begin(&self) -> Reading {
        Reading(self.readings.fetch_add(1, Ordering::SeqCst))
    }

    /// Replaces the cached keys. Links and requests of ended or changed keys are closed. A load that started earlier than the
    /// present one changes nothing, because its keys are older.
    pub(crate) fn replace(&self, reading: Reading, changes: u64, keys: Vec<Key>, now: Timestamp) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_some_and(|known| known.reading > reading) {
            return;
        }
        let mut before = known.take().map(|known| known.held).unwrap_or_default();
        let mut held = HashMap::new();
        for key in keys.into_iter().filter(|key| key.is_valid(now)) {
            let kept = before.remove(&key.id);
            let next = match kept {
                Some(kept) if kept.key == key => Some(kept),
                changed => {
                    if let Some(changed) = changed {
                        changed.principal.end();
                    }
                    hold(key)
                }
            };
            held.extend(next.map(|next| (next.key.id.clone(), next)));
        }
        before.into_values().for_each(|ended| ended.principal.end());
        *known = Some(KnownKeys {
            reading,
            changes,
            held,
        });
    }

    /// Closes the links and requests of expired keys.
    pub(crate) fn expire(&self, now: Timestamp) {
        let is_over = |held: &CachedKey| !held.key.is_valid(now);
        if !self
            .of_known(|known| known.held.values().any(is_over))
            .unwrap_or_default()
        {
            return;
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        for (_, ended) in known
            .iter_mut()
            .flat_map(|known| known.held.extract_if(|_, held| is_over(held)))
        {
            ended.principal.end();
        }
    }

    /// Returns the principal of the key with that secret.
    pub(crate) fn find(&self, text: &str, now: Timestamp) -> Found {
        let is_it =
            |held: &&CachedKey| held.key.is_valid(now) && secret::is_hash_of(&held.hash, text);
        let found = self.of_known(|known| {
            let held = secret::id_of(text)
                .and_then(|id| known.held.get(id))
                .filter(is_it);
            held.map_or(Found::Nothing, |held| {
                held.principal.is_used(now);
                Found::Key(Arc::clone(&held.principal))
            })
        });
        found.unwrap_or(Found::NotRead)
    }

    /// Returns the keys that were used here after that time, each with its last use.
    pub(crate) fn used_since(&self, since: Timestamp, now: Timestamp) -> Vec<(String, Timestamp)> {
        let of = |held: &CachedKey| Some((held.key.id.clone(), held.principal.last_use(now)?));
        let used = self.of_known(|known| known.held.values().filter_map(of).collect::<Vec<_>>());
        used.into_iter()
            .flatten()
            .filter(|(_, at)| *at > since)
            .collect()
    }

    /// Returns the change counter of the loaded keys; `None` if they are not loaded.
    pub(crate) fn changes(&self) -> Option<u64> {
        self.of_known(|known| known.changes)
    }

    /// Returns whether the keys are loaded and none is valid.
    pub(crate) fn is_empty(&self) -> bool {
        self.of_known(|known| known.held.is_empty())
            .unwrap_or_default()
    }

    fn of_known<T>(&self, look: impl FnOnce(&KnownKeys) -> T) -> Option<T> {
        self.known
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map(look)
    }
}

/// Returns the cache entry of a key; a malformed key grants no access.
fn hold(key: Key) -> Option<CachedKey> {
    let agents = AgentGlobs::new(key.agents.clone());
    match (blake3::Hash::from_hex(&key.hash), agents) {
        (Ok(hash), Ok(agents)) => {
            let principal = Arc::new(Principal::key(
                key.id.clone(),
                key.revision,
                key.scope,
                agents,
                key.host().to_owned(),
            ));
            Some(CachedKey {
                key,
                hash,
                principal,
            })
        }
        _ => {
            tracing::error!(
                "the record of the key {} is unreadable, so the key is not accepted",
                key.id
            );
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use c3po_shared::vocabulary::Scope;

    use super::*;
    use crate::auth::secret::Fresh;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn key(fresh: &Fresh) -> Key {
        Key {
            id: fresh.id.clone(),
            hash: secret::hash(&fresh.text),
            name: "nas2".into(),
            host: None,
            scope: Scope::Agent,
            agents: vec!["*".into()],
            created_at: at(1),
            expires_at: Some(at(100)),
            revoked_at: None,
            made_by: "local".into(),
            revision: 1,
        }
    }

    #[test]
    fn only_the_whole_text_of_a_valid_key_admits() {
        let (ring, fresh) = (Keyring::default(), Fresh::make().expect("random"));
        let admits = |text: &str, now| matches!(ring.find(text, at(now)), Found::Key(_));
        assert!(matches!(ring.find(&fresh.text, at(2)), Found::NotRead));
        ring.replace(ring.begin(), 1, vec![key(&fresh)], at(2));
        assert!(admits(&fresh.text, 2));
        assert!(
            !admits(&fresh.text, 100),
            "its time is over, whether or not somebody has looked"
        );
        assert!(!admits(&fresh.text[..fresh.text.len() - 1], 2));
        assert!(!admits(
            &Fresh::of(fresh.id.clone()).expect("random").text,
            2
        ));
    }

    #[test]
    fn a_use_is_known_by_its_time() {
        let (ring, fresh) = (Keyring::default(), Fresh::make().expect("random"));
        ring.replace(ring.begin(), 1, vec![key(&fresh)], at(2));
        assert_eq!(ring.used_since(at(0), at(9)), []);
        ring.find("c3po_00000000_guess", at(4));
        ring.find(&fresh.text, at(5));
        assert_eq!(ring.used_since(at(0), at(9)), [(fresh.id.clone(), at(5))]);
        assert_eq!(ring.used_since(at(5), at(9)), []);
        let Found::Key(principal) = ring.find(&fresh.text, at(6)) else {
            panic!("it is valid")
        };
        let _link = Principal::enter(&principal).expect("there is room");
        assert_eq!(
            ring.used_since(at(8), at(9)),
            [(fresh.id, at(9))],
            "it is in use"
        );
    }

    #[test]
    fn a_reading_that_was_overtaken_brings_no_revoked_key_back() {
        let (ring, fresh) = (Keyring::default(), Fresh::make().expect("random"));
        let revoked = Key {
            revoked_at: Some(at(2)),
            revision: 2,
            ..key(&fresh)
        };
        let (slow, quick) = (ring.begin(), ring.begin());
        ring.replace(quick, 2, vec![revoked], at(3));
        ring.replace(slow, 1, vec![key(&fresh)], at(3));
        assert!(
            matches!(ring.find(&fresh.text, at(3)), Found::Nothing) && ring.changes() == Some(2)
        );
        // A later load replaces the keys even if the counter of the store restarted.
        ring.replace(ring.begin(), 1, vec![key(&fresh)], at(3));
        assert!(
            matches!(ring.find(&fresh.text, at(3)), Found::Key(_)) && ring.changes() == Some(1)
        );
    }

    #[test]
    fn links_and_requests_end_with_their_key() {
        let check = |change: fn(&mut Key), now: u64, ends: bool| {
            let (ring, fresh) = (Keyring::default(), Fresh::make().expect("random"));
            let mut key = key(&fresh);
            ring.replace(ring.begin(), 1, vec![key.clone()], at(2));
            let Found::Key(principal) = ring.find(&fresh.text, at(2)) else {
                panic!("it is valid")
            };
            change(&mut key);
            ring.replace(ring.begin(), 2, vec![key], at(now));
            ring.expire(at(now));
            assert_eq!(principal.has_ended(), ends);
        };
        check(|_| (), 3, false);
        check(|key| key.revoked_at = Some(at(3)), 3, true);
        check(|key| key.hash = secret::hash("rotated"), 3, true);
        check(|key| key.agents = vec!["web".into()], 3, true);
        check(|_| (), 100, true);
    }
}
