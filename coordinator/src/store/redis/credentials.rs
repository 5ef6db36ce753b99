//! Credentials and the codes that make them in Redis: one hash each, which every coordinator reads.

use c3po_shared::audit::Entry;

use super::RedisStore;
use super::key_names::CHANGES;
use super::library::Call;
use crate::store::Result;

/// Keys and invites.
pub(super) const HOSTS: Hashes = Hashes {
    credentials: "credentials",
    codes: "invites",
    uses: Some("key_uses"),
};

/// Logins and their codes.
pub(super) const PEOPLE: Hashes = Hashes {
    credentials: "logins",
    codes: "login_codes",
    uses: None,
};

/// The hashes of one kind of credential.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hashes {
    credentials: &'static str,
    codes: &'static str,
    /// The times of the last uses, if they are recorded.
    uses: Option<&'static str>,
}

/// One revision of a credential.
#[derive(Debug)]
pub(super) struct HashCredential<'a> {
    pub(super) id: &'a str,
    pub(super) revision: u64,
    pub(super) record: String,
}

/// A code.
#[derive(Debug)]
pub(super) struct HashCode<'a> {
    pub(super) hash: &'a str,
    pub(super) uses: u32,
    pub(super) expires_at: u64,
    pub(super) record: String,
}

impl Hashes {
    /// Returns the records of all credentials.
    pub(super) async fn all(self, store: &RedisStore) -> Result<Vec<String>> {
        let mut read = redis::cmd("HGETALL");
        read.arg(store.names.key(self.credentials));
        let kept: Vec<(String, String)> = store.within(store.connection.run(&read)).await?;
        let credentials = kept.into_iter().filter(|(id, _)| id != CHANGES);
        Ok(credentials.map(|(_, kept)| record(kept)).collect())
    }

    /// Returns the record of one credential.
    pub(super) async fn one(self, store: &RedisStore, id: &str) -> Result<Option<String>> {
        let mut read = redis::cmd("HGET");
        read.arg(store.names.key(self.credentials)).arg(id);
        let kept: Option<String> = store.within(store.connection.run(&read)).await?;
        Ok(kept.filter(|_| id != CHANGES).map(record))
    }

    pub(super) async fn changes(self, store: &RedisStore) -> Result<u64> {
        let mut read = redis::cmd("HGET");
        read.arg(store.names.key(self.credentials)).arg(CHANGES);
        let count: Option<u64> = store.within(store.connection.run(&read)).await?;
        Ok(count.unwrap_or_default())
    }

    /// Stores the next revision of a credential, or a new one if there are fewer than `most`, unless the credential with which
    /// the change is made was changed.
    pub(super) async fn put(
        self,
        store: &RedisStore,
        row: HashCredential<'_>,
        made_with: Option<(&str, u64)>,
        most: usize,
        entry: Option<&Entry>,
    ) -> Result<bool> {
        let mut call = self.call(store, "put_credential", &[self.credentials]);
        call.arg(row.id).arg(row.revision).arg(row.record);
        name_maker(&mut call, made_with);
        call.arg(most);
        store.logged(call, entry).await
    }

    /// Writes the time, as JSON, into the record of a credential that has none, as its next revision, whatever that is,
    /// unless the credential with which the change is made was changed.
    pub(super) async fn revoke(
        self,
        store: &RedisStore,
        id: &str,
        at: &str,
        made_with: Option<(&str, u64)>,
        entry: Option<&Entry>,
    ) -> Result<bool> {
        let mut call = self.call(store, "revoke_credential", &[self.credentials]);
        call.arg(id).arg(at);
        name_maker(&mut call, made_with);
        store.logged(call, entry).await
    }

    /// Deletes this revision of a credential.
    pub(super) async fn forget(self, store: &RedisStore, id: &str, revision: u64) -> Result<()> {
        let names: Vec<_> = [self.credentials].into_iter().chain(self.uses).collect();
        let mut call = self.call(store, "forget_credential", &names);
        call.arg(id).arg(revision);
        store
            .within(store.connection.invoke::<u8>(&call))
            .await
            .map(drop)
    }

    /// Stores a code if there are fewer than `most`, and deletes ended ones.
    pub(super) async fn put_code(
        self,
        store: &RedisStore,
        code: HashCode<'_>,
        most: usize,
        entry: Option<&Entry>,
    ) -> Result<bool> {
        let mut call = self.call(store, "put_code", &[self.codes]);
        call.arg(code.hash)
            .arg(code.uses)
            .arg(code.expires_at)
            .arg(code.record)
            .arg(most);
        store.logged(call, entry).await
    }

    /// Returns an open code: its remaining uses, and its record.
    pub(super) async fn code(
        self,
        store: &RedisStore,
        hash: &str,
    ) -> Result<Option<(u32, String)>> {
        let mut call = self.call(store, "code", &[self.codes]);
        store.within(store.connection.invoke(call.arg(hash))).await
    }

    pub(super) async fn codes(self, store: &RedisStore) -> Result<Vec<(u32, String)>> {
        let call = self.call(store, "codes", &[self.codes]);
        store.within(store.connection.invoke(&call)).await
    }

    /// Deletes an open code, and returns it as before the call.
    pub(super) async fn forget_code(
        self,
        store: &RedisStore,
        hash: &str,
        entry: Option<&Entry>,
    ) -> Result<Option<(u32, String)>> {
        let mut call = self.call(store, "forget_code", &[self.codes]);
        call.arg(hash);
        store.logged(call, entry).await
    }

    /// Uses a code once and stores a new credential, unless the credential that made the code was changed.
    pub(super) async fn redeem(
        self,
        store: &RedisStore,
        hash: &str,
        row: HashCredential<'_>,
        made_with: Option<(&str, u64)>,
        most: usize,
        entry: Option<&Entry>,
    ) -> Result<bool> {
        let mut call = self.call(store, "redeem", &[self.credentials, self.codes]);
        call.arg(hash).arg(row.id).arg(row.revision).arg(row.record);
        name_maker(&mut call, made_with);
        call.arg(most);
        store.logged(call, entry).await
    }

    fn call(self, store: &RedisStore, function: &'static str, names: &[&str]) -> Call {
        store
            .names
            .call(function, names.iter().map(|name| store.names.key(name)))
    }
}

/// Appends the id and revision of the credential with which a change is made, or two empty arguments.
fn name_maker(call: &mut Call, made_with: Option<(&str, u64)>) {
    match made_with {
        Some((id, revision)) => call.arg(id).arg(revision),
        None => call.arg("").arg(""),
    };
}

/// Returns the record that follows the revision number.
fn record(kept: String) -> String {
    match kept.split_once(' ') {
        Some((_, record)) => record.to_owned(),
        None => kept,
    }
}
