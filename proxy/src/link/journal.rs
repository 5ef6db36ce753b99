//! Queued sends and replies on this host's disk. Knows files, nothing of the link.
//!
//! One file of JSON lines per agent. A call is answered after its line is synced; a line that a crash cut off was never
//! answered and is ignored. A sent line is struck out by one byte in place: a crash cannot tear that, and a full disk
//! has room for it. Several proxies of one agent take turns by a lock file.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use c3po_shared::catalogue::Call;
use c3po_shared::ids::{AgentId, CallId};
use c3po_shared::refusal::Refusal;
use c3po_shared::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::lines::{append_to, private};

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
    /// The file of the rejected calls.
    pub file: PathBuf,
}

/// The journals of this host's agents.
#[derive(Debug, Clone)]
pub(super) struct Journal {
    folder: PathBuf,
}

impl Journal {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Returns whether the agent has no queued calls.
    pub(super) fn is_empty(&self, agent: &AgentId) -> bool {
        std::fs::metadata(self.lines(agent)).map_or(true, |file| file.len() == 0)
    }

    /// Appends a line. When this returns without error, the line survives a crash.
    pub(super) fn append(&self, agent: &AgentId, line: &Line) -> io::Result<()> {
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
    pub(super) fn first(&self, agent: &AgentId) -> io::Result<Option<Line>> {
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
    pub(super) fn is_for(&self, agent: &AgentId, targets: &[String]) -> bool {
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
    pub(super) fn remove(&self, agent: &AgentId, call_id: CallId) -> io::Result<()> {
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
        let Ok(entries) = std::fs::read_dir(&self.folder) else {
            return Vec::new();
        };
        let names = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        let agents = names.filter_map(|name| name.strip_suffix(".jsonl")?.parse().ok());
        agents
            .filter(|agent: &AgentId| !self.is_empty(agent))
            .collect()
    }

    /// Moves a rejected line to the file of rejected calls, where a person can inspect it.
    pub(super) fn refuse(&self, agent: &AgentId, line: Line, refusal: Refusal) -> io::Result<()> {
        let call_id = line.call_id;
        {
            let _turn = self.turn(agent)?;
            append_to(&self.refused(agent), &RefusedLine { line, refusal })?;
        }
        self.remove(agent, call_id)
    }

    /// Returns the queued calls of each agent, by name.
    pub(super) fn kept(&self) -> Vec<QueuedFor> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else {
            return Vec::new();
        };
        let names = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        let stem = |name: &str| {
            name.strip_suffix("~refused.jsonl")
                .or(name.strip_suffix(".jsonl"))?
                .parse()
                .ok()
        };
        let agents: BTreeSet<AgentId> = names.filter_map(|name| stem(&name)).collect();
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
        QueuedFor {
            waiting: self.read(&agent).map_or(0, |lines| lines.len()),
            refused: refused.lines().count(),
            why: last.map(|last| last.refusal.error),
            agent,
            file,
        }
    }

    /// Waits for the lock of this agent's journal. It is held as long as the returned file.
    fn turn(&self, agent: &AgentId) -> io::Result<File> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)?;
        let lock = private()
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.folder.join(format!("{agent}.lock")))?;
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
    fn clear(&self, agent: &AgentId) -> io::Result<()> {
        match private().write(true).open(self.lines(agent)) {
            Ok(file) => file.set_len(0).and_then(|()| file.sync_all()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn refused(&self, agent: &AgentId) -> PathBuf {
        self.folder.join(format!("{agent}~refused.jsonl"))
    }

    fn lines(&self, agent: &AgentId) -> PathBuf {
        self.folder.join(format!("{agent}.jsonl"))
    }

    /// Returns the unsent lines, each with its offset in the file.
    fn read(&self, agent: &AgentId) -> io::Result<Vec<(u64, Line)>> {
        let mut bytes = Vec::new();
        match File::open(self.lines(agent)) {
            Ok(mut file) => file.read_to_end(&mut bytes)?,
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

fn held_too_long(agent: &AgentId) -> io::Error {
    let error = format!(
        "another process has held the journal of {agent} for {} s",
        TURN_MAX.as_secs()
    );
    io::Error::new(io::ErrorKind::TimedOut, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::lines::text;
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn agent() -> AgentId {
        "web".parse().unwrap()
    }

    fn line(number: u32) -> Line {
        let arguments = serde_json::value::to_raw_value(
            &json!({"target": "b", "message": format!("m{number}")}),
        )
        .unwrap();
        let (call_id, tool, at) = (CallId::fresh(), "send_message".to_owned(), Timestamp::now());
        Line {
            call_id,
            tool,
            arguments,
            at,
            coordinators: vec!["ws://a/acp".to_owned()],
        }
    }

    fn journal() -> (tempfile::TempDir, Journal) {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::new(folder.path().join("state/journal"));
        (folder, journal)
    }

    #[test]
    fn a_line_of_garbage_holds_up_no_other() {
        let (_folder, journal) = journal();
        let agent: AgentId = "web".parse().unwrap();
        std::fs::create_dir_all(&journal.folder).unwrap();
        std::fs::write(journal.lines(&agent), b"\xff\xfe\n{}\n").unwrap();
        let sent = line(1);
        journal.append(&agent, &sent).unwrap();
        assert_eq!(
            journal.first(&agent).unwrap().map(|line| line.call_id),
            Some(sent.call_id)
        );
    }

    #[test]
    fn lines_come_out_in_the_order_in_which_they_went_in() {
        let (_folder, journal) = journal();
        assert!(journal.is_empty(&agent()) && journal.first(&agent()).unwrap().is_none());
        let lines = [line(1), line(2), line(3)];
        lines
            .iter()
            .for_each(|line| journal.append(&agent(), line).unwrap());
        for expected in &lines {
            let first = journal.first(&agent()).unwrap().unwrap();
            assert_eq!(
                (first.call_id, first.arguments.get()),
                (expected.call_id, expected.arguments.get())
            );
            journal.remove(&agent(), first.call_id).unwrap();
        }
        assert!(journal.is_empty(&agent()));
    }

    #[test]
    fn a_line_cut_off_by_a_crash_is_ignored_and_written_over() {
        let (_folder, journal) = journal();
        let (one, two) = (line(1), line(2));
        journal.append(&agent(), &one).unwrap();
        let path = journal.lines(&agent());
        let torn = std::fs::read_to_string(&path).unwrap() + &text(&line(9)).unwrap()[..40];
        std::fs::write(&path, torn).unwrap();
        assert_eq!(journal.read(&agent()).unwrap().len(), 1);
        journal.append(&agent(), &two).unwrap();
        let ids: Vec<_> = journal
            .read(&agent())
            .unwrap()
            .iter()
            .map(|(_, line)| line.call_id)
            .collect();
        assert_eq!(ids, [one.call_id, two.call_id]);
    }

    #[test]
    fn a_torn_line_alone_is_no_line() {
        let (_folder, journal) = journal();
        journal.append(&agent(), &line(1)).unwrap();
        std::fs::write(journal.lines(&agent()), "{\"call_id\":").unwrap();
        assert!(journal.first(&agent()).unwrap().is_none());
    }

    #[test]
    fn a_refused_line_is_kept_beside_the_journal() {
        let (_folder, journal) = journal();
        let (one, two) = (line(1), line(2));
        journal.append(&agent(), &one).unwrap();
        journal.append(&agent(), &two).unwrap();
        let refusal = Refusal::agent_not_found("nobody", &[]);
        journal
            .refuse(&agent(), one.clone(), refusal.clone())
            .unwrap();
        assert_eq!(
            journal.first(&agent()).unwrap().unwrap().call_id,
            two.call_id
        );
        let refused = std::fs::read_to_string(journal.folder.join("web~refused.jsonl")).unwrap();
        assert!(refused.contains(&one.call_id.to_string()) && refused.contains("m1"));
        let file = journal.refused(&agent());
        let kept = QueuedFor {
            agent: agent(),
            waiting: 1,
            refused: 1,
            why: Some(refusal.error),
            file,
        };
        assert_eq!(journal.kept(), [kept]);
    }

    #[test]
    fn sent_entries_stay_out_of_the_journal_after_a_crash() {
        let (_folder, journal) = journal();
        let lines = [line(1), line(2), line(3)];
        lines
            .iter()
            .for_each(|line| journal.append(&agent(), line).unwrap());
        let length = std::fs::metadata(journal.lines(&agent())).unwrap().len();
        journal.remove(&agent(), lines[1].call_id).unwrap();
        assert_eq!(
            std::fs::metadata(journal.lines(&agent())).unwrap().len(),
            length,
            "nothing is written anew"
        );
        journal.remove(&agent(), lines[0].call_id).unwrap();
        assert_eq!(
            journal.first(&agent()).unwrap().unwrap().call_id,
            lines[2].call_id
        );
        journal.remove(&agent(), lines[2].call_id).unwrap();
        assert!(journal.is_empty(&agent()));
        // The state after a kill before the file was emptied, with a partial line at the end.
        std::fs::write(journal.lines(&agent()), "#struck out\n{\"call").unwrap();
        assert!(!journal.is_empty(&agent()));
        assert!(journal.first(&agent()).unwrap().is_none() && journal.is_empty(&agent()));
    }

    #[test]
    fn a_process_that_keeps_its_turn_does_not_hang_other_writers() {
        let (_folder, journal) = journal();
        journal.append(&agent(), &line(1)).unwrap();
        let turn = journal.turn(&agent()).unwrap();
        let began = Instant::now();
        let refused = journal.append(&agent(), &line(2)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() < 2 * TURN_MAX, "{:?}", began.elapsed());
        drop(turn);
        journal.append(&agent(), &line(3)).unwrap();
        assert_eq!(journal.read(&agent()).unwrap().len(), 2);
    }

    #[test]
    fn the_agents_with_something_that_waits_are_known() {
        let (_folder, journal) = journal();
        assert!(journal.agents().is_empty());
        let (one, other): (AgentId, AgentId) = (agent(), "web-2".parse().unwrap());
        let sent = line(1);
        journal.append(&one, &sent).unwrap();
        journal.append(&other, &line(2)).unwrap();
        journal.refuse(&one, sent, Refusal::invalid("no")).unwrap();
        assert_eq!(journal.agents(), std::slice::from_ref(&other));
        let is_for = |target: &str| journal.is_for(&other, &[target.to_owned()]);
        assert!(is_for("ws://a/acp") && !is_for("ws://b/acp"));
    }

    #[test]
    fn the_journal_is_readable_by_its_user_alone() {
        let (_folder, journal) = journal();
        journal.append(&agent(), &line(1)).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (mode(&journal.lines(&agent())), mode(&journal.folder)),
            (0o600, 0o700)
        );
    }

    #[test]
    fn writers_at_the_same_time_lose_nothing() {
        let (_folder, journal) = journal();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    (0..25).for_each(|number| journal.append(&agent(), &line(number)).unwrap())
                });
            }
        });
        assert_eq!(journal.read(&agent()).unwrap().len(), 100);
    }
}
