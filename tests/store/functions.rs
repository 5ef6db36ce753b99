//! The functions that run in Redis: their keys belong to the fleet, and no call runs more than 500 commands.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use c3po_coordinator::store::{Actor, AnswerOutcome, Ending, Pair, Selection, SendOutcome, Tenure};
use c3po_shared::limits::{INBOX_MAX, QUESTIONS_PER_AGENT, QUESTIONS_PER_HOST};
use c3po_shared::receipt::{Progress, Stage, Via};
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::KindFilter;
use futures_util::future::join_all;
use harness::eventually::eventually;
use harness::redis::Redis;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::Fixture;
use super::fixture::{
    LEASE, SOON, by, context, everything, id, message, news, progress, seen_at_once, send, speaking,
};
use super::redis::{Shared, shared};

/// The most commands that one function call may run.
const COMMANDS_MAX: usize = 500;

async fn connect(redis: &Redis) -> Result<TcpStream> {
    let url = redis.url();
    Ok(TcpStream::connect(url.strip_prefix("redis://").context("a Redis URL")?).await?)
}

#[tokio::test]
async fn every_key_begins_with_the_fleet_and_no_call_runs_more_than_500_commands() -> Result<()> {
    let Shared {
        redis,
        fixture,
        other,
    } = shared().await?;
    fixture.store.keep_log(Some(100_000)).await?;
    let tenure = fixture.agent("c").await?;
    let mut monitor = connect(&redis).await?;
    monitor.write_all(b"MONITOR\r\n").await?;
    monitor.read_exact(&mut [0; 5]).await?;

    everything_at_its_bound(&fixture, &tenure).await?;
    expiring_beside_other_work(&fixture).await?;
    people_have_as_much_as_one_call_settles(&fixture).await?;
    many_send_at_the_same_time(&fixture).await?;
    super::duties::as_many_as_possible(&other).await?;
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
    let over: Vec<_> = counts
        .iter()
        .filter(|(_, (_, most))| *most > COMMANDS_MAX)
        .collect();
    assert!(over.is_empty(), "{over:?}");
    assert!(counts.len() >= 16, "{counts:?}");
    // Several calls went together.
    assert!(counts["batch"].1 > 100, "{counts:?}");
    let keys = redis.tell(&["KEYS", "*"]).await?;
    let foreign: Vec<_> = keys
        .lines()
        .filter(|line| line.contains(':') && !line.starts_with("{c3po}:"))
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    Ok(())
}

/// The texts of the others may be 200 kB each, and Redis runs one call at a time.
#[tokio::test]
async fn a_page_reads_the_texts_of_its_own_messages_alone() -> Result<()> {
    let Shared { redis, fixture, .. } = shared().await?;
    for number in 0..50 {
        fixture.say("a", "b", &number.to_string()).await?;
    }
    let question = fixture.say("b", "a", "who?").await?;
    fixture.answer(&question, "me").await?;
    let mut monitor = connect(&redis).await?;
    monitor.write_all(b"MONITOR\r\n").await?;
    monitor.read_exact(&mut [0; 5]).await?;
    let replies = Selection {
        kind: KindFilter::Reply,
        ..everything()
    };
    let page = fixture.store.inbox(&id("b"), replies).await?;
    redis.tell(&["ECHO", "the end"]).await?;
    let commands = lines_until(&mut monitor, "the end").await?;
    let texts = commands.matches("\"env\"").count();
    assert_eq!((page.len(), texts), (1, 1), "{commands}");
    Ok(())
}

/// Makes every function do the maximum work in one call: full inboxes are read, are acknowledged, and expire at once.
async fn everything_at_its_bound(fixture: &Fixture, tenure: &Tenure) -> Result<()> {
    let question = fixture.say("a", "b", "who?").await?;
    fixture.answer(&question, "me").await?;
    let began = Instant::now();
    settle_full_inbox(fixture, tenure).await?;
    // This machine takes less time for as many again with their receipts.
    let end = Timestamp::now() + began.elapsed() * 2 + Duration::from_secs(4);
    let mut sent = Vec::new();
    for number in 0..INBOX_MAX {
        let mut next = message("a", "c", &number.to_string());
        next.thread_id = question.id.clone();
        if number >= INBOX_MAX / 2 {
            next.expires_at = end;
        }
        sent.push(fixture.post(next).await?.id);
    }
    let store = &fixture.store;
    let shown = Progress {
        context: 1,
        ..progress(&sent, Stage::InSession, Via::GetMessages)
    };
    store.advance(&tenure.agent, &by(tenure), &shown).await?;
    begin_context(fixture, tenure, 2).await?;
    store
        .advance(&tenure.agent, &by(tenure), &seen_at_once(&sent, 2))
        .await?;
    assert_eq!(fixture.inbox("c").await?.len(), INBOX_MAX);
    let one = Selection {
        thread: Some(&question.id),
        ..everything()
    };
    assert_eq!(store.unshown(&tenure.agent, one).await?.len(), 0);
    assert_eq!(fixture.thread(&question.id, "c").await?.len(), INBOX_MAX);
    eventually("the others' time is over", SOON * 6, async || {
        (Timestamp::now() > end).then_some(())
    })
    .await?;
    assert_eq!(fixture.pending("c").await?, INBOX_MAX / 2);
    store.acknowledge(&tenure.agent, &by(tenure), &sent).await?;
    store.renew(tenure, LEASE).await?;
    fixture.introduce("human", None).await?;
    store
        .rule(&Pair::of(&id("a"), &id("b")), false, None)
        .await?;
    store.agents(None, 1_000).await?;
    store.message(&sent[0]).await?;
    store.release(tenure, Ending::Goodbye).await?;
    store.unregister(&tenure.agent, None, None).await?;
    super::one_shot::one_with_much_ends(fixture).await?;
    super::owners::many_move(fixture).await?;
    Ok(())
}

/// Fills the inbox of `c` with news; they are marked for the current context, and settled by an older one.
async fn settle_full_inbox(fixture: &Fixture, tenure: &Tenure) -> Result<()> {
    let mut sent = Vec::new();
    for _ in 0..INBOX_MAX {
        sent.push(fixture.post(news("a", "c", "news")).await?.id);
    }
    begin_context(fixture, tenure, 1).await?;
    fixture
        .store
        .advance(&tenure.agent, &by(tenure), &seen_at_once(&sent, 0))
        .await?;
    assert_eq!(fixture.pending("c").await?, 0);
    Ok(())
}

async fn begin_context(fixture: &Fixture, tenure: &Tenure, number: u64) -> Result<()> {
    let change = context(number).into();
    fixture
        .store
        .amend(&tenure.agent, Some(&speaking(tenure)), &change)
        .await?;
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
    fixture
        .store
        .advance(
            &reader.agent,
            &by(&reader),
            &progress(&kept, Stage::InSession, Via::GetMessages),
        )
        .await?;
    let end = Timestamp::now() + Duration::from_secs(4);
    for to in ["reader", "both", "both-2"] {
        fixture.introduce(to, None).await?;
        for _ in 0..EACH {
            let mut next = message("a", to, "ends soon");
            next.expires_at = end;
            fixture.post(next).await?;
        }
    }
    eventually("their time is over", SOON, async || {
        (Timestamp::now() > end).then_some(())
    })
    .await?;
    // Each of these calls finds both inboxes, or its own, full of expired messages.
    assert!(matches!(
        fixture.answer(&question, "me").await?,
        AnswerOutcome::Sent(SendOutcome::Stored)
    ));
    fixture.say("a", "both-2", "room again").await?;
    fixture
        .store
        .advance(
            &both.agent,
            &by(&both),
            &seen_at_once(std::slice::from_ref(&question.id), 1),
        )
        .await?;
    fixture
        .store
        .amend(&reader.agent, Some(&speaking(&reader)), &context(1).into())
        .await?;
    assert_eq!(
        fixture
            .store
            .unshown(&reader.agent, everything())
            .await?
            .len(),
        EACH + 1
    );
    Ok(())
}

/// Settles messages in the inbox of people, and lets others expire at once: each costs more commands than in other inboxes.
async fn people_have_as_much_as_one_call_settles(fixture: &Fixture) -> Result<()> {
    let (mut now, mut later) = (Vec::new(), Vec::new());
    let end = Timestamp::now() + Duration::from_secs(4);
    for number in 0..QUESTIONS_PER_HOST {
        let asker = format!("p{}", number / QUESTIONS_PER_AGENT);
        fixture.introduce(&asker, Some("h")).await?;
        let mut question = message(&asker, "human", "which one?");
        question.from_host = Some("h".into());
        if number < QUESTIONS_PER_HOST / 2 {
            now.push(fixture.post(question).await?.id);
        } else {
            question.expires_at = end;
            later.push(fixture.post(question).await?.id);
        }
    }
    let store = &fixture.store;
    for ids in [&now, &later] {
        let shown = progress(ids, Stage::InSession, Via::GetMessages);
        store
            .advance(&id("human"), &Actor::default(), &shown)
            .await?;
    }
    store
        .acknowledge(&id("human"), &Actor::default(), &now)
        .await?;
    eventually("the time of the others is over", SOON, async || {
        (Timestamp::now() > end).then_some(())
    })
    .await?;
    store
        .acknowledge(&id("human"), &Actor::default(), &later)
        .await?;
    assert_eq!(fixture.pending("human").await?, 0);
    Ok(())
}

/// Sends to many inboxes at the same time, each with many expired messages.
async fn many_send_at_the_same_time(fixture: &Fixture) -> Result<()> {
    const INBOXES: usize = 16;
    let end = Timestamp::now() + Duration::from_secs(2);
    let inboxes: Vec<_> = (0..INBOXES).map(|number| format!("q{number}")).collect();
    for inbox in &inboxes {
        fixture.introduce(inbox, None).await?;
        for _ in 0..INBOXES {
            let mut next = message("a", inbox, "ends soon");
            next.expires_at = end;
            fixture.post(next).await?;
        }
    }
    eventually("their time is over", SOON, async || {
        (Timestamp::now() > end).then_some(())
    })
    .await?;
    let thread = fixture.say("a", "b", "who?").await?.id;
    let sends: Vec<_> = inboxes
        .iter()
        .cycle()
        .take(4 * INBOXES)
        .map(|inbox| {
            let mut next = send(message("a", inbox, "room again"));
            next.message.thread_id = thread.clone();
            next.one_shot = true;
            (next.quota.key, next.quota.bytes) = ("0a0b0c0d".into(), Some(1 << 30));
            next
        })
        .collect();
    for sent in join_all(sends.iter().map(|send| fixture.store.send(send))).await {
        assert_eq!(sent?, SendOutcome::Stored);
    }
    for inbox in &inboxes {
        assert_eq!(fixture.pending(inbox).await?, 4);
    }
    // Each is shown in a context that its session has just begun.
    let mut shown = Vec::new();
    for send in &sends[..INBOXES] {
        let tenure = fixture.agent(send.message.to_agent.as_str()).await?;
        let ids = std::slice::from_ref(&send.message.id);
        shown.push((by(&tenure), tenure.agent, seen_at_once(ids, 1)));
    }
    let showing = shown
        .iter()
        .map(|(actor, agent, report)| fixture.store.advance(agent, actor, report));
    for stages in join_all(showing).await {
        assert_eq!(stages?.len(), 2);
    }
    Ok(())
}

async fn lines_until(stream: &mut TcpStream, end: &str) -> Result<String> {
    let mut heard = Vec::new();
    while !String::from_utf8_lossy(&heard).contains(end) {
        ensure!(
            timeout(SOON, stream.read_buf(&mut heard)).await?? > 0,
            "Redis closed the connection"
        );
    }
    Ok(String::from_utf8_lossy(&heard).into_owned())
}

/// Returns how long Redis has run functions, in microseconds.
async fn function_time(redis: &Redis) -> Result<u64> {
    let stats = redis.tell(&["INFO", "commandstats"]).await?;
    let functions = stats
        .lines()
        .find(|line| line.starts_with("cmdstat_fcall:"));
    let time = functions
        .and_then(|line| line.split(",usec=").nth(1))
        .and_then(|rest| rest.split(',').next());
    Ok(time.context("no function ran")?.parse()?)
}

/// A copy of the whole inbox took five times as long.
#[tokio::test]
async fn a_new_context_takes_as_long_beside_a_full_inbox_as_beside_an_empty_one() -> Result<()> {
    const WAITING: usize = 900;
    const CONTEXTS: u64 = 200;
    let Shared { redis, fixture, .. } = shared().await?;
    let idle = fixture.agent("d").await?;
    let full = fixture.agent("c").await?;
    for _ in 0..WAITING {
        fixture.say("a", "c", "waiting").await?;
    }
    let (first, second) = (
        fixture.say("a", "d", "shown").await?,
        fixture.say("a", "c", "shown").await?,
    );
    let mut times = [0, 0];
    for context in 1..=CONTEXTS {
        for (time, message, tenure) in [(0, &first, &idle), (1, &second, &full)] {
            let before = function_time(&redis).await?;
            fixture
                .advance_in(context, message, tenure, Stage::InSession, Via::Stop)
                .await?;
            times[time] += function_time(&redis).await? - before;
        }
    }
    let [empty, full] = times;
    ensure!(full < 3 * empty, "{empty} and {full} us");
    Ok(())
}

/// Others had no turn at Redis while one call looked at 150 messages.
#[tokio::test]
async fn a_search_of_a_long_inbox_is_in_parts() -> Result<()> {
    const MESSAGES: usize = 200;
    const PART: usize = 25;
    let Shared { redis, fixture, .. } = shared().await?;
    fixture.agent("c").await?;
    for _ in 0..MESSAGES {
        fixture.say("a", "c", "short").await?;
    }
    let replies = Selection {
        kind: KindFilter::Reply,
        ..everything()
    };
    let before = super::batches::functions_run(&redis).await?;
    assert_eq!(fixture.store.inbox(&id("c"), replies).await?.len(), 0);
    let parts = super::batches::functions_run(&redis).await? - before;
    ensure!(parts >= u64::try_from(MESSAGES / PART)?, "{parts} parts");
    Ok(())
}

/// Removing waits that are over takes as long as following others.
#[tokio::test]
async fn a_check_counts_the_waits_that_are_over() -> Result<()> {
    const WAITS: u32 = 200;
    const LIFE: Duration = Duration::from_secs(2);
    let Shared {
        redis: _running,
        fixture,
        ..
    } = shared().await?;
    let wait = async |from: &str, to: &str| {
        let asked = message(from, to, "question").id;
        fixture.store.await_answer(&asked, None, LIFE).await
    };
    for waited in join_all((0..WAITS).map(|_| wait("a", "b"))).await {
        waited?;
    }
    sleep(LIFE).await;
    let looked_at = wait("x", "a").await?.waits;
    ensure!(looked_at > WAITS / 2, "{looked_at} waits");
    assert_eq!(wait("y", "a").await?.waits, 0);
    Ok(())
}
