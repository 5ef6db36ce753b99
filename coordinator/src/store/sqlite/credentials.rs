//! Credentials and the codes that make them in SQLite: keys of hosts with invites, and logins of people with their codes.

use rusqlite::OptionalExtension;
use serde::Serialize;

use super::group::Work;
use super::rows::{count, integer, json, stamp};
use crate::store::Result;

/// The condition for codes that still make a credential.
const OPEN: &str = "uses > 0 AND expires_at > ?";

/// Keys and invites.
pub(super) const HOSTS: Tables = Tables {
    credentials: "keys",
    codes: "invites",
};

/// Logins and their codes.
pub(super) const PEOPLE: Tables = Tables {
    credentials: "logins",
    codes: "login_codes",
};

/// The two tables of one kind of credential.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tables {
    credentials: &'static str,
    codes: &'static str,
}

/// One revision of a credential.
#[derive(Debug)]
pub(super) struct CredentialRow {
    id: String,
    revision: i64,
    record: String,
}

impl CredentialRow {
    pub(super) fn of(id: &str, revision: u64, record: &impl Serialize) -> Result<Self> {
        Ok(Self {
            id: id.to_owned(),
            revision: i64::try_from(revision).unwrap_or(i64::MAX),
            record: json(record)?,
        })
    }
}

/// A code.
#[derive(Debug)]
pub(super) struct CodeRow {
    pub(super) hash: String,
    pub(super) uses: u32,
    pub(super) expires_at: i64,
    pub(super) record: String,
}

impl Tables {
    /// Returns the records of all credentials.
    pub(super) fn all(self, work: &mut Work<'_>) -> Result<Vec<String>> {
        let sql = format!("SELECT record FROM {} WHERE id <> ''", self.credentials);
        let mut statement = work.connection.prepare_cached(&sql)?;
        let records = statement.query_map([], |row| row.get(0))?;
        Ok(records.collect::<Result<_, _>>()?)
    }

    /// Returns the record of one credential.
    pub(super) fn one(self, work: &mut Work<'_>, id: &str) -> Result<Option<String>> {
        let sql = format!(
            "SELECT record FROM {} WHERE id = ? AND id <> ''",
            self.credentials
        );
        let mut statement = work.connection.prepare_cached(&sql)?;
        Ok(statement.query_row([id], |row| row.get(0)).optional()?)
    }

    pub(super) fn changes(self, work: &mut Work<'_>) -> Result<u64> {
        let sql = format!(
            "SELECT coalesce(sum(revision), 0) FROM {}",
            self.credentials
        );
        let mut statement = work.connection.prepare_cached(&sql)?;
        Ok(count(statement.query_row([], |row| row.get(0))?) as u64)
    }

    /// Stores the next revision of a credential, or a new one if there are fewer than `most`, unless the credential with which
    /// the change is made was changed.
    pub(super) fn put(
        self,
        work: &mut Work<'_>,
        row: &CredentialRow,
        made_with: Option<&CredentialRow>,
        most: usize,
    ) -> Result<bool> {
        if !made_with.map_or(Ok(true), |row| self.is_as_before(work, row))? {
            return Ok(false);
        }
        let table = self.credentials;
        let sql = format!(
            "INSERT INTO {table} (id, revision, record) SELECT ?1, ?2, ?3
                WHERE ?2 = 1 + coalesce((SELECT revision FROM {table} WHERE id = ?1), 0)
                    AND (?2 > 1 OR (SELECT count(*) FROM {table} WHERE id <> '') < ?4)
                ON CONFLICT (id) DO UPDATE SET revision = excluded.revision, record = excluded.record"
        );
        let values = (&row.id, row.revision, &row.record, integer(most));
        Ok(work.connection.prepare_cached(&sql)?.execute(values)? == 1)
    }

    /// Writes the time into the record of a credential that has none, as its next revision, whatever that is, unless the
    /// credential with which the change is made was changed.
    pub(super) fn revoke(
        self,
        work: &mut Work<'_>,
        id: &str,
        at: &str,
        made_with: Option<&CredentialRow>,
    ) -> Result<bool> {
        if !made_with.map_or(Ok(true), |row| self.is_as_before(work, row))? {
            return Ok(false);
        }
        let sql = format!(
            "UPDATE {} SET revision = revision + 1,
                record = json_set(record, '$.revoked_at', json(?2), '$.revision', revision + 1)
                WHERE id = ?1 AND id <> '' AND json_extract(record, '$.revoked_at') IS NULL",
            self.credentials
        );
        let mut update = work.connection.prepare_cached(&sql)?;
        Ok(update.execute((id, at))? == 1)
    }

    /// Deletes this revision of a credential. Its revisions still count as changes.
    pub(super) fn forget(self, work: &mut Work<'_>, row: &CredentialRow) -> Result<()> {
        let table = self.credentials;
        let sql = format!("DELETE FROM {table} WHERE id = ? AND revision = ?");
        let deleted = work
            .connection
            .prepare_cached(&sql)?
            .execute((&row.id, row.revision))?;
        if deleted == 1 {
            let sql = format!(
                "INSERT INTO {table} (id, revision, record) VALUES ('', ?, '')
                    ON CONFLICT (id) DO UPDATE SET revision = revision + excluded.revision"
            );
            work.connection
                .prepare_cached(&sql)?
                .execute([row.revision + 1])?;
            let sql = format!(
                "UPDATE {table} SET record = json_remove(record, '$.\"' || ? || '\"') WHERE id = '' AND record <> ''"
            );
            work.connection.prepare_cached(&sql)?.execute([&row.id])?;
        }
        Ok(())
    }

    /// Stores a code if there are fewer than `most`, and deletes ended ones.
    pub(super) fn put_code(self, work: &mut Work<'_>, code: &CodeRow, most: usize) -> Result<bool> {
        let table = self.codes;
        let sql = format!("DELETE FROM {table} WHERE NOT ({OPEN})");
        work.connection
            .prepare_cached(&sql)?
            .execute([stamp(work.now)])?;
        let sql = format!(
            "INSERT INTO {table} (hash, uses, expires_at, record) SELECT ?1, ?2, ?3, ?4
                WHERE (SELECT count(*) FROM {table}) < ?5"
        );
        let CodeRow {
            hash,
            uses,
            expires_at,
            record,
        } = code;
        let values = (hash, uses, expires_at, record, integer(most));
        Ok(work.connection.prepare_cached(&sql)?.execute(values)? == 1)
    }

    pub(super) fn code(self, work: &mut Work<'_>, hash: &str) -> Result<Option<(u32, String)>> {
        let table = self.codes;
        let sql = format!("SELECT uses, record FROM {table} WHERE hash = ? AND {OPEN}");
        one(work, hash, &sql)
    }

    pub(super) fn codes(self, work: &mut Work<'_>) -> Result<Vec<(u32, String)>> {
        let sql = format!("SELECT uses, record FROM {} WHERE {OPEN}", self.codes);
        let mut statement = work.connection.prepare_cached(&sql)?;
        let rows = statement.query_map([stamp(work.now)], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    pub(super) fn forget_code(
        self,
        work: &mut Work<'_>,
        hash: &str,
    ) -> Result<Option<(u32, String)>> {
        let table = self.codes;
        let sql = format!("DELETE FROM {table} WHERE hash = ? AND {OPEN} RETURNING uses, record");
        one(work, hash, &sql)
    }

    /// Uses a code once and stores a new credential, unless the credential that made the code was changed.
    pub(super) fn redeem(
        self,
        work: &mut Work<'_>,
        hash: &str,
        row: &CredentialRow,
        made_with: Option<&CredentialRow>,
        most: usize,
    ) -> Result<bool> {
        // These checks come first because they change nothing; a later error rolls back the whole operation.
        if self.code(work, hash)?.is_none() || !self.put(work, row, made_with, most)? {
            return Ok(false);
        }
        let sql = format!("UPDATE {} SET uses = uses - 1 WHERE hash = ?", self.codes);
        work.connection.prepare_cached(&sql)?.execute([hash])?;
        Ok(true)
    }

    fn is_as_before(self, work: &mut Work<'_>, row: &CredentialRow) -> Result<bool> {
        let table = self.credentials;
        let sql = format!("SELECT 1 FROM {table} WHERE id = ? AND revision = ?");
        let mut statement = work.connection.prepare_cached(&sql)?;
        Ok(statement.exists((&row.id, row.revision))?)
    }
}

fn one(work: &mut Work<'_>, hash: &str, sql: &str) -> Result<Option<(u32, String)>> {
    let mut statement = work.connection.prepare_cached(sql)?;
    let row = statement.query_row((hash, stamp(work.now)), |row| {
        Ok((row.get(0)?, row.get(1)?))
    });
    Ok(row.optional()?)
}
