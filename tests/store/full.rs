//! A Redis without free memory: writes that need memory are refused completely, and everything else keeps working.

use anyhow::{Context, Result};
use c3po_coordinator::store::redis::OpenError;
use c3po_coordinator::store::{
    AnswerOutcome, Ending, Pair, Send, SendOutcome, Store, StoreError, Tenure,
};
use c3po_shared::limits::SHORT_REPLY_BYTES;
use c3po_shared::receipt::{Stage, Via};
use c3po_shared::vocabulary::State;
use futures_util::future::join_all;
use harness::redis::Redis;

use super::Fixture;
use super::fixture::{LEASE, claim, does, fill_the_log, id, message, news, reply, send, speaking};
use super::redis::{fixture_on, open};

async fn start() -> Result<(Redis, Fixture)> {
    let redis = Redis::start().await?;
    let fixture = fixture_on(redis.url(), ()).await?;
    fixture.pair().await?;
    Ok((redis, fixture))
}

/// Sets the server's memory limit to a little less than it uses now.
async fn fill(redis: &Redis) -> Result<()> {
    allow(redis, used(redis).await? / 16 * 15).await
}

/// Sets the server's memory limit; `0` for no limit.
async fn allow(redis: &Redis, bytes: usize) -> Result<()> {
    redis
        .tell(&["CONFIG", "SET", "maxmemory", &bytes.to_string()])
        .await
        .map(drop)
}

async fn used(redis: &Redis) -> Result<usize> {
    let told = redis.tell(&["INFO", "memory"]).await?;
    let line = told
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"))
        .context("how much is used")?;
    Ok(line.trim().parse()?)
}

/// Returns the ids of the messages that b has not been shown, sorted.
async fn unshown(redis: &Redis) -> Result<Vec<String>> {
    let told = redis
        .tell(&["ZRANGE", "{c3po}:unshown:b", "0", "-1"])
        .await?;
    let members: Vec<_> = told
        .lines()
        .filter(|line| line.starts_with("a::b::"))
        .collect();
    let mut ids: Vec<_> = members
        .iter()
        .filter_map(|member| member.split(' ').next())
        .map(str::to_owned)
        .collect();
    ids.sort();
    Ok(ids)
}

#[tokio::test]
async fn a_full_redis_that_lacks_the_functions_ends_the_start_with_advice() -> Result<()> {
    let (redis, fixture) = start().await?;
    fixture.store.close().await;
    redis.tell(&["FUNCTION", "FLUSH"]).await?;
    allow(&redis, 1).await?;
    let refused = open(&redis.url()).await.expect_err("nothing would work");
    assert!(
        matches!(refused, OpenError::Full { .. }) && refused.to_string().contains("maxmemory"),
        "{refused}"
    );
    allow(&redis, 0).await?;
    open(&redis.url()).await.map(drop).map_err(Into::into)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_the_edge_of_its_memory_redis_takes_a_message_whole_or_not_at_all() -> Result<()> {
    const AT_ONCE: usize = 8;
    let (redis, fixture) = start().await?;
    allow(&redis, used(&redis).await? + 150_000).await?;
    let (mut stored, mut refused) = (Vec::new(), Vec::new());
    while refused.len() < 40 {
        let calls: Vec<Send> = (0..AT_ONCE)
            .map(|_| send(message("a", "b", &"x".repeat(5_000))))
            .collect();
        let outcomes = join_all(calls.iter().map(|call| fixture.store.send(call))).await;
        for (call, outcome) in calls.into_iter().zip(outcomes) {
            match outcome {
                Ok(SendOutcome::Stored) => stored.push(call),
                Err(StoreError::Full(_)) => refused.push(call),
                other => anyhow::bail!("{other:?}"),
            }
        }
        anyhow::ensure!(stored.len() < 900, "there is no edge");
    }
    allow(&redis, 0).await?;

    let mut ids: Vec<_> = stored
        .iter()
        .map(|call| call.message.id.to_string())
        .collect();
    ids.sort();
    assert!(!ids.is_empty());
    assert_eq!(unshown(&redis).await?, ids);
    for call in &stored {
        let expected = SendOutcome::Repeated(Box::new(call.message.clone()));
        assert_eq!(
            fixture.store.send(call).await?,
            expected,
            "what was stored is known"
        );
        let thread = fixture.thread(&call.message.thread_id, "b").await?;
        assert!(thread.iter().eq([&call.message]), "{thread:?}");
    }
    for call in &refused {
        assert!(
            fixture.store.message(&call.message.id).await?.is_none(),
            "nothing is left of what was refused"
        );
        assert_eq!(
            fixture.store.send(call).await?,
            SendOutcome::Stored,
            "and so it can be sent again"
        );
    }
    Ok(())
}

/// Changes agents, rulings and sessions: `c` gets a new session. The store must accept all of it.
async fn manage_agents(fixture: &Fixture, tenure: &Tenure) -> Result<()> {
    assert!(fixture.store.renew(tenure, LEASE).await?);
    assert!(
        fixture
            .store
            .amend(&id("c"), Some(&speaking(tenure)), &does(State::Busy).into())
            .await?
            .is_some()
    );
    fixture.store.release(tenure, Ending::Goodbye).await?;
    fixture.introduce("human", None).await?;
    fixture
        .store
        .rule(&Pair::of(&id("a"), &id("c")), true, None)
        .await?;
    let next = fixture.take(&claim("c")).await?;
    assert_eq!(
        (next.generation, fixture.unshown("c").await?.len()),
        (2, 1),
        "the next session is shown everything"
    );
    fixture.do_duties("c").await?;
    super::duties::one_goes_round(fixture).await?;
    fixture.store.check().await?;
    assert_eq!(fixture.store.agents(None, 10).await?.len(), 4);
    Ok(())
}

#[tokio::test]
async fn a_full_redis_refuses_messages_and_lets_everything_else_go_on() -> Result<()> {
    let (redis, fixture) = start().await?;
    let tenure = fixture.take(&claim("c")).await?;
    let (question, fyi) = (
        fixture.say("a", "c", "question").await?,
        fixture.post(news("a", "c", "fyi")).await?,
    );
    let done = fixture.say("a", "c", "done").await?;
    let repeated = send(message("a", "c", "sent before"));
    fixture.store.send(&repeated).await?;
    fill(&redis).await?;

    let refused = fixture
        .store
        .send(&send(message("a", "c", "one too many")))
        .await
        .expect_err("it is full");
    assert!(
        matches!(refused, StoreError::Full(_)) && refused.to_string().contains("maxmemory"),
        "{refused}"
    );
    let known = SendOutcome::Repeated(Box::new(repeated.message.clone()));
    assert_eq!(
        fixture.store.send(&repeated).await?,
        known,
        "what was stored is said to be, whatever there is no room for"
    );
    fixture
        .advance(&question, &tenure, Stage::OnHost, Via::Deliver)
        .await?;
    assert_eq!(
        fixture.answer(&question, "all the same").await?,
        AnswerOutcome::Sent(SendOutcome::Stored)
    );

    for stage in [Stage::OnHost, Stage::InSession, Stage::Seen] {
        fixture
            .advance(&fyi, &tenure, stage, Via::GetMessages)
            .await?;
    }
    assert_eq!(
        fixture.stages(&fyi.id).await?,
        [Stage::Stored, Stage::OnHost, Stage::InSession, Stage::Seen]
    );
    fixture.acknowledge(&done).await?;
    assert_eq!(fixture.inbox("c").await?, ["sent before"]);
    assert_eq!(fixture.thread(&question.id, "c").await?.len(), 2);
    manage_agents(&fixture, &tenure).await?;

    let other = open(&redis.url()).await?;
    assert_eq!(
        other.pending(&id("c")).await?.count,
        1,
        "a coordinator can start beside a full Redis"
    );
    assert_eq!(
        fixture.inbox("a").await?,
        ["all the same"],
        "answers need no room"
    );
    Ok(())
}

#[tokio::test]
async fn a_full_redis_refuses_a_long_reply_and_knows_one_that_it_has() -> Result<()> {
    let (redis, fixture) = start().await?;
    fixture.take(&claim("c")).await?;
    let (first, second) = (
        fixture.say("a", "c", "first").await?,
        fixture.say("a", "c", "second").await?,
    );
    let long = "x".repeat(SHORT_REPLY_BYTES);
    let stored = send(reply(&first, &long));
    fixture.store.answer(&stored).await?;
    fill(&redis).await?;
    let refused = fixture.answer(&second, &long).await;
    assert!(refused.is_err(), "{refused:?}");
    let known = SendOutcome::Repeated(Box::new(stored.message.clone()));
    assert_eq!(
        fixture.store.answer(&stored).await?,
        AnswerOutcome::Sent(known),
        "the same call was stored"
    );
    assert_eq!(
        fixture.answer(&second, "short").await?,
        AnswerOutcome::Sent(SendOutcome::Stored)
    );
    Ok(())
}

#[tokio::test]
async fn a_full_redis_takes_short_replies_until_its_reserve_is_used() -> Result<()> {
    let (redis, fixture) = start().await?;
    fixture.take(&claim("c")).await?;
    let (first, second) = (
        fixture.say("a", "c", "first").await?,
        fixture.say("a", "c", "second").await?,
    );
    fill(&redis).await?;
    assert_eq!(
        fixture.answer(&first, "short").await?,
        AnswerOutcome::Sent(SendOutcome::Stored)
    );
    allow(&redis, used(&redis).await? / 2).await?;
    let refused = fixture.answer(&second, "short").await;
    let refused = refused.expect_err("the rest is for answers of people");
    assert!(refused.to_string().contains("maxmemory"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn a_redis_that_the_log_has_filled_makes_room_for_messages() -> Result<()> {
    const PLENTY: u64 = 100_000;
    let (redis, fixture) = start().await?;
    let store = &fixture.store;
    store.keep_log(Some(PLENTY)).await?;
    allow(&redis, used(&redis).await? + 1_000_000).await?;
    let message = fill_the_log(store.as_ref()).await?;
    store.keep_log(Some(PLENTY)).await?;
    assert_eq!(store.send(&message).await?, SendOutcome::Stored);
    Ok(())
}
