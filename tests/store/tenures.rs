//! Tenures: one process holds a name at a time, with a generation, as long as it renews its lease.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use c3po_coordinator::store::{Amendment, Claim, Ending, Quota, RETURN_MAX, Tenure};
use c3po_shared::receipt::{Stage, Via};
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::State;
use harness::eventually::eventually;
use tokio::task::JoinSet;

use super::Fixture;
use super::fixture::{LEASE, SHORT, SOON, claim, does, id, speaking};

/// Waits until another process gets the name.
async fn taken_by(fixture: &Fixture, wish: &Claim) -> Result<Tenure> {
    eventually("the hold is over", SOON, async || {
        fixture.store.claim(wish).await.ok().flatten()
    })
    .await
}

pub(crate) async fn a_held_name_is_refused_to_others(fixture: Fixture) -> Result<()> {
    let held = fixture.agent("a").await?;
    assert_eq!((held.generation, &held.agent), (1, &id("a")));
    assert_eq!(fixture.store.claim(&claim("a")).await?, None);
    let agent = fixture.store.agent(&id("a")).await?.expect("it exists");
    assert_eq!(
        (agent.uid, agent.generation, agent.instance),
        (held.uid, 1, held.instance)
    );
    assert!(agent.is_online(Timestamp::now()));
    assert_eq!(agent.state, State::Starting);
    assert_eq!(
        (agent.host.as_deref(), agent.session_id.as_deref()),
        (Some("nas2"), Some("first"))
    );
    assert_eq!(agent.reach, [Via::WaitForMessage]);
    Ok(())
}

pub(crate) async fn one_of_50_racing_processes_gets_the_name(fixture: Fixture) -> Result<()> {
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let store = Arc::clone(&fixture.store);
        tasks.spawn(async move { store.claim(&claim("a")).await });
    }
    let mut tenures = Vec::new();
    for outcome in tasks.join_all().await {
        tenures.extend(outcome?);
    }
    assert_eq!(tenures.len(), 1);
    assert_eq!(tenures[0].generation, 1);
    Ok(())
}

pub(crate) async fn the_same_process_keeps_its_generation(fixture: Fixture) -> Result<()> {
    let wish = Claim {
        lease: SHORT,
        ..claim("a")
    };
    let first = fixture.take(&wish).await?;
    fixture.agent("b").await?;
    let sent = fixture.say("b", "a", "hello").await?;
    fixture
        .advance(&sent, &first, Stage::InSession, Via::GetMessages)
        .await?;
    fixture
        .store
        .amend(&id("a"), None, &does(State::Busy).into())
        .await?;
    let again = fixture.take(&wish).await?;
    assert_eq!(
        again,
        Tenure {
            link: again.link,
            ..first.clone()
        }
    );

    let over = async || {
        let agent = fixture.store.agent(&id("a")).await.ok()??;
        (!agent.is_online(Timestamp::now())).then_some(())
    };
    eventually("the lease is over", SOON, over).await?;
    let later = fixture
        .take(&Claim {
            lease: LEASE,
            ..wish
        })
        .await?;
    assert_eq!(
        later,
        Tenure {
            link: later.link,
            ..first
        }
    );
    assert!(
        fixture.unshown("a").await?.is_empty(),
        "the session still has what it was shown"
    );
    assert_eq!(
        fixture
            .store
            .agent(&id("a"))
            .await?
            .map(|agent| agent.state),
        Some(State::Busy)
    );
    assert_eq!(fixture.store.claim(&claim("a")).await?, None);
    Ok(())
}

pub(crate) async fn a_new_process_raises_the_generation_and_inherits(
    fixture: Fixture,
) -> Result<()> {
    let first = fixture
        .take(&Claim {
            lease: SHORT,
            ..claim("a")
        })
        .await?;
    fixture.agent("b").await?;
    let sent = fixture.say("b", "a", "hello").await?;
    fixture
        .advance(&sent, &first, Stage::InSession, Via::GetMessages)
        .await?;
    let amendment = Amendment {
        description: Some("home".into()),
        capabilities: Some(vec!["mqtt".into()]),
        role: Some("triage".into()),
        ..Amendment::from(does(State::Busy))
    };
    fixture.store.amend(&id("a"), None, &amendment).await?;
    let before = fixture.store.agent(&id("a")).await?.expect("it exists");

    let wish = Claim {
        session_id: Some("second".into()),
        ..claim("a")
    };
    let second = taken_by(&fixture, &wish).await?;
    assert_eq!(
        (second.generation, second.uid, second.instance),
        (2, first.uid, wish.instance)
    );
    assert_eq!(fixture.unshown("a").await?, ["hello"]);
    let after = fixture.store.agent(&id("a")).await?.expect("it exists");
    assert_eq!(
        (after.description, after.capabilities, after.role),
        (before.description, before.capabilities, before.role)
    );
    assert_eq!(
        (after.generation, after.state, after.registered_at),
        (2, State::Starting, before.registered_at)
    );
    assert_eq!(
        (after.host.as_deref(), after.session_id.as_deref()),
        (Some("nas2"), Some("second"))
    );
    Ok(())
}

pub(crate) async fn an_outdated_tenure_renews_and_releases_nothing(fixture: Fixture) -> Result<()> {
    let wish = claim("a");
    let old = fixture.take(&wish).await?;
    fixture.store.release(&old, Ending::Goodbye).await?;
    let new = fixture.agent("a").await?;
    assert!(!fixture.store.renew(&old, LEASE).await?);
    fixture.store.release(&old, Ending::Goodbye).await?;
    assert_eq!(
        fixture.store.claim(&claim("a")).await?,
        None,
        "the new session still holds it"
    );
    assert_eq!(
        fixture.store.claim(&wish).await?,
        None,
        "the old process is another one now"
    );
    assert!(fixture.store.renew(&new, LEASE).await?);
    let never = Tenure {
        agent: id("never"),
        ..new
    };
    assert!(!fixture.store.renew(&never, LEASE).await?);
    Ok(())
}

pub(crate) async fn a_hold_lasts_as_long_as_it_is_renewed(fixture: Fixture) -> Result<()> {
    let tenure = fixture
        .take(&Claim {
            lease: SHORT,
            ..claim("a")
        })
        .await?;
    let before = fixture.store.agent(&id("a")).await?.expect("it exists");
    assert!(fixture.store.renew(&tenure, LEASE).await?);
    let after = fixture.store.agent(&id("a")).await?.expect("it exists");
    assert!(after.held_until > before.held_until && after.last_seen >= before.last_seen);
    assert_eq!(fixture.store.claim(&claim("a")).await?, None);
    assert!(fixture.store.renew(&tenure, SHORT).await?);
    let next = taken_by(&fixture, &claim("a")).await?;
    assert_eq!(next.generation, 2);
    Ok(())
}

pub(crate) async fn a_released_name_is_free_at_once(fixture: Fixture) -> Result<()> {
    let first = fixture.agent("a").await?;
    fixture.store.release(&first, Ending::Goodbye).await?;
    let agent = fixture.store.agent(&id("a")).await?.expect("it is kept");
    assert!(!agent.is_online(Timestamp::now()));
    assert_eq!(fixture.take(&claim("a")).await?.generation, 2);
    Ok(())
}

pub(crate) async fn a_fleeting_agent_is_forgotten_when_it_leaves_nothing(
    fixture: Fixture,
) -> Result<()> {
    fixture.agent("b").await?;
    let first = fixture
        .take(&Claim {
            fleeting: true,
            ..claim("a-2")
        })
        .await?;
    let sent = fixture.say("b", "a-2", "hello").await?;
    fixture.acknowledge(&sent).await?;
    fixture.store.release(&first, Ending::Goodbye).await?;
    assert_eq!(fixture.store.agent(&id("a-2")).await?, None);
    assert!(
        fixture.store.message(&sent.id).await?.is_some(),
        "the archive keeps it"
    );
    let names: Vec<_> = fixture
        .store
        .agents(None, 10)
        .await?
        .into_iter()
        .map(|agent| agent.id)
        .collect();
    assert_eq!(names, [id("b")]);
    let second = fixture
        .take(&Claim {
            fleeting: true,
            ..claim("a-2")
        })
        .await?;
    assert_eq!(second.generation, 1);
    assert_ne!(second.uid, first.uid);
    assert!(
        !fixture.store.renew(&first, LEASE).await?,
        "it is another agent of the same name"
    );
    Ok(())
}

pub(crate) async fn a_fleeting_agent_with_mail_is_kept(fixture: Fixture) -> Result<()> {
    let first = fixture
        .take(&Claim {
            fleeting: true,
            ..claim("a-2")
        })
        .await?;
    fixture.say("b", "a-2", "hello").await?;
    fixture.store.release(&first, Ending::Goodbye).await?;
    assert_eq!(fixture.inbox("a-2").await?, ["hello"]);
    let second = fixture
        .take(&Claim {
            fleeting: true,
            ..claim("a-2")
        })
        .await?;
    assert_eq!((second.generation, second.uid), (2, first.uid));
    Ok(())
}

pub(crate) async fn a_fleeting_agent_stays_one_when_its_process_comes_back(
    fixture: Fixture,
) -> Result<()> {
    let made = Claim {
        fleeting: true,
        ..claim("a-2")
    };
    fixture.take(&made).await?;
    // A proxy that reconnects asks for the name that it was assigned.
    let tenure = fixture
        .take(&Claim {
            fleeting: false,
            ..made
        })
        .await?;
    fixture.store.release(&tenure, Ending::Goodbye).await?;
    assert_eq!(fixture.store.agent(&id("a-2")).await?, None);

    // A name that another process chose is not forgotten, although it was once generated.
    let made = fixture
        .take(&Claim {
            fleeting: true,
            ..claim("a-3")
        })
        .await?;
    let sent = fixture.say("b", "a-3", "hello").await?;
    fixture.store.release(&made, Ending::Goodbye).await?;
    let chosen = fixture.agent("a-3").await?;
    fixture.acknowledge(&sent).await?;
    fixture.store.release(&chosen, Ending::Goodbye).await?;
    assert!(fixture.store.agent(&id("a-3")).await?.is_some());
    Ok(())
}

pub(crate) async fn an_earlier_link_of_a_process_does_not_end_its_hold(
    fixture: Fixture,
) -> Result<()> {
    let wish = Claim {
        fleeting: true,
        ..claim("a-2")
    };
    let older = fixture.take(&wish).await?;
    let newer = fixture.take(&wish).await?;
    assert_eq!(
        (newer.generation, newer.link > older.link),
        (older.generation, true)
    );
    fixture.store.release(&older, Ending::Goodbye).await?;
    let agent = fixture
        .store
        .agent(&id("a-2"))
        .await?
        .expect("it is not forgotten");
    assert!(
        agent.is_online(Timestamp::now()),
        "it is still held by the newer link"
    );
    assert!(
        fixture.store.renew(&older, LEASE).await?,
        "it is the same session"
    );
    fixture.store.release(&newer, Ending::Goodbye).await?;
    assert_eq!(fixture.store.agent(&id("a-2")).await?, None);
    Ok(())
}

pub(crate) async fn a_process_that_is_known_to_be_dead_holds_nothing(
    fixture: Fixture,
) -> Result<()> {
    let dead = fixture.agent("a").await?;
    fixture.agent("b").await?;
    let sent = fixture.say("b", "a", "hello").await?;
    fixture
        .advance(&sent, &dead, Stage::InSession, Via::GetMessages)
        .await?;
    let another = fixture.agent("c").await?.instance;
    assert_eq!(
        fixture
            .store
            .claim(&Claim {
                succeeds: vec![another],
                ..claim("a")
            })
            .await?,
        None
    );
    let heir = fixture
        .take(&Claim {
            succeeds: vec![another, dead.instance],
            ..claim("a")
        })
        .await?;
    assert_eq!((heir.generation, heir.uid), (2, dead.uid));
    assert_eq!(fixture.unshown("a").await?, ["hello"]);
    assert!(!fixture.store.renew(&dead, LEASE).await?);
    Ok(())
}

pub(crate) async fn a_fleeting_agent_whose_link_broke_comes_back_as_itself(
    fixture: Fixture,
) -> Result<()> {
    let made = Claim {
        fleeting: true,
        ..claim("a-2")
    };
    let before = fixture.take(&made).await?;
    fixture
        .store
        .amend(
            &id("a-2"),
            Some(&speaking(&before)),
            &Amendment {
                role: Some("radio".into()),
                ..Amendment::default()
            },
        )
        .await?;
    fixture.store.release(&before, Ending::Gone).await?;
    let left = fixture.store.withdraw(&id("a-2")).await?;
    assert!(left.is_some_and(|left| left > RETURN_MAX - SOON && left <= RETURN_MAX));
    assert!(
        fixture
            .store
            .agent(&id("a-2"))
            .await?
            .is_some_and(|agent| !agent.is_online(Timestamp::now()))
    );
    // Its proxy asks for the name that it was assigned.
    let after = fixture
        .take(&Claim {
            fleeting: false,
            ..made
        })
        .await?;
    let agent = fixture
        .store
        .agent(&id("a-2"))
        .await?
        .expect("it came back");
    assert_eq!(
        (after.uid, agent.role.as_deref()),
        (before.uid, Some("radio"))
    );
    fixture.store.release(&after, Ending::Goodbye).await?;
    assert_eq!(
        fixture.store.agent(&id("a-2")).await?,
        None,
        "its name is still a made one"
    );
    Ok(())
}

pub(crate) async fn an_agent_without_a_session_is_online_as_long_as_it_attends(
    fixture: Fixture,
) -> Result<()> {
    let before = fixture
        .store
        .introduce(&id("person"), Some("nas2"), &Quota::default())
        .await?;
    let attends = |attends| Amendment {
        attends: Some(attends),
        ..Amendment::from(does(State::Ready))
    };
    let amended = async |amendment: Amendment| {
        let agent = fixture.store.amend(&id("person"), None, &amendment).await?;
        anyhow::Ok(agent.expect("it exists"))
    };
    let online = amended(attends(SHORT)).await?;
    assert!(
        online.is_online(Timestamp::now()) && online.last_seen >= before.last_seen,
        "{online:?}"
    );
    let later = amended(attends(LEASE)).await?;
    assert!(
        later.held_until > online.held_until,
        "it lasts longer: {later:?}"
    );
    let other = amended(does(State::Busy).into()).await?;
    assert_eq!(
        (other.held_until, other.last_seen),
        (later.held_until, later.last_seen)
    );
    let ended = amended(attends(Duration::ZERO)).await?;
    assert!(
        !ended.is_online(Timestamp::now()) && ended.last_seen >= later.last_seen,
        "{ended:?}"
    );
    Ok(())
}
