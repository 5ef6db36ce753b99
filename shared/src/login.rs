//! How a person logs in: the code of a link, spent once for a token.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::join::{NAME_PATTERN, check_name};
use crate::limits::LABEL_MAX;
use crate::refusal::Refusal;
use crate::time::Timestamp;
use crate::vocabulary::{LoginScope, Validity};

/// The REST path for logging in.
pub const PATH: &str = "/api/v1/login";
/// The REST path that tells a client its own login or key.
pub const ME_PATH: &str = "/api/v1/me";
/// The path of the reports that a person uses a page.
pub const INPUT_PATH: &str = "/api/v1/me/input";
/// The REST path of all logins.
pub const LOGINS_PATH: &str = "/api/v1/logins";
/// The page on which a person logs in. Its link ends with `/`, the id of the code, `#` and the code: no browser has a copy of
/// that path, so its request reaches the coordinator.
pub const PAGE: &str = "/login";
/// The prefix of every token of a login. It differs from that of keys, so neither stands for the other.
pub const TOKEN_PREFIX: &str = "c3po-login_";

/// `login`: spends a code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginRequest {
    /// The code. Case, spaces and hyphens do not matter.
    pub code: String,
    /// The name of the device, for lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LABEL_MAX), regex(pattern = NAME_PATTERN))]
    pub device: Option<String>,
    /// The requested scope. The login gets this scope or that of the code, whichever is smaller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<LoginScope>,
}

impl LoginRequest {
    /// Checks the texts of the client.
    pub fn check(&self) -> Result<(), Refusal> {
        self.device
            .as_deref()
            .map_or(Ok(()), |device| check_name("device", device))
    }

    /// Returns the code in the form in which it was made.
    pub fn plain_code(&self) -> String {
        let letters = self.code.chars().filter(char::is_ascii_alphanumeric);
        letters
            .take(LABEL_MAX)
            .collect::<String>()
            .to_ascii_lowercase()
    }
}

/// A new login with its token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoginReply {
    /// The token, which is returned only once. Send it as `Authorization: Bearer TOKEN`.
    pub token: String,
    /// The login.
    pub login: LoginRecord,
}

/// A login as lists show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Login")]
pub struct LoginRecord {
    /// The id of the login.
    pub id: String,
    /// The name of the person.
    pub name: String,
    /// The scope of the login.
    pub scope: LoginScope,
    /// Whether the login is valid.
    pub state: Validity,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it expires, unless it is used before.
    pub expires_at: Timestamp,
    /// When it was revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// The creator of its code: `local`, or the login with which it was made.
    pub made_by: String,
    /// The device, as the person called it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_the_same_however_it_is_typed() {
        for code in ["abcd2345", " ABCD-2345\n", "abcd 2345"] {
            let request = LoginRequest {
                code: code.into(),
                device: None,
                scope: None,
            };
            assert_eq!(request.plain_code(), "abcd2345", "{code}");
        }
    }
}
