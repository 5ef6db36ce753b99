//! Origin check: rejects requests made by foreign web pages, because a browser sends them even to this machine and this
//! network. The coordinator's own pages are recognised by its configured origin, never by `Host`, which a foreign page can
//! choose.
//!
//! A foreign page either sends `Origin`, or uses its own name that now resolves to this coordinator (DNS rebinding). On
//! loopback only `localhost` is accepted. On the network, rebinding needs a public DNS name; names that cannot be public are
//! accepted.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use c3po_shared::refusal::{ErrorCode, Refusal};

use super::MCP_PATH;
use super::endpoint::Refused;
use super::pages::{PARTS, is_of_other_site, is_page};
use crate::config::Config;

/// Suffixes that never resolve in public DNS (RFC 6761, 6762 and 8375, and ICANN's `internal`), and the one of home routers.
const OWN: [&str; 5] = [".localhost", ".local", ".home.arpa", ".internal", ".lan"];

/// The paths that the coordinator's own pages call, and those of their parts: a browser sends `Origin` for a module, too.
const OF_PAGES: [&str; 2] = ["/api/v1/", PARTS];

/// The host names that clients may use for this coordinator.
#[derive(Debug, Clone)]
pub(super) struct Names {
    /// The origins of its own pages.
    own: Arc<[String]>,
    /// `None` if credentials are required, because pages do not have them.
    further: Option<Arc<[String]>>,
    /// Whether it serves only this machine.
    is_local: bool,
    /// The `Host` from which requests for pages are redirected, and the origin to which.
    moved: Option<(String, String)>,
}

impl Names {
    pub(super) fn new(config: &Config, scheme: &str, listen: SocketAddr) -> Self {
        let host = |url: &String| Some(url.parse::<http::Uri>().ok()?.host()?.to_ascii_lowercase());
        let further = config
            .allowed_hosts
            .iter()
            .map(|name| name.to_ascii_lowercase());
        let further = further
            .chain(config.public_url.iter().filter_map(host))
            .collect();
        let own = own(config.public_url.as_deref(), scheme, listen);
        let name = format!("localhost:{}", listen.port());
        let is_moved = listen.ip().is_loopback() && !own.contains(&format!("{scheme}://{name}"));
        Self {
            moved: is_moved.then(|| (name, format!("{scheme}://{listen}"))),
            own: own.into(),
            further: config.is_open.then_some(further),
            is_local: listen.ip().is_loopback(),
        }
    }

    /// Returns the URL of a page that was asked for at `localhost`. A browser keeps the fragment.
    fn moved_page(&self, headers: &HeaderMap, path: &str) -> Option<String> {
        let (name, origin) = self.moved.as_ref()?;
        let is_asked = is_page(path) && headers.get(HOST)?.as_bytes() == name.as_bytes();
        is_asked.then(|| format!("{origin}{path}"))
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

    /// Returns whether the origin is one of the own pages, and the path one that they call.
    fn is_of_own_page(&self, from: &HeaderValue, path: &str) -> bool {
        let is_own = |own: &String| own.as_bytes() == from.as_bytes();
        let is_called = OF_PAGES.iter().any(|begin| path.starts_with(begin));
        is_called && self.own.iter().any(is_own)
    }

    /// Returns a `FORBIDDEN` refusal for a request that a foreign page may have sent. `/mcp` checks `Origin` itself.
    fn check(&self, headers: &HeaderMap, path: &str) -> Result<(), Refusal> {
        let from = headers
            .get_all(ORIGIN)
            .iter()
            .find(|from| !self.is_of_own_page(from, path));
        if from.is_some() && !path.starts_with(MCP_PATH) {
            let error = "requests from web pages (with an Origin header) are not accepted";
            return Err(Refusal::new(ErrorCode::Forbidden, error).suggest(
                "Send the request without the Origin header. If this page is the coordinator's own, start the \
                 coordinator with --public-url and the address of the page.",
            ));
        }
        // A link on another site may lead to a page, which has no data.
        let is_checked = !path.starts_with(MCP_PATH) && !is_page(path);
        if is_checked && is_of_other_site(headers) {
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

/// Returns the origins of the coordinator's own pages: that of its public URL, and on loopback that of the address on which
/// it listens. `localhost` is both 127.0.0.1 and `[::1]`, and another user may hold the one that the coordinator leaves free.
/// It is no origin of the pages, with TLS either: a browser applies an accepted certificate to every port of a host name.
pub(super) fn own(public_url: Option<&str>, scheme: &str, listen: SocketAddr) -> Vec<String> {
    let is_local = listen.ip().is_loopback();
    let listening = is_local.then(|| format!("{scheme}://{listen}"));
    let urls = public_url.map(str::to_owned).into_iter();
    urls.chain(listening).map(|url| origin(&url)).collect()
}

/// Returns the origin that a browser sends for a page at that URL: in lower case, without the default port.
pub(super) fn origin(url: &str) -> String {
    let url = url.to_ascii_lowercase();
    let url = url.trim_end_matches('/');
    let default = if url.starts_with("https://") {
        ":443"
    } else {
        ":80"
    };
    url.strip_suffix(default).unwrap_or(url).to_owned()
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
    let (headers, path) = (request.headers(), request.uri().path());
    if let Some(url) = names.moved_page(headers, path) {
        return Redirect::temporary(&url).into_response();
    }
    match names.check(headers, path) {
        Ok(()) => next.run(request).await,
        Err(refusal) => Refused::from(refusal).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FETCH_SITE: &str = "sec-fetch-site";

    fn open(further: &[&str]) -> Names {
        Names {
            own: own_of("192.168.1.7:8420", Some("https://Nas.example.org:443/")),
            further: Some(further.iter().map(|name| (*name).to_owned()).collect()),
            is_local: false,
            moved: None,
        }
    }

    fn closed() -> Names {
        Names {
            own: own_of("127.0.0.1:8420", None),
            further: None,
            is_local: false,
            moved: None,
        }
    }

    fn own_of(listen: &str, public_url: Option<&str>) -> Arc<[String]> {
        own(public_url, "http", listen.parse().expect("an address")).into()
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

    #[test]
    fn the_own_pages_have_the_configured_origin_alone_and_call_one_part_of_the_paths() {
        let check = |names: &Names, path: &str, origin: &str, expected: bool| {
            let headers = [("host", "localhost"), ("origin", origin)];
            assert_eq!(refuses(names, path, &headers), !expected, "{path} {origin}");
        };
        let login = "/api/v1/login";
        let own = "http://127.0.0.1:8420";
        check(&closed(), login, own, true);
        check(&closed(), "/web/login.js", own, true);
        for path in ["/api/agents", "/acp", "/metrics", "/login", "/api/v1"] {
            check(&closed(), path, own, false);
        }
        for foreign in [
            "http://localhost:3000",
            "http://localhost:8420",
            "http://[::1]:8420",
            "https://localhost:8420",
            "http://other.localhost:8420",
            "http://LOCALHOST:8420",
            "http://localhost:84200",
            "null",
            "",
        ] {
            check(&closed(), login, foreign, false);
            check(&closed(), "/web/login.js", foreign, false);
        }
        let public = open(&["nas.example.org"]);
        check(&public, login, "https://nas.example.org", true);
        check(&public, login, "http://nas.example.org", false);
        check(&public, login, "http://192.168.1.7:8420", false);
        let two = [
            ("host", "localhost"),
            ("origin", "http://127.0.0.1:8420"),
            ("origin", "http://evil.example"),
        ];
        let mut headers = HeaderMap::new();
        for (name, value) in two {
            headers.append(name, value.parse().expect("a header value"));
        }
        assert!(closed().check(&headers, login).is_err());
    }

    #[test]
    fn localhost_is_no_origin_of_the_pages() {
        let listen = "127.0.0.1:8420".parse().expect("an address");
        for scheme in ["http", "https"] {
            let own = own(None, scheme, listen);
            assert_eq!(own, [format!("{scheme}://127.0.0.1:8420")]);
        }
    }

    #[test]
    fn a_link_on_another_site_leads_to_a_page_and_to_nothing_else() {
        let headers = [("host", "localhost"), (FETCH_SITE, "cross-site")];
        assert!(!refuses(&closed(), "/login", &headers));
        for path in ["/api/v1/me", "/api/v1/login", "/web/login.js", "/loginx"] {
            assert!(refuses(&closed(), path, &headers), "{path}");
        }
    }
}
