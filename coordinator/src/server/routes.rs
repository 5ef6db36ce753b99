//! Every path of REST, in one table: the port serves it, and the description is made of it.

use axum::Router;
use axum::http::Method;
use c3po_shared::join;
use c3po_shared::refusal::ErrorCode;

use super::endpoint::Endpoint;
use super::{Server, audit, description, download, invites, join as joining, keys, policy, rest};
use crate::auth::Right;

const KEYS: &str = "/api/keys";
const KEY: &str = "/api/keys/{id}";
const ROTATE: &str = "/api/keys/{id}/rotate";
const INVITES: &str = "/api/invites";
const INVITE: &str = "/api/invites/{id}";

/// Returns everything that REST can do.
pub(super) fn endpoints() -> Vec<Endpoint> {
    for_monitors().into_iter().chain(for_administrators()).chain(for_new_hosts()).collect()
}

/// Adds the routes of some of them.
pub(super) fn router<'a>(endpoints: impl Iterator<Item = &'a Endpoint>) -> Router<Server> {
    endpoints.map(Endpoint::route).fold(Router::new(), |router, (path, route)| router.route(path, route))
}

fn for_monitors() -> [Endpoint; 8] {
    let get = |path, summary| (Method::GET, path, summary);
    [
        Endpoint::new(get("/api/health", "Whether the coordinator reaches its store"), rest::health),
        Endpoint::new(get(description::PATH, "This description"), description::show),
        Endpoint::new(get("/api/pending", "The inbox of an agent, oldest first; takes nothing out"), rest::pending)
            .needs(Right::Speak),
        Endpoint::new(get("/api/agents", "Every agent"), rest::agents).needs(Right::Look),
        Endpoint::new(
            (Method::POST, "/api/unregister", "Forget an agent, or set it offline where it has mail"),
            rest::unregister,
        )
        .needs(Right::Speak)
        .refuses(&[ErrorCode::Conflict]),
        Endpoint::new(get("/api/policy/check", "What the rules say of a case"), policy::check).needs(Right::Operate),
        Endpoint::new(get("/api/audit", "A page of what happened"), audit::page)
            .needs(Right::Operate)
            .refuses(&[ErrorCode::NotSupported]),
        Endpoint::new(get("/metrics", "Counters, for Prometheus"), rest::metrics).needs(Right::Look),
    ]
}

fn for_administrators() -> [Endpoint; 7] {
    use ErrorCode::{Conflict, InviteNotFound, KeyNotFound};
    let post = |path, summary| (Method::POST, path, summary);
    [
        Endpoint::new((Method::GET, KEYS, "Every key, the newest first"), keys::list).needs(Right::Administer),
        Endpoint::new(post(KEYS, "Make a key; its text is said this once"), keys::create)
            .needs(Right::Administer)
            .lasting()
            .refuses(&[Conflict])
            .leads_to(Method::DELETE, KEY, "id")
            .leads_to(Method::POST, ROTATE, "id"),
        Endpoint::new((Method::DELETE, KEY, "End a key, and what goes on under it"), keys::revoke)
            .needs(Right::Administer)
            .lasting()
            .refuses(&[KeyNotFound, Conflict])
            .leads_to(Method::POST, ROTATE, "id"),
        Endpoint::new(post(ROTATE, "Give a key another text; the one before is worth nothing"), keys::rotate)
            .needs(Right::Administer)
            .lasting()
            .refuses(&[KeyNotFound, Conflict])
            .leads_to(Method::DELETE, KEY, "id"),
        Endpoint::new((Method::GET, INVITES, "Every invite that lets somebody in; no code"), invites::list)
            .needs(Right::Administer),
        Endpoint::new(post(INVITES, "Make an invite: the lines that let a new host in"), invites::create)
            .needs(Right::Administer)
            .lasting()
            .refuses(&[Conflict])
            .leads_to(Method::DELETE, INVITE, "id"),
        Endpoint::new((Method::DELETE, INVITE, "End an invite: its code lets nobody in any more"), invites::revoke)
            .needs(Right::Administer)
            .lasting()
            .refuses(&[InviteNotFound]),
    ]
}

fn for_new_hosts() -> [Endpoint; 3] {
    use ErrorCode::{Conflict, RateLimited, StoreUnavailable, Unauthorized};
    let get = |path, summary| (Method::GET, path, summary);
    [
        Endpoint::new((Method::POST, join::PATH, "Let a host in, with the code of an invite"), joining::join)
            .lasting()
            .refuses(&[Unauthorized, Conflict, RateLimited, StoreUnavailable]),
        Endpoint::new(get(download::SCRIPT_PATH, "The script that an invite pipes into a shell"), download::script),
        Endpoint::new(
            get("/download/{machine}/c3po", "The program for hosts of a system and processor"),
            download::program,
        )
        .refuses(&[RateLimited]),
    ]
}
