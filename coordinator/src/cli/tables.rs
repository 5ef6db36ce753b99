//! The tables of the command line: keys, invites, logins and pairs of agents.

use c3po_shared::text::harmless;
use serde_json::Value;

use crate::server::PrintedCommand;

pub(super) fn every_key(keys: &[Value], typed: &PrintedCommand) -> String {
    if keys.is_empty() {
        return format!(
            "There are no keys. `{}` prints the command with which a host joins.",
            typed.line("invite")
        );
    }
    let row = |key: &Value| {
        let said = |name: &str| key[name].as_str().unwrap_or("-").to_owned();
        let (name, host) = (brief(&said("name")), brief(&said("host")));
        let holder = match host == name || host == "-" {
            true => name,
            false => format!("{name} (host {host})"),
        };
        let (made, used) = (moment(&key["created_at"]), moment(&key["last_used_at"]));
        [
            said("id"),
            said("scope"),
            holder,
            made,
            used,
            state(key),
            said("made_by"),
            agents(key),
        ]
    };
    let head = [
        "ID",
        "SCOPE",
        "NAME",
        "MADE (UTC)",
        "USED (UTC)",
        "STATE (UTC)",
        "MADE BY",
        "AGENTS",
    ];
    aligned(
        &head.map(str::to_owned),
        &keys.iter().map(row).collect::<Vec<_>>(),
    )
}

/// Returns the state of a key or a login, with the time of its end.
fn state(key: &Value) -> String {
    let (state, expires) = (key["state"].as_str().unwrap_or("-"), &key["expires_at"]);
    match state {
        "unfinished" => "unfinished".to_owned(),
        "valid" if expires.is_null() => "valid".to_owned(),
        "valid" => format!("valid until {}", moment(expires)),
        "revoked" => format!("revoked {}", moment(&key["revoked_at"])),
        _ => format!("{state} {}", moment(expires)),
    }
}

pub(super) fn open_invites(invites: &[Value], typed: &PrintedCommand) -> String {
    if invites.is_empty() {
        return format!(
            "There are no open invites. `{}` prints the command with which a host joins.",
            typed.line("invite")
        );
    }
    let row = |invite: &Value| {
        let said = |name: &str| invite[name].as_str().unwrap_or("-").to_owned();
        let uses = invite["uses"]
            .as_u64()
            .map_or_else(|| "-".to_owned(), |uses| uses.to_string());
        [
            said("id"),
            said("scope"),
            brief(&said("host")),
            uses,
            moment(&invite["expires_at"]),
            said("made_by"),
            agents(invite),
        ]
    };
    let head = [
        "ID",
        "SCOPE",
        "HOST",
        "USES LEFT",
        "UNTIL (UTC)",
        "MADE BY",
        "AGENTS",
    ];
    aligned(
        &head.map(str::to_owned),
        &invites.iter().map(row).collect::<Vec<_>>(),
    )
}

pub(super) fn every_login(logins: &[Value], typed: &PrintedCommand) -> String {
    if logins.is_empty() {
        return format!(
            "There are no logins. `{}` prints the link with which a person logs in.",
            typed.line("login NAME")
        );
    }
    let row = |login: &Value| {
        let said = |name: &str| login[name].as_str().unwrap_or("-").to_owned();
        [
            said("id"),
            said("scope"),
            said("name"),
            moment(&login["created_at"]),
            state(login),
            said("made_by"),
            brief(&said("device")),
        ]
    };
    let head = [
        "ID",
        "SCOPE",
        "NAME",
        "MADE (UTC)",
        "STATE (UTC)",
        "MADE BY",
        "DEVICE",
    ];
    aligned(
        &head.map(str::to_owned),
        &logins.iter().map(row).collect::<Vec<_>>(),
    )
}

pub(super) fn guarded_pairs(pairs: &[Value], limit: &Value) -> String {
    if pairs.is_empty() {
        return "No pair of agents is stopped or near the limit.".to_owned();
    }
    let limit = limit
        .as_u64()
        .map_or_else(|| "-".to_owned(), |limit| limit.to_string());
    let row = |pair: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let (agents, count) = (&pair["agents"], format!("{} of {limit}", pair["count"]));
        [
            text(&agents[0]),
            text(&agents[1]),
            count,
            text(&pair["standing"]),
            moment(&pair["stopped_at"]),
        ]
    };
    let head = ["AGENT", "AGENT", "MESSAGES", "STANDING", "STOPPED (UTC)"];
    aligned(
        &head.map(str::to_owned),
        &pairs.iter().map(row).collect::<Vec<_>>(),
    )
}

/// The length of a name that a host or a device chose, in characters.
const CHOSEN_SHOWN: usize = 60;

/// Returns the beginning of a chosen name, without gaps: the rest of a long one could look like another row.
pub(super) fn brief(name: &str) -> String {
    let words: Vec<_> = name.split_whitespace().collect();
    let words = words.join(" ");
    match words.char_indices().nth(CHOSEN_SHOWN) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

/// Returns the agents that a key or an invite covers.
fn agents(of: &Value) -> String {
    let agents: Vec<_> = of["agents"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    agents.join(",")
}

/// Returns a time to the minute, or `-` if there is none.
fn moment(time: &Value) -> String {
    time.as_str()
        .and_then(|time| time.get(..16))
        .unwrap_or("-")
        .replace('T', " ")
}

/// Returns a table with aligned columns, in which no cell has lines or controls a terminal.
fn aligned<const COLUMNS: usize>(head: &[String; COLUMNS], rows: &[[String; COLUMNS]]) -> String {
    let shown: Vec<_> = rows
        .iter()
        .map(|row| row.each_ref().map(|cell| harmless(cell, false)))
        .collect();
    let rows = || [head].into_iter().chain(&shown);
    let width = |column: usize| {
        rows()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let line = |row: &[String; COLUMNS]| {
        let cells = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns a text of an answer as one line in which terminals interpret nothing.
pub(super) fn plain(answer: &Value, name: &str) -> Option<String> {
    answer[name].as_str().map(|text| harmless(text, false))
}

pub(super) fn listed<'a>(answer: &'a Value, name: &str) -> &'a [Value] {
    answer[name].as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::cli::admin::{Admin, GuardCommand, InvitesCommand, KeysCommand};

    #[test]
    fn a_device_is_one_short_text_without_gaps() {
        let device = format!(
            "phone{}29316ac9  admin  ann {}",
            " ".repeat(75),
            "x".repeat(90)
        );
        let logins = [
            json!({"id": "0badf00d", "scope": "answer", "name": "ann", "state": "valid", "device": device}),
        ];
        let table = every_login(&logins, &typed());
        let row = table.lines().last().expect("a row");
        assert!(
            row.contains("phone 29316ac9 admin ann xxx") && row.ends_with("x…"),
            "{row}"
        );
        assert!(!row.contains(&"x".repeat(60)), "{row}");
    }

    fn typed() -> PrintedCommand {
        PrintedCommand::new(None, Path::new("/data"), ([127, 0, 0, 1], 8420).into())
    }

    #[test]
    fn keys_are_listed_in_a_table_with_their_times_and_states() {
        let key = |id: &str, name: &str, state: &str, expires_at: Value, revoked_at: Value| {
            json!({"id": id, "name": name, "host": if name == "old" { "nas" } else { name }, "scope": "agent", "agents": ["*"], "state": state, "made_by": if id == "0000000e" { "invite-0000000d" } else { "local" },
                "created_at": "2026-01-15T10:30:59.999Z", "expires_at": expires_at, "revoked_at": revoked_at,
                "last_used_at": if id == "0a1b2c3d" { json!("2026-01-16T08:00:00.000Z") } else { Value::Null }})
        };
        let (soon, past) = (
            json!("2026-04-15T10:30:00.000Z"),
            json!("2026-02-01T00:00:00.000Z"),
        );
        let answer = json!({"keys": [
            key("0a1b2c3d", "nas", "valid", Value::Null, Value::Null),
            key("0000000e", "a laptop in the attic", "valid", soon.clone(), Value::Null),
            key("0000000f", "guest", "expired", past.clone(), Value::Null),
            key("00000010", "old", "revoked", soon, past),
        ]});
        let list = |json| Admin::Keys(KeysCommand::List { json });
        assert_eq!(
            list(false).show(&answer, &typed()).expect("a list"),
            "ID        SCOPE  NAME                   MADE (UTC)        USED (UTC)        STATE (UTC)                   MADE BY          AGENTS\n\
             0a1b2c3d  agent  nas                    2026-01-15 10:30  2026-01-16 08:00  valid                         local            *\n\
             0000000e  agent  a laptop in the attic  2026-01-15 10:30  -                 valid until 2026-04-15 10:30  invite-0000000d  *\n\
             0000000f  agent  guest                  2026-01-15 10:30  -                 expired 2026-02-01 00:00      local            *\n\
             00000010  agent  old (host nas)         2026-01-15 10:30  -                 revoked 2026-02-01 00:00      local            *"
        );
        assert_eq!(
            list(true)
                .show(&answer, &typed())
                .expect("a list")
                .parse::<Value>()
                .expect("JSON"),
            answer
        );
    }

    #[test]
    fn open_invites_are_a_table_without_their_codes() {
        let answer = json!({"invites": [
            {"id": "0a1b2c3d", "scope": "agent", "agents": ["web-*", "api"], "uses": 3,
                "expires_at": "2026-01-15T10:45:00.000Z", "made_by": "local"},
            {"id": "0000000f", "scope": "operator", "agents": ["*"], "uses": 1000, "host": null,
                "expires_at": "2026-01-22T08:00:59.999Z", "made_by": null},
            {"id": "00000010", "scope": "agent", "agents": ["*"], "uses": 1, "host": "nas\n  2",
                "expires_at": "2026-01-23T08:00:00.000Z", "made_by": "local"},
        ]});
        let list = |json| Admin::Invites(InvitesCommand::List { json });
        assert_eq!(
            list(false).show(&answer, &typed()).expect("a list"),
            "ID        SCOPE     HOST   USES LEFT  UNTIL (UTC)       MADE BY  AGENTS\n\
             0a1b2c3d  agent     -      3          2026-01-15 10:45  local    web-*,api\n\
             0000000f  operator  -      1000       2026-01-22 08:00  -        *\n\
             00000010  agent     nas 2  1          2026-01-23 08:00  local    *"
        );
        assert_eq!(
            list(true)
                .show(&answer, &typed())
                .expect("a list")
                .parse::<Value>()
                .expect("JSON"),
            answer
        );
        let none = list(false)
            .show(&json!({"invites": []}), &typed())
            .expect("a list");
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
        assert_eq!(
            list(true)
                .show(&answer, &typed())
                .expect("a list")
                .parse::<Value>()
                .expect("JSON"),
            answer
        );
        let none = list(false)
            .show(&json!({"pairs": []}), &typed())
            .expect("a list");
        assert_eq!(none, "No pair of agents is stopped or near the limit.");
    }
}
