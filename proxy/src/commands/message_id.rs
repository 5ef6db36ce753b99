//! Parses a message id as a person types it: the id, or its end.

use std::str::FromStr;

use c3po_shared::ids::MessageId;
use c3po_shared::message::Message;

use super::failure::Failure;
use super::inbox::every_message;
use super::session::CommandSession;

/// The shortest end of an id that names a message.
const SUFFIX_MIN: usize = 4;

/// A message id as typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Typed {
    Whole(MessageId),
    /// The last characters of the id of a message in the inbox.
    Suffix(String),
}

impl FromStr for Typed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_suffix = text.len() >= SUFFIX_MIN && text.chars().all(|c| c.is_ascii_hexdigit());
        if is_suffix {
            return Ok(Self::Suffix(text.to_ascii_lowercase()));
        }
        text.parse().map(Self::Whole).map_err(|error| {
            format!("{error}; give the whole id, or at least {SUFFIX_MIN} characters of its end if it is in your inbox")
        })
    }
}

impl Typed {
    /// Returns the id. An end of an id is searched in the inbox.
    ///
    /// Errors: no message in the inbox has an id with this end, or several have.
    pub(super) async fn find(self, session: &CommandSession) -> Result<MessageId, Failure> {
        match self {
            Self::Whole(id) => Ok(id),
            Self::Suffix(suffix) => {
                let ids: Vec<_> = every_message(session)
                    .await?
                    .into_iter()
                    .map(|message| message.id)
                    .collect();
                only(&ids, &suffix)
            }
        }
    }

    /// Returns the message that has this id or end.
    pub(super) fn only(self, mut messages: Vec<Message>) -> Result<Message, Failure> {
        let ids: Vec<_> = messages.iter().map(|message| message.id.clone()).collect();
        let id = self.among(&ids)?;
        messages.retain(|message| message.id == id);
        messages.pop().ok_or(Failure::No)
    }

    /// Returns the id, which is one of these if only its end was typed.
    pub(super) fn among(self, ids: &[MessageId]) -> Result<MessageId, Failure> {
        match self {
            Self::Whole(id) => Ok(id),
            Self::Suffix(suffix) => only(ids, &suffix),
        }
    }

    /// Returns the ids of several messages.
    pub(super) async fn find_all(
        all: Vec<Self>,
        session: &CommandSession,
    ) -> Result<Vec<MessageId>, Failure> {
        let waiting = match all.iter().any(|typed| matches!(typed, Self::Suffix(_))) {
            true => every_message(session)
                .await?
                .into_iter()
                .map(|message| message.id)
                .collect(),
            false => Vec::new(),
        };
        let found = all.into_iter().map(|typed| match typed {
            Self::Whole(id) => Ok(id),
            Self::Suffix(suffix) => only(&waiting, &suffix),
        });
        found.collect()
    }
}

/// Returns the only id with this end.
fn only(ids: &[MessageId], suffix: &str) -> Result<MessageId, Failure> {
    let mut matching = ids.iter().filter(|id| id.as_str().ends_with(suffix));
    match (matching.next(), matching.next()) {
        (Some(id), None) => Ok(id.clone()),
        (Some(one), Some(other)) => Err(Failure::Stopped {
            why: format!("several ids in the inbox end in {suffix}, such as {one} and {other}"),
            advice: "Give more of the id's end, or the whole id.".to_owned(),
        }),
        (None, _) => Err(Failure::Stopped {
            why: format!("no id in the inbox ends in {suffix}"),
            advice:
                "Give the whole id as it was printed; `c3po inbox` shows the messages in your inbox with their ids."
                    .to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_id_names_a_message_that_waits() {
        let id = |text: &str| text.parse::<MessageId>().unwrap();
        assert_eq!(
            "a::b::5706c8c2".parse(),
            Ok(Typed::Whole(id("a::b::5706c8c2")))
        );
        assert_eq!("5706C8C2".parse(), Ok(Typed::Suffix("5706c8c2".to_owned())));
        assert!("c8c".parse::<Typed>().is_err() && "nobody".parse::<Typed>().is_err());
        let ids = [
            id("a::b::5706c8c2"),
            id("a::b::0000c8c2"),
            id("a::b::00000001"),
        ];
        assert_eq!(only(&ids, "5706c8c2").ok(), Some(ids[0].clone()));
        assert_eq!(only(&ids, "0001").ok(), Some(ids[2].clone()));
        let why = |suffix: &str| match only(&ids, suffix) {
            Err(Failure::Stopped { why, .. }) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            why("c8c2"),
            "several ids in the inbox end in c8c2, such as a::b::5706c8c2 and a::b::0000c8c2"
        );
        assert_eq!(why("ffff"), "no id in the inbox ends in ffff");
    }
}
