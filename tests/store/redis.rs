//! Additional promises of the Redis store: it survives a restart of its Redis, and shares it with other coordinators.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use c3po_coordinator::config::{Fleet, RedisAddress};
use c3po_coordinator::store::redis::{OpenError, RedisStore};
use c3po_coordinator::store::{AnswerOutcome, Pair, SendOutcome, Store, StoreError, Wake};
use c3po_shared::audit::{Entry, Event};
use c3po_shared::receipt::Stage;
use futures_util::future::{BoxFuture, join};
use harness::eventually::eventually;
use harness::redis::Redis;
use tokio::time::timeout;

use super::Fixture;
use super::fixture::{SOON, brief, claim, id, message, reply, send, woken};

/// The time within which an operation must return, whatever Redis does.
pub(super) const ANSWERED: Duration = Duration::from_secs(2);

/// A store, a second one as in another coordinator, and their Redis.
pub(super) struct Shared {
    pub(super) redis: Redis,
    pub(super) fixture: Fixture,
    pub(super) other: RedisStore,
}

/// Starts a Redis, and opens two stores on it.
pub(super) async fn shared() -> Result<Shared> {
    // With everysec, a killed server may lose writes that a busy disk has delayed.
    let redis = Redis::start_with(&["--appendfsync", "always"]).await?;
    let fixture = fixture_on(redis.url(), ()).await?;
    let other = open(&redis.url()).await?;
    fixture.pair().await?;
    Ok(Shared {
        redis,
        fixture,
        other,
    })
}

/// Parses an address.
pub(super) fn address(url: &str) -> RedisAddress {
    url.parse().expect("the tests write addresses properly")
}

/// Opens the store at that address.
pub(super) async fn open(url: &str) -> Result<RedisStore, OpenError> {
    RedisStore::open(&address(url), &Fleet::default()).await
}

/// Creates a fixture on that Redis, which lives as long as `place`.
pub(super) async fn fixture_on(url: String, place: impl Any + Send + Sync) -> Result<Fixture> {
    fixture_at(address(&url), place).await
}

/// Creates a fixture at that address, whose servers live as long as `place`.
pub(super) async fn fixture_at(
    address: RedisAddress,
    place: impl Any + Send + Sync,
) -> Result<Fixture> {
    fixture_of(Fleet::default(), address, place).await
}

/// Creates a fixture of that fleet.
pub(super) async fn fixture_of(
    fleet: Fleet,
    address: RedisAddress,
    place: impl Any + Send + Sync,
) -> Result<Fixture> {
    let open = move || -> BoxFuture<'static, Result<Arc<dyn Store>>> {
        let (fleet, address) = (fleet.clone(), address.clone());
        Box::pin(async move { Ok(Arc::new(opened(&address, &fleet).await?) as Arc<dyn Store>) })
    };
    Fixture::new(place, Box::new(open)).await
}

/// Opens a store. A connection attempt fails after half a second, and is repeated because a busy machine may need longer.
async fn opened(address: &RedisAddress, fleet: &Fleet) -> Result<RedisStore, OpenError> {
    let begun = Instant::now();
    loop {
        match RedisStore::open(address, fleet).await {
            Err(OpenError::Unreachable { .. }) if begun.elapsed() < SOON => {}
            opened => return opened,
        }
    }
}

async fn start() -> Result<Fixture> {
    let redis = Redis::start().await?;
    fixture_on(redis.url(), redis).await
}

every_promise!(start);

/// Waits until the store responds again.
pub(super) async fn recovered(store: &dyn Store) -> Result<()> {
    eventually("the store answers", SOON, async || store.check().await.ok()).await
}

#[tokio::test]
async fn a_redis_on_a_unix_socket_is_served_and_found_again() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("redis.sock").display().to_string();
    let mut redis =
        Redis::start_with(&["--appendfsync", "always", "--unixsocket", &socket]).await?;
    redis
        .tell(&["CONFIG", "SET", "requirepass", "sesame"])
        .await?;
    let fixture = fixture_on(format!("redis+unix://:sesame@{socket}"), ()).await?;
    fixture.pair().await?;
    fixture.say("a", "b", "still there?").await?;
    // The password is gone with the restart, and a login is refused then.
    redis.restart().await?;
    let again = fixture_on(format!("redis+unix://{socket}"), ()).await?;
    assert_eq!(again.inbox("b").await?, ["still there?"]);
    redis.restart().await?;
    recovered(&*again.store).await?;
    assert_eq!(again.inbox("b").await?, ["still there?"]);
    Ok(())
}

#[tokio::test]
async fn everything_survives_a_restart_of_redis_and_the_store_finds_it_again() -> Result<()> {
    let Shared {
        mut redis, fixture, ..
    } = shared().await?;
    let question = fixture.say("a", "b", "still there?").await?;
    redis.restart().await?;
    recovered(&*fixture.store).await?;
    assert_eq!(fixture.inbox("b").await?, ["still there?"]);
    fixture.answer(&question, "yes").await?;
    assert_eq!(
        fixture.stages(&question.id).await?,
        [Stage::Stored, Stage::Answered]
    );
    Ok(())
}

#[tokio::test]
async fn without_redis_every_call_is_refused_soon_and_the_store_opens_no_more() -> Result<()> {
    let Shared {
        mut redis, fixture, ..
    } = shared().await?;
    redis.kill()?;
    let begun = Instant::now();
    let refused = fixture
        .store
        .pending(&id("b"))
        .await
        .expect_err("there is no Redis");
    assert!(
        matches!(refused, StoreError::Unavailable(_)) && begun.elapsed() < ANSWERED,
        "{refused}"
    );
    let refused = open(&redis.url()).await.expect_err("there is no Redis");
    assert!(
        matches!(refused, OpenError::Unreachable { .. }),
        "{refused}"
    );
    Ok(())
}

#[tokio::test]
async fn a_hanging_redis_is_unavailable_soon_and_the_repeated_call_is_applied_once() -> Result<()> {
    let Shared { redis, fixture, .. } = shared().await?;
    let call = send(message("a", "b", "once"));
    redis.pause()?;
    for _ in 0..3 {
        let begun = Instant::now();
        let refused = fixture.store.send(&call).await.expect_err("Redis hangs");
        assert!(matches!(refused, StoreError::Unavailable(_)), "{refused}");
        assert!(begun.elapsed() < ANSWERED, "{:?}", begun.elapsed());
    }
    redis.resume()?;
    recovered(&*fixture.store).await?;
    let outcome = fixture.store.send(&call).await?;
    assert!(
        matches!(outcome, SendOutcome::Stored | SendOutcome::Repeated(_)),
        "{outcome:?}"
    );
    assert_eq!(fixture.inbox("b").await?, ["once"]);
    Ok(())
}

#[tokio::test]
async fn a_call_whose_caller_has_given_up_is_not_done_when_redis_goes_on() -> Result<()> {
    let Shared { redis, fixture, .. } = shared().await?;
    let call = send(message("a", "b", "late"));
    redis.pause()?;
    let refused = fixture.store.send(&call).await.expect_err("Redis hangs");
    assert!(matches!(refused, StoreError::Unavailable(_)), "{refused}");
    // The error of the clocks is smaller than this.
    tokio::time::sleep(Duration::from_millis(500)).await;
    redis.resume()?;
    recovered(&*fixture.store).await?;
    // Commands of the other connection came later, so Redis has had this one.
    assert_eq!(fixture.inbox("b").await?, Vec::<String>::new());
    assert_eq!(fixture.store.send(&call).await?, SendOutcome::Stored);
    assert_eq!(fixture.inbox("b").await?, ["late"]);
    Ok(())
}

#[tokio::test]
async fn changes_by_one_coordinator_wake_the_listeners_of_another() -> Result<()> {
    let Shared {
        redis: _redis,
        fixture,
        other,
    } = shared().await?;
    let mut wakes = other.wakes();
    let question = fixture.say("a", "b", "ping").await?;
    woken(&mut wakes, "b").await?;
    fixture.answer(&question, "pong").await?;
    woken(&mut wakes, "a").await?;
    fixture.post(brief("a", "b", "gone soon")).await?;
    woken(&mut wakes, "b").await?;
    eventually("it has expired", SOON, async || {
        (fixture.pending("b").await.ok()? == 0).then_some(())
    })
    .await?;
    woken(&mut wakes, "a").await
}

#[tokio::test]
async fn a_lost_subscription_wakes_all_listeners_and_is_renewed() -> Result<()> {
    let Shared {
        redis,
        fixture,
        other,
    } = shared().await?;
    let mut wakes = other.wakes();
    redis.tell(&["CLIENT", "KILL", "TYPE", "pubsub"]).await?;
    let heard = timeout(SOON, wakes.recv()).await??;
    assert_eq!(heard, Wake::Everyone);
    fixture.say("a", "b", "ping").await?;
    assert_eq!(
        timeout(SOON, wakes.recv()).await??,
        Wake::Inbox(id("b"), None)
    );
    Ok(())
}

#[tokio::test]
async fn forgotten_functions_are_loaded_again() -> Result<()> {
    let Shared { redis, fixture, .. } = shared().await?;
    fixture.say("a", "b", "before").await?;
    redis.tell(&["FUNCTION", "FLUSH"]).await?;
    fixture.say("a", "b", "after").await?;
    assert_eq!(fixture.inbox("b").await?, ["before", "after"]);
    Ok(())
}

#[tokio::test]
async fn another_database_is_another_store() -> Result<()> {
    let redis = Redis::start().await?;
    let first = fixture_on(redis.url(), ()).await?;
    let second = fixture_on(format!("{}/3", redis.url()), ()).await?;
    first.pair().await?;
    first.say("a", "b", "in the first").await?;
    second.pair().await?;
    assert_eq!(
        (first.pending("b").await?, second.pending("b").await?),
        (1, 0)
    );
    assert!(
        redis
            .tell_all(&[&["SELECT", "3"], &["EXISTS", "{c3po}:agent:b"]])
            .await?
            .starts_with(":1")
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_any_point_of_a_reply_leaves_it_done_or_not_done() -> Result<()> {
    const ROUNDS: usize = 15;
    let Shared {
        mut redis, fixture, ..
    } = shared().await?;
    for round in 0..ROUNDS {
        let question = fixture.say("a", "b", &format!("question {round}")).await?;
        let answer = send(reply(&question, &format!("answer {round}")));
        let killed = async {
            tokio::time::sleep(Duration::from_micros(u64::try_from(round)? * 60)).await;
            redis.restart().await
        };
        let (outcome, killed) = join(fixture.store.answer(&answer), killed).await;
        killed?;
        recovered(&*fixture.store).await?;

        let stages = fixture.stages(&question.id).await?;
        let (is_open, is_there) = (
            fixture
                .inbox("b")
                .await?
                .contains(&question.text().to_owned()),
            fixture
                .inbox("a")
                .await?
                .contains(&answer.message.text().to_owned()),
        );
        let is_done = stages == [Stage::Stored, Stage::Answered];
        ensure!(
            is_done == is_there && is_done != is_open,
            "round {round}: {stages:?} {is_there} {is_open}"
        );
        ensure!(
            is_done || outcome.is_err(),
            "round {round}: {outcome:?} and not done"
        );
        let again = fixture.store.answer(&answer).await?;
        ensure!(
            matches!(
                again,
                AnswerOutcome::Sent(SendOutcome::Stored | SendOutcome::Repeated(_))
            ),
            "{again:?}"
        );
        assert_eq!(
            fixture
                .inbox("a")
                .await?
                .iter()
                .filter(|text| *text == answer.message.text())
                .count(),
            1
        );
    }
    Ok(())
}

#[tokio::test]
async fn two_fleets_on_one_redis_see_nothing_of_each_other() -> Result<()> {
    let redis = Redis::start().await?;
    let first = fixture_on(redis.url(), ()).await?;
    let second = fixture_of("home-2".parse()?, address(&redis.url()), ()).await?;
    keep_apart(&first, &second).await
}

/// The functions of all fleets share their state.
#[tokio::test]
async fn a_wait_in_one_fleet_looks_at_no_session_of_another() -> Result<()> {
    let redis = Redis::start().await?;
    let first = fixture_on(redis.url(), ()).await?;
    let second = fixture_of("home-2".parse()?, address(&redis.url()), ()).await?;
    let mut waits = Vec::new();
    for fixture in [&first, &second] {
        fixture.agent("b").await?;
        waits.push((fixture, fixture.take(&claim("a")).await?));
    }
    for (fixture, tenure) in waits {
        let asked = fixture.say("a", "b", "and you?").await?;
        for latest in [&first, &second] {
            latest.pending("a").await?;
            let lease = Duration::from_secs(1);
            let waiting = fixture.store.await_answer(&asked.id, Some(&tenure), lease);
            assert!(waiting.await?.cycle.is_empty());
        }
    }
    Ok(())
}

/// Fills both stores in the same way and checks that neither sees the other's data.
pub(super) async fn keep_apart(first: &Fixture, second: &Fixture) -> Result<()> {
    let mut wakes = second.store.wakes();
    for fixture in [first, second] {
        fixture.pair().await?;
    }
    let question = first.say("a", "b", "in the first").await?;
    assert_eq!(
        (first.pending("b").await?, second.pending("b").await?),
        (1, 0)
    );
    assert!(second.store.message(&question.id).await?.is_none());
    first.store.keep_log(Some(10)).await?;
    first
        .store
        .note(&[Entry::new(Event::PolicyChanged)])
        .await?;
    assert!(second.store.audit(0, 10).await?.is_empty());
    first.agent("c").await?;
    assert_eq!(second.store.agents(None, 10).await?.len(), 2);
    while let Ok(wake) = wakes.try_recv() {
        assert_eq!(wake, Wake::Everyone, "of another fleet");
    }
    Ok(())
}

#[tokio::test]
async fn a_coordinator_without_peers_publishes_nothing() -> Result<()> {
    let redis = Redis::start().await?;
    let fixture = fixture_on(redis.url(), ()).await?;
    fixture.pair().await?;
    fixture.say("a", "b", "alone").await?;
    let told = redis.tell(&["INFO", "commandstats"]).await?;
    assert!(!told.contains("cmdstat_spublish"), "{told}");
    let other = open(&redis.url()).await?;
    let mut wakes = other.wakes();
    fixture.say("a", "b", "not alone").await?;
    woken(&mut wakes, "b").await?;
    other.close().await;
    assert!(
        redis
            .tell(&["EXISTS", "{c3po}:peers"])
            .await?
            .starts_with(":0"),
        "the other one has left"
    );
    Ok(())
}

#[tokio::test]
async fn waits_that_are_over_do_not_pile_up_at_an_agent_that_waits_on() -> Result<()> {
    let Shared { redis, fixture, .. } = shared().await?;
    for _ in 0..300 {
        let asked = message("a", "b", "question").id;
        let lease = Duration::from_millis(1);
        fixture.store.await_answer(&asked, None, lease).await?;
    }
    let kept = redis.tell(&["HLEN", "{c3po}:waits:a"]).await?;
    let kept: usize = kept.trim_start_matches(':').trim().parse()?;
    ensure!((1..100).contains(&kept), "{kept} waits are kept");
    Ok(())
}

#[tokio::test]
async fn an_allowance_is_forgotten_when_every_count_is_younger() -> Result<()> {
    let Shared { redis, fixture, .. } = shared().await?;
    redis
        .tell(&[
            "HSET",
            "{c3po}:guard",
            "a b",
            "allow 1000",
            "a c",
            "stop 1000",
        ])
        .await?;
    fixture
        .store
        .rule(&Pair::of(&id("a"), &id("d")), false, None)
        .await?;
    let mut pairs: Vec<_> = fixture
        .store
        .rulings()
        .await?
        .iter()
        .map(|ruling| ruling.pair.to_string())
        .collect();
    pairs.sort();
    assert_eq!(pairs, ["a c", "a d"]);
    Ok(())
}

#[tokio::test]
async fn an_entry_of_the_log_that_cannot_be_read_is_a_gap() -> Result<()> {
    let Shared { redis, fixture, .. } = shared().await?;
    fixture.store.keep_log(Some(1_000)).await?;
    fixture.say("a", "b", "before").await?;
    let end = fixture.store.audit_end().await?;
    let position = (end + 1).to_string();
    let entry = r#"[{"at":"2026-01-15T10:30:00.000Z","login":"Ann "work" laptop"}]"#;
    redis
        .tell_all(&[
            &["SET", "{c3po}:audit_end", &position],
            &["XADD", "{c3po}:audit", &format!("{position}-0"), "e", entry],
        ])
        .await?;
    fixture.say("a", "b", "after").await?;
    let found = fixture.store.audit(end - 1, 100).await?;
    let events: Vec<_> = found
        .iter()
        .map(|entry| (entry.position - end, entry.event))
        .collect();
    assert_eq!(
        events,
        [(0, Event::Accepted), (1, Event::Gap), (2, Event::Accepted)]
    );
    Ok(())
}
