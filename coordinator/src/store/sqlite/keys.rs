//! Keys and invites in SQLite.

use std::collections::HashMap;

use async_trait::async_trait;
use c3po_shared::time::Timestamp;
use rusqlite::OptionalExtension;

use super::SqliteStore;
use super::rows::{count, integer, json, stamp};
use super::worker::Work;
use crate::store::{Invite, Key, KeyStore, Result, give_hosts, read_invites, read_key};

/// The condition for invites that still admit a client.
const OPEN: &str = "uses > 0 AND expires_at > ?";

#[async_trait]
impl KeyStore for SqliteStore {
    async fn keys(&self) -> Result<Vec<Key>> {
        self.reader.run(all).await.map(give_hosts)
    }

    async fn key_changes(&self) -> Result<u64> {
        let sum = |work: &mut Work<'_>| {
            let sql = "SELECT coalesce(sum(revision), 0) FROM keys";
            Ok(work
                .connection
                .prepare_cached(sql)?
                .query_row([], |row| row.get::<_, i64>(0))?)
        };
        Ok(count(self.reader.run(sum).await?) as u64)
    }

    async fn put_key(&self, key: &Key, most: usize) -> Result<bool> {
        let key = key.clone();
        self.writer.run(move |work| put(work, &key, most)).await
    }

    async fn forget_key(&self, key: &Key) -> Result<()> {
        let (id, revision) = (key.id.clone(), revision(key));
        self.writer
            .run(move |work| forget(work, &id, revision))
            .await
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

    async fn put_invite(&self, invite: &Invite) -> Result<()> {
        let invite = invite.clone();
        self.writer
            .run(move |work| invite_somebody(work, &invite))
            .await
    }

    async fn invite(&self, hash: &str) -> Result<Option<Invite>> {
        let hash = hash.to_owned();
        self.reader.run(move |work| look(work, &hash)).await
    }

    async fn invites(&self) -> Result<Vec<Invite>> {
        self.reader.run(open).await
    }

    async fn forget_invite(&self, hash: &str) -> Result<Option<Invite>> {
        let hash = hash.to_owned();
        self.writer
            .run(move |work| forget_invite(work, &hash))
            .await
    }

    async fn redeem(
        &self,
        hash: &str,
        key: &Key,
        made_with: Option<&Key>,
        most: usize,
    ) -> Result<bool> {
        let (hash, key, made_with) = (hash.to_owned(), key.clone(), made_with.cloned());
        self.writer
            .run(move |work| redeem(work, &hash, &key, made_with.as_ref(), most))
            .await
    }
}

fn all(work: &mut Work<'_>) -> Result<Vec<Key>> {
    let mut statement = work
        .connection
        .prepare_cached("SELECT record FROM keys WHERE id <> ''")?;
    let records: Vec<String> = statement
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    Ok(records
        .iter()
        .filter_map(|record| read_key(record))
        .collect())
}

fn put(work: &mut Work<'_>, key: &Key, most: usize) -> Result<bool> {
    let sql = "INSERT INTO keys (id, revision, record) SELECT ?1, ?2, ?3
        WHERE ?2 = 1 + coalesce((SELECT revision FROM keys WHERE id = ?1), 0)
            AND (?2 > 1 OR (SELECT count(*) FROM keys WHERE id <> '') < ?4)
        ON CONFLICT (id) DO UPDATE SET revision = excluded.revision, record = excluded.record";
    Ok(work.connection.prepare_cached(sql)?.execute((
        &key.id,
        revision(key),
        json(key)?,
        integer(most),
    ))? == 1)
}

fn revision(key: &Key) -> i64 {
    i64::try_from(key.revision).unwrap_or(i64::MAX)
}

fn forget(work: &mut Work<'_>, id: &str, revision: i64) -> Result<()> {
    let sql = "DELETE FROM keys WHERE id = ? AND revision = ?";
    if work
        .connection
        .prepare_cached(sql)?
        .execute((id, revision))?
        == 1
    {
        let sql = "INSERT INTO keys (id, revision, record) VALUES ('', ?, '')
            ON CONFLICT (id) DO UPDATE SET revision = revision + excluded.revision";
        work.connection
            .prepare_cached(sql)?
            .execute([revision + 1])?;
        let sql = "UPDATE keys SET record = json_remove(record, '$.\"' || ? || '\"') WHERE id = '' AND record <> ''";
        work.connection.prepare_cached(sql)?.execute([id])?;
    }
    Ok(())
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

fn invite_somebody(work: &mut Work<'_>, invite: &Invite) -> Result<()> {
    work.connection
        .prepare_cached("DELETE FROM invites WHERE expires_at <= ?")?
        .execute([stamp(work.now)])?;
    let sql = "INSERT INTO invites (hash, uses, expires_at, record) VALUES (?, ?, ?, ?)";
    let row = (
        &invite.hash,
        invite.uses,
        stamp(invite.expires_at),
        json(invite)?,
    );
    work.connection.prepare_cached(sql)?.execute(row)?;
    Ok(())
}

fn look(work: &mut Work<'_>, hash: &str) -> Result<Option<Invite>> {
    one(
        work,
        hash,
        &format!("SELECT uses, record FROM invites WHERE hash = ? AND {OPEN}"),
    )
}

fn open(work: &mut Work<'_>) -> Result<Vec<Invite>> {
    let sql = format!("SELECT uses, record FROM invites WHERE {OPEN}");
    let mut statement = work.connection.prepare_cached(&sql)?;
    let rows = statement.query_map([stamp(work.now)], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let kept: Vec<(u32, String)> = rows.collect::<Result<_, _>>()?;
    Ok(read_invites(&kept))
}

fn forget_invite(work: &mut Work<'_>, hash: &str) -> Result<Option<Invite>> {
    one(
        work,
        hash,
        &format!("DELETE FROM invites WHERE hash = ? AND {OPEN} RETURNING uses, record"),
    )
}

fn redeem(
    work: &mut Work<'_>,
    hash: &str,
    key: &Key,
    made_with: Option<&Key>,
    most: usize,
) -> Result<bool> {
    // These checks come first because they change nothing; a later error rolls back the whole operation.
    let is_as_before = made_with.map_or(Ok(true), |key| is_as_before(work, key))?;
    if !is_as_before || look(work, hash)?.is_none() || !put(work, key, most)? {
        return Ok(false);
    }
    work.connection
        .prepare_cached("UPDATE invites SET uses = uses - 1 WHERE hash = ?")?
        .execute([hash])?;
    Ok(true)
}

fn is_as_before(work: &mut Work<'_>, key: &Key) -> Result<bool> {
    let sql = "SELECT 1 FROM keys WHERE id = ? AND revision = ?";
    Ok(work
        .connection
        .prepare_cached(sql)?
        .exists((&key.id, revision(key)))?)
}

fn one(work: &mut Work<'_>, hash: &str, sql: &str) -> Result<Option<Invite>> {
    let found: Option<(u32, String)> = work
        .connection
        .prepare_cached(sql)?
        .query_row((hash, stamp(work.now)), |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    found
        .map(|(uses, record)| Invite::kept(uses, &record))
        .transpose()
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
            revision: 1,
        };
        assert!(store.put_key(&key, 10).await.expect("it is kept"));
        let other = Connection::open(&path).expect("the same file");
        other
            .execute("INSERT INTO keys VALUES ('00000002', 1, '{}')", [])
            .expect("a row");
        assert_eq!(store.keys().await.expect("readable"), [key]);
        store.close().await;
    }
}
