//! The model of one session: answers at random, and on orders in its person's prompts.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;

use super::checker::{Asker, Seat};
use super::journal::Journal;
use super::reading::Reading;
use super::token::{Text, Token};
use crate::dice::Dice;
use crate::fake_api::{Asked, Block, Script};

/// The order in a prompt that makes the model answer slowly.
pub(super) const SLOW: &str = "do:slow";
/// The order that makes it ask its person.
pub(super) const ASK: &str = "do:ask";
/// The order that makes it use a tool that needs permission.
pub(super) const WRITE: &str = "do:write";
/// The order that makes it start a subagent.
pub(super) const DELEGATE: &str = "do:delegate";

/// The file that it reads.
pub(super) const NOTES: &str = "notes.txt";

/// The model of one session.
#[derive(Debug)]
pub(super) struct Model {
    seat: Seat,
    folder: PathBuf,
    journal: Arc<Journal>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    dice: Dice,
    /// How many more requests fail, and with which status.
    failures: (usize, u16),
    /// The duration of a summary.
    compaction: Duration,
    /// Whether it answers only `ok` from now on.
    is_calm: bool,
    summaries: usize,
    tasks: usize,
}

impl Model {
    pub(super) fn new(seat: Seat, folder: &Path, journal: Arc<Journal>, dice: Dice) -> Self {
        let state = State {
            dice,
            failures: (0, 0),
            compaction: Duration::ZERO,
            is_calm: false,
            summaries: 0,
            tasks: 0,
        };
        Self {
            seat,
            folder: folder.to_owned(),
            journal,
            state: Mutex::new(state),
        }
    }

    /// Returns the script for the fake API.
    pub(super) fn script(self: &Arc<Self>) -> Script {
        let model = Arc::clone(self);
        Script::new().when_it(|_| true, move |asked| model.answer(asked))
    }

    /// Makes the next requests fail.
    pub(super) fn fails(&self, times: usize, status: u16) {
        self.state().failures = (times, status);
    }

    /// Sets the duration of summaries.
    pub(super) fn summarizes_in(&self, time: Duration) {
        self.state().compaction = time;
    }

    /// Ends all failures and delays.
    pub(super) fn calms_down(&self) {
        let mut state = self.state();
        (state.failures, state.compaction, state.is_calm) = ((0, 0), Duration::ZERO, true);
    }

    fn answer(&self, asked: &Asked) -> Vec<Block> {
        let reading = self.journal.asked(self.seat, asked);
        let mut state = self.state();
        if state.failures.0 > 0 && reading.asker != Asker::Side {
            state.failures.0 -= 1;
            return vec![
                Block::Pause(state.dice.millis(0, 300)),
                Block::Fail(state.failures.1),
            ];
        }
        match reading.asker {
            Asker::Side => vec![Block::text("ok")],
            Asker::Compaction => {
                state.summaries += 1;
                let token = Token {
                    text: Text::Summary,
                    seat: self.seat,
                    number: state.summaries,
                };
                let summary = format!("<summary>{token} we talked about this and that</summary>");
                vec![Block::Pause(state.compaction), Block::text(summary)]
            }
            _ if state.is_calm => vec![Block::text("ok")],
            Asker::Subagent => self.works(&mut state, 50, 20),
            Asker::Session => self.goes_on(&mut state, &reading),
        }
    }

    /// Follows its person's order, or handles messages, or works, or ends its turn.
    fn goes_on(&self, state: &mut State, reading: &Reading) -> Vec<Block> {
        let mut blocks = vec![Block::Pause(pause(&mut state.dice))];
        let wants = |order: &str| {
            reading
                .prompt
                .as_ref()
                .is_some_and(|prompt| prompt.contains(order))
        };
        if wants(SLOW) {
            blocks.push(Block::Pause(state.dice.millis(1_000, 6_000)));
        } else if wants(ASK) {
            return vec![question()];
        } else if wants(WRITE) {
            let path = self
                .folder
                .join(format!("new-{}.txt", state.dice.below(1_000_000)));
            return vec![Block::call(
                "Write",
                json!({"file_path": path, "content": "a line\n"}),
            )];
        } else if wants(DELEGATE) {
            state.tasks += 1;
            let token = Token {
                text: Text::Task,
                seat: self.seat,
                number: state.tasks,
            };
            let task = json!({"description": "a task", "prompt": format!("{token} look around"),
                "subagent_type": "general-purpose"});
            return vec![Block::call("Agent", task)];
        }
        if state.dice.percent(18) {
            blocks.extend(self.settles(state, reading));
        } else {
            blocks.extend(self.works(state, 70, 12));
        }
        if blocks.iter().all(|block| matches!(block, Block::Pause(_))) {
            blocks.push(Block::text("ok"));
        }
        blocks
    }

    /// Answers or acknowledges one of the messages in the request, if there is any.
    fn settles(&self, state: &mut State, reading: &Reading) -> Option<Block> {
        let tokens: Vec<_> = reading
            .standing
            .iter()
            .map(|standing| standing.token)
            .collect();
        let open = self.journal.unsettled(&tokens);
        let (token, id) = open.get(state.dice.below(open.len().max(1)))?;
        self.journal.settles(*token);
        Some(if state.dice.percent(60) {
            Block::call("reply", json!({"message_id": id, "response": "I see"}))
        } else {
            Block::call("ack_messages", json!({"message_ids": [id]}))
        })
    }

    /// Returns a text in `says` percent of all cases, a wait in `waits` percent, else the reading of a file.
    fn works(&self, state: &mut State, says: usize, waits: usize) -> Vec<Block> {
        let thrown = state.dice.below(100);
        vec![if thrown < says {
            Block::text("ok, that is that")
        } else if thrown < says + waits {
            Block::call(
                "wait_for_message",
                json!({"timeout": 1 + state.dice.below(5)}),
            )
        } else {
            Block::call("Read", json!({"file_path": self.folder.join(NOTES)}))
        }]
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Most answers come immediately, some take a second, few take several.
fn pause(dice: &mut Dice) -> Duration {
    match dice.below(100) {
        0..70 => dice.millis(0, 100),
        70..94 => dice.millis(100, 1_500),
        _ => dice.millis(1_500, 6_000),
    }
}

fn question() -> Block {
    let options =
        ["one", "two"].map(|label| json!({"label": label, "description": format!("take {label}")}));
    let asked = json!({"question": "Which one?", "header": "Choice", "options": options, "multiSelect": false});
    Block::call("AskUserQuestion", json!({"questions": [asked]}))
}
