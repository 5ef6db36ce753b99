//! Every field that a hostile coordinator chooses, through every command of `c3po` on a terminal.

mod table;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use c3po_shared::join::{CODE_VARIABLE, JoinCode};
use c3po_shared::refusal::Advice;
use futures_util::{StreamExt, stream};
use harness::corpus::{check, commands_in, field};
use harness::eventually::eventually;
use harness::impostor::{Answers, Impostor};
use harness::process::{command, program};
use harness::proxy::session;
use harness::pty;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::table::{COMMANDS, LOCAL, answers, refusal, waits_after};

/// How many commands run at a time: most of their time is waiting.
const AT_ONCE: usize = 6;
/// How long a session may take to learn that it is refused, on a machine that builds at the same time.
const REFUSED: Duration = Duration::from_secs(20);

/// The width of a terminal that does not report it, and the commands whose lines are wrapped to it.
const COLUMNS: usize = 80;
/// The length of output in the report of a failure, which must stay readable beside that of other tests.
const SHOWN_MAX: usize = 600;
const WRAPPED: [&str; 6] = ["agents", "inbox", "questions", "sent", "tail", "thread"];

/// Runs a command of `c3po` on a terminal of its own, in that home. Checks all of its output, and returns it.
async fn shown(work: &Path, typed: &str, url: &str, last: Option<&str>) -> Result<String> {
    let c3po = program("c3po")?;
    let mut asked = if typed.contains("login") {
        // It would ask for the code on the terminal.
        let mut shell = command("sh", work);
        shell.args(["-c", "echo code | \"$0\" \"$@\""]).arg(c3po);
        shell
    } else {
        command(c3po, work)
    };
    asked.args(
        typed
            .split(' ')
            .map(|word| if word == "URL" { url } else { word }),
    );
    // Only the programs' own colours would be controls. This machine's Claude Code must not be found.
    asked
        .env("NO_COLOR", "1")
        .env("PATH", "/usr/bin:/bin")
        .env("XDG_RUNTIME_DIR", work);
    asked.env("CLAUDE_PID", process::id().to_string());
    if typed.contains("logout") {
        let folder = work.join(".config/c3po");
        fs::create_dir_all(&folder)?;
        let login =
            format!("coordinator_url = \"{url}\"\ntoken = \"c3po-login_0a1b2c3d_secret\"\n");
        fs::write(folder.join("person.toml"), login)?;
        fs::set_permissions(
            folder.join("person.toml"),
            fs::Permissions::from_mode(0o600),
        )?;
    }
    if typed.contains("join") {
        asked.env(CODE_VARIABLE, JoinCode::new([7; 16], None).reveal());
    } else {
        asked.env("C3PO_COORDINATOR_URL", url);
    }
    let shown = pty::output(asked, last)
        .await
        .with_context(|| typed.to_owned())?;
    check(&shown).with_context(|| format!("c3po {typed}"))?;
    Ok(shown)
}

/// Runs a command against a coordinator with those answers.
async fn asked(typed: &str, answers: Answers) -> Result<String> {
    let (work, impostor) = (TempDir::new()?, Impostor::start(answers).await?);
    shown(
        work.path(),
        typed,
        impostor.url(),
        waits_after(typed.trim_start_matches("--json ")),
    )
    .await
}

/// Runs commands with their answers, several at a time. Their output must have the names of the fields.
async fn all_asked(asked_for: Vec<(String, &[&str], Answers)>) -> Result<()> {
    let running = asked_for.into_iter().map(async |(typed, fields, answers)| {
        let shown = asked(&typed, answers).await?;
        let whole = shown.replace("\n  … ", " ").replace("\n> ", " ");
        let missing = fields
            .iter()
            .find(|name| !whole.contains(&format!("{name} a")));
        ensure!(
            missing.is_none(),
            "c3po {typed} shows no {missing:?} but {:?}",
            shown.chars().take(SHOWN_MAX).collect::<String>()
        );
        let is_wrapped = WRAPPED.iter().any(|name| typed.starts_with(name));
        // The refusals of the own coordinator are not wrapped.
        let is_wide = |row: &&str| {
            row.chars().count() > COLUMNS && !row.starts_with("c3po: ") && !row.starts_with("try: ")
        };
        let wide = shown.lines().find(is_wide);
        ensure!(
            !is_wrapped || wide.is_none(),
            "c3po {typed} leaves it to the terminal to wrap {wide:?}"
        );
        let document = |line: &&str| line.starts_with('{');
        for line in shown
            .lines()
            .filter(document)
            .filter(|_| typed.starts_with("--json"))
        {
            serde_json::from_str::<Value>(line).with_context(|| format!("c3po {typed}: {line}"))?;
        }
        Ok(())
    });
    all_well(running).await
}

/// Runs checks, several at a time.
///
/// Errors: those of all checks.
async fn all_well(checks: impl Iterator<Item = impl Future<Output = Result<()>>>) -> Result<()> {
    let outcomes: Vec<_> = stream::iter(checks)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let errors: Vec<_> = outcomes
        .into_iter()
        .filter_map(Result::err)
        .map(|error| format!("{error:#}"))
        .collect();
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    Ok(())
}

/// Returns a command for text and one for JSON.
fn both(typed: &str) -> [String; 2] {
    [typed.to_owned(), format!("--json {typed}")]
}

#[tokio::test]
async fn nothing_in_a_hostile_answer_reaches_the_terminal() -> Result<()> {
    let results = |results| Answers {
        results,
        refusal: refusal("FORBIDDEN", None),
        ..Answers::default()
    };
    let rows = COMMANDS.iter().flat_map(|(typed, fields)| {
        both(typed).map(|words| (words, *fields, results(answers(typed))))
    });
    all_asked(rows.collect()).await
}

#[tokio::test]
async fn nothing_in_a_hostile_refusal_reaches_the_terminal() -> Result<()> {
    let mut rows: Vec<(String, &[&str], Answers)> = Vec::new();
    let refused = |code, advice, results| Answers {
        results,
        refusal: refusal(code, advice),
        ..Answers::default()
    };
    for (typed, _) in COMMANDS {
        let answers = refused("FORBIDDEN", None, BTreeMap::new());
        rows.extend(both(typed).map(|words| (words, &["error"][..], answers.clone())));
    }
    // The link is accepted, and its calls are refused.
    for typed in [
        "send a hi",
        "broadcast hi",
        "inbox",
        "ack --all",
        "thread a::human::00000001",
        "doctor",
    ] {
        let hello: BTreeMap<_, _> = answers(typed).remove_entry("hello").into_iter().collect();
        rows.extend(both(typed).map(|words| {
            (
                words,
                &["error"][..],
                refused("INVALID_REQUEST", None, hello.clone()),
            )
        }));
    }
    // Only the first requests of the status are answered.
    let agents = answers("status")
        .into_iter()
        .filter(|(asked, _)| asked != "/api/pending")
        .collect();
    rows.push((
        "status".to_owned(),
        &["error", "store"],
        refused("FORBIDDEN", None, agents),
    ));
    for advice in Advice::ALL {
        let answers = refused("AGENT_NOT_FOUND", Some(advice.as_str()), BTreeMap::new());
        rows.push(("sent".to_owned(), &["error"], answers));
    }
    all_asked(rows).await
}

#[tokio::test]
async fn nothing_of_another_program_or_of_the_end_of_a_link_reaches_the_terminal() -> Result<()> {
    let reason =
        "reason a\u{1b}[2J\u{9b}31m\u{202e}\u{200f}b\r\nFAKED: a line as of the program itself";
    let close = Answers {
        close: Some(reason.to_owned()),
        ..Answers::default()
    };
    let raw = Answers {
        raw: Some(format!(
            "{}\r\nServer: {}\r\n\r\n",
            field("line"),
            field("server")
        )),
        ..Answers::default()
    };
    let mut rows: Vec<(String, &[&str], Answers)> = Vec::new();
    for typed in ["inbox", "tail", "doctor"] {
        rows.extend(both(typed).map(|words| (words, &["reason"][..], close.clone())));
    }
    for typed in ["agents", "inbox"] {
        rows.extend(both(typed).map(|words| (words, &["line"][..], raw.clone())));
    }
    let rows = rows.into_iter().map(async |(typed, fields, answers)| {
        let (work, impostor) = (TempDir::new()?, Impostor::start(answers).await?);
        let shown = shown(work.path(), &typed, impostor.url(), None).await?;
        ensure!(
            fields.iter().all(|name| shown.contains(name)),
            "c3po {typed} shows no {fields:?}:\n{shown}"
        );
        Ok(())
    });
    all_well(rows).await
}

#[tokio::test]
async fn nothing_in_the_refusal_of_a_session_reaches_its_log_or_a_status_line() -> Result<()> {
    let work = TempDir::new()?;
    let answers = Answers {
        refusal: refusal("UNAUTHORIZED", None),
        ..Answers::default()
    };
    let impostor = Impostor::start(answers).await?;
    let web = session(work.path(), "web", impostor.url()).await?;
    // A call makes the session real.
    let refused = web.call("ping", json!({})).await?;
    ensure!(refused.text.contains("error a"), "{refused:?}");
    for typed in both("statusline") {
        let line = async || {
            let shown = shown(work.path(), &typed, impostor.url(), None).await;
            shown
                .map(|line| line.contains("error a").then_some(()))
                .transpose()
        };
        eventually("a refused session in the status line", REFUSED, line).await??;
    }
    for typed in both("doctor") {
        let shown = shown(work.path(), &typed, impostor.url(), None).await?;
        ensure!(shown.contains("last error: error a"), "{shown}");
    }
    let log = fs::read_to_string(work.path().join("web.log"))?;
    ensure!(log.contains("refused: error a"), "{log}");
    check(&log).context("the log of the proxy")
}

#[tokio::test]
async fn every_command_is_in_the_table() -> Result<()> {
    let work = TempDir::new()?;
    let help = shown(work.path(), "--help", "http://127.0.0.1:9", None).await?;
    let names = commands_in(&help);
    ensure!(names.len() > 20, "{names:?}");
    for name in names {
        let is_there = COMMANDS
            .iter()
            .any(|(typed, _)| typed.split(' ').next() == Some(name))
            || LOCAL.contains(&name);
        ensure!(is_there, "add {name} to the table of commands and fields");
    }
    Ok(())
}
