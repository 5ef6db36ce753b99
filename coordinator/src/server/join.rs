//! Joining of hosts: the one path that changes something for a client without a key, and the command line for it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use axum::Json;
use axum::extract::State;
use c3po_shared::host::is_same;
use c3po_shared::join::{CODE_VARIABLE, Fingerprint, JoinReply, JoinRequest, OlderKey};
use c3po_shared::refusal::Refusal;
use c3po_shared::time::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::Instant;

use super::accept::CODE_BODY_MAX;
use super::endpoint::{Body, RestAnswer};
use super::keys::{changed, unsure};
use super::tls::Transport;
use super::wrong_codes::WrongCodes;
use super::{AppState, PrintedCommand, download, origins};
use crate::auth::invites::{self, NewInvite};
use crate::auth::issue;
use crate::auth::watch::seen_by_others;
use crate::clock;
use crate::config::Config;
use crate::store::{Key, Store, StoreError};

/// How a host gets another code.
const NEW_CODE: &str = "Get a new one: `c3po-coordinator invite` on the coordinator's machine.";
/// The flags of curl by which it reads no file of settings and uses no proxy that a project's environment names.
const DIRECTLY: &str = "-q -fsS --noproxy '*'";
/// The creator of the invite that is made at startup if there is no key.
const START: &str = "start";

/// The state for joining.
#[derive(Debug)]
pub(super) struct Joins {
    /// The configured URL of this coordinator, if any.
    public_url: Option<String>,
    /// The address that it listens on.
    address: SocketAddr,
    transport: Transport,
    /// The command line for local commands to this coordinator.
    typed: PrintedCommand,
    wrong: WrongCodes,
}

/// A new invite.
#[derive(Serialize, JsonSchema)]
pub(super) struct Invited {
    /// The id shown in lists and in the audit.
    pub(super) id: String,
    /// The command to run on a new host that has c3po.
    pub(super) line: String,
    /// The command to run on a new host without c3po.
    pub(super) install: String,
    /// When it expires.
    pub(super) expires_at: Timestamp,
    /// Why other machines may not be able to use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) warning: Option<String>,
    /// The ids of the valid keys that its host has already: the machine that joins becomes the same host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) host_keys: Vec<String>,
}

impl Joins {
    pub(super) fn new(config: &Config, address: SocketAddr, transport: Transport) -> Self {
        let typed = PrintedCommand::new(config.command.as_deref(), &config.data_dir, address);
        Self {
            public_url: config.public_url.clone(),
            address,
            transport,
            typed,
            wrong: WrongCodes::new("join code", NEW_CODE),
        }
    }

    /// Makes an invite in the name of `by`, with the id and revision of the key that it is made with, if any.
    pub(super) async fn invite(
        &self,
        store: &dyn Store,
        new: NewInvite,
        by: &str,
        key: Option<(&str, u64)>,
    ) -> Result<Invited, Refusal> {
        let (invite, code) = invites::invite(store, new, by, key, self.transport.pinned()).await?;
        // After: a machine that joined under that name before is among them, and a later one gets another name.
        let now = clock::now();
        let of_host = |key: &Key| {
            let host = invite.host.as_deref();
            host.is_some_and(|host| is_same(host, key.host())) && key.is_valid(now)
        };
        // The code is returned in any case: it is nowhere else.
        let mut host_keys = store.keys().await.unwrap_or_default();
        host_keys.retain(of_host);
        let (url, code) = (self.url(), code.reveal());
        // The code is never a program argument, which every local user could see; a shell assignment before a command is not
        // an argument.
        let line = format!("{CODE_VARIABLE}={code} c3po join {url}");
        let install = format!(
            "curl {} {url}{} | {CODE_VARIABLE}={code} sh",
            self.curl(),
            download::SCRIPT_PATH
        );
        Ok(Invited {
            id: invite.id,
            line,
            install,
            expires_at: invite.expires_at,
            warning: self.warning(),
            host_keys: host_keys.into_iter().map(|key| key.id).collect(),
        })
    }

    /// Returns the URL of this coordinator. It is computed each time, because a network may have come up since the start.
    pub(super) fn url(&self) -> String {
        let own = || {
            format!(
                "{}://{}",
                self.transport.scheme(),
                reachable(self.address, outward)
            )
        };
        self.public_url.clone().unwrap_or_else(own)
    }

    /// Returns why other machines cannot reach this coordinator by that URL, if known.
    fn warning(&self) -> Option<String> {
        if self.public_url.is_some() {
            return None;
        }
        loopback_warning(self.address, reachable(self.address, outward).ip())
    }

    /// Returns the flags with which curl fetches from this coordinator directly, and verifies it.
    pub(super) fn curl(&self) -> String {
        let verifying = self.transport.curl_flags();
        format!("{DIRECTLY} {verifying}").trim_end().to_owned()
    }

    /// Returns the fingerprint of the coordinator's own certificate, if it has one.
    pub(super) fn fingerprint(&self) -> Option<Fingerprint> {
        self.transport.pinned()
    }

    /// Returns why the page of a login does not work under the URL of this coordinator, if it does not.
    pub(super) fn page_warning(&self) -> Option<String> {
        let url = self.url();
        let own = origins::own(
            self.public_url.as_deref(),
            self.transport.scheme(),
            self.address,
        );
        let is_own = own.contains(&origins::origin(&url));
        (!is_own).then(|| {
            format!(
                "the page works only under a configured URL: start the coordinator with --public-url {url}, or log in \
                 with `c3po login {url}`"
            )
        })
    }
}

/// `POST /api/join`
pub(super) async fn join(
    State(server): State<AppState>,
    Body(request, _held): Body<JoinRequest, CODE_BODY_MAX>,
) -> RestAnswer<JoinReply> {
    let (store, wrong) = (server.services.store.as_ref(), || {
        server.joins.wrong.refuse(Instant::now())
    });
    let place = server.joins.wrong.place().await?;
    let own = server.joins.fingerprint();
    let presented = invites::invited(store, &request, own)
        .await?
        .ok_or_else(wrong)?;
    let by = format!("invite {}", presented.standing.invite.id);
    let older_key = request
        .older_key
        .clone()
        .zip(presented.older_key(&request, own));
    let joined = invites::join(store, &request, own, presented).await;
    let joined = joined.inspect_err(|refusal| unsure(&server, "joined", None, &by, refusal))?;
    let (key, reply) = joined.ok_or_else(wrong)?;
    drop(place);
    changed(&server, "joined", &key.id, &key.made_by).await;
    seen_by_others(store).await;
    let older_key = older_key.map(|(id, (valid, proof))| OlderKey {
        revoke: server.joins.typed.line(&format!("keys revoke {id}")),
        id,
        valid,
        proof,
    });
    Ok(Json(JoinReply { older_key, ..reply }))
}

/// Prints the command that admits the first host, if keys are required and there is none.
pub(super) async fn announce(server: &AppState) {
    if !server.auth.demands_a_first_key() {
        return;
    }
    let store = server.services.store.as_ref();
    if let Err(error) = end_earlier(store).await {
        tracing::warn!("could not revoke the invites of earlier starts: {error}");
    }
    match server
        .joins
        .invite(store, NewInvite::default(), START, None)
        .await
    {
        Ok(invite) => {
            tracing::warn!(
                "no host has a key yet; the command with which the first one joins is printed below"
            );
            if let Some(warning) = &invite.warning {
                tracing::warn!("{warning}");
            }
            eprintln!(
                "\nNo host has a key yet. Run this on the first host before {}:\n\n  {}\n\nor, if c3po is not \
                 installed there yet:\n\n  {}\n\n\
                 For each further host, print another command: `{}`\n",
                invite.expires_at,
                invite.line,
                invite.install,
                server.joins.typed.line("invite")
            );
        }
        Err(refusal) => tracing::warn!("no invite could be made: {refusal}"),
    }
}

/// Revokes the invites of earlier starts: only the last printed command admits a host.
async fn end_earlier(store: &dyn Store) -> Result<(), StoreError> {
    for invite in store
        .invites()
        .await?
        .iter()
        .filter(|invite| invite.made_by.as_deref() == Some(START))
    {
        let entry = issue::entry("revoked", &invite.id, START);
        store.forget_invite(&invite.hash, Some(&entry)).await?;
    }
    Ok(())
}

/// Returns the address at which other machines reach a listener. For a wildcard address, this is the address of the default
/// route.
fn reachable(listen: SocketAddr, outward: impl Fn() -> Option<IpAddr>) -> SocketAddr {
    if !listen.ip().is_unspecified() {
        return listen;
    }
    SocketAddr::new(
        outward().unwrap_or(Ipv4Addr::LOCALHOST.into()),
        listen.port(),
    )
}

/// Returns why other machines cannot use a command with that address; `None` if they can.
fn loopback_warning(listen: SocketAddr, reached_at: IpAddr) -> Option<String> {
    if !reached_at.is_loopback() {
        return None;
    }
    let port = listen.port();
    Some(if listen.ip().is_loopback() {
        format!(
            "the coordinator listens on {listen}, where only this machine can reach it; to serve the network, start it \
             with --listen 0.0.0.0:{port}"
        )
    } else {
        "this machine has no route to a network, so the command has an address that only this machine can reach; \
         connect it and create another invite, or start the coordinator with --public-url https://NAME:PORT"
            .to_owned()
    })
}

/// Returns the source address for traffic to other machines. Nothing is sent: connecting a UDP socket only looks up the
/// route. The target is reserved for documentation (RFC 5737).
fn outward() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_one_address_is_reached_there() {
        let address: SocketAddr = "192.168.1.7:8420".parse().expect("an address");
        assert_eq!(reachable(address, || None), address);
    }

    #[test]
    fn a_listener_on_all_addresses_is_reached_by_the_one_of_the_present_network() {
        let all = "0.0.0.0:8420".parse().expect("an address");
        let check = |outward: Option<&str>, expected: &str| {
            let found = reachable(all, || {
                outward.map(|address| address.parse().expect("an address"))
            });
            assert_eq!(found.to_string(), expected);
        };
        check(None, "127.0.0.1:8420");
        check(Some("192.168.1.7"), "192.168.1.7:8420");
    }

    #[test]
    fn a_join_line_for_this_machine_alone_comes_with_a_warning() {
        let warning = |listen: &str, reached_at: &str| {
            loopback_warning(
                listen.parse().expect("an address"),
                reached_at.parse().expect("an address"),
            )
        };
        assert_eq!(warning("0.0.0.0:8420", "192.168.1.7"), None);
        let alone = warning("127.0.0.1:8421", "127.0.0.1").expect("nobody else reaches it");
        assert!(alone.contains("--listen 0.0.0.0:8421"), "{alone}");
        let offline = warning("0.0.0.0:8420", "127.0.0.1").expect("nobody else reaches it");
        assert!(
            offline.contains("no route to a network") && offline.contains("--public-url"),
            "{offline}"
        );
    }
}
