//! Calls that a session queues before a coordinator has given it a name: two sessions of one folder wish for the same name, and each
//! is to get the answers to its own questions. They are in a file of the process, and go to the journal of the name that it gets.
//! If it dies before, that is the name it wished for.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io;

use c3po_shared::ids::AgentId;
use uuid::Uuid;

use super::{Journal, private};

/// A process without a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::link) struct Unnamed {
    /// The name that it wishes for.
    pub(in crate::link) wished: AgentId,
    pub(in crate::link) process: Uuid,
}

impl fmt::Display for Unnamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~{}", self.wished, self.process)
    }
}

impl Journal {
    /// Locks the file of a process for as long as the returned file is open. Returns `None` if it is locked: the process lives.
    pub(in crate::link) fn hold(&self, of: &Unnamed) -> io::Result<Option<File>> {
        let _turn = self.turn(of)?;
        let file = private().write(true).create(true).open(self.lines(of))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Moves the calls of a process behind those of an agent. Returns how many. A crash in between leaves a call in both: it is
    /// applied once.
    pub(in crate::link) fn hand_over(&self, from: &Unnamed, to: &AgentId) -> io::Result<usize> {
        let lines = self.read(from)?;
        for (_, line) in &lines {
            self.append(to, line)?;
            self.remove(from, line.call_id)?;
        }
        Ok(lines.len())
    }

    /// Moves the calls of dead processes to the journals of the names for which they wished, if those are left. Returns whether
    /// it moved some.
    pub(in crate::link) fn adopt(&self, is_left: impl Fn(&Unnamed) -> bool) -> bool {
        let mut has_moved = false;
        for dead in self.unnamed().filter(is_left) {
            match self.adopt_one(&dead) {
                Ok(moved) => has_moved |= moved,
                Err(error) => {
                    has_moved = true;
                    tracing::warn!("the queued calls of {dead} were not moved: {error}");
                }
            }
        }
        has_moved
    }

    fn adopt_one(&self, dead: &Unnamed) -> io::Result<bool> {
        let Some(_lock) = self.hold(dead)? else {
            return Ok(false);
        };
        let moved = self.hand_over(dead, &dead.wished)?;
        std::fs::remove_file(self.lines(dead))?;
        std::fs::remove_file(self.lock(dead))?;
        Ok(moved > 0)
    }

    /// Returns the processes that have a file.
    pub(super) fn unnamed(&self) -> impl Iterator<Item = Unnamed> {
        let unnamed = |name: String| {
            let (wished, process) = name.strip_suffix(".jsonl")?.split_once('~')?;
            Some(Unnamed {
                wished: wished.parse().ok()?,
                process: process.parse().ok()?,
            })
        };
        self.files().into_iter().filter_map(unnamed)
    }
}
