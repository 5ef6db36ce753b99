//! How a host joins: its join code, its request, and the fingerprint by which it recognises its coordinator.

use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER_PERMISSIVE};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::LABEL_MAX;
use crate::parsed::parsed;
use crate::refusal::Refusal;
use crate::text::check_plain;

/// The REST path for joining.
pub const PATH: &str = "/api/join";
/// The environment variable that passes a code to `c3po join` and to the install script.
pub const CODE_VARIABLE: &str = "C3PO_JOIN_CODE";
/// The prefix of every key, so that a key is recognised if it turns up in the wrong place.
pub const KEY_PREFIX: &str = "c3po_";
/// The prefix of a fingerprint.
const SHA256: &str = "sha256:";
/// The length of a code's secret in bytes.
const SECRET_LENGTH: usize = 16;
/// The length of a key's id in characters.
const KEY_ID_LENGTH: usize = 8;
/// The length of a fingerprint in bytes.
const FINGERPRINT_LENGTH: usize = 32;

/// The SHA-256 of a certificate in DER form: `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; FINGERPRINT_LENGTH]);

impl Fingerprint {
    /// Creates the fingerprint with these bytes.
    pub fn of(digest: [u8; FINGERPRINT_LENGTH]) -> Self {
        Self(digest)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SHA256}{}", HEXLOWER_PERMISSIVE.encode(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The reason why a text cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// Not a fingerprint.
    #[error("a fingerprint is sha256: and 64 hexadecimal digits")]
    Fingerprint,
    /// Not a code, or a truncated one.
    #[error("this is not a join code: copy the whole command that the coordinator printed")]
    Code,
}

impl FromStr for Fingerprint {
    type Err = JoinError;

    fn from_str(text: &str) -> Result<Self, JoinError> {
        let digits = text
            .trim()
            .strip_prefix(SHA256)
            .ok_or(JoinError::Fingerprint)?;
        let bytes = HEXLOWER_PERMISSIVE
            .decode(digits.as_bytes())
            .map_err(|_| JoinError::Fingerprint)?;
        bytes
            .try_into()
            .map(Self)
            .map_err(|_| JoinError::Fingerprint)
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer)
    }
}

/// A join code: a secret that admits a new host once, and the fingerprint by which the host recognises its coordinator.
///
/// The text is base64url. While it is valid it is as good as a key, so it is never logged.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinCode {
    secret: [u8; SECRET_LENGTH],
    /// The coordinator's certificate; `None` if it does not use TLS.
    pub fingerprint: Option<Fingerprint>,
}

impl JoinCode {
    /// Creates the code for a secret.
    pub fn new(secret: [u8; SECRET_LENGTH], fingerprint: Option<Fingerprint>) -> Self {
        Self {
            secret,
            fingerprint,
        }
    }

    /// Returns the secret for the join request: the only part of a code that the coordinator needs.
    pub fn secret(&self) -> String {
        BASE64URL_NOPAD.encode(&self.secret)
    }

    /// Returns the whole code as text.
    pub fn reveal(&self) -> String {
        let fingerprint = self
            .fingerprint
            .iter()
            .flat_map(|fingerprint| fingerprint.0);
        BASE64URL_NOPAD.encode(
            &self
                .secret
                .iter()
                .copied()
                .chain(fingerprint)
                .collect::<Vec<_>>(),
        )
    }
}

impl fmt::Debug for JoinCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinCode(…)")
    }
}

impl FromStr for JoinCode {
    type Err = JoinError;

    fn from_str(text: &str) -> Result<Self, JoinError> {
        let bytes = BASE64URL_NOPAD
            .decode(text.trim().as_bytes())
            .map_err(|_| JoinError::Code)?;
        let (secret, fingerprint) = bytes.split_first_chunk().ok_or(JoinError::Code)?;
        let fingerprint = match fingerprint {
            [] => None,
            digest => Some(Fingerprint(digest.try_into().map_err(|_| JoinError::Code)?)),
        };
        Ok(Self {
            secret: *secret,
            fingerprint,
        })
    }
}

/// The body of the POST to [`PATH`].
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinRequest {
    /// The secret of its code.
    pub code: String,
    /// Its name, by which its key is listed.
    #[schemars(length(max = LABEL_MAX), regex(pattern = NAME_PATTERN))]
    pub host: String,
    /// Proves that the host already has a key of this fleet, so that it keeps that key's host: see [`crate::proof`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub proof: Option<String>,
    /// The id of the key that it already has. The id is not secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{8}$"))]
    pub older_key: Option<String>,
}

impl fmt::Debug for JoinRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinRequest")
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

impl JoinRequest {
    /// Checks the request.
    ///
    /// Errors: as [`check_name`], and `INVALID_REQUEST` if the older key's id is not an id.
    pub fn check(&self) -> Result<(), Refusal> {
        let is_digit = |c: char| matches!(c, '0'..='9' | 'a'..='f');
        match &self.older_key {
            Some(id) if id.len() != KEY_ID_LENGTH || !id.chars().all(is_digit) => {
                Err(Refusal::invalid("older_key is not the id of a key"))
            }
            _ => check_name("host", &self.host),
        }
    }
}

/// The characters that [`check_plain`] refuses, as part of a regular expression.
macro_rules! obeyed {
    () => {
        "\\u0000-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ufeff"
    };
}

/// The characters without a width, by which one name would look like another, as part of a regular expression.
macro_rules! hidden {
    () => {
        "\\u00ad\\u180e\\u200b-\\u200d\\u2060-\\u2064"
    };
}

/// The pattern for the name of a key or a host: no control characters, none without a width, and not only spaces.
pub const NAME_PATTERN: &str = concat!(
    "^[^",
    obeyed!(),
    hidden!(),
    "]*[^\\s",
    obeyed!(),
    hidden!(),
    "][^",
    obeyed!(),
    hidden!(),
    "]*$"
);

/// The pattern for the name of a person: not one with the marks of other answers, `triage/NAME`, `terminal@HOST` and `local (not
/// verified)`.
pub const PERSON_PATTERN: &str = concat!(
    "^[^/@()\\s",
    obeyed!(),
    hidden!(),
    "]([^/@()",
    obeyed!(),
    hidden!(),
    "]*[^/@()\\s",
    obeyed!(),
    hidden!(),
    "])?$"
);

/// Checks the name of a person; `field` is used in the error.
///
/// Errors: `INVALID_REQUEST` if it does not match [`PERSON_PATTERN`], `PAYLOAD_TOO_LARGE` if it is too long.
pub fn check_person(field: &str, name: &str) -> Result<(), Refusal> {
    check_name(field, name)?;
    if name.contains(['/', '@', '(', ')']) || name.trim() != name {
        return Err(Refusal::invalid(format!(
            "{field} has '/', '@', a parenthesis or a space at its end"
        )));
    }
    Ok(())
}

/// Checks the name of a key or a host; `field` is used in the error.
///
/// Errors: `INVALID_REQUEST` if it does not match [`NAME_PATTERN`], `PAYLOAD_TOO_LARGE` if it is too long.
pub fn check_name(field: &str, name: &str) -> Result<(), Refusal> {
    let count = name.chars().count();
    match count {
        _ if count > LABEL_MAX => Err(Refusal::too_large(field, count, LABEL_MAX)),
        _ if name.trim().is_empty() => Err(Refusal::invalid(format!("{field} is empty"))),
        _ if name.contains(is_hidden) => Err(Refusal::invalid(format!(
            "{field} has a character without a width"
        ))),
        _ => check_plain(field, name),
    }
}

fn is_hidden(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2064}')
}

/// The reply to a host that joined. The key is shown only this once.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub struct JoinReply {
    /// The host's new key.
    pub key: String,
    /// The id of the key.
    pub key_id: String,
    /// The agents as which it may act.
    pub agents: Vec<String>,
    /// The expiry time of the key, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The host's name. Older coordinators do not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The key that the host had before; absent if this fleet does not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_key: Option<OlderKey>,
}

/// The key that a host had before it joined again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OlderKey {
    /// Its id.
    pub id: String,
    /// Whether it is still valid.
    pub valid: bool,
    /// The command that revokes it, to be run on the coordinator's machine.
    pub revoke: String,
    /// The proof that this coordinator has it: see [`crate::proof`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
}

impl fmt::Debug for JoinReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinReply")
            .field("key_id", &self.key_id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_back_from_their_text() {
        let check = |code: JoinCode| {
            let text = code.reveal();
            assert_eq!(text.parse(), Ok(code.clone()), "{text}");
            assert!(!format!("{code:?}").contains(&code.secret()));
        };
        check(JoinCode::new([7; 16], None));
        check(JoinCode::new([0xff; 16], Some(Fingerprint::of([9; 32]))));
    }

    #[test]
    fn the_name_of_a_person_is_not_the_mark_of_another_answer() {
        for name in ["ann", "Ann B.", "анна"] {
            assert!(check_person("name", name).is_ok(), "{name}");
        }
        let marks = [
            "triage/web",
            "terminal@nas",
            "local (not verified)",
            "ann ",
            " ann",
            "",
        ];
        for name in marks {
            assert!(check_person("name", name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_name_has_no_characters_that_are_not_seen() {
        for name in ["nas", "Ann's laptop", "büro-2"] {
            assert!(check_name("host", name).is_ok(), "{name}");
        }
        for name in [
            "",
            " ",
            "nas\u{200b}",
            "na\u{2060}s",
            "n\u{ad}as",
            "nas\u{202e}",
        ] {
            assert!(check_name("host", name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn malformed_codes_are_refused() {
        let whole = JoinCode::new([1; 16], Some(Fingerprint::of([2; 32]))).reveal();
        for text in [
            "",
            "c3po",
            "::",
            &whole[1..],
            &whole[..whole.len() - 2],
            "äöü",
            &format!("{whole}AAAA"),
        ] {
            assert_eq!(text.parse::<JoinCode>(), Err(JoinError::Code), "{text}");
        }
    }

    #[test]
    fn a_host_needs_a_name_before_its_code_is_spent() {
        let check = |host: &str, passes: bool| {
            let request = JoinRequest {
                code: String::new(),
                host: host.to_owned(),
                proof: None,
                older_key: None,
            };
            assert_eq!(request.check().is_ok(), passes, "{host:?}");
        };
        check("nas2", true);
        check("küche am ☕", true);
        for wrong in [
            "",
            " ",
            "\u{3000}\u{a0}",
            "a\nb",
            "a\u{85}b",
            "\0",
            &"x".repeat(LABEL_MAX + 1),
        ] {
            check(wrong, false);
        }
    }

    #[test]
    fn the_older_key_of_a_host_is_named_by_its_id() {
        let check = |id: &str, passes: bool| {
            let request = JoinRequest {
                code: String::new(),
                host: "nas2".into(),
                proof: None,
                older_key: Some(id.to_owned()),
            };
            assert_eq!(request.check().is_ok(), passes, "{id:?}");
        };
        check("0a1b2c3d", true);
        for wrong in [
            "",
            "0a1b2c3",
            "0a1b2c3de",
            "0A1B2C3D",
            "c3po_0a1b2c3d_secret",
        ] {
            check(wrong, false);
        }
    }

    #[test]
    fn fingerprints_come_back_from_their_text() {
        let print = Fingerprint::of([0xab; 32]);
        assert_eq!(print.to_string(), format!("sha256:{}", "ab".repeat(32)));
        assert_eq!(
            print
                .to_string()
                .to_ascii_uppercase()
                .replace("SHA", "sha")
                .parse(),
            Ok(print)
        );
        for text in ["", "sha256:", "sha256:abcd", "md5:00"] {
            assert_eq!(
                text.parse::<Fingerprint>(),
                Err(JoinError::Fingerprint),
                "{text}"
            );
        }
    }
}
