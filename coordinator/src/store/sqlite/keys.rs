//! Keys and invites in SQLite.

use async_trait::async_trait;
use rusqlite::OptionalExtension;

use super::SqliteStore;
use super::rows::{count, json, stamp};
use super::worker::Work;
use crate::store::{Invite, Key, KeyStore, Result, StoreError};

#[async_trait]
impl KeyStore for SqliteStore {
    async fn keys(&self) -> Result<Vec<Key>> {
        self.reader.run(all).await
    }

    async fn key_changes(&self) -> Result<u64> {
        let sum = |work: &mut Work<'_>| {
            let sql = "SELECT coalesce(sum(revision), 0) FROM keys";
            Ok(work.connection.prepare_cached(sql)?.query_row([], |row| row.get::<_, i64>(0))?)
        };
        Ok(count(self.reader.run(sum).await?) as u64)
    }

    async fn put_key(&self, key: &Key) -> Result<bool> {
        let key = key.clone();
        self.writer.run(move |work| put(work, &key)).await
    }

    async fn put_invite(&self, invite: &Invite) -> Result<()> {
        let invite = invite.clone();
        self.writer.run(move |work| invite_somebody(work, &invite)).await
    }

    async fn redeem(&self, hash: &str) -> Result<Option<Invite>> {
        let hash = hash.to_owned();
        self.writer.run(move |work| redeem(work, &hash)).await
    }
}

fn read<T: serde::de::DeserializeOwned>(record: &str) -> Result<T> {
    serde_json::from_str(record).map_err(|error| StoreError::Corrupt(error.to_string()))
}

fn all(work: &mut Work<'_>) -> Result<Vec<Key>> {
    let mut statement = work.connection.prepare_cached("SELECT record FROM keys")?;
    let records = statement.query_map([], |row| row.get::<_, String>(0))?;
    records.map(|record| read(&record?)).collect()
}

fn put(work: &mut Work<'_>, key: &Key) -> Result<bool> {
    let sql = "INSERT INTO keys (id, revision, record) SELECT ?1, ?2, ?3
        WHERE ?2 = 1 + coalesce((SELECT revision FROM keys WHERE id = ?1), 0)
        ON CONFLICT (id) DO UPDATE SET revision = excluded.revision, record = excluded.record";
    let revision = i64::try_from(key.revision).unwrap_or(i64::MAX);
    Ok(work.connection.prepare_cached(sql)?.execute((&key.id, revision, json(key)?))? == 1)
}

fn invite_somebody(work: &mut Work<'_>, invite: &Invite) -> Result<()> {
    work.connection.prepare_cached("DELETE FROM invites WHERE expires_at <= ?")?.execute([stamp(work.now)])?;
    let sql = "INSERT INTO invites (hash, uses, expires_at, record) VALUES (?, ?, ?, ?)";
    let row = (&invite.hash, invite.uses, stamp(invite.expires_at), json(invite)?);
    work.connection.prepare_cached(sql)?.execute(row)?;
    Ok(())
}

fn redeem(work: &mut Work<'_>, hash: &str) -> Result<Option<Invite>> {
    let sql = "UPDATE invites SET uses = uses - 1 WHERE hash = ? AND uses > 0 AND expires_at > ?
        RETURNING uses + 1, record";
    let found: Option<(u32, String)> = work
        .connection
        .prepare_cached(sql)?
        .query_row((hash, stamp(work.now)), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((uses, record)) = found else { return Ok(None) };
    Ok(Some(Invite { uses, ..read(&record)? }))
}
