//! What a policy is asked, and what it answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::AgentId;
use crate::vocabulary::words;

words! {
    /// What an agent does to another.
    Verb {
        /// Sends a message, also to all of a role.
        Message = "message",
        /// Answers a message.
        Reply = "reply",
        /// Sends copies to everybody.
        Broadcast = "broadcast",
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
    /// Why the file of rules is not in force as it is now; absent where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outdated: Option<String>,
}

/// The rules in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyInForce {
    /// How many rules there are.
    pub rules: usize,
    /// Their file, on the coordinator's machine. It may be missing where there are none.
    pub path: String,
    /// The text of the file when it was put in force.
    pub text: String,
    /// Why the file is not in force as it is now; absent where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outdated: Option<String>,
}
