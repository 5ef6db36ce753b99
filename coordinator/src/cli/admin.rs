//! Commands for a running coordinator, and the output of their results.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::http::{Method, StatusCode};
use c3po_shared::ids::AgentId;
use c3po_shared::text::{harmless, harmless_json, shell_word};
use c3po_shared::time::Span;
use c3po_shared::vocabulary::Scope;
use clap::{Args, Subcommand};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::net::UnixStream;

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
    /// The agents that it covers, as globs separated by commas; `*` covers human only with --scope admin
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
    /// The agents that the host may use, as globs separated by commas; `*,human` includes the inbox of the person
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
    pub async fn ask(&self, data_dir: &Path, listen: SocketAddr, command: Option<&str>) -> anyhow::Result<String> {
        let (method, in_path, body) = self.http();
        let answer = asked(data_dir, listen, (method, &in_path, body)).await?;
        self.show(&answer, &PrintedCommand::new(command, data_dir, listen))
    }

    /// Returns the HTTP request: method, path and body.
    fn http(&self) -> (Method, String, String) {
        let seconds = |span: &Option<Span>| span.map(|span| span.duration().as_secs());
        match self {
            Self::Keys(KeysCommand::List { .. }) => (Method::GET, "/api/keys".to_owned(), String::new()),
            Self::Keys(KeysCommand::Create(Create { name, scope, agents, expires, host })) => {
                let body = json!({"name": name, "scope": scope, "agents": agents, "expires_in": seconds(expires), "host": host});
                (Method::POST, "/api/keys".to_owned(), body.to_string())
            }
            Self::Keys(KeysCommand::Revoke { id }) => {
                (Method::DELETE, format!("/api/keys/{}", in_path(id)), String::new())
            }
            Self::Keys(KeysCommand::Rotate { id }) => {
                (Method::POST, format!("/api/keys/{}/rotate", in_path(id)), String::new())
            }
            Self::Invite(InviteOptions { agents, scope, uses, expires, key_expires, host }) => {
                let body = json!({
                    "agents": agents, "scope": scope, "uses": uses, "expires_in": expires.duration().as_secs(),
                    "key_expires_in": seconds(key_expires), "host": host,
                });
                (Method::POST, "/api/invites".to_owned(), body.to_string())
            }
            Self::Invites(InvitesCommand::List { .. }) => (Method::GET, "/api/invites".to_owned(), String::new()),
            Self::Invites(InvitesCommand::Revoke { id }) => {
                (Method::DELETE, format!("/api/invites/{}", in_path(id)), String::new())
            }
            Self::Agents(AgentsCommand::Rm { name, .. }) => {
                (Method::POST, "/api/agents/remove".to_owned(), json!({"agent_id": name}).to_string())
            }
            Self::Hosts(Hosts::Rename { from, to, .. }) => {
                (Method::POST, "/api/hosts/rename".to_owned(), json!({"from": from, "to": to}).to_string())
            }
            Self::Guard(GuardCommand::List { .. }) => (Method::GET, "/api/guard".to_owned(), String::new()),
            Self::Guard(GuardCommand::Allow(agents)) => (Method::POST, "/api/guard/allow".to_owned(), agents.body()),
            Self::Guard(GuardCommand::Stop(agents)) => (Method::POST, "/api/guard/stop".to_owned(), agents.body()),
        }
    }

    /// Returns the output for people, with commands for this coordinator.
    fn show(&self, answer: &Value, typed: &PrintedCommand) -> anyhow::Result<String> {
        let said = |name: &str| plain(answer, name).with_context(|| format!("the answer has no {name}"));
        Ok(match self {
            Self::Keys(KeysCommand::List { json: true })
            | Self::Invites(InvitesCommand::List { json: true })
            | Self::Agents(AgentsCommand::Rm { json: true, .. })
            | Self::Hosts(Hosts::Rename { json: true, .. })
            | Self::Guard(GuardCommand::List { json: true }) => harmless_json(&format!("{answer:#}")),
            Self::Keys(KeysCommand::List { json: false }) => every_key(listed(answer, "keys"), typed),
            Self::Invites(InvitesCommand::List { json: false }) => open_invites(listed(answer, "invites"), typed),
            Self::Keys(KeysCommand::Create(_)) => {
                format!("{}\n\nKey {} of {}. It is not shown again.", said("key")?, said("id")?, said("name")?)
            }
            Self::Keys(KeysCommand::Rotate { .. }) => format!(
                "{}\n\nKey {} of {}. It is not shown again. Write it as token into that host's config.toml, or join \
                 the host again under its name, with the command from:\n\n  {}\n",
                said("key")?,
                said("id")?,
                said("name")?,
                typed.line(&format!("invite --host {}", shell_word(&said("host")?)))
            ),
            Self::Keys(KeysCommand::Revoke { .. }) => {
                format!("The key {} of {} is {}.", said("id")?, said("name")?, said("state")?)
            }
            Self::Invite(_) => format!(
                "Run this on the new host before {}:\n\n  {}\n\nor, if c3po is not installed there yet:\n\n  {}\n\n{}\
                 This is the invite {id}; to end it earlier:\n\n  {end}\n",
                said("expires_at")?,
                said("line")?,
                said("install")?,
                plain(answer, "warning").map(|why| format!("Note: {why}.\n\n")).unwrap_or_default(),
                id = said("id")?,
                end = typed.line(&format!("invites revoke {}", said("id")?))
            ),
            Self::Invites(InvitesCommand::Revoke { .. }) => {
                format!("The invite {} is revoked: no host can join with it any more.", said("id")?)
            }
            Self::Agents(AgentsCommand::Rm { json: false, .. }) => {
                let expired = &answer["expired"];
                format!("{} is deleted; {expired} messages in its inbox have expired.", said("agent_id")?)
            }
            Self::Hosts(Hosts::Rename { json: false, .. }) => format!(
                "{} is renamed to {}, with {} agents and {} keys.",
                said("from")?,
                said("to")?,
                answer["agents"],
                answer["keys"]
            ),
            Self::Guard(GuardCommand::List { json: false }) => guarded_pairs(listed(answer, "pairs"), &answer["limit"]),
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

/// Sends a request to the coordinator of this machine that listens there.
///
/// Errors: no coordinator responds, or it refuses the request.
pub(super) async fn asked(
    data_dir: &Path,
    listen: SocketAddr,
    request: (Method, &str, String),
) -> anyhow::Result<Value> {
    let path = control_socket(data_dir, listen.port());
    let stream = UnixStream::connect(&path).await;
    let stream = stream.map_err(|error| absent::refusal(error, data_dir, &path))?;
    let answer = exchange(stream, request, DEADLINE).await;
    let answer = answer.with_context(|| format!("asking {}", path.display()))?;
    let body: Value = serde_json::from_str(&answer.body).context("the answer is not JSON")?;
    if answer.status != StatusCode::OK {
        let said = |name: &str| plain(&body, name).unwrap_or_default();
        bail!("{}. {}", said("error"), said("suggestion"));
    }
    Ok(body)
}

impl Two {
    fn body(&self) -> String {
        json!({"agents": [self.one, self.other]}).to_string()
    }
}

/// Escapes an id for a path. A malformed id cannot lead to another path.
fn in_path(id: &str) -> impl fmt::Display {
    utf8_percent_encode(id, NON_ALPHANUMERIC)
}

/// Returns a text of an answer as one line in which terminals interpret nothing.
fn plain(answer: &Value, name: &str) -> Option<String> {
    answer[name].as_str().map(|text| harmless(text, false))
}

fn listed<'a>(answer: &'a Value, name: &str) -> &'a [Value] {
    answer[name].as_array().map_or(&[], Vec::as_slice)
}

fn every_key(keys: &[Value], typed: &PrintedCommand) -> String {
    if keys.is_empty() {
        return format!("There are no keys. `{}` prints the command with which a host joins.", typed.line("invite"));
    }
    let row = |key: &Value| {
        let said = |name: &str| key[name].as_str().unwrap_or("-").to_owned();
        let (made, used) = (moment(&key["created_at"]), moment(&key["last_used_at"]));
        [said("id"), said("scope"), said("name"), made, used, state(key), agents(key)]
    };
    let head = ["ID", "SCOPE", "NAME", "MADE (UTC)", "USED (UTC)", "STATE (UTC)", "AGENTS"];
    aligned(&head.map(str::to_owned), &keys.iter().map(row).collect::<Vec<_>>())
}

/// Returns the state of a key, with the time of its end.
fn state(key: &Value) -> String {
    let (state, expires) = (key["state"].as_str().unwrap_or("-"), &key["expires_at"]);
    match state {
        "valid" if expires.is_null() => "valid".to_owned(),
        "valid" => format!("valid until {}", moment(expires)),
        "revoked" => format!("revoked {}", moment(&key["revoked_at"])),
        _ => format!("{state} {}", moment(expires)),
    }
}

fn open_invites(invites: &[Value], typed: &PrintedCommand) -> String {
    if invites.is_empty() {
        return format!(
            "There are no open invites. `{}` prints the command with which a host joins.",
            typed.line("invite")
        );
    }
    let row = |invite: &Value| {
        let said = |name: &str| invite[name].as_str().unwrap_or("-").to_owned();
        let uses = invite["uses"].as_u64().map_or_else(|| "-".to_owned(), |uses| uses.to_string());
        [said("id"), said("scope"), uses, moment(&invite["expires_at"]), said("made_by"), agents(invite)]
    };
    let head = ["ID", "SCOPE", "USES LEFT", "UNTIL (UTC)", "MADE BY", "AGENTS"];
    aligned(&head.map(str::to_owned), &invites.iter().map(row).collect::<Vec<_>>())
}

fn guarded_pairs(pairs: &[Value], limit: &Value) -> String {
    if pairs.is_empty() {
        return "No pair of agents is stopped or near the limit.".to_owned();
    }
    let limit = limit.as_u64().map_or_else(|| "-".to_owned(), |limit| limit.to_string());
    let row = |pair: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let (agents, count) = (&pair["agents"], format!("{} of {limit}", pair["count"]));
        [text(&agents[0]), text(&agents[1]), count, text(&pair["standing"]), moment(&pair["stopped_at"])]
    };
    let head = ["AGENT", "AGENT", "MESSAGES", "STANDING", "STOPPED (UTC)"];
    aligned(&head.map(str::to_owned), &pairs.iter().map(row).collect::<Vec<_>>())
}

/// Returns the agents that a key or an invite covers.
fn agents(of: &Value) -> String {
    let agents: Vec<_> = of["agents"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    agents.join(",")
}

/// Returns a time to the minute, or `-` if there is none.
fn moment(time: &Value) -> String {
    time.as_str().and_then(|time| time.get(..16)).unwrap_or("-").replace('T', " ")
}

/// Returns a table with aligned columns, in which no cell has lines or controls a terminal.
fn aligned<const COLUMNS: usize>(head: &[String; COLUMNS], rows: &[[String; COLUMNS]]) -> String {
    let shown: Vec<_> = rows.iter().map(|row| row.each_ref().map(|cell| harmless(cell, false))).collect();
    let rows = || [head].into_iter().chain(&shown);
    let width = |column: usize| rows().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed() -> PrintedCommand {
        PrintedCommand::new(None, Path::new("/data"), ([127, 0, 0, 1], 8420).into())
    }

    #[test]
    fn keys_are_listed_in_a_table_with_their_times_and_states() {
        let key = |id: &str, name: &str, state: &str, expires_at: Value, revoked_at: Value| {
            json!({"id": id, "name": name, "scope": "agent", "agents": ["*"], "state": state, "made_by": "local",
                "created_at": "2026-01-15T10:30:59.999Z", "expires_at": expires_at, "revoked_at": revoked_at,
                "last_used_at": if id == "0a1b2c3d" { json!("2026-01-16T08:00:00.000Z") } else { Value::Null }})
        };
        let (soon, past) = (json!("2026-04-15T10:30:00.000Z"), json!("2026-02-01T00:00:00.000Z"));
        let answer = json!({"keys": [
            key("0a1b2c3d", "nas", "valid", Value::Null, Value::Null),
            key("0000000e", "a laptop in the attic", "valid", soon.clone(), Value::Null),
            key("0000000f", "guest", "expired", past.clone(), Value::Null),
            key("00000010", "old", "revoked", soon, past),
        ]});
        let list = |json| Admin::Keys(KeysCommand::List { json });
        assert_eq!(
            list(false).show(&answer, &typed()).expect("a list"),
            "ID        SCOPE  NAME                   MADE (UTC)        USED (UTC)        STATE (UTC)                   AGENTS\n\
             0a1b2c3d  agent  nas                    2026-01-15 10:30  2026-01-16 08:00  valid                         *\n\
             0000000e  agent  a laptop in the attic  2026-01-15 10:30  -                 valid until 2026-04-15 10:30  *\n\
             0000000f  agent  guest                  2026-01-15 10:30  -                 expired 2026-02-01 00:00      *\n\
             00000010  agent  old                    2026-01-15 10:30  -                 revoked 2026-02-01 00:00      *"
        );
        assert_eq!(list(true).show(&answer, &typed()).expect("a list").parse::<Value>().expect("JSON"), answer);
    }

    #[test]
    fn open_invites_are_a_table_without_their_codes() {
        let answer = json!({"invites": [
            {"id": "0a1b2c3d", "scope": "agent", "agents": ["web-*", "api"], "uses": 3,
                "expires_at": "2026-01-15T10:45:00.000Z", "made_by": "local"},
            {"id": "0000000f", "scope": "operator", "agents": ["*"], "uses": 1000,
                "expires_at": "2026-01-22T08:00:59.999Z", "made_by": null},
        ]});
        let list = |json| Admin::Invites(InvitesCommand::List { json });
        assert_eq!(
            list(false).show(&answer, &typed()).expect("a list"),
            "ID        SCOPE     USES LEFT  UNTIL (UTC)       MADE BY  AGENTS\n\
             0a1b2c3d  agent     3          2026-01-15 10:45  local    web-*,api\n\
             0000000f  operator  1000       2026-01-22 08:00  -        *"
        );
        assert_eq!(list(true).show(&answer, &typed()).expect("a list").parse::<Value>().expect("JSON"), answer);
        let none = list(false).show(&json!({"invites": []}), &typed()).expect("a list");
        assert!(none.starts_with("There are no open invites."), "{none}");
    }

    #[test]
    fn pairs_are_a_table_with_their_counts() {
        let answer = json!({"limit": 60, "pairs": [
            {"agents": ["api", "web"], "standing": "suspected", "count": 60},
            {"agents": ["a", "b"], "standing": "stopped", "count": 0, "stopped_at": "2026-01-15T10:45:00.000Z"},
        ]});
        let list = |json| Admin::Guard(GuardCommand::List { json });
        assert_eq!(
            list(false).show(&answer, &typed()).expect("a list"),
            "AGENT  AGENT  MESSAGES  STANDING   STOPPED (UTC)\n\
             api    web    60 of 60  suspected  -\n\
             a      b      0 of 60   stopped    2026-01-15 10:45"
        );
        assert_eq!(list(true).show(&answer, &typed()).expect("a list").parse::<Value>().expect("JSON"), answer);
        let none = list(false).show(&json!({"pairs": []}), &typed()).expect("a list");
        assert_eq!(none, "No pair of agents is stopped or near the limit.");
    }

    #[test]
    fn an_id_cannot_lead_elsewhere() {
        let request = Admin::Keys(KeysCommand::Revoke { id: "../agents?x=1".into() });
        assert_eq!(request.http().1, "/api/keys/%2E%2E%2Fagents%3Fx%3D1");
    }
}
