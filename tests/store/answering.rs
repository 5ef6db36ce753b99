//! Answers: the first one wins and settles the question in the same step; a reply that cannot be sent settles nothing.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use c3po_coordinator::store::{AnswerOutcome, Send, SendOutcome};
use c3po_shared::receipt::{Stage, Via};
use harness::eventually::eventually;
use tokio::task::JoinSet;

use super::Fixture;
use super::fixture::{SOON, again, brief, id, message, reply, send};

const STORED: AnswerOutcome = AnswerOutcome::Sent(SendOutcome::Stored);

pub(crate) async fn a_reply_settles_the_question_and_lands_with_the_asker(
    fixture: Fixture,
) -> Result<()> {
    fixture.pair().await?;
    let question = fixture.say("a", "b", "question").await?;
    let reply = reply(&question, "reply");
    assert_eq!(fixture.store.answer(&send(reply.clone())).await?, STORED);
    assert_eq!(
        (fixture.pending("b").await?, fixture.inbox("a").await?),
        (0, vec!["reply".into()])
    );
    assert!(fixture.inbox("b").await?.is_empty() && fixture.unshown("b").await?.is_empty());

    let kept = fixture
        .store
        .message(&question.id)
        .await?
        .expect("the archive keeps it");
    assert_eq!(
        (kept.message, kept.reply.as_ref()),
        (question, Some(&reply.id))
    );
    let last = kept.history.last().expect("a history has a first step");
    assert_eq!(
        (last.stage, last.via, last.reply_id.as_ref()),
        (Stage::Answered, Some(Via::Reply), Some(&reply.id))
    );
    assert_eq!(
        fixture
            .store
            .message(&reply.id)
            .await?
            .map(|kept| kept.message),
        Some(reply)
    );
    Ok(())
}

pub(crate) async fn the_first_of_50_racing_answers_wins(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    let question = fixture.say("a", "b", "question").await?;
    let mut tasks = JoinSet::new();
    for n in 0..50 {
        let (store, answer) = (
            Arc::clone(&fixture.store),
            send(reply(&question, &n.to_string())),
        );
        tasks.spawn(async move { (answer.message.id.clone(), store.answer(&answer).await) });
    }
    let outcomes = tasks.join_all().await;
    let first = fixture
        .store
        .message(&question.id)
        .await?
        .and_then(|kept| kept.reply)
        .expect("one has won");
    for (reply, outcome) in outcomes {
        let expected = if reply == first {
            STORED
        } else {
            AnswerOutcome::AlreadyAnswered(first.clone())
        };
        assert_eq!(outcome?, expected);
    }
    assert_eq!(fixture.pending("a").await?, 1);
    assert_eq!(
        fixture.stages(&question.id).await?,
        [Stage::Stored, Stage::Answered]
    );
    Ok(())
}

pub(crate) async fn the_same_answering_call_answers_once(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    let question = fixture.say("a", "b", "question").await?;
    let first = send(reply(&question, "reply"));
    let again = Send {
        message: reply(&question, "reply, made again"),
        ..first.clone()
    };
    assert_eq!(fixture.store.answer(&first).await?, STORED);
    let repeated = AnswerOutcome::Sent(SendOutcome::Repeated(Box::new(first.message.clone())));
    assert_eq!(fixture.store.answer(&again).await?, repeated);
    fixture.acknowledge(&first.message).await?;
    assert_eq!(fixture.store.answer(&again).await?, repeated);
    assert_eq!(
        fixture.stages(&question.id).await?,
        [Stage::Stored, Stage::Answered]
    );
    Ok(())
}

pub(crate) async fn only_the_recipient_answers(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    fixture.agent("c").await?;
    let question = fixture.say("a", "b", "question").await?;
    let mut of_another = reply(&question, "not mine to answer");
    of_another.from_agent = id("c");
    assert_eq!(
        fixture.store.answer(&send(of_another)).await?,
        AnswerOutcome::NotFound
    );
    let never_sent = message("a", "b", "never sent");
    assert_eq!(
        fixture.answer(&never_sent, "to nothing").await?,
        AnswerOutcome::NotFound
    );
    assert_eq!(
        (fixture.pending("a").await?, fixture.pending("b").await?),
        (0, 1)
    );
    Ok(())
}

pub(crate) async fn a_reply_to_a_full_inbox_leaves_the_question_open(
    fixture: Fixture,
) -> Result<()> {
    fixture.pair().await?;
    let question = fixture.say("a", "b", "question").await?;
    let other = fixture.say("b", "a", "fills the inbox").await?;
    let answer = Send {
        bound: 1,
        ..send(reply(&question, "reply"))
    };
    assert_eq!(
        fixture.store.answer(&answer).await?,
        AnswerOutcome::Sent(SendOutcome::Full(1))
    );
    assert_eq!(
        (fixture.inbox("b").await?, fixture.inbox("a").await?),
        (vec!["question".into()], vec![other.text().into()])
    );
    assert_eq!(fixture.stages(&question.id).await?, [Stage::Stored]);
    fixture.acknowledge(&other).await?;
    assert_eq!(fixture.store.answer(&answer).await?, STORED);
    assert_eq!(
        (fixture.pending("b").await?, fixture.inbox("a").await?),
        (0, vec!["reply".into()])
    );
    Ok(())
}

pub(crate) async fn a_reply_to_nobody_leaves_the_question_open(fixture: Fixture) -> Result<()> {
    fixture.agent("b").await?;
    let question = fixture.say("gone", "b", "question").await?;
    let outcome = fixture.answer(&question, "reply").await?;
    assert_eq!(outcome, AnswerOutcome::Sent(SendOutcome::NoSuchAgent));
    assert_eq!(fixture.inbox("b").await?, ["question"]);
    assert_eq!(
        fixture
            .store
            .message(&question.id)
            .await?
            .and_then(|kept| kept.reply),
        None
    );
    Ok(())
}

/// The next agent of a name that was freed gets no answers to the messages of the one before, unless it is of the same host.
pub(crate) async fn a_reply_goes_to_no_later_agent_of_another_host(fixture: Fixture) -> Result<()> {
    fixture.agent("b").await?;
    fixture.introduce("a", Some("nas2")).await?;
    let question = fixture.say("a", "b", "question").await?;
    for (host, expected) in [
        ("laptop", SendOutcome::NoSuchAgent),
        ("nas2", SendOutcome::Stored),
    ] {
        // An agent of the same millisecond may have asked.
        tokio::time::sleep(Duration::from_millis(5)).await;
        fixture.store.remove(&id("a"), None, true, None).await?;
        fixture.introduce("a", Some(host)).await?;
        let outcome = fixture.answer(&question, host).await?;
        assert_eq!(outcome, AnswerOutcome::Sent(expected), "{host}");
    }
    assert_eq!(fixture.inbox("a").await?, ["nas2"]);
    Ok(())
}

pub(crate) async fn an_acknowledged_or_expired_question_can_still_be_answered(
    fixture: Fixture,
) -> Result<()> {
    fixture.pair().await?;
    let acknowledged = fixture.say("a", "b", "acknowledged").await?;
    fixture.acknowledge(&acknowledged).await?;
    let expired = fixture.post(brief("a", "b", "expired")).await?;
    let out = async || (fixture.pending("b").await.ok()? == 0).then_some(());
    eventually("the question's time is over", SOON, out).await?;
    for question in [acknowledged, expired] {
        assert_eq!(fixture.answer(&question, question.text()).await?, STORED);
        assert_eq!(
            fixture.stages(&question.id).await?.last(),
            Some(&Stage::Answered)
        );
    }
    assert_eq!(fixture.inbox("a").await?, ["acknowledged", "expired"]);
    assert_eq!(fixture.pending("b").await?, 0);
    Ok(())
}

pub(crate) async fn a_call_that_sent_something_else_answers_nothing(
    fixture: Fixture,
) -> Result<()> {
    fixture.pair().await?;
    let question = fixture.say("a", "b", "which?").await?;
    let other = send(message("b", "a", "something else"));
    assert_eq!(fixture.store.send(&other).await?, SendOutcome::Stored);
    let outcome = fixture
        .store
        .answer(&again(&other, reply(&question, "this one")))
        .await?;
    assert_eq!(
        outcome,
        AnswerOutcome::Sent(SendOutcome::Repeated(Box::new(other.message)))
    );
    assert_eq!(
        fixture.stages(&question.id).await?,
        [Stage::Stored],
        "the question is open"
    );
    assert_eq!(
        fixture.answer(&question, "this one").await?,
        AnswerOutcome::Sent(SendOutcome::Stored)
    );
    Ok(())
}
