//! The inbox of people: bounded open questions, and the latest notices.

use anyhow::Result;
use c3po_coordinator::store::SendOutcome;
use c3po_shared::limits::{NOTICES_MAX, QUESTIONS_MAX, QUESTIONS_PER_AGENT};
use c3po_shared::message::Message;
use c3po_shared::receipt::Stage;
use futures_util::future::try_join_all;

use super::Fixture;
use super::fixture::{brief, everything, id, message, send};

/// How many agents together reach the limit of questions.
const ASKERS: usize = QUESTIONS_MAX / QUESTIONS_PER_AGENT;

fn notice(from: &str, text: &str) -> Message {
    Message {
        requires_response: false,
        ..message(from, "human", text)
    }
}

impl Fixture {
    /// Sends as many questions of the agent as it may have open. Returns them.
    async fn ask_all(&self, from: &str) -> Result<Vec<Message>> {
        let questions = (0..QUESTIONS_PER_AGENT).map(|_| self.say(from, "human", "which one?"));
        try_join_all(questions).await
    }

    async fn ask_people(&self, from: &str) -> Result<SendOutcome> {
        let question = send(message(from, "human", "one more?"));
        Ok(self.store.send(&question).await?)
    }
}

pub(crate) async fn an_agent_has_so_many_open_questions_to_people(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    fixture.introduce("human", None).await?;
    let questions = fixture.ask_all("a").await?;
    let limit = QUESTIONS_PER_AGENT;
    let refused = SendOutcome::TooManyQuestions {
        count: limit,
        limit,
    };
    assert_eq!(fixture.ask_people("a").await?, refused);
    assert_eq!(
        fixture.ask_people("b").await?,
        SendOutcome::Stored,
        "another agent"
    );
    fixture.post(notice("a", "for your information")).await?;
    // An answered one and a withdrawn one do not count any more.
    fixture.answer(&questions[0], "this one").await?;
    assert_eq!(fixture.ask_people("a").await?, SendOutcome::Stored);
    assert_eq!(fixture.ask_people("a").await?, refused);
    let withdrawn = fixture
        .conclude("a", &questions[1], Stage::Withdrawn)
        .await?;
    assert_eq!(withdrawn, Some(true));
    let short = fixture.post(brief("a", "human", "quick?")).await?;
    tokio::time::sleep(short.expires_at.since(short.timestamp)).await;
    assert_eq!(
        fixture.ask_people("a").await?,
        SendOutcome::Stored,
        "it expired"
    );
    Ok(())
}

pub(crate) async fn of_many_racing_questions_to_people_as_many_are_stored_as_allowed(
    fixture: Fixture,
) -> Result<()> {
    fixture.agent("a").await?;
    fixture.introduce("human", None).await?;
    let racing = (0..2 * QUESTIONS_PER_AGENT).map(|_| fixture.ask_people("a"));
    let outcomes = try_join_all(racing).await?;
    let stored = outcomes
        .iter()
        .filter(|outcome| **outcome == SendOutcome::Stored);
    assert_eq!(stored.count(), QUESTIONS_PER_AGENT);
    assert_eq!(fixture.pending("human").await?, QUESTIONS_PER_AGENT);
    Ok(())
}

pub(crate) async fn people_have_so_many_open_questions_in_total(fixture: Fixture) -> Result<()> {
    fixture.introduce("human", None).await?;
    for number in 0..ASKERS {
        let asker = format!("a{number}");
        fixture.agent(&asker).await?;
        fixture.ask_all(&asker).await?;
    }
    fixture.agent("late").await?;
    let limit = QUESTIONS_MAX;
    let refused = SendOutcome::TooManyQuestions {
        count: limit,
        limit,
    };
    assert_eq!(fixture.ask_people("late").await?, refused);
    assert_eq!(fixture.pending("human").await?, QUESTIONS_MAX);
    Ok(())
}

pub(crate) async fn a_further_notice_replaces_the_oldest_and_no_question(
    fixture: Fixture,
) -> Result<()> {
    fixture.agent("a").await?;
    fixture.introduce("human", None).await?;
    let question = fixture.say("a", "human", "which one?").await?;
    let mut notices = Vec::new();
    for number in 0..NOTICES_MAX {
        notices.push(fixture.post(notice("a", &number.to_string())).await?);
    }
    assert_eq!(fixture.pending("human").await?, NOTICES_MAX + 1);
    let latest = fixture.post(notice("a", "the latest")).await?;
    assert_eq!(fixture.pending("human").await?, NOTICES_MAX + 1);
    assert_eq!(
        fixture.stages(&notices[0].id).await?,
        [Stage::Stored, Stage::Expired]
    );
    let selection = c3po_coordinator::store::Selection {
        limit: 2,
        ..everything()
    };
    let first = fixture.store.inbox(&id("human"), selection).await?;
    let first: Vec<_> = first.into_iter().map(|placed| placed.message.id).collect();
    assert_eq!(first, [question.id, notices[1].id.clone()]);
    assert_eq!(fixture.stages(&latest.id).await?, [Stage::Stored]);
    Ok(())
}
