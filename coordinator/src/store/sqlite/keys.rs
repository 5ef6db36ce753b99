//! Keys and invites in SQLite.

use std::collections::HashMap;

use async_trait::async_trait;
use c3po_shared::audit::Entry;
use c3po_shared::time::Timestamp;
use rusqlite::OptionalExtension;

use super::SqliteStore;
use super::agents::before;
use super::credentials::{CodeRow, CredentialRow, HOSTS};
use super::group::Work;
use super::rows::{json, stamp};
use crate::store::{
    FORMER_LIFE, Invite, Key, KeyStore, Result, StoreError, give_hosts, read_invites, read_key,
};

#[async_trait]
impl KeyStore for SqliteStore {
    async fn keys(&self) -> Result<Vec<Key>> {
        let records = self.reader.run(|work| HOSTS.all(work)).await?;
        Ok(give_hosts(
            records
                .iter()
                .filter_map(|record| read_key(record))
                .collect(),
        ))
    }

    async fn key(&self, id: &str) -> Result<Option<Key>> {
        let wanted = id.to_owned();
        let record = self
            .reader
            .run(move |work| HOSTS.one(work, &wanted))
            .await?;
        let key = record.and_then(|record| read_key(&record));
        self.with_host(key).await
    }

    async fn key_changes(&self) -> Result<u64> {
        self.reader.run(|work| HOSTS.changes(work)).await
    }

    async fn put_key(
        &self,
        key: &Key,
        made_with: Option<&Key>,
        most: usize,
        entry: Option<&Entry>,
    ) -> Result<bool> {
        let (row, made_with) = (row(key)?, made_with.map(row).transpose()?);
        let put = move |work: &mut Work<'_>| HOSTS.put(work, &row, made_with.as_ref(), most);
        self.logged(entry, |is_put| *is_put, put).await
    }

    async fn revoke_key(
        &self,
        id: &str,
        at: Timestamp,
        made_with: Option<&Key>,
        entry: Option<&Entry>,
    ) -> Result<bool> {
        let (id, at, made_with) = (id.to_owned(), json(&at)?, made_with.map(row).transpose()?);
        let revoke = move |work: &mut Work<'_>| HOSTS.revoke(work, &id, &at, made_with.as_ref());
        self.logged(entry, |is_revoked| *is_revoked, revoke).await
    }

    async fn former_hosts(&self) -> Result<Vec<String>> {
        self.reader.run(former_hosts).await
    }

    async fn forget_key(&self, key: &Key) -> Result<()> {
        let row = row(key)?;
        self.writer.run(move |work| HOSTS.forget(work, &row)).await
    }

    async fn note_uses(&self, uses: &[(String, Timestamp)]) -> Result<()> {
        let noted: HashMap<String, u64> = uses
            .iter()
            .map(|(id, at)| (id.clone(), at.millis()))
            .collect();
        self.writer.run(move |work| note_uses(work, &noted)).await
    }

    async fn uses(&self) -> Result<Vec<(String, Timestamp)>> {
        self.reader.run(uses).await
    }

    async fn put_invite(&self, invite: &Invite, entry: Option<&Entry>) -> Result<()> {
        let code = CodeRow {
            hash: invite.hash.clone(),
            uses: invite.uses,
            expires_at: stamp(invite.expires_at),
            record: json(invite)?,
        };
        let put = move |work: &mut Work<'_>| HOSTS.put_code(work, &code, usize::MAX);
        self.logged(entry, |is_put| *is_put, put).await.map(drop)
    }

    async fn invite(&self, hash: &str) -> Result<Option<Invite>> {
        let hash = hash.to_owned();
        kept(self.reader.run(move |work| HOSTS.code(work, &hash)).await?)
    }

    async fn invites(&self) -> Result<Vec<Invite>> {
        let codes = self.reader.run(|work| HOSTS.codes(work)).await?;
        Ok(read_invites(&codes))
    }

    async fn forget_invite(&self, hash: &str, entry: Option<&Entry>) -> Result<Option<Invite>> {
        let hash = hash.to_owned();
        let forget = move |work: &mut Work<'_>| HOSTS.forget_code(work, &hash);
        kept(self.logged(entry, Option::is_some, forget).await?)
    }

    async fn redeem(
        &self,
        hash: &str,
        key: &Key,
        made_with: Option<&Key>,
        most: usize,
        entry: Option<&Entry>,
    ) -> Result<bool> {
        let (hash, key, made_with) = (hash.to_owned(), row(key)?, made_with.map(row).transpose()?);
        let redeem =
            move |work: &mut Work<'_>| HOSTS.redeem(work, &hash, &key, made_with.as_ref(), most);
        self.logged(entry, |is_redeemed| *is_redeemed, redeem).await
    }
}

fn row(key: &Key) -> Result<CredentialRow> {
    CredentialRow::of(&key.id, key.revision, key)
}

fn kept(code: Option<(u32, String)>) -> Result<Option<Invite>, StoreError> {
    code.map(|(uses, record)| Invite::kept(uses, &record))
        .transpose()
}

/// Returns the hosts for which names of agents stay reserved that were made with keys, whose ids have eight digits.
fn former_hosts(work: &mut Work<'_>) -> Result<Vec<String>> {
    let sql = "SELECT DISTINCT host FROM former
        WHERE at > ? AND length(made_by) = 8 AND made_by NOT GLOB '*[^0-9a-f]*'";
    let mut statement = work.connection.prepare_cached(sql)?;
    let hosts = statement.query_map([before(work, FORMER_LIFE)], |row| row.get(0))?;
    Ok(hosts.collect::<Result<_, _>>()?)
}

/// Records the uses as a JSON object in the row with an empty id. The write changes no key and costs one commit a minute.
fn note_uses(work: &mut Work<'_>, noted: &HashMap<String, u64>) -> Result<()> {
    let sql = "INSERT INTO keys (id, revision, record) VALUES ('', 0, ?)
        ON CONFLICT (id) DO UPDATE SET record = json_patch(iif(record = '', '{}', record), excluded.record)";
    work.connection
        .prepare_cached(sql)?
        .execute([json(noted)?])?;
    Ok(())
}

fn uses(work: &mut Work<'_>) -> Result<Vec<(String, Timestamp)>> {
    let sql = "SELECT record FROM keys WHERE id = '' AND record <> ''";
    let kept: Option<String> = work
        .connection
        .prepare_cached(sql)?
        .query_row([], |row| row.get(0))
        .optional()?;
    let kept: HashMap<String, u64> = kept
        .and_then(|kept| serde_json::from_str(&kept).ok())
        .unwrap_or_default();
    Ok(kept
        .into_iter()
        .map(|(id, at)| (id, Timestamp::from_millis(at)))
        .collect())
}

#[cfg(test)]
mod tests {
    use c3po_shared::vocabulary::Scope;
    use rusqlite::Connection;

    use super::*;
    use crate::config::Fleet;
    use crate::store::Store;

    #[tokio::test]
    async fn a_record_that_cannot_be_read_is_in_no_other_keys_way() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c3po.db");
        let store = SqliteStore::open(&path, &Fleet::default())
            .await
            .expect("a store");
        let key = Key {
            id: "00000001".into(),
            hash: "0".repeat(64),
            name: "nas".into(),
            host: Some("nas".into()),
            scope: Scope::Agent,
            agents: vec!["*".into()],
            created_at: Timestamp::now(),
            expires_at: None,
            revoked_at: None,
            made_by: "local".into(),
            awaits_host: false,
            revision: 1,
        };
        assert!(
            store
                .put_key(&key, None, 10, None)
                .await
                .expect("it is kept")
        );
        let other = Connection::open(&path).expect("the same file");
        other
            .execute("INSERT INTO keys VALUES ('00000002', 1, '{}')", [])
            .expect("a row");
        assert_eq!(store.keys().await.expect("readable"), [key]);
        store.close().await;
    }
}
