//! Reading the audit page by page.

use c3po_shared::audit::{AuditPage, AuditQuery};
use c3po_shared::limits::{AUDIT_PAGE_MAX, PAGE_DEFAULT};
use c3po_shared::refusal::{ErrorCode, Refusal};

use super::Office;

/// How many entries one page looks at: where few of them are wanted, the next one goes on.
const LOOKED_AT_MAX: usize = 20_000;

/// Returns the next entries of those that the query wants.
///
/// Errors: `NOT_SUPPORTED` where no audit is kept, `INVALID_REQUEST` for a limit out of bounds, `STORE_UNAVAILABLE`.
pub(crate) async fn page(office: &Office, query: &AuditQuery) -> Result<AuditPage, Refusal> {
    if !office.audit.is_kept() {
        let error = "this coordinator keeps no audit";
        return Err(Refusal::new(ErrorCode::NotSupported, error)
            .suggest("Start it with --audit-entries N, or without that option."));
    }
    let limit = query.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=AUDIT_PAGE_MAX).contains(&limit) {
        return Err(Refusal::invalid(format!("limit is {limit}; it must be from 1 to {AUDIT_PAGE_MAX}")));
    }
    let (mut entries, mut next, mut looked_at) = (Vec::new(), query.after.unwrap_or_default(), 0);
    while looked_at < LOOKED_AT_MAX {
        let read = office.store.audit(next, AUDIT_PAGE_MAX).await?;
        if read.is_empty() {
            return Ok(AuditPage { entries, next, complete: true });
        }
        looked_at += read.len();
        for entry in read {
            if entries.len() == limit {
                return Ok(AuditPage { entries, next, complete: false });
            }
            next = entry.position;
            let wanted = query.since.is_none_or(|since| entry.at >= since)
                && query.agent.as_ref().is_none_or(|agent| entry.concerns(agent));
            if wanted {
                entries.push(entry);
            }
        }
    }
    Ok(AuditPage { entries, next, complete: false })
}
