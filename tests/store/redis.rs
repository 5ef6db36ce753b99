//! What the Redis store promises beside what every store does: it outlives its Redis, and shares it with others.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use c3po_coordinator::config::RedisAddress;
use c3po_coordinator::store::redis::{OpenError, RedisStore};
use c3po_coordinator::store::{AnswerOutcome, Claim, Send, SendOutcome, Store, StoreError, Wake};
use c3po_shared::message::Message;
use c3po_shared::receipt::{Stage, Via};
use futures_util::future::BoxFuture;
use harness::eventually::eventually;
use harness::redis::Redis;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Fixture;
use super::fixture::{SOON, brief, claim, id, message, news, reply, send, woken};

/// After how long an operation must have been answered, whatever Redis does.
pub(super) const ANSWERED: Duration = Duration::from_secs(2);

/// A store, a second one as another coordinator would have it, and their Redis.
struct Shared {
    redis: Redis,
    fixture: Fixture,
    other: RedisStore,
}

async fn shared() -> Result<Shared> {
    // With everysec a killed server may lose what it had not written yet because its disk was busy.
    let redis = Redis::start_with(&["--appendfsync", "always"]).await?;
    let fixture = fixture_on(redis.url(), ()).await?;
    let other = open(&redis.url()).await?;
    fixture.pair().await?;
    Ok(Shared { redis, fixture, other })
}

/// Reads an address.
pub(super) fn address(url: &str) -> RedisAddress {
    url.parse().expect("the tests write addresses properly")
}

/// Opens the store that this address names.
pub(super) async fn open(url: &str) -> Result<RedisStore, OpenError> {
    RedisStore::open(&address(url)).await
}

/// Makes a fixture on that Redis, which lives as long as `place`.
pub(super) async fn fixture_on(url: String, place: impl Any + std::marker::Send + Sync) -> Result<Fixture> {
    fixture_at(address(&url), place).await
}

/// Makes a fixture at that address, whose servers live as long as `place`.
pub(super) async fn fixture_at(address: RedisAddress, place: impl Any + std::marker::Send + Sync) -> Result<Fixture> {
    let open = move || -> BoxFuture<'static, Result<Arc<dyn Store>>> {
        let address = address.clone();
        Box::pin(async move { Ok(Arc::new(opened(&address).await?) as Arc<dyn Store>) })
    };
    Fixture::new(place, Box::new(open)).await
}

/// Opens a store. A connection that takes more than half a second counts as refused; a busy machine may need longer.
async fn opened(address: &RedisAddress) -> Result<RedisStore, OpenError> {
    let begun = Instant::now();
    loop {
        match RedisStore::open(address).await {
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

/// Waits until the store answers again.
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
async fn what_one_coordinator_does_wakes_the_listeners_of_another() -> Result<()> {
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
async fn a_lost_subscription_wakes_everybody_and_hears_again() -> Result<()> {
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
async fn forgotten_scripts_are_loaded_again() -> Result<()> {
    let Shared { redis, fixture, .. } = shared().await?;
    fixture.say("a", "b", "before").await?;
    redis.tell(&["SCRIPT", "FLUSH"]).await?;
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
async fn a_replica_is_refused_with_what_to_write() -> Result<()> {
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
    assert!(redis.tell_all(&[&["SELECT", "3"], &["EXISTS", "c3po:{b}:agent"]]).await?.starts_with(":1"));
    Ok(())
}

#[tokio::test]
async fn a_newer_layout_is_refused_and_left_alone() -> Result<()> {
    let redis = Redis::start().await?;
    redis.tell(&["SET", "c3po:schema", "99"]).await?;
    let refused = open(&redis.url()).await.expect_err("it is newer");
    assert!(matches!(&refused, OpenError::NewerSchema { found, .. } if found == "99"), "{refused}");
    assert_eq!(redis.tell(&["GET", "c3po:schema"]).await?, "$2\r\n99\r\n");
    assert_eq!(redis.tell(&["DBSIZE"]).await?, ":1\r\n");
    Ok(())
}

#[tokio::test]
async fn an_older_layout_is_refused_and_left_alone() -> Result<()> {
    let redis = Redis::start().await?;
    redis.tell(&["SET", "c3po:schema", "1"]).await?;
    let refused = open(&redis.url()).await.expect_err("it is older");
    assert!(matches!(&refused, OpenError::OlderSchema { found, .. } if found == "1"), "{refused}");
    assert_eq!(redis.tell(&["GET", "c3po:schema"]).await?, "$1\r\n1\r\n");
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

/// An answer whose process crashed after it had claimed the question and before it had sent the reply.
async fn crashed_answer(shared: &Shared) -> Result<(Message, Send)> {
    crashed_answer_to(shared, message("a", "b", "who wins?")).await
}

async fn crashed_answer_to(shared: &Shared, question: Message) -> Result<(Message, Send)> {
    let question = shared.fixture.post(question).await?;
    let answer = send(reply(&question, "I do"));
    // An inbox of another type fails the script of the second step, as a crash before it would.
    shared.redis.tell(&["SET", "c3po:{a}:unshown", "broken"]).await?;
    let failed = shared.fixture.store.answer(&answer).await;
    assert!(matches!(failed, Err(StoreError::Corrupt(_))), "{failed:?}");
    shared.redis.tell(&["DEL", "c3po:{a}:unshown"]).await?;

    let late = shared.other.answer(&send(reply(&question, "no, I"))).await?;
    assert_eq!(late, AnswerOutcome::AlreadyAnswered(answer.message.id.clone()));
    assert_eq!(shared.fixture.stages(&question.id).await?, [Stage::Stored]);
    Ok((question, answer))
}

async fn check_answered(shared: &Shared, question: &Message, answer: &Send) -> Result<()> {
    let kept = shared.other.message(&question.id).await?.context("the question")?;
    assert_eq!(kept.reply.as_ref(), Some(&answer.message.id));
    assert_eq!(shared.fixture.stages(&question.id).await?, [Stage::Stored, Stage::Answered]);
    assert_eq!(shared.fixture.inbox("a").await?, ["I do"]);
    assert_eq!(shared.fixture.inbox("b").await?, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn a_crashed_answer_is_completed_by_the_same_call() -> Result<()> {
    let shared = shared().await?;
    let (question, answer) = crashed_answer(&shared).await?;
    let again = Send { message: reply(&question, "I did"), ..answer.clone() };
    let expected = AnswerOutcome::Sent(SendOutcome::Repeated(Box::new(answer.message.clone())));
    assert_eq!(shared.other.answer(&again).await?, expected);
    assert_eq!(shared.fixture.store.answer(&again).await?, expected);
    check_answered(&shared, &question, &answer).await
}

#[tokio::test]
async fn a_crashed_answer_is_completed_by_a_sweep_once_it_is_left_behind() -> Result<()> {
    let shared = shared().await?;
    let (question, answer) = crashed_answer(&shared).await?;
    shared.other.sweep().await?;
    assert_eq!(shared.fixture.stages(&question.id).await?, [Stage::Stored]);

    shared.redis.tell(&["ZADD", "c3po:{b}:outbox", "1", question.id.as_str()]).await?;
    let mut wakes = shared.fixture.store.wakes();
    shared.other.sweep().await?;
    check_answered(&shared, &question, &answer).await?;
    woken(&mut wakes, "a").await
}

#[tokio::test]
async fn a_crashed_answer_that_cannot_be_sent_opens_the_question_again() -> Result<()> {
    let shared = shared().await?;
    let (question, answer) = crashed_answer(&shared).await?;
    shared.fixture.store.unregister(&id("a")).await?;
    shared.redis.tell(&["ZADD", "c3po:{b}:outbox", "1", question.id.as_str()]).await?;
    shared.other.sweep().await?;
    assert_eq!(shared.fixture.inbox("b").await?, ["who wins?"]);
    assert_eq!(shared.fixture.unshown("b").await?, ["who wins?"]);
    shared.fixture.agent("a").await?;
    assert_eq!(shared.fixture.store.answer(&answer).await?, AnswerOutcome::Sent(SendOutcome::Stored));
    check_answered(&shared, &question, &answer).await
}

#[tokio::test]
async fn a_question_that_is_being_answered_does_not_expire_meanwhile() -> Result<()> {
    let shared = shared().await?;
    let (question, answer) = crashed_answer_to(&shared, brief("a", "b", "who wins?")).await?;
    let other = shared.fixture.post(brief("a", "b", "what else?")).await?;
    let out = async || (shared.fixture.pending("b").await.ok()? == 1).then_some(());
    eventually("the other one's time is over", SOON, out).await?;
    assert_eq!(shared.fixture.stages(&other.id).await?, [Stage::Stored, Stage::Expired]);
    shared.redis.tell(&["ZADD", "c3po:{b}:outbox", "1", question.id.as_str()]).await?;
    shared.other.sweep().await?;
    check_answered(&shared, &question, &answer).await
}

#[tokio::test]
async fn no_script_touches_the_keys_of_two_agents() -> Result<()> {
    let shared = shared().await?;
    let mut monitor = connect(&shared.redis).await?;
    monitor.write_all(b"MONITOR\r\n").await?;
    monitor.read_exact(&mut [0; 5]).await?;

    let question = shared.fixture.say("a", "b", "who?").await?;
    shared.fixture.answer(&question, "me").await?;
    let full = Send { bound: 0, ..send(reply(&shared.fixture.say("a", "b", "and?").await?, "full")) };
    shared.fixture.store.answer(&full).await?;
    shared.fixture.acknowledge(&shared.fixture.post(news("a", "b", "fyi")).await?).await?;
    shared.fixture.thread(&question.id, "a", &["a", "b"]).await?;
    shared.fixture.store.sweep().await?;
    shared.redis.tell(&["ECHO", "the end"]).await?;

    let mut scripts = 0;
    let mut agents: Vec<String> = Vec::new();
    for line in lines_until(&mut monitor, "the end").await?.lines() {
        if line.contains("\"EVALSHA\"") {
            scripts += 1;
            agents.clear();
        }
        let Some(rest) = line.split_once("\"c3po:{").map(|(_, rest)| rest) else { continue };
        agents.push(rest.split('}').next().unwrap_or_default().to_owned());
        agents.dedup();
        ensure!(!line.contains(" lua]") || agents.len() <= 1, "two agents in one script: {agents:?} at {line}");
    }
    assert!(scripts > 10, "{scripts}");
    Ok(())
}

async fn lines_until(stream: &mut TcpStream, end: &str) -> Result<String> {
    let mut heard = Vec::new();
    while !String::from_utf8_lossy(&heard).contains(end) {
        ensure!(timeout(SOON, stream.read_buf(&mut heard)).await?? > 0, "Redis closed the connection");
    }
    Ok(String::from_utf8_lossy(&heard).into_owned())
}

#[tokio::test]
async fn what_an_older_c3po_left_is_in_the_first_context() -> Result<()> {
    let Shared { redis, fixture, .. } = shared().await?;
    let wish = claim("c");
    let tenure = fixture.take(&wish).await?;
    let sent = fixture.say("a", "c", "hello").await?;
    fixture.advance(&sent, &tenure, Stage::InSession, Via::GetMessages).await?;
    assert!(redis.tell(&["HDEL", "c3po:{c}:agent", "context"]).await?.starts_with(":1"));
    assert_eq!(fixture.store.agent(&id("c")).await?.map(|agent| agent.context), Some(0));
    assert_eq!(fixture.take(&wish).await?.generation, tenure.generation);
    assert!(fixture.unshown("c").await?.is_empty());
    assert!(redis.tell(&["HDEL", "c3po:{c}:agent", "context"]).await?.starts_with(':'));
    fixture.take(&Claim { context: 1, ..wish }).await?;
    assert_eq!(fixture.unshown("c").await?, ["hello"]);
    fixture.acknowledge(&sent).await?;
    assert!(redis.tell(&["EXISTS", "c3po:{c}:repeated"]).await?.starts_with(":0"), "marks go with their messages");
    Ok(())
}
