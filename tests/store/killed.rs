//! Duties of coordinators that are killed: each is done, and only those whose claim ran out are done twice.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use c3po_coordinator::config::Fleet;
use c3po_coordinator::store::sqlite::SqliteStore;
use c3po_coordinator::store::{Due, Quota, SendOutcome, Store};
use c3po_shared::ids::MessageId;
use c3po_shared::message::Message;
use c3po_shared::receipt::Stage;
use c3po_shared::time::Timestamp;
use futures_util::future::try_join_all;
use harness::coordinator::Coordinator;
use harness::eventually::eventually;
use harness::http;
use harness::redis::Redis;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::fixture::{id, message, send};
use super::redis;

/// How many duties are due at the same time.
const DUTIES: usize = 1_000;
/// The duties that a coordinator claims at once: the most that it leaves behind.
const AT_ONCE: usize = 32;
/// The length of a claim, in seconds.
const CLAIM: f64 = 30.0;
/// How long a claim may take on a busy machine: its lease begins with its start, and Redis reports its end.
const CALL: f64 = 0.1;
/// The time limit of any step, besides the claims of the dead coordinator.
const SOON: Duration = Duration::from_secs(60);
/// From the first message to the time at which all of them expire.
const PREPARATION: Duration = Duration::from_secs(15);
/// How many of them are sent at the same time.
const ABREAST: usize = 100;
/// The agent that sends them.
const SENDER: &str = "sender";

/// Puts a message into the inboxes of as many agents. All of them expire at the same time.
async fn prepare(store: &impl Store) -> Result<Vec<MessageId>> {
    let quota = Quota::default();
    let names: Vec<_> = (0..DUTIES).map(|number| format!("n{number}")).collect();
    store.introduce(&id(SENDER), None, &quota).await?;
    for names in names.chunks(ABREAST) {
        let names: Vec<_> = names.iter().map(|name| id(name)).collect();
        try_join_all(names.iter().map(|name| store.introduce(name, None, &quota))).await?;
    }
    let end = Timestamp::now() + PREPARATION;
    let messages = names.iter().map(|name| Message {
        expires_at: end,
        ..message(SENDER, name, "hello")
    });
    let sends: Vec<_> = messages.map(send).collect();
    for sends in sends.chunks(ABREAST) {
        let outcomes = try_join_all(sends.iter().map(|send| store.send(send))).await?;
        ensure!(
            outcomes
                .iter()
                .all(|outcome| *outcome == SendOutcome::Stored)
        );
    }
    ensure!(Timestamp::now() < end, "this machine is too slow");
    Ok(sends.into_iter().map(|send| send.message.id).collect())
}

/// Checks that every message expired once, and that no duty is left.
async fn check_all_done(store: &impl Store, sent: &[MessageId]) -> Result<()> {
    for message in sent {
        let kept = store.message(message).await?.context("it is kept")?;
        let stages: Vec<_> = kept.history.iter().map(|step| step.stage).collect();
        ensure!(
            stages == [Stage::Stored, Stage::Expired],
            "{message}: {stages:?}"
        );
    }
    let due = store.claim_due(10, Duration::ZERO).await?;
    ensure!(due == Due::default(), "{due:?}");
    Ok(())
}

/// Returns the sum of the samples of a metric whose labels contain this text.
async fn metric(coordinator: &Coordinator, name: &str, label: &str) -> Result<usize> {
    let page = http::get(coordinator.address(), "/metrics").await?.body;
    let samples = page
        .lines()
        .filter(|line| line.starts_with(name) && line.contains(label))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
    Ok(samples.sum())
}

/// A claim of a duty, the work on it, or the end of its claim, as Redis did it.
#[derive(Debug)]
struct Act {
    /// When, in seconds.
    at: f64,
    /// The address of the coordinator's connection.
    client: String,
}

/// Everything that happened to one duty.
#[derive(Debug, Default)]
struct Life {
    claims: Vec<Act>,
    works: Vec<Act>,
    ends: Vec<Act>,
}

/// The commands that Redis ran for duties, by the name of their agent.
struct Monitor {
    stream: TcpStream,
    unread: Vec<u8>,
    client: String,
    lives: BTreeMap<String, Life>,
}

impl Monitor {
    async fn start(redis: &Redis) -> Result<Self> {
        let mut stream = TcpStream::connect(redis.address()).await?;
        stream.write_all(b"MONITOR\r\n").await?;
        stream.read_exact(&mut [0; 5]).await?;
        Ok(Self {
            stream,
            unread: Vec::new(),
            client: String::new(),
            lives: BTreeMap::new(),
        })
    }

    /// Reads until that many duties have been worked on, or have ended.
    async fn until(&mut self, count: impl Fn(&Life) -> bool, most: usize) -> Result<()> {
        let end = Instant::now() + SOON + Duration::from_secs_f64(CLAIM);
        while self.lives.values().filter(|life| count(life)).count() < most {
            let left = end - Instant::now();
            let read = timeout(left, self.stream.read_buf(&mut self.unread)).await??;
            ensure!(read > 0, "Redis closed the connection");
            while let Some(length) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=length).collect();
                self.note(&String::from_utf8_lossy(&line))?;
            }
        }
        Ok(())
    }

    fn note(&mut self, line: &str) -> Result<()> {
        let words: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
        let mut head = line.trim_start_matches('+').split([' ', ']']);
        let at: f64 = head.next().context("the time")?.parse()?;
        let client = head.nth(1).unwrap_or_default();
        if words.first() == Some(&"FCALL") {
            self.client = client.to_owned();
        }
        let act = Act {
            at,
            client: self.client.clone(),
        };
        // The function itself records the claims and removes what is done.
        let (agent, acts): (_, fn(&mut Life) -> &mut Vec<Act>) = match words[..] {
            ["HSET", key, duty, _] if client == "lua" && key.ends_with(":duty_claims") => {
                (duty, |life| &mut life.claims)
            }
            ["ZREM", key, duty] if client == "lua" && key.ends_with(":duties") => {
                (duty, |life| &mut life.ends)
            }
            ["FCALL", function, _, _, agent, ..] if function.ends_with("_expire") => {
                (agent, |life| &mut life.works)
            }
            _ => return Ok(()),
        };
        let agent = agent.rsplit([':', ' ']).next().unwrap_or_default();
        acts(self.lives.entry(agent.to_owned()).or_default()).push(act);
        Ok(())
    }
}

/// Checks the life of one duty. Returns whether it was claimed twice, and whether it was done twice.
fn check_life(agent: &str, life: &Life) -> Result<(bool, bool)> {
    let Life {
        claims,
        works,
        ends,
    } = life;
    ensure!(!works.is_empty() && ends.len() == 1, "{agent}: {life:?}");
    ensure!(
        works.len() <= claims.len() && claims.len() <= 2,
        "{agent}: {life:?}"
    );
    let [first, rest @ ..] = &claims[..] else {
        anyhow::bail!("{agent} was never claimed")
    };
    for taken_over in rest {
        let held = taken_over.at - first.at;
        ensure!(
            held >= CLAIM - CALL,
            "{agent} was taken over after {held} s: {life:?}"
        );
        ensure!(taken_over.client != first.client, "{agent}: {life:?}");
    }
    Ok((claims.len() == 2, works.len() == 2))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_coordinators_duties_are_done_by_the_other_one() -> Result<()> {
    let (work, server) = (TempDir::new()?, Redis::start().await?);
    let mut both = Vec::new();
    for name in ["one", "other"] {
        let folder = work.path().join(name);
        std::fs::create_dir(&folder)?;
        both.push(Coordinator::start_on(&folder, &server.url()).await?);
    }
    let [mut one, other]: [Coordinator; 2] = both.try_into().ok().context("two")?;
    let store = redis::open(&server.url()).await?;
    let sent = prepare(&store).await?;

    let mut monitor = Monitor::start(&server).await?;
    monitor
        .until(|life| !life.works.is_empty(), DUTIES / 5)
        .await?;
    one.kill().await?;
    let killed = monitor
        .lives
        .values()
        .filter(|life| !life.ends.is_empty())
        .count();
    ensure!(killed < DUTIES, "it was killed too late");
    monitor.until(|life| !life.ends.is_empty(), DUTIES).await?;

    check_all_done(&store, &sent).await?;
    let (mut taken_over, mut twice) = (0, 0);
    for (agent, life) in &monitor.lives {
        let (was_taken_over, was_done_twice) = check_life(agent, life)?;
        taken_over += usize::from(was_taken_over);
        twice += usize::from(was_done_twice);
    }
    eprintln!(
        "{DUTIES} duties, {killed} done at the kill, {taken_over} taken over, {twice} done twice"
    );
    assert_eq!(monitor.lives.len(), DUTIES);
    assert!(twice <= taken_over && taken_over <= AT_ONCE, "{taken_over}");
    eventually("the other one counts its duties", SOON, async || {
        let counted = metric(&other, "c3po_duties_taken_over_total", "expire")
            .await
            .ok()?;
        (counted == taken_over).then_some(())
    })
    .await?;
    assert_eq!(metric(&other, "c3po_duties_total", "failed").await?, 0);
    assert_eq!(metric(&other, "c3po_duties_late_seconds", "").await?, 0);
    Ok(())
}

async fn open(path: &Path) -> Result<SqliteStore> {
    Ok(SqliteStore::open(path, &Fleet::default()).await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_coordinators_duties_are_done_after_its_restart() -> Result<()> {
    let work = TempDir::new()?;
    let path = work.path().join("c3po.db");
    let store = open(&path).await?;
    let sent = prepare(&store).await?;
    store.close().await;
    drop(store);
    let mut coordinator = Coordinator::start(work.path()).await?;
    let done = eventually("some are done", SOON, async || {
        let done = metric(&coordinator, "c3po_duties_total", "done")
            .await
            .ok()?;
        (done > DUTIES / 10).then_some(done)
    })
    .await?;
    coordinator.kill().await?;
    ensure!(done < DUTIES, "it was killed too late");
    let killed = Instant::now();

    coordinator.restart().await?;
    // So long after the end of its claims that one that is not taken over counts as late.
    let claims_are_over = killed + Duration::from_secs_f64(CLAIM) + Duration::from_secs(5);
    let patience = Duration::from_secs_f64(CLAIM) + SOON;
    eventually("nothing is late", patience, async || {
        let late = metric(&coordinator, "c3po_duties_late_seconds", "")
            .await
            .ok()?;
        (late == 0 && Instant::now() > claims_are_over).then_some(())
    })
    .await?;
    let after = metric(&coordinator, "c3po_duties_total", "").await?;
    let taken_over = metric(&coordinator, "c3po_duties_taken_over_total", "expire").await?;
    eprintln!(
        "{DUTIES} duties, at least {done} done at the kill, {after} after it, {taken_over} taken over"
    );
    assert!(taken_over <= AT_ONCE && after <= DUTIES - done + taken_over);
    ensure!(coordinator.stop().await?.success(), "it drains");
    check_all_done(&open(&path).await?, &sent).await
}
