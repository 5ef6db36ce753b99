//! The table of all REST routes: method, access, and a summary for the OpenAPI document.

use axum::Router;
use c3po_shared::{event, join, login};

use super::endpoint::{Access, Table, delete, get, post};
use super::{
    AppState, audit, description, download, events, hosts, invites, join as joining, keys, logins,
    pairs, policy, rest, v1,
};
use crate::auth::Right::{Administer, Answer, Look, MakeLogin, Operate, Remove, Speak};

const KEYS: &str = "/api/keys";
const KEY: &str = "/api/keys/{id}";
const ROTATE: &str = "/api/keys/{id}/rotate";
const INVITES: &str = "/api/invites";
const INVITE: &str = "/api/invites/{id}";
const GUARD: &str = "/api/guard";
const GUARD_ALLOW: &str = "/api/guard/allow";
const GUARD_STOP: &str = "/api/guard/stop";
const LOGIN: &str = "/api/v1/logins/{id}";
const PROGRAM: &str = "/download/{machine}/c3po";

/// Returns the REST routes, including that of their OpenAPI document.
pub(super) fn router(server: &AppState) -> Router<AppState> {
    let table = for_new_hosts(for_administrators(for_monitors(Table::new(server))));
    super::questions::routes(v1::routes(for_people(table))).finish()
}

fn for_monitors(table: Table) -> Table {
    for_hosts(
        table
            .row(
                "/api/health",
                Access::OPEN,
                "Whether the coordinator reaches its store",
                get(rest::health),
            )
            .row(
                description::PATH,
                Access::OPEN,
                "This description",
                get(description::show),
            ),
    )
    .row_with_v1(
        "/api/policy",
        Access::by(Operate),
        "The rules in force, and their file",
        get(policy::show),
    )
    .row_with_v1(
        "/api/policy/check",
        Access::by(Operate),
        "Which rule applies to a case",
        get(policy::check),
    )
    .row_with_v1(
        "/api/audit",
        Access::by(Operate),
        "A page of the audit",
        get(audit::page),
    )
    .row(
        event::PATH,
        Access::by(Look),
        "Changes in order: a page as JSON, or a stream with Accept: text/event-stream",
        get(events::events),
    )
    .row(
        "/metrics",
        Access::by(Look),
        "Counters, for Prometheus",
        get(rest::metrics),
    )
}

fn for_hosts(table: Table) -> Table {
    let pending = "The inbox of an agent, oldest first; it stays unchanged";
    let remove = "Delete an agent that no session holds, with its messages; needs an admin key, or a key of its host";
    let unregister = "Delete an agent, or set it offline if it has messages";
    table
        .row(
            "/api/pending",
            Access::by(Speak),
            pending,
            get(rest::pending),
        )
        .row(
            "/api/sent",
            Access::by(Speak),
            "The latest messages that an agent sent, and how far they got",
            get(audit::sent),
        )
        .row(
            "/api/agents",
            Access::by(Look),
            "Every agent",
            get(rest::agents),
        )
        .row(
            "/api/unregister",
            Access::by(Speak),
            unregister,
            post(rest::unregister),
        )
        .row(
            "/api/agents/remove",
            Access::by(Remove),
            remove,
            post(hosts::remove),
        )
}

fn for_administrators(table: Table) -> Table {
    const LOOKS: Access = Access::by(Administer);
    const CHANGES: Access = Access::by(Administer).lasting();
    let rotate = "Replace the secret of a key; the old one becomes invalid";
    let allow = "Allow two agents to continue; their count starts again";
    let stop = "Refuse messages between two agents until they are allowed";
    table
        .row_with_v1(KEYS, LOOKS, "Every key, the newest first", get(keys::list))
        .row_with_v1(
            KEYS,
            CHANGES,
            "Create a key; its secret is returned only once",
            post(keys::create),
        )
        .row_with_v1(
            KEY,
            CHANGES,
            "Revoke a key, and end its links and requests",
            delete(keys::revoke),
        )
        .row_with_v1(ROTATE, CHANGES, rotate, post(keys::rotate))
        .row_with_v1(
            INVITES,
            LOOKS,
            "Every open invite, without its code",
            get(invites::list),
        )
        .row_with_v1(
            INVITES,
            CHANGES,
            "Create an invite: the commands with which a new host joins",
            post(invites::create),
        )
        .row_with_v1(
            INVITE,
            CHANGES,
            "Revoke an invite: its code becomes invalid",
            delete(invites::revoke),
        )
        .row_with_v1(
            "/api/hosts/rename",
            CHANGES,
            "Rename a host, with its agents and keys",
            post(hosts::rename),
        )
        .row_with_v1(
            GUARD,
            LOOKS,
            "Pairs of agents that are stopped, or near the limit of messages without a person",
            get(pairs::list),
        )
        .row_with_v1(GUARD_ALLOW, CHANGES, allow, post(pairs::allow))
        .row_with_v1(GUARD_STOP, CHANGES, stop, post(pairs::stop))
}

fn for_new_hosts(table: Table) -> Table {
    let program = "The c3po program for a system and processor";
    table
        .row(
            join::PATH,
            Access::OPEN.lasting(),
            "Join a host, with the code of an invite",
            post(joining::join),
        )
        .row(
            download::SCRIPT_PATH,
            Access::OPEN,
            "The installation script that an invite's command runs",
            get(download::script),
        )
        .row(PROGRAM, Access::OPEN, program, get(download::program))
}

fn for_people(table: Table) -> Table {
    table
        .row(
            login::PATH,
            Access::OPEN.lasting(),
            "Log in, with the code of a link",
            post(logins::log_in),
        )
        .row(
            login::ME_PATH,
            Access::ADMITTED,
            "The client's own credential and its rights",
            get(logins::me),
        )
        .row(
            login::INPUT_PATH,
            Access::by(Answer),
            "Report that the person of the login uses a page: pushes to that person wait",
            post(logins::input),
        )
        .row(
            login::LOGINS_PATH,
            Access::by(MakeLogin),
            "Every login, the newest first",
            get(logins::list),
        )
        .row(
            login::LOGINS_PATH,
            Access::by(MakeLogin).lasting(),
            "Create a link with which one person logs in; it is returned only once",
            post(logins::create),
        )
        .row(
            LOGIN,
            Access::ADMITTED.lasting(),
            "Revoke a login; a login may revoke itself",
            delete(logins::revoke),
        )
}
