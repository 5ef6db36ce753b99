//! The closed sets of words that messages and agents are described with.

/// Defines an enum with its one spelling on the wire and the other words that callers may use for it.
macro_rules! words {
    ($(#[$attribute:meta])* $name:ident { $($(#[$note:meta])* $variant:ident = $word:literal $(| $alias:literal)*),+ $(,)? }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$note])* $variant),+ }

        impl $name {
            /// Every value, in order.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the word as it stands on the wire.
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

            /// Reads the word in any case, and the other words in use for it.
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
        /// Whenever it suits.
        Low = "low",
        /// What is not said otherwise.
        #[default]
        Normal = "normal",
        /// Before other work.
        High = "high",
        /// At once.
        Urgent = "urgent" | "critical",
    }
}

words! {
    /// What kind of message an envelope carries.
    Kind {
        /// One agent to another.
        Message = "message",
        /// The answer to a message.
        Reply = "reply" | "response",
        /// One of many copies.
        Broadcast = "broadcast",
        /// Said by the coordinator itself.
        System = "system",
    }
}

words! {
    /// Which kinds a reader wants.
    #[derive(Default)]
    KindFilter {
        /// Every kind.
        #[default]
        Any = "any",
        /// Everything but replies.
        Message = "message",
        /// Replies only.
        Reply = "reply",
    }
}

impl KindFilter {
    /// Returns whether a message of this kind is wanted.
    pub fn admits(self, kind: Kind) -> bool {
        match self {
            Self::Any => true,
            Self::Message => kind != Kind::Reply,
            Self::Reply => kind == Kind::Reply,
        }
    }
}

words! {
    /// How a reply turned out.
    ReplyStatus {
        /// The request was met.
        Success = "success",
        /// It was not; the response says why.
        Error = "error",
    }
}

words! {
    /// Whether a proxy of the agent is connected.
    Status {
        /// A session is connected.
        Online = "online",
        /// None is; messages wait in the inbox.
        Offline = "offline",
    }
}

words! {
    /// What an agent's session does.
    State {
        /// It has begun and was not heard of since.
        Starting = "starting",
        /// It can take work.
        Ready = "ready" | "available" | "idle" | "completed",
        /// It works.
        Busy = "busy" | "working",
        /// It cannot go on.
        Blocked = "blocked",
        /// It waits for a person.
        WaitingHuman = "waiting_human",
        /// It takes no new work.
        Away = "away",
        /// It has ended.
        Stopped = "stopped",
    }
}

words! {
    /// What whoever has a key may do.
    Scope {
        /// Speak as the agents that the key covers, and see who is there.
        Agent = "agent",
        /// See who is there, and the metrics.
        Read = "read",
        /// What `read` may, and look into the audit and the policy.
        Operator = "operator",
        /// Everything: also keys and invites, and to speak as the agents that the key covers.
        Admin = "admin",
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
            Priority::Low < Priority::Normal && Priority::Normal < Priority::High && Priority::High < Priority::Urgent
        );
    }

    #[test]
    fn a_filter_admits_what_it_says() {
        assert!(KindFilter::Any.admits(Kind::Reply) && KindFilter::Any.admits(Kind::System));
        assert!(KindFilter::Message.admits(Kind::Broadcast) && !KindFilter::Message.admits(Kind::Reply));
        assert!(KindFilter::Reply.admits(Kind::Reply) && !KindFilter::Reply.admits(Kind::Message));
    }
}
