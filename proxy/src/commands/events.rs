//! `c3po events`: the changes that this host may see, in order.

use c3po_shared::audit::{AuditPage, Event, LogQuery, Since};
use c3po_shared::event::{Envelope, PATH};
use c3po_shared::ids::AgentId;
use c3po_shared::limits::AUDIT_PAGE_MAX;
use c3po_shared::time::Timestamp;

use super::failure::Failure;
use super::print::Printer;
use super::{audit, completions, rest};
use crate::config::Config;

/// The events to print.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Continue with new events as they arrive; Ctrl-C ends it
    #[arg(long)]
    follow: bool,
    /// Only events since a time such as 2026-01-15T10:30:00Z, or since 10m, 2h or 3d ago
    #[arg(long)]
    since: Option<Since>,
    /// Only events of this agent, as sender or recipient
    #[arg(long, value_name = "NAME", add = completions::agents())]
    agent: Option<AgentId>,
    /// Only events of this kind, such as accepted or receipt
    #[arg(long, value_name = "KIND")]
    event: Option<Event>,
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
        event,
    } = arguments;
    let since = since
        .map(|Since(since)| since)
        .or(follow.then(Timestamp::now));
    let page = async |after| {
        let query = LogQuery {
            after,
            since,
            agent: agent.clone(),
            event,
            limit: Some(AUDIT_PAGE_MAX),
            state: None,
        };
        let page: Envelope<AuditPage> = rest::get(&config, PATH, &query).await?.read;
        Ok(page.data)
    };
    audit::print_pages(printer, follow, page).await
}
