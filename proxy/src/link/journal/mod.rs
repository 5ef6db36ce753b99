//! Queued sends and replies on this host's disk. Knows files, nothing of the link.
//!
//! One file of JSON lines per agent, and per process that has no name yet. A call is answered after its line is synced; a line that a crash cut off was never
//! answered and is ignored. A sent line is struck out by one byte in place: a crash cannot tear that, and a full disk
//! has room for it. Several proxies of one agent take turns by a lock file.

#[cfg(test)]
mod tests;
mod unnamed;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use c3po_shared::catalogue::Call;
use c3po_shared::ids::{AgentId, CallId};
use c3po_shared::refusal::Refusal;
use c3po_shared::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::lines::{append_to, private};
use crate::config::Config;
use crate::config::private::{check_owner, make_state_folder};
pub(super) use unnamed::Unnamed;

/// How long to wait for the lock of another process. A process that was stopped while it holds the lock must not block others.
const TURN_MAX: Duration = Duration::from_secs(2);
/// How often the lock is tried.
const TURN_AGAIN: Duration = Duration::from_millis(5);
/// The first byte of a sent line.
const STRUCK_OUT: u8 = b'#';

/// One queued call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Line {
    /// The id of the call, by which it is applied once.
    pub(super) call_id: CallId,
    /// The name of the tool.
    pub(super) tool: String,
    /// The arguments of the call.
    pub(super) arguments: Box<RawValue>,
    /// When this host accepted the call.
    pub(super) at: Timestamp,
    /// The coordinators for which it was accepted; empty if they were not recorded.
    #[serde(default)]
    pub(super) coordinators: Vec<String>,
}

impl Line {
    /// Returns the line for a call that was accepted at that time.
    pub(super) fn of(
        call_id: CallId,
        call: &Call,
        at: Timestamp,
        coordinators: Vec<String>,
    ) -> Self {
        let arguments = serde_json::value::to_raw_value(call).expect("arguments have text keys");
        Self {
            call_id,
            tool: call.tool().name().to_owned(),
            arguments,
            at,
            coordinators,
        }
    }
}

/// One call that the coordinator rejected for good, and why.
#[derive(Serialize)]
struct RefusedLine {
    #[serde(flatten)]
    line: Line,
    refusal: Refusal,
}

/// The fields of such a line that are read again.
#[derive(Deserialize)]
struct Why {
    refusal: Refusal,
}

/// The queued calls of one agent on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedFor {
    /// The sender.
    pub agent: AgentId,
    /// How many calls are queued for the coordinator.
    pub waiting: usize,
    /// How many calls the coordinator rejected. They will never arrive.
    pub refused: usize,
    /// Why the last of them was rejected.
    pub why: Option<String>,
    /// The file of the queued calls.
    pub journal: PathBuf,
    /// The file of the rejected calls.
    pub file: PathBuf,
}

/// The journals of this host's agents.
#[derive(Debug, Clone)]
pub(super) struct Journal {
    folder: PathBuf,
}

/// Returns the queued and the rejected calls of all agents on this host, and of its person.
pub fn kept(config: &Config) -> Vec<QueuedFor> {
    let folders = [
        config.person_journal_dir(),
        config.state_dir.join("journal"),
    ];
    let count = if folders[0] == folders[1] { 1 } else { 2 };
    let folders = folders.into_iter().take(count);
    folders
        .flat_map(|folder| Journal::new(folder).kept())
        .collect()
}

impl Journal {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Returns whether the agent has no queued calls. A file of another user counts as empty.
    pub(super) fn is_empty(&self, agent: &impl Display) -> bool {
        std::fs::metadata(self.lines(agent))
            .map_or(true, |file| file.len() == 0 || check_owner(&file).is_err())
    }

    /// Appends a line. When this returns without error, the line survives a crash.
    pub(super) fn append(&self, agent: &impl Display, line: &Line) -> io::Result<()> {
        let _turn = self.turn(agent)?;
        let path = self.lines(agent);
        let is_new = !path.exists();
        append_to(&path, line)?;
        if is_new {
            File::open(&self.folder)?.sync_all()
        } else {
            Ok(())
        }
    }

    /// Returns the oldest line.
    pub(super) fn first(&self, agent: &impl Display) -> io::Result<Option<Line>> {
        if self.is_empty(agent) {
            return Ok(None);
        }
        let _turn = self.turn(agent)?;
        let first = self.read(agent)?.into_iter().next().map(|(_, line)| line);
        if first.is_none() {
            // The process that struck out the last line was killed before it could clear the file.
            self.clear(agent)?;
        }
        Ok(first)
    }

    /// Returns whether the agent's oldest queued call is for one of these coordinators.
    pub(super) fn is_for(&self, agent: &impl Display, targets: &[String]) -> bool {
        let Ok(lines) = self.read(agent) else {
            return false;
        };
        let known = |line: &Line| {
            line.coordinators.is_empty()
                || line.coordinators.iter().any(|one| targets.contains(one))
        };
        lines.first().is_some_and(|(_, line)| known(line))
    }

    /// Removes a line, because it was answered.
    pub(super) fn remove(&self, agent: &impl Display, call_id: CallId) -> io::Result<()> {
        let _turn = self.turn(agent)?;
        let (done, left): (Vec<_>, Vec<_>) = self
            .read(agent)?
            .into_iter()
            .partition(|(_, line)| line.call_id == call_id);
        if left.is_empty() {
            return self.clear(agent);
        }
        let file = private().write(true).open(self.lines(agent))?;
        done.iter()
            .try_for_each(|(at, _)| file.write_all_at(&[STRUCK_OUT], *at))?;
        file.sync_data()
    }

    /// Returns the agents with queued calls.
    pub(super) fn agents(&self) -> Vec<AgentId> {
        let files = self.files().into_iter();
        let agents = files.filter_map(|name| name.strip_suffix(".jsonl")?.parse().ok());
        agents
            .filter(|agent: &AgentId| !self.is_empty(agent))
            .collect()
    }

    /// Returns the names of the files.
    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten();
        let names = entries
            .flatten()
            .map(|entry| entry.file_name().into_string());
        names.filter_map(Result::ok).collect()
    }

    /// Moves a rejected line to the file of rejected calls, where a person can inspect it.
    pub(super) fn refuse(
        &self,
        agent: &impl Display,
        line: Line,
        refusal: Refusal,
    ) -> io::Result<()> {
        let call_id = line.call_id;
        {
            let _turn = self.turn(agent)?;
            append_to(&self.refused(agent), &RefusedLine { line, refusal })?;
        }
        self.remove(agent, call_id)
    }

    /// Returns the queued calls of each agent, by name.
    fn kept(&self) -> Vec<QueuedFor> {
        let agent = |name: String| {
            let stem = name.strip_suffix(".jsonl")?;
            stem.split('~').next()?.parse().ok()
        };
        let files = self.files().into_iter();
        let agents: BTreeSet<AgentId> = files.filter_map(agent).collect();
        let kept = agents.into_iter().map(|agent| self.kept_for(agent));
        kept.filter(|kept| kept.waiting + kept.refused > 0)
            .collect()
    }

    fn kept_for(&self, agent: AgentId) -> QueuedFor {
        let file = self.refused(&agent);
        let refused = std::fs::read_to_string(&file).unwrap_or_default();
        let last = refused
            .lines()
            .last()
            .and_then(|line| serde_json::from_str::<Why>(line).ok());
        let waiting = |lines: io::Result<Vec<_>>| lines.map_or(0, |lines| lines.len());
        let unnamed = self.unnamed().filter(|of| of.wished == agent);
        let of_unnamed: usize = unnamed.map(|of| waiting(self.read(&of))).sum();
        QueuedFor {
            waiting: waiting(self.read(&agent)) + of_unnamed,
            refused: refused.lines().count(),
            why: last.map(|last| last.refusal.error),
            journal: self.lines(&agent),
            agent,
            file,
        }
    }

    /// Waits for the lock of this agent's journal. It is held as long as the returned file.
    fn turn(&self, agent: &impl Display) -> io::Result<File> {
        make_state_folder(&self.folder)?;
        let lock = private()
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.lock(agent))?;
        let end = Instant::now() + TURN_MAX;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(lock),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if Instant::now() >= end => {
                    return Err(held_too_long(agent));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(TURN_AGAIN),
            }
        }
    }

    /// Empties the journal after all its lines were sent.
    fn clear(&self, agent: &impl Display) -> io::Result<()> {
        match private().write(true).open(self.lines(agent)) {
            Ok(file) => file.set_len(0).and_then(|()| file.sync_all()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn refused(&self, agent: &impl Display) -> PathBuf {
        self.folder.join(format!("{agent}~refused.jsonl"))
    }

    fn lock(&self, agent: &impl Display) -> PathBuf {
        self.folder.join(format!("{agent}.lock"))
    }

    fn lines(&self, agent: &impl Display) -> PathBuf {
        self.folder.join(format!("{agent}.jsonl"))
    }

    /// Returns the unsent lines, each with its offset in the file.
    fn read(&self, agent: &impl Display) -> io::Result<Vec<(u64, Line)>> {
        let mut bytes = Vec::new();
        match File::open(self.lines(agent)) {
            Ok(mut file) => {
                check_owner(&file.metadata()?)?;
                file.read_to_end(&mut bytes)?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let (mut lines, mut at) = (Vec::new(), 0_u64);
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let place = at;
            at += u64::try_from(line.len()).unwrap_or_default();
            if line.last() != Some(&b'\n') || line.first() == Some(&STRUCK_OUT) {
                continue;
            }
            match serde_json::from_slice(line) {
                Ok(line) => lines.push((place, line)),
                Err(error) => {
                    tracing::warn!("skipped an unreadable line of {agent}'s journal: {error}")
                }
            }
        }
        Ok(lines)
    }
}

fn held_too_long(agent: &impl Display) -> io::Error {
    let error = format!(
        "another process has held the journal of {agent} for {} s",
        TURN_MAX.as_secs()
    );
    io::Error::new(io::ErrorKind::TimedOut, error)
}
