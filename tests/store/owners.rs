//! Owners of agents: a host keeps the name that it was given for a desired one, and no other host gets its messages.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Result;
use c3po_coordinator::store::{Claim, Ending, Namesake, Owner, Quota, Removal, StoreError};
use c3po_shared::time::Timestamp;
use harness::redis::Redis;
use tokio::task::JoinSet;

use super::Fixture;
use super::fixture::{claim, id, owner};

/// Creates the claim of a new process with that owner.
pub(crate) fn wish(name: &str, owner: Owner) -> Claim {
    Claim {
        owner,
        ..claim(name)
    }
}

/// Creates the claim of a process whose agent is forgotten when it leaves nothing.
pub(crate) fn brief(name: &str, host: &str) -> Claim {
    Claim {
        fleeting: true,
        ..wish(name, owner(name, host, 2))
    }
}

fn names(agents: &[Namesake]) -> Vec<&str> {
    let mut names: Vec<_> = agents.iter().map(|agent| agent.id.as_str()).collect();
    names.sort_unstable();
    names
}

pub(crate) async fn no_host_gets_the_name_or_the_mail_of_another(fixture: Fixture) -> Result<()> {
    for (key, host) in [("0a1b2c3d", "box"), ("anybody", "attic")] {
        let claim = brief(host, host);
        let quota = Quota {
            key: key.to_owned(),
            agents: Some(9),
            ..claim.quota.clone()
        };
        let held = fixture.take(&Claim { quota, ..claim }).await?;
        fixture.store.release(&held, Ending::Goodbye).await?;
    }
    assert_eq!(fixture.store.former_hosts().await?, ["box"]);
    let moved = fixture.store.move_reservations("0a1b2c3d", "box", "den");
    moved.await?;
    assert!(fixture.store.former_hosts().await?.contains(&"den".into()));
    let laptop = fixture.take(&wish("a", owner("a", "laptop", 1))).await?;
    fixture.say("b", "a", "for laptop").await?;
    fixture.store.release(&laptop, Ending::Goodbye).await?;
    assert_eq!(
        fixture
            .store
            .claim(&wish("a", owner("a", "nas", 1)))
            .await?,
        None
    );
    assert_eq!(
        fixture
            .store
            .claim(&wish("a", owner("a", "laptop", 2)))
            .await?,
        None
    );
    let dead = Claim {
        succeeds: vec![laptop.instance],
        ..wish("a", owner("a", "nas", 1))
    };
    assert_eq!(fixture.store.claim(&dead).await?, None);

    let nas = fixture.take(&wish("a-2", owner("a", "nas", 1))).await?;
    assert_eq!((nas.generation, fixture.pending("a-2").await?), (1, 0));
    let agent = fixture
        .store
        .agent(&id("a-2"))
        .await?
        .expect("it was taken");
    assert_eq!(
        (agent.owner, agent.host.as_deref()),
        (Some(owner("a", "nas", 1)), Some("nas"))
    );
    let back = fixture.take(&wish("a", owner("a", "laptop", 1))).await?;
    assert_eq!((back.uid, back.generation), (laptop.uid, 2));
    assert_eq!(fixture.unshown("a").await?, ["for laptop"]);
    Ok(())
}

pub(crate) async fn an_owner_has_one_agent(mut fixture: Fixture) -> Result<()> {
    let first = fixture.take(&wish("a-2", owner("a", "nas", 1))).await?;
    for free in ["a", "a-3"] {
        assert_eq!(
            fixture
                .store
                .claim(&wish(free, owner("a", "nas", 1)))
                .await?,
            None,
            "{free}"
        );
    }
    fixture.store.release(&first, Ending::Goodbye).await?;
    fixture.reopen().await?;
    assert_eq!(
        fixture
            .store
            .claim(&wish("a-3", owner("a", "nas", 1)))
            .await?,
        None,
        "it keeps its name"
    );
    assert_eq!(
        fixture.store.remove(&id("a-2"), None, false, None).await?,
        Removal::Removed
    );
    let anew = fixture.take(&wish("a-3", owner("a", "nas", 1))).await?;
    assert_eq!((anew.generation, anew.uid == first.uid), (1, false));
    Ok(())
}

pub(crate) async fn one_owner_that_races_for_many_names_gets_one(fixture: Fixture) -> Result<()> {
    let mut tasks = JoinSet::new();
    for number in 2..52 {
        let store = Arc::clone(&fixture.store);
        tasks.spawn(async move {
            store
                .claim(&wish(&format!("a-{number}"), owner("a", "nas", 1)))
                .await
        });
    }
    let mut tenures = Vec::new();
    for outcome in tasks.join_all().await {
        tenures.extend(outcome?);
    }
    assert_eq!(tenures.len(), 1);
    let namesakes = fixture.store.namesakes(&id("a")).await?;
    assert_eq!(names(&namesakes), [tenures[0].agent.as_str()]);
    Ok(())
}

pub(crate) async fn namesakes_were_wished_by_one_name(fixture: Fixture) -> Result<()> {
    assert_eq!(fixture.store.namesakes(&id("a")).await?, []);
    for (name, owner) in [
        ("a", owner("a", "laptop", 1)),
        ("a-2", owner("a", "nas", 1)),
        ("a-3", owner("a", "nas", 2)),
        ("a-2-2", owner("a-2", "nas", 1)),
        ("ab", owner("ab", "nas", 1)),
    ] {
        fixture.take(&wish(name, owner)).await?;
    }
    fixture.introduce("cron", Some("nas")).await?;
    assert_eq!(
        names(&fixture.store.namesakes(&id("a")).await?),
        ["a", "a-2", "a-3"]
    );
    assert_eq!(
        names(&fixture.store.namesakes(&id("a-2")).await?),
        ["a-2", "a-2-2"]
    );
    assert_eq!(
        names(&fixture.store.namesakes(&id("cron")).await?),
        ["cron"]
    );
    let many = (4..240).map(|number| (format!("a-{number}"), owner("a", "nas", number)));
    for (name, owner) in many {
        fixture.take(&wish(&name, owner)).await?;
    }
    assert_eq!(fixture.store.namesakes(&id("a")).await?.len(), 239);
    Ok(())
}

pub(crate) async fn an_agent_without_a_session_goes_to_its_own_host(
    fixture: Fixture,
) -> Result<()> {
    let introduced = fixture.introduce("cron", Some("nas")).await?;
    assert_eq!(
        (introduced.owner, introduced.host.as_deref()),
        (None, Some("nas"))
    );
    fixture.say("b", "cron", "hello").await?;
    let (cron, quota) = (id("cron"), Quota::default());
    let taken = fixture.store.introduce(&cron, Some("laptop"), &quota).await;
    assert!(
        matches!(&taken, Err(StoreError::Reserved { host, .. }) if host == "nas"),
        "{taken:?}"
    );
    assert_eq!(
        fixture
            .store
            .claim(&wish("cron", owner("cron", "laptop", 1)))
            .await?,
        None
    );
    let tenure = fixture.take(&wish("cron", owner("cron", "nas", 1))).await?;
    assert_eq!(
        (tenure.uid, fixture.inbox("cron").await?),
        (introduced.uid, vec!["hello".to_owned()])
    );
    fixture.introduce("free", None).await?;
    fixture
        .take(&wish("free", owner("free", "laptop", 1)))
        .await?;
    Ok(())
}

pub(crate) async fn the_agents_of_a_host_move_to_its_new_name(fixture: Fixture) -> Result<()> {
    let old = fixture.take(&wish("a", owner("a", "laptop", 1))).await?;
    fixture.say("b", "a", "for the old name").await?;
    fixture
        .take(&wish("a-2", owner("a", "laptop.local", 1)))
        .await?;
    fixture.take(&wish("a-3", owner("a", "nas", 1))).await?;
    fixture.introduce("cron", Some("laptop")).await?;

    let moved = async |name: &str| {
        let store = &fixture.store;
        store.move_host(&id(name), "laptop", "laptop.local").await
    };
    assert_eq!(moved("a").await?, 1);
    assert_eq!(moved("cron").await?, 1);
    assert_eq!(moved("a").await?, 0);
    let owned = async |name: &str| {
        anyhow::Ok(
            fixture
                .store
                .agent(&id(name))
                .await?
                .expect("it is kept")
                .owner,
        )
    };
    assert_eq!(owned("a").await?, Some(owner("a", "laptop.local", 1)));
    assert_eq!(
        owned("a-2").await?,
        Some(owner("a", "laptop.local", 2)),
        "what was moved keeps its slot"
    );
    assert_eq!(owned("a-3").await?, Some(owner("a", "nas", 1)));
    let cron = fixture.store.agent(&id("cron")).await?.expect("it is kept");
    assert_eq!(
        (cron.owner, cron.host.as_deref()),
        (None, Some("laptop.local"))
    );

    fixture.store.release(&old, Ending::Goodbye).await?;
    assert_eq!(
        fixture
            .store
            .claim(&wish("a", owner("a", "laptop", 1)))
            .await?,
        None
    );
    fixture
        .take(&wish("a", owner("a", "laptop.local", 1)))
        .await?;
    assert_eq!(fixture.unshown("a").await?, ["for the old name"]);
    fixture.take(&wish("a-4", owner("a", "laptop", 1))).await?;
    Ok(())
}

/// Moves more agents of one base name than one call moves, to a host that has as many.
pub(crate) async fn many_move(fixture: &Fixture) -> Result<()> {
    const EACH: u32 = 120;
    for slot in 1..=EACH {
        for (host, name) in [
            ("laptop", format!("m-{slot}")),
            ("nas", format!("n-{slot}")),
        ] {
            fixture.take(&wish(&name, owner("m", host, slot))).await?;
        }
    }
    assert_eq!(
        fixture.store.move_host(&id("m"), "laptop", "nas").await?,
        EACH as usize
    );
    let moved = fixture.store.namesakes(&id("m")).await?;
    let slots: BTreeSet<u32> = moved
        .iter()
        .filter_map(|agent| Some(agent.owner.as_ref()?.slot))
        .collect();
    assert_eq!(
        (moved.len(), slots.len()),
        (2 * EACH as usize, 2 * EACH as usize),
        "each has a slot of its own"
    );
    for agent in &moved {
        let owner = agent.owner.as_ref().expect("a session had it");
        assert_eq!(owner.host, "nas");
        assert!(agent.id.as_str() != format!("m-{}", owner.slot) || owner.slot <= EACH);
    }
    Ok(())
}

#[tokio::test]
async fn a_host_keeps_a_name_for_30_days_and_no_longer_with_redis() -> Result<()> {
    let redis = Redis::start().await?;
    let fixture = super::redis::fixture_on(redis.url(), ()).await?;
    let days_ago =
        |days: u64| (Timestamp::now().millis() - days * 24 * 60 * 60 * 1_000).to_string();
    for (name, days) in [("gone", 31), ("late", 29), ("mail", 31)] {
        let tenure = fixture.agent(name).await?;
        fixture.store.release(&tenure, Ending::Goodbye).await?;
        redis
            .tell(&[
                "HSET",
                &format!("{{c3po}}:agent:{name}"),
                "last_seen",
                &days_ago(days),
            ])
            .await?;
    }
    fixture.introduce("human", None).await?;
    redis
        .tell(&["HSET", "{c3po}:agent:human", "last_seen", &days_ago(31)])
        .await?;
    fixture.say("late", "mail", "hello").await?;
    for name in ["gone", "late", "mail", "human"] {
        fixture.do_duties(name).await?;
    }
    let kept = fixture.store.agents(None, 10).await?;
    let kept: Vec<_> = kept.iter().map(|agent| agent.id.as_str()).collect();
    assert_eq!(kept, ["human", "late", "mail"]);
    assert_eq!(
        redis.tell(&["EXISTS", "{c3po}:names:gone"]).await?.trim(),
        ":0"
    );
    Ok(())
}

#[tokio::test]
async fn agents_of_builds_without_owners_go_to_their_last_host_in_redis() -> Result<()> {
    let redis = Redis::start().await?;
    let fixture = super::redis::fixture_on(redis.url(), ()).await?;
    for (name, host) in [("a", "laptop"), ("a-2", "nas")] {
        let tenure = fixture.take(&wish(name, owner("a", host, 1))).await?;
        fixture.store.release(&tenure, Ending::Goodbye).await?;
        redis
            .tell(&["HDEL", &format!("{{c3po}}:agent:{name}"), "base", "slot"])
            .await?;
        fixture.say("b", name, host).await?;
    }
    redis.tell(&["DEL", "{c3po}:names:a"]).await?;
    assert_eq!(
        fixture
            .store
            .claim(&wish("a", owner("a", "nas", 1)))
            .await?,
        None
    );
    fixture.take(&wish("a-2", owner("a", "nas", 1))).await?;
    fixture.take(&wish("a", owner("a", "laptop", 1))).await?;
    assert_eq!(
        (fixture.inbox("a").await?, fixture.inbox("a-2").await?),
        (vec!["laptop".into()], vec!["nas".into()])
    );
    Ok(())
}
