//! What is asked of a running coordinator on its command line, and how its answers are shown.

use std::fmt::Write as _;

use anyhow::Context;
use c3po_shared::time::Span;
use c3po_shared::vocabulary::Scope;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

/// A question to the coordinator of this machine.
#[derive(Debug, Clone, Subcommand)]
pub enum Request {
    /// Make, list, renew or end the keys of hosts
    #[command(subcommand)]
    Keys(Keys),
    /// Print the line that lets a new host in
    Invite(Invite),
}

/// What is done with keys.
#[derive(Debug, Clone, Subcommand)]
pub enum Keys {
    /// Make a key; its text is printed this once
    Create(Create),
    /// List keys, those that have ended as well
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// End a key, and within a second everything that goes on under it
    Revoke {
        /// Its id, as in the list
        id: String,
    },
    /// Give a key another text; the one before is worth nothing from then on
    Rotate {
        /// Its id, as in the list
        id: String,
    },
}

/// A new key.
#[derive(Debug, Clone, Args)]
pub struct Create {
    /// Whose it is, such as a host's name
    pub name: String,
    /// What it is for: agent, read, operator or admin
    #[arg(long, default_value_t = Scope::Agent)]
    pub scope: Scope,
    /// Which agents it covers, as globs separated by commas
    #[arg(long, default_value = "*", value_delimiter = ',')]
    pub agents: Vec<String>,
    /// How long it lasts, such as 30d or 12h [default: for ever]
    #[arg(long)]
    pub expires: Option<Span>,
}

/// A new invite.
#[derive(Debug, Clone, Args)]
pub struct Invite {
    /// Which agents the host may be, as globs separated by commas
    #[arg(long, default_value = "*", value_delimiter = ',')]
    pub agents: Vec<String>,
    /// What its key is for: agent, read, operator or admin
    #[arg(long, default_value_t = Scope::Agent)]
    pub scope: Scope,
    /// How many hosts may use the line
    #[arg(long, default_value_t = 1)]
    pub uses: u32,
    /// How long the line is good, such as 15m
    #[arg(long, default_value = "15m")]
    pub expires: Span,
    /// How long the key lasts that is made with it, such as 90d [default: for ever]
    #[arg(long)]
    pub key_expires: Option<Span>,
}

impl Request {
    /// Returns it as HTTP: method, path and body.
    pub(crate) fn http(&self) -> (&'static str, String, String) {
        let seconds = |span: &Option<Span>| span.map(|span| span.duration().as_secs());
        match self {
            Self::Keys(Keys::List { .. }) => ("GET", "/api/keys".to_owned(), String::new()),
            Self::Keys(Keys::Create(Create { name, scope, agents, expires })) => {
                let body = json!({"name": name, "scope": scope, "agents": agents, "expires_in": seconds(expires)});
                ("POST", "/api/keys".to_owned(), body.to_string())
            }
            Self::Keys(Keys::Revoke { id }) => ("DELETE", format!("/api/keys/{}", in_path(id)), String::new()),
            Self::Keys(Keys::Rotate { id }) => ("POST", format!("/api/keys/{}/rotate", in_path(id)), String::new()),
            Self::Invite(Invite { agents, scope, uses, expires, key_expires }) => {
                let body = json!({
                    "agents": agents, "scope": scope, "uses": uses, "expires_in": expires.duration().as_secs(),
                    "key_expires_in": seconds(key_expires),
                });
                ("POST", "/api/invites".to_owned(), body.to_string())
            }
        }
    }

    /// Returns the answer as people read it.
    pub(crate) fn show(&self, answer: &Value) -> anyhow::Result<String> {
        let said = |name: &str| answer[name].as_str().with_context(|| format!("the answer has no {name}"));
        Ok(match self {
            Self::Keys(Keys::List { json: true }) => format!("{answer:#}"),
            Self::Keys(Keys::List { json: false }) => table(answer["keys"].as_array().map_or(&[][..], Vec::as_slice)),
            Self::Keys(Keys::Create(_) | Keys::Rotate { .. }) => {
                format!("{}\n\nKey {} of {}. It is not shown again.", said("key")?, said("id")?, said("name")?)
            }
            Self::Keys(Keys::Revoke { .. }) => {
                format!("The key {} of {} is {}.", said("id")?, said("name")?, said("state")?)
            }
            Self::Invite(_) => format!(
                "On the new host, until {}:\n\n  {}\n\nor, where c3po is not installed yet:\n\n  {}\n",
                said("expires_at")?,
                said("line")?,
                said("install")?
            ),
        })
    }
}

/// An id that is none leads nowhere, whatever it is made of.
fn in_path(id: &str) -> String {
    id.chars().filter(char::is_ascii_alphanumeric).collect()
}

fn table(keys: &[Value]) -> String {
    if keys.is_empty() {
        return "There are no keys. `c3po-coordinator invite` prints the line that lets a host in.".to_owned();
    }
    let mut text = format!("{:<10} {:<9} {:<9} {:<20} {:<24} AGENTS\n", "ID", "STATE", "SCOPE", "NAME", "EXPIRES");
    for key in keys {
        let said = |name: &str| key[name].as_str().unwrap_or("-");
        let agents: Vec<_> = key["agents"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:<10} {:<9} {:<9} {:<20} {:<24} {}",
            said("id"),
            said("state"),
            said("scope"),
            said("name"),
            said("expires_at"),
            agents.join(",")
        );
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_cannot_lead_elsewhere() {
        let request = Request::Keys(Keys::Revoke { id: "../agents?x=1".into() });
        assert_eq!(request.http().1, "/api/keys/agentsx1");
    }
}
