//! The codes of pushes: each stands for one person, one question with all that a push of it shows, and one option. An id and a
//! time alone may be those of another question in another fleet.
//!
//! A code is a MAC under a key that is made of the coordinator's token for the topic. All coordinators of a fleet make the
//! same codes without storing them, and a holder of that token could read the codes in the topic anyway. A code works once,
//! because the store takes one answer, and until its question ends.

use c3po_shared::message::Message;
use data_encoding::BASE32_NOPAD;
use ring::hmac::{HMAC_SHA256, Key, sign};
use serde_json::json;
use subtle::ConstantTimeEq;
use uuid::Uuid;

use super::config::Person;

/// The letters and digits of the codes that people type: none looks like another.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// The length of a code that people type.
pub(super) const TYPED: usize = 6;
/// The bytes of the code of a button.
const BUTTON_BYTES: usize = 20;

/// The codes of one person.
#[derive(Debug)]
pub(super) struct Codes(Key);

impl Codes {
    /// Returns the codes of this person in the fleet with that random id, or `None` without a token: then anyone could read
    /// them.
    pub(super) fn of(person: &Person, fleet: Uuid) -> Option<Self> {
        let token = person.token.as_ref()?;
        let place = format!(
            "c3po push codes 2\n{}\n{}\n{}\n{fleet}",
            person.server, person.topic, person.name
        );
        let base = Key::new(HMAC_SHA256, token.reveal().as_bytes());
        Some(Self(Key::new(
            HMAC_SHA256,
            sign(&base, place.as_bytes()).as_ref(),
        )))
    }

    /// Returns the code of a button.
    pub(super) fn button(&self, question: &Message, option: &str) -> String {
        let subject = subject(question);
        let mac = sign(&self.0, format!("button\n{option}\n{subject}").as_bytes());
        BASE32_NOPAD.encode(&mac.as_ref()[..BUTTON_BYTES])
    }

    /// Returns the code with which an answer in words begins.
    pub(super) fn typed(&self, question: &Message) -> String {
        let mac = sign(&self.0, format!("words\n{}", subject(question)).as_bytes());
        let letters = mac.as_ref().iter().take(TYPED);
        letters
            .map(|byte| char::from(ALPHABET[usize::from(byte & 31)]))
            .collect()
    }
}

/// Returns the fields that distinguish a question from all others, and its texts and options.
fn subject(message: &Message) -> String {
    let question = message.question.as_deref();
    let request = question.and_then(|question| question.request.as_ref());
    json!([
        message.id,
        message.timestamp,
        message.from_host,
        message.title,
        message.text(),
        message.context,
        question.map(|question| (question.kind, &question.parts)),
        request.map(|request| (&request.tool, &request.hash)),
    ])
    .to_string()
}

/// Returns whether two codes are the same, in constant time.
pub(super) fn same(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

/// Returns a typed code as it was made: case does not matter, nor letters that look like digits. `None` if it is not a code.
pub(super) fn as_made(typed: &str) -> Option<String> {
    let made =
        typed
            .trim_end_matches([':', ',', '.'])
            .chars()
            .map(|c| match c.to_ascii_lowercase() {
                'o' => '0',
                'i' | 'l' => '1',
                c => c,
            });
    let made: String = made.collect();
    let is_code = made.len() == TYPED && made.bytes().all(|byte| ALPHABET.contains(&byte));
    is_code.then_some(made)
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;
    use crate::notify::config::tests::person;
    use crate::notify::render::tests::message;

    /// Returns messages that differ in one thing each.
    fn alike() -> Vec<Message> {
        let mut of_another_text = message(json!({}));
        of_another_text.message = Some("rm -r build".to_owned());
        let mut later = message(json!({}));
        later.timestamp = later.timestamp + std::time::Duration::from_millis(1);
        let with = |kind: &str, options: [&str; 2], text: &str| {
            let options = options.map(|label| json!({"id": "1", "label": label}));
            let part = json!({"id": "1", "text": text, "options": options});
            message(json!({"question": {"kind": kind, "parts": [part]}}))
        };
        vec![
            message(json!({})),
            message(json!({"id": "ha::human::0a1b2c3e"})),
            of_another_text,
            later,
            message(json!({"context": "of the test"})),
            message(json!({"title": "Which database?"})),
            message(json!({"from_host": "laptop"})),
            with(
                "ask",
                ["Delete production", "Delete the test copy"],
                "Which?",
            ),
            with(
                "ask",
                ["Delete the test copy", "Delete production"],
                "Which?",
            ),
            with(
                "ask",
                ["Delete the test copy", "Delete production"],
                "What?",
            ),
            with(
                "choice",
                ["Delete the test copy", "Delete production"],
                "Which?",
            ),
        ]
    }

    #[test]
    fn a_code_is_for_one_fleet_one_person_one_question_and_one_option() {
        let messages = alike();
        let mut other = person();
        other.name = "bob".to_owned();
        let fleets = [1, 2].map(Uuid::from_u128);
        let all = [
            (person(), fleets[0]),
            (person(), fleets[1]),
            (other, fleets[0]),
        ]
        .map(|(person, fleet)| Codes::of(&person, fleet).expect("codes"));
        let mut seen = std::collections::HashSet::new();
        for (codes, message) in all
            .iter()
            .flat_map(|codes| messages.iter().map(move |message| (codes, message)))
        {
            for option in ["1", "2"] {
                assert!(seen.insert(codes.button(message, option)));
            }
            let typed = codes.typed(message);
            assert_eq!(
                as_made(&typed.to_uppercase()).as_deref(),
                Some(typed.as_str())
            );
            assert!(seen.insert(typed));
        }
        let mut open = person();
        open.token = None;
        assert!(Codes::of(&open, fleets[0]).is_none());
    }

    #[test]
    fn only_six_letters_are_a_code() {
        assert_eq!(as_made("OIL0ab:").as_deref(), Some("0110ab"));
        for text in ["", "abcde", "abcdefg", "ab-def", "äbcde"] {
            assert_eq!(as_made(text), None, "{text}");
        }
    }
}
