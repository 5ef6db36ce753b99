//! The single definition of every tool. The proxy lists it, the link carries it, `/mcp` serves it, the coordinator dispatches
//! on it.

mod answered;
mod arguments;
mod checks;
mod listing;
mod received;
mod replies;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

pub use answered::{UserAnswer, waited};
pub use arguments::{
    AckMessages, AnswerInDialog, AskUser, Broadcast, Conclude, EscalateToHuman, GetAgentStatus,
    GetMessages, GetThread, ListAgents, MessageStatus, Nothing, NotifyUser, RegisterAgent, ReplyTo,
    RequestPermission, SendMessage, SetStatus, WaitForMessage,
};
pub use listing::{INSTRUCTIONS, Listing, listing, schema_of};
pub use received::Received;
pub use replies::{
    Acked, AgentDetails, Agents, Copies, CopiesTracked, Copy, Inbox, Pong, Sent, StatusSet, Thread,
    TimedOut, Tracked, presented_via,
};

use crate::agent::AgentRecord;
use crate::ids::MessageId;
use crate::message::Message;
use crate::numbers::make_integers;
use crate::refusal::{ErrorCode, Refusal};

/// Defines the enum of calls from one table. Its columns: variant, name on the wire, arguments, whether clients may load the
/// tool lazily, whether it only reads, and its description for models.
macro_rules! tools {
    ($($variant:ident($arguments:ty) = $name:literal, $load:ident, $effect:ident, $description:literal;)+) => {
        /// A tool, without its arguments.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Tool { $(#[doc = $description] $variant),+ }

        /// A tool call with checked arguments. It serialises to the object of its arguments.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum Call { $(#[doc = $description] $variant($arguments)),+ }

        impl Tool {
            /// Every tool, in listing order.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the tool's name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// Returns the tool's description for models.
            pub fn description(self) -> &'static str {
                match self { $(Self::$variant => $description),+ }
            }

            /// Returns whether clients should load the tool's schema at startup.
            pub fn always_loaded(self) -> bool {
                match self { $(Self::$variant => tools!(@$load)),+ }
            }

            /// Returns whether clients see the tool. Others are for proxies alone.
            pub fn is_listed(self) -> bool {
                match self { $(Self::$variant => stringify!($load) != "unlisted"),+ }
            }

            /// Returns whether the tool changes nothing.
            pub fn only_reads(self) -> bool {
                match self { $(Self::$variant => tools!(@$effect)),+ }
            }

            /// Returns the schema of the tool's arguments.
            fn schema(self) -> serde_json::Map<String, serde_json::Value> {
                match self { $(Self::$variant => schema_of::<$arguments>()),+ }
            }

            fn with<'de, D: Deserializer<'de>>(self, arguments: D) -> Result<Call, D::Error> {
                Ok(match self { $(Self::$variant => Call::$variant(Deserialize::deserialize(arguments)?)),+ })
            }

            fn listed(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)+ _ => None }
            }
        }

        impl Call {
            /// Returns the tool that is called.
            pub fn tool(&self) -> Tool {
                match self { $(Self::$variant(_) => Tool::$variant),+ }
            }
        }
    };
    (@always) => { true };
    (@deferred) => { false };
    (@unlisted) => { false };
    (@reads) => { true };
    (@writes) => { false };
}

tools! {
    SendMessage(SendMessage) = "send_message", always, writes,
        "Send a message to another agent. Returns its id and receipt. To get the answer, call wait_for_message with \
         that id.";
    Reply(ReplyTo) = "reply", always, writes,
        "Answer a message from another agent. This also acknowledges it.";
    GetMessages(GetMessages) = "get_messages", always, reads,
        "Read your inbox, oldest first. Messages stay until you reply to or acknowledge them.";
    WaitForMessage(WaitForMessage) = "wait_for_message", always, reads,
        "With message_id: wait for the answer to that message of yours. Without: wait for the next new message. After a \
         timeout, wait again or look at message_status; do not send it again.";
    AckMessages(AckMessages) = "ack_messages", deferred, writes,
        "Remove from your inbox messages that need no answer.";
    ListAgents(ListAgents) = "list_agents", deferred, reads,
        "List the agents you can message, online and offline.";
    GetAgentStatus(GetAgentStatus) = "get_agent_status", deferred, reads,
        "Show one agent: its status, its task and how many messages wait in its inbox.";
    GetThread(GetThread) = "get_thread", deferred, reads,
        "Read the whole conversation that a message belongs to.";
    MessageStatus(MessageStatus) = "message_status", deferred, reads,
        "Show how far a message got, and by what evidence: stored (at the coordinator), on_host (at the recipient's machine), \
         in_session (in the recipient's context), seen (its model went on after it), answered.";
    Broadcast(Broadcast) = "broadcast", deferred, writes,
        "Send news that needs no answer to all agents, or to those with a role or on a host. Offline agents get it later.";
    SetStatus(SetStatus) = "set_status", deferred, writes,
        "Set the status and task that other agents see. While you are away, messages that are not urgent are refused; \
         the other values only inform.";
    RegisterAgent(RegisterAgent) = "register_agent", deferred, writes,
        "Publish your capabilities and role, or change your agent id. Everything else works without it.";
    Ping(Nothing) = "ping", deferred, reads,
        "Show your agent id and check the connection to the coordinator.";
    AskUser(AskUser) = "ask_user", deferred, writes,
        "Ask the people who run this system, who may be away from this terminal, and wait for their answer. Ask what only \
         they can decide.";
    NotifyUser(NotifyUser) = "notify_user", deferred, writes,
        "Leave a notice for the people who run this system. It needs no answer.";
    EscalateToHuman(EscalateToHuman) = "escalate_to_human", deferred, writes,
        "Ask people urgently without waiting, or pass a question on to them. ask_user with the question_id returns the answer.";
    RequestPermission(RequestPermission) = "request_permission", unlisted, writes,
        "Ask people for a decision that the client waits for.";
    AnswerInDialog(AnswerInDialog) = "answer_in_dialog", unlisted, writes,
        "Report the answer that a person gave in the client's own dialog.";
    Conclude(Conclude) = "conclude", unlisted, writes,
        "Report what became of a question to people: its verdict was taken or applied, or it is withdrawn.";
}

impl Tool {
    /// Returns the tool with that name, listed or one of the older names that are still accepted.
    pub fn named(name: &str) -> Option<Self> {
        Self::listed(name).or(match name {
            "send_request" => Some(Self::SendMessage),
            "get_pending_requests" => Some(Self::GetMessages),
            "respond_to_request" => Some(Self::Reply),
            "wait_for_response" | "wait_for_request" => Some(Self::WaitForMessage),
            _ => None,
        })
    }

    /// Returns whether a call of the tool may last for as long as its caller wants.
    pub fn waits(self) -> bool {
        matches!(self, Self::WaitForMessage | Self::AskUser)
    }

    /// Returns whether the tool returns text from other agents, up to the maximum size of a result.
    pub fn has_long_results(self) -> bool {
        matches!(
            self,
            Self::GetMessages
                | Self::WaitForMessage
                | Self::GetThread
                | Self::ListAgents
                | Self::GetAgentStatus
        )
    }
}

impl Call {
    /// Returns the messages that the call answers or acknowledges, so that its caller has read them.
    pub fn settles(&self) -> Vec<MessageId> {
        match self {
            Self::Reply(reply) => vec![reply.message_id.clone()],
            Self::AckMessages(acked) => acked.message_ids.clone(),
            _ => Vec::new(),
        }
    }

    /// Returns whether the call may last for as long as its caller wants.
    pub fn waits(&self) -> bool {
        match self {
            Self::AskUser(ask) => ask.wait != Some(false),
            call => call.tool().waits(),
        }
    }

    /// Parses a call from its name and the JSON of its arguments, and checks every value.
    ///
    /// Errors: `NOT_SUPPORTED` for an unknown tool name, `INVALID_REQUEST` and `PAYLOAD_TOO_LARGE` for arguments.
    pub fn parse(name: &str, arguments: &RawValue) -> Result<Self, Refusal> {
        // serde would accept an array too, in the order of our struct fields.
        if Tool::named(name).is_some() && !arguments.get().starts_with('{') {
            return Err(Refusal::invalid(format!(
                "{name}: the arguments must be an object"
            )));
        }
        Self::read(
            name,
            &mut serde_json::Deserializer::from_str(arguments.get()),
        )
    }

    /// Parses a call from its name and the object of its arguments, and checks every value. Integers may be written as 30.0.
    ///
    /// Errors: as for [`Self::parse`].
    pub fn of_object(name: &str, mut arguments: Map<String, Value>) -> Result<Self, Refusal> {
        for argument in arguments.values_mut() {
            make_integers(argument);
        }
        match Tool::named(name) {
            Some(tool) if !tool.is_listed() => Err(unknown(name)),
            _ => Self::read(name, arguments),
        }
    }

    fn read<'de, D: Deserializer<'de>>(name: &str, arguments: D) -> Result<Self, Refusal> {
        let Some(tool) = Tool::named(name) else {
            return Err(unknown(name));
        };
        let mut call = tool
            .with(arguments)
            .map_err(|error| Refusal::invalid(format!("{name}: {error}")))?;
        if let Self::WaitForMessage(wait) = &mut call {
            arguments::apply_older_name(name, wait)?;
        }
        call.check()?;
        Ok(call)
    }
}

fn unknown(name: &str) -> Refusal {
    let name: String = name.chars().take(80).collect();
    let error = format!("there is no tool named {name}");
    Refusal::new(ErrorCode::NotSupported, error)
}

/// The reply of a tool: one JSON object.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Reply {
    /// `ping`
    Pong(Pong),
    /// `register_agent`
    Agent(AgentRecord),
    /// `list_agents`
    Agents(Agents),
    /// `get_agent_status`
    AgentDetails(AgentDetails),
    /// `set_status`
    StatusSet(StatusSet),
    /// `send_message` to one agent, `reply`, `request_permission`, `notify_user`, `escalate_to_human`, or `ask_user` without
    /// a wait
    Sent(Sent),
    /// `ask_user` after its wait
    UserAnswer(Box<UserAnswer>),
    /// `send_message` to a role, or `broadcast`
    Copies(Copies),
    /// `get_messages`
    Inbox(Inbox),
    /// `ack_messages`
    Acked(Acked),
    /// `wait_for_message` that received a message
    Message(Message),
    /// `wait_for_message` that timed out
    TimedOut(TimedOut),
    /// `get_thread`
    Thread(Thread),
    /// `message_status`, `wait_for_message` with `until`, `conclude`
    Tracked(Tracked),
}
