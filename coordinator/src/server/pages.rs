//! The static pages for browsers. They contain no data: a page reads everything with the login of its device.

use axum::Router;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue};
use axum::response::IntoResponse;
use axum::routing::get;
use c3po_shared::login;

use super::AppState;

/// Scripts, styles and requests of the own origin only; no frames, no forms to other places, no HTML made by scripts.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// The beginning of the paths of scripts and styles.
pub(super) const PARTS: &str = "/web/";

/// The headers of every page and of its parts.
const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
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

/// A file of the program.
#[derive(Debug, Clone, Copy)]
struct PageFile {
    path: &'static str,
    media: &'static str,
    content: &'static [u8],
}

const FILES: [PageFile; 3] = [
    PageFile {
        path: login::PAGE,
        media: "text/html; charset=utf-8",
        content: include_bytes!("../../web/login.html"),
    },
    PageFile {
        path: "/web/login.js",
        media: "text/javascript; charset=utf-8",
        content: include_bytes!("../../web/login.js"),
    },
    PageFile {
        path: "/web/login.css",
        media: "text/css; charset=utf-8",
        content: include_bytes!("../../web/login.css"),
    },
];

/// Returns the routes of the pages.
pub(super) fn router() -> Router<AppState> {
    FILES.iter().fold(Router::new(), |router, file| {
        let media = [(CONTENT_TYPE, HeaderValue::from_static(file.media))];
        router.route(
            file.path,
            get(async move || (HEADERS, media, file.content).into_response()),
        )
    })
}

/// Returns whether that path is a page, which links on other sites may lead to.
pub(super) fn is_page(path: &str) -> bool {
    path == login::PAGE
}
