//! The next step after a refusal, by its cause. A front end with its own wording, such as a terminal, uses that; the texts
//! here are for a model.

use crate::vocabulary::words;

words! {
    /// The next step after a refusal, if a model gets a different text than a person. Each front end has its own texts.
    Advice {
        /// List the agents; `nearest` in the details holds similar names.
        ListAgents = "list_agents",
        /// Name a recipient as an id, `id@host` or `@role`.
        NameRecipient = "name_recipient",
        /// Use a broadcast to reach every agent.
        Broadcast = "broadcast",
        /// Ask another agent, or the same one later or urgently.
        AskAnother = "ask_another",
        /// Use the whole id of the message.
        UseWholeId = "use_whole_id",
        /// Read the existing answer.
        ReadThread = "read_thread",
        /// Answer the message, or wait for another one.
        AnswerIt = "answer_it",
        /// Another agent waits for this one: answer its message before waiting for it. `message_id` in the details is that
        /// message.
        AnswerFirst = "answer_first",
        /// Send it again, or queue it on the host.
        SendAgain = "send_again",
        /// List the available tools.
        ListTools = "list_tools",
        /// Go on without c3po until it is back.
        WorkOn = "work_on",
        /// No coordinator runs on this host, and the host has not joined one: start a coordinator, or configure its address.
        StartOne = "start_one",
        /// Nothing listens on the port.
        NothingListens = "nothing_listens",
        /// No response: the host is off, or a firewall drops the packets.
        NoAnswer = "no_answer",
        /// The connection is open but silent: the server hangs, or it is another program.
        SaysNothing = "says_nothing",
        /// There is no route to the coordinator's host.
        NoRoute = "no_route",
        /// The coordinator's host name does not resolve.
        NoSuchHost = "no_such_host",
        /// Another program answers at that address.
        AnotherProgram = "another_program",
        /// The coordinator uses TLS, and the request was plain HTTP.
        WriteHttps = "write_https",
        /// The request used TLS, and the coordinator does not.
        WriteHttp = "write_http",
        /// The coordinator's certificate is not one that this host trusts.
        AnotherCertificate = "another_certificate",
        /// No known authority signed the coordinator's certificate.
        UnknownCertificate = "unknown_certificate",
        /// Join the host, or join it again, to get a new key.
        JoinAgain = "join_again",
        /// Use a name that the key covers. The details hold the key's globs in `agents` and the refused name in `agent`.
        CoveredName = "covered_name",
        /// The coordinator's store is unreachable or does not respond.
        StoreAway = "store_away",
        /// The coordinator's store is full.
        StoreFull = "store_full",
    }
}

/// Advice for a model whose coordinator has another certificate than before.
const ANOTHER_CERTIFICATE: &str = "Continue without c3po. If the coordinator was set up again, your user has to join this host again, \
     with the command that `c3po-coordinator invite` prints; if not, this may be a man-in-the-middle \
     attack. After joining, the session reconnects automatically.";

/// Advice for a model whose coordinator has a certificate that no known authority signed.
const UNKNOWN_CERTIFICATE: &str = "If the coordinator made its certificate itself, your user has to join this host, with the command \
     that `c3po-coordinator invite` prints, or set C3PO_FINGERPRINT to the fingerprint in the \
     coordinator's log. After joining, the session reconnects automatically.";

impl Advice {
    /// Returns the advice worded for a model, which has tools.
    pub fn for_models(self) -> &'static str {
        match self {
            Self::ListAgents => "Check the spelling of the agent id; list_agents lists all agents.",
            Self::NameRecipient => "Use an agent id, id@host, or @role; list_agents shows them.",
            Self::Broadcast => "Use broadcast to reach all agents.",
            Self::AskAnother => {
                "Ask another agent (list_agents), try later, or send it with priority urgent."
            }
            Self::UseWholeId => {
                "Use the full id as send_message, get_messages or wait_for_message returned it."
            }
            Self::ReadThread => {
                "Nothing to do: the sender already has an answer. get_thread shows it; to add to it, use send_message."
            }
            Self::AnswerIt => {
                "Answer it with reply, or wait without message_id for the next message."
            }
            Self::AnswerFirst => {
                "First reply to the message in message_id: its sender is waiting for you. You can repeat your question \
                 in that reply. The message that you sent stays with its recipient."
            }
            Self::SendAgain => {
                "Send it again in a few seconds, or with queue_if_down, which puts it behind the queued messages."
            }
            Self::ListTools => "See tools/list for the available tools.",
            Self::WorkOn
            | Self::StartOne
            | Self::NothingListens
            | Self::NoAnswer
            | Self::SaysNothing
            | Self::NoRoute
            | Self::NoSuchHost
            | Self::AnotherProgram => {
                "Continue without c3po; it reconnects automatically. `c3po status` in a terminal reports what is wrong."
            }
            Self::WriteHttps => "Use https:// instead of http:// in the coordinator's URL.",
            Self::WriteHttp => {
                "Continue without c3po. Your user has to correct the coordinator's URL; `c3po doctor` reports how."
            }
            Self::AnotherCertificate => ANOTHER_CERTIFICATE,
            Self::UnknownCertificate => UNKNOWN_CERTIFICATE,
            Self::JoinAgain => {
                "Your user has to join this host, with the command that `c3po-coordinator invite` prints. The session \
                 then reconnects automatically."
            }
            Self::CoveredName => {
                "Use a name that the key covers: C3PO_AGENT_ID for a session, --as for a command."
            }
            Self::StoreAway => {
                "Try again in a few seconds; if it keeps failing, check the coordinator's Redis or disk."
            }
            Self::StoreFull => {
                "Try again later. The administrator of the coordinator has to give its store more space: maxmemory of \
                 Redis, or the disk. Reading and acknowledging still work."
            }
        }
    }
}
