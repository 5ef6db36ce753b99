//! Logins and their codes in SQLite.

use async_trait::async_trait;
use c3po_shared::audit::Entry;

use super::SqliteStore;
use super::credentials::{CodeRow, CredentialRow, PEOPLE};
use super::group::Work;
use super::rows::{json, stamp};
use crate::store::{Login, LoginCode, LoginStore, Result, read_codes, read_login};

#[async_trait]
impl LoginStore for SqliteStore {
    async fn logins(&self) -> Result<Vec<Login>> {
        let records = self.reader.run(|work| PEOPLE.all(work)).await?;
        Ok(records
            .iter()
            .filter_map(|record| read_login(record))
            .collect())
    }

    async fn login_changes(&self) -> Result<u64> {
        self.reader.run(|work| PEOPLE.changes(work)).await
    }

    async fn put_login(
        &self,
        login: &Login,
        made_with: Option<&Login>,
        entry: Option<&Entry>,
    ) -> Result<bool> {
        let (row, made_with) = (row(login)?, made_with.map(row).transpose()?);
        let put = move |work: &mut Work<'_>| PEOPLE.put(work, &row, made_with.as_ref(), 0);
        self.logged(entry, |is_put| *is_put, put).await
    }

    async fn forget_login(&self, login: &Login) -> Result<()> {
        let row = row(login)?;
        self.writer.run(move |work| PEOPLE.forget(work, &row)).await
    }

    async fn put_login_code(
        &self,
        code: &LoginCode,
        most: usize,
        entry: Option<&Entry>,
    ) -> Result<bool> {
        let row = CodeRow {
            hash: code.hash.clone(),
            uses: 1,
            expires_at: stamp(code.expires_at),
            record: json(code)?,
        };
        let put = move |work: &mut Work<'_>| PEOPLE.put_code(work, &row, most);
        self.logged(entry, |is_put| *is_put, put).await
    }

    async fn login_code(&self, hash: &str) -> Result<Option<LoginCode>> {
        let hash = hash.to_owned();
        let code = self
            .reader
            .run(move |work| PEOPLE.code(work, &hash))
            .await?;
        Ok(read_codes(code.as_slice()).pop())
    }

    async fn forget_login_code(&self, hash: &str) -> Result<Option<LoginCode>> {
        let hash = hash.to_owned();
        let forget = self.writer.run(move |work| PEOPLE.forget_code(work, &hash));
        Ok(read_codes(forget.await?.as_slice()).pop())
    }

    async fn login_codes(&self) -> Result<Vec<LoginCode>> {
        let codes = self.reader.run(|work| PEOPLE.codes(work)).await?;
        Ok(read_codes(&codes))
    }

    async fn spend_login_code(
        &self,
        hash: &str,
        login: &Login,
        made_with: Option<&Login>,
        most: usize,
        entry: Option<&Entry>,
    ) -> Result<bool> {
        let (hash, login, made_with) = (
            hash.to_owned(),
            row(login)?,
            made_with.map(row).transpose()?,
        );
        let spend =
            move |work: &mut Work<'_>| PEOPLE.redeem(work, &hash, &login, made_with.as_ref(), most);
        self.logged(entry, |is_spent| *is_spent, spend).await
    }
}

fn row(login: &Login) -> Result<CredentialRow> {
    CredentialRow::of(&login.id, login.revision, login)
}
