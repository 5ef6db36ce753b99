//! REST v1 about questions to people: the open ones, one with its receipt, and answers.

use axum::Json;
use axum::extract::State;
use c3po_shared::catalogue::{Sent, Tracked};
use c3po_shared::message::Message;
use c3po_shared::question::{AnswerContent, WAITING_PATH, Waiting};
use c3po_shared::receipt::{Stage, Step, Via, furthest};
use c3po_shared::refusal::Refusal;
use c3po_shared::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AppState;
use super::endpoint::{
    Access, Body, By, Charged, InPath, Query, Refused, RestAnswer, Table, get, post,
};
use super::v1::{Called, Created, OneMessage};
use crate::auth::Right::Answer;
use crate::request::{self, room_for_texts};

/// The largest report of a page, in bytes.
const REPORT_MAX: usize = 1 << 10;

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
        .row(
            WAITING_PATH,
            ANSWERS,
            "How many questions wait for people, and the age of the oldest",
            get(waiting),
        )
        .row("/api/v1/questions/{id}", ANSWERS, one, get(show))
        .row(
            "/api/v1/questions/{id}/answer",
            ANSWERS,
            "Answer a question, or give a verdict on a request of a client",
            post(answer),
        )
        .row(
            "/api/v1/questions/{id}/receipt",
            ANSWERS,
            "Report that a page displayed a question, or that its person acted on it",
            post(receipt),
        )
}

/// The open questions.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Questions {
    /// Oldest first. Each has its parts in `question`.
    questions: Vec<Message>,
    /// The cursor of the next page, if there may be one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
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
    /// The message by which a person corrected the answer of a triage agent, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    correction: Option<Message>,
    /// Until when a person may correct the answer; absent if none may.
    #[serde(skip_serializing_if = "Option::is_none")]
    correctable_until: Option<Timestamp>,
}

/// A position in the list of open questions.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FromQuestion {
    /// `next_cursor` of the previous page.
    #[schemars(regex(pattern = "^[0-9]{1,19}$"))]
    cursor: Option<String>,
}

/// The report of a page about a question.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ShownOn {
    /// `in_session`: it was in the viewport of a visible page for a second. `seen`: the person acted on it.
    #[schemars(extend("enum" = ["in_session", "seen"]))]
    stage: Stage,
    /// `page`.
    #[schemars(extend("const" = "page"))]
    via: Via,
}

async fn list(
    State(server): State<AppState>,
    By(principal): By,
    Query(FromQuestion { cursor }): Query<FromQuestion>,
) -> Result<Charged<Questions>, Refused> {
    let after = cursor.as_deref().map_or(Ok(0), str::parse);
    let after = after.map_err(|_| Refusal::invalid("cursor must be that of a previous page"))?;
    let (page, charge) = request::open_questions(&server.services, &principal, after).await?;
    let questions = Questions {
        questions: page.questions,
        next_cursor: page.next.map(|next| next.to_string()),
    };
    Ok(Charged(questions, charge))
}

async fn waiting(State(server): State<AppState>, By(principal): By) -> RestAnswer<Waiting> {
    let waiting = request::waiting_questions(&server.services, &principal).await?;
    Ok(Json(waiting))
}

async fn show(
    State(server): State<AppState>,
    By(principal): By,
    InPath(OneMessage { id }): InPath<OneMessage>,
) -> Result<Charged<QuestionShown>, Refused> {
    let charge = room_for_texts(&server.services, &principal).await?;
    let services = &server.services;
    let asked = request::show_question(services, &principal, &id).await?;
    let correction = request::find_correction(services, &principal, &asked).await?;
    let shown = QuestionShown {
        stage: furthest(&asked.history),
        message: asked.message,
        history: asked.history,
        reply: asked.reply,
        correction: correction.message,
        correctable_until: correction.until,
    };
    Ok(Charged(shown, charge))
}

async fn answer(
    State(server): State<AppState>,
    By(principal): By,
    Called(call): Called,
    InPath(OneMessage { id }): InPath<OneMessage>,
    Body(content, _held): Body<AnswerContent>,
) -> Result<Created<Sent>, Refused> {
    let sent = request::answer(&server.services, &principal, call, &id, content).await?;
    Ok(Created(None, sent))
}

async fn receipt(
    State(server): State<AppState>,
    By(principal): By,
    InPath(OneMessage { id }): InPath<OneMessage>,
    Body(ShownOn { stage, via }, _held): Body<ShownOn, REPORT_MAX>,
) -> RestAnswer<Tracked> {
    let services = &server.services;
    let tracked = request::record_shown(services, &principal, &id, stage, via).await?;
    Ok(Json(tracked))
}
