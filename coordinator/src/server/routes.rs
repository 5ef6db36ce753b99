//! The table of all REST routes: method, access, and a summary for the OpenAPI document.

use aide::axum::routing::{delete, get, post};
use axum::Router;
use c3po_shared::join;

use super::endpoint::{Access, Table};
use super::{AppState, audit, description, download, hosts, invites, join as joining, keys, pairs, policy, rest};
use crate::auth::Right::{Administer, Look, Operate, Remove, Speak};

const KEYS: &str = "/api/keys";
const KEY: &str = "/api/keys/{id}";
const ROTATE: &str = "/api/keys/{id}/rotate";
const INVITES: &str = "/api/invites";
const INVITE: &str = "/api/invites/{id}";
const GUARD: &str = "/api/guard";
const GUARD_ALLOW: &str = "/api/guard/allow";
const GUARD_STOP: &str = "/api/guard/stop";
const PROGRAM: &str = "/download/{machine}/c3po";

/// Returns the REST routes, including that of their OpenAPI document.
pub(super) fn router(server: &AppState) -> Router<AppState> {
    for_new_hosts(for_administrators(for_monitors(Table::new(server)))).finish()
}

fn for_monitors(table: Table) -> Table {
    let pending = "The inbox of an agent, oldest first; takes nothing out";
    let remove = "Forget an agent that no session holds, with its mail; with an admin key, or one of its host";
    let unregister = "Forget an agent, or set it offline where it has mail";
    table
        .row("/api/health", Access::OPEN, "Whether the coordinator reaches its store", get(rest::health))
        .row(description::PATH, Access::OPEN, "This description", get(description::show))
        .row("/api/pending", Access::by(Speak), pending, get(rest::pending))
        .row(
            "/api/sent",
            Access::by(Speak),
            "The latest messages that an agent sent, and how far they got",
            get(audit::sent),
        )
        .row("/api/agents", Access::by(Look), "Every agent", get(rest::agents))
        .row("/api/unregister", Access::by(Speak), unregister, post(rest::unregister))
        .row("/api/agents/remove", Access::by(Remove), remove, post(hosts::remove))
        .row("/api/policy", Access::by(Operate), "The rules in force, and their file", get(policy::show))
        .row("/api/policy/check", Access::by(Operate), "What the rules say of a case", get(policy::check))
        .row("/api/audit", Access::by(Operate), "A page of what happened", get(audit::page))
        .row("/metrics", Access::by(Look), "Counters, for Prometheus", get(rest::metrics))
}

fn for_administrators(table: Table) -> Table {
    const LOOKS: Access = Access::by(Administer);
    const CHANGES: Access = Access::by(Administer).lasting();
    let rotate = "Give a key another text; the one before is worth nothing";
    let allow = "Allow two agents to continue; their count starts again";
    let stop = "Refuse what two agents send each other until they are allowed";
    table
        .row(KEYS, LOOKS, "Every key, the newest first", get(keys::list))
        .row(KEYS, CHANGES, "Make a key; its text is said this once", post(keys::create))
        .row(KEY, CHANGES, "End a key, and what goes on under it", delete(keys::revoke))
        .row(ROTATE, CHANGES, rotate, post(keys::rotate))
        .row(INVITES, LOOKS, "Every invite that lets somebody in; no code", get(invites::list))
        .row(INVITES, CHANGES, "Make an invite: the lines that let a new host in", post(invites::create))
        .row(INVITE, CHANGES, "End an invite: its code lets nobody in any more", delete(invites::revoke))
        .row("/api/hosts/rename", CHANGES, "Give the agents and keys of a host another name of it", post(hosts::rename))
        .row(GUARD, LOOKS, "Pairs of agents that are stopped, or write much without a person", get(pairs::list))
        .row(GUARD_ALLOW, CHANGES, allow, post(pairs::allow))
        .row(GUARD_STOP, CHANGES, stop, post(pairs::stop))
}

fn for_new_hosts(table: Table) -> Table {
    let program = "The program for hosts of a system and processor";
    table
        .row(join::PATH, Access::OPEN.lasting(), "Let a host in, with the code of an invite", post(joining::join))
        .row(download::SCRIPT_PATH, Access::OPEN, "The script that an invite pipes into a shell", get(download::script))
        .row(PROGRAM, Access::OPEN, program, get(download::program))
}
