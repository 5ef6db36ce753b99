//! The bounds of all tool arguments, checked before a call is executed.

use super::Call;
use super::arguments::{AskUser, EscalateToHuman, RegisterAgent, WaitForMessage};
use crate::ids::AgentId;
use crate::limits::{
    ASK_MAX, CAPABILITIES_MAX, CAPABILITIES_TEXT_MAX, IDS_MAX, LABEL_MAX, MESSAGE_LIFE_MAX,
    PAGE_MAX, TEXT_MAX, TITLE_MAX, WAIT_MAX,
};
use crate::receipt::Stage;
use crate::refusal::Refusal;

impl Call {
    /// Returns an error for the first argument that is out of its bounds.
    pub fn check(&self) -> Result<(), Refusal> {
        match self {
            Self::SendMessage(call) => {
                if call.target.trim().is_empty() {
                    return Err(Refusal::invalid("target is empty"));
                }
                filled("message", &call.message)?;
                optional("context", call.context.as_deref(), TEXT_MAX)?;
                optional("title", call.title.as_deref(), TITLE_MAX)?;
                within("expires_in", call.expires_in, 1, MESSAGE_LIFE_MAX.as_secs())
            }
            Self::Reply(call) => filled("response", &call.response),
            Self::Broadcast(call) => {
                filled("message", &call.message)?;
                optional("title", call.title.as_deref(), TITLE_MAX)
            }
            Self::GetMessages(call) => within("limit", call.limit.map(as_u64), 1, as_u64(PAGE_MAX)),
            Self::ListAgents(call) => within("limit", call.limit.map(as_u64), 1, as_u64(PAGE_MAX)),
            Self::WaitForMessage(call) => check_wait(call),
            Self::AckMessages(call) => within(
                "message_ids",
                Some(as_u64(call.message_ids.len())),
                1,
                as_u64(IDS_MAX),
            ),
            Self::SetStatus(call) => {
                optional("current_task", call.current_task.as_deref(), LABEL_MAX)?;
                optional("description", call.description.as_deref(), LABEL_MAX)
            }
            Self::RegisterAgent(call) => check_registration(call),
            Self::AskUser(call) => check_ask(call),
            Self::NotifyUser(call) => {
                filled("message", &call.message)?;
                optional("title", call.title.as_deref(), TITLE_MAX)
            }
            Self::EscalateToHuman(call) => check_escalation(call),
            Self::RequestPermission(call) => {
                filled("message", &call.message)?;
                if call.question.request.is_none() {
                    // A question in words shows its message: its part must not have another text.
                    return Err(Refusal::invalid("request_permission needs a request"));
                }
                call.question.check()
            }
            Self::Conclude(call) => match call.stage {
                Stage::Taken | Stage::Applied | Stage::Withdrawn => Ok(()),
                stage => Err(Refusal::invalid(format!(
                    "stage: '{stage}' is not one of taken, applied, withdrawn"
                ))),
            },
            Self::AnswerInDialog(_)
            | Self::GetAgentStatus(_)
            | Self::GetThread(_)
            | Self::MessageStatus(_)
            | Self::Ping(_) => Ok(()),
        }
    }
}

fn check_wait(call: &WaitForMessage) -> Result<(), Refusal> {
    within("timeout", call.timeout, 1, WAIT_MAX)?;
    match call.until {
        None => Ok(()),
        Some(_) if call.message_id.is_none() => Err(Refusal::invalid(
            "until needs the message_id of a message you sent",
        )),
        Some(Stage::OnHost | Stage::InSession | Stage::Seen | Stage::Answered) => Ok(()),
        Some(stage) => Err(Refusal::invalid(format!(
            "until: '{stage}' is not one of on_host, in_session, seen, answered"
        ))),
    }
}

fn check_ask(call: &AskUser) -> Result<(), Refusal> {
    within("timeout", call.timeout, 1, ASK_MAX)?;
    let Some(question) = &call.question else {
        let alone = AskUser {
            question_id: call.question_id.clone(),
            timeout: call.timeout,
            on_no_response: call.on_no_response,
            ..AskUser::default()
        };
        return if call.question_id.is_some() && *call == alone {
            Ok(())
        } else {
            Err(Refusal::invalid(
                "ask_user needs question, or question_id alone",
            ))
        };
    };
    if call.question_id.is_some() {
        return Err(Refusal::invalid(
            "ask_user takes question or question_id, not both",
        ));
    }
    filled("question", question)?;
    optional("context", call.context.as_deref(), TEXT_MAX)?;
    call.as_question().map_or(Ok(()), |asked| asked.check())
}

fn check_escalation(call: &EscalateToHuman) -> Result<(), Refusal> {
    filled("reason", &call.reason)?;
    optional("title", call.title.as_deref(), TITLE_MAX)?;
    if let Some(message) = &call.message {
        filled("message", message)?;
    }
    if call.question_id.is_some() && (call.message.is_some() || call.options.is_some()) {
        return Err(Refusal::invalid(
            "escalate_to_human takes question_id, or message and options of a new question",
        ));
    }
    call.as_question().check()
}

fn check_registration(call: &RegisterAgent) -> Result<(), Refusal> {
    optional("description", call.description.as_deref(), LABEL_MAX)?;
    if let Some(role) = &call.role {
        let role = role.parse::<AgentId>();
        let role = role.map_err(|error| Refusal::invalid(format!("role: {error}")))?;
        if role.is_reserved() {
            return Err(Refusal::invalid(format!("role: {role} is reserved")));
        }
    }
    let capabilities = call.capabilities.as_deref().unwrap_or_default();
    within(
        "capabilities",
        Some(as_u64(capabilities.len())),
        0,
        as_u64(CAPABILITIES_MAX),
    )?;
    capabilities
        .iter()
        .try_for_each(|one| optional("capability", Some(one), LABEL_MAX))?;
    // All agents are listed together, so the texts of each must stay short.
    let count = capabilities.iter().map(|one| one.chars().count()).sum();
    if count > CAPABILITIES_TEXT_MAX {
        return Err(Refusal::too_large(
            "capabilities",
            count,
            CAPABILITIES_TEXT_MAX,
        ));
    }
    Ok(())
}

fn as_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn filled(field: &str, text: &str) -> Result<(), Refusal> {
    if text.trim().is_empty() {
        return Err(Refusal::invalid(format!("{field} is empty")));
    }
    optional(field, Some(text), TEXT_MAX)
}

fn optional(field: &str, text: Option<&str>, limit: usize) -> Result<(), Refusal> {
    // A text of at most `limit` bytes has at most `limit` characters, so it needs no counting.
    let Some(text) = text.filter(|text| text.len() > limit) else {
        return Ok(());
    };
    let count = text.chars().count();
    if count > limit {
        Err(Refusal::too_large(field, count, limit))
    } else {
        Ok(())
    }
}

fn within(field: &str, value: Option<u64>, least: u64, most: u64) -> Result<(), Refusal> {
    match value {
        Some(value) if !(least..=most).contains(&value) => {
            let error = format!("{field} is {value}; it must be from {least} to {most}");
            Err(Refusal::invalid(error)
                .detail("limit", most)
                .detail("count", value))
        }
        _ => Ok(()),
    }
}
