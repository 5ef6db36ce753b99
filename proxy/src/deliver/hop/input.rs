//! Everything that can happen to the last hop of a session, and its effects.

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::receipt::{Progress, Via};
use c3po_shared::vocabulary::State;
use c3po_shared::wire::Arriving;

use crate::deliver::client::ClientState;
use crate::deliver::push::Todo;
use crate::deliver::transcript::Recorded;
use crate::deliver::ways::Way;
use crate::local::protocol::{Answer, Event};

/// Something that happens. [`Hop::on`](super::Hop::on) has the one match over it.
#[derive(Debug)]
pub(crate) enum Input {
    /// The link is up as that session of that agent. With generation 0 the session took that name, and the link is not
    /// up under it yet.
    Begins(AgentId, u64),
    /// Messages came to this host.
    Arrived(Vec<Arriving>),
    /// A person typed a prompt, which a hook is about to report, while the client worked. It keeps no transcript.
    TypedInto,
    /// A hook reports an event, and gets an answer.
    Hook(Event),
    /// The hook with that offer has flushed it.
    Printed(u64),
    /// The hook with that offer went away. It may have died after it printed.
    NotPrinted(u64),
    /// The hook that waited beside the session went away.
    WaiterGone,
    /// A tool is called. The call names these messages, so the model has read them.
    Called(Vec<MessageId>),
    /// The result of a wait is about to hold that message.
    Taken(MessageId),
    /// A result is about to hold a part of these messages, and not their end. It, or one that is to be presented, reads on
    /// within that message.
    InParts {
        ids: Vec<MessageId>,
        read_on: Option<MessageId>,
        tool_use: Option<String>,
    },
    /// The result of a tool was written to the client.
    Presented(Presented),
    /// The client cancelled the call of that use of a tool after its result was written.
    Cancelled(String),
    /// The session answered or acknowledged these messages.
    Settled(Vec<MessageId>),
    /// The session reported its own state.
    Status(State),
    /// The client's session file was read.
    ClientState(ClientState),
    /// The client's transcript was read: these messages stand in the conversation. `None` if it could not be read.
    Conversation(Option<Recorded>),
    /// A push by that way could not be made.
    NotPushed(Way),
    /// Something happened, or time has passed.
    Look,
}

/// The messages that the result of a tool put before the model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Presented {
    /// The messages that stand in it to their end.
    pub(crate) ids: Vec<MessageId>,
    /// The tool, as receipts call it.
    pub(crate) via: Via,
    /// The client's name for the use of the tool.
    pub(crate) tool_use: Option<String>,
    /// The message that a wait returned: its text may come to this host later, or never.
    pub(crate) waited: Option<Box<Arriving>>,
}

/// The effects of an input.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// The answer to the hook that reported.
    pub(crate) answer: Answer,
    /// Whether a wait is granted: a tool's may return its message, a hook's may stay beside the session.
    pub(crate) granted: bool,
    /// The messages that a hook or a push is about to show. The host notes them first: this process may be killed before
    /// it learns that they came.
    pub(crate) launched: Vec<MessageId>,
    /// The receipts to send, in order.
    pub(crate) receipts: Vec<Progress>,
    /// The next push for a session that nothing else reaches, or the next file to read.
    pub(crate) todo: Todo,
}
