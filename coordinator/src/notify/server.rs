//! The address of an ntfy server.

use std::fmt;

/// An ntfy server, by its URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    pub(super) tls: bool,
    /// The host, an IPv6 address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// Host and port as the URL has them.
    pub(super) authority: String,
}

impl Server {
    /// Parses `https://HOST[:PORT]` or `http://HOST[:PORT]`.
    ///
    /// Errors: it is something else.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("server is {text}; write it as https://HOST or https://HOST:PORT");
        let (tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err(wrong()),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
        if authority.is_empty() || !authority.chars().all(is_plain) {
            return Err(wrong());
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong())?)
            }
            _ => (authority, if tls { 443 } else { 80 }),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(wrong());
        }
        Ok(Self {
            tls,
            host: host.to_owned(),
            port,
            authority: authority.to_owned(),
        })
    }

    /// Returns its URL, without a slash at the end.
    pub(super) fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_url_without_a_path() {
        for (url, tls, host, port) in [
            ("https://ntfy.sh", true, "ntfy.sh", 443),
            (
                "https://ntfy.example.org:8443/",
                true,
                "ntfy.example.org",
                8443,
            ),
            ("http://127.0.0.1:2586", false, "127.0.0.1", 2586),
            ("http://[::1]:2586", false, "::1", 2586),
            ("http://[::1]", false, "::1", 80),
        ] {
            let server = Server::parse(url).expect(url);
            assert_eq!(
                (server.tls, server.host.as_str(), server.port),
                (tls, host, port),
                "{url}"
            );
        }
        for url in [
            "ntfy.sh",
            "https://",
            "https://a/b",
            "https://a:x",
            "https://u@h",
            "ftp://a",
        ] {
            assert!(Server::parse(url).is_err(), "{url}");
        }
    }
}
