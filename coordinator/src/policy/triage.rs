//! The agents that may answer for people, and the questions that they never get.

use c3po_shared::ids::AgentId;
use c3po_shared::limits::{TRIAGE_AGENTS_MAX, TRIAGE_WORDS_MAX};
use c3po_shared::message::Message;
use serde::{Deserialize, Deserializer, de};

/// The part `[triage]` of a policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Triage {
    #[serde(default, deserialize_with = "agents")]
    agents: Vec<AgentId>,
    #[serde(default, deserialize_with = "words")]
    always_escalate: Vec<String>,
}

fn agents<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<AgentId>, D::Error> {
    let agents = Vec::<AgentId>::deserialize(from)?;
    if agents.len() > TRIAGE_AGENTS_MAX {
        let error = format!("at most {TRIAGE_AGENTS_MAX} triage agents are allowed");
        return Err(de::Error::custom(error));
    }
    if agents.iter().any(AgentId::is_reserved) {
        return Err(de::Error::custom("a reserved name is no triage agent"));
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
    pub(crate) fn agents(&self) -> &[AgentId] {
        &self.agents
    }

    /// Returns whether this agent may answer for people.
    pub(crate) fn names(&self, agent: &AgentId) -> bool {
        self.agents.contains(agent)
    }

    /// Returns whether an agent may answer this question for people: never a request of a client, one that needs a person, one
    /// that was escalated, one of a triage agent, or one with a word of `always_escalate`.
    pub(crate) fn may_have(&self, message: &Message) -> bool {
        let for_people = message.question.as_ref().is_some_and(|question| {
            question.needs_person || question.needs_verdict() || question.escalated
        });
        message.to_agent.is_human()
            && message.requires_response
            && !self.agents.is_empty()
            && !for_people
            && !self.names(&message.from_agent)
            && !self.has_word(message)
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
            "agents = [\"triage\", \"second\"]\nalways_escalate = [\"Security\", \"über\"]",
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
    fn mistakes_are_errors() {
        for text in [
            "agents = [\"human\"]",
            "agents = [\"a b\"]",
            "always_escalate = [\"-\"]",
            "agent = []",
        ] {
            assert!(toml::from_str::<Triage>(text).is_err(), "{text}");
        }
    }
}
