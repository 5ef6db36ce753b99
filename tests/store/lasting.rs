//! Durability: everything survives closing and reopening; live data survives sweeps.

use std::time::Duration;

use anyhow::Result;
use c3po_coordinator::store::{Actor, AnswerOutcome, Send, SendOutcome, StoreError};
use c3po_shared::limits::ARCHIVE_LIFE;
use c3po_shared::message::Message;
use c3po_shared::receipt::{Stage, Via};
use c3po_shared::time::Timestamp;
use harness::eventually::eventually;
use harness::redis::Redis;

use super::Fixture;
use super::fixture::{LEASE, SOON, brief, everything, id, message, news, reply, send};
use super::redis::fixture_on;

/// Returns a message older than the archive period; it may not have expired yet.
fn ancient(message: Message) -> Message {
    let past = Timestamp::now().millis()
        - u64::try_from(ARCHIVE_LIFE.as_millis()).expect("a week fits")
        - 60_000;
    Message {
        timestamp: Timestamp::from_millis(past),
        ..message
    }
}

pub(crate) async fn everything_survives_closing_and_opening(mut fixture: Fixture) -> Result<()> {
    let tenure = fixture.pair().await?;
    let first = send(message("a", "b", "first"));
    fixture.store.send(&first).await?;
    let question = fixture.say("a", "b", "question").await?;
    let answer = send(reply(&question, "reply"));
    fixture.store.answer(&answer).await?;
    fixture
        .advance(&first.message, &tenure, Stage::InSession, Via::GetMessages)
        .await?;

    let inbox = fixture.store.inbox(&id("b"), everything()).await?;
    let history = fixture.store.message(&question.id).await?;
    let agent = fixture.store.agent(&id("b")).await?;
    fixture.reopen().await?;
    assert_eq!(fixture.store.inbox(&id("b"), everything()).await?, inbox);
    assert_eq!(fixture.store.message(&question.id).await?, history);
    assert_eq!(fixture.store.agent(&id("b")).await?, agent);
    assert!(fixture.unshown("b").await?.is_empty());
    assert_eq!(fixture.inbox("a").await?, ["reply"]);
    assert!(fixture.store.renew(&tenure, LEASE).await?);

    // Calls are still known too, and positions continue.
    assert_eq!(
        fixture.store.send(&first).await?,
        SendOutcome::Repeated(Box::new(first.message))
    );
    let repeated = SendOutcome::Repeated(Box::new(answer.message.clone()));
    assert_eq!(
        fixture.store.answer(&answer).await?,
        AnswerOutcome::Sent(repeated)
    );
    let late = Send {
        message: reply(&question, "late"),
        ..send(answer.message.clone())
    };
    assert_eq!(
        fixture.store.answer(&late).await?,
        AnswerOutcome::AlreadyAnswered(answer.message.id)
    );
    fixture.say("a", "b", "last").await?;
    let after = fixture.store.inbox(&id("b"), everything()).await?;
    assert!(after[1].position > inbox[0].position);
    Ok(())
}

pub(crate) async fn a_sweep_keeps_what_is_live(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    let live = fixture.say("a", "b", "live").await?;
    let old_but_live = fixture
        .post(ancient(message("a", "b", "old but live")))
        .await?;
    let settled = fixture.post(ancient(message("a", "b", "settled"))).await?;
    fixture.acknowledge(&settled).await?;
    for _ in 0..2 {
        fixture.store.sweep().await?;
        fixture.do_duties("b").await?;
        assert_eq!(fixture.inbox("b").await?, ["live", "old but live"]);
        assert_eq!(fixture.unshown("b").await?, ["live", "old but live"]);
        for message in [&live, &old_but_live, &settled] {
            assert_eq!(fixture.stages(&message.id).await?, [Stage::Stored]);
        }
        assert_eq!(fixture.store.agents(None, 10).await?.len(), 2);
    }
    Ok(())
}

pub(crate) async fn a_sweep_removes_what_was_settled_long_enough_ago(
    fixture: Fixture,
) -> Result<()> {
    fixture.pair().await?;
    let mut old = Vec::new();
    for n in 0..20 {
        let sent = fixture
            .post_for_once(message("a", "b", &n.to_string()))
            .await?;
        fixture.acknowledge(&sent).await?;
        old.push(sent);
    }
    let young = fixture.say("a", "b", "young").await?;
    fixture.acknowledge(&young).await?;
    let swept = async || {
        fixture.store.sweep().await.ok()?;
        for sent in &old {
            if fixture.store.message(&sent.id).await.ok()?.is_some() {
                return None;
            }
        }
        Some(())
    };
    eventually("what is kept no longer is gone", SOON, swept).await?;
    assert!(fixture.store.message(&young.id).await?.is_some());
    assert_eq!(fixture.thread(&old[0].id, "a").await?, []);
    let settled = fixture
        .store
        .acknowledge(
            &id("b"),
            &Actor::default(),
            std::slice::from_ref(&old[0].id),
        )
        .await?;
    assert_eq!(settled.unknown, [old[0].id.clone()], "it is no longer kept");
    Ok(())
}

pub(crate) async fn a_sweep_changes_nothing_that_can_be_read(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    let expired = fixture.post(brief("a", "b", "expired")).await?;
    let question = fixture.say("a", "b", "question").await?;
    fixture.answer(&question, "reply").await?;
    fixture.post(news("a", "b", "news")).await?;
    let out = async || (fixture.pending("b").await.ok()? == 1).then_some(());
    eventually("the message's time is over", SOON, out).await?;

    let read = async || -> Result<_> {
        let mut kept = Vec::new();
        for message in [&expired, &question] {
            kept.push(fixture.store.message(&message.id).await?);
        }
        let thread = fixture.thread(&question.id, "a").await?;
        let pending = fixture.store.pending(&id("b")).await?;
        Ok((
            kept,
            thread,
            pending,
            fixture.inbox("a").await?,
            fixture.inbox("b").await?,
        ))
    };
    let before = read().await?;
    fixture.store.sweep().await?;
    fixture.do_duties("b").await?;
    assert_eq!(read().await?, before);
    assert_eq!(
        fixture.stages(&expired.id).await?,
        [Stage::Stored, Stage::Expired]
    );
    Ok(())
}

pub(crate) async fn a_closed_store_says_that_it_is_unavailable(fixture: Fixture) -> Result<()> {
    fixture.store.check().await?;
    fixture.store.close().await;
    let ended = tokio::time::timeout(Duration::from_secs(10), fixture.store.check()).await?;
    assert!(matches!(ended, Err(StoreError::Unavailable(_))));
    fixture.store.close().await;
    Ok(())
}

#[tokio::test]
async fn redis_keeps_a_message_for_its_own_time_after_it_was_settled() -> Result<()> {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let redis = Redis::start().await?;
    let fixture = fixture_on(redis.url(), ()).await?;
    fixture.pair().await?;
    let left = async |key: String| -> Result<u64> {
        let told = redis.tell(&["PTTL", &key]).await?;
        let number = told.trim().trim_start_matches(':');
        Ok(number
            .parse::<u64>()
            .map_err(|error| anyhow::anyhow!("'{told}': {error}"))?
            .div_ceil(86_400_000))
    };
    // The second is stored as by an earlier build: a lifetime of one day, and kept until a week after it was accepted.
    let (plain, earlier) = (message("a", "b", "plain"), message("a", "b", "earlier"));
    let earlier = Message {
        expires_at: earlier.timestamp + DAY,
        ..earlier
    };
    for (message, kept, open, settled) in [(&plain, 7 * DAY, 14, 7), (&earlier, 6 * DAY, 7, 6)] {
        fixture
            .store
            .send(&Send {
                kept,
                ..send(message.clone())
            })
            .await?;
        let key = format!(
            "{{c3po}}:m:b:{}",
            &message.id.as_str()[message.id.as_str().len() - 8..]
        );
        assert_eq!(left(key.clone()).await?, open, "{}", message.text());
        for _ in 0..2 {
            fixture.acknowledge(message).await?;
            assert_eq!(left(key.clone()).await?, settled, "{}", message.text());
        }
    }

    // A message with a shorter retention does not shorten that of its thread.
    let thread = format!("{{c3po}}:t:{}", plain.id);
    for (number, (kept, expected)) in [(7 * DAY, 14), (DAY, 14), (20 * DAY, 27)]
        .into_iter()
        .enumerate()
    {
        let further = Message {
            thread_id: plain.id.clone(),
            ..message("a", "b", &number.to_string())
        };
        fixture
            .store
            .send(&Send {
                kept,
                ..send(further)
            })
            .await?;
        assert_eq!(left(thread.clone()).await?, expected, "{number}");
    }
    Ok(())
}
