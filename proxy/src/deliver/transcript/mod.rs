//! The client's transcript of a session: evidence of the content of its conversation, beside the hooks and never alone.
//!
//! Each line is an object with an id and its parent's, and the conversation is the chain from the last one upward: after a
//! rewind or an interrupted turn a part of the file is no longer in it. A prompt that follows on a rewind to the very
//! beginning is written below the line that was the last one all the same. But prompts have the number of their turn, and
//! that one begins at 1 again: of the chain, only turns with a smaller number than all below them count. One that follows
//! on a rewind to the summary of a compaction is written below the summarised lines: nothing from before the latest
//! compaction counts, but for the lines that the compaction names as kept.
//!
//! The format is the client's own. Lines that are not understood are passed over, and where nothing is understood there is no
//! evidence.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use c3po_shared::ids::MessageId;
use c3po_shared::surrogates;
use c3po_shared::time::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use crate::local::MARK;

/// Where the model's name stands, in answers that the client wrote itself.
const NO_MODEL: &str = "<synthetic>";
/// How much of a file is read at most: the end of a longer one, of which nothing was read before.
const READ_MAX: u64 = 64 << 20;

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
    /// The turns of the file that are not in the conversation: a person took them back, or another process wrote them.
    pub(crate) other_turns: HashSet<String>,
    /// Whether another process of the client writes into the file as well.
    pub(crate) is_shared: bool,
}

/// The content of one file that was read so far.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    path: PathBuf,
    read: u64,
    lines: HashMap<Uuid, TranscriptLine>,
    /// The lines of one answer of the model: each use of a tool has its own.
    answers: HashMap<String, Vec<Uuid>>,
    /// Prompts, and the lines that come with them, such as the texts of hooks.
    prompts: HashMap<String, Vec<Uuid>>,
    /// The results that stand below a line.
    results: HashMap<Uuid, Vec<Uuid>>,
    /// The lines in the order of the file.
    order: Vec<Uuid>,
    written: Option<Timestamp>,
    /// The place of the latest compaction.
    compacted: usize,
    /// The lines before it that it left in the conversation.
    kept: Vec<Uuid>,
}

/// One line that is a part of a conversation.
#[derive(Debug)]
struct TranscriptLine {
    /// How many stand before it in the file.
    place: usize,
    parent: Option<Uuid>,
    /// The messages that it names.
    ids: Vec<MessageId>,
    /// Of a prompt: its turn.
    turn: Option<TurnNumber>,
    /// The prompt of its turn, if it names one.
    prompt: Option<String>,
    /// The prompt that it is, or comes with.
    comes_with: Option<String>,
    /// Of a line of the model: the answer that it is a part of.
    answer: Option<String>,
    /// Whether it is more than what comes with a prompt: an answer, a result, or the notice of an interruption.
    follows_prompt: bool,
    /// Whether the model wrote it: the client writes answers of its own, such as the failures of the model's service.
    is_of_model: bool,
}

/// A turn of the conversation.
#[derive(Debug, PartialEq)]
struct TurnNumber {
    number: u64,
    prompt: Option<String>,
}

/// The members of a line that are read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LineFields {
    uuid: Uuid,
    #[serde(default)]
    parent_uuid: Option<Uuid>,
    #[serde(default)]
    is_sidechain: bool,
    /// Older versions have neither of these.
    #[serde(default)]
    turn_position: Value,
    #[serde(default)]
    prompt_id: Value,
}

impl LineFields {
    fn turn(&self) -> Option<TurnNumber> {
        let number = self.turn_position["turnIndex"].as_u64()?;
        Some(TurnNumber {
            number,
            prompt: self.prompt(),
        })
    }

    fn prompt(&self) -> Option<String> {
        self.prompt_id.as_str().map(str::to_owned)
    }
}

impl Transcript {
    /// Reads on in that file, and returns which messages the conversation names. Blocks.
    ///
    /// Errors: it cannot be read, or holds nothing that is understood.
    pub(super) fn conversation(&mut self, path: &Path) -> io::Result<Recorded> {
        if self.path != path {
            *self = Self {
                path: path.to_owned(),
                ..Self::default()
            };
        }
        self.read_on()?;
        let mut standing = Recorded::default();
        // The messages of one turn, whose lines the chain shows from their end to its prompt.
        let mut of_turn = Recorded::default();
        let mut first: Option<&TurnNumber> = None;
        let mut answers = Answers::default();
        let chain = self.chain();
        standing.other_turns =
            self.turns(self.order.iter().filter_map(|uuid| self.lines.get(uuid)));
        for prompt in chain.iter().filter_map(|(line, _)| line.prompt.as_ref()) {
            standing.other_turns.remove(prompt);
        }
        standing.open = open(&chain);
        for (line, above) in chain {
            let is_answered = answers.follow(line, above);
            for id in line
                .ids
                .iter()
                .chain(self.beside(line).flat_map(|line| &line.ids))
            {
                of_turn.add(id, is_answered);
            }
            if let Some(turn) = &line.turn {
                let is_kept = line.place < self.compacted;
                if is_kept || first.is_none_or(|first| turn.number < first.number || turn == first)
                {
                    standing.join(std::mem::take(&mut of_turn));
                    first = Some(turn);
                } else {
                    // No longer a part of it, and neither are the model's answers there.
                    of_turn = Recorded::default();
                }
            }
        }
        // Before the first prompt.
        standing.join(of_turn);
        let age =
            |written| u64::try_from(Timestamp::now().millis_ahead_of(written)).unwrap_or_default();
        standing.age = self
            .written
            .map(|written| Duration::from_millis(age(written)));
        if self.order.is_empty() {
            Err(io::ErrorKind::InvalidData.into())
        } else {
            Ok(standing)
        }
    }

    /// Returns the lines of the conversation from its end upward, each with the answer of the model that is nearest above it.
    fn chain(&self) -> Vec<(&TranscriptLine, Option<&str>)> {
        // Each line is taken once, so that a file that refers to itself ends too.
        let mut left: HashSet<Uuid> = self.lines.keys().copied().collect();
        let (mut chain, mut next) = (Vec::new(), self.order.last().copied());
        while let Some(line) = next
            .take_if(|uuid| left.remove(uuid))
            .and_then(|uuid| self.lines.get(&uuid))
        {
            if line.place < self.compacted {
                break;
            }
            chain.push((line, None));
            // On a full disk lines get lost: the conversation goes on with the last one before the gap.
            let before = || self.order[..line.place].last().copied();
            next = line.parent.and_then(|parent| {
                Some(parent)
                    .filter(|_| self.lines.contains_key(&parent))
                    .or_else(before)
            });
        }
        let kept = self.kept.iter().rev().filter(|uuid| left.remove(uuid));
        chain.extend(kept.filter_map(|uuid| Some((self.lines.get(uuid)?, None))));
        let mut above = None;
        for (line, nearest) in chain.iter_mut().rev() {
            *nearest = above;
            above = line
                .answer
                .as_deref()
                .filter(|_| line.is_of_model)
                .or(above);
        }
        chain
    }

    /// Returns the turns that these lines began since the latest compaction.
    fn turns<'a>(&self, lines: impl Iterator<Item = &'a TranscriptLine>) -> HashSet<String> {
        let prompts = lines
            .filter(|line| line.place >= self.compacted)
            .filter_map(|line| line.turn.as_ref());
        prompts.filter_map(|turn| turn.prompt.clone()).collect()
    }

    /// Returns the other lines of the same answer, and the results of all of them: of tools that were used at once only one
    /// is in the chain. And the prompt of its turn: one that was typed during a tool, which the person then broke off, is in no
    /// chain, but the notice of that has its name.
    fn beside(&self, line: &TranscriptLine) -> impl Iterator<Item = &TranscriptLine> {
        let parts = line
            .answer
            .as_ref()
            .and_then(|answer| self.answers.get(answer));
        let parts = parts.into_iter().flatten();
        let results = parts
            .clone()
            .filter_map(|part| self.results.get(part))
            .flatten();
        let prompt = line
            .prompt
            .as_ref()
            .and_then(|prompt| self.prompts.get(prompt));
        let prompt = prompt.into_iter().flatten();
        let beside = parts.chain(results).filter_map(|uuid| self.lines.get(uuid));
        let prompt = prompt.filter_map(|uuid| self.lines.get(uuid));
        beside.chain(prompt.filter(|line| line.place >= self.compacted))
    }

    fn read_on(&mut self) -> io::Result<()> {
        let mut file = File::open(&self.path)?;
        let length = file.metadata()?.len();
        if length < self.read {
            // It was written anew.
            *self = Self {
                path: std::mem::take(&mut self.path),
                ..Self::default()
            };
        }
        self.read = self.read.max(length.saturating_sub(READ_MAX));
        file.seek(SeekFrom::Start(self.read))?;
        let (mut reader, mut line) = (BufReader::new(file), Vec::new());
        loop {
            line.clear();
            let length = reader.read_until(b'\n', &mut line)?;
            if line.last() != Some(&b'\n') {
                // The rest of it is still being written.
                return Ok(());
            }
            self.read += length as u64;
            self.add(&line);
        }
    }

    fn add(&mut self, line: &[u8]) {
        let Ok(whole) = surrogates::parse::<Value>(line) else {
            return;
        };
        self.written = self.written.max(
            whole["timestamp"]
                .as_str()
                .and_then(|written| written.parse().ok()),
        );
        let Ok(link) = LineFields::deserialize(&whole) else {
            return;
        };
        if link.is_sidechain {
            return;
        }
        // Reports of the client to its person, such as a blocked prompt, are not sent to the model. A summary may name a
        // message without its text.
        let has_none = whole["type"] == "system" || whole["isCompactSummary"] == true;
        let ids = if has_none { Vec::new() } else { ids_in(&whole) };
        let message = &whole["message"];
        let is_result = |block: &Value| block["type"] == "tool_result";
        if let Some(parent) = link.parent_uuid
            && message["content"]
                .as_array()
                .is_some_and(|blocks| blocks.iter().any(is_result))
        {
            self.results.entry(parent).or_default().push(link.uuid);
        }
        let place = self.order.len();
        if whole["subtype"] == "compact_boundary" {
            self.compacted = place;
            let kept = whole["compactMetadata"]["preservedMessages"]["allUuids"].as_array();
            let kept = kept
                .into_iter()
                .flatten()
                .filter_map(|uuid| uuid.as_str()?.parse().ok());
            self.kept = kept.collect();
        }
        let is_of_model = message["model"]
            .as_str()
            .is_some_and(|model| model != NO_MODEL);
        let turn = link.turn();
        let follows_prompt =
            turn.is_none() && matches!(whole["type"].as_str(), Some("user" | "assistant"));
        let line = TranscriptLine {
            place,
            parent: link.parent_uuid,
            ids,
            turn,
            prompt: link.prompt(),
            comes_with: None,
            answer: message["id"].as_str().map(str::to_owned),
            follows_prompt,
            is_of_model,
        };
        self.keep(link.uuid, line);
    }

    fn keep(&mut self, uuid: Uuid, line: TranscriptLine) {
        if let Some(answer) = &line.answer {
            self.answers.entry(answer.clone()).or_default().push(uuid);
        }
        let parent = line.parent.and_then(|parent| self.lines.get(&parent));
        let comes_with = match &line.turn {
            Some(turn) => turn.prompt.clone(),
            None if line.follows_prompt => None,
            None => parent.and_then(|parent| parent.comes_with.clone()),
        };
        if let Some(prompt) = &comes_with {
            self.prompts.entry(prompt.clone()).or_default().push(uuid);
        }
        self.lines
            .insert(uuid, TranscriptLine { comes_with, ..line });
        self.order.push(uuid);
    }
}

/// Returns the messages of the prompt at the end of a conversation, from its end upward, if nothing followed it.
fn open(chain: &[(&TranscriptLine, Option<&str>)]) -> HashSet<MessageId> {
    let mut ids = HashSet::new();
    for (line, _) in chain {
        if line.follows_prompt {
            break;
        }
        ids.extend(line.ids.iter().cloned());
        if line.turn.is_some() {
            return ids;
        }
    }
    HashSet::new()
}

impl Recorded {
    fn add(&mut self, id: &MessageId, is_answered: bool) {
        self.named.insert(id.clone());
        if is_answered {
            self.answered.insert(id.clone());
        }
    }

    fn join(&mut self, other: Self) {
        self.named.extend(other.named);
        self.answered.extend(other.answered);
    }
}

/// The answers of the model below a line of the chain, which is followed upward.
#[derive(Debug, Default)]
struct Answers<'a> {
    /// The upper one of those that were met.
    latest: Option<&'a str>,
    /// Whether there is another one below that.
    is_followed: bool,
}

impl<'a> Answers<'a> {
    /// Goes up to a line. Returns whether an answer stands below it, which its own is not, nor the one nearest above it: a
    /// tool may run while the model writes the rest of the answer that uses it.
    fn follow(&mut self, line: &'a TranscriptLine, above: Option<&str>) -> bool {
        let Some(answer) = line.answer.as_deref() else {
            return if self.latest == above {
                self.is_followed
            } else {
                self.latest.is_some()
            };
        };
        if line.is_of_model && self.latest != Some(answer) {
            self.is_followed = self.latest.replace(answer).is_some();
        }
        self.is_followed
    }
}

/// Returns the messages that stand in a line, each once: where a hook or a push showed them, and in results. A mention of one
/// is none, nor is a text that quotes one.
fn ids_in(line: &Value) -> Vec<MessageId> {
    let mut ids = Vec::new();
    collect(line, &mut ids);
    let mut known = HashSet::new();
    ids.retain(|id: &MessageId| known.insert(id.clone()));
    ids
}

fn collect(value: &Value, ids: &mut Vec<MessageId>) {
    match value {
        Value::String(text) => {
            ids.extend(
                text.lines()
                    .skip_while(|line| !line.contains(MARK))
                    .filter_map(origin),
            );
            ids.extend(in_background(text));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, ids)),
        Value::Object(block) if value["type"] == "tool_result" => {
            let content = block.get("content");
            let blocks = content.and_then(Value::as_array).into_iter().flatten();
            let texts = content
                .into_iter()
                .chain(blocks.map(|block| &block["text"]))
                .filter_map(Value::as_str);
            ids.extend(texts.flat_map(in_result));
        }
        // The client keeps a result a second time in a form of its own.
        Value::Object(members) => {
            members
                .iter()
                .filter(|(name, _)| *name != "toolUseResult")
                .for_each(|(_, value)| collect(value, ids));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the message above whose text the line stands. Quotes begin with another sign.
fn origin(line: &str) -> Option<MessageId> {
    let (_, rest) = line.strip_prefix("[FROM: ")?.split_once("[ID: ")?;
    rest.split_once(']')?.0.parse().ok()
}

/// Returns the messages of a result that the client brings later, as a prompt of its own: the tool ran in the background.
fn in_background(text: &str) -> Vec<MessageId> {
    let notice = text
        .strip_prefix("<task-notification>")
        .and_then(|notice| notice.split_once("<result>\n"));
    let result = notice.and_then(|(_, result)| result.rsplit_once("\n</result>"));
    result.map_or_else(Vec::new, |(result, _)| in_result(result))
}

/// Returns the messages that the result of a tool of ours holds to their end.
fn in_result(text: &str) -> Vec<MessageId> {
    let Ok(result) = serde_json::from_str::<Value>(text) else {
        return Vec::new();
    };
    let page = result["messages"].as_array().into_iter().flatten();
    let messages = std::iter::once(&result).chain(page);
    // The result of `ask_user` names the message with the answer.
    let answer = result["question_id"]
        .as_str()
        .and(result["reply_id"].as_str());
    messages
        .filter(|message| message["rest"].is_null())
        .filter_map(|message| message["id"].as_str())
        .chain(answer)
        .filter_map(|id| id.parse().ok())
        .collect()
}
