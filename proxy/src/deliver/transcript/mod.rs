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

mod names;
mod recorded;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use c3po_shared::ids::MessageId;
use c3po_shared::surrogates;
use c3po_shared::time::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use self::names::ids_in;
pub(super) use self::names::in_background;
pub(crate) use self::recorded::Recorded;

/// Where the model's name stands, in answers that the client wrote itself.
const NO_MODEL: &str = "<synthetic>";
/// In how many of the last lines the uses of tools are looked for that have a result.
const LATEST: usize = 4_096;
/// How much of a file is read at most: the end of a longer one, of which nothing was read before.
const READ_MAX: u64 = 64 << 20;

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
    /// The lines of results, by the use of the tool.
    uses: HashMap<String, Uuid>,
    /// The uses whose results the model was not given: a client replaces the largest ones of too large a batch.
    replaced: HashSet<String>,
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
    written: Option<Timestamp>,
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
    /// Whether a hook of another plugin ended the turn here.
    stops: bool,
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
        standing.open = self.open(&chain);
        standing.over = self.over();
        let unanswered = chain.iter().take_while(|(line, _)| line.answer.is_none());
        standing.is_stopped = unanswered.into_iter().any(|(line, _)| line.stops);
        for (line, above) in chain {
            let is_answered = answers.follow(line, above);
            for line in std::iter::once(line).chain(self.beside(line)) {
                of_turn.add(line, is_answered);
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
        standing.age = self.written.map(|written| Timestamp::now().since(written));
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

    fn over(&self) -> HashSet<String> {
        let from = self.order.len().saturating_sub(LATEST);
        let is_late = |uuid| self.lines.get(uuid).is_some_and(|line| line.place >= from);
        let late = self.uses.iter().filter(|(_, uuid)| is_late(uuid));
        late.map(|(used, _)| used.clone()).collect()
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
        let beside = parts.chain(results).filter_map(|uuid| self.lines.get(uuid));
        beside.chain(self.prompt_of(line))
    }

    /// Returns the lines of the prompt of whose turn the line is.
    fn prompt_of(&self, line: &TranscriptLine) -> impl Iterator<Item = &TranscriptLine> {
        let prompt = line
            .prompt
            .as_ref()
            .and_then(|prompt| self.prompts.get(prompt));
        let lines = prompt.into_iter().flatten();
        // In a fork the first turn has the name of all those before it.
        let places = self.compacted..line.place;
        lines
            .filter_map(|uuid| self.lines.get(uuid))
            .filter(move |line| places.contains(&line.place))
    }

    /// Returns the messages of the prompts at the end of a conversation that the model has not answered: of the last one, if
    /// nothing followed it, and of one that began when a person broke off the turn before.
    fn open(&self, chain: &[(&TranscriptLine, Option<&str>)]) -> HashSet<MessageId> {
        let (mut ids, mut begun) = (HashSet::new(), HashSet::new());
        let mut is_followed = false;
        let places: HashSet<_> = chain.iter().map(|(line, _)| line.place).collect();
        for (line, _) in chain {
            if line.answer.is_some() {
                return begun;
            }
            let prompt = self.prompt_of(line);
            let beside = prompt.filter(|line| !places.contains(&line.place));
            begun.extend(beside.flat_map(|line| line.ids.iter().cloned()));
            is_followed |= line.follows_prompt;
            ids.extend(line.ids.iter().filter(|_| !is_followed).cloned());
            if line.turn.is_some() {
                if !is_followed {
                    begun.extend(ids);
                }
                break;
            }
        }
        begun
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
        let written = whole["timestamp"].as_str();
        let written = written.and_then(|written| written.parse().ok());
        self.written = self.written.max(written);
        if whole["type"] == "content-replacement" {
            self.replace(&whole["replacements"]);
        }
        let Ok(link) = LineFields::deserialize(&whole) else {
            return;
        };
        if link.is_sidechain {
            return;
        }
        // Reports of the client to its person, such as a blocked prompt, are not sent to the model. A summary may name a
        // message without its text.
        let has_none = whole["type"] == "system" || whole["isCompactSummary"] == true;
        let message = &whole["message"];
        let is_replaced = self.note_results(message, &link);
        let ids = if has_none || is_replaced {
            Vec::new()
        } else {
            ids_in(&whole)
        };
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
            written,
            turn,
            prompt: link.prompt(),
            comes_with: None,
            answer: message["id"].as_str().map(str::to_owned),
            follows_prompt,
            is_of_model,
            stops: whole["attachment"]["type"] == "hook_stopped_continuation",
        };
        self.keep(link.uuid, line);
    }

    /// Notes the results in a line. Returns whether the model was given another text in place of one.
    fn note_results(&mut self, message: &Value, link: &LineFields) -> bool {
        let blocks = message["content"].as_array().into_iter().flatten();
        let results: Vec<_> = blocks
            .filter(|block| block["type"] == "tool_result")
            .collect();
        if let Some(parent) = link.parent_uuid
            && !results.is_empty()
        {
            self.results.entry(parent).or_default().push(link.uuid);
        }
        let mut is_replaced = false;
        for used in results
            .iter()
            .filter_map(|block| block["tool_use_id"].as_str())
        {
            is_replaced |= self.replaced.contains(used);
            self.uses.insert(used.to_owned(), link.uuid);
        }
        is_replaced
    }

    /// The model was given other texts in place of the results of these tool uses.
    fn replace(&mut self, replacements: &Value) {
        let uses = replacements.as_array().into_iter().flatten();
        let uses = uses.filter_map(|one| one["toolUseId"].as_str());
        for used in uses {
            let line = self
                .uses
                .get(used)
                .and_then(|uuid| self.lines.get_mut(uuid));
            if let Some(line) = line {
                line.ids.clear();
            }
            self.replaced.insert(used.to_owned());
        }
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
