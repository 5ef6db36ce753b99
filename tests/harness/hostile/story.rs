//! The files of a run with findings: each finding with the story of its message, and the log.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use c3po_shared::time::Timestamp;

use super::checker::{Record, Report, Request};
use super::token::Token;

/// The start of a story before the message was sent, in milliseconds.
const BEFORE: u64 = 5_000;

/// Writes `findings.txt`, `requests.txt` and `log.txt` into the folder.
///
/// Errors: they cannot be written.
pub(super) fn write(
    folder: &Path,
    record: &Record,
    report: &Report,
    news: &[String],
    log: &str,
) -> Result<()> {
    let began = record
        .requests
        .first()
        .map(|request| request.at)
        .unwrap_or_default();
    let mut findings = format!("{report}\n");
    for finding in &report.findings {
        let story = finding
            .token()
            .map(|token| story(record, token, began))
            .unwrap_or_default();
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(findings, "== {finding}\n{story}");
    }
    for token in repeated(record) {
        let _ = writeln!(
            findings,
            "== repeated in one request, and marked: {token}\n{}",
            story(record, token, began)
        );
    }
    let mut requests = String::new();
    for (number, (request, new)) in record.requests.iter().zip(news).enumerate() {
        let _ = writeln!(requests, "== {number} {}\n{new}\n", line(request, began));
    }
    for (name, text) in [
        ("findings.txt", &findings),
        ("requests.txt", &requests),
        ("log.txt", &log.to_owned()),
    ] {
        fs::write(folder.join(name), text).with_context(|| name.to_owned())?;
    }
    Ok(())
}

/// Returns the messages that were in a request twice.
fn repeated(record: &Record) -> BTreeSet<Token> {
    let mut repeated = BTreeSet::new();
    for request in &record.requests {
        let mut known = BTreeSet::new();
        repeated.extend(
            request
                .standing
                .iter()
                .map(|standing| standing.token)
                .filter(|token| !known.insert(*token)),
        );
    }
    repeated
}

/// Returns the story of a message in order: its requests, its receipts, and the actions of its person.
fn story(record: &Record, token: Token, began: Timestamp) -> String {
    let mut lines: Vec<(Timestamp, String)> = Vec::new();
    let Some(sent) = record.sent.iter().find(|sent| sent.token == token) else {
        return String::new();
    };
    let kind = if sent.presses { "question" } else { "news" };
    lines.push((sent.at, format!("sent: {kind} {}", sent.id)));
    let mut earlier = None;
    for (number, request) in record
        .requests
        .iter()
        .enumerate()
        .filter(|(_, request)| request.seat == token.seat)
    {
        let copies = request
            .standing
            .iter()
            .filter(|standing| standing.token == token);
        let marks: String = copies
            .map(|standing| if standing.marked { 'm' } else { 'o' })
            .collect();
        // Of consecutive requests that do not differ in this only the first is listed.
        let known = (
            marks.clone(),
            request.asker,
            request.ended.map(|(fate, _)| fate),
        );
        if earlier.as_ref() != Some(&known) {
            lines.push((
                request.at,
                format!(
                    "request {number}, copies [{marks}]: {}",
                    line(request, began)
                ),
            ));
        }
        earlier = Some(known);
    }
    lines.extend(receipts(record, token));
    lines.extend(deeds(record, token));
    lines.sort_by_key(|(at, _)| *at);
    let from = sent.at.millis().saturating_sub(BEFORE);
    let lines = lines.into_iter().filter(|(at, _)| at.millis() >= from);
    lines
        .map(|(at, line)| format!("  {:8.3} {line}\n", at.since(began).as_secs_f64()))
        .collect()
}

/// Returns the lines of its receipts, and of the model that dealt with it.
fn receipts(record: &Record, token: Token) -> Vec<(Timestamp, String)> {
    let mut lines = Vec::new();
    for step in record.histories.get(&token).into_iter().flatten() {
        let (via, session) = (
            step.via.as_deref().unwrap_or("-"),
            step.session.as_deref().unwrap_or("-"),
        );
        lines.push((
            step.at,
            format!("receipt: {} by {via} in {session}", step.stage),
        ));
    }
    if let Some(at) = record.settled.get(&token) {
        lines.push((*at, "the model answers or acknowledges it".to_owned()));
    }
    lines
}

/// Returns the lines of its person, and of a session that was idle for long.
fn deeds(record: &Record, token: Token) -> Vec<(Timestamp, String)> {
    let mut lines = Vec::new();
    for deed in record.deeds.iter().filter(|deed| deed.seat == token.seat) {
        let took = deed.to.since(deed.from).as_secs_f64();
        lines.push((
            deed.from,
            format!("person: {} for {took:.1} s, {:?}", deed.name, deed.effect),
        ));
    }
    for idle in record
        .idle
        .iter()
        .filter(|idle| idle.seat == token.seat && idle.to.since(idle.from).as_secs() > 10)
    {
        lines.push((
            idle.from,
            format!("idle for {:.1} s", idle.to.since(idle.from).as_secs_f64()),
        ));
    }
    lines
}

fn line(request: &Request, began: Timestamp) -> String {
    let Request {
        seat,
        asker,
        at,
        ended,
        standing,
    } = request;
    let ended = ended.map_or("open".to_owned(), |(fate, end)| {
        format!("{fate:?} after {:.2} s", end.since(*at).as_secs_f64())
    });
    format!(
        "at {:.3}, house{seat}, {asker:?}, {ended}, {} messages",
        at.since(began).as_secs_f64(),
        standing.len()
    )
}
