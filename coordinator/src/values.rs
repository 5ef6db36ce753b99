//! Values of settings, parsed and checked.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use c3po_shared::join::KEY_PREFIX;
use c3po_shared::limits::{MESSAGE_LIFE_MAX, MESSAGE_LIFE_MIN};
use c3po_shared::login::TOKEN_PREFIX;
use c3po_shared::time::Span;

use crate::address::CertificateFiles;
use crate::bytes::bytes;

/// The shortest shared token, in characters.
const TOKEN_MIN: usize = 16;

/// Why a text cannot be the shared token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is short enough to be guessed.
    #[error(
        "a token has at least {TOKEN_MIN} characters: set C3PO_TOKEN to a longer one, such as `openssl rand -hex 32`"
    )]
    Short,
    /// It is a key or a login, which would get every right, also once it is revoked.
    #[error(
        "C3PO_TOKEN (--token) is the key of a host or the login of a person, not the shared token of a coordinator: unset it, or \
         set another one, such as `openssl rand -hex 32`"
    )]
    Other,
}

/// Returns whether a text has a key or a login in it, also behind a quote or a word that an environment file left.
fn has_one(text: &str, prefix: &str) -> bool {
    text.split(prefix).skip(1).any(|rest| {
        let (id, secret) = rest.split_at_checked(ID_LENGTH).unwrap_or_default();
        id.bytes().all(|byte| byte.is_ascii_hexdigit()) && secret.starts_with('_')
    })
}

/// The length of the id in a key or a login, in characters.
const ID_LENGTH: usize = 8;

/// Checks the shared token.
pub(crate) fn check_token(token: &str) -> Result<(), TokenError> {
    if [KEY_PREFIX, TOKEN_PREFIX]
        .iter()
        .any(|prefix| has_one(token, prefix))
    {
        return Err(TokenError::Other);
    }
    if token.len() < TOKEN_MIN {
        return Err(TokenError::Short);
    }
    Ok(())
}

/// Whether clients use TLS, and which certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tls {
    /// No TLS.
    Off,
    /// A self-signed certificate that the coordinator makes and keeps.
    Auto,
    /// These files, reloaded when they change.
    Files(CertificateFiles),
}

/// The text is not a TLS setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it must be auto, off, or CERT,KEY, the files of a certificate and its key")]
pub struct TlsError;

impl FromStr for Tls {
    type Err = TlsError;

    fn from_str(text: &str) -> Result<Self, TlsError> {
        match text
            .split_once(',')
            .map(|(certificate, key)| (certificate.trim(), key.trim()))
        {
            None if text == "off" => Ok(Self::Off),
            None if text == "auto" => Ok(Self::Auto),
            Some((certificate, key)) if !certificate.is_empty() && !key.is_empty() => {
                Ok(Self::Files(CertificateFiles {
                    certificate: certificate.into(),
                    key: key.into(),
                }))
            }
            _ => Err(TlsError),
        }
    }
}

/// Returns the TLS setting. By default TLS is off with `--open`, and on loopback without `--closed`. With `--closed`, another
/// user of the machine could take the port while the coordinator is down, and receive the keys.
pub(crate) fn tls(chosen: Option<Tls>, listen: IpAddr, open: bool, closed: bool) -> Tls {
    let is_trusted = open || (listen.is_loopback() && !closed);
    chosen.unwrap_or(if is_trusted { Tls::Off } else { Tls::Auto })
}

/// Parses the lifetime of messages and checks its bounds.
pub(crate) fn message_life(text: &str) -> Result<Duration, String> {
    let life = text
        .parse::<Span>()
        .map_err(|error| error.to_string())?
        .duration();
    if !(MESSAGE_LIFE_MIN..=MESSAGE_LIFE_MAX).contains(&life) {
        return Err("it must be from 1 hour to 30 days, such as 1h, 7d or 30d".to_owned());
    }
    Ok(life)
}

/// Returns the default folder for the coordinator's own files, or `None` if neither variable names a folder.
pub(crate) fn default_data_dir(
    data_home: Option<OsString>,
    home: Option<OsString>,
) -> Option<PathBuf> {
    let set = |folder: &OsString| !folder.is_empty();
    let folder = match (data_home.filter(set), home.filter(set)) {
        (Some(data), _) => PathBuf::from(data),
        (None, Some(home)) => PathBuf::from(home).join(".local/share"),
        (None, None) => return None,
    };
    Some(folder.join("c3po"))
}

/// Parses a quota, which must have room for any message, or 0.
pub(crate) fn quota(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        limit @ 1..QUOTA_MIN => Err(format!(
            "{limit} bytes are less than one long message needs: write 1MB or more, or 0"
        )),
        limit => Ok(limit),
    }
}

/// Parses a URL that people paste into a shell. It must not contain any character with a meaning to the shell.
pub(crate) fn url_of_hosts(text: &str) -> Result<String, String> {
    let place = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"))
        .unwrap_or_default();
    let place = place.strip_suffix('/').unwrap_or(place);
    let is_harmless = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
    if place.is_empty() || !place.chars().all(is_harmless) {
        return Err("write it as https://HOST:PORT, without a path".to_owned());
    }
    let (host, port) = place.split_at(place.find(':').unwrap_or(place.len()));
    let is_two = host.trim_end_matches('.').eq_ignore_ascii_case("localhost");
    if is_two && text.starts_with("http://") {
        return Err(format!(
            "without TLS, another user of this machine may answer at localhost, which means both 127.0.0.1 and [::1]: \
             write http://127.0.0.1{port}"
        ));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// A text that is never printed. Parsing never fails, because an error of the command line would repeat the text.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Returns the text, for comparison.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The smallest quota, in bytes, which has room for the longest message.
const QUOTA_MIN: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_for_hosts_is_nothing_to_a_shell() {
        for url in [
            "https://nas:8420",
            "http://192.168.1.7",
            "https://[fe80::1]:8420",
            "https://nas.example.org/",
        ] {
            assert_eq!(url_of_hosts(url).as_deref(), Ok(url.trim_end_matches('/')));
        }
        for url in [
            "nas:8420",
            "https://",
            "https://nas/$(id)",
            "https://nas';touch x;'",
            "https://nas\nx",
            "ftp://nas",
        ] {
            assert!(url_of_hosts(url).is_err(), "{url}");
        }
        for url in ["http://localhost:8420/", "http://LocalHost.:8420"] {
            let error = url_of_hosts(url).expect_err("two addresses");
            assert!(error.ends_with("write http://127.0.0.1:8420"), "{error}");
        }
        assert!(url_of_hosts("https://localhost:8420").is_ok());
    }
}
