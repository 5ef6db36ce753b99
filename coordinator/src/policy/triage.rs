//! The agents that may answer for people, and the questions that they never get.

use std::{fmt, mem};

use c3po_shared::ids::AgentId;
use c3po_shared::join::check_name;
use c3po_shared::limits::{TRIAGE_AGENTS_MAX, TRIAGE_WORDS_MAX};
use c3po_shared::message::Message;
use serde::{Deserialize, Deserializer, de};

/// The part `[triage]` of a policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Triage {
    #[serde(default, deserialize_with = "agents")]
    agents: Vec<TriageAgent>,
    #[serde(default, deserialize_with = "words")]
    always_escalate: Vec<String>,
}

/// An agent that may answer for people, as the policy names it: `NAME@HOST`, or `NAME` for that of any host.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct TriageAgent {
    name: AgentId,
    host: Option<String>,
}

impl TryFrom<String> for TriageAgent {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (name, host) = match text.split_once('@') {
            Some((name, host)) => (name, Some(host)),
            None => (text.as_str(), None),
        };
        let name: AgentId = name.parse().map_err(|why| format!("{why}"))?;
        if name.is_reserved() {
            return Err("a reserved name is no triage agent".to_owned());
        }
        if let Some(host) = host {
            check_name("the host of a triage agent", host).map_err(|refusal| refusal.error)?;
        }
        let host = host.map(str::to_owned);
        Ok(Self { name, host })
    }
}

impl fmt::Display for TriageAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Some(host) => write!(f, "{}@{host}", self.name),
            None => write!(f, "{}", self.name),
        }
    }
}

impl TriageAgent {
    /// Returns its name.
    pub(crate) fn name(&self) -> &AgentId {
        &self.name
    }

    /// Returns whether an agent of its name and of this host is meant.
    pub(crate) fn is_of(&self, host: Option<&str>) -> bool {
        self.host.is_none() || self.host.as_deref() == host
    }
}

fn agents<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<TriageAgent>, D::Error> {
    let agents = Vec::<TriageAgent>::deserialize(from)?;
    if agents.len() > TRIAGE_AGENTS_MAX {
        let error = format!("at most {TRIAGE_AGENTS_MAX} triage agents are allowed");
        return Err(de::Error::custom(error));
    }
    Ok(agents)
}

fn words<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let words = Vec::<String>::deserialize(from)?;
    if words.len() > TRIAGE_WORDS_MAX {
        let error = format!("at most {TRIAGE_WORDS_MAX} words are allowed");
        return Err(de::Error::custom(error));
    }
    let words: Vec<_> = words.iter().map(|word| plain(word)).collect();
    if words.iter().any(String::is_empty) {
        return Err(de::Error::custom("a word is empty"));
    }
    Ok(words)
}

/// Returns the letters and digits of a text in lower case, so that no invisible character hides a word.
fn plain(text: &str) -> String {
    let letters = text.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

impl Triage {
    /// Returns whether nothing is set.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the agents that may answer for people.
    pub(crate) fn agents(&self) -> &[TriageAgent] {
        &self.agents
    }

    /// Returns whether this agent of that host may answer for people.
    pub(crate) fn names(&self, agent: &AgentId, host: Option<&str>) -> bool {
        let mut agents = self.agents.iter();
        agents.any(|named| named.name == *agent && named.is_of(host))
    }

    /// Removes the agents without a host, and returns them: where keys bind agents to hosts, a name alone would give its right to
    /// each host that takes it when it becomes free.
    pub(super) fn bind(&mut self) -> Vec<TriageAgent> {
        let (bound, alone) = mem::take(&mut self.agents)
            .into_iter()
            .partition(|agent| agent.host.is_some());
        self.agents = bound;
        alone
    }

    /// Returns whether an agent may answer this question for people: never a request of a client, one that needs a person, one
    /// that was escalated, one of an agent with the name of a triage agent, or one with a word of `always_escalate`.
    pub(crate) fn may_have(&self, message: &Message) -> bool {
        let for_people = message.question.as_ref().is_some_and(|question| {
            question.needs_person || question.needs_verdict() || question.escalated
        });
        message.to_agent.is_human()
            && message.requires_response
            && !self.agents.is_empty()
            && !for_people
            && !self.is_named(&message.from_agent)
            && !self.has_word(message)
    }

    /// Returns whether a triage agent has this name, whatever its host: one that was renamed asks under its former name.
    fn is_named(&self, agent: &AgentId) -> bool {
        self.agents.iter().any(|named| named.name == *agent)
    }

    fn has_word(&self, message: &Message) -> bool {
        let options = message.question.iter().flat_map(|asked| &asked.parts);
        let options = options.flat_map(|part| {
            let labels = part.options.iter().map(|option| option.label.as_str());
            labels.chain([part.text.as_str()])
        });
        let texts = [&message.title, &message.context].into_iter().flatten();
        let texts = texts.map(String::as_str).chain([message.text()]);
        texts.chain(options).map(plain).any(|text| {
            let mut words = self.always_escalate.iter();
            words.any(|word| text.contains(word.as_str()))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn triage() -> Triage {
        toml::from_str(
            "agents = [\"triage\", \"second@vic\"]\nalways_escalate = [\"Security\", \"über\"]",
        )
        .expect("a part of a policy")
    }

    fn asks(from: &str, text: &str, question: serde_json::Value) -> Message {
        serde_json::from_value(json!({
            "id": "ha::human::0a1b2c3d", "thread_id": "ha::human::0a1b2c3d", "kind": "message", "from_agent": from,
            "to_agent": "human", "message": text, "requires_response": true, "question": question,
            "timestamp": "2026-01-15T00:00:00.000Z", "expires_at": "2026-01-22T00:00:00.000Z",
        }))
        .expect("a message")
    }

    #[test]
    fn some_questions_are_for_people_alone() {
        let may = |from: &str, text: &str, question| triage().may_have(&asks(from, text, question));
        let part = json!({"id": "1", "text": "?", "allow_text": true});
        let null = serde_json::Value::Null;
        assert!(may("ha", "Which database?", null.clone()));
        assert!(!may("second", "Which database?", null.clone()));
        assert!(!may("ha", "Is this a sec\u{200b}URITY hole?", null.clone()));
        assert!(!may("ha", "ÜBER?", null));
        assert!(may("ha", "?", json!({"kind": "ask", "parts": [part]})));
        for (field, value) in [
            ("needs_person", json!(true)),
            ("escalated", json!(true)),
            ("request", json!({"tool": "Bash", "input": "{}"})),
        ] {
            let mut question = json!({"kind": "ask", "parts": [part]});
            question[field] = value;
            assert!(!may("ha", "?", question), "{field}");
        }
        assert!(!Triage::default().may_have(&asks("ha", "?", serde_json::Value::Null)));
    }

    #[test]
    fn the_right_goes_with_the_name_and_the_host() {
        let names =
            |name: &str, host| triage().names(&name.parse().expect("the name of an agent"), host);
        assert!(names("second", Some("vic")));
        for host in [Some("evil"), Some("Vic"), Some("vic2"), Some(""), None] {
            assert!(!names("second", host), "{host:?}");
        }
        assert!(!names("third", Some("vic")));
        assert!(names("triage", Some("vic")) && names("triage", None));
    }

    #[test]
    fn an_agent_without_a_host_loses_its_right_where_keys_bind_hosts() {
        let mut triage = triage();
        let lost: Vec<_> = triage.bind().iter().map(TriageAgent::to_string).collect();
        assert_eq!(lost, ["triage"]);
        let left: Vec<_> = triage.agents.iter().map(TriageAgent::to_string).collect();
        assert_eq!(left, ["second@vic"]);
    }

    #[test]
    fn mistakes_are_errors() {
        for text in [
            "agents = [\"human\"]",
            "agents = [\"a b\"]",
            "agents = [\"human@vic\"]",
            "agents = [\"a@\"]",
            "agents = [\"a@ \"]",
            "agents = [\"@vic\"]",
            "agents = [\"a@vic\\u001b[0m\"]",
            "always_escalate = [\"-\"]",
            "agent = []",
        ] {
            assert!(toml::from_str::<Triage>(text).is_err(), "{text}");
        }
    }
}
