//! Which host a key stands for: no two have the same by chance, and one that joins again keeps its own only where it proves it.

use c3po_shared::host;
use c3po_shared::join::{self, JoinRequest};
use c3po_shared::limits::KEYS_MAX;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::time::Timestamp;

use crate::store::{Key, Store};

/// How often a key that was just kept is given another host, while others race for the same name.
const HOST_TRIES: usize = 100;

/// Returns the name of a host that no key stands for, one that has ended included: nobody inherits the mail of its agents.
pub(super) fn free_host(name: &str, keys: &[Key]) -> String {
    host::unique(name, keys.iter().map(Key::host))
}

/// Gives a key that was just kept another host if another key has the same by now. Returns it as it is kept.
///
/// Whoever sees another key with its host moves on, for the other one may have looked before and be content. Those who move at
/// the same time go to different names, by the order of their ids.
pub(super) async fn settle_host(store: &dyn Store, mut key: Key) -> Result<Key, Refusal> {
    for _ in 0..HOST_TRIES {
        let mut others = store.keys().await?;
        others.retain(|other| other.id != key.id);
        let same: Vec<&Key> = others.iter().filter(|other| other.host().eq_ignore_ascii_case(key.host())).collect();
        if same.is_empty() {
            return Ok(key);
        }
        let rank = same.iter().filter(|other| other.id < key.id).count();
        let host = Some(free_host_of(&key.name, &others, rank));
        key = Key { host, revision: key.revision + 1, ..key };
        store.put_key(&key, KEYS_MAX).await?;
    }
    Err(Refusal::new(ErrorCode::Conflict, "others are making keys at the same time; try again"))
}

/// Returns the free name of a host with so many free ones before it.
fn free_host_of(name: &str, keys: &[Key], before: usize) -> String {
    let mut taken: Vec<String> = keys.iter().map(|key| key.host().to_owned()).collect();
    for _ in 0..before {
        taken.push(host::unique(name, taken.iter().map(String::as_str)));
    }
    host::unique(name, taken.iter().map(String::as_str))
}

/// Returns the host whose key the one that joins has, where it proves that.
pub(super) fn proven_host(request: &JoinRequest, keys: &[Key]) -> Option<String> {
    let (proof, now) = (request.proof.as_deref()?, Timestamp::now());
    let has = |key: &&Key| key.is_valid(now) && join::proof_of(&key.hash, &request.code).as_deref() == Some(proof);
    keys.iter().find(has).map(|key| key.host().to_owned())
}
