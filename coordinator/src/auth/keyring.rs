//! The keys, in memory: every request asks, and the store is looked at when they have changed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use c3po_shared::time::Timestamp;

use super::globs::AgentGlobs;
use super::principal::Principal;
use super::secret;
use crate::store::Key;

/// Every key that admits somebody.
#[derive(Debug, Default)]
pub(crate) struct Keyring {
    held: RwLock<HashMap<String, Held>>,
    /// Whether the store's keys were ever read.
    is_read: AtomicBool,
}

#[derive(Debug)]
struct Held {
    key: Key,
    hash: blake3::Hash,
    principal: Arc<Principal>,
}

impl Keyring {
    /// Takes the keys as they are now. What goes on under one that has ended, or was changed, is ended.
    pub(crate) fn replace(&self, keys: Vec<Key>, now: Timestamp) {
        self.is_read.store(true, Ordering::Relaxed);
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *held);
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
    }

    /// Ends what goes on under keys whose time is over.
    pub(crate) fn expire(&self, now: Timestamp) {
        let is_over = |held: &Held| !held.key.is_valid(now);
        if !self.held.read().unwrap_or_else(PoisonError::into_inner).values().any(is_over) {
            return;
        }
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        held.retain(|_, held| {
            let is_valid = held.key.is_valid(now);
            if !is_valid {
                held.principal.end();
            }
            is_valid
        });
    }

    /// Returns what the text of a key admits somebody as.
    pub(crate) fn find(&self, text: &str, now: Timestamp) -> Option<Arc<Principal>> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        let held = held.get(secret::id_of(text)?)?;
        (held.key.is_valid(now) && secret::is_hash_of(&held.hash, text)).then(|| Arc::clone(&held.principal))
    }

    /// Returns whether the keys are known by now.
    pub(crate) fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Relaxed)
    }

    /// Returns whether no key admits anybody.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// What cannot be read admits nobody.
fn hold(key: Key) -> Option<Held> {
    let agents = AgentGlobs::new(key.agents.clone());
    match (blake3::Hash::from_hex(&key.hash), agents) {
        (Ok(hash), Ok(agents)) => {
            let principal = Arc::new(Principal::key(key.id.clone(), key.scope, agents));
            Some(Held { key, hash, principal })
        }
        _ => {
            tracing::error!("the key {} cannot be read and admits nobody", key.id);
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
        ring.replace(vec![key(&fresh)], at(2));
        assert!(ring.find(&fresh.text, at(2)).is_some());
        assert!(ring.find(&fresh.text, at(100)).is_none(), "its time is over, whether or not somebody has looked");
        assert!(ring.find(&fresh.text[..fresh.text.len() - 1], at(2)).is_none());
        assert!(ring.find(&Fresh::of(fresh.id).expect("random").text, at(2)).is_none());
    }

    #[test]
    fn what_goes_on_under_a_key_ends_with_it() {
        let check = |change: fn(&mut Key), now: u64, ends: bool| {
            let (ring, fresh) = (Keyring::default(), Fresh::make().expect("random"));
            let mut key = key(&fresh);
            ring.replace(vec![key.clone()], at(2));
            let principal = ring.find(&fresh.text, at(2)).expect("it is valid");
            change(&mut key);
            ring.replace(vec![key], at(now));
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
