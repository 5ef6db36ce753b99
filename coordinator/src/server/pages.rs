//! The static pages for browsers. They contain no data: a page reads everything with the login of its device.

use std::future::ready;

use axum::Router;
use axum::extract::Request;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use c3po_shared::login;
use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};

use super::AppState;

/// Scripts, styles and requests of the own origin only; no frames, no forms to other places, no HTML made by scripts.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// The beginning of the paths of scripts and styles.
pub(super) const PARTS: &str = "/web/";

/// The page of the link of a code.
const LINKED: &str = "/login/{id}";

/// The page that lists the questions to people. Followed by `/` and an id, it is the page of one question.
const QUESTIONS: &str = "/q";
const QUESTION: &str = "/q/{id}";

/// The page in place of a question to which another site led: presses that were meant for that site decide nothing.
const STEP: PageFile = file(QUESTION, HTML, include_bytes!("../../web/step.html"));

/// The header in which a browser reports whether the requesting page is of the same site.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The headers of every page and of its parts. A browser asks each time whether its copy is the present one.
const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

/// Empties the cache of the browser for this origin: without TLS another server may have had the port, and its copies of the
/// parts live on. A browser with a large cache takes half a second for that.
const CLEARED: (HeaderName, HeaderValue) = (
    HeaderName::from_static("clear-site-data"),
    HeaderValue::from_static("\"cache\""),
);

/// A browser fetches the script of a worker anew with each visit of a page. It names its scope, so that the path does not
/// matter.
const WORKER: &[u8] = include_bytes!("../../web/worker.js");
const WORKER_HEADERS: [(HeaderName, HeaderValue); 3] = [
    (CONTENT_TYPE, HeaderValue::from_static(SCRIPT)),
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (
        HeaderName::from_static("service-worker-allowed"),
        HeaderValue::from_static("/"),
    ),
];

/// A file of the program.
#[derive(Debug, Clone, Copy)]
struct PageFile {
    path: &'static str,
    media: &'static str,
    content: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

const fn file(path: &'static str, media: &'static str, content: &'static [u8]) -> PageFile {
    PageFile {
        path,
        media,
        content,
    }
}

const FILES: [PageFile; 19] = [
    file(login::PAGE, HTML, include_bytes!("../../web/login.html")),
    file(LINKED, HTML, include_bytes!("../../web/login.html")),
    file(QUESTIONS, HTML, include_bytes!("../../web/q.html")),
    file(QUESTION, HTML, include_bytes!("../../web/q.html")),
    file("/web/page.css", STYLE, include_bytes!("../../web/page.css")),
    file("/web/q.css", STYLE, include_bytes!("../../web/q.css")),
    file(
        "/web/answer.js",
        SCRIPT,
        include_bytes!("../../web/answer.js"),
    ),
    file("/web/api.js", SCRIPT, include_bytes!("../../web/api.js")),
    file(
        "/web/decide.js",
        SCRIPT,
        include_bytes!("../../web/decide.js"),
    ),
    file("/web/dom.js", SCRIPT, include_bytes!("../../web/dom.js")),
    file("/web/list.js", SCRIPT, include_bytes!("../../web/list.js")),
    file(
        "/web/login.js",
        SCRIPT,
        include_bytes!("../../web/login.js"),
    ),
    file(
        "/web/paths.js",
        SCRIPT,
        include_bytes!("../../web/paths.js"),
    ),
    file(
        "/web/presence.js",
        SCRIPT,
        include_bytes!("../../web/presence.js"),
    ),
    file("/web/q.js", SCRIPT, include_bytes!("../../web/q.js")),
    file(
        "/web/question.js",
        SCRIPT,
        include_bytes!("../../web/question.js"),
    ),
    file(
        "/web/receipt.js",
        SCRIPT,
        include_bytes!("../../web/receipt.js"),
    ),
    file(
        "/web/stream.js",
        SCRIPT,
        include_bytes!("../../web/stream.js"),
    ),
    file("/web/text.js", SCRIPT, include_bytes!("../../web/text.js")),
];

/// Returns the routes of the pages.
pub(super) fn router(has_tls: bool) -> Router<AppState> {
    FILES.iter().fold(Router::new(), |router, file| {
        let (own, of_step) = (own_headers(file, has_tls), own_headers(&STEP, has_tls));
        let answer = move |headers: HeaderMap| {
            let (file, own) = if file.path == QUESTION && is_led(&headers) {
                (&STEP, &of_step)
            } else {
                (file, &own)
            };
            ready(respond(file, own, &headers))
        };
        router.route(file.path, get(answer))
    })
}

/// Returns whether a page of another site, or of another port of this one, made a browser send the request.
pub(super) fn is_of_other_site(headers: &HeaderMap) -> bool {
    let site = headers.get(FETCH_SITE).map(HeaderValue::as_bytes);
    matches!(site, Some(b"cross-site" | b"same-site"))
}

/// Returns whether another site may have led to the page: also by having a browser fetch it ahead of its use, which leaves no
/// name of that site.
fn is_led(headers: &HeaderMap) -> bool {
    is_of_other_site(headers) || headers.contains_key("sec-purpose")
}

/// Answers the browser's request for the script of a worker, whose server had the port before, with one that ends itself.
pub(super) async fn end_workers(request: Request, next: Next) -> Response {
    let wanted = request.headers().get("service-worker");
    if wanted.is_some_and(|what| what == "script") {
        return (WORKER_HEADERS, WORKER).into_response();
    }
    next.run(request).await
}

/// Returns the file, or its headers alone if the client has this version.
fn respond(file: &PageFile, own: &HeaderMap, headers: &HeaderMap) -> Response {
    if headers.get(IF_NONE_MATCH) == own.get(ETAG) {
        return (StatusCode::NOT_MODIFIED, HEADERS, own.clone()).into_response();
    }
    let media = [(CONTENT_TYPE, HeaderValue::from_static(file.media))];
    (HEADERS, own.clone(), media, file.content).into_response()
}

/// Returns the headers that not all files have: the tag, and on a page without TLS the one that empties the cache.
fn own_headers(file: &PageFile, has_tls: bool) -> HeaderMap {
    let cleared = (is_page(file.path) && !has_tls).then_some(CLEARED);
    [(ETAG, tag(file.content))]
        .into_iter()
        .chain(cleared)
        .collect()
}

/// Returns the tag of a version of a file: its hash.
fn tag(content: &[u8]) -> HeaderValue {
    let hash = HEXLOWER.encode(digest(&SHA256, content).as_ref());
    HeaderValue::try_from(format!("\"{hash}\"")).expect("digits in quotes are a header value")
}

/// Returns whether that path is a page, which links on other sites may lead to.
pub(super) fn is_page(path: &str) -> bool {
    let is_below = |rest: &str| rest.is_empty() || rest.starts_with('/');
    [login::PAGE, QUESTIONS]
        .iter()
        .any(|page| path.strip_prefix(page).is_some_and(is_below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_pages_themselves_are_pages() {
        for page in [
            "/login",
            "/login/0a1b2c3d",
            "/q",
            "/q/",
            "/q/web::human::0000000a",
        ] {
            assert!(is_page(page), "{page}");
        }
        for other in [
            "/",
            "/loginx",
            "/qx",
            "/web/q.js",
            "/api/v1/questions",
            "/web/login/q",
        ] {
            assert!(!is_page(other), "{other}");
        }
    }

    #[test]
    fn a_question_that_is_fetched_ahead_is_shown_after_a_step() {
        let led = |name: &'static str, value: &'static str| {
            let name = HeaderName::from_static(name);
            is_led(&HeaderMap::from_iter([(
                name,
                HeaderValue::from_static(value),
            )]))
        };
        assert!(led("sec-purpose", "prefetch") && led("sec-fetch-site", "same-site"));
        assert!(!led("sec-fetch-site", "none") && !led("sec-fetch-site", "same-origin"));
    }

    #[test]
    fn a_page_without_tls_empties_the_cache() {
        let clears = |at: usize, has_tls| own_headers(&FILES[at], has_tls).contains_key(&CLEARED.0);
        assert!((0..4).all(|at| clears(at, false)));
        assert!(!clears(0, true) && !clears(4, false), "with TLS, or a part");
    }

    #[test]
    fn a_browser_that_has_this_version_gets_its_headers_alone() {
        let file = &FILES[0];
        let tag = tag(file.content);
        let status = |seen: Option<&HeaderValue>| {
            let seen = seen.map(|tag| (IF_NONE_MATCH, tag.clone()));
            let own = own_headers(file, true);
            let answer = respond(file, &own, &seen.into_iter().collect());
            assert_eq!(answer.headers().get(ETAG), Some(&tag));
            assert!(answer.headers().contains_key(CONTENT_SECURITY_POLICY));
            answer.status()
        };
        assert_eq!(status(None), StatusCode::OK);
        assert_eq!(status(Some(&tag)), StatusCode::NOT_MODIFIED);
        assert_eq!(status(Some(&super::tag(b"another"))), StatusCode::OK);
    }
}
