//! The lock files of this host's agents: one per name, locked for as long as its process lives.
//!
//! The holder of the lock knows that every other process named in the file is dead, however it ended.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use c3po_shared::ids::AgentId;
use c3po_shared::limits::SUCCEEDS_MAX;
use uuid::Uuid;

use super::shown::ShownLog;
use crate::config::private::{check_owner, make_state_folder};

/// The seats of this host's agents.
#[derive(Debug, Clone)]
pub(super) struct Seats {
    folder: PathBuf,
    host: String,
}

/// The seat of one name, held until this is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) name: AgentId,
    /// Earlier holders, the latest last. They are dead.
    dead: Vec<Uuid>,
    /// The latest process of each agent of this host with the same name and a number. They are dead.
    kin: Vec<Uuid>,
    /// Holds the lock.
    file: File,
}

impl Seat {
    /// Returns the predecessors of this seat's holder, as many as `hello` may name. A host wishes the name without a
    /// number also for a numbered agent, so the dead processes of all of them count.
    pub(super) fn succeeds(&self) -> Vec<Uuid> {
        let (older, latest) = self.dead.split_at(self.dead.len().saturating_sub(1));
        let all = latest.iter().chain(&self.kin).chain(older.iter().rev());
        all.take(SUCCEEDS_MAX).copied().collect()
    }

    /// Leaves the seat of a process that lives on under another name: it must not count as dead.
    pub(super) fn give_up(mut self) -> io::Result<()> {
        write(&mut self.file, &self.dead)
    }
}

impl Seats {
    /// Creates the seats of one machine: a home may be shared between machines, and locks may not work across them.
    pub(super) fn new(folder: PathBuf, host: &str) -> Self {
        let host =
            AgentId::from_any(host).map_or_else(|| "unknown".to_owned(), |host| host.to_string());
        Self { folder, host }
    }

    /// Takes the seat of a name and records the process in it. Returns `None` if a living process has it.
    pub(super) fn take(&self, name: &AgentId, instance: Uuid) -> io::Result<Option<Seat>> {
        let Some(mut file) = self.lock(name)? else {
            return Ok(None);
        };
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let mut had: Vec<Uuid> = text.lines().filter_map(|line| line.parse().ok()).collect();
        had.retain(|before| *before != instance);
        let dead = had.split_off(had.len().saturating_sub(SUCCEEDS_MAX));
        let kin = self.kin(name)?;
        // Written before the name is claimed, so that a process killed right after the claim is found dead too.
        write(&mut file, &[&dead[..], &[instance]].concat())?;
        Ok(Some(Seat {
            name: name.clone(),
            dead,
            kin,
            file,
        }))
    }

    /// Returns the log of the messages that sessions of that name were shown. It needs no seat: a stopped process that has lost
    /// its name may hold that.
    pub(super) fn shown(&self, name: &AgentId) -> ShownLog {
        ShownLog::at(self.path(name).with_added_extension("shown"))
    }

    /// Returns the latest process of each dead agent of this host with that name and a number.
    fn kin(&self, name: &AgentId) -> io::Result<Vec<Uuid>> {
        let mut kin = Vec::new();
        for entry in self.folder.read_dir()? {
            let file = entry?.file_name();
            let kins = file
                .to_str()
                .and_then(|file| file.strip_suffix(&format!("@{}", self.host)));
            let Some(kins) = kins
                .filter(|kins| is_numbered(kins, name))
                .and_then(|kins| kins.parse().ok())
            else {
                continue;
            };
            let mut text = String::new();
            // Another user may own it.
            if let Ok(Some(mut file)) = self.lock(&kins)
                && file.read_to_string(&mut text).is_ok()
            {
                kin.extend(
                    text.lines()
                        .filter_map(|line| line.parse::<Uuid>().ok())
                        .next_back(),
                );
            }
            if kin.len() >= SUCCEEDS_MAX {
                break;
            }
        }
        Ok(kin)
    }

    /// Locks the file of a name; `None` if a living process has it.
    pub(super) fn lock(&self, name: &AgentId) -> io::Result<Option<File>> {
        make_state_folder(&self.folder)?;
        let path = self.path(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)?;
        check_owner(&file.metadata()?)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn path(&self, name: &AgentId) -> PathBuf {
        Path::new(&self.folder).join(format!("{name}@{}", self.host))
    }
}

/// Returns whether a text is the name followed by a number.
fn is_numbered(text: &str, name: &AgentId) -> bool {
    let number = text
        .strip_prefix(name.as_str())
        .and_then(|rest| rest.strip_prefix('-'));
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn write(file: &mut File, had: &[Uuid]) -> io::Result<()> {
    let lines: String = had.iter().map(|had| format!("{had}\n")).collect();
    file.seek(SeekFrom::Start(0))?;
    file.set_len(0)?;
    file.write_all(lines.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_holder_learns_which_process_died() {
        let folder = tempfile::tempdir().unwrap();
        let seats = Seats::new(folder.path().join("state/seats"), "nas2");
        let name: AgentId = "web".parse().unwrap();
        let processes: Vec<_> = (0..SUCCEEDS_MAX + 3).map(|_| Uuid::new_v4()).collect();
        let first = seats.take(&name, processes[0]).unwrap().unwrap();
        assert!(first.dead.is_empty() && seats.take(&name, processes[1]).unwrap().is_none());
        drop(first);
        assert_eq!(
            seats.take(&name, processes[1]).unwrap().unwrap().dead,
            [processes[0]]
        );
        assert_eq!(
            seats.take(&name, processes[1]).unwrap().unwrap().dead,
            [processes[0]],
            "the same process again"
        );
        for process in &processes[2..] {
            drop(seats.take(&name, *process).unwrap().unwrap());
        }
        let last = seats.take(&name, Uuid::new_v4()).unwrap().unwrap();
        assert_eq!(last.dead, processes[processes.len() - SUCCEEDS_MAX..]);
    }

    #[test]
    fn a_new_holder_learns_the_dead_of_numbered_names() {
        let folder = tempfile::tempdir().unwrap();
        let seats = Seats::new(folder.path().to_owned(), "nas2");
        let other = Seats::new(folder.path().to_owned(), "nas3");
        let id = |name: &str| name.parse::<AgentId>().unwrap();
        let [own, dead, lives, elsewhere, another] = [1, 2, 3, 4, 5].map(Uuid::from_u128);
        drop(seats.take(&id("web"), own).unwrap());
        drop(seats.take(&id("web-2"), Uuid::nil()).unwrap());
        drop(seats.take(&id("web-2"), dead).unwrap());
        let _lives = seats.take(&id("web-3"), lives).unwrap();
        drop(other.take(&id("web-4"), elsewhere).unwrap());
        drop(seats.take(&id("web-frontend"), another).unwrap());
        let seat = seats.take(&id("web"), Uuid::new_v4()).unwrap().unwrap();
        assert_eq!(seat.succeeds(), [own, dead]);
    }

    #[test]
    fn a_numbered_seat_that_cannot_be_read_takes_no_seat_from_others() {
        let folder = tempfile::tempdir().unwrap();
        let seats = Seats::new(folder.path().to_owned(), "nas2");
        let id = |name: &str| name.parse::<AgentId>().unwrap();
        let dead = Uuid::from_u128(1);
        drop(seats.take(&id("web-3"), dead).unwrap());
        std::fs::create_dir(seats.path(&id("web-2"))).unwrap();
        let seat = seats.take(&id("web"), Uuid::new_v4()).unwrap().unwrap();
        assert_eq!(seat.succeeds(), [dead]);
    }

    #[test]
    fn a_process_that_left_its_seat_is_not_dead() {
        let folder = tempfile::tempdir().unwrap();
        let seats = Seats::new(folder.path().to_owned(), "nas2");
        let name: AgentId = "web".parse().unwrap();
        let dead = Uuid::new_v4();
        drop(seats.take(&name, dead).unwrap());
        seats
            .take(&name, Uuid::new_v4())
            .unwrap()
            .unwrap()
            .give_up()
            .unwrap();
        assert_eq!(
            seats.take(&name, Uuid::new_v4()).unwrap().unwrap().dead,
            [dead]
        );
    }

    #[test]
    fn another_machine_has_its_own_seats_and_garbage_names_no_process() {
        let folder = tempfile::tempdir().unwrap();
        let name: AgentId = "web".parse().unwrap();
        let here = Seats::new(folder.path().to_owned(), "nas2");
        let there = Seats::new(folder.path().to_owned(), "nas/3");
        let _here = here.take(&name, Uuid::new_v4()).unwrap().unwrap();
        drop(there.lock(&name).unwrap().unwrap());
        std::fs::write(there.path(&name), "garbage\n\n").unwrap();
        assert!(
            there
                .take(&name, Uuid::new_v4())
                .unwrap()
                .unwrap()
                .dead
                .is_empty()
        );
    }
}
