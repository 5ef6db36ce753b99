//! Calls that are made at the same time go to Redis in batches, and each has its own result.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use c3po_coordinator::store::{Actor, Ending, Send, SendOutcome, StoreError};
use c3po_shared::audit::{Entry, Event};
use c3po_shared::ids::MessageId;
use c3po_shared::receipt::Progress;
use c3po_shared::time::Timestamp;
use futures_util::future::{join, join_all};
use harness::breaker::Breaker;
use harness::eventually::eventually;
use harness::redis::Redis;
use tokio::time::{sleep, timeout};

use super::Fixture;
use super::fixture::{SOON, by, claim, id, message, news, seen_at_once, send};
use super::redis::{Shared, fixture_on, shared};

/// How many calls are made at the same time.
const AT_ONCE: usize = 64;

/// Returns how many functions Redis has run since its start.
pub(super) async fn functions_run(redis: &Redis) -> Result<u64> {
    let told = redis.tell(&["INFO", "commandstats"]).await?;
    let line = told
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_fcall:calls="));
    let calls = line.and_then(|line| line.split(',').next());
    Ok(calls.context("no function ran")?.parse()?)
}

/// Returns sends to these agents in turn.
fn to(agents: &[&str]) -> Vec<Send> {
    many(AT_ONCE, agents)
}

fn many(count: usize, agents: &[&str]) -> Vec<Send> {
    let agents = agents.iter().cycle().take(count);
    agents
        .map(|agent| send(message("a", agent, "question")))
        .collect()
}

async fn sent(fixture: &Fixture, calls: &[Send]) -> Vec<Result<SendOutcome, StoreError>> {
    join_all(calls.iter().map(|call| fixture.store.send(call))).await
}

#[tokio::test]
async fn they_are_few_batches_with_a_result_and_an_entry_for_each() -> Result<()> {
    let Shared { redis, fixture, .. } = shared().await?;
    fixture.store.keep_log(Some(1_000)).await?;
    let (ran, end) = (
        functions_run(&redis).await?,
        fixture.store.audit_end().await?,
    );
    let calls = to(&["b", "nobody"]);
    for is_first in [true, false] {
        let outcomes = sent(&fixture, &calls).await;
        for (call, outcome) in calls.iter().zip(outcomes) {
            let expected = match (call.message.to_agent == id("b"), is_first) {
                (false, _) => SendOutcome::NoSuchAgent,
                (true, true) => SendOutcome::Stored,
                (true, false) => SendOutcome::Repeated(Box::new(call.message.clone())),
            };
            assert_eq!(outcome?, expected);
        }
    }
    let ran = functions_run(&redis).await? - ran;
    assert!(ran <= AT_ONCE as u64 / 4, "{ran} batches");
    let logged = fixture.store.audit(end, AT_ONCE).await?;
    let mut logged: Vec<_> = logged
        .into_iter()
        .filter_map(|entry| entry.message_id)
        .collect();
    let mut stored: Vec<_> = calls.into_iter().map(|call| call.message.id).collect();
    stored.retain(|stored| stored.to() == id("b"));
    logged.sort();
    stored.sort();
    assert_eq!(logged, stored);
    Ok(())
}

#[tokio::test]
async fn one_that_fails_fails_alone() -> Result<()> {
    let Shared { redis, fixture, .. } = shared().await?;
    fixture.agent("c").await?;
    redis.tell(&["SET", "{c3po}:unshown:c", "text"]).await?;
    let calls = to(&["b", "c", "b"]);
    for (call, outcome) in calls.iter().zip(sent(&fixture, &calls).await) {
        if call.message.to_agent == id("b") {
            assert_eq!(outcome?, SendOutcome::Stored);
        } else {
            let refused = outcome.expect_err("its inbox is no list");
            assert!(matches!(refused, StoreError::Corrupt(_)), "{refused}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_full_redis_refuses_those_that_need_memory_alone() -> Result<()> {
    let Shared { redis, fixture, .. } = shared().await?;
    let shown = (0..AT_ONCE)
        .map(|_| send(news("a", "b", "news")))
        .collect::<Vec<_>>();
    for outcome in sent(&fixture, &shown).await {
        assert_eq!(outcome?, SendOutcome::Stored);
    }
    redis.tell(&["CONFIG", "SET", "maxmemory", "1"]).await?;
    let (calls, actor, reader) = (to(&["b"]), Actor::default(), id("b"));
    let acknowledging = shown.iter().map(async |send| {
        let ids = [send.message.id.clone()];
        fixture.store.acknowledge(&reader, &actor, &ids).await
    });
    let (outcomes, settled) = join(sent(&fixture, &calls), join_all(acknowledging)).await;
    for outcome in outcomes {
        assert!(matches!(outcome, Err(StoreError::Full(_))), "{outcome:?}");
    }
    for settled in settled {
        assert_eq!(settled?.acked.len(), 1);
    }
    Ok(())
}

/// If two batches at once were all, each with a few such calls, it would wait for up to 30 round trips.
#[tokio::test]
async fn a_send_to_a_distant_redis_waits_for_few_round_trips_behind_calls_about_several_messages()
-> Result<()> {
    const AWAY: Duration = Duration::from_millis(20);
    const OTHERS: usize = 60;
    let Shared { redis, .. } = shared().await?;
    let breaker = Breaker::before(redis.address()).await?;
    let fixture = fixture_on(format!("redis://{}", breaker.address()), ()).await?;
    breaker.delay(AWAY);
    let (reader, actor) = (id("b"), Actor::default());
    let timed = async || {
        let (call, began) = (send(message("a", "b", "question")), Instant::now());
        let outcome = fixture.store.send(&call).await?;
        assert_eq!(outcome, SendOutcome::Stored);
        anyhow::Ok(began.elapsed())
    };
    for count in [4, 16] {
        let unknown: Vec<_> = (0..count)
            .map(|_| message("a", "b", "never sent").id)
            .collect();
        let others = (0..OTHERS).map(|_| fixture.store.acknowledge(&reader, &actor, &unknown));
        let beside = async {
            sleep(AWAY / 2).await;
            timed().await
        };
        let (others, beside) = join(join_all(others), beside).await;
        let beside = beside?;
        assert!(others.iter().all(Result::is_ok), "{others:?}");
        assert!(beside < 10 * AWAY, "{count}: {beside:?}");
    }
    Ok(())
}

/// A call whose caller left while it waited for its turn would act for nobody.
#[tokio::test]
async fn one_that_was_given_up_before_its_turn_is_not_made() -> Result<()> {
    let Shared { redis, fixture, .. } = shared().await?;
    redis.pause()?;
    let calls = many(8 * AT_ONCE, &["b"]);
    let given_up = timeout(Duration::from_millis(300), sent(&fixture, &calls)).await;
    assert!(given_up.is_err(), "Redis stands still");
    redis.resume()?;
    eventually(
        "those that were sent to Redis are stored",
        SOON,
        async || (!fixture.inbox("b").await.ok()?.is_empty()).then_some(()),
    )
    .await?;
    sleep(Duration::from_millis(300)).await;
    // One that comes later goes after them.
    fixture.say("a", "b", "later").await?;
    let stored = fixture.inbox("b").await?.len();
    assert!(stored < 5 * AT_ONCE, "{stored} of {}", calls.len());
    Ok(())
}

/// Returns the entry without its time and position.
fn known(entry: Entry) -> Entry {
    Entry {
        position: 0,
        at: Timestamp::from_millis(0),
        ..entry
    }
}

/// Calls of `c` about news that it has, and the entries that they add to the log.
#[derive(Default)]
struct Planned {
    sends: Vec<Send>,
    settled: Vec<MessageId>,
    shown: Vec<Progress>,
    /// By a session that is outdated.
    refused: Vec<MessageId>,
    entries: Vec<Entry>,
}

impl Planned {
    fn about(news: Vec<MessageId>, actor: &Actor) -> Self {
        let mut planned = Self::default();
        for (number, id) in news.into_iter().enumerate() {
            let entry = |event| {
                let entry = Entry::new(event).by(&id.to()).under(actor.key.as_deref());
                known(entry.to(&id.from()).about_message(&id))
            };
            match number % 4 {
                0 => {
                    planned.entries.push(entry(Event::Acknowledged));
                    planned.settled.push(id);
                }
                1 => {
                    let report = seen_at_once(std::slice::from_ref(&id), 0);
                    let entries = report.stages().map(|(stage, via)| Entry {
                        stage: Some(stage),
                        via: Some(via),
                        ..entry(Event::Receipt)
                    });
                    planned.entries.extend(entries);
                    planned.shown.push(report);
                }
                2 => planned.refused.push(id),
                _ => planned.send(actor),
            }
        }
        planned
    }

    fn send(&mut self, actor: &Actor) {
        let next = Send {
            key: actor.key.clone(),
            login: Some("a \"login\"".into()),
            speaker: actor.speaker.clone(),
            ..send(message("c", "b", "question"))
        };
        let entry = Entry::new(Event::Accepted)
            .by(&id("c"))
            .under(next.key.as_deref())
            .to(&id("b"));
        self.entries.push(known(Entry {
            login: next.login.clone(),
            ..entry.about_message(&next.message.id).verb("message")
        }));
        self.sends.push(next);
    }
}

#[tokio::test]
async fn calls_of_all_kinds_change_and_log_what_they_do_alone() -> Result<()> {
    let Shared {
        redis: _redis,
        fixture,
        ..
    } = shared().await?;
    let store = &fixture.store;
    store.keep_log(Some(1_000)).await?;
    let outdated = fixture.agent("c").await?;
    store.release(&outdated, Ending::Goodbye).await?;
    let old = by(&outdated);
    let actor = by(&fixture.take(&claim("c")).await?);
    let (news, end, reader) = (arrived(&fixture).await?, store.audit_end().await?, id("c"));
    let planned = Planned::about(news, &actor);
    let settle = async |id: &MessageId, actor: &Actor| {
        let ids = std::slice::from_ref(id);
        store.acknowledge(&reader, actor, ids).await
    };
    let (settled, shown, refused, sent) = tokio::join!(
        join_all(planned.settled.iter().map(|id| settle(id, &actor))),
        join_all(
            planned
                .shown
                .iter()
                .map(|report| store.advance(&reader, &actor, report))
        ),
        join_all(planned.refused.iter().map(|id| settle(id, &old))),
        sent(&fixture, &planned.sends)
    );
    for one in 0..AT_ONCE / 4 {
        let refused = &refused[one];
        assert!(
            matches!(refused, Err(StoreError::TakenOver(_))),
            "{refused:?}"
        );
        assert!(matches!(&settled[one], Ok(settled) if settled.acked.len() == 1));
        assert!(matches!(&shown[one], Ok(stages) if stages.len() == 2));
        assert!(matches!(&sent[one], Ok(SendOutcome::Stored)));
    }
    // News that was seen is out, and so is all that was settled.
    assert_eq!(fixture.pending("c").await?, AT_ONCE / 2);
    let order = |entry: &Entry| (entry.message_id.clone(), entry.stage.map(|it| it.as_str()));
    let logged = store.audit(end, 2 * AT_ONCE).await?;
    let (mut logged, mut entries) = (
        logged.into_iter().map(known).collect::<Vec<_>>(),
        planned.entries,
    );
    logged.sort_by_key(order);
    entries.sort_by_key(order);
    assert_eq!(logged, entries);
    Ok(())
}

/// Sends news to `c`, and returns their ids.
async fn arrived(fixture: &Fixture) -> Result<Vec<MessageId>> {
    let mut ids = Vec::new();
    for _ in 0..AT_ONCE {
        ids.push(fixture.post(news("a", "c", "news")).await?.id);
    }
    Ok(ids)
}
