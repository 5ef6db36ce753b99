//! The guard against loops: a person's rulings about pairs of agents.

use anyhow::Result;
use c3po_coordinator::store::{Pair, Ruling};

use super::Fixture;
use super::fixture::id;

/// Returns the rulings, sorted by pair.
async fn rulings(fixture: &Fixture) -> Result<Vec<Ruling>> {
    let mut rulings = fixture.store.rulings().await?;
    rulings.sort_by(|a, b| a.pair.cmp(&b.pair));
    Ok(rulings)
}

pub(crate) async fn a_ruling_takes_the_place_of_the_one_before_it(fixture: Fixture) -> Result<()> {
    assert_eq!(rulings(&fixture).await?, []);
    let (first, second) = (Pair::of(&id("a"), &id("b")), Pair::of(&id("c"), &id("a")));
    let stopped = fixture.store.rule(&first, true, None).await?;
    let allowed = fixture.store.rule(&second, false, None).await?;
    let ruling = |pair: &Pair, is_stopped, at| Ruling {
        pair: pair.clone(),
        is_stopped,
        at,
    };
    let expected = [
        ruling(&first, true, stopped),
        ruling(&second, false, allowed),
    ];
    assert_eq!(rulings(&fixture).await?, expected);

    let other_way = Pair::of(&id("b"), &id("a"));
    let allowed_too = fixture.store.rule(&other_way, false, None).await?;
    assert!(allowed_too >= stopped);
    assert_eq!(
        rulings(&fixture).await?[0],
        ruling(&first, false, allowed_too)
    );
    Ok(())
}

pub(crate) async fn rulings_survive_closing_and_opening(mut fixture: Fixture) -> Result<()> {
    fixture
        .store
        .rule(&Pair::of(&id("a"), &id("b")), true, None)
        .await?;
    let before = rulings(&fixture).await?;
    fixture.reopen().await?;
    assert_eq!(rulings(&fixture).await?, before);
    assert_eq!(before.len(), 1);
    Ok(())
}
