//! What the store keeps of keys and invites: never a secret, only the hash by which one is known again.

use async_trait::async_trait;
use c3po_shared::host;
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::Scope;
use serde::{Deserialize, Serialize};

use super::{Result, StoreError};

/// A key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// What it is called in lists and in the audit: eight hexadecimal digits.
    pub id: String,
    /// The BLAKE3 hash of its text, 64 hexadecimal digits.
    pub hash: String,
    /// Whose it is: a host's name, mostly.
    pub name: String,
    /// The host that whoever presents it is, as [`KeyStore::keys`] says it of every key. The record of one that was made before
    /// hosts were their keys has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// What it is for.
    pub scope: Scope,
    /// The agents that it covers, as globs.
    pub agents: Vec<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// Which key or invite it was made with.
    pub made_by: String,
    /// How often it was written, from 1.
    pub revision: u64,
}

impl Key {
    /// Returns the host that whoever presents it is.
    pub fn host(&self) -> &str {
        self.host.as_deref().unwrap_or(&self.name)
    }

    /// Returns whether it admits anybody at that time.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.ended_at(now).is_none()
    }

    /// Returns since when it admits nobody at that time, if it does not.
    pub fn ended_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.revoked_at.or(self.expires_at.filter(|end| *end <= now))
    }
}

/// Reads the record of a key; `None`, and a line in the log, where that cannot be read.
pub(super) fn read_key(record: &str) -> Option<Key> {
    // What stands in it is a hash: nothing of it is logged but where it breaks off.
    serde_json::from_str(record)
        .inspect_err(|error| tracing::error!("the record of a key cannot be read, and it admits nobody: {error}"))
        .ok()
}

/// Gives each key without a host one of its own: its name, or where an earlier key has that `NAME-2`.
pub(super) fn give_hosts(mut keys: Vec<Key>) -> Vec<Key> {
    keys.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    for at in 0..keys.len() {
        if keys[at].host.is_none() {
            let host = host::unique(&keys[at].name, keys.iter().filter_map(|key| key.host.as_deref()));
            keys[at].host = Some(host);
        }
    }
    keys
}

/// Reads the records of invites, each with how many uses are left; without those, and with a line in the log, that cannot be
/// read.
pub(super) fn read_invites(kept: &[(u32, String)]) -> Vec<Invite> {
    let read = |(uses, record): &(u32, String)| {
        Invite::kept(*uses, record)
            .inspect_err(|error| {
                tracing::error!("the record of an invite cannot be read, and it is not listed: {error}")
            })
            .ok()
    };
    kept.iter().filter_map(read).collect()
}

/// A promise of a key to whoever presents its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invite {
    /// What it is called in lists and in the audit: eight hexadecimal digits.
    #[serde(default)]
    pub id: String,
    /// Who made it: a key's id, `local`, `token` or `start`. `None` where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<String>,
    /// The hash of the key that it was made with, if it was made with one: it ends with that, and where that gets another text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_hash: Option<String>,
    /// The BLAKE3 hash of the secret, 64 hexadecimal digits.
    pub hash: String,
    /// Which agents the key will cover, as globs.
    pub agents: Vec<String>,
    /// What it will be for.
    pub scope: Scope,
    /// Which host it lets in, whatever that calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// How many keys may still be made of it.
    pub uses: u32,
    /// Until when.
    pub expires_at: Timestamp,
    /// How long the keys last, in seconds; for ever where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_seconds: Option<u64>,
}

impl Invite {
    /// Reads the record of one that has so many uses left.
    pub(super) fn kept(uses: u32, record: &str) -> Result<Self> {
        let invite = serde_json::from_str(record).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        Ok(Self { uses, ..invite })
    }
}

/// What any store must keep of keys.
#[async_trait]
pub trait KeyStore: Send + Sync {
    /// Returns every key with its host, those that ended as well, in no particular order. One whose record cannot be read is not among
    /// them: it admits nobody, and is in nobody's way.
    async fn keys(&self) -> Result<Vec<Key>>;

    /// Returns a number that grows with every change of a key, at the cost of one small read.
    async fn key_changes(&self) -> Result<u64>;

    /// Keeps the key as its next revision. Returns false, and changes nothing, if it was changed since, or if it is new and
    /// there are `most` keys.
    async fn put_key(&self, key: &Key, most: usize) -> Result<bool>;

    /// Forgets the key of that revision; one that was changed since stays. For those that read keys that is a change.
    async fn forget_key(&self, key: &Key) -> Result<()>;

    /// Notes when keys were last used, in one write.
    async fn note_uses(&self, uses: &[(String, Timestamp)]) -> Result<()>;

    /// Returns when keys were last used, as far as that was noted, in no particular order.
    async fn uses(&self) -> Result<Vec<(String, Timestamp)>>;

    /// Keeps an invite, and forgets those that have ended.
    async fn put_invite(&self, invite: &Invite) -> Result<()>;

    /// Returns the invite with that hash, and takes nothing of it; `None` where there is none, or it has ended.
    async fn invite(&self, hash: &str) -> Result<Option<Invite>>;

    /// Returns every invite that has uses left and has not ended, in no particular order.
    async fn invites(&self) -> Result<Vec<Invite>>;

    /// Forgets the invite with that hash. Returns it as it was; `None` where there is none, or it has ended.
    async fn forget_invite(&self, hash: &str) -> Result<Option<Invite>>;

    /// Takes one use of the invite with that hash and keeps a new key, in one atomic step: neither is done without the
    /// other. Returns false, and changes nothing, where there is no such invite, it has ended, a key has that id, there are
    /// `most` keys, or the key that the invite was made with, if it is said, was changed since.
    async fn redeem(&self, hash: &str, key: &Key, made_with: Option<&Key>, most: usize) -> Result<bool>;
}
