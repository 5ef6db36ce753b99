//! Duties: a due one is claimed by one coordinator at a time, and stays until it is done.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use c3po_coordinator::store::{
    CLAIMED_MAX, Claim, Claimed, Due, Duty, Ending, REQUEST_CHECKED_EVERY, RETURN_MAX, Removal,
    SendOutcome, Store,
};
use c3po_shared::limits::{NAME_LIFE, QUESTIONS_PER_AGENT};
use c3po_shared::message::Message;
use c3po_shared::question::{ClientRequest, Question};
use c3po_shared::receipt::Stage;
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::QuestionKind;
use harness::eventually::eventually;
use harness::redis::Redis;
use tokio::task::JoinSet;

use super::Fixture;
use super::fixture::{LEASE, SHORT, SOON, brief, claim, id, message, send, woken};
use super::redis::fixture_on;

/// A claim that outlasts every test.
const HOLD: Duration = Duration::from_secs(600);

/// Returns a duty that no other call plans, as long as there is no agent of that name.
fn duty(name: &str) -> Duty {
    Duty::withdraw(&id(name))
}

fn ago(millis: u64) -> Timestamp {
    Timestamp::from_millis(Timestamp::now().millis() - millis)
}

fn names(due: &Due) -> Vec<&str> {
    let ids = due.claimed.iter().map(|claimed| claimed.duty.id.as_str());
    ids.collect()
}

/// Claims the only due duty.
async fn the_one(store: &dyn Store, hold: Duration) -> Result<Claimed> {
    let mut due = store.claim_due(10, hold).await?;
    ensure!(due.claimed.len() == 1, "{due:?}");
    due.claimed.pop().context("one")
}

/// Plans, claims and finishes one duty.
pub(crate) async fn one_goes_round(fixture: &Fixture) -> Result<()> {
    let store = &fixture.store;
    store.plan(&duty("round"), ago(60_000)).await?;
    let due = store.claim_due(CLAIMED_MAX, HOLD).await?;
    let one = due.claimed.iter().find(|one| one.duty.id == "round");
    ensure!(store.finish(one.context("it is due")?).await?, "{one:?}");
    Ok(())
}

/// Makes the functions of duties do the maximum work in one call.
pub(crate) async fn as_many_as_possible(store: &impl Store) -> Result<()> {
    for number in 0..CLAIMED_MAX + 20 {
        store.plan(&duty(&format!("n{number}")), ago(1)).await?;
    }
    let due = store.claim_due(usize::MAX, HOLD).await?;
    assert_eq!(due.claimed.len(), CLAIMED_MAX);
    for claimed in &due.claimed {
        store.plan(&claimed.duty, ago(1)).await?;
        assert!(store.postpone(claimed, HOLD).await?);
    }
    Ok(())
}

pub(crate) async fn a_due_duty_is_claimed_once_also_when_50_race(fixture: Fixture) -> Result<()> {
    const EACH: usize = 3;
    for number in 0..50 * EACH {
        fixture
            .store
            .plan(&duty(&format!("n{number}")), ago(1))
            .await?;
    }
    let mut racing = JoinSet::new();
    for _ in 0..50 {
        let store = Arc::clone(&fixture.store);
        racing.spawn(async move { store.claim_due(EACH + 1, HOLD).await });
    }
    let mut claimed = Vec::new();
    while let Some(due) = racing.join_next().await {
        claimed.extend(due??.claimed);
    }
    assert!(claimed.iter().all(|claimed| !claimed.taken_over));
    let mut ids: Vec<_> = claimed.iter().map(|claimed| &claimed.duty.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), claimed.len()), (50 * EACH, 50 * EACH));
    for claimed in &claimed {
        assert!(fixture.store.finish(claimed).await?);
    }
    assert_eq!(fixture.store.claim_due(10, HOLD).await?, Due::default());
    Ok(())
}

/// A request of a client comes with the duty that ends it with its session; one that is refused leaves none.
pub(crate) async fn only_a_stored_request_of_a_client_has_its_duty(fixture: Fixture) -> Result<()> {
    for agent in ["human", "a", "b"] {
        fixture.introduce(agent, None).await?;
    }
    let request = |from: &str| {
        let question = Question {
            kind: QuestionKind::Permission,
            parts: Vec::new(),
            needs_person: true,
            escalated: false,
            request: Some(ClientRequest {
                tool: "Bash".to_owned(),
                input: "{}".to_owned(),
                suggestions: Vec::new(),
                subagent: None,
                generation: None,
                hash: String::new(),
            }),
        };
        send(Message {
            question: Some(Box::new(question)),
            ..message(from, "human", "may I?")
        })
    };
    for _ in 0..QUESTIONS_PER_AGENT {
        let question = send(message("a", "human", "which one?"));
        ensure!(fixture.store.send(&question).await? == SendOutcome::Stored);
    }
    let refused = fixture.store.send(&request("a")).await?;
    ensure!(matches!(refused, SendOutcome::TooManyQuestions { .. }));
    let is_checked = async || {
        // Pushes are due at once, expiry after days.
        let due = fixture.store.claim_due(CLAIMED_MAX, HOLD).await?;
        Ok::<_, anyhow::Error>(due.next.is_some_and(|next| next <= REQUEST_CHECKED_EVERY))
    };
    assert!(!is_checked().await?);
    ensure!(fixture.store.send(&request("b")).await? == SendOutcome::Stored);
    assert!(is_checked().await?);
    Ok(())
}

pub(crate) async fn a_claim_that_ran_out_is_taken_over_and_its_end_changes_nothing(
    fixture: Fixture,
) -> Result<()> {
    let store = &*fixture.store;
    store.plan(&duty("a"), ago(5_000)).await?;
    let dead = the_one(store, SHORT).await?;
    assert!(
        !dead.taken_over && dead.late >= Duration::from_secs(5),
        "{dead:?}"
    );
    let due = store.claim_due(10, HOLD).await?;
    assert!(due.next.is_some_and(|next| next <= SHORT), "{due:?}");
    let heir = eventually("the claim has run out", SOON, async || {
        the_one(store, HOLD).await.ok()
    })
    .await?;
    assert_eq!(heir.duty, dead.duty);
    assert!(
        heir.taken_over && heir.late >= dead.late + SHORT,
        "{heir:?}"
    );
    assert_ne!(heir.claim, dead.claim);

    // The first coordinator was only slow.
    assert!(!store.finish(&dead).await? && !store.postpone(&dead, Duration::ZERO).await?);
    assert!(store.claim_due(10, HOLD).await?.claimed.is_empty());
    assert!(store.finish(&heir).await?);
    assert!(!store.finish(&heir).await?, "it is gone");
    assert_eq!(store.claim_due(10, HOLD).await?, Due::default());
    Ok(())
}

pub(crate) async fn a_duty_is_due_at_the_earliest_time_for_which_it_was_planned(
    fixture: Fixture,
) -> Result<()> {
    let store = &*fixture.store;
    for later in [3_600, 60, 1_800] {
        let due = Timestamp::now() + Duration::from_secs(later);
        store.plan(&duty("a"), due).await?;
    }
    let due = store.claim_due(10, HOLD).await?;
    let next = due.next.context("one is planned")?;
    assert!(
        due.claimed.is_empty() && next <= Duration::from_secs(60) && next > SOON,
        "{due:?}"
    );
    for past in [5_000, 60_000, 1] {
        store.plan(&duty("a"), ago(past)).await?;
    }
    let one = the_one(store, HOLD).await?;
    assert!(one.late >= Duration::from_secs(60) && one.late < Duration::from_secs(60) + SOON);
    assert!(store.finish(&one).await?);
    assert_eq!(store.claim_due(10, HOLD).await?, Due::default());
    Ok(())
}

pub(crate) async fn a_duty_that_is_planned_during_its_claim_is_due_again(
    fixture: Fixture,
) -> Result<()> {
    let store = &*fixture.store;
    store.plan(&duty("a"), ago(1)).await?;
    let one = the_one(store, HOLD).await?;
    let later = Timestamp::now() + Duration::from_secs(3_600);
    for due in [later, ago(1), later] {
        store.plan(&duty("a"), due).await?;
    }
    assert!(
        store.claim_due(10, HOLD).await?.claimed.is_empty(),
        "it is claimed"
    );
    assert!(store.finish(&one).await?);
    let one = the_one(store, HOLD).await?;
    assert!(!one.taken_over, "it was finished and planned: {one:?}");

    // The earlier of both counts, whichever it is.
    store.plan(&duty("a"), later).await?;
    assert!(store.postpone(&one, Duration::ZERO).await?);
    let one = the_one(store, SHORT).await?;
    store.plan(&duty("a"), ago(1)).await?;
    let one = eventually("the claim has run out", SOON, async || {
        the_one(store, HOLD)
            .await
            .ok()
            .filter(|heir| heir.claim != one.claim)
    })
    .await?;
    assert!(
        store.postpone(&one, HOLD).await?,
        "planned before it was taken over"
    );
    assert!(store.finish(&the_one(store, HOLD).await?).await?);
    assert_eq!(store.claim_due(10, HOLD).await?, Due::default());
    Ok(())
}

pub(crate) async fn a_postponed_duty_is_due_again(fixture: Fixture) -> Result<()> {
    let store = &*fixture.store;
    store.plan(&duty("a"), ago(5_000)).await?;
    let one = the_one(store, HOLD).await?;
    assert!(store.postpone(&one, SHORT).await?);
    assert!(
        !store.postpone(&one, Duration::ZERO).await?,
        "the claim is over"
    );
    let again = eventually("it is due again", SOON, async || {
        the_one(store, HOLD).await.ok()
    })
    .await?;
    assert!(
        !again.taken_over && again.late < Duration::from_secs(5),
        "{again:?}"
    );
    assert!(store.postpone(&again, HOLD).await?);
    let due = store.claim_due(10, HOLD).await?;
    assert!(
        due.claimed.is_empty() && due.next.is_some_and(|next| next > HOLD - SOON),
        "{due:?}"
    );
    Ok(())
}

pub(crate) async fn due_duties_are_claimed_in_order_and_no_more_than_asked_for(
    fixture: Fixture,
) -> Result<()> {
    let store = &*fixture.store;
    let now = Timestamp::now().millis();
    for (name, past) in [("c", 1_000), ("a", 3_000), ("d", 500), ("b", 2_000)] {
        store
            .plan(&duty(name), Timestamp::from_millis(now - past))
            .await?;
    }
    let first = store.claim_due(3, HOLD).await?;
    assert_eq!(names(&first), ["a", "b", "c"]);
    assert!(
        first.claimed.is_sorted_by(|one, next| one.late > next.late),
        "{first:?}"
    );
    assert_eq!(names(&store.claim_due(3, HOLD).await?), ["d"]);
    assert_eq!(names(&store.claim_due(0, HOLD).await?), [""; 0]);

    for number in 0..CLAIMED_MAX + 1 {
        store.plan(&duty(&format!("n{number}")), ago(1)).await?;
    }
    assert_eq!(
        store.claim_due(usize::MAX, HOLD).await?.claimed.len(),
        CLAIMED_MAX
    );
    assert_eq!(store.claim_due(usize::MAX, HOLD).await?.claimed.len(), 1);
    Ok(())
}

pub(crate) async fn duties_survive_closing_and_opening(mut fixture: Fixture) -> Result<()> {
    fixture.store.plan(&duty("a"), ago(1)).await?;
    let claimed = the_one(&*fixture.store, HOLD).await?;
    fixture.store.plan(&duty("b"), ago(1)).await?;
    fixture.reopen().await?;
    let store = &*fixture.store;
    assert_eq!(
        the_one(store, HOLD).await?.duty,
        duty("b"),
        "the other one is claimed"
    );
    assert!(store.finish(&claimed).await?);
    Ok(())
}

pub(crate) async fn a_send_plans_the_expiry_of_its_inbox(fixture: Fixture) -> Result<()> {
    for name in ["a", "b"] {
        fixture.introduce(name, None).await?;
    }
    let store = &*fixture.store;
    assert_eq!(store.claim_due(10, HOLD).await?, Due::default());
    fixture.say("a", "b", "long").await?;
    let short = fixture.post(brief("a", "b", "short")).await?;
    let mut wakes = store.wakes();
    let one = eventually("it is due", SOON, async || the_one(store, HOLD).await.ok()).await?;
    assert_eq!(one.duty, Duty::expire(&id("b")));
    // A message that arrives meanwhile, and expires before the others.
    let soon = Timestamp::now() + HOLD;
    let third = Message {
        expires_at: soon,
        ..message("a", "b", "third")
    };
    fixture.post(third).await?;
    let left = store.expire(&id("b")).await?.context("two are left")?;
    assert!(left <= HOLD && left > HOLD - SOON, "{left:?}");
    woken(&mut wakes, "a").await?;
    assert_eq!(
        fixture.stages(&short.id).await?,
        [Stage::Stored, Stage::Expired]
    );
    assert_eq!(fixture.inbox("b").await?, ["long", "third"]);
    assert!(store.postpone(&one, left).await?);
    let next = store.claim_due(10, HOLD).await?.next;
    assert!(
        next.is_some_and(|next| next <= left && next > left - SOON),
        "{next:?}"
    );
    Ok(())
}

pub(crate) async fn a_session_plans_its_withdrawal(fixture: Fixture) -> Result<()> {
    let store = &*fixture.store;
    let next = async || anyhow::Ok(store.claim_due(10, HOLD).await?.next);
    let about = |next: Option<Duration>, life: Duration| {
        next.is_some_and(|next| next <= life && next > life - SOON)
    };
    fixture.introduce("human", None).await?;
    assert_eq!(next().await?, None, "a person has no session");
    let named = fixture.agent("named").await?;
    assert!(
        about(next().await?, LEASE + NAME_LIFE),
        "{:?}",
        next().await?
    );
    let fleeting = Claim {
        fleeting: true,
        ..claim("named-2")
    };
    fixture.take(&fleeting).await?;
    assert!(
        about(next().await?, LEASE + RETURN_MAX),
        "{:?}",
        next().await?
    );
    let one_shot = Claim {
        one_shot: true,
        lease: SHORT,
        ..claim("run")
    };
    fixture.take(&one_shot).await?;
    let one = eventually("its lease is over", SOON, async || {
        the_one(store, HOLD).await.ok()
    });
    assert_eq!(one.await?.duty, Duty::withdraw(&id("run")));
    assert_eq!(store.withdraw(&id("run")).await?, None);
    assert_eq!(store.agent(&id("run")).await?, None);
    // The end of the lease counts, not that of the time at which the duty was planned.
    store.release(&named, Ending::Goodbye).await?;
    assert!(about(store.withdraw(&id("named")).await?, NAME_LIFE));
    assert_eq!(store.withdraw(&id("human")).await?, None);
    assert_eq!(store.withdraw(&id("unknown")).await?, None);
    assert_eq!(store.agents(None, 10).await?.len(), 3);
    Ok(())
}

pub(crate) async fn nothing_is_left_to_do_for_a_removed_agent(fixture: Fixture) -> Result<()> {
    let store = &*fixture.store;
    for name in ["a", "b"] {
        fixture.introduce(name, None).await?;
    }
    fixture.say("a", "b", "hello").await?;
    assert!(store.claim_due(10, HOLD).await?.next.is_some());
    assert_eq!(
        store.remove(&id("b"), None, true, None).await?,
        Removal::Removed
    );
    assert_eq!(store.claim_due(10, HOLD).await?, Due::default());
    assert_eq!(store.expire(&id("b")).await?, None);
    fixture.agent("session").await?;
    assert!(store.claim_due(10, HOLD).await?.next.is_some());
    assert!(store.unregister(&id("session"), None, None).await?);
    assert_eq!(store.claim_due(10, HOLD).await?, Due::default());
    Ok(())
}

/// An earlier build planned no duties.
#[tokio::test]
async fn agents_of_builds_without_duties_get_theirs_when_redis_is_opened() -> Result<()> {
    let redis = Redis::start().await?;
    let mut fixture = fixture_on(redis.url(), ()).await?;
    for number in 0..200 {
        fixture.introduce(&format!("n{number}"), None).await?;
    }
    fixture.agent("session").await?;
    fixture.say("n1", "n150", "hello").await?;
    let rows = async || {
        redis
            .tell(&["ZRANGE", "{c3po}:duties", "0", "-1", "WITHSCORES"])
            .await
    };
    let before = rows().await?;
    redis.tell(&["DEL", "{c3po}:duties"]).await?;
    fixture.reopen().await?;
    assert_eq!(rows().await?, before);
    assert!(
        before.starts_with("*4"),
        "the expiry and the withdrawal: {before}"
    );
    Ok(())
}

/// A coordinator of a newer build may plan duties of other kinds.
#[tokio::test]
async fn duties_of_unknown_kinds_stay_for_newer_coordinators_in_redis() -> Result<()> {
    let redis = Redis::start().await?;
    let fixture = fixture_on(redis.url(), ()).await?;
    let theirs = ["ZADD", "{c3po}:duties", "1", "fetch 7"];
    redis.tell(&theirs).await?;
    fixture.store.plan(&duty("a"), ago(1)).await?;
    let one = the_one(&*fixture.store, HOLD).await?;
    assert_eq!(one.duty, duty("a"));
    assert!(fixture.store.finish(&one).await?);
    assert_eq!(fixture.store.claim_due(10, HOLD).await?, Due::default());
    let score = redis.tell(&["ZSCORE", "{c3po}:duties", "fetch 7"]).await?;
    assert!(score.ends_with("1\r\n"), "{score}");
    Ok(())
}
