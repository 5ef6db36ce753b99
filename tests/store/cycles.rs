//! Waits for answers: a wait that would close a cycle is detected, and is not recorded.

use std::time::Duration;

use anyhow::Result;
use c3po_shared::ids::MessageId;
use harness::eventually::eventually;

use super::Fixture;
use super::fixture::{SHORT, SOON, message};

const LONG: Duration = Duration::from_secs(60);

/// Returns the id of a message between these agents: the store uses only the names in it.
fn asked(from: &str, to: &str) -> MessageId {
    message(from, to, "question").id
}

/// Records a wait, and returns the cycle that it would close.
async fn cycle(fixture: &Fixture, id: &MessageId, lease: Duration) -> Result<Vec<MessageId>> {
    Ok(fixture.store.await_answer(id, None, lease).await?.cycle)
}

pub(crate) async fn a_wait_that_would_close_a_cycle_is_found(fixture: Fixture) -> Result<()> {
    let waits = async |id: &MessageId| cycle(&fixture, id, LONG).await;
    let ids =
        ["a b", "b c", "c d"].map(|pair| pair.split_once(' ').map(|(from, to)| asked(from, to)));
    for id in ids.iter().flatten() {
        assert!(waits(id).await?.is_empty(), "{id}");
    }
    let path: Vec<_> = ids.iter().flatten().cloned().collect();
    // The same wait again, and another one from the same agent, close no cycle. A wait that leads back does, even when
    // repeated.
    assert!(waits(&path[0]).await?.is_empty() && waits(&asked("a", "d")).await?.is_empty());
    for _ in 0..2 {
        assert_eq!(waits(&asked("d", "b")).await?, path[1..]);
        assert_eq!(waits(&asked("b", "a")).await?, path[..1]);
    }
    assert_eq!(waits(&asked("c", "a")).await?, path[..2]);
    assert!(waits(&asked("d", "e")).await?.is_empty());
    Ok(())
}

pub(crate) async fn an_answer_or_its_time_ends_a_wait(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    let question = fixture.say("a", "b", "question").await?;
    let back = asked("b", "a");
    assert!(cycle(&fixture, &question.id, LONG).await?.is_empty());
    assert_eq!(
        cycle(&fixture, &back, LONG).await?,
        std::slice::from_ref(&question.id)
    );
    fixture.answer(&question, "answer").await?;
    assert!(
        cycle(&fixture, &back, Duration::from_millis(200))
            .await?
            .is_empty()
    );
    let again = asked("a", "b");
    eventually("the wait is over", SOON, async || {
        cycle(&fixture, &again, LONG)
            .await
            .ok()?
            .is_empty()
            .then_some(())
    })
    .await?;
    Ok(())
}

pub(crate) async fn a_wait_for_an_answered_or_expired_message_is_not_recorded(
    fixture: Fixture,
) -> Result<()> {
    fixture.pair().await?;
    // A lease of zero counts for nobody.
    let back = asked("b", "a");
    let back = async || {
        let cycle = cycle(&fixture, &back, Duration::ZERO).await?;
        anyhow::Ok(cycle.is_empty())
    };
    let waits = async |id: &MessageId| cycle(&fixture, id, LONG).await;
    // The waiter looked before the answer, and is recorded after it.
    let question = fixture.say("a", "b", "question").await?;
    fixture.answer(&question, "answer").await?;
    assert!(waits(&question.id).await?.is_empty() && back().await?);

    let mut brief = message("a", "b", "another question");
    brief.expires_at = brief.timestamp + SHORT;
    let brief = fixture.post(brief).await?.id;
    assert!(waits(&brief).await?.is_empty());
    eventually("the question has expired", SOON, async || {
        back().await.ok()?.then_some(())
    })
    .await?;
    assert!(waits(&brief).await?.is_empty() && back().await?);
    Ok(())
}

pub(crate) async fn an_answer_at_the_same_time_ends_a_wait(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    let back = asked("b", "a");
    for _ in 0..200 {
        let question = fixture.say("a", "b", "question").await?;
        let waits = fixture.store.await_answer(&question.id, None, LONG);
        let (answered, waited) = tokio::join!(fixture.answer(&question, "answer"), waits);
        answered?;
        waited?;
        let cycle = cycle(&fixture, &back, Duration::ZERO).await?;
        assert!(cycle.is_empty());
    }
    Ok(())
}

/// A check is short however many agents wait for each other, and allows a wait that it cannot decide.
pub(crate) async fn a_check_follows_a_bounded_number_of_waits(fixture: Fixture) -> Result<()> {
    for number in 0..1_100 {
        let id = asked(&format!("n{number}"), &format!("n{}", number + 1));
        assert!(cycle(&fixture, &id, LONG).await?.is_empty());
    }
    let back = asked("n1100", "n0");
    assert!(cycle(&fixture, &back, LONG).await?.is_empty());
    let short = asked("n1100", "n1099");
    assert_eq!(cycle(&fixture, &short, LONG).await?.len(), 1);
    // Its caller pays for each wait that was looked at.
    let looked_at = async |id: MessageId| {
        let looked = fixture.store.await_answer(&id, None, LONG).await;
        looked.map(|looked| looked.waits)
    };
    let waits = looked_at(asked("x", "n0")).await?;
    assert!((100..=1_024).contains(&waits), "{waits}");
    for (id, waits) in [("p", "q"), ("o", "p"), ("n", "o")].into_iter().zip(0..) {
        assert_eq!(looked_at(asked(id.0, id.1)).await?, waits);
    }
    Ok(())
}

/// A chain of waiting agents, each of which is followed.
pub(crate) async fn a_long_row_of_waits_is_no_cycle(fixture: Fixture) -> Result<()> {
    for number in 0..100 {
        let id = asked(&format!("n{number}"), &format!("n{}", number + 1));
        assert!(cycle(&fixture, &id, LONG).await?.is_empty());
    }
    assert_eq!(
        cycle(&fixture, &asked("n100", "n0"), LONG).await?.len(),
        100
    );
    Ok(())
}
