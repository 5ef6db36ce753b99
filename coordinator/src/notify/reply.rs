//! The messages of a reply topic: the tap on a button, or a code and words. Pure.

use std::slice;

use c3po_shared::ids::MessageId;
use c3po_shared::message::Message;
use c3po_shared::question::{AnswerContent, Part, PartAnswer, Question, Verdict};
use c3po_shared::receipt::Via;
use c3po_shared::vocabulary::{Decision, QuestionKind};
use serde::Deserialize;

use super::codes::{self, Codes};
use super::options::{is_numbered, place};
use crate::request::labelled;

/// The options of a verdict.
pub(super) const ALLOW: &str = "allow";
pub(super) const DENY: &str = "deny";

/// How a tap on the button of a test begins.
pub(super) const TEST: &str = "c3po-test";

/// A line of the stream of a topic.
#[derive(Debug, Deserialize)]
pub(super) struct Line {
    pub(super) id: String,
    /// When it was sent, in seconds.
    #[serde(default)]
    pub(super) time: u64,
    pub(super) event: String,
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    pub(super) title: String,
    #[serde(default)]
    pub(super) sequence_id: Option<String>,
}

/// A tap on a button.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tap {
    pub(super) question: MessageId,
    pub(super) option: String,
    pub(super) code: String,
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// A tap on a button.
    Tap(Tap),
    /// A code, and the words after it.
    Words { code: String, text: String },
    /// The tap of a test, which is not for the coordinator.
    Test,
    /// Something else.
    Unreadable,
}

impl Reply {
    /// Parses the text of a message.
    pub(super) fn parse(text: &str) -> Self {
        let text = text.trim();
        if text.starts_with(TEST) {
            return Self::Test;
        }
        if text.starts_with('{') {
            return serde_json::from_str(text).map_or(Self::Unreadable, Self::Tap);
        }
        let (code, words) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        match (codes::as_made(code), words.trim()) {
            (Some(code), words) if !words.is_empty() => Self::Words {
                code,
                text: words.to_owned(),
            },
            _ => Self::Unreadable,
        }
    }
}

impl Tap {
    /// Returns whether the code is the one of this button.
    pub(super) fn is_right(&self, codes: &Codes, question: &Message) -> bool {
        codes::same(&codes.button(question, &self.option), &self.code)
    }

    /// Returns the answer that the button stands for, or `None` if the question has no such button.
    pub(super) fn content(&self, question: &Question) -> Option<AnswerContent> {
        let [part] = &question.parts[..] else {
            return None;
        };
        let is_choice = matches!(question.kind, QuestionKind::Ask | QuestionKind::Choice);
        let decision = match self.option.as_str() {
            _ if is_choice => Decision::Allow,
            ALLOW => Decision::Allow,
            DENY => Decision::Deny,
            _ => return None,
        };
        let verdict = question.request.as_ref().map(|request| Verdict {
            decision,
            suggestion: None,
            text: None,
            request_hash: request.hash.clone(),
        });
        let chosen = PartAnswer {
            id: part.id.clone(),
            options: vec![self.option.clone()],
            text: None,
        };
        Some(AnswerContent {
            parts: if is_choice { vec![chosen] } else { Vec::new() },
            verdict,
            via: Some(Via::Ntfy),
            saved: None,
        })
    }
}

/// Returns whether an answer in words to this question is possible.
pub(super) fn takes_words(question: &Message) -> bool {
    let is_one = |question: &Question| question.parts.len() == 1 && !question.needs_verdict();
    question.requires_response && question.question.as_deref().is_none_or(is_one)
}

/// Returns the answer for the words: the option with this label or number, else the words themselves.
pub(super) fn in_words(part: &Part, words: &str) -> AnswerContent {
    let number = place(words).filter(|_| is_numbered(slice::from_ref(part)));
    let by_label = labelled(part.options.iter(), words);
    let chosen = by_label.or_else(|| part.options.get(number?));
    let answer = PartAnswer {
        id: part.id.clone(),
        options: chosen.iter().map(|option| option.id.clone()).collect(),
        text: chosen.is_none().then(|| words.to_owned()),
    };
    AnswerContent {
        parts: vec![answer],
        verdict: None,
        via: Some(Via::Ntfy),
        saved: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notify::options::tests::part;

    #[test]
    fn a_reply_is_a_tap_or_a_code_with_words() {
        let tap = r#"{"question":"a::human::0a1b2c3d","option":"1","code":"X"}"#;
        assert!(matches!(Reply::parse(tap), Reply::Tap(tap) if tap.option == "1"));
        let words = |code: &str, text: &str| Reply::Words {
            code: code.to_owned(),
            text: text.to_owned(),
        };
        assert_eq!(
            Reply::parse(" K7PQ2M  use Redis \n"),
            words("k7pq2m", "use Redis")
        );
        assert_eq!(
            Reply::parse("k7pq2m: use\nRedis"),
            words("k7pq2m", "use\nRedis")
        );
        assert_eq!(Reply::parse("c3po-test abc"), Reply::Test);
        for text in [
            "",
            "yes",
            "k7pq2m",
            "{}",
            "{\"question\":1}",
            "use Redis",
            "k7pq2mm Redis",
        ] {
            assert_eq!(Reply::parse(text), Reply::Unreadable, "{text}");
        }
    }

    #[test]
    fn a_label_that_reads_like_the_number_of_another_option_leaves_all_without_numbers() {
        for (labels, words, chosen) in [
            (["2", "none"], "2", Some("id of 2")),
            (["2", "none"], "1", None),
            (["none", " 01"], "1", None),
            (["1", "2"], "2", Some("id of 2")),
            (["10", "20"], "2", Some("id of 20")),
            (["2.", "none"], "2", None),
            (["(2)", "none"], "2.", None),
            (["2 days", "none"], "2", None),
            (["②", "none"], "2", None),
            (["Copy 2", "Copy 1"], "2", None),
            (["in 3 days", "none"], "2", Some("id of none")),
            (["yes", "none"], "2.", Some("id of none")),
            (["yes", "none"], "(2)", Some("id of none")),
            (["yes", "none"], "-2", None),
        ] {
            let answer = &in_words(&part(&labels), words).parts[0];
            let found = answer.options.first().map(String::as_str);
            assert_eq!(found, chosen, "{labels:?} {words}");
        }
    }

    #[test]
    fn a_number_chooses_no_option_of_a_list_that_a_push_does_not_show_whole() {
        let label = "x".repeat(800);
        let part = part(&["Redis", "SQLite", &label, &label, &label, &label, &label]);
        let chosen = |words: &str| in_words(&part, words).parts[0].options.clone();
        assert_eq!(chosen("2"), [""; 0]);
        assert_eq!(chosen("sqlite"), ["id of SQLite"]);
    }

    #[test]
    fn words_choose_an_option_by_its_label_or_number() {
        let part = part(&["Redis", "SQLite", "-d", "-D", "US", "Us"]);
        for (words, chosen) in [
            ("redis", Some("id of Redis")),
            ("2", Some("id of SQLite")),
            ("-D", Some("id of -D")),
            ("Us", Some("id of Us")),
            ("us", None),
            ("7", None),
            ("both", None),
        ] {
            let answer = &in_words(&part, words).parts[0];
            assert_eq!(
                answer.options.first().map(String::as_str),
                chosen,
                "{words}"
            );
            assert_eq!(
                answer.text.as_deref(),
                Some(words).filter(|_| chosen.is_none())
            );
        }
    }
}
