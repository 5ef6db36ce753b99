//! Stored logins of people, and the codes that make them. The store never has a secret, only its hash.

use async_trait::async_trait;
use c3po_shared::audit::Entry;
use c3po_shared::limits::{LOGIN_EXTENDED_EVERY, LOGIN_LIFE};
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::LoginScope;
use serde::{Deserialize, Serialize};

use super::Result;

/// A login, without its token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    /// The id shown in lists and in the audit: eight hexadecimal digits.
    pub id: String,
    /// The BLAKE3 hash of its token, 64 hexadecimal digits.
    pub hash: String,
    /// The name of the person.
    pub name: String,
    /// The scope of the login.
    pub scope: LoginScope,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it expires, unless it is used before.
    pub expires_at: Timestamp,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// The creator of its code: `local`, or `login-ID`.
    pub made_by: String,
    /// The device, as the person called it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// How many times it was written, from 1.
    pub revision: u64,
}

impl Login {
    /// Returns whether the login grants access at that time.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.ended_at(now).is_none()
    }

    /// Returns when the login ended, if it is no longer valid at that time.
    pub fn ended_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.revoked_at
            .or(Some(self.expires_at).filter(|end| *end <= now))
    }

    /// Returns the next revision of a valid login that was used at that time, with a later expiry. Returns `None` if it was
    /// extended less than an hour before.
    pub fn extended(&self, used_at: Timestamp) -> Option<Self> {
        let expires_at = used_at + LOGIN_LIFE;
        let is_due = self.is_valid(used_at) && expires_at >= self.expires_at + LOGIN_EXTENDED_EVERY;
        is_due.then(|| Self {
            expires_at,
            revision: self.revision + 1,
            ..self.clone()
        })
    }
}

/// A permission to make one login, given to any client that presents its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginCode {
    /// The id shown in the audit: eight hexadecimal digits.
    pub id: String,
    /// The BLAKE3 hash of the secret, 64 hexadecimal digits.
    pub hash: String,
    /// The name of the person.
    pub name: String,
    /// The largest scope of the login.
    pub scope: LoginScope,
    /// The creator: `local`, or `login-ID`.
    pub made_by: String,
    /// The id of the login with which it was made, if any. The code ends when that login ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
    /// When it expires.
    pub expires_at: Timestamp,
}

/// Parses the record of a login. Returns `None` and logs an error if the record is malformed.
pub(super) fn read_login(record: &str) -> Option<Login> {
    // The record contains a hash, so the log gets only the position of the parse error.
    serde_json::from_str(record)
        .inspect_err(|error| {
            tracing::error!(
                "the record of a login is unreadable, so the login is not accepted: {error}"
            )
        })
        .ok()
}

/// Parses the records of codes. Malformed records are logged and skipped.
pub(super) fn read_codes(kept: &[(u32, String)]) -> Vec<LoginCode> {
    let read = |(_, record): &(u32, String)| {
        serde_json::from_str(record)
            .inspect_err(|error| {
                tracing::error!("the record of a login's code is unreadable: {error}")
            })
            .ok()
    };
    kept.iter().filter_map(read).collect()
}

/// The interface for logins and their codes of every store. A change that happens appends its `entry` to the log in the same
/// step.
#[async_trait]
pub trait LoginStore: Send + Sync {
    /// Returns every login, including ended ones, in no particular order. Malformed records are skipped.
    async fn logins(&self) -> Result<Vec<Login>>;

    /// Returns a number that grows with every change of a login. The cost is one small read.
    async fn login_changes(&self) -> Result<u64>;

    /// Stores a changed login as its next revision. Returns false, and changes nothing, if it was changed meanwhile. The same
    /// applies if `made_with`, the login with which the change is made, is given and was changed meanwhile.
    async fn put_login(
        &self,
        login: &Login,
        made_with: Option<&Login>,
        entry: Option<&Entry>,
    ) -> Result<bool>;

    /// Deletes this revision of the login. A login that was changed meanwhile stays.
    async fn forget_login(&self, login: &Login) -> Result<()>;

    /// Stores a code, and deletes codes that have expired or were spent. Returns false, and stores nothing, if there are
    /// `most` open codes.
    async fn put_login_code(
        &self,
        code: &LoginCode,
        most: usize,
        entry: Option<&Entry>,
    ) -> Result<bool>;

    /// Returns the code with this hash without spending it; `None` if there is none or it has ended.
    async fn login_code(&self, hash: &str) -> Result<Option<LoginCode>>;

    /// Deletes the code with this hash. Returns the deleted code; `None` if there is none or it has ended.
    async fn forget_login_code(&self, hash: &str) -> Result<Option<LoginCode>>;

    /// Returns every open code, in no particular order.
    async fn login_codes(&self) -> Result<Vec<LoginCode>>;

    /// Spends the code with this hash and stores a new login, in one atomic step. Returns false, and changes nothing, if there
    /// is no such code, it has ended, a login has this id or there are `most` logins. The same applies if `made_with`, the
    /// login that made the code, is given and was changed meanwhile.
    async fn spend_login_code(
        &self,
        hash: &str,
        login: &Login,
        made_with: Option<&Login>,
        most: usize,
        entry: Option<&Entry>,
    ) -> Result<bool>;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_login_is_extended_by_use_and_at_most_once_an_hour() {
        let made = Timestamp::from_millis(1_000_000);
        let login = Login {
            id: "0a1b2c3d".into(),
            hash: String::new(),
            name: "ann".into(),
            scope: LoginScope::Person,
            created_at: made,
            expires_at: made + LOGIN_LIFE,
            revoked_at: None,
            made_by: "local".into(),
            device: None,
            revision: 3,
        };
        let second = Duration::from_secs(1);
        assert_eq!(login.extended(made + LOGIN_EXTENDED_EVERY / 2), None);
        let used = made + LOGIN_EXTENDED_EVERY;
        let next = login.extended(used).expect("an hour later");
        assert_eq!((next.expires_at, next.revision), (used + LOGIN_LIFE, 4));
        assert_eq!(next.extended(used + second), None);
        let late = made + (LOGIN_LIFE - second);
        assert!(login.extended(late).is_some() && login.extended(late + second).is_none());
        let revoked = Login {
            revoked_at: Some(used),
            ..login
        };
        assert_eq!(revoked.extended(late), None);
    }
}
