//! Keys and invites in Redis: one list of each, which every coordinator reads.

use async_trait::async_trait;

use super::records::{self, corrupt};
use super::scripts::Call;
use super::{RedisStore, keys, scripts};
use crate::store::{Invite, Key, KeyStore, Result, read_key};

#[async_trait]
impl KeyStore for RedisStore {
    async fn keys(&self) -> Result<Vec<Key>> {
        let read = async {
            let kept: Vec<(String, String)> = self.connection.run(redis::cmd("HGETALL").arg(keys::KEYS)).await?;
            Ok(kept.iter().filter(|(id, _)| id != keys::CHANGES).filter_map(|(_, kept)| key(kept)).collect())
        };
        self.within(read).await
    }

    async fn key_changes(&self) -> Result<u64> {
        let mut read = redis::cmd("HGET");
        let read = self.connection.run::<Option<u64>>(read.arg(keys::KEYS).arg(keys::CHANGES));
        Ok(self.within(read).await?.unwrap_or_default())
    }

    async fn put_key(&self, key: &Key) -> Result<bool> {
        let mut script = Call::new(&scripts::KEY_PUT, keys::KEYS);
        script.arg(&key.id).arg(key.revision).arg(records::write(key)?);
        self.within(self.connection.invoke(&script)).await
    }

    async fn forget_key(&self, key: &Key) -> Result<()> {
        let mut script = Call::new(&scripts::KEY_FORGET, keys::KEYS);
        script.arg(&key.id).arg(key.revision);
        self.within(self.connection.invoke::<()>(&script)).await
    }

    async fn put_invite(&self, invite: &Invite) -> Result<()> {
        let mut script = Call::new(&scripts::INVITE_PUT, keys::INVITES);
        script.arg(&invite.hash).arg(invite.uses).arg(invite.expires_at.millis()).arg(records::write(invite)?);
        self.within(self.connection.invoke::<()>(&script)).await
    }

    async fn invite(&self, hash: &str) -> Result<Option<Invite>> {
        self.take(hash, 0).await
    }

    async fn redeem(&self, hash: &str) -> Result<Option<Invite>> {
        self.take(hash, 1).await
    }
}

impl RedisStore {
    /// Takes that many uses of an invite. Returns it as it was before.
    async fn take(&self, hash: &str, uses: u32) -> Result<Option<Invite>> {
        let mut script = Call::new(&scripts::INVITE_REDEEM, keys::INVITES);
        script.arg(hash).arg(uses);
        let found: Option<(u32, String)> = self.within(self.connection.invoke(&script)).await?;
        let Some((uses, record)) = found else { return Ok(None) };
        Ok(Some(Invite { uses, ..serde_json::from_str(&record).map_err(corrupt)? }))
    }
}

/// Reads what stands behind the number of the revision.
fn key(kept: &str) -> Option<Key> {
    read_key(kept.split_once(' ').map_or(kept, |(_, record)| record))
}
