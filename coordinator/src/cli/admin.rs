//! Commands for a running coordinator, and the output of their results.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::http::{Method, StatusCode};
use c3po_shared::ids::AgentId;
use c3po_shared::text::harmless_json;
use c3po_shared::time::Span;
use c3po_shared::vocabulary::Scope;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tokio::net::UnixStream;

use super::left;
use super::logins::{LoginOptions, LoginsCommand, offered};
use super::requests::{delete, get, in_path, post, required};
use super::tables::{every_key, guarded_pairs, listed, open_invites, plain};
use super::{absent, exchange};
use crate::server::{PrintedCommand, control_socket};

/// The deadline of the response.
const DEADLINE: Duration = Duration::from_secs(10);

/// A command for the coordinator of this machine.
#[derive(Debug, Clone, Subcommand)]
pub enum Admin {
    /// Make, list, rotate or revoke the keys of hosts
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Print the command that admits a new host
    Invite(InviteOptions),
    /// List or revoke open invites
    #[command(subcommand)]
    Invites(InvitesCommand),
    /// Print a link with which a person logs in, and its QR code
    Login(LoginOptions),
    /// List or revoke logins
    #[command(subcommand)]
    Logins(LoginsCommand),
    /// Delete agents that no session holds
    #[command(subcommand)]
    Agents(AgentsCommand),
    /// Rename a host with its agents and keys
    #[command(subcommand)]
    Hosts(Hosts),
    /// List, allow or stop pairs of agents that write to each other without a person
    #[command(subcommand)]
    Guard(GuardCommand),
}

/// The actions on agents.
#[derive(Debug, Clone, Subcommand)]
pub enum AgentsCommand {
    /// Delete an agent that no session holds, with its messages; its name becomes free
    Rm {
        /// Its name
        name: AgentId,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The actions on hosts.
#[derive(Debug, Clone, Subcommand)]
pub enum Hosts {
    /// Move the agents of a host, their messages and its keys to another name
    Rename {
        /// Its present name
        from: String,
        /// Its new name
        to: String,
        /// Also if the new name has keys, invites or agents: both become one host, whose keys get all the agents
        #[arg(long)]
        merge: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The actions on keys.
#[derive(Debug, Clone, Subcommand)]
pub enum KeysCommand {
    /// Make a key; its secret is printed only once
    Create(Create),
    /// List all keys, including ended ones
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a key; its links and requests end within a second
    Revoke {
        /// Its id, as in the list
        id: String,
    },
    /// Replace the secret of a key; the old one becomes invalid
    Rotate {
        /// Its id, as in the list
        id: String,
    },
}

/// The actions on invites.
#[derive(Debug, Clone, Subcommand)]
pub enum InvitesCommand {
    /// List open invites; their codes were printed only once and cannot be shown
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke an invite; keys that were made with it stay valid
    Revoke {
        /// Its id, as in the list
        id: String,
    },
}

/// The actions on pairs of agents.
#[derive(Debug, Clone, Subcommand)]
pub enum GuardCommand {
    /// List the pairs that are stopped or near the limit of messages without a person, as counted by this coordinator
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Allow two agents to continue; their count starts again
    Allow(Two),
    /// Refuse every message and reply between two agents until they are allowed
    Stop(Two),
}

/// Two agents, in any order.
#[derive(Debug, Clone, Args)]
pub struct Two {
    /// One of them
    pub one: AgentId,
    /// The other
    pub other: AgentId,
}

/// A new key.
#[derive(Debug, Clone, Args)]
pub struct Create {
    /// The name of its holder, such as a host's name
    pub name: String,
    /// Its scope: agent, read, operator or admin
    #[arg(long, default_value_t = Scope::Agent)]
    pub scope: Scope,
    /// The agents that it covers, as globs separated by commas
    #[arg(long, default_value = "*", value_delimiter = ',')]
    pub agents: Vec<String>,
    /// Its lifetime, such as 30d or 12h [default: unlimited]
    #[arg(long)]
    pub expires: Option<Span>,
    /// The host that it authenticates, even if another key has the same [default: its name]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
}

/// A new invite.
#[derive(Debug, Clone, Args)]
pub struct InviteOptions {
    /// The agents that the host may use, as globs separated by commas
    #[arg(long, default_value = "*", value_delimiter = ',')]
    pub agents: Vec<String>,
    /// The scope of its key: agent, read, operator or admin
    #[arg(long, default_value_t = Scope::Agent)]
    pub scope: Scope,
    /// How many hosts can join with it
    #[arg(long, default_value_t = 1)]
    pub uses: u32,
    /// Its lifetime, such as 15m
    #[arg(long, default_value = "15m")]
    pub expires: Span,
    /// The lifetime of the key that is made with it, such as 90d [default: unlimited]
    #[arg(long)]
    pub key_expires: Option<Span>,
    /// The host that it admits, which keeps the agents and messages of the host of that name
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
}

impl Admin {
    /// Sends the command to the coordinator of this machine that listens there, over its control socket. Returns the output.
    ///
    /// `command` is the configured beginning of commands for it, if any.
    pub async fn ask(
        &self,
        data_dir: &Path,
        listen: SocketAddr,
        command: Option<&str>,
    ) -> anyhow::Result<String> {
        let (method, in_path, body) = self.http();
        let answer = asked(data_dir, listen, (method, &in_path, body)).await?;
        self.show(&answer, &PrintedCommand::new(command, data_dir, listen))
    }

    /// Returns the HTTP request: method, path and body.
    fn http(&self) -> (Method, String, String) {
        match self {
            Self::Keys(command) => command.http(),
            Self::Invite(options) => post("/api/invites", &options.body()),
            Self::Invites(InvitesCommand::List { .. }) => get("/api/invites"),
            Self::Invites(InvitesCommand::Revoke { id }) => {
                delete(format!("/api/invites/{}", in_path(id)))
            }
            Self::Login(options) => options.http(),
            Self::Logins(command) => command.http(),
            Self::Agents(AgentsCommand::Rm { name, .. }) => {
                post("/api/agents/remove", &json!({"agent_id": name}))
            }
            Self::Hosts(Hosts::Rename {
                from, to, merge, ..
            }) => post(
                "/api/hosts/rename",
                &json!({"from": from, "to": to, "merge": merge}),
            ),
            Self::Guard(GuardCommand::List { .. }) => get("/api/guard"),
            Self::Guard(GuardCommand::Allow(agents)) => post("/api/guard/allow", &agents.body()),
            Self::Guard(GuardCommand::Stop(agents)) => post("/api/guard/stop", &agents.body()),
        }
    }

    /// Returns whether the answer itself is the output.
    fn is_json(&self) -> bool {
        match self {
            Self::Keys(KeysCommand::List { json })
            | Self::Invites(InvitesCommand::List { json })
            | Self::Login(LoginOptions { json, .. })
            | Self::Logins(LoginsCommand::List { json } | LoginsCommand::Revoke { json, .. })
            | Self::Agents(AgentsCommand::Rm { json, .. })
            | Self::Hosts(Hosts::Rename { json, .. })
            | Self::Guard(GuardCommand::List { json }) => *json,
            _ => false,
        }
    }

    /// Returns the output, with commands for this coordinator.
    pub(super) fn show(&self, answer: &Value, typed: &PrintedCommand) -> anyhow::Result<String> {
        if self.is_json() {
            return Ok(harmless_json(&format!("{answer:#}")));
        }
        let said = |name: &str| required(answer, name);
        Ok(match self {
            Self::Keys(command) => command.show(answer, typed)?,
            Self::Invite(_) => invited(answer, typed)?,
            Self::Invites(InvitesCommand::List { .. }) => {
                open_invites(listed(answer, "invites"), typed)
            }
            Self::Invites(InvitesCommand::Revoke { .. }) => {
                let id = said("id")?;
                format!("The invite {id} is revoked: no host can join with it any more.")
            }
            Self::Login(_) => offered(answer)?,
            Self::Logins(command) => command.show(answer, typed)?,
            Self::Agents(AgentsCommand::Rm { .. }) => {
                let (agent, expired) = (said("agent_id")?, &answer["expired"]);
                format!("{agent} is deleted; {expired} messages in its inbox have expired.")
            }
            Self::Hosts(Hosts::Rename { .. }) => {
                let (from, to) = (said("from")?, said("to")?);
                let (agents, keys) = (&answer["agents"], &answer["keys"]);
                format!("{from} is renamed to {to}, with {agents} agents and {keys} keys.")
            }
            Self::Guard(GuardCommand::List { .. }) => {
                guarded_pairs(listed(answer, "pairs"), &answer["limit"])
            }
            Self::Guard(GuardCommand::Allow(Two { one, other })) => {
                format!("{one} and {other} may continue; their count starts again.")
            }
            Self::Guard(GuardCommand::Stop(Two { one, other })) => format!(
                "Messages between {one} and {other} are refused until you allow them:\n\n  {}\n",
                typed.line(&format!("guard allow {one} {other}"))
            ),
        })
    }
}

impl KeysCommand {
    fn http(&self) -> (Method, String, String) {
        match self {
            Self::List { .. } => get("/api/keys"),
            Self::Create(create) => post("/api/keys", &create.body()),
            Self::Revoke { id } => delete(format!("/api/keys/{}", in_path(id))),
            Self::Rotate { id } => {
                let path = format!("/api/keys/{}/rotate", in_path(id));
                (Method::POST, path, String::new())
            }
        }
    }

    fn show(&self, answer: &Value, typed: &PrintedCommand) -> anyhow::Result<String> {
        let said = |name: &str| required(answer, name);
        Ok(match self {
            Self::List { .. } => every_key(listed(answer, "keys"), typed),
            Self::Create(_) => {
                let (key, id, name) = (said("key")?, said("id")?, said("name")?);
                format!("{key}\n\nKey {id} of {name}. It is not shown again.")
            }
            Self::Rotate { .. } => left::by_rotation(answer, typed)?,
            Self::Revoke { .. } => left::by_key(answer, typed)?,
        })
    }
}

impl Create {
    fn body(&self) -> Value {
        json!({
            "name": self.name, "scope": self.scope, "agents": self.agents, "expires_in": self.expires.map(seconds),
            "host": self.host,
        })
    }
}

impl InviteOptions {
    fn body(&self) -> Value {
        json!({
            "agents": self.agents, "scope": self.scope, "uses": self.uses, "expires_in": seconds(self.expires),
            "key_expires_in": self.key_expires.map(seconds), "host": self.host,
        })
    }
}

fn seconds(span: Span) -> u64 {
    span.duration().as_secs()
}

fn invited(answer: &Value, typed: &PrintedCommand) -> anyhow::Result<String> {
    let said = |name: &str| required(answer, name);
    let warning = plain(answer, "warning").map(|why| format!("Note: {why}.\n\n"));
    let keys: Vec<_> = listed(answer, "host_keys")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let same = (!keys.is_empty()).then(|| {
        format!(
            "Note: that host has a key already ({}). The machine that joins becomes the same host, with its agents and their \
             mail.\n\n",
            keys.join(", ")
        )
    });
    Ok(format!(
        "Run this on the new host before {}:\n\n  {}\n\nor, if c3po is not installed there yet:\n\n  {}\n\n{}{}\
         This is the invite {id}; to end it earlier:\n\n  {end}\n",
        said("expires_at")?,
        said("line")?,
        said("install")?,
        warning.unwrap_or_default(),
        same.unwrap_or_default(),
        id = said("id")?,
        end = typed.line(&format!("invites revoke {}", said("id")?))
    ))
}

/// Sends a request to the coordinator of this machine that listens there.
///
/// Errors: no coordinator responds, or it refuses the request.
pub(super) async fn asked(
    data_dir: &Path,
    listen: SocketAddr,
    request: (Method, &str, String),
) -> anyhow::Result<Value> {
    let is_v1 = request.1.starts_with("/api/v1/");
    let path = control_socket(data_dir, listen.port());
    let stream = UnixStream::connect(&path).await;
    let stream = stream.map_err(|error| absent::refusal(error, data_dir, &path))?;
    absent::check_peer(&stream, &path)?;
    let answer = exchange(stream, request, DEADLINE).await;
    let answer = answer.with_context(|| format!("asking {}", path.display()))?;
    let mut body: Value = serde_json::from_str(&answer.body).context("the answer is not JSON")?;
    if answer.status != StatusCode::OK {
        let said = |name: &str| plain(&body, name).unwrap_or_default();
        bail!("{}. {}", said("error"), said("suggestion"));
    }
    Ok(if is_v1 { body["data"].take() } else { body })
}

impl Two {
    fn body(&self) -> Value {
        json!({"agents": [self.one, self.other]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_cannot_lead_elsewhere() {
        let request = Admin::Keys(KeysCommand::Revoke {
            id: "../agents?x=1".into(),
        });
        assert_eq!(request.http().1, "/api/keys/%2E%2E%2Fagents%3Fx%3D1");
    }
}
