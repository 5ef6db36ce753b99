//! Acknowledgements: they remove a message once and for good, and only the agent's own.

use anyhow::Result;
use c3po_coordinator::store::{Actor, Ending, Settled, StoreError};

use super::Fixture;
use super::fixture::{by, claim, id, message};

pub(crate) async fn acknowledged_is_out_of_the_inbox_and_stays_acknowledged(
    fixture: Fixture,
) -> Result<()> {
    let tenure = fixture.pair().await?;
    let first = fixture.say("a", "b", "first").await?;
    fixture.say("a", "b", "second").await?;
    for _ in 0..2 {
        let settled = fixture
            .store
            .acknowledge(&id("b"), &by(&tenure), std::slice::from_ref(&first.id))
            .await?;
        assert_eq!(
            settled,
            Settled {
                acked: vec![first.id.clone()],
                unknown: vec![]
            }
        );
        assert_eq!(fixture.inbox("b").await?, ["second"]);
        assert_eq!(fixture.unshown("b").await?, ["second"]);
        assert_eq!(fixture.pending("b").await?, 1);
    }
    assert!(
        fixture.store.message(&first.id).await?.is_some(),
        "the archive keeps it"
    );
    Ok(())
}

pub(crate) async fn unknown_and_others_mail_is_not_acknowledged(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    let to_b = fixture.say("a", "b", "for b").await?;
    let to_a = fixture.say("b", "a", "for a").await?;
    let never = message("a", "b", "never sent");
    let ids = [never.id.clone(), to_b.id.clone(), to_a.id.clone()];
    let settled = fixture
        .store
        .acknowledge(&id("b"), &Actor::default(), &ids)
        .await?;
    assert_eq!(
        settled,
        Settled {
            acked: vec![to_b.id],
            unknown: vec![never.id, to_a.id]
        }
    );
    assert_eq!(
        (fixture.pending("a").await?, fixture.pending("b").await?),
        (1, 0)
    );
    Ok(())
}

pub(crate) async fn an_outdated_session_acknowledges_nothing(fixture: Fixture) -> Result<()> {
    let old = fixture.pair().await?;
    let sent = fixture.say("a", "b", "hello").await?;
    fixture.store.release(&old, Ending::Goodbye).await?;
    fixture.take(&claim("b")).await?;
    let refused = fixture
        .store
        .acknowledge(&id("b"), &by(&old), std::slice::from_ref(&sent.id))
        .await;
    assert!(matches!(refused, Err(StoreError::TakenOver(agent)) if agent == id("b")));
    assert_eq!(fixture.inbox("b").await?, ["hello"]);
    Ok(())
}
