//! The log of the messages that one agent's sessions on this host were shown. It is written before they are, so that the
//! next process knows of them even if this one is killed.
//!
//! It is not synced: it outlives the killed process, and a crash of the machine ends its readers too.

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use c3po_shared::ids::MessageId;
use c3po_shared::limits::INBOX_MAX;

use super::lines::{append, private};
use crate::config::private::{check_owner, make_state_folder};

/// How many messages are remembered: an inbox holds no more.
const KEPT: usize = INBOX_MAX;
/// After how many entries the file is rewritten with the latest ones.
const ANEW: usize = 8 * KEPT;

/// The log of one agent. It is opened with its first use that succeeds: a disk may be full, or a process have no file left.
#[derive(Debug)]
pub(super) struct ShownLog {
    path: PathBuf,
    file: Option<File>,
    /// The messages that were shown before the log was opened: by dead sessions, or by this one.
    dead: HashSet<MessageId>,
    latest: VecDeque<MessageId>,
    lines: usize,
}

impl ShownLog {
    /// Returns the log in that file.
    pub(super) fn at(path: PathBuf) -> Self {
        Self {
            path,
            file: None,
            dead: HashSet::new(),
            latest: VecDeque::new(),
            lines: 0,
        }
    }

    /// Opens the log unless it is open.
    pub(super) fn open(&mut self) -> io::Result<&mut File> {
        let file = match self.file.take() {
            Some(file) => file,
            None => self.read()?,
        };
        Ok(self.file.insert(file))
    }

    /// Reads the messages that earlier sessions were shown. Returns the file.
    fn read(&mut self) -> io::Result<File> {
        if let Some(folder) = self.path.parent() {
            make_state_folder(folder)?;
        }
        let text = match std::fs::read_to_string(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let file = private()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.path)?;
        check_owner(&file.metadata()?)?;
        self.latest = text.lines().filter_map(|line| line.parse().ok()).collect();
        self.latest.drain(..self.latest.len().saturating_sub(KEPT));
        self.dead = self.latest.iter().cloned().collect();
        self.lines = text.lines().count();
        Ok(file)
    }

    /// Returns whether these are the same file.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.path == other.path
    }

    /// Returns whether a dead session was shown that message.
    pub(super) fn had(&mut self, id: &MessageId) -> bool {
        self.open().is_ok() && self.dead.contains(id)
    }

    /// Records that messages are about to be shown. A recorded message is skipped: a push and its receipt name the same
    /// message. After an error the receipt has it recorded.
    pub(super) fn note(&mut self, ids: &[MessageId]) -> io::Result<()> {
        self.open()?;
        let mut ids = ids.to_vec();
        ids.retain(|id| !self.latest.contains(id));
        if ids.is_empty() {
            return Ok(());
        }
        let added = ids.len();
        if self.lines + added > ANEW {
            self.write_anew(&ids)?;
        } else {
            append(self.open()?, &text_of(&ids), |_| Ok(()))?;
            self.lines += added;
        }
        self.latest.extend(ids);
        self.latest.drain(..self.latest.len().saturating_sub(KEPT));
        Ok(())
    }

    /// Writes the latest messages into a new file, and these.
    fn write_anew(&mut self, ids: &[MessageId]) -> io::Result<()> {
        let fresh = self.path.with_extension("new");
        let all = self.latest.iter().chain(ids);
        let all: Vec<_> = all.cloned().collect();
        let mut file = private()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&fresh)?;
        file.write_all(text_of(&all).as_bytes())?;
        std::fs::rename(&fresh, &self.path)?;
        self.file = Some(file);
        self.lines = all.len();
        Ok(())
    }
}

fn text_of(ids: &[MessageId]) -> String {
    ids.iter().map(|id| format!("{id}\n")).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use c3po_shared::ids::AgentId;

    fn open(path: &Path) -> ShownLog {
        let mut log = ShownLog::at(path.to_owned());
        log.open().unwrap();
        log
    }

    fn id(number: u32) -> MessageId {
        MessageId::new(&AgentId::human(), &AgentId::all(), number)
    }

    #[test]
    fn the_next_session_reads_the_messages_that_its_predecessor_noted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web@nas2.shown");
        let mut first = open(&path);
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
        let mut second = open(&path);
        assert!(second.had(&id(1)) && second.had(&id(2)) && !second.had(&id(3)));
    }

    #[test]
    fn a_note_that_failed_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web@nas2.shown");
        let mut first = open(&path);
        first.note(&[id(1)]).unwrap();
        let writable = first.file.replace(File::open(&path).unwrap());
        first.note(&[id(2)]).unwrap_err();
        first.file = writable;
        // The beginning of a line, which a full disk cut off.
        first.open().unwrap().write_all(b"human::al").unwrap();
        first.note(&[id(2)]).unwrap();
        let mut second = open(&path);
        assert!(second.had(&id(1)) && second.had(&id(2)));
    }

    #[test]
    fn a_line_that_a_crash_cut_off_spoils_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web@nas2.shown");
        std::fs::write(&path, "human::al").unwrap();
        open(&path).note(&[id(1)]).unwrap();
        assert!(open(&path).had(&id(1)));
    }

    #[test]
    fn only_the_latest_are_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web@nas2.shown");
        let mut shown = open(&path);
        let last = u32::try_from(ANEW + KEPT / 2).unwrap();
        (0..=last).for_each(|number| shown.note(&[id(number)]).unwrap());
        assert!(std::fs::read_to_string(&path).unwrap().lines().count() < 2 * KEPT);
        let mut next = open(&path);
        assert_eq!(next.dead.len(), KEPT);
        assert!(next.had(&id(last)) && !next.had(&id(0)));
    }
}
