//! Origin check: rejects requests made by web pages, because a browser sends them even to this machine and this network.
//!
//! A foreign page either sends `Origin`, or uses its own name that now resolves to this coordinator (DNS rebinding). On
//! loopback only `localhost` is accepted. On the network, rebinding needs a public DNS name; names that cannot be public are
//! accepted.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use c3po_shared::refusal::{ErrorCode, Refusal};

use super::MCP_PATH;
use super::endpoint::Refused;
use crate::config::Config;

/// Suffixes that never resolve in public DNS (RFC 6761, 6762 and 8375, and ICANN's `internal`), and the one of home routers.
const OWN: [&str; 5] = [".localhost", ".local", ".home.arpa", ".internal", ".lan"];

/// The header in which a browser reports whether the requesting page is of the same site.
const FETCH_SITE: &str = "sec-fetch-site";

/// The host names that clients may use for this coordinator.
#[derive(Debug, Clone)]
pub(super) struct Names {
    /// `None` if credentials are required, because pages do not have them.
    further: Option<Arc<[String]>>,
    /// Whether it serves only this machine.
    is_local: bool,
}

impl Names {
    pub(super) fn new(config: &Config, listen: IpAddr) -> Self {
        let host = |url: &String| Some(url.parse::<http::Uri>().ok()?.host()?.to_ascii_lowercase());
        let further = config
            .allowed_hosts
            .iter()
            .map(|name| name.to_ascii_lowercase());
        let further = further
            .chain(config.public_url.iter().filter_map(host))
            .collect();
        Self {
            further: config.is_open.then_some(further),
            is_local: listen.is_loopback(),
        }
    }

    /// Returns whether a name is an address or cannot belong to a foreign page. On loopback only `localhost` qualifies, since
    /// any device of the network may use `name` or `name.local`. On the network, any name qualifies that cannot be public in
    /// DNS.
    fn is_own(&self, name: &str) -> bool {
        match address(name) {
            Some(address) => !self.is_local || address.is_loopback(),
            None if self.is_local => name == "localhost",
            None => !name.contains(['.', ':']) || OWN.iter().any(|ending| name.ends_with(ending)),
        }
    }

    /// Returns a `FORBIDDEN` refusal for a request that a foreign page may have sent. `/mcp` checks `Origin` itself.
    fn check(&self, headers: &HeaderMap, path: &str) -> Result<(), Refusal> {
        if headers.contains_key(ORIGIN) && !path.starts_with(MCP_PATH) {
            let error = "requests from web pages (with an Origin header) are not accepted";
            return Err(Refusal::new(ErrorCode::Forbidden, error)
                .suggest("Send the request without the Origin header."));
        }
        let site = headers.get(FETCH_SITE).map(|site| site.as_bytes());
        if matches!(site, Some(b"cross-site" | b"same-site")) && !path.starts_with(MCP_PATH) {
            let error = "requests from pages of other sites (with Sec-Fetch-Site) are not accepted";
            return Err(Refusal::new(ErrorCode::Forbidden, error)
                .suggest("Send the request without the Sec-Fetch-Site header."));
        }
        // A browser always sends the name that it used.
        let (Some(further), Some(host)) = (&self.further, headers.get(HOST)) else {
            return Ok(());
        };
        let authority: Option<Authority> = host.to_str().ok().and_then(|host| host.parse().ok());
        let name = authority.map(|authority| authority.host().to_ascii_lowercase());
        match name {
            Some(name) if self.is_own(&name) || further.contains(&name) => Ok(()),
            _ => {
                let error =
                    "the Host header has a public name, which an open coordinator does not accept";
                Err(Refusal::new(ErrorCode::Forbidden, error).suggest(
                    "Add the name to C3PO_ALLOWED_HOSTS of the coordinator, use its IP address, or require credentials \
                     (--closed).",
                ))
            }
        }
    }
}

/// Parses the name as an address.
fn address(name: &str) -> Option<IpAddr> {
    let bare = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    bare.map_or_else(
        || name.parse().ok().map(IpAddr::V4),
        |bare| bare.parse().ok().map(IpAddr::V6),
    )
}

/// Rejects requests that a web page may have sent, before any other check.
pub(super) async fn layer(State(names): State<Names>, request: Request, next: Next) -> Response {
    match names.check(request.headers(), request.uri().path()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => Refused::from(refusal).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(further: &[&str]) -> Names {
        Names {
            further: Some(further.iter().map(|name| (*name).to_owned()).collect()),
            is_local: false,
        }
    }

    fn closed() -> Names {
        Names {
            further: None,
            is_local: false,
        }
    }

    fn refuses(names: &Names, path: &str, headers: &[(&'static str, &str)]) -> bool {
        let value = |(name, value): &(&'static str, &str)| {
            (
                http::HeaderName::from_static(name),
                value.parse().expect("a header value"),
            )
        };
        names
            .check(&headers.iter().map(value).collect(), path)
            .is_err()
    }

    #[test]
    fn an_open_coordinator_answers_to_its_own_names_only() {
        let names = open(&["nas.example.org"]);
        for own in [
            "127.0.0.1:8420",
            "[::1]:8420",
            "192.168.1.7",
            "localhost:1",
            "nas",
            "NAS.local",
            "nas.example.org:8420",
        ] {
            assert!(!refuses(&names, "/api/agents", &[("host", own)]), "{own}");
        }
        for other in [
            "evil.example:8420",
            "evil.example.",
            "1.2.3.4.evil.example",
            "",
            "a b",
            "local.evil.example",
        ] {
            assert!(
                refuses(&names, "/api/agents", &[("host", other)]),
                "{other}"
            );
            assert!(
                !refuses(&closed(), "/api/agents", &[("host", other)]),
                "a page has no key"
            );
        }
        assert!(!refuses(&names, "/api/agents", &[]));
    }

    #[test]
    fn an_open_coordinator_on_loopback_answers_to_localhost_alone() {
        let names = Names {
            is_local: true,
            ..open(&["nas.example.org"])
        };
        for own in [
            "127.0.0.1:8420",
            "127.9.9.9",
            "[::1]:8420",
            "localhost:1",
            "LOCALHOST",
            "nas.example.org:8420",
        ] {
            assert!(!refuses(&names, "/api/agents", &[("host", own)]), "{own}");
        }
        for other in [
            "evil.local:8420",
            "evil",
            "evil.lan",
            "a.localhost",
            "192.168.1.7",
            "[fe80::1]",
            "0.0.0.0",
        ] {
            assert!(
                refuses(&names, "/api/agents", &[("host", other)]),
                "{other}"
            );
        }
    }

    #[test]
    fn requests_from_pages_of_other_sites_are_refused() {
        for names in [open(&[]), closed()] {
            for (site, expected) in [
                ("cross-site", true),
                ("same-site", true),
                ("same-origin", false),
                ("none", false),
            ] {
                let headers = [("host", "localhost"), (FETCH_SITE, site)];
                assert_eq!(refuses(&names, "/api/agents", &headers), expected, "{site}");
                assert!(
                    !refuses(&names, "/mcp", &headers),
                    "{site}: it looks at Origin"
                );
            }
        }
    }

    #[test]
    fn requests_with_the_headers_of_a_page_are_refused() {
        for names in [open(&[]), closed()] {
            for origin in ["http://evil.example", "http://localhost:3000", "null"] {
                assert!(
                    refuses(&names, "/acp", &[("host", "localhost"), ("origin", origin)]),
                    "{origin}"
                );
            }
            assert!(!refuses(
                &names,
                "/mcp",
                &[("host", "localhost"), ("origin", "http://localhost:3000")]
            ));
        }
    }
}
