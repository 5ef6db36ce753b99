//! Keys and invites in Redis.

use async_trait::async_trait;
use c3po_shared::audit::Entry;
use c3po_shared::time::Timestamp;

use super::credentials::{HOSTS, HashCode, HashCredential};
use super::{RedisStore, records};
use crate::store::{Invite, Key, KeyStore, Result, give_hosts, read_invites, read_key};

#[async_trait]
impl KeyStore for RedisStore {
    async fn keys(&self) -> Result<Vec<Key>> {
        let records = HOSTS.all(self).await?;
        Ok(give_hosts(
            records
                .iter()
                .filter_map(|record| read_key(record))
                .collect(),
        ))
    }

    async fn key(&self, id: &str) -> Result<Option<Key>> {
        let record = HOSTS.one(self, id).await?;
        let key = record.and_then(|record| read_key(&record));
        self.with_host(key).await
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn key_changes(&self) -> Result<u64> {
        HOSTS.changes(self).await
    }

    async fn put_key(
        &self,
        key: &Key,
        made_with: Option<&Key>,
        most: usize,
        entry: Option<&Entry>,
    ) -> Result<bool> {
        let made_with = made_with.map(|key| (key.id.as_str(), key.revision));
        HOSTS.put(self, row(key)?, made_with, most, entry).await
    }

    async fn revoke_key(
        &self,
        id: &str,
        at: Timestamp,
        made_with: Option<&Key>,
        entry: Option<&Entry>,
    ) -> Result<bool> {
        let made_with = made_with.map(|key| (key.id.as_str(), key.revision));
        let at = records::write(&at)?;
        HOSTS.revoke(self, id, &at, made_with, entry).await
    }

    async fn former_hosts(&self) -> Result<Vec<String>> {
        let call = self.names.call("former_hosts", []);
        self.within(self.connection.invoke(&call)).await
    }

    async fn forget_key(&self, key: &Key) -> Result<()> {
        HOSTS.forget(self, &key.id, key.revision).await
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

    async fn put_invite(&self, invite: &Invite, entry: Option<&Entry>) -> Result<()> {
        let code = HashCode {
            hash: &invite.hash,
            uses: invite.uses,
            expires_at: invite.expires_at.millis(),
            record: records::write(invite)?,
        };
        let put = HOSTS.put_code(self, code, usize::MAX, entry);
        put.await.map(drop)
    }

    async fn invite(&self, hash: &str) -> Result<Option<Invite>> {
        kept(HOSTS.code(self, hash).await?)
    }

    async fn invites(&self) -> Result<Vec<Invite>> {
        Ok(read_invites(&HOSTS.codes(self).await?))
    }

    async fn forget_invite(&self, hash: &str, entry: Option<&Entry>) -> Result<Option<Invite>> {
        kept(HOSTS.forget_code(self, hash, entry).await?)
    }

    async fn redeem(
        &self,
        hash: &str,
        key: &Key,
        made_with: Option<&Key>,
        most: usize,
        entry: Option<&Entry>,
    ) -> Result<bool> {
        let made_with = made_with.map(|key| (key.id.as_str(), key.revision));
        HOSTS
            .redeem(self, hash, row(key)?, made_with, most, entry)
            .await
    }
}

impl RedisStore {
    fn key_uses(&self) -> String {
        self.names.key("key_uses")
    }
}

fn row(key: &Key) -> Result<HashCredential<'_>> {
    Ok(HashCredential {
        id: &key.id,
        revision: key.revision,
        record: records::write(key)?,
    })
}

fn kept(code: Option<(u32, String)>) -> Result<Option<Invite>> {
    code.map(|(uses, record)| Invite::kept(uses, &record))
        .transpose()
}
