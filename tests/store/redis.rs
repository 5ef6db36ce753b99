//! Additional promises of the Redis store: it survives a restart of its Redis, and shares it with other coordinators.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use c3po_coordinator::config::{Fleet, RedisAddress, StoreAddress};
use c3po_coordinator::store::redis::{OpenError, RedisStore};
use c3po_coordinator::store::{
    self, AnswerOutcome, KeyStore, Pair, Selection, SendOutcome, Store, StoreError, Tenure, Wake,
};
use c3po_shared::audit::{Entry, Event};
use c3po_shared::limits::INBOX_MAX;
use c3po_shared::receipt::{Progress, Stage, Via};
use c3po_shared::time::Timestamp;
use futures_util::future::{BoxFuture, join};
use harness::eventually::eventually;
use harness::redis::Redis;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Fixture;
use super::fixture::{
    LEASE, SOON, brief, context, everything, id, message, news, progress, reply, seen_at_once, send, woken,
};

/// The time within which an operation must return, whatever Redis does.
pub(super) const ANSWERED: Duration = Duration::from_secs(2);

/// The most commands that one function call may run.
const COMMANDS_MAX: usize = 500;

/// A store, a second one as in another coordinator, and their Redis.
struct Shared {
    redis: Redis,
    fixture: Fixture,
    other: RedisStore,
}

async fn shared() -> Result<Shared> {
    // With everysec, a killed server may lose writes that a busy disk has delayed.
    let redis = Redis::start_with(&["--appendfsync", "always"]).await?;
    let fixture = fixture_on(redis.url(), ()).await?;
    let other = open(&redis.url()).await?;
    fixture.pair().await?;
    Ok(Shared { redis, fixture, other })
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
pub(super) async fn fixture_at(address: RedisAddress, place: impl Any + Send + Sync) -> Result<Fixture> {
    fixture_of(Fleet::default(), address, place).await
}

/// Creates a fixture of that fleet.
pub(super) async fn fixture_of(fleet: Fleet, address: RedisAddress, place: impl Any + Send + Sync) -> Result<Fixture> {
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

async fn connect(redis: &Redis) -> Result<TcpStream> {
    let url = redis.url();
    Ok(TcpStream::connect(url.strip_prefix("redis://").context("a Redis URL")?).await?)
}

/// Waits until the store responds again.
pub(super) async fn recovered(store: &dyn Store) -> Result<()> {
    eventually("the store answers", SOON, async || store.check().await.ok()).await
}

#[tokio::test]
async fn everything_survives_a_restart_of_redis_and_the_store_finds_it_again() -> Result<()> {
    let Shared { mut redis, fixture, .. } = shared().await?;
    let question = fixture.say("a", "b", "still there?").await?;
    redis.restart().await?;
    recovered(&*fixture.store).await?;
    assert_eq!(fixture.inbox("b").await?, ["still there?"]);
    fixture.answer(&question, "yes").await?;
    assert_eq!(fixture.stages(&question.id).await?, [Stage::Stored, Stage::Answered]);
    Ok(())
}

#[tokio::test]
async fn without_redis_every_call_is_refused_soon_and_the_store_opens_no_more() -> Result<()> {
    let Shared { mut redis, fixture, .. } = shared().await?;
    redis.kill()?;
    let begun = Instant::now();
    let refused = fixture.store.pending(&id("b")).await.expect_err("there is no Redis");
    assert!(matches!(refused, StoreError::Unavailable(_)) && begun.elapsed() < ANSWERED, "{refused}");
    let refused = open(&redis.url()).await.expect_err("there is no Redis");
    assert!(matches!(refused, OpenError::Unreachable { .. }), "{refused}");
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
    assert!(matches!(outcome, SendOutcome::Stored | SendOutcome::Repeated(_)), "{outcome:?}");
    assert_eq!(fixture.inbox("b").await?, ["once"]);
    Ok(())
}

#[tokio::test]
async fn changes_by_one_coordinator_wake_the_listeners_of_another() -> Result<()> {
    let Shared { redis: _redis, fixture, other } = shared().await?;
    let mut wakes = other.wakes();
    let question = fixture.say("a", "b", "ping").await?;
    woken(&mut wakes, "b").await?;
    fixture.answer(&question, "pong").await?;
    woken(&mut wakes, "a").await?;
    fixture.post(brief("a", "b", "gone soon")).await?;
    woken(&mut wakes, "b").await?;
    eventually("it has expired", SOON, async || (fixture.pending("b").await.ok()? == 0).then_some(())).await?;
    woken(&mut wakes, "a").await
}

#[tokio::test]
async fn a_lost_subscription_wakes_all_listeners_and_is_renewed() -> Result<()> {
    let Shared { redis, fixture, other } = shared().await?;
    let mut wakes = other.wakes();
    redis.tell(&["CLIENT", "KILL", "TYPE", "pubsub"]).await?;
    let heard = timeout(SOON, wakes.recv()).await??;
    assert_eq!(heard, Wake::Everyone);
    fixture.say("a", "b", "ping").await?;
    assert_eq!(timeout(SOON, wakes.recv()).await??, Wake::Inbox(id("b"), None));
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
async fn a_redis_that_evicts_is_refused_with_the_remedy() -> Result<()> {
    let redis = Redis::start().await?;
    redis.tell(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await?;
    let check = async || {
        let refused = open(&redis.url()).await.expect_err("it evicts");
        assert!(matches!(&refused, OpenError::Evicts { policy, .. } if policy == "allkeys-lru"), "{refused}");
        assert!(refused.to_string().contains("CONFIG SET maxmemory-policy noeviction"), "{refused}");
    };
    check().await;
    redis.tell(&["ACL", "SETUSER", "default", "-config"]).await?;
    check().await;
    assert_eq!(redis.tell(&["DBSIZE"]).await?, ":0\r\n");
    Ok(())
}

#[tokio::test]
async fn a_replica_is_refused_with_the_address_form_to_use() -> Result<()> {
    let master = Redis::start().await?;
    open(&master.url()).await?;
    let replica = Redis::start_with(&["--replicaof", &format!("127.0.0.1 {}", master.port())]).await?;
    let refused = open(&replica.url()).await.expect_err("it takes no messages");
    assert!(matches!(refused, OpenError::Replica { .. }) && refused.to_string().contains("+sentinel"), "{refused}");
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
    assert_eq!((first.pending("b").await?, second.pending("b").await?), (1, 0));
    assert!(redis.tell_all(&[&["SELECT", "3"], &["EXISTS", "{c3po}:agent:b"]]).await?.starts_with(":1"));
    Ok(())
}

#[tokio::test]
async fn a_newer_layout_is_refused_and_left_alone() -> Result<()> {
    let redis = Redis::start().await?;
    redis.tell(&["SET", "{c3po}:schema", "99"]).await?;
    let refused = open(&redis.url()).await.expect_err("it is newer");
    assert!(matches!(&refused, OpenError::NewerSchema { found, .. } if found == "99"), "{refused}");
    assert_eq!(redis.tell(&["GET", "{c3po}:schema"]).await?, "$2\r\n99\r\n");
    assert_eq!(redis.tell(&["DBSIZE"]).await?, ":1\r\n");
    Ok(())
}

#[tokio::test]
async fn a_password_is_never_shown() -> Result<()> {
    let redis = Redis::start().await?;
    redis.tell(&["CONFIG", "SET", "requirepass", "open-sesame"]).await?;
    let place = redis.url().replace("redis://", "");
    let store = open(&format!("redis://:open-sesame@{place}")).await?;
    let refused = open(&format!("redis://:wrong-sesame@{place}")).await.expect_err("it is wrong");
    let shown = format!("{store:?} {refused} {refused:?}");
    assert!(!shown.contains("sesame"), "{shown}");
    Ok(())
}

/// A permanent error of Redis ends the start with a clear message; only a Redis that does not respond is waited for.
#[tokio::test]
async fn a_coordinator_ends_its_start_where_redis_refuses_it() -> Result<()> {
    let redis = Redis::start().await?;
    redis.tell(&["CONFIG", "SET", "requirepass", "open-sesame"]).await?;
    let place = redis.url().replace("redis://", "");
    for (url, reason) in [
        (format!("redis://:wrong@{place}"), "password"),
        (format!("redis://{place}"), "Authentication required"),
        (format!("redis://:open-sesame@{place}/99"), "DB index"),
    ] {
        let (address, fleet) = (StoreAddress::Redis(Box::new(address(&url))), Fleet::default());
        let refused =
            timeout(SOON, store::open(&address, &fleet)).await.context(url)?.expect_err("it is refused").to_string();
        assert!(refused.contains("refuses this coordinator") && refused.contains(reason), "{refused}");
    }
    Ok(())
}

#[tokio::test]
async fn every_key_begins_with_the_fleet_and_no_call_runs_more_than_500_commands() -> Result<()> {
    let Shared { redis, fixture, other } = shared().await?;
    let tenure = fixture.agent("c").await?;
    let mut monitor = connect(&redis).await?;
    monitor.write_all(b"MONITOR\r\n").await?;
    monitor.read_exact(&mut [0; 5]).await?;

    everything_at_its_bound(&fixture, &tenure).await?;
    expiring_beside_other_work(&fixture).await?;
    other.sweep().await?;
    redis.tell(&["ECHO", "the end"]).await?;

    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut function = String::new();
    for line in lines_until(&mut monitor, "the end").await?.lines() {
        let words: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
        if words.first() == Some(&"FCALL") {
            function = words[1].split('_').skip(2).collect::<Vec<_>>().join("_");
            counts.entry(function.clone()).or_default().0 = 0;
        } else if line.contains(" lua]") {
            let (count, most) = counts.entry(function.clone()).or_default();
            *count += 1;
            *most = (*most).max(*count);
        }
    }
    let over: Vec<_> = counts.iter().filter(|(_, (_, most))| *most > COMMANDS_MAX).collect();
    assert!(over.is_empty(), "{over:?}");
    assert!(counts.len() >= 16, "{counts:?}");
    let keys = redis.tell(&["KEYS", "*"]).await?;
    let foreign: Vec<_> = keys.lines().filter(|line| line.contains(':') && !line.starts_with("{c3po}:")).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    Ok(())
}

/// Makes every function do the maximum work in one call: full inboxes are read, are acknowledged, and expire at once.
async fn everything_at_its_bound(fixture: &Fixture, tenure: &Tenure) -> Result<()> {
    let question = fixture.say("a", "b", "who?").await?;
    fixture.answer(&question, "me").await?;
    let (began, mut sent) = (Instant::now(), Vec::new());
    for _ in 0..INBOX_MAX {
        sent.push(fixture.post(news("a", "c", "news")).await?.id);
    }
    // Each is marked for the current context, and settled by an older one.
    fixture.store.amend(&tenure.agent, Some(tenure), &context(1).into()).await?;
    fixture.store.advance(&tenure.agent, Some(tenure), &seen_at_once(&sent, 0)).await?;
    assert_eq!(fixture.pending("c").await?, 0);
    // This machine takes less time for as many again with their receipts.
    let end = Timestamp::now() + began.elapsed() * 2 + Duration::from_secs(4);
    sent.clear();
    for number in 0..INBOX_MAX {
        let mut next = message("a", "c", &number.to_string());
        next.thread_id = question.id.clone();
        if number >= INBOX_MAX / 2 {
            next.expires_at = end;
        }
        sent.push(fixture.post(next).await?.id);
    }
    let shown = Progress { context: 1, ..progress(&sent, Stage::InSession, Via::GetMessages) };
    fixture.store.advance(&tenure.agent, Some(tenure), &shown).await?;
    fixture.store.amend(&tenure.agent, Some(tenure), &context(2).into()).await?;
    fixture.store.advance(&tenure.agent, Some(tenure), &seen_at_once(&sent, 2)).await?;
    assert_eq!(fixture.inbox("c").await?.len(), INBOX_MAX);
    let one = Selection { thread: Some(&question.id), ..everything() };
    assert_eq!(fixture.store.unshown(&tenure.agent, one).await?.len(), 0);
    assert_eq!(fixture.thread(&question.id, "c").await?.len(), INBOX_MAX);
    eventually("the others' time is over", SOON * 6, async || (Timestamp::now() > end).then_some(())).await?;
    assert_eq!(fixture.pending("c").await?, INBOX_MAX / 2);
    fixture.store.acknowledge(&tenure.agent, Some(tenure), &sent).await?;
    fixture.store.renew(tenure, LEASE).await?;
    fixture.introduce("human", None).await?;
    fixture.store.rule(&Pair::of(&id("a"), &id("b")), false).await?;
    fixture.store.agents(None, 1_000).await?;
    fixture.store.message(&sent[0]).await?;
    fixture.store.release(tenure, true).await?;
    fixture.store.unregister(&tenure.agent).await?;
    super::one_shot::one_with_much_ends(fixture).await?;
    super::owners::many_move(fixture).await?;
    Ok(())
}

/// Calls functions that expire messages among other work, on inboxes with many expired messages.
async fn expiring_beside_other_work(fixture: &Fixture) -> Result<()> {
    const EACH: usize = 200;
    let reader = fixture.agent("reader").await?;
    let both = fixture.agent("both").await?;
    let question = fixture.say("reader", "both", "who?").await?;
    let mut kept = Vec::new();
    for _ in 0..EACH {
        kept.push(fixture.say("a", "reader", "kept").await?.id);
    }
    fixture.store.advance(&reader.agent, Some(&reader), &progress(&kept, Stage::InSession, Via::GetMessages)).await?;
    let end = Timestamp::now() + Duration::from_secs(4);
    for to in ["reader", "both", "both-2"] {
        fixture.introduce(to, None).await?;
        for _ in 0..EACH {
            let mut next = message("a", to, "ends soon");
            next.expires_at = end;
            fixture.post(next).await?;
        }
    }
    eventually("their time is over", SOON, async || (Timestamp::now() > end).then_some(())).await?;
    // Each of these calls finds both inboxes, or its own, full of expired messages.
    assert!(matches!(fixture.answer(&question, "me").await?, AnswerOutcome::Sent(SendOutcome::Stored)));
    fixture.say("a", "both-2", "room again").await?;
    fixture.store.advance(&both.agent, Some(&both), &seen_at_once(std::slice::from_ref(&question.id), 1)).await?;
    fixture.store.amend(&reader.agent, Some(&reader), &context(1).into()).await?;
    assert_eq!(fixture.store.unshown(&reader.agent, everything()).await?.len(), EACH + 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_any_point_of_a_reply_leaves_it_done_or_not_done() -> Result<()> {
    const ROUNDS: usize = 15;
    let Shared { mut redis, fixture, .. } = shared().await?;
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
            fixture.inbox("b").await?.contains(&question.text().to_owned()),
            fixture.inbox("a").await?.contains(&answer.message.text().to_owned()),
        );
        let is_done = stages == [Stage::Stored, Stage::Answered];
        ensure!(is_done == is_there && is_done != is_open, "round {round}: {stages:?} {is_there} {is_open}");
        ensure!(is_done || outcome.is_err(), "round {round}: {outcome:?} and not done");
        let again = fixture.store.answer(&answer).await?;
        ensure!(matches!(again, AnswerOutcome::Sent(SendOutcome::Stored | SendOutcome::Repeated(_))), "{again:?}");
        assert_eq!(fixture.inbox("a").await?.iter().filter(|text| *text == answer.message.text()).count(), 1);
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

/// Fills both stores in the same way and checks that neither sees the other's data.
pub(super) async fn keep_apart(first: &Fixture, second: &Fixture) -> Result<()> {
    let mut wakes = second.store.wakes();
    for fixture in [first, second] {
        fixture.pair().await?;
    }
    let question = first.say("a", "b", "in the first").await?;
    assert_eq!((first.pending("b").await?, second.pending("b").await?), (1, 0));
    assert!(second.store.message(&question.id).await?.is_none());
    first.store.note(&[Entry::new(Event::PolicyChanged)], 10).await?;
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
    assert!(redis.tell(&["EXISTS", "{c3po}:peers"]).await?.starts_with(":0"), "the other one has left");
    Ok(())
}

#[tokio::test]
async fn an_allowance_is_forgotten_when_every_count_is_younger() -> Result<()> {
    let Shared { redis, fixture, .. } = shared().await?;
    redis.tell(&["HSET", "{c3po}:guard", "a b", "allow 1000", "a c", "stop 1000"]).await?;
    fixture.store.rule(&Pair::of(&id("a"), &id("d")), false).await?;
    let mut pairs: Vec<_> = fixture.store.rulings().await?.iter().map(|ruling| ruling.pair.to_string()).collect();
    pairs.sort();
    assert_eq!(pairs, ["a c", "a d"]);
    Ok(())
}

#[tokio::test]
async fn data_of_an_earlier_build_is_discarded_on_request_except_keys_and_invites() -> Result<()> {
    let redis = Redis::start().await?;
    for command in [
        &["SET", "c3po:schema", "3"][..],
        &["ZADD", "c3po:agents", "0", "a"],
        &["HSET", "c3po:{a}:agent", "uid", "x"],
        &["HSET", "c3po:{a}:m:0123abcd", "env", "{}"],
        &["HSET", "c3po:keys", "changes", "7", "0badcafe", "1 {}"],
        &["HSET", "c3po:{c3po:keys}:invites", "hash", "0 0 {}"],
        &["SET", "c3po:mine", "not c3po's"],
    ] {
        redis.tell(command).await?;
    }
    let refused = open(&redis.url()).await.expect_err("it holds what an earlier build stored");
    assert!(matches!(refused, OpenError::EarlierBuild { .. }), "{refused}");
    assert!(refused.to_string().contains("--discard-old"), "{refused}");
    assert_eq!(redis.tell(&["DBSIZE"]).await?, ":7\r\n", "nothing was changed");

    let discarding = RedisAddress { discard_old: true, ..address(&redis.url()) };
    let store = RedisStore::open(&discarding, &Fleet::default()).await?;
    assert_eq!(store.key_changes().await?, 7);
    assert!(redis.tell(&["HGET", "{c3po}:invites", "hash"]).await?.contains("0 0 {}"));
    let left = redis.tell(&["KEYS", "c3po:*"]).await?;
    assert_eq!(left.lines().filter(|line| line.starts_with("c3po:")).collect::<Vec<_>>(), ["c3po:mine"]);
    open(&redis.url()).await?;
    Ok(())
}

async fn lines_until(stream: &mut TcpStream, end: &str) -> Result<String> {
    let mut heard = Vec::new();
    while !String::from_utf8_lossy(&heard).contains(end) {
        ensure!(timeout(SOON, stream.read_buf(&mut heard)).await?? > 0, "Redis closed the connection");
    }
    Ok(String::from_utf8_lossy(&heard).into_owned())
}
