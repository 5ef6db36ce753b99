//! `c3po-coordinator audit`: prints the audit, read page by page over the control socket.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use axum::http::Method;
use c3po_shared::audit::{AuditPage, Columns, LogQuery, Since};
use c3po_shared::ids::AgentId;
use c3po_shared::limits::AUDIT_PAGE_MAX;
use c3po_shared::text::harmless_json;
use c3po_shared::time::Timestamp;
use clap::Args;

use super::admin::asked;

/// The filter of audit entries.
#[derive(Debug, Clone, Args)]
pub struct AuditOptions {
    /// Only entries since then: a time such as 2026-01-15T10:30:00Z, or a duration such as 10m, 2h or 3d
    #[arg(long)]
    pub since: Option<Since>,
    /// Only entries that concern this agent
    #[arg(long, value_name = "NAME")]
    pub agent: Option<AgentId>,
    /// Print JSON, one entry per line
    #[arg(long)]
    pub json: bool,
}

impl AuditOptions {
    /// Reads the audit of the coordinator that listens there, page by page. Returns the output, which is bounded because the
    /// audit is.
    pub async fn ask(&self, data_dir: &Path, listen: SocketAddr) -> anyhow::Result<String> {
        let since = self.since.map(|Since(since)| since);
        let mut query = LogQuery {
            since,
            agent: self.agent.clone(),
            limit: Some(AUDIT_PAGE_MAX),
            ..LogQuery::default()
        };
        let mut entries = Vec::new();
        loop {
            let page = asked(
                data_dir,
                listen,
                (Method::GET, &path(&query), String::new()),
            )
            .await?;
            let page: AuditPage =
                serde_json::from_value(page).context("the answer is not a page of the audit")?;
            entries.extend(page.entries);
            query.after = Some(page.next);
            if page.complete {
                break;
            }
        }
        if self.json {
            let lines = entries
                .iter()
                .map(|entry| serde_json::to_string(entry).map(|line| harmless_json(&line)));
            return Ok(lines.collect::<Result<Vec<_>, _>>()?.join("\n"));
        }
        if entries.is_empty() {
            return Ok("The audit has no such entries.".to_owned());
        }
        let rows: Vec<_> = entries
            .iter()
            .map(|entry| entry.columns(moment(entry.at)))
            .collect();
        Ok(Columns::default().lines(&rows).join("\n"))
    }
}

/// Returns a time in UTC.
fn moment(at: Timestamp) -> String {
    at.to_string().replace('T', " ")
}

/// Returns the path of a page. No value needs escaping: they are times, names and numbers.
fn path(query: &LogQuery) -> String {
    let LogQuery {
        after,
        since,
        agent,
        limit,
        ..
    } = query;
    let members = [
        limit.map(|limit| format!("limit={limit}")),
        after.map(|after| format!("after={after}")),
        since.map(|since| format!("since={since}")),
        agent.as_ref().map(|agent| format!("agent={agent}")),
    ];
    format!(
        "/api/audit?{}",
        members.into_iter().flatten().collect::<Vec<_>>().join("&")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_asked_for_by_all_that_restricts_it() {
        let query = LogQuery {
            limit: Some(1_000),
            ..LogQuery::default()
        };
        assert_eq!(path(&query), "/api/audit?limit=1000");
        let since = Some(Timestamp::from_millis(0));
        let query = LogQuery {
            after: Some(7),
            since,
            agent: Some("web-1".parse().expect("an id")),
            ..query
        };
        assert_eq!(
            path(&query),
            "/api/audit?limit=1000&after=7&since=1970-01-01T00:00:00.000Z&agent=web-1"
        );
    }
}
