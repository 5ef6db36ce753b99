//! Which host a key stands for: no two have the same by chance, and one that joins again keeps its own only where it proves it.

use c3po_shared::host;
use c3po_shared::join::{self, JoinRequest};
use c3po_shared::limits::KEYS_MAX;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::time::Timestamp;

use crate::store::{Key, Store};

/// How often a key that was just kept is given another host: in each round at least one of those who race for a name has it.
const HOST_TRIES: usize = 100;

/// Returns the name of a host that no key stands for, one that has ended included: nobody inherits the mail of its agents.
pub(super) fn free_host(name: &str, keys: &[Key]) -> String {
    host::unique(name, keys.iter().map(Key::host))
}

/// Gives a key that was just kept another host if others were quicker. Returns it as it is kept.
pub(super) async fn settle_host(store: &dyn Store, mut key: Key) -> Result<Key, Refusal> {
    for _ in 0..HOST_TRIES {
        let mut others = store.keys().await?;
        others.retain(|other| other.id != key.id);
        let is_earlier = |other: &Key| (other.created_at, &other.id) < (key.created_at, &key.id);
        if !others.iter().any(|other| other.host().eq_ignore_ascii_case(key.host()) && is_earlier(other)) {
            return Ok(key);
        }
        let host = Some(free_host(&key.name, &others));
        key = Key { host, revision: key.revision + 1, ..key };
        store.put_key(&key, KEYS_MAX).await?;
    }
    Err(Refusal::new(ErrorCode::Conflict, "others are making keys at the same time; try again"))
}

/// Returns the host whose key the one that joins has, where it proves that.
pub(super) fn proven_host(request: &JoinRequest, keys: &[Key]) -> Option<String> {
    let (proof, now) = (request.proof.as_deref()?, Timestamp::now());
    let has = |key: &&Key| key.is_valid(now) && join::proof_of(&key.hash, &request.code).as_deref() == Some(proof);
    keys.iter().find(has).map(|key| key.host().to_owned())
}
