//! What to do about a refusal, by its cause. A front end that has words of its own, such as a terminal, uses those; the words
//! here are for a model.

use crate::vocabulary::words;

words! {
    /// What to do next, if that is said to a model in other words than to a person: each front end has its own.
    Advice {
        /// Look which agents there are; `nearest` in the details has those of a like name.
        ListAgents = "list_agents",
        /// Name a recipient as an id, `id@host` or `@role`.
        NameRecipient = "name_recipient",
        /// Send to everybody by a broadcast.
        Broadcast = "broadcast",
        /// Ask another agent, or the same one later or urgently.
        AskAnother = "ask_another",
        /// Use the whole id of the message.
        UseWholeId = "use_whole_id",
        /// Read the answer that there is.
        ReadThread = "read_thread",
        /// Answer the message, or wait for another one.
        AnswerIt = "answer_it",
        /// Another agent waits for this one: answer it before waiting for it; `message_id` in the details is its message.
        AnswerFirst = "answer_first",
        /// Send it again, or have it kept on the host.
        SendAgain = "send_again",
        /// Look what there is.
        ListTools = "list_tools",
        /// Go on without c3po until it is back.
        WorkOn = "work_on",
        /// No coordinator runs on this host, which has not joined any: start one, or name one.
        StartOne = "start_one",
        /// Nothing listens on the port.
        NothingListens = "nothing_listens",
        /// Nothing comes back: the host is off, or a firewall drops what is sent.
        NoAnswer = "no_answer",
        /// The connection is made, and nothing is said on it: it hangs, or is another program.
        SaysNothing = "says_nothing",
        /// This host has no way to the other one.
        NoRoute = "no_route",
        /// This host knows no host of that name.
        NoSuchHost = "no_such_host",
        /// Another program answers there.
        AnotherProgram = "another_program",
        /// It speaks TLS, and was spoken to without.
        WriteHttps = "write_https",
        /// It was spoken to by TLS, which it does not speak.
        WriteHttp = "write_http",
        /// It shows another certificate than those that this host trusts.
        AnotherCertificate = "another_certificate",
        /// It shows a certificate that no authority vouches for.
        UnknownCertificate = "unknown_certificate",
        /// Let the host in, or in again, with a new key.
        JoinAgain = "join_again",
        /// Use a name that the key covers; `agents` in the details has the globs, `agent` the name that was refused.
        CoveredName = "covered_name",
        /// The coordinator's store is away or does not answer.
        StoreAway = "store_away",
        /// The coordinator's store takes nothing more.
        StoreFull = "store_full",
    }
}

impl Advice {
    /// Returns the advice in the words for a model, which has tools.
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
