//! Speakers: a store acts for a caller as long as that may act as its agent, checked in the step of the act.

use anyhow::Result;
use c3po_coordinator::store::{
    AnswerOutcome, Conclusion, Ending, Send, SendOutcome, Speaker, StoreError, Tenure, Wake,
};
use c3po_shared::message::Message;
use c3po_shared::receipt::{Stage, Via};
use tokio::sync::broadcast;

use super::Fixture;
use super::fixture::{LEASE, claim, id, message, news, reply, send};

fn of(speaker: &Speaker, message: Message) -> Send {
    Send {
        speaker: Some(speaker.clone()),
        ..send(message)
    }
}

/// Every act of agent `a` as that speaker, about a question of `a` to `b` and one of `b` to `a`. Returns the first that is not
/// refused like that.
async fn acts(
    fixture: &Fixture,
    speaker: &Speaker,
    [asked, other]: [&Message; 2],
    is_refusal: impl Fn(&StoreError) -> bool,
) -> Result<Option<&'static str>> {
    let store = &fixture.store;
    let conclusion = Conclusion {
        asker: id("a"),
        question: asked.id.clone(),
        stage: Stage::Withdrawn,
        via: Via::Terminal,
        key: None,
        speaker: Some(speaker.clone()),
    };
    let send = |message| async { store.send(&of(speaker, message)).await.err() };
    let refused = [
        ("send", send(message("a", "b", "forged")).await),
        ("ask", send(message("a", "human", "forged")).await),
        ("notify", send(news("a", "human", "forged")).await),
        (
            "answer",
            store
                .answer(&of(speaker, reply(other, "forged")))
                .await
                .err(),
        ),
        ("conclude", store.conclude(&conclusion).await.err()),
    ];
    let done = |(act, error): (&'static str, Option<StoreError>)| {
        (!error.is_some_and(|error| is_refusal(&error))).then_some(act)
    };
    Ok(refused.into_iter().find_map(done))
}

pub(crate) async fn an_outdated_session_sends_answers_and_concludes_nothing(
    fixture: Fixture,
) -> Result<()> {
    let old = fixture.agent("a").await?;
    fixture.agent("b").await?;
    fixture.introduce("human", None).await?;
    let asked = fixture.say("a", "b", "mine?").await?;
    let other = fixture.say("b", "a", "yours?").await?;
    let speaker = Speaker::Session(old.clone());
    let before = of(&speaker, message("a", "b", "hello"));
    assert_eq!(fixture.store.send(&before).await?, SendOutcome::Stored);

    fixture.store.release(&old, Ending::Goodbye).await?;
    fixture.agent("a").await?;
    let is_taken = |error: &StoreError| matches!(error, StoreError::TakenOver(a) if *a == id("a"));
    let done = acts(&fixture, &speaker, [&asked, &other], is_taken).await?;
    assert_eq!(done, None);
    let waits = fixture.store.await_answer(&asked.id, Some(&old), LEASE);
    assert!(matches!(waits.await, Err(error) if is_taken(&error)));
    let again = fixture.store.send(&before).await;
    assert!(matches!(&again, Err(error) if is_taken(error)), "{again:?}");
    assert_eq!(fixture.inbox("b").await?, ["mine?", "hello"]);
    assert_eq!(fixture.pending("human").await?, 0);
    Ok(())
}

pub(crate) async fn a_session_whose_hold_ran_out_goes_on_while_nobody_took_its_agent(
    fixture: Fixture,
) -> Result<()> {
    let tenure = fixture.pair().await?;
    fixture.store.release(&tenure, Ending::Gone).await?;
    let speaker = Speaker::Session(tenure);
    let sent = of(&speaker, message("b", "a", "still here"));
    assert_eq!(fixture.store.send(&sent).await?, SendOutcome::Stored);
    let question = fixture.say("a", "b", "really?").await?;
    let answered = of(&speaker, reply(&question, "yes"));
    let outcome = fixture.store.answer(&answered).await?;
    assert_eq!(outcome, AnswerOutcome::Sent(SendOutcome::Stored));
    Ok(())
}

pub(crate) async fn a_command_acts_as_an_agent_of_its_own_host_alone(
    fixture: Fixture,
) -> Result<()> {
    for name in ["a", "b"] {
        fixture.introduce(name, Some("nas")).await?;
    }
    fixture.introduce("human", None).await?;
    let asked = fixture.say("a", "b", "mine?").await?;
    let other = fixture.say("b", "a", "yours?").await?;
    let foreign = Speaker::OfHost(id("a"), "laptop".into());
    let is_reserved =
        |error: &StoreError| matches!(error, StoreError::Reserved { host, .. } if host == "nas");
    let done = acts(&fixture, &foreign, [&asked, &other], is_reserved).await?;
    assert_eq!(done, None);
    let own = Speaker::OfHost(id("a"), "nas".into());
    let sent = of(&own, message("a", "b", "hello"));
    assert_eq!(fixture.store.send(&sent).await?, SendOutcome::Stored);
    Ok(())
}

pub(crate) async fn nothing_is_sent_as_an_agent_that_is_gone(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    fixture.introduce("human", None).await?;
    let gone = Speaker::OfHost(id("gone"), "nas".into());
    for to in ["human", "b"] {
        let sent = of(&gone, message("gone", to, "May I?"));
        let refused = fixture.store.send(&sent).await;
        assert!(
            matches!(&refused, Err(StoreError::TakenOver(from)) if *from == id("gone")),
            "{refused:?}"
        );
    }
    Ok(())
}

/// Returns the session for which the next message to the agent arrives.
async fn arrival(wakes: &mut broadcast::Receiver<Wake>, agent: &str) -> Result<(u64, uuid::Uuid)> {
    loop {
        if let Wake::Inbox(to, Some(arrival)) = wakes.recv().await?
            && to == id(agent)
        {
            return Ok(arrival.session);
        }
    }
}

pub(crate) async fn a_message_arrives_for_the_session_that_holds_its_recipient(
    fixture: Fixture,
) -> Result<()> {
    let old = fixture.pair().await?;
    let mut wakes = fixture.store.wakes();
    let of = |tenure: &Tenure| (tenure.generation, tenure.instance);
    let question = fixture.say("b", "a", "yours?").await?;
    fixture.say("a", "b", "hello").await?;
    assert_eq!(arrival(&mut wakes, "b").await?, of(&old));
    fixture.store.release(&old, Ending::Goodbye).await?;
    let new = fixture.take(&claim("b")).await?;
    fixture.answer(&question, "mine").await?;
    assert_eq!(arrival(&mut wakes, "b").await?, of(&new));
    fixture.store.unregister(&id("b"), None, None).await?;
    assert!(!fixture.store.renew(&new, LEASE).await?);
    fixture.say("a", "b", "for later").await?;
    assert_eq!(arrival(&mut wakes, "b").await?, (2, uuid::Uuid::nil()));
    Ok(())
}
