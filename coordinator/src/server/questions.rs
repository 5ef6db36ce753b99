//! REST v1 about questions to people: what waits, one question with its receipt, and answers.

use aide::axum::routing::{get, post};
use axum::extract::State;
use c3po_shared::catalogue::Sent;
use c3po_shared::message::Message;
use c3po_shared::question::AnswerContent;
use c3po_shared::receipt::{Stage, Step, furthest};
use schemars::JsonSchema;
use serde::Serialize;

use super::AppState;
use super::endpoint::{Access, Body, By, Charged, InPath, Refused, Table};
use super::v1::{Called, Created, OneMessage};
use crate::auth::Right::Answer;
use crate::request::{self, room_for_texts};

/// Adds the paths about questions.
pub(super) fn routes(table: Table) -> Table {
    const ANSWERS: Access = Access::by(Answer);
    let one = "One question to people, with its stages and its answer";
    table
        .row(
            "/api/v1/questions",
            ANSWERS,
            "The open questions to people, oldest first",
            get(list),
        )
        .row("/api/v1/questions/{id}", ANSWERS, one, get(show))
        .row(
            "/api/v1/questions/{id}/answer",
            ANSWERS,
            "Answer a question, or give a verdict on a request of a client",
            post(answer),
        )
}

/// The open questions.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Questions {
    /// Oldest first. Each has its parts in `question`.
    questions: Vec<Message>,
}

/// One question.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct QuestionShown {
    /// The question, with its parts in `question`.
    message: Message,
    /// The stage that sums up its history.
    stage: Stage,
    /// The stages that it has reached.
    history: Vec<Step>,
    /// The reply with the answer, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    reply: Option<Message>,
}

async fn list(
    State(server): State<AppState>,
    By(principal): By,
) -> Result<Charged<Questions>, Refused> {
    let charge = room_for_texts(&server.services, &principal).await?;
    let questions = request::open_questions(&server.services, &principal).await?;
    Ok(Charged(Questions { questions }, charge))
}

async fn show(
    State(server): State<AppState>,
    By(principal): By,
    InPath(OneMessage { id }): InPath<OneMessage>,
) -> Result<Charged<QuestionShown>, Refused> {
    let charge = room_for_texts(&server.services, &principal).await?;
    let asked = request::show_question(&server.services, &principal, &id).await?;
    let shown = QuestionShown {
        stage: furthest(&asked.history),
        message: asked.message,
        history: asked.history,
        reply: asked.reply,
    };
    Ok(Charged(shown, charge))
}

async fn answer(
    State(server): State<AppState>,
    By(principal): By,
    Called(call): Called,
    InPath(OneMessage { id }): InPath<OneMessage>,
    Body(content): Body<AnswerContent>,
) -> Result<Created<Sent>, Refused> {
    let sent = request::answer(&server.services, &principal, call, &id, content).await?;
    Ok(Created(None, sent))
}
