//! How a host is let in: the code that it is given, what it asks with that, and the fingerprint by which it knows its coordinator.

use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER_PERMISSIVE};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::LABEL_MAX;
use crate::refusal::Refusal;
use crate::text::check_plain;

/// The path at which a coordinator lets hosts in.
pub const PATH: &str = "/api/join";
/// The variable that carries a code to `c3po join`, and to the script that fetches it.
pub const CODE_VARIABLE: &str = "C3PO_JOIN_CODE";
/// What the text of every key begins with, so that one is known where it should not be.
pub const KEY_PREFIX: &str = "c3po_";
/// What a fingerprint begins with.
const SHA256: &str = "sha256:";
/// The bytes of what a code proves itself by.
const SECRET_LENGTH: usize = 16;
/// The characters of a key's id.
const KEY_ID_LENGTH: usize = 8;
/// The bytes of a fingerprint.
const FINGERPRINT_LENGTH: usize = 32;

/// The SHA-256 of a certificate in DER form: `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; FINGERPRINT_LENGTH]);

impl Fingerprint {
    /// The fingerprint with these bytes.
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

/// Why a text is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// Not a fingerprint.
    #[error("a fingerprint is sha256: and 64 hexadecimal digits")]
    Fingerprint,
    /// Not a code, or one that was cut off.
    #[error("this is no join code: copy the whole line that the coordinator printed")]
    Code,
}

impl FromStr for Fingerprint {
    type Err = JoinError;

    fn from_str(text: &str) -> Result<Self, JoinError> {
        let digits = text.trim().strip_prefix(SHA256).ok_or(JoinError::Fingerprint)?;
        let bytes = HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).map_err(|_| JoinError::Fingerprint)?;
        bytes.try_into().map(Self).map_err(|_| JoinError::Fingerprint)
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What a new host is given: a secret that lets it in once, and how it knows that it speaks to the right coordinator.
///
/// The text is base64url. It is as good as a key while it lasts, so it is never logged.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinCode {
    secret: [u8; SECRET_LENGTH],
    /// The coordinator's certificate; `None` where it speaks no TLS.
    pub fingerprint: Option<Fingerprint>,
}

impl JoinCode {
    /// Makes the code of a secret.
    pub fn new(secret: [u8; SECRET_LENGTH], fingerprint: Option<Fingerprint>) -> Self {
        Self { secret, fingerprint }
    }

    /// Returns the secret as it is presented: all that the coordinator has to see of a code.
    pub fn secret(&self) -> String {
        BASE64URL_NOPAD.encode(&self.secret)
    }

    /// Returns the whole code as text.
    pub fn reveal(&self) -> String {
        let fingerprint = self.fingerprint.iter().flat_map(|fingerprint| fingerprint.0);
        BASE64URL_NOPAD.encode(&self.secret.iter().copied().chain(fingerprint).collect::<Vec<_>>())
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
        let bytes = BASE64URL_NOPAD.decode(text.trim().as_bytes()).map_err(|_| JoinError::Code)?;
        let (secret, fingerprint) = bytes.split_first_chunk().ok_or(JoinError::Code)?;
        let fingerprint = match fingerprint {
            [] => None,
            digest => Some(Fingerprint(digest.try_into().map_err(|_| JoinError::Code)?)),
        };
        Ok(Self { secret: *secret, fingerprint })
    }
}

/// What a host says at [`PATH`], as a POST.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinRequest {
    /// The secret of its code.
    pub code: String,
    /// Its name, by which its key is listed.
    #[schemars(length(max = LABEL_MAX), regex(pattern = NAME_PATTERN))]
    pub host: String,
    /// That it has a key of this fleet already, by which it keeps the host of that: [`proof`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub proof: Option<String>,
    /// The id of the key that it has already, which is no secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{8}$"))]
    pub older_key: Option<String>,
}

/// Returns what proves to a coordinator that whoever presents a code has a key as well. It tells nobody the key, and is worth
/// nothing with another code.
pub fn proof(key: &str, code: &str) -> String {
    blake3::keyed_hash(blake3::hash(key.as_bytes()).as_bytes(), code.trim().as_bytes()).to_hex().to_string()
}

/// Returns the [`proof`] of a key of which only the hash is known, as 64 hexadecimal digits; `None` where it is not one.
pub fn proof_of(hash: &str, code: &str) -> Option<String> {
    let hash = blake3::Hash::from_hex(hash).ok()?;
    Some(blake3::keyed_hash(hash.as_bytes(), code.trim().as_bytes()).to_hex().to_string())
}

impl fmt::Debug for JoinRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinRequest").field("host", &self.host).finish_non_exhaustive()
    }
}

impl JoinRequest {
    /// Checks what was said.
    ///
    /// Errors: as [`check_name`], and `INVALID_REQUEST` if the older key's id is not an id.
    pub fn check(&self) -> Result<(), Refusal> {
        let is_digit = |c: char| matches!(c, '0'..='9' | 'a'..='f');
        match &self.older_key {
            Some(id) if id.len() != KEY_ID_LENGTH || !id.chars().all(is_digit) => {
                Err(Refusal::invalid("older_key: it is not the id of a key"))
            }
            _ => check_name("host", &self.host),
        }
    }
}

/// The characters that [`check_plain`] refuses, for a pattern.
macro_rules! obeyed {
    () => {
        "\\u0000-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ufeff"
    };
}

/// What the name of a key or a host looks like: no control characters, and not only spaces.
pub const NAME_PATTERN: &str = concat!("^[^", obeyed!(), "]*[^\\s", obeyed!(), "][^", obeyed!(), "]*$");

/// Checks the name of a key or a host, which stands in the field of that name.
///
/// Errors: `INVALID_REQUEST` where it does not look like [`NAME_PATTERN`], `PAYLOAD_TOO_LARGE` where it is too long.
pub fn check_name(field: &str, name: &str) -> Result<(), Refusal> {
    let count = name.chars().count();
    match count {
        _ if count > LABEL_MAX => Err(Refusal::too_large(field, count, LABEL_MAX)),
        _ if name.trim().is_empty() => Err(Refusal::invalid(format!("{field}: it is empty"))),
        _ => check_plain(field, name),
    }
}

/// What a host that was let in gets. The key is never said again.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub struct JoinReply {
    /// What it presents from now on.
    pub key: String,
    /// The name of the key in lists.
    pub key_id: String,
    /// As which agents it may speak.
    pub agents: Vec<String>,
    /// When the key ends by itself, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Which host it is from now on. Coordinators before this was decided do not say it.
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
    /// The command that ends it, on the coordinator's machine.
    pub revoke: String,
}

impl fmt::Debug for JoinReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinReply").field("key_id", &self.key_id).finish_non_exhaustive()
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
    fn what_is_no_code_is_refused() {
        let whole = JoinCode::new([1; 16], Some(Fingerprint::of([2; 32]))).reveal();
        for text in ["", "c3po", "::", &whole[1..], &whole[..whole.len() - 2], "äöü", &format!("{whole}AAAA")] {
            assert_eq!(text.parse::<JoinCode>(), Err(JoinError::Code), "{text}");
        }
    }

    #[test]
    fn a_host_needs_a_name_before_its_code_is_spent() {
        let check = |host: &str, passes: bool| {
            let request = JoinRequest { code: String::new(), host: host.to_owned(), proof: None, older_key: None };
            assert_eq!(request.check().is_ok(), passes, "{host:?}");
        };
        check("nas2", true);
        check("küche am ☕", true);
        for wrong in ["", " ", "\u{3000}\u{a0}", "a\nb", "a\u{85}b", "\0", &"x".repeat(LABEL_MAX + 1)] {
            check(wrong, false);
        }
    }

    #[test]
    fn a_proof_needs_the_key_and_is_good_for_one_code() {
        let kept = blake3::hash(b"c3po_0a1b2c3d_x").to_hex().to_string();
        let said = proof("c3po_0a1b2c3d_x", "code");
        assert_eq!(proof_of(&kept, "code"), Some(said.clone()));
        assert_ne!(proof_of(&kept, "another"), Some(said.clone()));
        assert_ne!(proof("c3po_0a1b2c3d_y", "code"), said);
        assert_eq!(proof_of("no hash", "code"), None);
    }

    #[test]
    fn the_older_key_of_a_host_is_named_by_its_id() {
        let check = |id: &str, passes: bool| {
            let request =
                JoinRequest { code: String::new(), host: "nas2".into(), proof: None, older_key: Some(id.to_owned()) };
            assert_eq!(request.check().is_ok(), passes, "{id:?}");
        };
        check("0a1b2c3d", true);
        for wrong in ["", "0a1b2c3", "0a1b2c3de", "0A1B2C3D", "c3po_0a1b2c3d_secret"] {
            check(wrong, false);
        }
    }

    #[test]
    fn fingerprints_come_back_from_their_text() {
        let print = Fingerprint::of([0xab; 32]);
        assert_eq!(print.to_string(), format!("sha256:{}", "ab".repeat(32)));
        assert_eq!(print.to_string().to_ascii_uppercase().replace("SHA", "sha").parse(), Ok(print));
        for text in ["", "sha256:", "sha256:abcd", "md5:00"] {
            assert_eq!(text.parse::<Fingerprint>(), Err(JoinError::Fingerprint), "{text}");
        }
    }
}
