//! What a policy is asked, and what it answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::AgentId;
use crate::vocabulary::words;

words! {
    /// What somebody does to somebody else. The last five are known to rules already and done by nothing yet.
    Verb {
        /// Sends a message, also to all of a role.
        Message = "message",
        /// Answers a message.
        Reply = "reply",
        /// Sends copies to everybody.
        Broadcast = "broadcast",
        /// Gives a task.
        Task = "task",
        /// Writes on the board for all.
        Bulletin = "bulletin",
        /// Stops what another does for a moment.
        Interrupt = "interrupt",
        /// Starts a session.
        Spawn = "spawn",
        /// Ends a session.
        Stop = "stop",
    }
}

words! {
    /// What a rule says of what it matches.
    Effect {
        /// It is done.
        Allow = "allow",
        /// It is refused with `FORBIDDEN_BY_POLICY`.
        Deny = "deny",
    }
}

impl Verb {
    /// Returns what holds where no rule matches and the policy says nothing else: only control is denied.
    pub fn usual_effect(self) -> Effect {
        match self {
            Self::Message | Self::Reply | Self::Broadcast | Self::Task | Self::Bulletin => Effect::Allow,
            Self::Interrupt | Self::Spawn | Self::Stop => Effect::Deny,
        }
    }
}

/// What is asked of the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyQuestion {
    /// Who would do it.
    pub from: AgentId,
    /// To whom.
    pub to: AgentId,
    /// What.
    pub verb: Verb,
}

/// One side of a question as the coordinator knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyParty {
    /// Its name.
    pub id: AgentId,
    /// Whether there is such an agent: one that is not known has no role and no host.
    pub known: bool,
    /// Its role, as it said itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Its machine, as that said itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// What the policy answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyAnswer {
    /// What would become of it.
    pub effect: Effect,
    /// Which rule of the file says so, counted from 1; absent where the default does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<usize>,
    /// Why, in the words of the rule.
    pub reason: String,
    /// What was asked about.
    pub verb: Verb,
    /// Who would do it.
    pub from: PolicyParty,
    /// To whom.
    pub to: PolicyParty,
}
