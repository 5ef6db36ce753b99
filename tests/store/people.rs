//! The inbox of people: bounded open questions, and the latest notices.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use c3po_coordinator::store::{Actor, AnswerOutcome, OpenQuestion, SendOutcome};
use c3po_shared::ids::MessageId;
use c3po_shared::limits::{
    NOTICES_MAX, NOTICES_PER_HOST, QUESTIONS_MAX, QUESTIONS_PER_AGENT, QUESTIONS_PER_HOST,
};
use c3po_shared::message::Message;
use c3po_shared::receipt::Stage;
use futures_util::future::try_join_all;
use harness::eventually::eventually;

use super::Fixture;
use super::fixture::{SOON, brief, id, message, reply, send};

/// How many agents together reach the limit of questions.
const ASKERS: usize = QUESTIONS_MAX / QUESTIONS_PER_AGENT;

fn notice(from: &str, text: &str) -> Message {
    Message {
        requires_response: false,
        ..message(from, "human", text)
    }
}

fn of_host(host: &str, message: Message) -> Message {
    Message {
        from_host: Some(host.into()),
        ..message
    }
}

impl Fixture {
    /// Reads the open questions twice, because the second reading may be from memory.
    async fn open_questions(&self) -> Result<Arc<[OpenQuestion]>> {
        let open = self.store.open_questions().await?;
        assert_eq!(self.store.open_questions().await?, open);
        Ok(open)
    }

    /// Sends as many questions of the agent as it may have open. Returns them.
    async fn ask_all(&self, from: &str) -> Result<Vec<Message>> {
        self.ask_all_of(from, "h").await
    }

    async fn ask_all_of(&self, from: &str, host: &str) -> Result<Vec<Message>> {
        let question = || of_host(host, message(from, "human", "which one?"));
        try_join_all((0..QUESTIONS_PER_AGENT).map(|_| self.post(question()))).await
    }

    async fn ask_people(&self, from: &str) -> Result<SendOutcome> {
        self.ask_people_of(from, "h").await
    }

    async fn ask_people_of(&self, from: &str, host: &str) -> Result<SendOutcome> {
        let question = send(of_host(host, message(from, "human", "one more?")));
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

pub(crate) async fn people_have_so_many_open_questions_of_a_host_and_in_total(
    fixture: Fixture,
) -> Result<()> {
    fixture.introduce("human", None).await?;
    let of_host = QUESTIONS_PER_HOST / QUESTIONS_PER_AGENT;
    let refused = |limit| SendOutcome::TooManyQuestions {
        count: limit,
        limit,
    };
    for number in 0..ASKERS {
        let (asker, host) = (format!("a{number}"), format!("h{}", number / of_host));
        fixture.introduce(&asker, Some(&host)).await?;
        fixture.ask_all_of(&asker, &host).await?;
        if number == of_host - 1 {
            fixture.introduce("more", Some(&host)).await?;
            assert_eq!(
                fixture.ask_people_of("more", &host).await?,
                refused(QUESTIONS_PER_HOST)
            );
        }
    }
    fixture.introduce("late", Some("another")).await?;
    assert_eq!(
        fixture.ask_people_of("late", "another").await?,
        refused(QUESTIONS_MAX)
    );
    assert_eq!(fixture.pending("human").await?, QUESTIONS_MAX);
    Ok(())
}

pub(crate) async fn a_further_notice_replaces_the_oldest_of_its_host_and_no_question(
    fixture: Fixture,
) -> Result<()> {
    for (agent, host) in [("a", "h1"), ("a-2", "h1"), ("b", "h2")] {
        fixture.introduce(agent, Some(host)).await?;
    }
    fixture.introduce("human", None).await?;
    let question = fixture.say("a", "human", "which one?").await?;
    let alarm = fixture.post(notice("system", "somebody logged in")).await?;
    let other = of_host("h2", notice("b", "of another host"));
    let other = fixture.post(other).await?;
    let mut notices = Vec::new();
    for number in 0..NOTICES_PER_HOST {
        let from = ["a", "a-2"][number % 2];
        let notice = of_host("h1", notice(from, &number.to_string()));
        notices.push(fixture.post(notice).await?);
    }
    // Its notices count for the host all the same.
    fixture.store.remove(&id("a-2"), None, true, None).await?;
    let latest = of_host("h1", notice("a", "the latest"));
    let latest = fixture.post(latest).await?;
    assert_eq!(fixture.pending("human").await?, NOTICES_PER_HOST + 3);
    assert_eq!(
        fixture.stages(&notices[0].id).await?,
        [Stage::Stored, Stage::Expired]
    );
    for kept in [&question, &alarm, &other, &notices[1], &latest] {
        assert_eq!(fixture.stages(&kept.id).await?, [Stage::Stored]);
    }
    Ok(())
}

pub(crate) async fn beyond_the_limit_of_notices_those_of_the_coordinator_stay(
    fixture: Fixture,
) -> Result<()> {
    fixture.introduce("human", None).await?;
    let alarm = fixture.post(notice("system", "somebody logged in")).await?;
    let mut notices = Vec::new();
    for number in 0..NOTICES_MAX {
        let (agent, host) = (format!("a{}", number % 11), format!("h{}", number % 11));
        if number < 11 {
            fixture.introduce(&agent, Some(&host)).await?;
        }
        notices.push(fixture.post(of_host(&host, notice(&agent, "news"))).await?);
    }
    fixture.introduce("late", Some("another")).await?;
    fixture
        .post(of_host("another", notice("late", "news")))
        .await?;
    assert_eq!(fixture.pending("human").await?, NOTICES_MAX + 1);
    assert_eq!(
        fixture.stages(&notices[0].id).await?,
        [Stage::Stored, Stage::Expired]
    );
    assert_eq!(fixture.stages(&alarm.id).await?, [Stage::Stored]);
    Ok(())
}

pub(crate) async fn open_questions_to_people_are_listed_with_their_times(
    fixture: Fixture,
) -> Result<()> {
    fixture.pair().await?;
    fixture.introduce("human", None).await?;
    assert!(fixture.open_questions().await?.is_empty());
    let mut asked = fixture.ask_all("a").await?;
    assert_eq!(fixture.open_questions().await?.len(), asked.len());
    fixture.post(notice("a", "for your information")).await?;
    fixture.say("a", "b", "and you?").await?;
    asked.push(fixture.say("b", "human", "which one?").await?);
    let short = fixture.post(brief("b", "human", "quick?")).await?;
    assert_eq!(fixture.open_questions().await?.len(), asked.len() + 1);
    // One more and one less: as many as before, and others.
    let last = fixture.say("b", "human", "or that?").await?;
    fixture.answer(&asked[0], "this one").await?;
    let open = fixture.open_questions().await?;
    assert!(open.iter().any(|question| question.id == last.id));
    asked.push(last);
    fixture.conclude("a", &asked[1], Stage::Withdrawn).await?;
    tokio::time::sleep(short.expires_at.since(short.timestamp)).await;
    let open = fixture.open_questions().await?;
    // Questions that were sent at once have any order.
    let by_id = |id: &MessageId| asked.iter().find(|message| message.id == *id);
    assert_eq!(open.len(), asked.len() - 2);
    for question in &*open {
        let message = by_id(&question.id).expect("an open question");
        assert_eq!(question.asked_at, message.timestamp);
    }
    assert_eq!(
        open.last().map(|last| &last.id),
        asked.last().map(|last| &last.id)
    );
    Ok(())
}

pub(crate) async fn as_many_open_questions_as_there_can_be_are_listed(
    fixture: Fixture,
) -> Result<()> {
    fixture.introduce("human", None).await?;
    let mut asked = Vec::new();
    for number in 0..ASKERS {
        let (asker, host) = (format!("a{number}"), format!("h{}", number / 5));
        fixture.introduce(&asker, Some(&host)).await?;
        asked.extend(fixture.ask_all_of(&asker, &host).await?);
    }
    let open = fixture.open_questions().await?;
    let listed: HashSet<_> = open.iter().map(|question| &question.id).collect();
    let expected: HashSet<_> = asked.iter().map(|message| &message.id).collect();
    assert_eq!((listed, open.len()), (expected, QUESTIONS_MAX));
    Ok(())
}

pub(crate) async fn the_use_of_a_page_counts_for_its_time(fixture: Fixture) -> Result<()> {
    const TIME: Duration = Duration::from_secs(60);
    let store = &fixture.store;
    assert_eq!(store.page_use("ann").await?, Duration::ZERO);
    store.use_page("ann", TIME).await?;
    store.use_page("bob ☃", TIME / 2).await?;
    for (person, time) in [("ann", TIME), ("bob ☃", TIME / 2)] {
        let left = store.page_use(person).await?;
        assert!(left <= time && left > time / 2, "{person}: {left:?}");
    }
    // The latest use decides.
    store.use_page("ann", Duration::from_millis(1)).await?;
    eventually("it is over", SOON, async || {
        store.page_use("ann").await.ok()?.is_zero().then_some(())
    })
    .await?;
    assert!(store.page_use("bob ☃").await? > Duration::ZERO);
    Ok(())
}

pub(crate) async fn an_agent_whose_question_people_have_stays_until_it_is_answered_or_removed(
    fixture: Fixture,
) -> Result<()> {
    fixture.introduce("human", None).await?;
    for name in ["a", "b"] {
        fixture.introduce(name, Some("h")).await?;
        let question = fixture.say(name, "human", "which one?").await?;
        assert!(fixture.store.unregister(&id(name), None, None).await?);
        assert!(fixture.store.agent(&id(name)).await?.is_some(), "{name}");
        if name == "a" {
            let reply = send(reply(&question, "this one"));
            let answered = fixture.store.answer(&reply).await?;
            assert_eq!(answered, AnswerOutcome::Sent(SendOutcome::Stored));
            fixture
                .store
                .acknowledge(&id(name), &Actor::default(), &[reply.message.id])
                .await?;
            fixture.store.unregister(&id(name), None, None).await?;
        } else {
            fixture.store.remove(&id(name), None, true, None).await?;
            assert_eq!(
                fixture.stages(&question.id).await?,
                [Stage::Stored, Stage::Expired]
            );
        }
        assert!(fixture.store.agent(&id(name)).await?.is_none(), "{name}");
    }
    assert_eq!(fixture.pending("human").await?, 0);
    Ok(())
}
