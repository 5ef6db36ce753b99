//! Records of agents: listed, changed, introduced and forgotten.

use anyhow::Result;
use c3po_coordinator::store::{Amendment, Removal, StoreError};
use c3po_shared::receipt::Via;
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::State;
use c3po_shared::wire::SessionChange;

use super::Fixture;
use super::fixture::{LEASE, SOON, claim, does, id, news, owner, speaking};
use super::owners::wish;

pub(crate) async fn an_unknown_agent_is_nobody(fixture: Fixture) -> Result<()> {
    assert_eq!(fixture.store.agent(&id("nobody")).await?, None);
    assert_eq!(
        fixture
            .store
            .amend(&id("nobody"), None, &Amendment::default())
            .await?,
        None
    );
    assert!(!fixture.store.unregister(&id("nobody"), None, None).await?);
    assert!(fixture.store.agents(None, 10).await?.is_empty());
    Ok(())
}

pub(crate) async fn agents_are_paged_by_id(fixture: Fixture) -> Result<()> {
    for name in ["c", "B", "a", "a-2", "a.b", "10"] {
        fixture.agent(name).await?;
    }
    let (mut after, mut names) = (None, Vec::new());
    for _ in 0..10 {
        let page = fixture.store.agents(after.as_ref(), 4).await?;
        assert!(page.len() <= 4);
        let Some(last) = page.last() else { break };
        after = Some(last.id.clone());
        names.extend(page.into_iter().map(|agent| agent.id.to_string()));
    }
    assert_eq!(names, ["10", "B", "a", "a-2", "a.b", "c"]);
    // A page may begin after a name that does not exist.
    let page = fixture.store.agents(Some(&id("b")), 4).await?;
    assert_eq!(page.len(), 1);
    Ok(())
}

/// Creates an amendment of every field that an agent changes itself.
fn amendment_of_everything() -> Amendment {
    Amendment {
        description: Some("home".into()),
        capabilities: Some(vec!["mqtt".into(), "lights".into()]),
        role: Some("triage".into()),
        current_task: Some("wiring".into()),
        session: SessionChange {
            state: Some(State::Busy),
            session_id: Some("second".into()),
            reach: Some(vec![Via::Stop, Via::InboxSocket]),
            context: Some(2),
            prompted: false,
        },
        attends: None,
    }
}

pub(crate) async fn an_amendment_changes_only_what_it_names(fixture: Fixture) -> Result<()> {
    fixture.agent("a").await?;
    let amend = async |amendment: &Amendment| fixture.store.amend(&id("a"), None, amendment).await;
    let first = amend(&amendment_of_everything()).await?.expect("it exists");
    assert_eq!(fixture.store.agent(&id("a")).await?.as_ref(), Some(&first));
    assert_eq!(
        (first.description.as_deref(), first.role.as_deref()),
        (Some("home"), Some("triage"))
    );
    assert_eq!(
        (first.state, first.current_task.as_deref()),
        (State::Busy, Some("wiring"))
    );
    assert_eq!(
        (first.capabilities.len(), first.session_id.as_deref()),
        (2, Some("second"))
    );
    assert_eq!(
        (&first.reach[..], first.context),
        (&[Via::Stop, Via::InboxSocket][..], 2)
    );

    assert_eq!(amend(&Amendment::default()).await?.as_ref(), Some(&first));
    let little = Amendment {
        capabilities: Some(Vec::new()),
        current_task: Some(String::new()),
        ..Amendment::default()
    };
    let second = amend(&little).await?.expect("it exists");
    assert_eq!((second.capabilities.len(), second.current_task), (0, None));
    assert_eq!((second.reach, second.context), (first.reach, first.context));
    assert_eq!(
        (second.description, second.role, second.state),
        (first.description, first.role, first.state)
    );
    let none = Amendment {
        description: Some(String::new()),
        ..Amendment::default()
    };
    assert_eq!(
        amend(&none).await?.and_then(|agent| agent.description),
        None
    );
    Ok(())
}

pub(crate) async fn a_prompt_is_noted_with_its_time_until_the_next_one(
    fixture: Fixture,
) -> Result<()> {
    let tenure = fixture.agent("a").await?;
    let prompted = || {
        Amendment::from(SessionChange {
            prompted: true,
            ..SessionChange::default()
        })
    };
    let prompted_at = async || {
        anyhow::Ok(
            fixture
                .store
                .agent(&id("a"))
                .await?
                .and_then(|agent| agent.prompted_at),
        )
    };
    assert_eq!(prompted_at().await?, None);
    let before = Timestamp::now();
    let agent = fixture
        .store
        .amend(&id("a"), Some(&speaking(&tenure)), &prompted())
        .await?
        .expect("it exists");
    let first = agent.prompted_at.expect("it was just typed");
    assert!(
        first.since(before) < SOON && before.since(first) < SOON,
        "{first}"
    );
    fixture
        .store
        .amend(
            &id("a"),
            Some(&speaking(&tenure)),
            &does(State::Busy).into(),
        )
        .await?;
    assert_eq!(
        prompted_at().await?,
        Some(first),
        "another change is not a prompt"
    );
    fixture
        .store
        .amend(&id("a"), Some(&speaking(&tenure)), &prompted())
        .await?;
    assert!(prompted_at().await? >= Some(first));
    Ok(())
}

pub(crate) async fn a_person_is_introduced_without_a_session(fixture: Fixture) -> Result<()> {
    let person = fixture.introduce("human", Some("nas2")).await?;
    assert!(!person.is_online(Timestamp::now()));
    assert_eq!(person.host.as_deref(), Some("nas2"));
    let again = fixture.introduce("human", Some("nas2")).await?;
    assert_eq!(
        (again.uid, again.registered_at),
        (person.uid, person.registered_at)
    );
    assert!(again.last_seen >= person.last_seen);
    fixture.post(news("a", "human", "hello")).await?;
    assert_eq!(fixture.inbox("human").await?, ["hello"]);

    // Introducing an agent that has a session does not affect the session.
    let tenure = fixture.agent("a").await?;
    let elsewhere = fixture.introduce("a", Some("elsewhere")).await;
    assert!(elsewhere.is_err(), "it is of nas2: {elsewhere:?}");
    let agent = fixture.introduce("a", Some("nas2")).await?;
    assert_eq!(agent.host.as_deref(), Some("nas2"));
    assert_eq!(
        (agent.uid, agent.generation, agent.instance),
        (tenure.uid, 1, tenure.instance)
    );
    assert!(agent.is_online(Timestamp::now()));
    Ok(())
}

pub(crate) async fn unregister_forgets_an_agent_with_an_empty_inbox(
    fixture: Fixture,
) -> Result<()> {
    let old = fixture.agent("a").await?;
    assert!(fixture.store.unregister(&id("a"), None, None).await?);
    assert_eq!(fixture.store.agent(&id("a")).await?, None);
    assert!(!fixture.store.unregister(&id("a"), None, None).await?);
    assert_ne!(fixture.take(&claim("a")).await?.uid, old.uid);
    Ok(())
}

pub(crate) async fn an_agent_is_ended_by_its_own_host_alone(fixture: Fixture) -> Result<()> {
    let (cron, web) = (id("cron"), id("web"));
    fixture.introduce("cron", Some("nas")).await?;
    let held = fixture.take(&wish("web", owner("web", "nas", 1))).await?;
    for name in [&cron, &web] {
        let ended = fixture.store.unregister(name, Some("laptop"), None).await;
        assert!(
            matches!(&ended, Err(StoreError::Reserved { host, .. }) if host == "nas"),
            "{ended:?}"
        );
        let removed = fixture
            .store
            .remove(name, Some("laptop"), false, None)
            .await;
        assert!(
            matches!(&removed, Err(StoreError::Reserved { host, .. }) if host == "nas"),
            "{removed:?}"
        );
    }
    assert!(fixture.store.renew(&held, LEASE).await?);
    assert!(fixture.store.unregister(&web, Some("nas"), None).await?);
    assert_eq!(
        fixture
            .store
            .remove(&cron, Some("nas"), false, None)
            .await?,
        Removal::Removed
    );
    Ok(())
}

pub(crate) async fn unregister_keeps_an_agent_with_mail(fixture: Fixture) -> Result<()> {
    let old = fixture.agent("a").await?;
    fixture.say("b", "a", "hello").await?;
    assert!(fixture.store.unregister(&id("a"), None, None).await?);
    let agent = fixture
        .store
        .agent(&id("a"))
        .await?
        .expect("its mail keeps it");
    assert!(!agent.is_online(Timestamp::now()));
    let new = fixture.take(&claim("a")).await?;
    assert_eq!(new.uid, old.uid);
    assert_eq!(fixture.inbox("a").await?, ["hello"]);
    Ok(())
}
