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

impl Advice {
    /// Returns the advice worded for a model, which has tools.
    pub fn for_models(self) -> &'static str {
        match self {
            Self::ListAgents => "Check the agent id's spelling; list_agents shows who there is.",
            Self::NameRecipient => "Use an agent id, id@host, or @role; list_agents shows them.",
            Self::Broadcast => "Use broadcast to reach all agents.",
            Self::AskAnother => "Ask another agent (list_agents), try later, or send it with priority urgent.",
            Self::UseWholeId => "Use the full id as send_message, get_messages or wait_for_message returned it.",
            Self::ReadThread => {
                "Nothing to do: the sender has an answer. get_thread shows it; send_message adds to it."
            }
            Self::AnswerIt => "Answer it with reply, or wait without message_id for the next message.",
            Self::AnswerFirst => {
                "Reply first to the message that message_id names, with your own question in it if need be: its sender waits \
                 for you. Your question stays with its recipient."
            }
            Self::SendAgain => "Send it again in a moment, or with queue_if_down: then it waits behind the others.",
            Self::ListTools => "See tools/list for what there is.",
            Self::WorkOn
            | Self::StartOne
            | Self::NothingListens
            | Self::NoAnswer
            | Self::SaysNothing
            | Self::NoRoute
            | Self::NoSuchHost
            | Self::AnotherProgram => {
                "Work on without c3po; it reconnects by itself. `c3po status` in a terminal says what is wrong."
            }
            Self::WriteHttps => "Write https:// for http://.",
            Self::WriteHttp => {
                "Work on without c3po. Your user has to correct the coordinator's URL; `c3po doctor` says how."
            }
            Self::AnotherCertificate => {
                "Work on without c3po. If the coordinator was set up anew, your user has to let this host in again, with a \
                 line from `c3po-coordinator invite`; if not, somebody may be in between. The session notices by itself."
            }
            Self::UnknownCertificate => {
                "If it is the coordinator's own, your user has to let this host in, with a line from `c3po-coordinator \
                 invite`, or set C3PO_FINGERPRINT to the value in the coordinator's log. The session notices the first by \
                 itself."
            }
            Self::JoinAgain => {
                "Your user has to let this host in, with a line from `c3po-coordinator invite`. The session notices by itself."
            }
            Self::CoveredName => "Use a name that it covers: C3PO_AGENT_ID for a session, --as for a command.",
            Self::StoreAway => "Try again in a few seconds; if it stays, the coordinator's Redis or disk needs a look.",
            Self::StoreFull => {
                "Try again later. Whoever runs the coordinator has to give its store more room: maxmemory of Redis, or \
                 the disk. Reading and acknowledging go on meanwhile."
            }
        }
    }
}
