//! `c3po audit`: the record of events, in order, with agents and reasons.

use std::time::Duration;

use c3po_shared::audit::{AuditPage, Columns, LogQuery, Since};
use c3po_shared::ids::AgentId;
use c3po_shared::limits::AUDIT_PAGE_MAX;
use c3po_shared::text::harmless;
use c3po_shared::time::Timestamp;

use super::completions;
use super::failure::Failure;
use super::print::Printer;
use super::rest;
use crate::config::Config;

/// How often new entries are requested.
const LOOK: Duration = Duration::from_millis(500);

/// The entries to print.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Continue with new entries as they arrive; Ctrl-C ends it
    #[arg(long)]
    follow: bool,
    /// Only entries since a time such as 2026-01-15T10:30:00Z, or since 10m, 2h or 3d ago
    #[arg(long)]
    since: Option<Since>,
    /// Only entries of this agent, as sender or recipient
    #[arg(long, value_name = "NAME", add = completions::agents())]
    agent: Option<AgentId>,
}

pub(super) async fn run(
    config: Config,
    printer: &Printer,
    arguments: Arguments,
) -> Result<(), Failure> {
    let Arguments {
        follow,
        since,
        agent,
    } = arguments;
    let since = since
        .map(|Since(since)| since)
        .or(follow.then(Timestamp::now));
    let page = async |after| {
        let query = LogQuery {
            after,
            since,
            agent: agent.clone(),
            limit: Some(AUDIT_PAGE_MAX),
            ..LogQuery::default()
        };
        Ok(rest::get(&config, "/api/audit", &query).await?.read)
    };
    print_pages(printer, follow, page).await
}

/// Prints pages of the log, each of which `read` returns for the position before it, until Ctrl-C or the end of the log.
pub(super) async fn print_pages(
    printer: &Printer,
    follow: bool,
    read: impl AsyncFn(Option<u64>) -> Result<AuditPage, Failure>,
) -> Result<(), Failure> {
    tokio::select! {
        ended = every_page(printer, follow, read) => ended,
        pressed = tokio::signal::ctrl_c() => {
            pressed.map_err(|error| Failure::Usage(format!("cannot listen for Ctrl-C: {error}")))
        }
    }
}

async fn every_page(
    printer: &Printer,
    follow: bool,
    read: impl AsyncFn(Option<u64>) -> Result<AuditPage, Failure>,
) -> Result<(), Failure> {
    let (mut after, mut is_away, mut columns) = (None, false, Columns::default());
    loop {
        let page = match read(after).await {
            Ok(page) => page,
            // A running follow continues when the coordinator is back.
            Err(Failure::NoCoordinator(refusal)) if follow && after.is_some() => {
                if !is_away {
                    eprintln!(
                        "c3po: {}; retrying until it answers",
                        harmless(&refusal.to_string(), false)
                    );
                }
                is_away = true;
                tokio::time::sleep(LOOK).await;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        is_away = false;
        if printer.json {
            page.entries
                .iter()
                .try_for_each(|entry| printer.document(entry))?;
        } else {
            let rows: Vec<_> = page
                .entries
                .iter()
                .map(|entry| entry.columns(printer.moment(entry.at)))
                .collect();
            columns
                .lines(&rows)
                .iter()
                .try_for_each(|line| printer.others("", line))?;
        }
        if after.is_some_and(|after| page.next < after) {
            eprintln!(
                "c3po: the log continues at an earlier position, as after a restore; all its entries follow"
            );
        }
        after = Some(page.next);
        match (page.complete, follow) {
            (true, false) => return Ok(()),
            (true, true) => tokio::time::sleep(LOOK).await,
            (false, _) => {}
        }
    }
}
