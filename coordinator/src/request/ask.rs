//! Questions of agents to people, and notices for them: `ask_user`, `notify_user` and `escalate_to_human`.

use std::time::Duration;

use c3po_shared::catalogue::{self as tools, Reply, Sent, UserAnswer, waited};
use c3po_shared::ids::{AgentId, CallId, MessageId};
use c3po_shared::limits::ASK_DEFAULT;
use c3po_shared::policy::Verb;
use c3po_shared::question::Question;
use c3po_shared::refusal::Refusal;
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::{Kind, Priority};
use tokio::time::{Instant, timeout};

use super::deposit::{Accepted, Draft, deposit, take_turn};
use super::outcome::check_own;
use super::permission::Permission;
use super::receipts::own_message;
use super::wait::{self, Wanted};
use super::{CALL_DEADLINE, Caller, Done, Services, begin_call, begin_read, check_speaker, triage};
use crate::auth::Principal;
use crate::clock;
use crate::unfinished::Charge;

/// `ask_user`. The charge of its texts is held until they are stored.
pub(super) async fn ask_user(
    services: &Services,
    caller: &Caller,
    id: CallId,
    call: tools::AskUser,
    held: Option<Charge>,
) -> Result<Done, Refusal> {
    let deadline = Instant::now() + Duration::from_secs(call.timeout.unwrap_or(ASK_DEFAULT));
    // Before the question is stored, which waits for its turn too.
    let _counted = match call.wait {
        Some(false) => None,
        _ => Some(Principal::begin_wait(&caller.principal)?),
    };
    let (question, asked_at) = match (&call.question_id, call.as_question()) {
        (Some(question), _) => {
            check_speaker(services, caller).await?;
            (
                question.clone(),
                asked_at(services, caller, question).await?,
            )
        }
        (None, Some(question)) => {
            let (message, receipt) = ask(services, caller, id, &call, question).await?;
            if call.wait == Some(false) {
                return Ok(Reply::Sent(Sent { message, receipt }).into());
            }
            (message.id, message.timestamp)
        }
        (None, None) => return Err(Refusal::invalid("ask_user needs a question")),
    };
    let wanted = Wanted::OfPeople(question.clone());
    let advice = call.on_no_response.unwrap_or_default();
    // Its texts are stored.
    drop((call, held));
    match wait::until(services, caller, &wanted, deadline).await? {
        Some(done) => Ok(done),
        None => {
            let waited = waited(asked_at, clock::now());
            let outcome = UserAnswer::no_response(question, waited, advice);
            Ok(Reply::UserAnswer(Box::new(outcome)).into())
        }
    }
}

/// Returns when the caller asked a question.
async fn asked_at(
    services: &Services,
    caller: &Caller,
    question: &MessageId,
) -> Result<Timestamp, Refusal> {
    let _reading = begin_read(&caller.principal).await?;
    let looking = timeout(CALL_DEADLINE, own_message(services, caller, question)).await;
    let kept = looking.unwrap_or_else(|_| Err(Refusal::store_unavailable()))?;
    Ok(kept.message.timestamp)
}

/// Stores the question of the call, within the deadline of a call.
async fn ask(
    services: &Services,
    caller: &Caller,
    id: CallId,
    call: &tools::AskUser,
    question: Question,
) -> Result<Accepted, Refusal> {
    let _place = begin_call(&caller.principal).await?;
    let storing = async {
        check_speaker(services, caller).await?;
        let draft = Draft {
            context: call.context.clone(),
            priority: call.priority.unwrap_or(Priority::High),
            question: Some(Box::new(question)),
            ..draft(services, caller, Verb::Ask, call.question.clone()).await?
        };
        store(services, caller, id, &draft).await
    };
    let stored = timeout(CALL_DEADLINE, Box::pin(storing)).await;
    stored.unwrap_or_else(|_| Err(Refusal::store_unavailable()))
}

/// `notify_user`
pub(super) async fn notify_user(
    services: &Services,
    caller: &Caller,
    id: CallId,
    call: tools::NotifyUser,
) -> Result<Reply, Refusal> {
    let draft = Draft {
        title: call.title,
        priority: call.priority.unwrap_or(Priority::Low),
        requires_response: false,
        ..draft(services, caller, Verb::Notify, Some(call.message)).await?
    };
    let (message, receipt) = store(services, caller, id, &draft).await?;
    Ok(Reply::Sent(Sent { message, receipt }))
}

/// `escalate_to_human`
pub(super) async fn escalate(
    services: &Services,
    caller: &Caller,
    id: CallId,
    call: tools::EscalateToHuman,
) -> Result<Reply, Refusal> {
    if let Some(offer) = &call.question_id
        && let Some(question) = triage::offered(services, caller, offer).await?
    {
        let reply = pass_on(services, caller, id, &call, &question).await?;
        triage::pass_on(services, offer, &question).await?;
        return Ok(reply);
    }
    let question = Box::new(Question {
        escalated: true,
        ..call.as_question()
    });
    let priority = call.priority.unwrap_or(Priority::Urgent);
    let draft = match &call.question_id {
        Some(about) => {
            let kept = own_message(services, caller, about).await?;
            check_own(caller, &kept)?;
            Draft {
                id: Some(triage::escalation_id(about)),
                thread: Some(kept.message.thread_id),
                title: call.title.or_else(|| Some(format!("Escalated: {about}"))),
                priority,
                requires_response: false,
                ..draft(services, caller, Verb::Notify, Some(call.reason)).await?
            }
        }
        None => Draft {
            title: call.title,
            context: call.message.is_some().then(|| call.reason.clone()),
            priority,
            question: Some(question),
            ..draft(
                services,
                caller,
                Verb::Ask,
                call.message.or(Some(call.reason)),
            )
            .await?
        },
    };
    let (message, receipt) = store(services, caller, id, &draft).await?;
    if let Some(about) = &call.question_id {
        triage::take_back(services, caller, about).await?;
    }
    Ok(Reply::Sent(Sent { message, receipt }))
}

/// Leaves the reason of a triage agent in the thread of the question that it passes on.
async fn pass_on(
    services: &Services,
    caller: &Caller,
    id: CallId,
    call: &tools::EscalateToHuman,
    question: &MessageId,
) -> Result<Reply, Refusal> {
    let kept = services.message(&caller.principal, question).await?;
    let kept = kept.ok_or_else(|| Refusal::message_not_found(question))?;
    let text = Some(call.reason.clone());
    let draft = Draft {
        thread: Some(kept.message.thread_id),
        title: Some(format!("Escalated by triage/{}: {question}", caller.agent)),
        priority: call.priority.unwrap_or(Priority::Normal),
        requires_response: false,
        ..draft(services, caller, Verb::Notify, text).await?
    };
    let (message, receipt) = store(services, caller, id, &draft).await?;
    Ok(Reply::Sent(Sent { message, receipt }))
}

/// Returns a question of the caller with this text, without its parts.
async fn draft(
    services: &Services,
    caller: &Caller,
    verb: Verb,
    text: Option<String>,
) -> Result<Draft, Refusal> {
    Ok(Draft {
        id: None,
        permission: Permission::of(services, caller, verb).await?,
        kind: Kind::Message,
        thread: None,
        title: None,
        message: text.unwrap_or_default(),
        context: None,
        priority: Priority::Normal,
        requires_response: true,
        life: services.message_life,
        question: None,
    })
}

/// Puts the draft into the inbox of people.
async fn store(
    services: &Services,
    caller: &Caller,
    id: CallId,
    draft: &Draft,
) -> Result<Accepted, Refusal> {
    take_turn(services, caller, id, draft.permission.verb())?;
    deposit(services, caller, id, draft, &AgentId::human()).await
}
