//! The runner of duties: claims those that are due, does their work, and finishes them. The store has the rows.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::metrics::DutyOutcome;
use crate::notify::{Notifier, do_push};
use crate::request::end_request;
use crate::store::{Claimed, Due, Duty, DutyKind, StoreError};

/// The longest time between two looks at the store: a duty that is planned this long ahead is done on time.
const LOOK: Duration = Duration::from_secs(5);
/// How long a claim lasts: the duties of a coordinator that was killed are done that late.
const CLAIM: Duration = Duration::from_secs(30);
/// How many duties one look claims. Their work is done at the same time, so that all are over long before the claim ends.
const AT_ONCE: usize = 32;
/// The deadline of the work of one duty, within which a stopped coordinator also ends.
const WORK: Duration = Duration::from_secs(4);
/// How long sessions have to come back after all coordinators were away.
const RETURN: Duration = Duration::from_secs(30);

/// Does duties until `stop` is cancelled, and then finishes the claimed ones.
pub(crate) async fn keep(notifier: Arc<Notifier>, stop: CancellationToken) {
    let services = notifier.services();
    loop {
        let looked = Instant::now();
        let claim = services.store.claim_due(AT_ONCE, CLAIM);
        let Some(due) = stop.run_until_cancelled(claim).await else {
            return;
        };
        let rest = match &due {
            Ok(due) => {
                do_all(&notifier, due, looked).await;
                rest(due)
            }
            Err(error) => {
                tracing::warn!("the due duties were not claimed: {error}");
                LOOK
            }
        };
        tokio::select! {
            () = sleep_until(looked + rest) => {}
            () = services.duties_due.notified() => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Returns the time from one look to the next: none if more duties may be due.
fn rest(due: &Due) -> Duration {
    if due.claimed.len() >= AT_ONCE {
        return Duration::ZERO;
    }
    due.next.map_or(LOOK, |next| next.min(LOOK))
}

/// Does the claimed duties, all at the same time.
async fn do_all(notifier: &Notifier, due: &Due, looked: Instant) {
    let metrics = &notifier.services().metrics.duties;
    let latest = due.claimed.iter().map(|claimed| claimed.late).max();
    metrics.oldest_is_due(latest.and_then(|late| looked.checked_sub(late)));
    join_all(due.claimed.iter().map(|claimed| do_one(notifier, claimed))).await;
    metrics.oldest_is_due(due.next.and_then(|next| looked.checked_add(next)));
}

/// Does one duty and ends its claim. A failed one stays claimed, so it is done again when the claim has run out.
async fn do_one(notifier: &Notifier, claimed: &Claimed) {
    let services = notifier.services();
    let (duty, metrics) = (&claimed.duty, &services.metrics.duties);
    if claimed.taken_over {
        metrics.taken_over(duty.kind);
    }
    let ending = async {
        Ok(match work(notifier, claimed).await? {
            None => services.store.finish(claimed).await?,
            Some(left) => services.store.postpone(claimed, left).await?,
        })
    };
    let too_long = |_| Err(anyhow::anyhow!("not over within {WORK:?}"));
    let outcome = match timeout(WORK, ending).await.unwrap_or_else(too_long) {
        Ok(true) => DutyOutcome::Done,
        Ok(false) => DutyOutcome::Outdated,
        Err(error) => {
            tracing::warn!("the duty {duty} was not done: {error:#}");
            DutyOutcome::Failed
        }
    };
    metrics.ended(duty.kind, outcome);
}

/// Does the work of a duty. Returns the time after which it is due again, or `None` if it is done for good.
async fn work(notifier: &Notifier, claimed: &Claimed) -> anyhow::Result<Option<Duration>> {
    let (duty, services) = (&claimed.duty, notifier.services());
    Ok(match duty.kind {
        // No coordinator ran: sessions need a moment to come back.
        DutyKind::EndRequest if claimed.late > RETURN => Some(RETURN),
        DutyKind::EndRequest => end_request(services, &object(duty)?).await?,
        DutyKind::Expire => services.store.expire(&object(duty)?).await?,
        DutyKind::Withdraw => services.store.withdraw(&object(duty)?).await?,
        DutyKind::Push => do_push(notifier, claimed).await?,
    })
}

/// Returns the id of the object that the duty concerns.
fn object<T: FromStr<Err: Display>>(duty: &Duty) -> Result<T, StoreError> {
    let id = duty.id.parse();
    id.map_err(|error| StoreError::Corrupt(format!("the duty {duty}: {error}")))
}

#[cfg(test)]
mod tests {
    use c3po_shared::ids::AgentId;
    use uuid::Uuid;

    use super::*;

    fn due(claimed: usize, next: Option<Duration>) -> Due {
        let agent: AgentId = "a".parse().expect("an id");
        let one = Claimed {
            duty: Duty::expire(&agent),
            claim: Uuid::nil(),
            late: Duration::ZERO,
            taken_over: false,
        };
        Due {
            claimed: vec![one; claimed],
            next,
        }
    }

    #[test]
    fn the_next_look_is_when_the_next_duty_is_due_and_never_late() {
        let millis = Duration::from_millis;
        for claimed in 0..=AT_ONCE {
            for next in [0, 1, 4_999, 5_000, 5_001, u64::MAX].map(millis) {
                let rest = rest(&due(claimed, Some(next)));
                assert!(
                    rest <= LOOK && rest <= next,
                    "{claimed}, {next:?}: {rest:?}"
                );
                assert_eq!(
                    rest == Duration::ZERO,
                    claimed == AT_ONCE || next.is_zero(),
                    "{claimed}, {next:?}: {rest:?}"
                );
            }
        }
        assert_eq!(rest(&due(0, None)), LOOK);
        assert_eq!(rest(&due(AT_ONCE - 1, None)), LOOK);
        assert_eq!(rest(&due(AT_ONCE, None)), Duration::ZERO);
    }

    /// All work of a look, with the ends of its claims, is over before another coordinator may claim it.
    #[test]
    fn a_claim_outlasts_its_work() {
        assert!(WORK * 2 < CLAIM);
        const { assert!(AT_ONCE <= crate::store::CLAIMED_MAX) };
    }
}
