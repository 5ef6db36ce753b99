//! Names of deleted agents: they stay with their host, within a limit.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use c3po_coordinator::store::{
    Actor, Agent, Amendment, AnswerOutcome, Claim, Ending, Quota, Removal, SendOutcome, Speaker,
    StoreError,
};
use c3po_shared::message::Message;
use c3po_shared::receipt::{Stage, Via};

use tokio::task::JoinSet;

use super::Fixture;
use super::fixture::{by, id, message, owner, progress};
use super::owners::{brief, wish};

pub(crate) async fn a_removed_agent_leaves_nothing_but_receipts(fixture: Fixture) -> Result<()> {
    assert_eq!(
        fixture.store.remove(&id("a"), None, false, None).await?,
        Removal::Unknown
    );
    let held = fixture.agent("a").await?;
    fixture.agent("b").await?;
    let mut sent = Vec::new();
    for number in 0..120 {
        sent.push(fixture.say("b", "a", &number.to_string()).await?);
    }
    assert_eq!(
        fixture.store.remove(&id("a"), None, false, None).await?,
        Removal::Held
    );
    assert_eq!(fixture.pending("a").await?, 120);
    fixture.store.release(&held, Ending::Goodbye).await?;
    assert_eq!(
        fixture.store.remove(&id("a"), None, false, None).await?,
        Removal::Removed
    );
    assert_eq!(
        (
            fixture.store.agent(&id("a")).await?,
            fixture.pending("a").await?
        ),
        (None, 0)
    );
    for message in &sent {
        assert_eq!(
            fixture.stages(&message.id).await?.last(),
            Some(&Stage::Expired)
        );
    }
    assert_ne!(fixture.agent("a").await?.uid, held.uid);
    Ok(())
}

pub(crate) async fn the_name_of_a_deleted_agent_stays_with_its_host(
    mut fixture: Fixture,
) -> Result<()> {
    fixture.agent("b").await?;
    let held = fixture.take(&brief("a", "laptop")).await?;
    let question = Message {
        from_host: Some("laptop".into()),
        ..message("a", "b", "question")
    };
    let question = fixture.post(question).await?;
    fixture.store.release(&held, Ending::Goodbye).await?;
    assert_eq!(fixture.store.agent(&id("a")).await?, None);
    fixture.reopen().await?;
    assert_eq!(fixture.host_of(&id("a")).await?.as_deref(), Some("laptop"));
    assert_eq!(fixture.store.claim(&brief("a", "nas")).await?, None);
    let refused = fixture
        .store
        .introduce(&id("a"), Some("nas"), &Quota::default())
        .await;
    assert!(matches!(refused, Err(StoreError::Reserved { host, .. }) if host == "laptop"));
    assert_eq!(
        fixture.store.agent(&id("a")).await?,
        None,
        "a refused name makes no agent"
    );

    let back = fixture.take(&brief("a", "laptop")).await?;
    assert_eq!(fixture.host_of(&id("A")).await?.as_deref(), Some("laptop"));
    assert_eq!(
        fixture.answer(&question, "answer").await?,
        AnswerOutcome::Sent(SendOutcome::Stored)
    );
    assert_eq!(fixture.unshown("a").await?, ["answer"]);
    fixture.store.release(&back, Ending::Goodbye).await?;
    assert_eq!(
        fixture.store.remove(&id("a"), None, false, None).await?,
        Removal::Removed
    );
    let introduced = fixture.introduce("a", Some("laptop")).await?;
    assert_eq!(
        (introduced.owner, introduced.host.as_deref()),
        (None, Some("laptop"))
    );
    assert_eq!(fixture.store.claim(&brief("a", "nas")).await?, None);
    let back = fixture.take(&brief("a", "laptop")).await?;
    fixture.store.release(&back, Ending::Goodbye).await?;
    Ok(())
}

pub(crate) async fn an_administrator_frees_the_name_of_a_deleted_agent(
    fixture: Fixture,
) -> Result<()> {
    let held = fixture.take(&brief("a", "laptop")).await?;
    fixture.store.release(&held, Ending::Goodbye).await?;
    let remove = async |frees_name| fixture.store.remove(&id("a"), None, frees_name, None).await;
    assert_eq!(remove(false).await?, Removal::Unknown);
    assert_eq!(remove(true).await?, Removal::Removed);
    assert_eq!(remove(true).await?, Removal::Unknown);
    let other = fixture
        .take(&Claim {
            reserved: false,
            ..brief("a", "nas")
        })
        .await?;
    fixture.store.release(&other, Ending::Goodbye).await?;
    fixture.take(&brief("a", "laptop")).await?;
    Ok(())
}

pub(crate) async fn a_name_that_is_made_and_removed_all_the_time_has_its_host(
    fixture: Fixture,
) -> Result<()> {
    fixture.introduce("a", Some("laptop")).await?;
    let store = Arc::clone(&fixture.store);
    let mut flips = JoinSet::new();
    flips.spawn(async move {
        for _ in 0..200 {
            store.remove(&id("a"), None, false, None).await?;
            let quota = Quota::default();
            store.introduce(&id("a"), Some("laptop"), &quota).await?;
        }
        anyhow::Ok(())
    });
    let flipped = loop {
        if let Some(flipped) = flips.try_join_next() {
            break flipped;
        }
        for name in ["a", "A"] {
            let host = fixture.host_of(&id(name)).await?;
            assert_eq!(host.as_deref(), Some("laptop"), "{name}");
        }
    };
    flipped?
}

/// Has an agent of that key and host made and deleted.
async fn reserve(fixture: &Fixture, key: &str, name: &str, host: &str) -> Result<()> {
    let quota = Quota {
        key: key.into(),
        agents: Some(10),
        ..Quota::default()
    };
    let claim = Claim {
        quota,
        ..wish(name, owner(name, host, 1))
    };
    let held = fixture.take(&claim).await?;
    fixture.store.unregister(&held.agent, None, None).await?;
    Ok(())
}

pub(crate) async fn a_key_reserves_so_many_names_and_no_more(fixture: Fixture) -> Result<()> {
    const NAMES_MAX: u32 = 1_000;
    reserve(&fixture, "k2", "other", "nas").await?;
    // A name that the first key reserved, and that the second one has after an administrator freed it.
    reserve(&fixture, "k1", "passed", "nas").await?;
    fixture
        .store
        .remove(&id("passed"), None, true, None)
        .await?;
    reserve(&fixture, "k2", "passed", "laptop").await?;
    // Reservations of one millisecond have no order.
    tokio::time::sleep(Duration::from_millis(5)).await;
    for number in 0..=NAMES_MAX {
        reserve(&fixture, "k1", &format!("a-{number}"), "nas").await?;
    }
    let reserved = async |name: &str| anyhow::Ok(fixture.host_of(&id(name)).await?.is_some());
    assert!(!reserved("a-0").await?, "the oldest reservation ends first");
    assert!(reserved("a-1").await? && reserved(&format!("a-{NAMES_MAX}")).await?);
    assert!(reserved("other").await?, "another key has its own limit");
    assert!(
        reserved("passed").await?,
        "the name is of the other key now"
    );

    // A host that gets another name keeps its reservations.
    fixture
        .store
        .move_reservations("k1", "nas", "attic")
        .await?;
    for (name, host) in [
        ("a-1", "attic"),
        ("a-500", "attic"),
        ("a-1000", "attic"),
        ("other", "nas"),
    ] {
        assert_eq!(
            fixture.host_of(&id(name)).await?.as_deref(),
            Some(host),
            "{name}"
        );
    }
    Ok(())
}

pub(crate) async fn a_container_with_a_key_keeps_the_names_of_its_deleted_agents(
    fixture: Fixture,
) -> Result<()> {
    let container = "9b0c5f6a1e2d";
    for is_of_key in [true, false] {
        let (name, quota) = (
            id(if is_of_key { "kept" } else { "free" }),
            Quota {
                is_of_key,
                ..Quota::default()
            },
        );
        let store = &fixture.store;
        store.introduce(&name, Some(container), &quota).await?;
        store.remove(&name, None, false, None).await?;
        let other = store.introduce(&name, Some("laptop"), &quota).await;
        assert_eq!(other.is_err(), is_of_key, "{other:?}");
    }
    Ok(())
}

/// Returns the agent of that name.
async fn record(fixture: &Fixture, name: &str) -> Result<Agent> {
    let agent = fixture.store.agent(&id(name)).await?;
    agent.context("there is such an agent")
}

pub(crate) async fn a_host_keeps_the_mail_of_its_names_until_they_are_freed(
    fixture: Fixture,
) -> Result<()> {
    let (store, a) = (&fixture.store, id("a"));
    fixture.agent("b").await?;
    let first = fixture.take(&brief("a", "laptop")).await?;
    let question = fixture.post(message("b", "a", "question")).await?;
    let other = fixture.post(message("b", "a", "other")).await?;
    let ids = [question.id.clone(), other.id.clone()];
    store.acknowledge(&a, &by(&first), &ids).await?;
    let since = record(&fixture, "a").await?.registered_at;
    store.release(&first, Ending::Goodbye).await?;
    assert_eq!(store.agent(&a).await?, None);
    let reserved = store.holder(&a).await?;
    assert_eq!(reserved.map(|holder| holder.since), Some(since));

    let later = fixture.take(&brief("a", "laptop")).await?;
    assert_eq!(record(&fixture, "a").await?.registered_at, since);
    let settled = store.acknowledge(&a, &by(&later), &ids).await?;
    assert_eq!(settled.acked, ids);
    assert_eq!(
        fixture.answer(&question, "answer").await?,
        AnswerOutcome::Sent(SendOutcome::Stored)
    );
    store.release(&later, Ending::Goodbye).await?;
    store.remove(&a, None, true, None).await?;

    // The agent of another host gets nothing of it.
    let foreign = fixture.take(&brief("a", "nas")).await?;
    assert!(record(&fixture, "a").await?.registered_at > since);
    let settled = store.acknowledge(&a, &by(&foreign), &ids).await?;
    assert_eq!((settled.acked, settled.unknown), (vec![], ids.to_vec()));
    let reached = progress(&ids, Stage::InSession, Via::GetMessages);
    assert_eq!(store.advance(&a, &by(&foreign), &reached).await?, []);
    for asked in [&question, &other] {
        let refused = fixture.answer(asked, "mine").await?;
        assert_eq!(refused, AnswerOutcome::NotFound);
    }
    let fresh = fixture.post(message("b", "a", "fresh")).await?;
    let ids = [fresh.id.clone()];
    let settled = store.acknowledge(&a, &by(&foreign), &ids).await?;
    assert_eq!(settled.acked, ids);
    Ok(())
}

pub(crate) async fn a_person_changes_no_agent_of_another_host(fixture: Fixture) -> Result<()> {
    fixture.agent("b").await?;
    fixture.take(&brief("a", "laptop")).await?;
    let sent = fixture.say("b", "a", "news").await?;
    let ids = [sent.id.clone()];
    let before = record(&fixture, "a").await?;
    let stranger = Speaker::OfHost(id("a"), "nas".into());
    let actor = Actor {
        speaker: Some(stranger.clone()),
        ..Actor::default()
    };
    let amendment = Amendment {
        description: Some("evil".into()),
        ..Amendment::default()
    };
    let seen = progress(&ids, Stage::InSession, Via::Page);
    let store = &fixture.store;
    let refusals = [
        store
            .amend(&id("a"), Some(&stranger), &amendment)
            .await
            .err(),
        store.acknowledge(&id("a"), &actor, &ids).await.err(),
        store.advance(&id("a"), &actor, &seen).await.err(),
    ];
    for refused in refusals {
        let of = match refused {
            Some(StoreError::Reserved { host, .. }) => host,
            other => panic!("{other:?}"),
        };
        assert_eq!(of, "laptop");
    }
    assert_eq!(record(&fixture, "a").await?, before);
    assert_eq!(fixture.pending("a").await?, 1);
    assert_eq!(fixture.stages(&sent.id).await?, [Stage::Stored]);

    // A person of its own host may, until the agent is gone.
    let own = Speaker::OfHost(id("a"), "laptop".into());
    let amended = store.amend(&id("a"), Some(&own), &amendment).await?;
    assert_eq!(
        amended.and_then(|agent| agent.description).as_deref(),
        Some("evil")
    );
    let gone = Speaker::OfHost(id("gone"), "laptop".into());
    let refused = store.amend(&id("gone"), Some(&gone), &amendment).await;
    assert!(
        matches!(refused, Err(StoreError::TakenOver(_))),
        "{refused:?}"
    );
    Ok(())
}
