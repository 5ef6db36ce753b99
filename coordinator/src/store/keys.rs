//! Stored keys and invites. The store never has a secret, only its hash.

use async_trait::async_trait;
use c3po_shared::audit::Entry;
use c3po_shared::host;
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::Scope;
use serde::{Deserialize, Serialize};

use super::{Result, StoreError};

/// A key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The id shown in lists and in the audit: eight hexadecimal digits.
    pub id: String,
    /// The BLAKE3 hash of its secret, 64 hexadecimal digits.
    pub hash: String,
    /// The name of its holder, usually a host's name.
    pub name: String,
    /// The host that the key authenticates; [`KeyStore::keys`] sets it for every key. It is missing from records made before
    /// keys identified hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The scope of the key.
    pub scope: Scope,
    /// The agents that it covers, as globs.
    pub agents: Vec<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// The key or invite that it was made with.
    pub made_by: String,
    /// Whether its host may still change. Until it is settled, the key grants no access, but it has the host's name before
    /// others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaits_host: bool,
    /// How many times it was written, from 1.
    pub revision: u64,
}

/// The name of keys that hold the former name of a host.
pub(crate) const FORMER_NAME: &str = "former-name";

impl Key {
    /// Returns the host that the key authenticates.
    pub fn host(&self) -> &str {
        self.host.as_deref().unwrap_or(&self.name)
    }

    /// Returns whether the key has not ended at that time. It grants access unless it awaits its host.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.ended_at(now).is_none()
    }

    /// Returns whether the key never was valid, and only holds the name of a host.
    pub fn only_holds_a_name(&self) -> bool {
        self.expires_at == Some(self.created_at)
    }

    /// Returns whether the key holds the former name of a renamed host.
    pub fn holds_a_former_name(&self) -> bool {
        self.only_holds_a_name() && self.name == FORMER_NAME
    }

    /// Returns when the key ended, if it is no longer valid at that time.
    pub fn ended_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.revoked_at
            .or(self.expires_at.filter(|end| *end <= now))
    }
}

/// Parses the record of a key. Returns `None` and logs an error if the record is malformed.
pub(super) fn read_key(record: &str) -> Option<Key> {
    // The record contains a hash, so the log gets only the position of the parse error.
    serde_json::from_str(record)
        .inspect_err(|error| {
            tracing::error!(
                "the record of a key is unreadable, so the key is not accepted: {error}"
            )
        })
        .ok()
}

/// Assigns a host to each key without one: the key's name, or `NAME-2` if an earlier key has that host.
pub(super) fn give_hosts(mut keys: Vec<Key>) -> Vec<Key> {
    keys.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    for at in 0..keys.len() {
        if keys[at].host.is_none() {
            let host = host::unique(
                &keys[at].name,
                keys.iter().filter_map(|key| key.host.as_deref()),
            );
            keys[at].host = Some(host);
        }
    }
    keys
}

/// Parses the records of invites, each with its remaining uses. Malformed records are logged and skipped.
pub(super) fn read_invites(kept: &[(u32, String)]) -> Vec<Invite> {
    let read = |(uses, record): &(u32, String)| {
        Invite::kept(*uses, record)
            .inspect_err(|error| {
                tracing::error!(
                    "the record of an invite is unreadable, so the invite is not listed: {error}"
                )
            })
            .ok()
    };
    kept.iter().filter_map(read).collect()
}

/// A permission to make keys, given to any client that presents its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invite {
    /// The id shown in lists and in the audit: eight hexadecimal digits.
    #[serde(default)]
    pub id: String,
    /// The creator: a key's id, `local`, `token` or `start`. `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<String>,
    /// The hash of the key that it was made with, if any. The invite ends when that key ends or its secret changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_hash: Option<String>,
    /// The BLAKE3 hash of the secret, 64 hexadecimal digits.
    pub hash: String,
    /// The agents that the new keys cover, as globs.
    pub agents: Vec<String>,
    /// The scope of the new keys.
    pub scope: Scope,
    /// The host that it admits, whatever name the client sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// How many keys can still be made with it.
    pub uses: u32,
    /// When it expires.
    pub expires_at: Timestamp,
    /// The lifetime of the keys in seconds; unlimited if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_seconds: Option<u64>,
}

impl Invite {
    /// Parses the record of an invite that has this many uses left.
    pub(super) fn kept(uses: u32, record: &str) -> Result<Self> {
        let invite =
            serde_json::from_str(record).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        Ok(Self { uses, ..invite })
    }
}

/// The interface for keys and invites of every store. A change that happens appends its `entry` to the log in the same step.
#[async_trait]
pub trait KeyStore: Send + Sync {
    /// Returns every key with its host, including ended keys, in no particular order. Keys with malformed records are
    /// skipped: they grant no access and do not block other keys.
    async fn keys(&self) -> Result<Vec<Key>>;

    /// Returns the key of that id, as in [`Self::keys`].
    async fn key(&self, id: &str) -> Result<Option<Key>>;

    /// Returns the key with its host, which depends on all keys if its record has none.
    async fn with_host(&self, key: Option<Key>) -> Result<Option<Key>> {
        match key {
            Some(key) if key.host.is_none() => {
                let keys = self.keys().await?;
                Ok(keys.into_iter().find(|known| known.id == key.id))
            }
            key => Ok(key),
        }
    }

    /// Returns whether other coordinators may use this store.
    fn is_shared(&self) -> bool {
        false
    }

    /// Returns a number that grows with every change of a key. The cost is one small read.
    async fn key_changes(&self) -> Result<u64>;

    /// Stores the key as its next revision. Returns false, and changes nothing, if the key was changed meanwhile, or if it is
    /// new and there are `most` keys. The same applies if `made_with`, the key with which the change is made, is given and was
    /// changed meanwhile.
    async fn put_key(
        &self,
        key: &Key,
        made_with: Option<&Key>,
        most: usize,
        entry: Option<&Entry>,
    ) -> Result<bool>;

    /// Revokes the key at that time, whatever its revision is, so that no change of it can be faster. Returns false, and
    /// changes nothing, if there is no such key or it was revoked before. The same applies if `made_with` is given and was
    /// changed meanwhile.
    async fn revoke_key(
        &self,
        id: &str,
        at: Timestamp,
        made_with: Option<&Key>,
        entry: Option<&Entry>,
    ) -> Result<bool>;

    /// Returns the hosts for which names of deleted agents stay reserved that were made with keys. Keys may be deleted before.
    async fn former_hosts(&self) -> Result<Vec<String>>;

    /// Deletes this revision of the key. A key that was changed meanwhile stays. The deletion counts in
    /// [`Self::key_changes`].
    async fn forget_key(&self, key: &Key) -> Result<()>;

    /// Records when keys were last used, in one write.
    async fn note_uses(&self, uses: &[(String, Timestamp)]) -> Result<()>;

    /// Returns the recorded times of the last uses of keys, in no particular order.
    async fn uses(&self) -> Result<Vec<(String, Timestamp)>>;

    /// Stores an invite, and deletes invites that have expired.
    async fn put_invite(&self, invite: &Invite, entry: Option<&Entry>) -> Result<()>;

    /// Returns the invite with this hash without using it up; `None` if there is none or it has ended.
    async fn invite(&self, hash: &str) -> Result<Option<Invite>>;

    /// Returns every invite that has uses left and has not expired, in no particular order.
    async fn invites(&self) -> Result<Vec<Invite>>;

    /// Deletes the invite with this hash. Returns the deleted invite; `None` if there is none or it has ended.
    async fn forget_invite(&self, hash: &str, entry: Option<&Entry>) -> Result<Option<Invite>>;

    /// Uses the invite with this hash once and stores a new key, in one atomic step. Returns false, and changes nothing, if
    /// there is no such invite, it has ended, a key has this id or there are `most` keys. The same applies if `made_with`,
    /// the key that made the invite, is given and was changed meanwhile.
    async fn redeem(
        &self,
        hash: &str,
        key: &Key,
        made_with: Option<&Key>,
        most: usize,
        entry: Option<&Entry>,
    ) -> Result<bool>;
}
