//! The codes of errors, with their numbers in JSON-RPC and HTTP, and the default next step of each.

use crate::advice::Advice;
use crate::vocabulary::words;

words! {
    /// The reason for a refusal. Callers decide by the code, never by the sentence.
    ErrorCode {
        /// No agent has that name.
        AgentNotFound = "AGENT_NOT_FOUND",
        /// The agent accepts no new work.
        AgentUnavailable = "AGENT_UNAVAILABLE",
        /// There is no such message, or the caller may not know of it.
        MessageNotFound = "MESSAGE_NOT_FOUND",
        /// There is no such key.
        KeyNotFound = "KEY_NOT_FOUND",
        /// There is no such invite, or it is no longer valid.
        InviteNotFound = "INVITE_NOT_FOUND",
        /// There is no such login.
        LoginNotFound = "LOGIN_NOT_FOUND",
        /// Another answer came first.
        AlreadyAnswered = "ALREADY_ANSWERED",
        /// The question is not asked any more.
        Withdrawn = "WITHDRAWN",
        /// Only the terminal of the session can still decide.
        TooLate = "TOO_LATE",
        /// The deadline passed without a result.
        Timeout = "TIMEOUT",
        /// The operation was interrupted.
        Interrupted = "INTERRUPTED",
        /// Too many sends in a minute.
        RateLimited = "RATE_LIMITED",
        /// The key has reached its daily storage quota, or its limit of agents.
        QuotaExceeded = "QUOTA_EXCEEDED",
        /// Two agents seem to answer each other endlessly, or a person stopped them.
        LoopSuspected = "LOOP_SUSPECTED",
        /// The wait would close a cycle of agents that wait for each other.
        WouldDeadlock = "WOULD_DEADLOCK",
        /// The request itself is invalid.
        InvalidRequest = "INVALID_REQUEST",
        /// A text exceeds its maximum length.
        PayloadTooLarge = "PAYLOAD_TOO_LARGE",
        /// The recipient has too many unacknowledged messages.
        InboxFull = "INBOX_FULL",
        /// Too many questions to people are open.
        TooManyQuestions = "TOO_MANY_QUESTIONS",
        /// No credentials, or wrong ones.
        Unauthorized = "UNAUTHORIZED",
        /// The caller has no permission.
        Forbidden = "FORBIDDEN",
        /// A policy rule forbids it.
        ForbiddenByPolicy = "FORBIDDEN_BY_POLICY",
        /// The current state does not allow it.
        Conflict = "CONFLICT",
        /// Proxy and coordinator speak different protocols.
        VersionMismatch = "VERSION_MISMATCH",
        /// The proxy has no link to a coordinator, or the coordinator accepts no more connections.
        CoordDown = "COORD_DOWN",
        /// The coordinator cannot reach its store, or the store is full. REST uses the second word.
        StoreUnavailable = "STORE_UNAVAILABLE" | "REDIS_UNAVAILABLE",
        /// The operation is not supported.
        NotSupported = "NOT_SUPPORTED",
        /// An internal error: a bug in c3po.
        Internal = "INTERNAL",
    }
}

impl ErrorCode {
    /// Returns the advice for this code, if front ends have their own wording for it.
    pub(crate) fn advice(self) -> Option<Advice> {
        match self {
            Self::AgentNotFound => Some(Advice::ListAgents),
            Self::AgentUnavailable => Some(Advice::AskAnother),
            Self::MessageNotFound => Some(Advice::UseWholeId),
            Self::AlreadyAnswered => Some(Advice::ReadThread),
            Self::WouldDeadlock => Some(Advice::AnswerFirst),
            Self::Unauthorized => Some(Advice::JoinAgain),
            Self::CoordDown => Some(Advice::WorkOn),
            Self::StoreUnavailable => Some(Advice::StoreAway),
            Self::NotSupported => Some(Advice::ListTools),
            _ => None,
        }
    }

    /// Returns the JSON-RPC error number for this code.
    pub fn json_rpc(self) -> i32 {
        match self {
            Self::InvalidRequest | Self::PayloadTooLarge => -32602,
            Self::Unauthorized => -32001,
            Self::Forbidden | Self::ForbiddenByPolicy => -32003,
            Self::AgentNotFound
            | Self::MessageNotFound
            | Self::KeyNotFound
            | Self::InviteNotFound
            | Self::LoginNotFound => -32004,
            Self::Timeout => -32008,
            Self::Conflict
            | Self::AlreadyAnswered
            | Self::Withdrawn
            | Self::TooLate
            | Self::WouldDeadlock
            | Self::VersionMismatch => -32009,
            Self::RateLimited
            | Self::QuotaExceeded
            | Self::LoopSuspected
            | Self::InboxFull
            | Self::TooManyQuestions => -32029,
            Self::CoordDown | Self::StoreUnavailable | Self::AgentUnavailable => -32050,
            Self::NotSupported => -32601,
            Self::Interrupted | Self::Internal => -32603,
        }
    }

    /// Returns the HTTP status for this code.
    pub fn http_status(self) -> u16 {
        match self {
            Self::InvalidRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden | Self::ForbiddenByPolicy => 403,
            Self::AgentNotFound
            | Self::MessageNotFound
            | Self::KeyNotFound
            | Self::InviteNotFound
            | Self::LoginNotFound => 404,
            Self::Timeout => 408,
            Self::Conflict
            | Self::AlreadyAnswered
            | Self::TooLate
            | Self::WouldDeadlock
            | Self::Interrupted => 409,
            Self::Withdrawn => 410,
            Self::PayloadTooLarge => 413,
            Self::VersionMismatch => 426,
            Self::RateLimited
            | Self::QuotaExceeded
            | Self::LoopSuspected
            | Self::InboxFull
            | Self::TooManyQuestions => 429,
            Self::Internal => 500,
            Self::NotSupported => 501,
            Self::AgentUnavailable | Self::CoordDown | Self::StoreUnavailable => 503,
        }
    }

    /// Returns the default next step, for a refusal without a better one.
    pub fn suggestion(self) -> &'static str {
        match self {
            Self::AgentNotFound => Advice::ListAgents.for_models(),
            Self::AgentUnavailable => Advice::AskAnother.for_models(),
            Self::KeyNotFound => "List the keys with `c3po-coordinator keys list`.",
            Self::InviteNotFound => "List the invites with `c3po-coordinator invites list`.",
            Self::LoginNotFound => "List the logins with `c3po-coordinator logins list`.",
            Self::MessageNotFound => Advice::UseWholeId.for_models(),
            Self::AlreadyAnswered => Advice::ReadThread.for_models(),
            Self::Withdrawn => "Nothing is left to do.",
            Self::TooLate => "Decide at the terminal that asked.",
            Self::Timeout => {
                "The other agent may be busy or offline. Continue with other work and ask again later."
            }
            Self::Interrupted => "Stop and read the reason.",
            Self::RateLimited => "Wait a minute, and put several points into one message.",
            Self::QuotaExceeded => {
                "Write long texts to a file the other agent can read and send its path. The quota has room again at \
                 the time in `until`."
            }
            Self::LoopSuspected => {
                "Stop sending to this agent and ask your user, who can list such pairs with `c3po guard list` and \
                 allow this one."
            }
            Self::WouldDeadlock => Advice::AnswerFirst.for_models(),
            Self::InvalidRequest => "Check parameter values and formats.",
            Self::PayloadTooLarge => {
                "Shorten the text, or write it to a file the other agent can read and send its path."
            }
            Self::InboxFull => {
                "The recipient has to read its inbox first. Try again later or ask another agent."
            }
            Self::TooManyQuestions => {
                "Do not ask again now. Work with what you know, and record your assumptions."
            }
            Self::Unauthorized => Advice::JoinAgain.for_models(),
            Self::Forbidden => {
                "You do not have this permission; ask the administrator of the coordinator."
            }
            Self::ForbiddenByPolicy => {
                "A rule of the coordinator's policy forbids this; the error names the rule."
            }
            Self::Conflict => "Check the current state and decide again.",
            Self::VersionMismatch => "Update the older side: c3po on this host or the coordinator.",
            Self::CoordDown => Advice::WorkOn.for_models(),
            Self::StoreUnavailable => Advice::StoreAway.for_models(),
            Self::NotSupported => Advice::ListTools.for_models(),
            Self::Internal => "Try again; if it fails again, report it with the coordinator's log.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_documented_numbers() {
        let check = |code: ErrorCode, json_rpc: i32, http: u16| {
            assert_eq!(
                (code.json_rpc(), code.http_status()),
                (json_rpc, http),
                "{code}"
            );
        };
        check(ErrorCode::InvalidRequest, -32602, 400);
        check(ErrorCode::PayloadTooLarge, -32602, 413);
        check(ErrorCode::Unauthorized, -32001, 401);
        check(ErrorCode::Forbidden, -32003, 403);
        check(ErrorCode::ForbiddenByPolicy, -32003, 403);
        check(ErrorCode::AgentNotFound, -32004, 404);
        check(ErrorCode::MessageNotFound, -32004, 404);
        check(ErrorCode::KeyNotFound, -32004, 404);
        check(ErrorCode::InviteNotFound, -32004, 404);
        check(ErrorCode::Timeout, -32008, 408);
        check(ErrorCode::Conflict, -32009, 409);
        check(ErrorCode::AlreadyAnswered, -32009, 409);
        check(ErrorCode::Withdrawn, -32009, 410);
        check(ErrorCode::TooLate, -32009, 409);
        check(ErrorCode::RateLimited, -32029, 429);
        check(ErrorCode::QuotaExceeded, -32029, 429);
        check(ErrorCode::LoopSuspected, -32029, 429);
        check(ErrorCode::InboxFull, -32029, 429);
        check(ErrorCode::TooManyQuestions, -32029, 429);
        check(ErrorCode::CoordDown, -32050, 503);
        check(ErrorCode::StoreUnavailable, -32050, 503);
        check(ErrorCode::AgentUnavailable, -32050, 503);
        check(ErrorCode::NotSupported, -32601, 501);
        check(ErrorCode::VersionMismatch, -32009, 426);
        check(ErrorCode::Interrupted, -32603, 409);
        check(ErrorCode::Internal, -32603, 500);
    }
}
