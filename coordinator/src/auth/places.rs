//! The places of a principal in the queue of the store, so that none keeps the others waiting.

use std::sync::Arc;
use std::time::Duration;

use c3po_shared::limits::{CALLS_PER_KEY, EVENT_READERS, EVENT_READERS_PER_KEY};
use c3po_shared::refusal::Refusal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::principal::{Principal, Who, crowded};
use super::work::{CALL, Work};
use crate::store::CHANGED_BY_CALL;

/// How many calls a request costs whose client left: as many as a read of the longest messages.
const ABANDONED: u32 = 32;
/// When a client may repeat a read that found no place, in seconds.
const RETRY_AFTER: u64 = 2;

impl Who {
    /// Returns whether its clients are one host, and not clients that may be many.
    pub(super) fn is_one_host(&self) -> bool {
        !matches!(self, Self::Anybody(_) | Self::Token)
    }

    /// Returns the first limit for one host, the second one for clients that may be many hosts.
    pub(super) fn limit(&self, (one, many): (usize, usize)) -> usize {
        if self.is_one_host() { one } else { many }
    }

    /// Returns it with its verb, for the refusal of a further place.
    fn subject(&self) -> String {
        match self {
            Self::Key { id, .. } => format!("the key {id} has"),
            Self::Login { id, .. } => format!("the login {id} has"),
            Self::Local => "the coordinator's own user has".to_owned(),
            Self::Anybody(_) | Self::Token => "the clients without a key have".to_owned(),
        }
    }
}

impl Principal {
    /// Takes a place for a request by REST, so that a flood of them waits before any work. Clients without a credential need
    /// none: they may be many, and one could read slowly.
    ///
    /// Errors: `RATE_LIMITED` if all places stay taken for that time.
    pub(crate) async fn begin_request(
        &self,
        within: Duration,
    ) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
        self.place_at(&self.places.requests, "requests", within)
            .await
    }

    /// Takes a place for the upgrade to a link, as for a request. Requests whose bodies come slowly hold none of these.
    ///
    /// Errors: `RATE_LIMITED` if all places stay taken for that time.
    pub(crate) async fn begin_upgrade(
        &self,
        within: Duration,
    ) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
        self.place_at(&self.places.upgrades, "upgrades", within)
            .await
    }

    async fn place_at(
        &self,
        places: &Arc<Semaphore>,
        of: &str,
        within: Duration,
    ) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
        if matches!(self.who, Who::Anybody(_)) {
            return Ok(None);
        }
        match timeout(within, Arc::clone(places).acquire_owned()).await {
            Ok(place) => Ok(place.ok()),
            Err(_) => Err(self.no_place((CALLS_PER_KEY, CALLS_PER_KEY), of)),
        }
    }

    /// Takes a place for a kind of work, in order of arrival.
    ///
    /// Errors: `RATE_LIMITED` if all places stay taken for that time, and those of [`Principal::is_recent`].
    pub(crate) async fn begin(
        &self,
        work: Work,
        within: Duration,
    ) -> Result<SemaphorePermit<'_>, Refusal> {
        if let Ok(place) = timeout(within, self.places.take(work)).await {
            self.is_recent().await?;
            return Ok(place);
        }
        Err(self.no_place(work.limits(), work.plural()))
    }

    /// Takes a place for a change of so many messages, which costs as much as so many calls. A long one needs a place like a read
    /// of texts.
    ///
    /// Errors as for [`Self::begin`].
    pub(crate) async fn begin_change(
        &self,
        messages: usize,
        within: Duration,
    ) -> Result<SemaphorePermit<'_>, Refusal> {
        let (work, unpaid) = match messages {
            ..=CHANGED_BY_CALL => (Work::Call, messages.saturating_sub(1)),
            _ => (Work::Read, messages),
        };
        let place = self.begin(work, within).await?;
        self.note_calls(u32::try_from(unpaid).unwrap_or(u32::MAX));
        Ok(place)
    }

    /// Waits while its calls are beyond their rate.
    pub(crate) async fn rest(&self) {
        if let Some(pace) = self.places.pace() {
            pace.rest().await;
        }
    }

    /// Counts a request whose client left before its answer: its place is free, and the store may still read for it. While calls
    /// rest, it had read nothing.
    pub(crate) fn note_abandoned(&self) {
        if let Some(pace) = self.places.pace() {
            let _ = pace.try_pay(ABANDONED * CALL);
        }
    }

    /// Counts work that costs the store as much as this number of calls.
    pub(crate) fn note_calls(&self, calls: u32) {
        if let Some(pace) = self.places.pace() {
            pace.note(calls * CALL);
        }
    }

    /// Takes a place for a stream of events.
    ///
    /// Errors: `RATE_LIMITED` if all places are taken.
    pub(crate) fn begin_stream(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let place = Arc::clone(&self.places.streams).try_acquire_owned();
        place.map_err(|_| {
            let limit = self.who.limit((EVENT_READERS_PER_KEY, EVENT_READERS));
            crowded(&self.who.subject(), limit, "streams of events", limit)
        })
    }

    fn no_place(&self, limits: (usize, usize), of: &str) -> Refusal {
        let limit = self.who.limit(limits);
        crowded(&self.who.subject(), limit, of, limit)
            .suggest("Call again in a few seconds, or give each host its own key.")
            .detail("retry_after_seconds", RETRY_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use c3po_shared::limits::{CALLS_PER_SECOND, READS_PER_KEY, READS_WITHOUT_KEY};
    use c3po_shared::refusal::ErrorCode;
    use c3po_shared::vocabulary::Scope;
    use tokio::time::Instant;

    use super::super::principal::Reach;
    use super::super::principal::tests::key;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_calls_at_its_rate_and_clients_that_may_be_many_hosts_as_they_like() {
        let second = Duration::from_secs(1);
        for (principal, seconds) in [
            (key(Scope::Agent, "*"), 2),
            (Principal::anybody(Reach::Network), 0),
        ] {
            let began = Instant::now();
            // The first second of calls is the burst.
            for _ in 0..3 * CALLS_PER_SECOND {
                drop(principal.begin(Work::Call, second).await.expect("a place"));
            }
            assert_eq!(began.elapsed().as_secs_f64().round() as u32, seconds);
            // Dear work has to be paid off before the next call.
            let began = Instant::now();
            principal.note_calls(CALLS_PER_SECOND);
            principal.rest().await;
            assert_eq!(began.elapsed().as_secs_f64().round() as u32, seconds / 2);
            // So have requests whose clients left, once, before the next read.
            let began = Instant::now();
            for _ in 0..CALLS_PER_SECOND {
                principal.note_abandoned();
            }
            drop(principal.begin(Work::Read, second).await.expect("one"));
            // Tokio's clock counts milliseconds.
            let rests = u32::from(seconds > 0) * ABANDONED * CALL;
            let rested = began.elapsed();
            assert!(rested >= rests && rested <= 2 * rests, "{rested:?}");
            drop(principal.begin(Work::Read, second).await.expect("a place"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_costs_a_call_for_each_message() {
        let second = Duration::from_secs(1);
        for messages in [0, 1, CHANGED_BY_CALL, CHANGED_BY_CALL + 1, 1_000] {
            let principal = key(Scope::Agent, "*");
            // The burst is used up.
            principal.note_calls(CALLS_PER_SECOND);
            let began = Instant::now();
            let place = principal.begin_change(messages, second).await;
            let rested = began.elapsed();
            drop(place.expect("a place"));
            principal.rest().await;
            let price = u32::try_from(messages.max(1)).expect("few") * CALL;
            let slack = Duration::from_millis(2);
            let all = began.elapsed();
            assert!(
                all >= price && all <= price + slack && rested < slack,
                "{messages}: {all:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_principal_has_few_reads_at_a_time_and_others_do_not_wait() {
        const WITHIN: Duration = Duration::from_secs(2);
        for (one, other, places) in [
            (
                key(Scope::Agent, "*"),
                key(Scope::Agent, "*"),
                READS_PER_KEY,
            ),
            (
                Principal::token(),
                Principal::anybody(Reach::Network),
                READS_WITHOUT_KEY,
            ),
        ] {
            let mut reads = Vec::new();
            for _ in 0..places {
                reads.push(one.begin(Work::Read, WITHIN).await.expect("a place"));
            }
            let refused = one.begin(Work::Read, WITHIN).await.map(drop);
            assert_eq!(
                refused.map_err(|refusal| refusal.code),
                Err(ErrorCode::RateLimited)
            );
            let mut waiting = std::pin::pin!(one.begin(Work::Read, WITHIN));
            assert!(futures_util::poll!(&mut waiting).is_pending());
            assert!(
                futures_util::poll!(std::pin::pin!(other.begin(Work::Read, WITHIN))).is_ready()
            );
            reads.pop();
            assert!(futures_util::poll!(&mut waiting).is_ready());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_requests_waits_before_any_work() {
        const WITHIN: Duration = Duration::from_secs(2);
        let (one, anybody) = (key(Scope::Agent, "*"), Principal::anybody(Reach::Network));
        let mut places = Vec::new();
        for _ in 0..CALLS_PER_KEY {
            places.push(one.begin_request(WITHIN).await.expect("a place"));
        }
        let refused = one.begin_request(WITHIN).await.expect_err("all are taken");
        assert_eq!(refused.code, ErrorCode::RateLimited);
        assert!(
            one.begin(Work::Call, WITHIN).await.is_ok(),
            "a call of such a request"
        );
        places.clear();
        for _ in 0..CALLS_PER_KEY {
            places.push(one.begin_upgrade(WITHIN).await.expect("a place"));
        }
        let refused = one.begin_upgrade(WITHIN).await.expect_err("all are taken");
        assert_eq!(refused.code, ErrorCode::RateLimited);
        assert!(one.begin_request(WITHIN).await.is_ok());
        assert!(anybody.begin_request(WITHIN).await.expect("none").is_none());
    }
}
