//! When the client's own record of its session is read: its transcript and its session file, beside the hooks.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use super::client::ClientState;
use super::push::Todo;
use super::transcript::Recorded;
use super::turn::Turn;
use crate::local::protocol::{Event, Name};

/// How long after its hooks a client may write its transcript.
pub(super) const WRITTEN: Duration = Duration::from_secs(1);
/// How long before the hook of a prompt its client may write the prompt, or another line of the turn before its first hook.
const WRITTEN_BEFORE: Duration = Duration::from_secs(2);
/// A client reports that it works, and then runs the hook of the prompt within this time.
const HOOK_LATE: Duration = Duration::from_millis(200);
/// How often the client's session file is read while the hooks are silent.
const ASK_EVERY: Duration = Duration::from_secs(15);
/// How often the file is looked for in vain before there is none: a client may write it seconds after its first MCP call.
const MISSING: u32 = 2;
/// How often the file may be missing before it is asked for no more: other clients have none.
const MISSING_MAX: u32 = 3;

/// The files to read, and the state of their reading.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    transcript: Option<PathBuf>,
    /// Whether a hook has named it. Otherwise the session file does, and names another one once the conversation is another.
    is_of_hooks: bool,
    /// When the transcript is to be read next.
    wanted_at: Option<Instant>,
    asked: Option<Instant>,
    missing: u32,
    /// The turn of the latest step.
    turn: Option<String>,
    /// When that turn began.
    began: Option<Instant>,
    /// When the latest prompt came, of which there was no step yet.
    prompted: Option<Instant>,
}

/// Returns whether a prompt came into a turn that no hook has reported and no transcript records: the client has worked for
/// that time before its hook, and has written into its transcript that long ago, if it has one.
pub(super) fn is_unrecorded(works: Duration, written: Option<Duration>) -> bool {
    match written {
        None => works > HOOK_LATE,
        Some(age) => works > WRITTEN_BEFORE && age > works + WRITTEN_BEFORE,
    }
}

impl Evidence {
    /// Notes where the transcript is, and when a prompt came.
    pub(super) fn learn(&mut self, event: &Event, now: Instant) {
        if event.name == Name::UserPromptSubmit && event.agent_id.is_none() {
            self.prompted = Some(now);
        }
        if event.transcript.is_some() && event.agent_id.is_none() {
            self.transcript.clone_from(&event.transcript);
            self.is_of_hooks = true;
        }
    }

    /// Returns whether it is known where the transcript is.
    pub(super) fn has_transcript(&self) -> bool {
        self.transcript.is_some()
    }

    /// Returns whether there is a transcript, or may be one: not where the client's session file was looked for in vain.
    pub(super) fn is_there(&self) -> bool {
        self.transcript.is_some() || self.missing < MISSING
    }

    /// The transcript is to be read then.
    pub(super) fn want(&mut self, at: Instant) {
        self.wanted_at = Some(self.wanted_at.map_or(at, |wanted| wanted.min(at)));
    }

    /// The model did something. The first step of a turn shows which messages a person took back before it, and its end
    /// shows those that came in it.
    pub(super) fn step(&mut self, event: &Event, nothing_is_shown: bool, now: Instant) {
        let is_first = event.prompt_id != self.turn;
        self.turn.clone_from(&event.prompt_id);
        if is_first {
            self.began = self.prompted.take().or(Some(now));
        }
        if !nothing_is_shown && (is_first || event.name == Name::Stop) {
            self.want(now + WRITTEN);
        }
    }

    /// Returns whether a step is the first one of another turn.
    pub(super) fn begins_another(&self, event: &Event) -> bool {
        self.turn.is_some() && event.prompt_id != self.turn
    }

    /// Returns the turn of the latest step.
    pub(super) fn turn(&self) -> Option<&str> {
        self.turn.as_deref()
    }

    /// Returns whether the client has another turn at the end of the file than that of the latest step, as after a rewind: the
    /// next step shows which of them goes on.
    pub(super) fn is_elsewhere(&self, recorded: &Recorded) -> bool {
        let is_left = |turn| recorded.other_turns.contains(turn);
        self.turn.as_ref().is_some_and(is_left) && !recorded.is_shared
    }

    /// Returns whether the client still writes this conversation. On a full disk it goes on without its transcript, and
    /// another process of the same session writes another conversation into the file.
    pub(super) fn is_current(&self, recorded: &Recorded, now: Instant) -> bool {
        if self
            .turn
            .as_ref()
            .is_some_and(|turn| recorded.other_turns.contains(turn))
        {
            return false;
        }
        let (Some(age), Some(began)) = (recorded.age, self.began) else {
            return true;
        };
        age <= now.duration_since(began) + WRITTEN_BEFORE
    }

    /// Returns the file to read now.
    pub(super) fn next(&mut self, turn: &mut Turn, now: Instant) -> Option<Todo> {
        if self.wanted_at.is_some_and(|at| at <= now)
            && (self.is_of_hooks
                || self
                    .asked
                    .is_some_and(|asked| now.duration_since(asked) < WRITTEN))
            && let Some(path) = self.transcript.clone()
        {
            self.wanted_at = None;
            return Some(Todo::Read(path));
        }
        let is_due = self.asks_at(turn, now).is_some_and(|at| at <= now);
        if is_due { self.ask(now) } else { None }
    }

    /// Has the client's session file read, where there may be one.
    pub(super) fn ask(&mut self, now: Instant) -> Option<Todo> {
        (self.missing < MISSING_MAX).then(|| {
            self.asked = Some(now);
            Todo::AskClient
        })
    }

    /// Returns when anything is read next.
    pub(super) fn reads_at(&self, turn: &mut Turn, now: Instant) -> Option<Instant> {
        let transcript = self
            .wanted_at
            .filter(|_| self.transcript.is_some() && self.is_of_hooks);
        transcript.into_iter().chain(self.asks_at(turn, now)).min()
    }

    /// Returns when the client's session file is read next.
    fn asks_at(&self, turn: &mut Turn, now: Instant) -> Option<Instant> {
        if self.missing >= MISSING_MAX {
            return None;
        }
        let transcript = self.wanted_at.filter(|_| !self.is_of_hooks);
        let transcript =
            transcript.map(|at| self.asked.map_or(at, |asked| at.max(asked + WRITTEN)));
        let pause = if turn.is_assumed() {
            WRITTEN
        } else {
            ASK_EVERY
        };
        let state = turn
            .asks_at(now)
            .map(|at| self.asked.map_or(at, |asked| at.max(asked + pause)));
        transcript.into_iter().chain(state).min()
    }

    /// Follows the session file from now on if it names another conversation than the hooks did. Returns whether it does.
    pub(super) fn leaves_hooks(&mut self, client: &ClientState) -> bool {
        let names = [&self.transcript, &client.transcript].map(|path| path.as_ref()?.file_name());
        let is_another = self.is_of_hooks && names[1].is_some() && names[0] != names[1];
        self.is_of_hooks &= !is_another;
        is_another
    }

    /// Takes over the content of the session file. Returns whether it names another conversation than before.
    pub(super) fn answered(&mut self, client: ClientState) -> bool {
        self.missing = if client == ClientState::default() {
            self.missing + 1
        } else {
            0
        };
        if self.is_of_hooks || client.transcript.is_none() {
            return false;
        }
        let before = self.transcript.take();
        self.transcript = client.transcript;
        before.is_some() && before != self.transcript
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_into_work_that_nothing_records_is_known() {
        let seconds = Duration::from_secs_f64;
        for (works, written, expected) in [
            (0.1, None, false),
            (0.4, None, true),
            (0.4, Some(3_600.0), false),
            (5.0, Some(5.1), false),
            (5.0, Some(0.1), false),
            (5.0, Some(60.0), true),
        ] {
            let found = is_unrecorded(seconds(works), written.map(seconds));
            assert_eq!(found, expected, "{works} {written:?}");
        }
    }
}
