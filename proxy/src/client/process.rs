//! Processes as the system reports them: parents, programs and start times.

use std::iter::successors;
use std::time::Duration;

/// A snapshot of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its pid and start.
    pub id: Identity,
    /// Its parent, or the process that adopted it. 0 if it has none.
    pub parent: u32,
    /// Its name: on Linux the first 15 bytes of that.
    pub name: String,
}

/// Identifies a process: a pid is reused, a pid with its start time is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Its number while it runs.
    pub pid: u32,
    /// In the unit of the system, so only comparable.
    pub started: u64,
}

impl Process {
    /// Returns the process with that pid. `None` if there is none, or if it is a zombie.
    pub fn look(pid: u32) -> Option<Self> {
        system::look(pid)
    }

    /// Returns the name of the program that it runs: of a script the interpreter. `None` if the system does not show it.
    pub(super) fn program(&self) -> Option<String> {
        Some(
            system::program(self.id.pid)?
                .file_name()?
                .to_string_lossy()
                .into_owned(),
        )
    }
}

/// Returns how long that process has run; `None` if the system does not show it.
pub fn process_age(pid: u32) -> Option<Duration> {
    system::age(pid)
}

/// Returns that process and its ancestors, nearest first.
pub fn upward(pid: u32) -> impl Iterator<Item = Process> {
    /// Real chains are shorter; a hook has no time for longer ones.
    const STEPS_MAX: usize = 16;
    successors(Process::look(pid), |process| {
        (process.parent != 0)
            .then(|| Process::look(process.parent))
            .flatten()
    })
    .take(STEPS_MAX)
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs::File;
    use std::io::Read;
    use std::path::PathBuf;
    use std::time::Duration;

    use super::{Identity, Process};

    pub(super) fn look(pid: u32) -> Option<Process> {
        // The kernel returns the whole line in one read, and no line is longer than this.
        let mut line = [0; 1024];
        let length = File::open(format!("/proc/{pid}/stat"))
            .ok()?
            .read(&mut line)
            .ok()?;
        read(&String::from_utf8_lossy(&line[..length]))
    }

    pub(super) fn program(pid: u32) -> Option<PathBuf> {
        std::fs::read_link(format!("/proc/{pid}/exe")).ok()
    }

    pub(super) fn age(pid: u32) -> Option<Duration> {
        let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
        let uptime: f64 = uptime.split(' ').next()?.parse().ok()?;
        let started = look(pid)?.id.started as f64 / rustix::param::clock_ticks_per_second() as f64;
        Duration::try_from_secs_f64(uptime - started).ok()
    }

    /// Reads a line of `/proc/<pid>/stat`. The name in it may contain anything, even `) R 1`, so the last `)` ends it.
    pub(super) fn read(line: &str) -> Option<Process> {
        let (pid, rest) = line.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        // From here on indices are three less than the field numbers of proc(5): the state is its field 3.
        let mut fields = rest.split_ascii_whitespace();
        let ended = matches!(fields.next()?, "Z" | "X");
        let parent = fields.next()?.parse().ok()?;
        let started = fields.nth(17)?.parse().ok()?;
        let id = Identity {
            pid: pid.parse().ok()?,
            started,
        };
        (!ended).then(|| Process {
            id,
            parent,
            name: name.to_owned(),
        })
    }
}

// Compiles for macOS and follows the crate's documentation; it was never run there.
#[cfg(target_os = "macos")]
mod system {
    use sysinfo::{Pid, ProcessRefreshKind, ProcessStatus, ProcessesToUpdate, System, UpdateKind};

    use super::{Identity, Process};
    use std::path::PathBuf;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    pub(super) fn program(pid: u32) -> Option<PathBuf> {
        let (mut system, wanted) = (System::new().ok()?, Pid::from_u32(pid));
        let kind = ProcessRefreshKind::nothing().with_exe(UpdateKind::Always);
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&[wanted]), true, kind);
        system.process(wanted)?.exe().map(PathBuf::from)
    }

    pub(super) fn age(pid: u32) -> Option<Duration> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        now.checked_sub(Duration::from_secs(look(pid)?.id.started))
    }

    pub(super) fn look(pid: u32) -> Option<Process> {
        let (mut system, wanted) = (System::new().ok()?, Pid::from_u32(pid));
        system.refresh_processes_specifics(
            ProcessesToUpdate::Some(&[wanted]),
            true,
            ProcessRefreshKind::nothing(),
        );
        let found = system.process(wanted)?;
        let ended = matches!(found.status(), ProcessStatus::Zombie | ProcessStatus::Dead);
        (!ended).then(|| Process {
            id: Identity {
                pid,
                started: found.start_time(),
            },
            parent: found.parent().map_or(0, Pid::as_u32),
            name: found.name().to_string_lossy().into_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, id};

    #[test]
    fn a_process_is_found_with_its_parent_while_it_runs() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let (first, again) = (
            Process::look(child.id()).unwrap(),
            Process::look(child.id()).unwrap(),
        );
        assert_eq!((first.id.pid, first.parent), (child.id(), id()));
        assert_eq!(first.id, again.id);
        assert!(first.id.started >= Process::look(id()).unwrap().id.started);
        child.kill().unwrap();
        // Between its end and `wait` it is a zombie, which does not count as a process.
        while Process::look(child.id()).is_some() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(Process::look(child.id()), None);
    }

    #[test]
    fn the_way_up_ends() {
        let pids: Vec<_> = upward(id()).map(|process| process.id.pid).collect();
        assert_eq!(
            (pids[0], pids[1]),
            (id(), std::os::unix::process::parent_id())
        );
        assert!(pids.len() <= 16);
        assert_eq!(upward(0).count(), 0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_name_cannot_pretend_to_be_the_rest_of_the_line() {
        let check = |line: &str, expected: Option<(u32, &str, u32, u64)>| {
            let found = system::read(line);
            let found = found
                .as_ref()
                .map(|p| (p.id.pid, p.name.as_str(), p.parent, p.id.started));
            assert_eq!(found, expected, "{line}");
        };
        let numbers = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 108750 20";
        check(&format!("7 (sh) S {numbers}"), Some((7, "sh", 1, 108_750)));
        check(
            &format!("7 (a) R 9 (b)) S {numbers}"),
            Some((7, "a) R 9 (b)", 1, 108_750)),
        );
        check(&format!("7 () R {numbers}"), Some((7, "", 1, 108_750)));
        check(&format!("7 (sh) Z {numbers}"), None);
        for line in ["", "7", "7 (sh", "7 (sh) S 1 2 3", "x (sh) S 1"] {
            check(line, None);
        }
    }
}
