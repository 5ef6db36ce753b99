//! A reply on its way to the client: its text and its parsed JSON value.

use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Tool;
use crate::ids::MessageId;
use crate::message::Message;
use crate::refusal::{ErrorCode, Refusal};

/// A reply as the client receives it.
///
/// It holds a JSON value, not a [`super::Reply`]: a newer coordinator may add members and words that these types do not know,
/// and the client must still receive them.
#[derive(Debug, Clone)]
pub struct Received {
    /// `None` once the value has been changed.
    text: Option<String>,
    value: Value,
}

impl Received {
    /// Parses a reply.
    ///
    /// Errors: `INTERNAL` for text that cannot be parsed as JSON.
    pub fn parse(reply: &RawValue) -> Result<Self, Refusal> {
        let value = serde_json::from_str(reply.get()).map_err(|error| unreadable(&error))?;
        Ok(Self {
            text: Some(reply.get().to_owned()),
            value,
        })
    }

    /// Returns a reply that is made in this process.
    pub fn of(reply: &impl Serialize) -> Self {
        let value =
            serde_json::to_value(reply).expect("replies have text keys and no failing serialisers");
        Self { text: None, value }
    }

    /// Deserialises the reply as the result of that tool.
    ///
    /// Errors: `INTERNAL` for a reply of another shape.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        T::deserialize(&self.value).map_err(|error| unreadable(&error))
    }

    /// Returns the messages that the reply shows to the model in full. Once the reply is written they are `in_session`.
    pub fn presented(&self, tool: Tool) -> Vec<MessageId> {
        if tool == Tool::AskUser {
            let reply = self.value.get("reply_id").and_then(Value::as_str);
            return reply.and_then(|id| id.parse().ok()).into_iter().collect();
        }
        self.messages(tool)
            .filter(|message| message.get("rest").is_none())
            .filter_map(id)
            .collect()
    }

    /// Returns the messages of which the reply contains any part.
    pub fn shown(&self, tool: Tool) -> Vec<MessageId> {
        if tool == Tool::AskUser {
            return self.presented(tool);
        }
        self.messages(tool).filter_map(id).collect()
    }

    /// Returns the message that a wait returned to its end, if it did.
    pub fn waited(&self) -> Option<Message> {
        let message = self
            .messages(Tool::WaitForMessage)
            .find(|message| message.get("rest").is_none())?;
        Message::deserialize(message).ok()
    }

    fn messages(&self, tool: Tool) -> impl Iterator<Item = &Value> {
        let page: &[Value] = match tool {
            // A wait that timed out, or that waited for a stage, has no `id`.
            Tool::WaitForMessage => std::slice::from_ref(&self.value),
            Tool::GetMessages | Tool::GetThread => self
                .value
                .get("messages")
                .and_then(Value::as_array)
                .map_or(&[][..], Vec::as_slice),
            _ => &[],
        };
        page.iter()
    }

    /// Marks the given messages in the reply as repeated.
    pub fn mark_repeated(&mut self, ids: &[MessageId]) {
        let is_repeated = |message: &Value| {
            message
                .get("id")
                .is_some_and(|id| ids.iter().any(|one| *id == one.as_str()))
        };
        if is_repeated(&self.value) {
            return self.set("repeated", true);
        }
        let Some(page) = self.value.get_mut("messages").and_then(Value::as_array_mut) else {
            return;
        };
        for message in page.iter_mut().filter(|message| is_repeated(message)) {
            message["repeated"] = true.into();
            self.text = None;
        }
    }

    /// Sets a member of the reply.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        if let Value::Object(members) = &mut self.value {
            members.insert(name.to_owned(), value.into());
            self.text = None;
        }
    }

    /// Returns the reply as a value.
    pub fn into_value(self) -> Value {
        self.value
    }

    /// Returns the reply as text and as a value.
    pub fn into_parts(self) -> (String, Value) {
        (
            self.text.unwrap_or_else(|| self.value.to_string()),
            self.value,
        )
    }
}

impl Serialize for Received {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

fn id(message: &Value) -> Option<MessageId> {
    message.get("id")?.as_str()?.parse().ok()
}

fn unreadable(error: &serde_json::Error) -> Refusal {
    Refusal::new(
        ErrorCode::Internal,
        format!("cannot read the coordinator's reply: {error}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Acked;
    use serde_json::json;

    fn received(text: &str) -> Received {
        Received::parse(serde_json::from_str(text).expect("JSON")).expect("a value")
    }

    fn id(text: &str) -> MessageId {
        text.parse().expect("an id")
    }

    #[test]
    fn a_reply_is_passed_on_unchanged_with_its_unknown_values() {
        let text = r#"{"id":"a::b::00000001","kind":"riddle", "solved":1.50}"#;
        let (same, value) = received(text).into_parts();
        assert_eq!((same.as_str(), &value["kind"]), (text, &json!("riddle")));
    }

    #[test]
    fn the_messages_that_a_reply_presents_are_read_off_it() {
        let check = |tool, reply: &str, expected: usize| {
            assert_eq!(received(reply).presented(tool).len(), expected, "{reply}");
        };
        check(
            Tool::WaitForMessage,
            r#"{"id":"a::b::00000001","message":"hi"}"#,
            1,
        );
        check(Tool::WaitForMessage, r#"{"status":"timeout"}"#, 0);
        check(
            Tool::WaitForMessage,
            r#"{"message_id":"a::b::00000001","stage":"seen","history":[]}"#,
            0,
        );
        check(
            Tool::GetMessages,
            r#"{"messages":[{"id":"a::b::00000001"},{"id":"a::b::00000002"}],"count":2}"#,
            2,
        );
        check(Tool::SendMessage, r#"{"id":"a::b::00000001"}"#, 0);
        check(
            Tool::AskUser,
            r#"{"question_id":"a::human::00000001","reply_id":"human::a::00000002"}"#,
            1,
        );
        check(
            Tool::AskUser,
            r#"{"question_id":"a::human::00000001","status":"no_response"}"#,
            0,
        );
    }

    #[test]
    fn a_message_of_which_the_rest_is_to_come_is_shown_and_not_presented() {
        let check = |tool, reply: &str, shown: usize, presented: usize| {
            let reply = received(reply);
            assert_eq!(
                (reply.shown(tool).len(), reply.presented(tool).len()),
                (shown, presented),
                "{reply:?}"
            );
        };
        check(
            Tool::WaitForMessage,
            r#"{"id":"a::b::00000001","message":"h","rest":"1+1"}"#,
            1,
            0,
        );
        check(
            Tool::WaitForMessage,
            r#"{"id":"a::b::00000001","message":"i"}"#,
            1,
            1,
        );
        let page = r#"{"messages":[{"id":"a::b::00000001"},{"id":"a::b::00000002","rest":"2+1"}]}"#;
        check(Tool::GetMessages, page, 2, 1);
        check(
            Tool::GetThread,
            r#"{"messages":[{"id":"a::b::00000001","rest":"0.a::b::00000001+1"}]}"#,
            1,
            0,
        );
    }

    #[test]
    fn repeated_messages_are_marked_in_text_and_value_and_nothing_else_changes() {
        let check = |reply: &str, expected: &str| {
            let mut received = received(reply);
            received.mark_repeated(&[id("a::b::00000001")]);
            let (text, value) = received.into_parts();
            assert_eq!(text, expected);
            assert_eq!(value.to_string(), expected);
        };
        check(
            r#"{"id":"a::b::00000001","new":1}"#,
            r#"{"id":"a::b::00000001","new":1,"repeated":true}"#,
        );
        check(r#"{"id":"a::b::00000002"}"#, r#"{"id":"a::b::00000002"}"#);
        check(
            r#"{"messages":[{"id":"a::b::00000002"},{"id":"a::b::00000001"}],"count":2}"#,
            r#"{"messages":[{"id":"a::b::00000002"},{"id":"a::b::00000001","repeated":true}],"count":2}"#,
        );
        check(r#"{"status":"timeout"}"#, r#"{"status":"timeout"}"#);
    }

    #[test]
    fn a_reply_is_read_as_the_type_of_its_tool() {
        let acked = Acked {
            acked: vec![id("a::b::00000001")],
            unknown: Vec::new(),
        };
        assert_eq!(Received::of(&acked).read::<Acked>(), Ok(acked));
        let refused = received("{}")
            .read::<Acked>()
            .expect_err("not an acknowledgement");
        assert_eq!(refused.code, ErrorCode::Internal);
    }
}
