//! Reads the audit: pages of entries, and the latest messages of an agent.

use std::collections::VecDeque;

use c3po_shared::audit::{AuditPage, Entry, Event, LogQuery};
use c3po_shared::ids::AgentId;
use c3po_shared::limits::{AUDIT_PAGE_MAX, PAGE_DEFAULT};
use c3po_shared::receipt::furthest;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::sent::{SentMessage, SentMessages};

use super::own::Own;
use super::view::View;
use super::{Services, begin, begin_read, room_for_texts};
use crate::auth::{Principal, Work};
use crate::unfinished::Charge;

/// How many entries one page scans. If few of them match, the next page continues the scan.
const LOOKED_AT_MAX: usize = 20_000;

/// How many entries are read at once: the store does nothing else meanwhile.
pub(super) const READ_AT_ONCE: usize = 40;
/// The number of sent messages to return.
const SENT_MAX: usize = 20;
/// How many of the latest audit entries, of all agents, are scanned for these messages.
const SENT_LOOK: u64 = 10_000;

/// Returns the next entries that match the query, with their charge.
///
/// Errors: `NOT_SUPPORTED` if no audit is kept, `INVALID_REQUEST` for a limit out of bounds, `STORE_UNAVAILABLE`, `RATE_LIMITED`
/// without room for the answer, and those of [`begin_read`].
pub(crate) async fn page(
    services: &Services,
    principal: &Principal,
    query: &LogQuery,
) -> Result<(AuditPage, Charge), Refusal> {
    charged(services, principal, query, None).await
}

/// Returns the next entries that match the query and that the view shows, with their charge. Few have room at a time, because
/// reading the log takes long, and answers with texts need the same room.
///
/// Errors: as for [`page`].
pub(super) async fn charged(
    services: &Services,
    principal: &Principal,
    query: &LogQuery,
    view: Option<View>,
) -> Result<(AuditPage, Charge), Refusal> {
    let _page = begin(principal, Work::LogPage).await?;
    let charge = room_for_texts(services, principal).await?;
    Ok((matching(services, principal, query, view).await?, charge))
}

/// Returns the next entries that match the query and that the view shows.
///
/// Errors: as for [`page`].
async fn matching(
    services: &Services,
    principal: &Principal,
    query: &LogQuery,
    mut view: Option<View>,
) -> Result<AuditPage, Refusal> {
    check_kept(services)?;
    let limit = query.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=AUDIT_PAGE_MAX).contains(&limit) {
        return Err(Refusal::invalid(format!(
            "limit is {limit}; it must be from 1 to {AUDIT_PAGE_MAX}"
        )));
    }
    let (mut entries, mut next, mut looked_at) = (Vec::new(), query.after.unwrap_or_default(), 0);
    while looked_at < LOOKED_AT_MAX {
        let read = read(services, principal, next).await?;
        if read.is_empty() && next > services.store.audit_end().await? {
            // A backup was restored: the log continues at an earlier position.
            return Ok(AuditPage {
                entries,
                next: 0,
                complete: false,
            });
        }
        if read.is_empty() {
            return Ok(AuditPage {
                entries,
                next,
                complete: true,
            });
        }
        looked_at += read.len();
        // A name may have gone to another host between two parts.
        view = view.map(|_| View::default());
        for entry in read {
            if entries.len() == limit {
                return Ok(AuditPage {
                    entries,
                    next,
                    complete: false,
                });
            }
            next = entry.position;
            let is_shown = match &mut view {
                _ if !query.selects(&entry) => false,
                Some(view) => view.shows(services, principal, &entry).await?,
                None => true,
            };
            if is_shown {
                entries.push(entry);
            }
        }
    }
    Ok(AuditPage {
        entries,
        next,
        complete: false,
    })
}

/// Reads a part of the log, with a place of the principal: others have it between the parts.
async fn read(
    services: &Services,
    principal: &Principal,
    after: u64,
) -> Result<Vec<Entry>, Refusal> {
    let _reading = begin_read(principal).await?;
    Ok(services.store.audit(after, READ_AT_ONCE).await?)
}

/// Returns the latest messages that the agent sent according to the audit, with the stage of each. Messages of an earlier agent
/// of its name are left out ([`Own`]).
///
/// Errors: `NOT_SUPPORTED` if no audit is kept, `STORE_UNAVAILABLE`, and those of [`begin_read`].
pub(crate) async fn sent(
    services: &Services,
    principal: &Principal,
    agent: AgentId,
) -> Result<SentMessages, Refusal> {
    check_kept(services)?;
    let end = services.store.audit_end().await?;
    let (mut after, mut latest) = (end.saturating_sub(SENT_LOOK), VecDeque::new());
    while after < end {
        let read = read(services, principal, after).await?;
        let Some(last) = read.last() else { break };
        after = last.position;
        principal.note_calls(1);
        latest.extend(read.into_iter().filter(|entry| is_sent_by(entry, &agent)));
        latest.drain(..latest.len().saturating_sub(SENT_MAX));
    }
    let (own, mut messages) = (Own::as_agent(services, principal, &agent), Vec::new());
    for entry in latest {
        let (Some(message_id), Some(to)) = (entry.message_id, entry.to) else {
            continue;
        };
        let _reading = begin_read(principal).await?;
        let kept = services.message(principal, &message_id).await?;
        let is_own = match &kept {
            Some(kept) => own.has_kept(kept).await?,
            None => own.had(entry.at).await?,
        };
        if !is_own {
            continue;
        }
        let stage = kept.as_ref().map(|kept| furthest(&kept.history));
        let title = kept.and_then(|kept| kept.message.title.clone());
        messages.push(SentMessage {
            message_id,
            to,
            at: entry.at,
            reply_to: entry.about,
            stage,
            title,
        });
    }
    Ok(SentMessages {
        agent_id: agent,
        messages,
    })
}

fn is_sent_by(entry: &Entry, agent: &AgentId) -> bool {
    matches!(entry.event, Event::Accepted | Event::Answered) && entry.agent.as_ref() == Some(agent)
}

/// Errors: `NOT_SUPPORTED` if no audit is kept.
pub(super) fn check_kept(services: &Services) -> Result<(), Refusal> {
    if services.audit.is_kept() {
        return Ok(());
    }
    let error = "this coordinator keeps no audit";
    Err(Refusal::new(ErrorCode::NotSupported, error)
        .suggest("Start it with --audit-entries N, or without --audit-entries 0."))
}
