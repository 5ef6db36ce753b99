//! Contexts of a session: a new context has been shown nothing, whatever arrives late, and messages that an older one had are
//! marked as repeated.

use anyhow::Result;
use c3po_coordinator::store::{Amendment, Claim, Ending, StoreError, Tenure};
use c3po_shared::message::Message;
use c3po_shared::receipt::{Stage, Via};
use c3po_shared::vocabulary::State;
use c3po_shared::wire::SessionChange;

use super::Fixture;
use super::fixture::{by, claim, context, everything, id, message, news, seen_at_once, speaking};

async fn enter(fixture: &Fixture, tenure: &Tenure, number: u64) -> Result<()> {
    fixture
        .store
        .amend(
            &tenure.agent,
            Some(&speaking(tenure)),
            &context(number).into(),
        )
        .await?;
    Ok(())
}

/// Returns the unshown messages, each with whether it is repeated.
async fn unshown(fixture: &Fixture, name: &str) -> Result<Vec<(String, bool)>> {
    let placed = fixture.store.unshown(&id(name), everything()).await?;
    Ok(placed
        .iter()
        .map(|placed| (placed.message.text().to_owned(), placed.message.repeated))
        .collect())
}

fn repeated(text: &str) -> (String, bool) {
    (text.to_owned(), true)
}

fn fresh(text: &str) -> (String, bool) {
    (text.to_owned(), false)
}

/// Returns a message as the store keeps it.
async fn kept(fixture: &Fixture, message: &Message) -> Result<Option<Message>> {
    let kept = fixture.store.message(&message.id).await?;
    Ok(kept.map(|kept| kept.message))
}

/// Returns the steps of a message with their sessions.
async fn steps(fixture: &Fixture, message: &Message) -> Result<Vec<(Stage, String)>> {
    let history = fixture
        .store
        .message(&message.id)
        .await?
        .map(|kept| kept.history)
        .unwrap_or_default();
    Ok(history
        .into_iter()
        .map(|step| (step.stage, step.session.unwrap_or_default()))
        .collect())
}

fn named(steps: &[(Stage, &str)]) -> Vec<(Stage, String)> {
    steps
        .iter()
        .map(|(stage, session)| (*stage, (*session).to_owned()))
        .collect()
}

pub(crate) async fn a_larger_context_is_shown_everything_again_and_no_other(
    fixture: Fixture,
) -> Result<()> {
    let tenure = fixture.pair().await?;
    let shown = fixture.say("a", "b", "shown").await?;
    fixture.say("a", "b", "waiting").await?;
    fixture
        .advance(&shown, &tenure, Stage::InSession, Via::Stop)
        .await?;
    assert_eq!(unshown(&fixture, "b").await?, [fresh("waiting")]);
    enter(&fixture, &tenure, 0).await?;
    assert_eq!(unshown(&fixture, "b").await?, [fresh("waiting")]);

    enter(&fixture, &tenure, 1).await?;
    assert_eq!(
        unshown(&fixture, "b").await?,
        [repeated("shown"), fresh("waiting")]
    );
    assert_eq!(
        fixture
            .store
            .agent(&id("b"))
            .await?
            .map(|agent| (agent.context, agent.generation)),
        Some((1, 1))
    );
    fixture
        .advance(&shown, &tenure, Stage::InSession, Via::Stop)
        .await?;
    for number in [1, 0] {
        enter(&fixture, &tenure, number).await?;
        assert_eq!(
            unshown(&fixture, "b").await?,
            [fresh("waiting")],
            "context {number} is not new"
        );
    }
    let expected = [
        (Stage::Stored, ""),
        (Stage::OnHost, "1"),
        (Stage::InSession, "1"),
        (Stage::InSession, "1.1"),
    ];
    assert_eq!(steps(&fixture, &shown).await?, named(&expected));
    assert_eq!(
        fixture.unshown("a").await?,
        Vec::<String>::new(),
        "nobody else is in another context"
    );
    Ok(())
}

pub(crate) async fn the_same_process_may_come_back_in_a_larger_context(
    fixture: Fixture,
) -> Result<()> {
    fixture.agent("a").await?;
    let wish = claim("b");
    let tenure = fixture.take(&wish).await?;
    let shown = fixture.say("a", "b", "shown").await?;
    fixture
        .advance(&shown, &tenure, Stage::InSession, Via::Stop)
        .await?;
    let later = Claim {
        context: 2,
        state: Some(State::Busy),
        ..wish.clone()
    };
    let again = fixture.take(&later).await?;
    assert_eq!(
        again,
        Tenure {
            link: again.link,
            ..tenure.clone()
        }
    );
    assert_eq!(unshown(&fixture, "b").await?, [repeated("shown")]);
    fixture
        .advance(&shown, &tenure, Stage::InSession, Via::Stop)
        .await?;
    for again in [later, wish] {
        assert_eq!(fixture.take(&again).await?.generation, tenure.generation);
        assert_eq!(unshown(&fixture, "b").await?, []);
        let agent = fixture.store.agent(&id("b")).await?.expect("it exists");
        assert_eq!(
            (agent.context, agent.state),
            (2, State::Busy),
            "a claim that names no state leaves it"
        );
    }
    Ok(())
}

pub(crate) async fn a_new_session_begins_in_the_context_that_it_says(
    fixture: Fixture,
) -> Result<()> {
    let first = fixture.pair().await?;
    let sent = fixture.say("a", "b", "hello").await?;
    fixture
        .advance_in(3, &sent, &first, Stage::InSession, Via::Stop)
        .await?;
    fixture.store.release(&first, Ending::Goodbye).await?;
    let second = fixture.take(&claim("b")).await?;
    let agent = fixture.store.agent(&id("b")).await?.expect("it exists");
    assert_eq!((agent.context, agent.state), (0, State::Starting));
    assert_eq!(unshown(&fixture, "b").await?, [repeated("hello")]);
    fixture
        .advance_in(0, &sent, &second, Stage::InSession, Via::Stop)
        .await?;
    assert_eq!(unshown(&fixture, "b").await?, []);

    fixture.store.release(&second, Ending::Goodbye).await?;
    let third = fixture
        .take(&Claim {
            context: 4,
            state: Some(State::Ready),
            ..claim("b")
        })
        .await?;
    let agent = fixture.store.agent(&id("b")).await?.expect("it exists");
    assert_eq!((agent.context, agent.state), (4, State::Ready));
    fixture
        .advance(&sent, &third, Stage::InSession, Via::Stop)
        .await?;
    let sessions: Vec<_> = steps(&fixture, &sent)
        .await?
        .into_iter()
        .map(|(_, session)| session)
        .collect();
    assert_eq!(sessions, ["", "1.3", "1.3", "2", "3.4"]);
    Ok(())
}

pub(crate) async fn a_late_receipt_of_an_older_context_shows_nothing_to_the_present_one(
    fixture: Fixture,
) -> Result<()> {
    let tenure = fixture.pair().await?;
    let sent = fixture.say("a", "b", "hello").await?;
    enter(&fixture, &tenure, 1).await?;
    for _ in 0..2 {
        fixture
            .advance_in(0, &sent, &tenure, Stage::InSession, Via::WaitForMessage)
            .await?;
        assert_eq!(unshown(&fixture, "b").await?, [repeated("hello")]);
    }
    fixture
        .advance_in(1, &sent, &tenure, Stage::InSession, Via::Stop)
        .await?;
    assert_eq!(unshown(&fixture, "b").await?, []);
    fixture
        .advance_in(0, &sent, &tenure, Stage::InSession, Via::WaitForMessage)
        .await?;
    assert_eq!(
        unshown(&fixture, "b").await?,
        [],
        "the present context has it, whatever arrives late"
    );
    let expected = [
        (Stage::Stored, ""),
        (Stage::OnHost, "1"),
        (Stage::InSession, "1"),
        (Stage::InSession, "1.1"),
    ];
    assert_eq!(steps(&fixture, &sent).await?, named(&expected));
    Ok(())
}

pub(crate) async fn a_receipt_of_a_newer_context_begins_it(fixture: Fixture) -> Result<()> {
    let tenure = fixture.pair().await?;
    let before = fixture.say("a", "b", "before").await?;
    fixture
        .advance(&before, &tenure, Stage::InSession, Via::Stop)
        .await?;
    let after = fixture.say("a", "b", "after").await?;
    fixture
        .advance_in(2, &after, &tenure, Stage::InSession, Via::Stop)
        .await?;
    assert_eq!(unshown(&fixture, "b").await?, [repeated("before")]);
    enter(&fixture, &tenure, 2).await?;
    assert_eq!(
        unshown(&fixture, "b").await?,
        [repeated("before")],
        "what it was shown already stays shown"
    );
    assert_eq!(
        steps(&fixture, &after).await?.last(),
        Some(&(Stage::InSession, "1.2".to_owned()))
    );
    Ok(())
}

pub(crate) async fn an_outdated_session_changes_nothing_of_the_record(
    fixture: Fixture,
) -> Result<()> {
    let old = fixture.pair().await?;
    let sent = fixture.say("a", "b", "hello").await?;
    fixture.store.release(&old, Ending::Goodbye).await?;
    let new = fixture.take(&claim("b")).await?;
    fixture
        .advance(&sent, &new, Stage::InSession, Via::Stop)
        .await?;
    let before = fixture.store.agent(&id("b")).await?;
    let everything = Amendment::from(SessionChange {
        state: Some(State::Blocked),
        reach: Some(vec![Via::Channel]),
        session_id: Some("old".into()),
        ..context(9)
    });
    let refused = fixture
        .store
        .amend(&id("b"), Some(&speaking(&old)), &everything)
        .await;
    assert!(matches!(refused, Err(StoreError::TakenOver(agent)) if agent == id("b")));
    let refused = fixture
        .advance_in(9, &sent, &old, Stage::InSession, Via::Stop)
        .await;
    assert!(refused.is_err());
    assert_eq!(fixture.store.agent(&id("b")).await?, before);
    assert_eq!(unshown(&fixture, "b").await?, []);

    let amended = fixture
        .store
        .amend(&id("b"), Some(&speaking(&new)), &everything)
        .await?
        .expect("it exists");
    assert_eq!(
        (amended.state, &amended.reach[..], amended.context),
        (State::Blocked, &[Via::Channel][..], 9)
    );
    Ok(())
}

pub(crate) async fn repeated_is_what_an_earlier_session_or_context_was_shown(
    fixture: Fixture,
) -> Result<()> {
    let tenure = fixture.pair().await?;
    let shown = fixture.say("a", "b", "shown").await?;
    let on_host = fixture.say("a", "b", "on the host").await?;
    fixture
        .advance(&shown, &tenure, Stage::InSession, Via::Stop)
        .await?;
    fixture
        .advance(&on_host, &tenure, Stage::OnHost, Via::Deliver)
        .await?;
    for sent in [&shown, &on_host] {
        assert!(
            !fixture
                .store
                .inbox(&id("b"), everything())
                .await?
                .iter()
                .any(|placed| placed.message.repeated)
        );
        assert_eq!(kept(&fixture, sent).await?.as_ref(), Some(sent));
    }

    fixture.store.release(&tenure, Ending::Goodbye).await?;
    let heir = fixture.take(&claim("b")).await?;
    let both = [repeated("shown"), fresh("on the host")];
    assert_eq!(unshown(&fixture, "b").await?, both);
    let inbox = fixture.store.inbox(&id("b"), everything()).await?;
    assert_eq!(
        inbox
            .iter()
            .map(|placed| placed.message.repeated)
            .collect::<Vec<_>>(),
        [true, false]
    );
    // The stored message is the same for every reader, always.
    assert_eq!(kept(&fixture, &shown).await?.as_ref(), Some(&shown));
    assert_eq!(
        fixture.thread(&shown.thread_id, "b").await?,
        std::slice::from_ref(&shown)
    );

    enter(&fixture, &heir, 1).await?;
    assert_eq!(
        unshown(&fixture, "b").await?,
        both,
        "what nobody was shown is new in every context"
    );
    Ok(())
}

pub(crate) async fn settled_messages_are_not_shown_to_a_new_context(
    fixture: Fixture,
) -> Result<()> {
    let tenure = fixture.pair().await?;
    let question = fixture.say("a", "b", "question").await?;
    let acknowledged = fixture.say("a", "b", "acknowledged").await?;
    let seen = fixture.post(news("a", "b", "news")).await?;
    for message in [&question, &acknowledged, &seen] {
        fixture
            .advance(message, &tenure, Stage::InSession, Via::Stop)
            .await?;
    }
    fixture
        .advance(&seen, &tenure, Stage::Seen, Via::Hook)
        .await?;
    fixture.answer(&question, "answer").await?;
    fixture.acknowledge(&acknowledged).await?;
    enter(&fixture, &tenure, 1).await?;
    assert_eq!(unshown(&fixture, "b").await?, []);
    assert_eq!(fixture.pending("b").await?, 0);
    Ok(())
}

pub(crate) async fn seen_needs_in_session_of_the_same_context(fixture: Fixture) -> Result<()> {
    let tenure = fixture.pair().await?;
    let sent = fixture.post(news("a", "b", "news")).await?;
    let never = message("a", "b", "never sent");
    for unshown in [&sent, &never] {
        fixture
            .advance(unshown, &tenure, Stage::Seen, Via::Hook)
            .await?;
    }
    assert_eq!(fixture.stages(&sent.id).await?, [Stage::Stored]);
    fixture
        .advance(&sent, &tenure, Stage::OnHost, Via::Deliver)
        .await?;
    fixture
        .advance(&sent, &tenure, Stage::Seen, Via::Hook)
        .await?;
    assert_eq!(
        fixture.stages(&sent.id).await?,
        [Stage::Stored, Stage::OnHost]
    );

    fixture
        .advance_in(0, &sent, &tenure, Stage::InSession, Via::Stop)
        .await?;
    enter(&fixture, &tenure, 1).await?;
    fixture
        .advance_in(1, &sent, &tenure, Stage::Seen, Via::Hook)
        .await?;
    fixture
        .advance(&sent, &tenure, Stage::Seen, Via::Hook)
        .await?;
    assert_eq!(
        fixture.stages(&sent.id).await?.last(),
        Some(&Stage::InSession),
        "the new context was not shown it"
    );
    assert_eq!(fixture.pending("b").await?, 1);
    // The model of the older context had continued after it: the receipt arrives late and is correct.
    fixture
        .advance_in(0, &sent, &tenure, Stage::Seen, Via::Hook)
        .await?;
    assert_eq!(
        steps(&fixture, &sent).await?.last(),
        Some(&(Stage::Seen, "1".to_owned()))
    );
    assert_eq!(fixture.pending("b").await?, 0);
    Ok(())
}

pub(crate) async fn a_combined_receipt_of_an_older_context_shows_nothing_to_the_present_one(
    fixture: Fixture,
) -> Result<()> {
    let tenure = fixture.pair().await?;
    let question = fixture.say("a", "b", "question").await?;
    let news = fixture.post(news("a", "b", "news")).await?;
    enter(&fixture, &tenure, 1).await?;
    let both = [question.id.clone(), news.id.clone()];
    fixture
        .store
        .advance(&id("b"), &by(&tenure), &seen_at_once(&both, 0))
        .await?;
    assert_eq!(
        unshown(&fixture, "b").await?,
        [repeated("question")],
        "the news is settled"
    );
    let expected = [
        (Stage::Stored, ""),
        (Stage::OnHost, "1"),
        (Stage::InSession, "1"),
        (Stage::Seen, "1"),
    ];
    for message in [&question, &news] {
        assert_eq!(steps(&fixture, message).await?, named(&expected));
    }
    // A receipt from a newer context starts that context.
    let later = fixture.say("a", "b", "later").await?;
    fixture
        .store
        .advance(
            &id("b"),
            &by(&tenure),
            &seen_at_once(std::slice::from_ref(&later.id), 2),
        )
        .await?;
    assert_eq!(unshown(&fixture, "b").await?, [repeated("question")]);
    assert_eq!(
        steps(&fixture, &later).await?.last(),
        Some(&(Stage::Seen, "1.2".to_owned()))
    );
    Ok(())
}

pub(crate) async fn a_history_keeps_the_first_and_the_latest_contexts(
    fixture: Fixture,
) -> Result<()> {
    let tenure = fixture.pair().await?;
    let sent = fixture.post(message("a", "b", "question")).await?;
    for number in 0..100 {
        fixture
            .advance_in(number, &sent, &tenure, Stage::InSession, Via::Stop)
            .await?;
    }
    fixture
        .advance_in(99, &sent, &tenure, Stage::Seen, Via::Hook)
        .await?;
    let kept = steps(&fixture, &sent).await?;
    assert_eq!(kept.len(), 2 + 8 + 1, "{kept:?}");
    assert_eq!(
        kept[..4],
        named(&[
            (Stage::Stored, ""),
            (Stage::OnHost, "1"),
            (Stage::InSession, "1"),
            (Stage::InSession, "1.93"),
        ])
    );
    assert_eq!(kept.last(), Some(&(Stage::Seen, "1.99".to_owned())));
    Ok(())
}
