//! Keys and invites in Redis: one hash each, which every coordinator reads.

use async_trait::async_trait;
use c3po_shared::time::Timestamp;

use super::key_names::CHANGES;
use super::library::Call;
use super::{RedisStore, records};
use crate::store::{Invite, Key, KeyStore, Result, give_hosts, read_invites, read_key};

#[async_trait]
impl KeyStore for RedisStore {
    async fn keys(&self) -> Result<Vec<Key>> {
        let read = async {
            let mut read = redis::cmd("HGETALL");
            let kept: Vec<(String, String)> =
                self.connection.run(read.arg(self.credentials())).await?;
            Ok(kept
                .iter()
                .filter(|(id, _)| id != CHANGES)
                .filter_map(|(_, kept)| key(kept))
                .collect())
        };
        self.within(read).await.map(give_hosts)
    }

    async fn key_changes(&self) -> Result<u64> {
        let mut read = redis::cmd("HGET");
        let read = read.arg(self.credentials()).arg(CHANGES).to_owned();
        Ok(self
            .within(self.connection.run::<Option<u64>>(&read))
            .await?
            .unwrap_or_default())
    }

    async fn put_key(&self, key: &Key, most: usize) -> Result<bool> {
        let mut call = self.names.call("put_credential", [self.credentials()]);
        call.arg(&key.id)
            .arg(key.revision)
            .arg(records::write(key)?)
            .arg(most);
        self.within(self.connection.invoke(&call)).await
    }

    async fn forget_key(&self, key: &Key) -> Result<()> {
        let mut call = self
            .names
            .call("forget_credential", [self.credentials(), self.key_uses()]);
        call.arg(&key.id).arg(key.revision);
        self.within(self.connection.invoke::<u8>(&call))
            .await
            .map(drop)
    }

    async fn note_uses(&self, uses: &[(String, Timestamp)]) -> Result<()> {
        let mut write = redis::cmd("HSET");
        write.arg(self.key_uses());
        for (id, at) in uses {
            write.arg(id).arg(at.millis());
        }
        self.within(self.connection.run::<u64>(&write))
            .await
            .map(drop)
    }

    async fn uses(&self) -> Result<Vec<(String, Timestamp)>> {
        let mut read = redis::cmd("HGETALL");
        let kept: Vec<(String, u64)> = self
            .within(self.connection.run(read.arg(self.key_uses())))
            .await?;
        Ok(kept
            .into_iter()
            .map(|(id, at)| (id, Timestamp::from_millis(at)))
            .collect())
    }

    async fn put_invite(&self, invite: &Invite) -> Result<()> {
        let mut call = self.names.call("put_invite", [self.open_invites()]);
        call.arg(&invite.hash)
            .arg(invite.uses)
            .arg(invite.expires_at.millis())
            .arg(records::write(invite)?);
        self.within(self.connection.invoke::<u8>(&call))
            .await
            .map(drop)
    }

    async fn invite(&self, hash: &str) -> Result<Option<Invite>> {
        self.one("invite", hash).await
    }

    async fn invites(&self) -> Result<Vec<Invite>> {
        let call = self.names.call("invites", [self.open_invites()]);
        let kept: Vec<(u32, String)> = self.within(self.connection.invoke(&call)).await?;
        Ok(read_invites(&kept))
    }

    async fn forget_invite(&self, hash: &str) -> Result<Option<Invite>> {
        self.one("forget_invite", hash).await
    }

    async fn redeem(
        &self,
        hash: &str,
        key: &Key,
        made_with: Option<&Key>,
        most: usize,
    ) -> Result<bool> {
        let mut call: Call = self
            .names
            .call("redeem", [self.credentials(), self.open_invites()]);
        call.arg(hash)
            .arg(&key.id)
            .arg(key.revision)
            .arg(records::write(key)?);
        match made_with {
            Some(made_with) => call.arg(&made_with.id).arg(made_with.revision),
            None => call.arg("").arg(""),
        };
        call.arg(most);
        self.within(self.connection.invoke(&call)).await
    }
}

impl RedisStore {
    fn credentials(&self) -> String {
        self.names.key("credentials")
    }

    fn key_uses(&self) -> String {
        self.names.key("key_uses")
    }

    fn open_invites(&self) -> String {
        self.names.key("invites")
    }

    /// Calls a function with the hash of an invite. Returns the invite as it was before the call.
    async fn one(&self, function: &str, hash: &str) -> Result<Option<Invite>> {
        let mut call = self.names.call(function, [self.open_invites()]);
        let found: Option<(u32, String)> =
            self.within(self.connection.invoke(call.arg(hash))).await?;
        found
            .map(|(uses, record)| Invite::kept(uses, &record))
            .transpose()
    }
}

/// Parses the record that follows the revision number.
fn key(kept: &str) -> Option<Key> {
    read_key(kept.split_once(' ').map_or(kept, |(_, record)| record))
}
