//! The secrets of keys, logins and their codes, and their hashes. 128 random bits or more do not need a slow hash.

pub(crate) use c3po_shared::join::KEY_PREFIX;
use c3po_shared::join::{Fingerprint, JoinCode};
pub(crate) use c3po_shared::login::TOKEN_PREFIX as LOGIN_PREFIX;
use data_encoding::{BASE32_NOPAD, BASE64URL_NOPAD, HEXLOWER};
use rustls::crypto::SecureRandom;

/// The length of an id in bytes.
const ID_LENGTH: usize = 4;
/// The length of a secret in bytes.
const SECRET_LENGTH: usize = 32;
/// The length of a login's code in bytes.
const CODE_LENGTH: usize = 16;

/// The system cannot provide random bytes.
#[derive(Debug, thiserror::Error)]
#[error("the system provides no random bytes")]
pub(crate) struct NoRandomness;

/// A new key or login: its secret is returned once and never stored.
pub(crate) struct Fresh {
    /// Its id.
    pub(crate) id: String,
    /// The secret, with prefix and id.
    pub(crate) text: String,
}

impl Fresh {
    /// Makes an id and a secret with that prefix.
    pub(crate) fn make(prefix: &str) -> Result<Self, NoRandomness> {
        Self::of(prefix, id()?)
    }

    /// Makes a new secret for that id.
    pub(crate) fn of(prefix: &str, id: String) -> Result<Self, NoRandomness> {
        let text = format!(
            "{prefix}{id}_{}",
            BASE64URL_NOPAD.encode(&random::<SECRET_LENGTH>()?)
        );
        Ok(Self { id, text })
    }
}

/// Makes the code of an invite. It never looks like a command-line flag.
pub(crate) fn join_code(fingerprint: Option<Fingerprint>) -> Result<JoinCode, NoRandomness> {
    loop {
        let code = JoinCode::new(random()?, fingerprint);
        if !code.reveal().starts_with('-') {
            return Ok(code);
        }
    }
}

/// Makes the code of a login: letters and digits that a person can type.
pub(crate) fn login_code() -> Result<String, NoRandomness> {
    Ok(BASE32_NOPAD
        .encode(&random::<CODE_LENGTH>()?)
        .to_ascii_lowercase())
}

/// Makes the id of a key, a login, or a code.
pub(crate) fn id() -> Result<String, NoRandomness> {
    Ok(HEXLOWER.encode(&random::<ID_LENGTH>()?))
}

/// Returns whether the text has the form of such an id.
pub(crate) fn is_id(text: &str) -> bool {
    let is_digit = |letter| matches!(letter, b'0'..=b'9' | b'a'..=b'f');
    text.len() == 2 * ID_LENGTH && text.bytes().all(is_digit)
}

/// Returns the hash of a secret, 64 hexadecimal digits.
pub(crate) fn hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

/// Returns whether the text has that hash, in constant time.
pub(crate) fn is_hash_of(hash: &blake3::Hash, text: &str) -> bool {
    // The comparison of two hashes takes constant time.
    blake3::hash(text.as_bytes()) == *hash
}

/// Returns the id inside a secret with that prefix.
pub(crate) fn id_of<'a>(prefix: &str, text: &'a str) -> Option<&'a str> {
    text.strip_prefix(prefix)?.split_once('_').map(|(id, _)| id)
}

fn random<const LENGTH: usize>() -> Result<[u8; LENGTH], NoRandomness> {
    let mut bytes = [0; LENGTH];
    let source: &dyn SecureRandom = rustls::crypto::ring::default_provider().secure_random;
    source.fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_by_its_hash_and_no_two_are_alike() {
        let (one, other) = (
            Fresh::make(KEY_PREFIX).expect("random"),
            Fresh::make(KEY_PREFIX).expect("random"),
        );
        assert_ne!(one.text, other.text);
        assert_eq!(id_of(KEY_PREFIX, &one.text), Some(one.id.as_str()));
        let kept = blake3::Hash::from_hex(hash(&one.text)).expect("a hash");
        assert!(is_hash_of(&kept, &one.text) && !is_hash_of(&kept, &other.text));
        let again = Fresh::of(KEY_PREFIX, one.id.clone()).expect("random");
        assert!(id_of(KEY_PREFIX, &again.text) == Some(one.id.as_str()) && again.text != one.text);
        assert_eq!(one.text.len(), "c3po_".len() + 8 + 1 + 43);
    }

    #[test]
    fn no_code_reads_like_a_flag() {
        // Every 64th would begin with it: for 2,000 codes, the chance to see none is 10 to the minus 14.
        assert!(JoinCode::new([0xf8; 16], None).reveal().starts_with('-'));
        assert!((0..2_000).all(|_| !join_code(None).expect("random").reveal().starts_with('-')));
    }

    #[test]
    fn other_texts_name_no_key() {
        for text in [
            "",
            "c3po_",
            "c3po_abc",
            "token",
            "C3PO_a_b",
            "c3po-login_a_b",
        ] {
            assert_eq!(id_of(KEY_PREFIX, text), None, "{text}");
        }
        for text in ["", "c3po_a_b", "c3po-login_abc", "c3po-login"] {
            assert_eq!(id_of(LOGIN_PREFIX, text), None, "{text}");
        }
        assert_eq!(id_of(LOGIN_PREFIX, "c3po-login_a_b"), Some("a"));
    }
}
