//! Logins and their codes in Redis.

use async_trait::async_trait;
use c3po_shared::audit::Entry;

use super::credentials::{HashCode, HashCredential, PEOPLE};
use super::{RedisStore, records};
use crate::store::{Login, LoginCode, LoginStore, Result, read_codes, read_login};

#[async_trait]
impl LoginStore for RedisStore {
    async fn logins(&self) -> Result<Vec<Login>> {
        let records = PEOPLE.all(self).await?;
        Ok(records
            .iter()
            .filter_map(|record| read_login(record))
            .collect())
    }

    async fn login_changes(&self) -> Result<u64> {
        PEOPLE.changes(self).await
    }

    async fn put_login(
        &self,
        login: &Login,
        made_with: Option<&Login>,
        entry: Option<&Entry>,
    ) -> Result<bool> {
        let made_with = made_with.map(|login| (login.id.as_str(), login.revision));
        PEOPLE.put(self, row(login)?, made_with, 0, entry).await
    }

    async fn forget_login(&self, login: &Login) -> Result<()> {
        PEOPLE.forget(self, &login.id, login.revision).await
    }

    async fn put_login_code(
        &self,
        code: &LoginCode,
        most: usize,
        entry: Option<&Entry>,
    ) -> Result<bool> {
        let row = HashCode {
            hash: &code.hash,
            uses: 1,
            expires_at: code.expires_at.millis(),
            record: records::write(code)?,
        };
        PEOPLE.put_code(self, row, most, entry).await
    }

    async fn login_code(&self, hash: &str) -> Result<Option<LoginCode>> {
        let code = PEOPLE.code(self, hash).await?;
        Ok(read_codes(code.as_slice()).pop())
    }

    async fn forget_login_code(&self, hash: &str) -> Result<Option<LoginCode>> {
        let code = PEOPLE.forget_code(self, hash, None).await?;
        Ok(read_codes(code.as_slice()).pop())
    }

    async fn login_codes(&self) -> Result<Vec<LoginCode>> {
        Ok(read_codes(&PEOPLE.codes(self).await?))
    }

    async fn spend_login_code(
        &self,
        hash: &str,
        login: &Login,
        made_with: Option<&Login>,
        most: usize,
        entry: Option<&Entry>,
    ) -> Result<bool> {
        let made_with = made_with.map(|login| (login.id.as_str(), login.revision));
        PEOPLE
            .redeem(self, hash, row(login)?, made_with, most, entry)
            .await
    }
}

fn row(login: &Login) -> Result<HashCredential<'_>> {
    Ok(HashCredential {
        id: &login.id,
        revision: login.revision,
        record: records::write(login)?,
    })
}
