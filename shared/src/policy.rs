//! Questions to the policy, and its answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::AgentId;
use crate::vocabulary::words;

words! {
    /// The action of one agent on another.
    Verb {
        /// Sends a message to an agent or to a role.
        Message = "message",
        /// Answers a message.
        Reply = "reply",
        /// Sends a copy to all agents.
        Broadcast = "broadcast",
        /// Asks people a question.
        Ask = "ask",
        /// Leaves a notice for people.
        Notify = "notify",
    }
}

words! {
    /// The effect of a rule on a matching action.
    Effect {
        /// The action is allowed.
        Allow = "allow",
        /// The action is refused with `FORBIDDEN_BY_POLICY`.
        Deny = "deny",
    }
}

/// A question to the policy: may this agent do that?
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyQuestion {
    /// The agent that would act.
    pub from: AgentId,
    /// The agent that would be acted on.
    pub to: AgentId,
    /// The action.
    pub verb: Verb,
}

/// One side of a question, as the coordinator knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyParty {
    /// Its name.
    pub id: AgentId,
    /// Whether the agent exists. An unknown agent has no role and no host.
    pub known: bool,
    /// Its role, as it declared it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Its host, as the host reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// The answer of the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyAnswer {
    /// The effect on the action.
    pub effect: Effect,
    /// The rule that decides, counted from 1; absent if the default decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<usize>,
    /// The reason, from the rule.
    pub reason: String,
    /// The action in question.
    pub verb: Verb,
    /// The agent that would act.
    pub from: PolicyParty,
    /// The agent that would be acted on.
    pub to: PolicyParty,
    /// Why the current rules file is not in force; absent if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outdated: Option<String>,
}

/// The rules in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyInForce {
    /// The number of rules.
    pub rules: usize,
    /// The rules file on the coordinator's machine. It may be missing if there are no rules.
    pub path: String,
    /// The text of the file when it was put in force.
    pub text: String,
    /// Why the current rules file is not in force; absent if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outdated: Option<String>,
}
