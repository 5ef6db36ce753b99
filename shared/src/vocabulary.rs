//! The closed sets of words that describe messages and agents.

/// Defines an enum with one spelling on the wire, and the aliases that callers may use for it.
macro_rules! words {
    ($(#[$attribute:meta])* $name:ident { $($(#[$note:meta])* $variant:ident = $word:literal $(| $alias:literal)*),+ $(,)? }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$note])* $variant),+ }

        impl $name {
            /// Every value, in order.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the word used on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            /// Parses the word or one of its aliases, in any case.
            fn from_str(text: &str) -> Result<Self, String> {
                $(
                    if [$word $(, $alias)*].iter().any(|word| word.eq_ignore_ascii_case(text)) {
                        return Ok(Self::$variant);
                    }
                )+
                Err(format!("'{}' is not one of {}", text.chars().take(40).collect::<String>(), [$($word),+].join(", ")))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                <std::borrow::Cow<'de, str>>::deserialize(from)?.parse().map_err(serde::de::Error::custom)
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": [$($word),+] })
            }
        }
    };
}
pub(crate) use words;

words! {
    /// How urgent a message is. Higher sorts later, so `urgent` is the greatest.
    #[derive(Default)]
    Priority {
        /// When convenient.
        Low = "low",
        /// The default.
        #[default]
        Normal = "normal",
        /// Before other work.
        High = "high",
        /// Immediately.
        Urgent = "urgent" | "critical",
    }
}

words! {
    /// The kind of message in an envelope.
    Kind {
        /// One agent to another.
        Message = "message",
        /// The answer to a message.
        Reply = "reply" | "response",
        /// One of many copies.
        Broadcast = "broadcast",
        /// Sent by the coordinator itself.
        System = "system",
    }
}

words! {
    /// The kind of question to people.
    QuestionKind {
        /// A question of an agent, in its own words.
        Ask = "ask",
        /// The client asks whether a tool may run.
        Permission = "permission",
        /// The client asks the person to choose, for its model.
        Choice = "choice",
        /// The client asks whether a plan is accepted.
        Plan = "plan",
    }
}

impl QuestionKind {
    /// Returns the kind of a request of the client about that tool. Only the client's own tools for questions and plans make
    /// others than permissions.
    pub fn of_tool(tool: &str) -> Self {
        match tool {
            "AskUserQuestion" => Self::Choice,
            "ExitPlanMode" => Self::Plan,
            _ => Self::Permission,
        }
    }
}

words! {
    /// The advice to the asker if there is no answer in time.
    #[derive(Default)]
    NoResponse {
        /// Go on with other work; the question stays open.
        #[default]
        KeepOpen = "keep_open",
        /// Decide alone, and record the assumption.
        BestJudgment = "best_judgment",
    }
}

words! {
    /// The outcome of a wait for people.
    AnswerStatus {
        /// They answered.
        Answered = "answered",
        /// There is no answer yet. The question stays open.
        NoResponse = "no_response",
        /// The question was withdrawn, or its life ended.
        Withdrawn = "withdrawn",
    }
}

words! {
    /// The decision about a request of the client.
    Decision {
        /// The tool runs, or the plan is accepted.
        Allow = "allow",
        /// It does not.
        Deny = "deny",
    }
}

words! {
    /// The kinds of messages that a reader wants.
    #[derive(Default)]
    KindFilter {
        /// Every kind.
        #[default]
        Any = "any",
        /// Every kind except replies.
        Message = "message",
        /// Replies only.
        Reply = "reply",
    }
}

impl KindFilter {
    /// Returns whether this filter accepts a message of that kind.
    pub fn admits(self, kind: Kind) -> bool {
        match self {
            Self::Any => true,
            Self::Message => kind != Kind::Reply,
            Self::Reply => kind == Kind::Reply,
        }
    }
}

words! {
    /// The outcome of a reply.
    ReplyStatus {
        /// The request was fulfilled.
        Success = "success",
        /// It was not; the response contains the reason.
        Error = "error",
    }
}

words! {
    /// Whether a proxy of the agent is connected.
    Status {
        /// A session is connected.
        Online = "online",
        /// No session is connected; messages wait in the inbox.
        Offline = "offline",
    }
}

words! {
    /// The activity of an agent's session.
    State {
        /// It has started, and has reported nothing since.
        Starting = "starting",
        /// It can accept work.
        Ready = "ready" | "available" | "idle" | "completed",
        /// It is working.
        Busy = "busy" | "working",
        /// It cannot continue.
        Blocked = "blocked",
        /// It waits for a person.
        WaitingHuman = "waiting_human",
        /// It accepts no new work.
        Away = "away",
        /// It has ended.
        Stopped = "stopped",
    }
}

words! {
    /// The permissions of a key.
    Scope {
        /// Act as the agents that the key covers, and list agents.
        Agent = "agent",
        /// List agents, and read the metrics.
        Read = "read",
        /// Everything that `read` allows, and read the audit and the policy.
        Operator = "operator",
        /// Everything, including managing keys and invites, and acting as the agents that the key covers.
        Admin = "admin",
    }
}

words! {
    /// The permissions of a login. Each scope includes the ones before it.
    LoginScope {
        /// Send, read and answer as the person, with commands on a host.
        Answer = "answer",
        /// List agents, and give verdicts.
        Person = "person",
        /// Read the audit and the policy.
        Operator = "operator",
        /// Manage logins, keys and invites.
        Admin = "admin",
    }
}

words! {
    /// Whether a key or a login grants access.
    Validity {
        /// It does.
        Valid = "valid",
        /// Its time is over.
        Expired = "expired",
        /// It was revoked.
        Revoked = "revoked",
        /// Its host has no name yet: the key grants access once it has one.
        Unfinished = "unfinished",
    }
}

impl Validity {
    /// Returns the validity of a credential that was revoked or has expired.
    pub fn of(is_valid: bool, was_revoked: bool) -> Self {
        match (was_revoked, is_valid) {
            (true, _) => Self::Revoked,
            (false, true) => Self::Valid,
            (false, false) => Self::Expired,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_in_any_case_and_by_their_other_names() {
        assert_eq!("CRITICAL".parse(), Ok(Priority::Urgent));
        assert_eq!("Urgent".parse(), Ok(Priority::Urgent));
        assert_eq!("available".parse(), Ok(State::Ready));
        assert_eq!("idle".parse(), Ok(State::Ready));
        assert_eq!("working".parse(), Ok(State::Busy));
        assert_eq!("response".parse(), Ok(Kind::Reply));
    }

    #[test]
    fn an_unknown_word_is_refused_with_the_known_ones() {
        let refused = "asap".parse::<Priority>().expect_err("not a priority");
        assert_eq!(refused, "'asap' is not one of low, normal, high, urgent");
    }

    #[test]
    fn urgent_is_the_greatest_priority() {
        assert!(
            Priority::Low < Priority::Normal
                && Priority::Normal < Priority::High
                && Priority::High < Priority::Urgent
        );
    }

    #[test]
    fn a_filter_admits_the_kinds_that_it_names() {
        assert!(KindFilter::Any.admits(Kind::Reply) && KindFilter::Any.admits(Kind::System));
        assert!(
            KindFilter::Message.admits(Kind::Broadcast) && !KindFilter::Message.admits(Kind::Reply)
        );
        assert!(KindFilter::Reply.admits(Kind::Reply) && !KindFilter::Reply.admits(Kind::Message));
    }
}
