//! Events: the changes in the log that a principal may see, as pages and as a stream.

use std::sync::Arc;
use std::time::Duration;

use c3po_shared::audit::{AuditPage, Entry, LogQuery};
use c3po_shared::limits::EVENT_READERS;
use c3po_shared::refusal::{ErrorCode, Refusal};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::view::View;
use super::{Services, audit, begin_read};
use crate::auth::Principal;
use crate::unfinished::Charge;

/// How long a stream waits for further entries after the first one, so that a busy log is read in pages.
const GATHER: Duration = Duration::from_millis(10);
/// How long a stream is silent at most. It then also looks at the log, in case that a hint was lost.
const QUIET: Duration = Duration::from_secs(15);
/// How long a stream of a busy principal waits before it begins at most: one that is opened and left again costs most.
const OPENING_MAX: Duration = Duration::from_millis(250);

/// Returns the next events that match the query.
///
/// Errors: as for [`audit::page`].
pub(crate) async fn page(
    services: &Services,
    principal: &Principal,
    query: &LogQuery,
) -> Result<(AuditPage, Charge), Refusal> {
    audit::charged(services, principal, query, Some(View::default())).await
}

/// The next part of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Events, in order.
    Events(Vec<Entry>),
    /// Entries before the next position are no longer in the log, so the reader has to read the state again. Has the
    /// position after which the stream continues.
    Reset(u64),
    /// Nothing happened for a while.
    Quiet,
}

/// A stream of events.
#[derive(Debug)]
pub(crate) struct Events {
    services: Arc<Services>,
    principal: Arc<Principal>,
    query: LogQuery,
    /// The position of the last entry that was read.
    after: u64,
    grows: watch::Receiver<()>,
    _places: [OwnedSemaphorePermit; 2],
}

impl Events {
    /// Begins a stream after the position of the query, or at the present end of the log. A busy principal waits before that, or
    /// before its refusal.
    ///
    /// Errors: `NOT_SUPPORTED` if no audit is kept, `RATE_LIMITED` beyond `EVENT_READERS` and the places of the principal, `STORE_UNAVAILABLE`.
    pub(crate) async fn begin(
        services: Arc<Services>,
        principal: Arc<Principal>,
        query: LogQuery,
    ) -> Result<Self, Refusal> {
        audit::check_kept(&services)?;
        principal.turns().paid(OPENING_MAX).await;
        let own_place = principal.begin_stream()?;
        let place = Arc::clone(&services.event_readers).try_acquire_owned();
        let place = place.map_err(|_| {
            let error = format!("this coordinator has {EVENT_READERS} readers of events already");
            Refusal::new(ErrorCode::RateLimited, error)
                .suggest("End some of the streams, or read pages.")
                .detail("limit", EVENT_READERS)
        })?;
        let after = match query.after {
            Some(after) => after,
            None => services.store.audit_end().await?,
        };
        let grows = services.store.log_grows();
        Ok(Self {
            services,
            principal,
            query,
            after,
            grows,
            _places: [own_place, place],
        })
    }

    /// Returns the position of the last entry that was read.
    pub(crate) fn position(&self) -> u64 {
        self.after
    }

    /// Waits for the next part of the stream, for a limited time.
    pub(crate) async fn next(&mut self) -> Result<Next, Refusal> {
        loop {
            // Marked before the log is read, so that no entry is missed.
            self.grows.mark_unchanged();
            {
                let principal = Arc::clone(&self.principal);
                let Ok(_reading) = begin_read(&principal).await else {
                    return Ok(Next::Quiet);
                };
                let read = self
                    .services
                    .store
                    .audit(self.after, audit::READ_AT_ONCE)
                    .await?;
                let is_behind = !read.is_empty();
                if let Some(next) = self.take(read).await? {
                    return Ok(next);
                }
                if is_behind {
                    // There may be more, of which it may see something.
                    yield_now().await;
                    continue;
                }
            }
            match timeout(QUIET, self.grows.changed()).await {
                Ok(Ok(())) => sleep(GATHER).await,
                Ok(Err(_)) => return Err(Refusal::store_unavailable()),
                Err(_) => return Ok(Next::Quiet),
            }
        }
    }

    /// Moves behind the entries that were read. Returns a part of the stream if they make one.
    async fn take(&mut self, read: Vec<Entry>) -> Result<Option<Next>, Refusal> {
        let before = match read.first() {
            Some(first) => first.position - 1,
            // A log that was lost begins anew.
            None => self.services.store.audit_end().await?.min(self.after),
        };
        if before != self.after {
            self.after = before;
            return Ok(Some(Next::Reset(before)));
        }
        if let Some(last) = read.last() {
            self.after = last.position;
        }
        let (mut events, mut view) = (Vec::new(), View::default());
        for entry in read.into_iter().filter(|entry| self.query.selects(entry)) {
            if view.shows(&self.services, &self.principal, &entry).await? {
                events.push(entry);
            }
        }
        Ok((!events.is_empty()).then_some(Next::Events(events)))
    }
}
