//! Names that differ only in case: the first one taken blocks the others, and existing ones keep working.

use std::sync::Arc;

use anyhow::Result;
use c3po_coordinator::store::{Claim, Ending, Quota, StoreError};
use harness::redis::Redis;
use tokio::task::JoinSet;

use super::Fixture;
use super::fixture::{claim, id};
use super::redis::fixture_on;

/// Tries to claim a name and to introduce an agent with it. Returns the existing agent that blocks both.
async fn in_the_way(fixture: &Fixture, name: &str) -> Result<Option<String>> {
    let known = |error: StoreError| match error {
        StoreError::Alike { known, name: new } if new == id(name) => known.to_string(),
        other => panic!("{other}"),
    };
    let Err(first) = fixture.store.claim(&claim(name)).await else {
        return Ok(None);
    };
    let second = fixture
        .store
        .introduce(&id(name), None, &Quota::default())
        .await
        .expect_err("refused as well");
    let known = [first, second].map(known);
    assert_eq!(known[0], known[1]);
    assert_eq!(
        fixture.store.agent(&id(name)).await?,
        None,
        "nothing is left of it"
    );
    Ok(Some(known[0].clone()))
}

pub(crate) async fn a_new_name_differs_from_others_in_more_than_case(
    fixture: Fixture,
) -> Result<()> {
    let held = fixture.agent("Web").await?;
    fixture.introduce("cron.Job", None).await?;
    for (name, known) in [("web", "Web"), ("WEB", "Web"), ("CRON.job", "cron.Job")] {
        assert_eq!(
            in_the_way(&fixture, name).await?.as_deref(),
            Some(known),
            "{name}"
        );
    }
    // Known agents keep working, and other names are free.
    fixture
        .take(&Claim {
            instance: held.instance,
            ..claim("Web")
        })
        .await?;
    fixture.introduce("Web", None).await?;
    fixture.agent("web-2").await?;
    fixture.agent("We").await?;

    // A forgotten agent does not block a name.
    fixture.store.unregister(&id("Web"), None, None).await?;
    fixture.agent("web").await?;
    assert_eq!(in_the_way(&fixture, "Web").await?.as_deref(), Some("web"));
    fixture
        .store
        .remove(&id("cron.Job"), None, false, None)
        .await?;
    fixture.introduce("CRON.JOB", None).await?;
    Ok(())
}

pub(crate) async fn one_of_50_names_that_differ_in_case_is_taken(fixture: Fixture) -> Result<()> {
    let mut tasks = JoinSet::new();
    for number in 0..50_u32 {
        let store = Arc::clone(&fixture.store);
        let letter = |(at, c): (usize, char)| {
            if (number >> at) & 1 == 1 {
                c.to_ascii_uppercase()
            } else {
                c
            }
        };
        let name: String = "agents".chars().enumerate().map(letter).collect();
        tasks.spawn(async move { store.claim(&claim(&name)).await });
    }
    let outcomes = tasks.join_all().await;
    assert_eq!(
        outcomes
            .iter()
            .filter(|outcome| matches!(outcome, Ok(Some(_))))
            .count(),
        1
    );
    assert!(
        outcomes
            .iter()
            .all(|outcome| matches!(outcome, Ok(Some(_)) | Err(StoreError::Alike { .. })))
    );
    assert_eq!(fixture.store.agents(None, 100).await?.len(), 1);
    Ok(())
}

/// Earlier builds did not keep the list of folded names. SQLite's index has its own test.
#[tokio::test]
async fn in_redis_names_of_before_go_on_and_count_from_their_next_session_on() -> Result<()> {
    let redis = Redis::start().await?;
    let fixture = fixture_on(redis.url(), ()).await?;
    for name in ["Web", "web"] {
        let tenure = fixture.agent(name).await?;
        fixture.store.release(&tenure, Ending::Goodbye).await?;
        redis.tell(&["DEL", "{c3po}:folded"]).await?;
    }
    for name in ["web", "Web"] {
        fixture.agent(name).await?;
    }
    assert_eq!(in_the_way(&fixture, "WEB").await?.as_deref(), Some("web"));
    fixture.store.remove(&id("Web"), None, false, None).await?;
    fixture.store.unregister(&id("Web"), None, None).await?;
    assert_eq!(in_the_way(&fixture, "Web").await?.as_deref(), Some("web"));
    Ok(())
}
