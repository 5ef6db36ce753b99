//! The content of a conversation, as far as it matters to messages.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use c3po_shared::ids::MessageId;
use c3po_shared::time::Timestamp;

use super::TranscriptLine;

/// The messages of ours in a conversation.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Recorded {
    /// The messages whose text it contains.
    pub(crate) named: HashSet<MessageId>,
    /// The ones above an answer of the model, which was given them.
    pub(crate) answered: HashSet<MessageId>,
    /// The ones of a prompt at its end that nothing followed: no answer, no failure, no interruption.
    pub(crate) open: HashSet<MessageId>,
    /// How long ago the client wrote its latest line, if it notes the time.
    pub(crate) age: Option<Duration>,
    /// The same of the latest line with each message.
    pub(crate) ages: HashMap<MessageId, Duration>,
    /// The turns of the file that are not in the conversation: a person took them back, or another process wrote them.
    pub(crate) other_turns: HashSet<String>,
    /// Whether another process of the client writes into the file as well.
    pub(crate) is_shared: bool,
    /// Whether another plugin ended the latest turn: the model has not read its end, and its person does not see that.
    pub(crate) is_stopped: bool,
    /// The latest uses of tools that have a result.
    pub(crate) over: HashSet<String>,
}

impl Recorded {
    /// The line is a part of the conversation.
    pub(super) fn add(&mut self, line: &TranscriptLine, is_answered: bool) {
        self.named.extend(line.ids.iter().cloned());
        if is_answered {
            self.answered.extend(line.ids.iter().cloned());
        }
        // One of the future was written before the clock was set back.
        let (now, written) = (Timestamp::now(), line.written);
        if let Some(age) = written.filter(|at| *at <= now).map(|at| now.since(at)) {
            self.are_written(line.ids.iter().map(|id| (id.clone(), age)));
        }
    }

    /// So is the rest of it.
    pub(super) fn join(&mut self, other: Self) {
        self.named.extend(other.named);
        self.answered.extend(other.answered);
        self.are_written(other.ages);
    }

    fn are_written(&mut self, ages: impl IntoIterator<Item = (MessageId, Duration)>) {
        for (id, age) in ages {
            let latest = self.ages.entry(id).or_insert(age);
            *latest = age.min(*latest);
        }
    }
}
