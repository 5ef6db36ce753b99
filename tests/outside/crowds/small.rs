//! Many links of one client send small frames, or wait for one long answer: other clients go on, and memory stays bounded.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use c3po_shared::ids::CallId;
use c3po_shared::limits::TEXT_MAX;
use futures_util::future::try_join_all;
use harness::coordinator::Coordinator;
use harness::link::Link;
use harness::vitals::Vitals;
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The links that send small frames, and the frames of each.
const FLOODING: usize = 24;
const FRAMES: usize = 3_000;
/// A frame that is refused without a reply.
const REFUSED: &str = r#"{"jsonrpc":"2.0","method":"none"}"#;
/// The links that wait for one answer, and the waits of each: far more text than there is room for.
const ASKING: usize = 8;
const WAITS: usize = 200;
/// Twice the room for unread answers of clients without a key, and far less than the waits get.
const GROWTH_MAX: u64 = 32 << 20;
/// The links that ask people without a pause, and the questions of each, which are as many as may be in flight.
const PEOPLE_ASKING: usize = 150;
const QUESTIONS: usize = 250;
/// More than the links and the waits of one client take, and less than the same calls if all begin at once.
const ASKED_GROWTH_MAX: u64 = 120 << 20;
/// How long the links do not read.
const UNREAD: Duration = Duration::from_secs(9);

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_small_frames_keeps_other_links_waiting_briefly() -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = Coordinator::start(work.path()).await?;
    let address = coordinator.address().to_string();
    let (mut good, _) = Link::join(&address, "good").await?;
    let names = (0..FLOODING).map(|number| format!("flood-{number}"));
    let joined = names.map(|name| {
        let address = &address;
        async move { Link::join(address, &name).await }
    });
    let links = try_join_all(joined).await?;
    let began = Instant::now();
    let mut floods = JoinSet::new();
    for (mut link, _) in links {
        floods.spawn(async move {
            for _ in 0..FRAMES {
                link.send_text(REFUSED).await?;
            }
            link.call("ping", json!({})).await
        });
    }
    let mut waited = Vec::new();
    while !floods.is_empty() {
        let began = Instant::now();
        good.call("ping", json!({})).await?;
        waited.push(began.elapsed());
        while let Some(ended) = floods.try_join_next() {
            ended??;
        }
    }
    let all = began.elapsed();
    waited.sort_unstable();
    let longest = waited.last().context("no ping ended beside the flood")?;
    ensure!(
        waited.len() > 20 && *longest < all / 4,
        "{} pings beside {all:?}, the longest {longest:?}",
        waited.len()
    );
    Ok(())
}

#[tokio::test]
async fn waits_for_one_answer_that_end_together_take_little_memory() -> Result<()> {
    let work = TempDir::new()?;
    let mut coordinator = Coordinator::start(work.path()).await?;
    let (process, address) = (
        coordinator.process()?.id()?,
        coordinator.address().to_string(),
    );
    let mut asking = Vec::new();
    for number in 0..ASKING {
        let (mut link, _) = Link::join(&address, &format!("asker-{number}")).await?;
        let asked = link
            .call("ask_user", json!({"question": "which?", "wait": false}))
            .await?;
        let question = asked["id"].as_str().context("no id")?.to_owned();
        for _ in 0..WAITS {
            let waiting = json!({"question_id": question, "timeout": 600});
            link.begin(CallId::fresh(), "ask_user", waiting).await?;
        }
        link.call("ping", json!({})).await?;
        asking.push((link, question));
    }
    let before = Vitals::of(process)?.resident;
    let text = "\u{1f4e2}".repeat(TEXT_MAX);
    for (link, question) in &mut asking {
        let answer = json!({"message_id": question, "part": {"id": "1", "text": text}});
        link.begin(CallId::fresh(), "answer_in_dialog", answer)
            .await?;
    }
    let (began, mut grown) = (Instant::now(), 0);
    while began.elapsed() < UNREAD {
        grown = Vitals::of(process)?
            .resident
            .saturating_sub(before)
            .max(grown);
        sleep(Duration::from_millis(50)).await;
    }
    ensure!(grown < GROWTH_MAX, "it grew by {} kB", grown >> 10);
    Ok(())
}

#[tokio::test]
async fn a_flood_of_questions_to_people_takes_little_memory() -> Result<()> {
    let work = TempDir::new()?;
    let mut coordinator = Coordinator::start(work.path()).await?;
    let (process, address) = (
        coordinator.process()?.id()?,
        coordinator.address().to_string(),
    );
    let names = (0..PEOPLE_ASKING).map(|number| format!("asking-{number}"));
    let joined = names.map(async |name| Link::join(&address, &name).await);
    let mut links = try_join_all(joined).await?;
    let before = Vitals::of(process)?.resident;
    for (link, _) in &mut links {
        for id in 0..QUESTIONS {
            let question = json!({"jsonrpc": "2.0", "id": id, "method": "call", "params": {
                "call_id": CallId::fresh(), "tool": "ask_user", "arguments": {"question": "?", "wait": false},
            }});
            link.send_text(&question.to_string()).await?;
        }
    }
    let (began, mut most) = (Instant::now(), 0);
    while began.elapsed() < UNREAD / 3 {
        most = most.max(Vitals::of(process)?.resident.saturating_sub(before));
        sleep(Duration::from_millis(20)).await;
    }
    ensure!(most < ASKED_GROWTH_MAX, "it grew by {} kB", most >> 10);
    Ok(())
}
