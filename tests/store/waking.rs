//! Wakes: hints that follow the change that they announce, and that no listener misses.

use std::sync::Arc;

use anyhow::Result;
use c3po_shared::receipt::{Stage, Via};
use tokio::task::JoinSet;

use super::Fixture;
use super::fixture::{everything, id, message, send, woken};

pub(crate) async fn a_send_wakes_its_recipient(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    let mut wakes = fixture.store.wakes();
    fixture.say("a", "b", "hello").await?;
    woken(&mut wakes, "b").await
}

pub(crate) async fn an_answer_wakes_the_asker(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    let question = fixture.say("a", "b", "question").await?;
    let mut wakes = fixture.store.wakes();
    fixture.answer(&question, "reply").await?;
    woken(&mut wakes, "a").await?;
    assert_eq!(fixture.inbox("a").await?, ["reply"]);
    Ok(())
}

pub(crate) async fn a_receipt_wakes_the_sender(fixture: Fixture) -> Result<()> {
    let tenure = fixture.pair().await?;
    let sent = fixture.say("a", "b", "hello").await?;
    let mut wakes = fixture.store.wakes();
    fixture
        .advance(&sent, &tenure, Stage::OnHost, Via::Deliver)
        .await?;
    woken(&mut wakes, "a").await
}

pub(crate) async fn no_wake_is_lost_to_one_who_listened_before_the_send(
    fixture: Fixture,
) -> Result<()> {
    const TIMES: usize = 1_000;
    fixture.pair().await?;
    let mut senders = JoinSet::new();
    let mut position = 0;
    for n in 0..TIMES {
        // The order that every waiter must use: listen, read, wait.
        let mut wakes = fixture.store.wakes();
        let store = Arc::clone(&fixture.store);
        senders.spawn(async move { store.send(&send(message("a", "b", &n.to_string()))).await });
        // At most as many wakes are spurious as there are messages. A missing wake fails the test.
        for _ in 0..TIMES {
            let selection = c3po_coordinator::store::Selection {
                after: position,
                ..everything()
            };
            let found = fixture.store.inbox(&id("b"), selection).await?;
            if let Some(placed) = found.last() {
                position = placed.position;
                break;
            }
            woken(&mut wakes, "b").await?;
        }
    }
    senders
        .join_all()
        .await
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    assert_eq!(fixture.pending("b").await?, TIMES);
    Ok(())
}
