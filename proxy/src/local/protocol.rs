//! The protocol between a hook and the proxy beside its session: one JSON object per line, over a unix socket.
//!
//! A hook sends its [`Event`] and gets an [`Answer`]. After printing the answer's text it sends [`PRINTED`]: that line is
//! the evidence that the text is in the session.

use std::fmt;
use std::path::PathBuf;

use c3po_shared::ids::AgentId;
use c3po_shared::question::Waiting;
use c3po_shared::raw_json::JsonText;
use c3po_shared::receipt::Via;
use c3po_shared::vocabulary::State;
use serde::{Deserialize, Serialize};

use crate::link;

/// The line by which a hook reports that its output was flushed.
pub const PRINTED: &str = "printed";

/// The longest line, in bytes.
pub const LINE_MAX: usize = 1 << 20;

/// The name of a hook: the hooked events of Claude Code, and other requests of the same form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    /// A session, or a new context of a session, begins.
    SessionStart,
    /// A prompt is about to go to the model. It was typed by a person or made by a push.
    UserPromptSubmit,
    /// A tool is about to run.
    PreToolUse,
    /// All tool calls of one step of the model have ended.
    PostToolBatch,
    /// The client asks a person for a permission.
    PermissionRequest,
    /// The client notifies its person.
    Notification,
    /// The context is about to be compacted.
    PreCompact,
    /// The turn is about to end.
    Stop,
    /// The turn ended with an error of the model's service.
    StopFailure,
    /// A subagent is about to end.
    SubagentStop,
    /// The session, or a context of it, ends.
    SessionEnd,
    /// Waits beside the idle session until there is a reason to wake it.
    Wait,
    /// Requests the status and changes nothing.
    Status,
}

/// The report of a hook, with the fields for decisions only: texts of people stay with the client.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The name of the event.
    pub name: Name,
    /// The client's session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The subagent it concerns; `None` for the session itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// For a session's start: `startup`, `resume`, `clear`, `compact` or `fork`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// For a prompt: the whole text if it contains [`super::MARK`], or is a notice of the client that names c3po.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// For a prompt: whether a person typed it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub typed: bool,
    /// The client's id of the turn that it belongs to or begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_id: Option<String>,
    /// The client's transcript of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transcript: Option<PathBuf>,
    /// For a notification: its type, such as `permission_prompt` or `idle_prompt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notification_type: Option<String>,
    /// For the use of a tool: the tool's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// For a batch: the ids of its calls. For a single use: its id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_use_ids: Vec<String>,
    /// For a batch: the uses of c3po's tools of whose results the client reports that they hold no message: it gave them up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given_up: Vec<String>,
    /// For a stop: whether a hook has already kept this turn from ending.
    #[serde(default)]
    pub stop_hook_active: bool,
    /// For a stop: whether the model ended the turn with an answer, and no tool did. Older clients do not report it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub answered: bool,
    /// The session's inbox socket, if the client has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messaging_socket: Option<String>,
    /// The token that opens it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messaging_token: Option<String>,
    /// For a permission request: the tool and its input, unless that is too long to be shown to people elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Box<ToolRequest>>,
}

/// A request of the client for a person's decision about a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolRequest {
    /// The input of the tool, as the client wrote it.
    pub input: String,
    /// The rules that the client offers to add.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<JsonText>,
    /// The kind of subagent that uses the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagent: Option<String>,
}

/// The answer to a hook.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The text for standard output.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stdout: String,
    /// The text for standard error.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr: String,
    /// The exit code.
    #[serde(default)]
    pub exit: u8,
    /// The number of this offer. If it is set, [`PRINTED`] is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<u64>,
    /// The answer to [`Name::Status`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

/// The status of one session's proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The proxy's version.
    pub version: String,
    /// The name of the session's agent.
    pub agent_id: AgentId,
    /// The state of the link.
    pub link: link::State,
    /// The coordinator, as people write it.
    pub coordinator: String,
    /// Why there is no link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The state of the session.
    pub state: State,
    /// How many messages are on this host and not in the session.
    pub unread: usize,
    /// How many agents are online, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents_online: Option<usize>,
    /// The questions that wait for people, if this host may know them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub questions: Option<Waiting>,
    /// The available ways into the session; pushes only after one was confirmed.
    pub reach: Vec<Via>,
    /// The client's session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
}

/// Omits texts and the token, for logs.
impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            session_id,
            agent_id,
            ..
        } = self;
        write!(f, "{name:?} of {session_id:?}")?;
        agent_id
            .as_ref()
            .map_or(Ok(()), |agent| write!(f, " in {agent}"))
    }
}

impl Event {
    /// Returns the tool of c3po that the session uses, if it is one of these.
    pub fn own_tool(&self) -> Option<&str> {
        let (server, tool) = self.tool_name.as_deref()?.rsplit_once("__")?;
        server.ends_with("c3po").then_some(tool)
    }

    /// An event of that name without other fields.
    pub fn new(name: Name) -> Self {
        Self {
            name,
            session_id: None,
            agent_id: None,
            source: None,
            prompt: None,
            typed: false,
            prompt_id: None,
            transcript: None,
            notification_type: None,
            tool_name: None,
            tool_use_ids: Vec::new(),
            given_up: Vec::new(),
            stop_hook_active: false,
            answered: false,
            messaging_socket: None,
            messaging_token: None,
            request: None,
        }
    }
}
