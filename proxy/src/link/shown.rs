//! The log of the messages that one agent's sessions on this host were shown. It is written before they are, so that the
//! next process knows of them even if this one is killed.
//!
//! It is not synced: it outlives the killed process, and a crash of the machine ends its readers too.

use std::collections::{HashSet, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use c3po_shared::ids::MessageId;
use c3po_shared::limits::INBOX_MAX;

/// How many messages are remembered: an inbox holds no more.
const KEPT: usize = INBOX_MAX;
/// After how many entries the file is rewritten with the latest ones.
const ANEW: usize = 8 * KEPT;

/// The log of one agent.
#[derive(Debug)]
pub(super) struct ShownLog {
    path: PathBuf,
    file: File,
    /// The messages that dead sessions were shown.
    dead: HashSet<MessageId>,
    latest: VecDeque<MessageId>,
    lines: usize,
}

impl ShownLog {
    /// Reads the messages that earlier sessions were shown. Only the holder of the agent's seat does that.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let mut latest: VecDeque<MessageId> =
            text.lines().filter_map(|line| line.parse().ok()).collect();
        latest.drain(..latest.len().saturating_sub(KEPT));
        let dead = latest.iter().cloned().collect();
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            dead,
            latest,
            lines: text.lines().count(),
        })
    }

    /// Returns whether a dead session was shown that message.
    pub(super) fn had(&self, id: &MessageId) -> bool {
        self.dead.contains(id)
    }

    /// Records that messages are about to be shown. A recorded message is skipped: a push and its receipt name the same
    /// message.
    pub(super) fn note(&mut self, ids: &[MessageId]) -> io::Result<()> {
        let ids: Vec<_> = ids
            .iter()
            .filter(|id| !self.latest.contains(id))
            .cloned()
            .collect();
        if ids.is_empty() {
            return Ok(());
        }
        self.latest.extend(ids.iter().cloned());
        self.latest.drain(..self.latest.len().saturating_sub(KEPT));
        self.lines += ids.len();
        if self.lines > ANEW {
            return self.write_anew();
        }
        let lines: String = ids.iter().map(|id| format!("{id}\n")).collect();
        self.file.write_all(lines.as_bytes())
    }

    fn write_anew(&mut self) -> io::Result<()> {
        let fresh = self.path.with_extension("new");
        let lines: String = self.latest.iter().map(|id| format!("{id}\n")).collect();
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)?;
        file.write_all(lines.as_bytes())?;
        std::fs::rename(&fresh, &self.path)?;
        self.file = OpenOptions::new().append(true).open(&self.path)?;
        self.lines = self.latest.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use c3po_shared::ids::AgentId;

    fn id(number: u32) -> MessageId {
        MessageId::new(&AgentId::human(), &AgentId::all(), number)
    }

    #[test]
    fn the_next_session_reads_the_messages_that_its_predecessor_noted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web@nas2.shown");
        let mut first = ShownLog::open(&path).unwrap();
        first.note(&[id(1), id(2)]).unwrap();
        first.note(&[id(2)]).unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap().lines().count(),
            2,
            "each once"
        );
        assert!(
            !first.had(&id(1)),
            "its own are its coordinator's to remember"
        );
        // The state after a kill in the middle of a write.
        std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + "human::al").unwrap();
        let second = ShownLog::open(&path).unwrap();
        assert!(second.had(&id(1)) && second.had(&id(2)) && !second.had(&id(3)));
    }

    #[test]
    fn only_the_latest_are_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web@nas2.shown");
        let mut shown = ShownLog::open(&path).unwrap();
        let last = u32::try_from(ANEW + KEPT / 2).unwrap();
        (0..=last).for_each(|number| shown.note(&[id(number)]).unwrap());
        assert!(std::fs::read_to_string(&path).unwrap().lines().count() < 2 * KEPT);
        let next = ShownLog::open(&path).unwrap();
        assert_eq!(next.dead.len(), KEPT);
        assert!(next.had(&id(last)) && !next.had(&id(0)));
    }
}
