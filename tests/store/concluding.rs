//! The outcome of a question: withdrawn while it is open, or taken and applied after its answer.

use anyhow::{Context, Result};
use c3po_coordinator::store::{AnswerOutcome, Conclusion, SendOutcome};
use c3po_shared::message::Message;
use c3po_shared::receipt::{Stage, Via, refused_answer};
use c3po_shared::refusal::ErrorCode;

use super::Fixture;
use super::fixture::{brief, id, woken};

impl Fixture {
    pub(crate) async fn conclude(
        &self,
        asker: &str,
        question: &Message,
        stage: Stage,
    ) -> Result<Option<bool>> {
        let conclusion = Conclusion {
            asker: id(asker),
            question: question.id.clone(),
            stage,
            via: Via::Terminal,
            key: None,
            speaker: None,
        };
        Ok(self.store.conclude(&conclusion).await?)
    }
}

pub(crate) async fn a_withdrawn_question_leaves_the_inbox_and_takes_no_answer(
    fixture: Fixture,
) -> Result<()> {
    fixture.pair().await?;
    let question = fixture.say("a", "b", "question").await?;
    let mut wakes = fixture.store.wakes();
    for stage in [Stage::Taken, Stage::Applied] {
        assert_eq!(fixture.conclude("a", &question, stage).await?, Some(false));
    }
    assert_eq!(
        fixture.conclude("b", &question, Stage::Withdrawn).await?,
        None
    );
    assert_eq!(
        fixture.conclude("a", &question, Stage::Withdrawn).await?,
        Some(true)
    );
    woken(&mut wakes, "a").await?;
    assert_eq!(
        fixture.conclude("a", &question, Stage::Withdrawn).await?,
        Some(false),
        "once"
    );
    assert_eq!(
        (fixture.pending("b").await?, fixture.inbox("b").await?.len()),
        (0, 0)
    );
    assert_eq!(
        fixture.answer(&question, "late").await?,
        AnswerOutcome::Withdrawn
    );
    assert_eq!(fixture.pending("a").await?, 0, "no answer came");
    assert_eq!(
        fixture.stages(&question.id).await?,
        [Stage::Stored, Stage::Withdrawn]
    );
    Ok(())
}

pub(crate) async fn a_question_that_only_its_terminal_decides_stays_so(
    fixture: Fixture,
) -> Result<()> {
    fixture.pair().await?;
    let question = fixture.say("a", "b", "question").await?;
    let time_out = Conclusion {
        asker: id("a"),
        question: question.id.clone(),
        stage: Stage::Withdrawn,
        via: Via::TimeOut,
        key: None,
        speaker: None,
    };
    assert_eq!(fixture.store.conclude(&time_out).await?, Some(true));
    assert_eq!(
        fixture.answer(&question, "late").await?,
        AnswerOutcome::Withdrawn
    );
    assert_eq!(
        fixture.conclude("a", &question, Stage::Withdrawn).await?,
        Some(false),
        "a decision at the terminal changes nothing"
    );
    let kept = fixture.store.message(&question.id).await?;
    let history = kept.context("the question")?.history;
    let refusal = refused_answer(&question.id, &history);
    assert_eq!(
        refusal.map(|refusal| refusal.code),
        Some(ErrorCode::TooLate)
    );
    Ok(())
}

pub(crate) async fn an_answer_is_taken_and_applied_once_in_order(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    let question = fixture.say("a", "b", "question").await?;
    let answered = fixture.answer(&question, "answer").await?;
    assert_eq!(answered, AnswerOutcome::Sent(SendOutcome::Stored));
    let expected = [
        (Stage::Withdrawn, false),
        (Stage::Taken, true),
        (Stage::Taken, false),
        (Stage::Applied, true),
        (Stage::Applied, false),
        (Stage::Taken, false),
        (Stage::Withdrawn, false),
    ];
    for (stage, is_news) in expected {
        let concluded = fixture.conclude("a", &question, stage).await?;
        assert_eq!(concluded, Some(is_news), "{stage}");
    }
    let stages = fixture.stages(&question.id).await?;
    assert_eq!(
        stages,
        [Stage::Stored, Stage::Answered, Stage::Taken, Stage::Applied]
    );
    Ok(())
}

pub(crate) async fn an_expired_question_is_not_withdrawn(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    let question = fixture.post(brief("a", "b", "question")).await?;
    let expires = question.expires_at.since(question.timestamp);
    tokio::time::sleep(expires).await;
    assert_eq!(
        fixture.conclude("a", &question, Stage::Withdrawn).await?,
        Some(false)
    );
    let stages = fixture.stages(&question.id).await?;
    assert_eq!(stages, [Stage::Stored, Stage::Expired]);
    Ok(())
}
