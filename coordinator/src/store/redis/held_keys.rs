//! Keys and invites in Redis: one list of each, which every coordinator reads.

use async_trait::async_trait;
use redis::Script;

use super::records;
use super::scripts::Call;
use super::{RedisStore, keys, scripts};
use crate::store::{Invite, Key, KeyStore, Result, read_invites, read_key};

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
        self.one(&scripts::INVITE_LOOK, hash).await
    }

    async fn invites(&self) -> Result<Vec<Invite>> {
        let script = Call::new(&scripts::INVITES, keys::INVITES);
        let kept: Vec<(u32, String)> = self.within(self.connection.invoke(&script)).await?;
        Ok(read_invites(&kept))
    }

    async fn forget_invite(&self, hash: &str) -> Result<Option<Invite>> {
        self.one(&scripts::INVITE_FORGET, hash).await
    }

    async fn redeem(&self, hash: &str, key: &Key, made_with: Option<&Key>) -> Result<bool> {
        let mut script = Call::about(&scripts::INVITE_REDEEM, keys::KEYS.to_owned(), &[keys::INVITES.to_owned()]);
        script.arg(hash).arg(&key.id).arg(key.revision).arg(records::write(key)?);
        match made_with {
            Some(made_with) => script.arg(&made_with.id).arg(made_with.revision),
            None => script.arg("").arg(""),
        };
        self.within(self.connection.invoke(&script)).await
    }
}

impl RedisStore {
    /// Has a script look at the invite with that hash, and do what it does. Returns it as it was before.
    async fn one(&self, script: &'static Script, hash: &str) -> Result<Option<Invite>> {
        let mut script = Call::new(script, keys::INVITES);
        script.arg(hash);
        let found: Option<(u32, String)> = self.within(self.connection.invoke(&script)).await?;
        found.map(|(uses, record)| Invite::kept(uses, &record)).transpose()
    }
}

/// Reads what stands behind the number of the revision.
fn key(kept: &str) -> Option<Key> {
    read_key(kept.split_once(' ').map_or(kept, |(_, record)| record))
}
