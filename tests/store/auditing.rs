//! The audit log: in order, bounded and correct.

use anyhow::Result;
use c3po_shared::audit::{Entry, Event};
use c3po_shared::receipt::{Stage, Via};
use futures_util::future::try_join_all;

use super::Fixture;
use super::fixture::{id, progress};

/// A limit that these tests do not reach.
const PLENTY: u64 = 100_000;

/// Returns entries of that agent, distinguished by their verbs.
fn entries(agent: &str, verbs: impl IntoIterator<Item = u64>) -> Vec<Entry> {
    verbs
        .into_iter()
        .map(|n| {
            Entry::new(Event::Accepted)
                .by(&id(agent))
                .verb(n.to_string())
        })
        .collect()
}

/// Reads all entries after that position, page by page.
async fn read(fixture: &Fixture, mut after: u64, limit: usize) -> Result<Vec<Entry>> {
    let mut all = Vec::new();
    loop {
        let page = fixture.store.audit(after, limit).await?;
        let Some(last) = page.last() else {
            return Ok(all);
        };
        after = last.position;
        all.extend(page);
    }
}

fn verbs(entries: &[Entry]) -> Vec<&str> {
    entries
        .iter()
        .filter_map(|entry| entry.verb.as_deref())
        .collect()
}

pub(crate) async fn the_audit_is_read_in_the_order_in_which_it_was_written(
    fixture: Fixture,
) -> Result<()> {
    assert!(read(&fixture, 0, 10).await?.is_empty());
    assert_eq!(fixture.store.audit_end().await?, 0);
    let gap = Entry {
        count: Some(4),
        ..Entry::new(Event::Gap)
    };
    let receipt = Entry {
        message_id: Some("a::b::00000001".parse()?),
        stage: Some(Stage::Seen),
        via: Some(Via::Hook),
        key: Some("k1".into()),
        ..Entry::new(Event::Receipt)
            .by(&id("b"))
            .to(&id("a"))
            .because("äöü \" \\ \u{1F916}")
    };
    let written = [entries("a", 0..3), vec![gap, receipt]].concat();
    fixture.store.note(&written[..2], PLENTY).await?;
    fixture.store.note(&[], PLENTY).await?;
    fixture.store.note(&written[2..], PLENTY).await?;
    let found = read(&fixture, 0, 2).await?;
    assert_eq!(
        found.iter().map(|entry| entry.position).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5]
    );
    assert_eq!(fixture.store.audit_end().await?, 5);
    let unplaced: Vec<_> = found
        .iter()
        .cloned()
        .map(|entry| Entry {
            position: 0,
            ..entry
        })
        .collect();
    assert_eq!(unplaced, written);
    assert_eq!(
        read(&fixture, 1, 10).await?,
        found[1..],
        "from the middle of a batch"
    );
    assert!(
        read(&fixture, 5, 10).await?.is_empty() && read(&fixture, u64::MAX, 10).await?.is_empty()
    );
    Ok(())
}

pub(crate) async fn the_audit_forgets_the_oldest_beyond_its_bound(fixture: Fixture) -> Result<()> {
    const BOUND: u64 = 500;
    for batch in 0..40 {
        fixture
            .store
            .note(&entries("a", batch * 50..(batch + 1) * 50), BOUND)
            .await?;
    }
    let found = read(&fixture, 0, 1_000).await?;
    // Redis trims its stream by whole nodes, and each node holds one or two batches.
    assert!(
        (500..1_000).contains(&found.len()),
        "{} entries are kept",
        found.len()
    );
    assert_eq!(
        found
            .last()
            .map(|entry| (entry.position, entry.verb.as_deref())),
        Some((2_000, Some("1999")))
    );
    assert!(
        found
            .windows(2)
            .all(|pair| pair[1].position == pair[0].position + 1)
    );
    Ok(())
}

pub(crate) async fn a_batch_of_nothing_forgets_nothing(fixture: Fixture) -> Result<()> {
    fixture.store.note(&entries("a", 0..3), PLENTY).await?;
    fixture.pair().await?;
    for number in 0..20 {
        fixture.say("a", "b", &number.to_string()).await?;
    }
    fixture.store.note(&[], 3).await?;
    assert_eq!(verbs(&read(&fixture, 0, 10).await?), ["0", "1", "2"]);
    Ok(())
}

pub(crate) async fn the_audit_survives_closing_and_opening(mut fixture: Fixture) -> Result<()> {
    fixture.store.note(&entries("a", 0..3), PLENTY).await?;
    fixture.reopen().await?;
    fixture.store.note(&entries("a", 3..5), PLENTY).await?;
    let found = read(&fixture, 0, 10).await?;
    assert_eq!(verbs(&found), ["0", "1", "2", "3", "4"]);
    assert_eq!(found.last().map(|entry| entry.position), Some(5));
    Ok(())
}

pub(crate) async fn many_writers_share_one_order(fixture: Fixture) -> Result<()> {
    let batches: Vec<Vec<Entry>> = (0..20)
        .map(|writer| entries(&format!("w{writer}"), 0..10))
        .collect();
    try_join_all(
        batches
            .iter()
            .map(|batch| fixture.store.note(batch, PLENTY)),
    )
    .await?;
    let found = read(&fixture, 0, 1_000).await?;
    assert_eq!(
        found.iter().map(|entry| entry.position).collect::<Vec<_>>(),
        (1..=200).collect::<Vec<_>>()
    );
    for batch in found.chunks(10) {
        assert!(
            batch.iter().all(|entry| entry.agent == batch[0].agent),
            "a batch stays together"
        );
        assert_eq!(
            verbs(batch),
            ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
        );
    }
    Ok(())
}

pub(crate) async fn only_what_is_recorded_of_a_message_counts_as_an_advance(
    fixture: Fixture,
) -> Result<()> {
    let tenure = fixture.pair().await?;
    let (mine, theirs) = (
        fixture.say("a", "b", "one").await?,
        fixture.say("b", "a", "not mine").await?,
    );
    let messages = [
        theirs.id.clone(),
        mine.id.clone(),
        "a::b::00000000".parse()?,
    ];
    let recorded = async |stage| {
        let progress = progress(&messages, stage, Via::Hook);
        fixture
            .store
            .advance(&tenure.agent, Some(&tenure), &progress)
            .await
    };
    assert!(
        recorded(Stage::Seen).await?.is_empty(),
        "it was not in the session"
    );
    assert_eq!(
        recorded(Stage::InSession).await?,
        [(mine.id.clone(), Stage::InSession)]
    );
    assert!(
        recorded(Stage::InSession).await?.is_empty() && recorded(Stage::OnHost).await?.is_empty()
    );
    assert_eq!(
        recorded(Stage::Seen).await?,
        [(mine.id.clone(), Stage::Seen)]
    );
    Ok(())
}
