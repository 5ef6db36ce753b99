//! The cache of credentials, keys or logins: every request reads it, and it is reloaded from the store when they change.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use c3po_shared::time::Timestamp;

use super::globs::AgentGlobs;
use super::looks::Looks;
use super::principal::Principal;
use super::secret;
use crate::store::{Key, Login};

/// A stored credential with a secret that clients present.
pub(crate) trait Credential {
    /// Its word in the log.
    const WORD: &'static str;
    /// The beginning of its secret.
    const PREFIX: &'static str;

    /// Returns its id.
    fn id(&self) -> &str;

    /// Returns the hash of its secret.
    fn hash(&self) -> &str;

    /// Returns whether it grants access at that time.
    fn is_valid(&self, now: Timestamp) -> bool;

    /// Returns whether links and requests of an earlier revision may go on.
    fn continues(&self, earlier: &Self) -> bool;

    /// Returns its principal; `None` if its record is malformed.
    fn principal(&self) -> Option<Principal>;
}

impl Credential for Key {
    const WORD: &'static str = "key";
    const PREFIX: &'static str = secret::KEY_PREFIX;

    fn id(&self) -> &str {
        &self.id
    }

    fn hash(&self) -> &str {
        &self.hash
    }

    fn is_valid(&self, now: Timestamp) -> bool {
        !self.awaits_host && self.is_valid(now)
    }

    fn continues(&self, earlier: &Self) -> bool {
        self == earlier
    }

    fn principal(&self) -> Option<Principal> {
        let agents = AgentGlobs::new(self.agents.clone()).ok()?;
        Some(Principal::key(
            self.id.clone(),
            self.revision,
            self.scope,
            agents,
            self.host().to_owned(),
        ))
    }
}

impl Credential for Login {
    const WORD: &'static str = "login";
    const PREFIX: &'static str = secret::LOGIN_PREFIX;

    fn id(&self) -> &str {
        &self.id
    }

    fn hash(&self) -> &str {
        &self.hash
    }

    fn is_valid(&self, now: Timestamp) -> bool {
        self.is_valid(now)
    }

    fn continues(&self, earlier: &Self) -> bool {
        // A login that is used gets a later expiry, which ends nothing.
        let Self {
            expires_at,
            revision,
            ..
        } = earlier.clone();
        Self {
            expires_at,
            revision,
            ..self.clone()
        } == *earlier
    }

    fn principal(&self) -> Option<Principal> {
        Some(Principal::login(&self.id, &self.name, self.scope))
    }
}

/// The valid credentials of one kind.
#[derive(Debug)]
pub(crate) struct Keyring<C> {
    /// `None` until they were loaded for the first time.
    known: RwLock<Option<Known<C>>>,
    /// How many loads were started.
    readings: AtomicU64,
    pub(super) looks: Arc<Looks>,
}

impl<C> Default for Keyring<C> {
    fn default() -> Self {
        Self {
            known: RwLock::default(),
            readings: AtomicU64::default(),
            looks: Arc::default(),
        }
    }
}

/// The number of a load. A later start has a larger number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reading(u64);

/// The result of a lookup.
#[derive(Debug)]
pub(crate) enum Found {
    /// A valid credential, with its principal.
    Valid(Arc<Principal>),
    /// Not a valid credential.
    Nothing,
    /// Unknown, because the credentials are not loaded yet.
    NotRead,
}

#[derive(Debug)]
struct Known<C> {
    reading: Reading,
    /// The change counter of the store before that load.
    changes: u64,
    held: HashMap<String, Cached<C>>,
}

#[derive(Debug)]
struct Cached<C> {
    credential: C,
    hash: blake3::Hash,
    principal: Arc<Principal>,
}

impl<C: Credential> Keyring<C> {
    /// Returns the number of a load that starts now.
    pub(crate) fn begin(&self) -> Reading {
        Reading(self.readings.fetch_add(1, Ordering::SeqCst))
    }

    /// Replaces the cached credentials. Links and requests of ended or changed ones are closed. A load that started earlier
    /// than the present one changes nothing, because its credentials are older.
    pub(crate) fn replace(
        &self,
        reading: Reading,
        changes: u64,
        credentials: Vec<C>,
        now: Timestamp,
    ) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_some_and(|known| known.reading > reading) {
            return;
        }
        let mut before = known.take().map(|known| known.held).unwrap_or_default();
        let mut held = HashMap::new();
        for credential in credentials.into_iter().filter(|one| one.is_valid(now)) {
            let kept = before.remove(credential.id());
            let next = match kept {
                Some(kept) if credential.continues(&kept.credential) => {
                    Some(Cached { credential, ..kept })
                }
                changed => {
                    if let Some(changed) = changed {
                        changed.principal.end();
                    }
                    hold(credential, &self.looks)
                }
            };
            held.extend(next.map(|next| (next.credential.id().to_owned(), next)));
        }
        before.into_values().for_each(|ended| ended.principal.end());
        *known = Some(Known {
            reading,
            changes,
            held,
        });
    }

    /// Closes the links and requests of expired credentials.
    pub(crate) fn expire(&self, now: Timestamp) {
        let is_over = |held: &Cached<C>| !held.credential.is_valid(now);
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

    /// Returns the principal of the credential with that secret.
    pub(crate) fn find(&self, text: &str, now: Timestamp) -> Found {
        let is_it = |held: &&Cached<C>| {
            held.credential.is_valid(now) && secret::is_hash_of(&held.hash, text)
        };
        let found = self.of_known(|known| {
            let held = secret::id_of(C::PREFIX, text)
                .and_then(|id| known.held.get(id))
                .filter(is_it);
            held.map_or(Found::Nothing, |held| {
                held.principal.is_used(now);
                Found::Valid(Arc::clone(&held.principal))
            })
        });
        found.unwrap_or(Found::NotRead)
    }

    /// Returns the ids of the credentials that were used here after that time, each with its last use.
    pub(crate) fn used_since(&self, since: Timestamp, now: Timestamp) -> Vec<(String, Timestamp)> {
        self.of_used(now, |credential, used_at| {
            (used_at > since).then(|| (credential.id().to_owned(), used_at))
        })
    }

    /// Returns the results of a function for the credentials that were used here, with the time of each last use.
    pub(super) fn of_used<T>(
        &self,
        now: Timestamp,
        of: impl Fn(&C, Timestamp) -> Option<T>,
    ) -> Vec<T> {
        let of = |held: &Cached<C>| of(&held.credential, held.principal.last_use(now)?);
        self.of_known(|known| known.held.values().filter_map(of).collect())
            .unwrap_or_default()
    }

    /// Returns the change counter of the loaded credentials; `None` if they are not loaded.
    pub(crate) fn changes(&self) -> Option<u64> {
        self.of_known(|known| known.changes)
    }

    /// Returns whether the credentials are loaded and none is valid.
    pub(crate) fn is_empty(&self) -> bool {
        self.of_known(|known| known.held.is_empty())
            .unwrap_or_default()
    }

    fn of_known<T>(&self, look: impl FnOnce(&Known<C>) -> T) -> Option<T> {
        self.known
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map(look)
    }
}

/// Returns the cache entry of a credential; a malformed one grants no access.
fn hold<C: Credential>(credential: C, looks: &Arc<Looks>) -> Option<Cached<C>> {
    let hash = blake3::Hash::from_hex(credential.hash()).ok();
    let Some((hash, principal)) = hash.zip(credential.principal()) else {
        tracing::error!(
            "the record of the {} {} is unreadable, so it is not accepted",
            C::WORD,
            credential.id()
        );
        return None;
    };
    Some(Cached {
        credential,
        hash,
        principal: Arc::new(principal.known_by(looks)),
    })
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
            awaits_host: false,
            revision: 1,
        }
    }

    #[test]
    fn only_the_whole_text_of_a_valid_key_admits() {
        let (ring, fresh) = (
            Keyring::<Key>::default(),
            Fresh::make(secret::KEY_PREFIX).expect("random"),
        );
        let admits = |text: &str, now| matches!(ring.find(text, at(now)), Found::Valid(_));
        assert!(matches!(ring.find(&fresh.text, at(2)), Found::NotRead));
        ring.replace(ring.begin(), 1, vec![key(&fresh)], at(2));
        assert!(admits(&fresh.text, 2));
        assert!(
            !admits(&fresh.text, 100),
            "its time is over, whether or not somebody has looked"
        );
        assert!(!admits(&fresh.text[..fresh.text.len() - 1], 2));
        assert!(!admits(
            &Fresh::of(secret::KEY_PREFIX, fresh.id.clone())
                .expect("random")
                .text,
            2
        ));
    }

    #[test]
    fn a_use_is_known_by_its_time() {
        let (ring, fresh) = (
            Keyring::<Key>::default(),
            Fresh::make(secret::KEY_PREFIX).expect("random"),
        );
        ring.replace(ring.begin(), 1, vec![key(&fresh)], at(2));
        assert_eq!(ring.used_since(at(0), at(9)), []);
        ring.find("c3po_00000000_guess", at(4));
        ring.find(&fresh.text, at(5));
        assert_eq!(ring.used_since(at(0), at(9)), [(fresh.id.clone(), at(5))]);
        assert_eq!(ring.used_since(at(5), at(9)), []);
        let Found::Valid(principal) = ring.find(&fresh.text, at(6)) else {
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
        let (ring, fresh) = (
            Keyring::<Key>::default(),
            Fresh::make(secret::KEY_PREFIX).expect("random"),
        );
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
            matches!(ring.find(&fresh.text, at(3)), Found::Valid(_)) && ring.changes() == Some(1)
        );
    }

    #[test]
    fn links_and_requests_end_with_their_key() {
        let check = |change: fn(&mut Key), now: u64, ends: bool| {
            let (ring, fresh) = (
                Keyring::<Key>::default(),
                Fresh::make(secret::KEY_PREFIX).expect("random"),
            );
            let mut key = key(&fresh);
            ring.replace(ring.begin(), 1, vec![key.clone()], at(2));
            let Found::Valid(principal) = ring.find(&fresh.text, at(2)) else {
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
