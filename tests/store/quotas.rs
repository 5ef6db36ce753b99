//! Quotas: a limit of message bytes per key and day that holds under concurrent sends and does not affect other keys.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use c3po_coordinator::store::{
    AnswerOutcome, Claim, Crowded, Ending, Exceeded, Quota, Send, SendOutcome, StoreError,
};
use c3po_shared::message::Message;
use c3po_shared::receipt::Stage;
use c3po_shared::time::Timestamp;
use harness::redis::Redis;
use tokio::task::JoinSet;

use super::Fixture;
use super::fixture::{claim, id, message, reply, send};
use super::redis::fixture_on;

/// The quota in these tests: a few messages of [`TEXT`] characters.
const LIMIT: u64 = 20_000;
const TEXT: usize = 1_000;
const HOUR: u64 = 60 * 60 * 1_000;

/// Returns the quota of a key with a limit of three agents.
fn of(key: &str) -> Quota {
    Quota {
        is_of_key: true,
        key: key.into(),
        bytes: None,
        agents: Some(3),
    }
}

/// Creates the claim of a new process with that key.
fn wish(key: &str, name: &str) -> Claim {
    Claim {
        quota: of(key),
        ..claim(name)
    }
}

/// Creates the send of a new call with that key.
fn with(key: &str, message: Message) -> Send {
    Send {
        quota: Quota {
            bytes: Some(LIMIT),
            ..of(key)
        },
        ..send(message)
    }
}

fn long() -> Message {
    message("a", "b", &"x".repeat(TEXT))
}

/// Sends with that key until a send is refused. Returns the stored sends, the refused one, and the reason.
async fn fill(fixture: &Fixture, key: &str) -> Result<(Vec<Send>, Send, Exceeded)> {
    let mut stored = Vec::new();
    for _ in 0..100 {
        let next = with(key, long());
        match fixture.store.send(&next).await {
            Ok(SendOutcome::Stored) => stored.push(next),
            Err(StoreError::OverQuota(exceeded)) => return Ok((stored, next, exceeded)),
            other => anyhow::bail!("{other:?}"),
        }
    }
    anyhow::bail!("a hundred messages were stored")
}

pub(crate) async fn a_key_stores_its_quota_and_no_more_and_others_go_on(
    fixture: Fixture,
) -> Result<()> {
    fixture.pair().await?;
    let began = Timestamp::now();
    let (stored, refused, exceeded) = fill(&fixture, "k1").await?;
    let (count, each) = (exceeded.count, exceeded.count / stored.len() as u64);
    assert!(
        stored.len() > 3 && each > TEXT as u64 + 1_024,
        "more counts than the texts: {exceeded:?}"
    );
    assert!(count <= LIMIT && count + each > LIMIT, "{exceeded:?}");
    assert_eq!((exceeded.key.as_str(), exceeded.limit), ("k1", LIMIT));
    let wait = exceeded.until.since(began);
    assert!(
        wait > Duration::from_secs(22 * 3_600) && wait <= Duration::from_secs(25 * 3_600),
        "{wait:?}"
    );
    assert_eq!(exceeded.until.millis() % HOUR, 0);

    assert_eq!(
        fixture.store.message(&refused.message.id).await?,
        None,
        "nothing is left of what was refused"
    );
    assert_eq!(fixture.pending("b").await?, stored.len());
    let before = SendOutcome::Repeated(Box::new(stored[0].message.clone()));
    assert_eq!(
        fixture.store.send(&stored[0]).await?,
        before,
        "a call that is sent again has its answer"
    );
    fixture.acknowledge(&stored[0].message).await?;
    assert!(
        fixture.store.send(&refused).await.is_err(),
        "what is settled counts all the same"
    );
    assert_eq!(
        fixture.store.send(&with("k2", long())).await?,
        SendOutcome::Stored
    );
    assert_eq!(
        fixture.store.send(&send(long())).await?,
        SendOutcome::Stored,
        "without a quota nothing counts"
    );
    Ok(())
}

pub(crate) async fn a_quota_holds_when_50_race(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    let (expected, ..) = fill(&fixture, "alone").await?;
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let store = Arc::clone(&fixture.store);
        tasks.spawn(async move { store.send(&with("raced", long())).await });
    }
    let outcomes = tasks.join_all().await;
    assert_eq!(
        outcomes
            .iter()
            .filter(|outcome| matches!(outcome, Ok(SendOutcome::Stored)))
            .count(),
        expected.len()
    );
    assert!(
        outcomes
            .iter()
            .all(|outcome| matches!(outcome, Ok(_) | Err(StoreError::OverQuota(_)))),
        "{outcomes:?}"
    );
    Ok(())
}

pub(crate) async fn refused_messages_count_against_no_quota(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    let (expected, ..) = fill(&fixture, "k1").await?;
    let first = with("k2", long());
    for _ in 0..50 {
        let nobody = with("k2", message("a", "nobody", &"x".repeat(TEXT)));
        assert_eq!(fixture.store.send(&nobody).await?, SendOutcome::NoSuchAgent);
        let full = Send {
            bound: 1,
            ..with("k2", long())
        };
        assert_eq!(
            fixture.store.send(&full).await?,
            SendOutcome::Full(expected.len())
        );
    }
    assert_eq!(fixture.store.send(&first).await?, SendOutcome::Stored);
    for _ in 0..50 {
        assert!(matches!(
            fixture.store.send(&first).await?,
            SendOutcome::Repeated(_)
        ));
    }
    assert_eq!(fill(&fixture, "k2").await?.0.len(), expected.len() - 1);
    Ok(())
}

pub(crate) async fn a_reply_beyond_the_quota_leaves_the_question_open(
    fixture: Fixture,
) -> Result<()> {
    fixture.pair().await?;
    let question = fixture.say("b", "a", "question").await?;
    let (_, _, exceeded) = fill(&fixture, "k1").await?;
    let answer = with("k1", reply(&question, &"x".repeat(TEXT)));
    assert!(matches!(
        fixture.store.answer(&answer).await,
        Err(StoreError::OverQuota(_))
    ));
    assert_eq!(fixture.stages(&question.id).await?, [Stage::Stored]);
    assert_eq!(fixture.store.message(&answer.message.id).await?, None);
    // With a larger quota for its sender it is stored, and counted.
    let more = Quota {
        bytes: Some(2 * LIMIT),
        ..answer.quota.clone()
    };
    let outcome = fixture
        .store
        .answer(&Send {
            quota: more,
            ..answer
        })
        .await?;
    assert_eq!(outcome, AnswerOutcome::Sent(SendOutcome::Stored));
    let (none, _, later) = fill(&fixture, "k1").await?;
    assert!(none.is_empty() && later.count > exceeded.count, "{later:?}");
    Ok(())
}

pub(crate) async fn a_quota_survives_closing_and_opening(mut fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    let (_, refused, exceeded) = fill(&fixture, "k1").await?;
    fixture.reopen().await?;
    match fixture.store.send(&refused).await {
        Err(StoreError::OverQuota(again)) => assert_eq!(again, exceeded),
        other => anyhow::bail!("{other:?}"),
    }
    Ok(())
}

pub(crate) async fn so_many_agents_are_made_with_a_key_and_no_more(fixture: Fixture) -> Result<()> {
    let full = |error: StoreError| match error {
        StoreError::Crowded(Crowded { key, count, limit }) => (key, count, limit),
        other => panic!("{other}"),
    };
    let held = fixture.take(&wish("k1", "a")).await?;
    fixture.take(&wish("k1", "b")).await?;
    fixture.store.introduce(&id("c"), None, &of("k1")).await?;
    let expected = || ("k1".to_owned(), 3, 3);
    assert_eq!(
        fixture.store.claim(&wish("k1", "d")).await.map_err(full),
        Err(expected())
    );
    assert_eq!(
        fixture
            .store
            .introduce(&id("d"), None, &of("k1"))
            .await
            .map(drop)
            .map_err(full),
        Err(expected())
    );
    assert_eq!(
        fixture.store.agent(&id("d")).await?,
        None,
        "nothing is left of what was refused"
    );

    // Known agents keep working, also in a new session; another key has its own limit.
    let held = fixture
        .take(&Claim {
            instance: held.instance,
            ..wish("k1", "a")
        })
        .await?;
    fixture.store.release(&held, Ending::Goodbye).await?;
    let held = fixture.take(&wish("k1", "a")).await?;
    fixture.store.introduce(&id("c"), None, &of("k1")).await?;
    fixture.take(&wish("k2", "d")).await?;
    fixture.agent("e").await?;

    // Every way of forgetting an agent frees a place.
    fixture.store.unregister(&held.agent, None, None).await?;
    let brief = fixture
        .take(&Claim {
            fleeting: true,
            ..wish("k1", "f")
        })
        .await?;
    assert!(fixture.store.claim(&wish("k1", "g")).await.is_err());
    fixture.store.release(&brief, Ending::Goodbye).await?;
    fixture
        .take(&Claim {
            one_shot: true,
            ..wish("k1", "g")
        })
        .await?;
    assert!(fixture.store.claim(&wish("k1", "h")).await.is_err());
    fixture.store.remove(&id("c"), None, false, None).await?;
    fixture.take(&wish("k1", "h")).await?;
    assert!(fixture.store.claim(&wish("k1", "i")).await.is_err());
    Ok(())
}

pub(crate) async fn an_agent_of_before_counts_from_its_next_session_on(
    fixture: Fixture,
) -> Result<()> {
    for name in ["a", "b", "c"] {
        let tenure = fixture.agent(name).await?;
        fixture.store.release(&tenure, Ending::Goodbye).await?;
        fixture.take(&wish("k1", name)).await?;
    }
    assert!(matches!(
        fixture.store.claim(&wish("k1", "d")).await,
        Err(StoreError::Crowded(_))
    ));
    fixture.take(&wish("k2", "d")).await?;
    Ok(())
}

pub(crate) async fn no_more_agents_are_made_with_a_key_when_50_race(
    fixture: Fixture,
) -> Result<()> {
    let mut tasks = JoinSet::new();
    for number in 0..50 {
        let store = Arc::clone(&fixture.store);
        tasks.spawn(async move { store.claim(&wish("k1", &format!("a{number}"))).await });
    }
    let outcomes = tasks.join_all().await;
    assert_eq!(
        outcomes
            .iter()
            .filter(|outcome| matches!(outcome, Ok(Some(_))))
            .count(),
        3
    );
    assert_eq!(fixture.store.agents(None, 100).await?.len(), 3);
    Ok(())
}

/// Messages older than a day no longer count, but those of 23 hours ago do. SQLite's hours have their own test.
#[tokio::test]
async fn in_redis_a_day_goes_by_hour_by_hour() -> Result<()> {
    let redis = Redis::start().await?;
    let fixture = fixture_on(redis.url(), ()).await?;
    fixture.pair().await?;
    let (stored, refused, exceeded) = fill(&fixture, "k1").await?;
    let hour = Timestamp::now().millis() / HOUR;
    let key = "{c3po}:quota:k1";
    let each = exceeded.count / stored.len() as u64;
    // Two messages were stored 23 hours ago, the others a day ago or earlier.
    let (old, older) = (2 * each, exceeded.count - 2 * each);
    let kept = format!("{} {old} {older} {}:{older}", hour - 23, hour - 24);
    redis.tell(&["SET", key, &kept]).await?;
    assert_eq!(fixture.store.send(&refused).await?, SendOutcome::Stored);
    let now = redis.tell(&["GET", key]).await?;
    let begun = format!("{hour} {each} {old} {}:{old}", hour - 23);
    assert!(now.contains(&begun), "{now:?} instead of {begun:?}");
    let (more, _, next) = fill(&fixture, "k1").await?;
    assert_eq!(
        more.len() + 3,
        stored.len(),
        "one of this hour and two of 23 hours ago count"
    );
    assert_eq!(
        next.until.millis(),
        (hour + 1) * HOUR,
        "those two are a day old then"
    );
    let ends = redis.tell(&["PTTL", key]).await?;
    let ends: u64 = ends.trim().trim_start_matches(':').parse().context(ends)?;
    assert!(
        (23 * HOUR..=24 * HOUR).contains(&ends),
        "it ends by itself: {ends}"
    );
    Ok(())
}
