//! The processes that the client keeps in the background: its daemon, moved sessions, spare ones. They outlive its terminal.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};

/// Ends them on drop.
#[derive(Debug)]
pub struct Background {
    home: PathBuf,
}

impl Background {
    /// Returns those of the client with that HOME.
    pub fn of(home: PathBuf) -> Self {
        Self { home }
    }

    fn processes(&self) -> Vec<Pid> {
        let home = format!("HOME={}", self.home.display());
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let is_of_home = |environment: Vec<u8>| {
            environment
                .split(|byte| *byte == 0)
                .any(|word| word == home.as_bytes())
        };
        let pids = processes.filter_map(|process| {
            let pid = process.file_name().to_str()?.parse().ok()?;
            let environment = fs::read(process.path().join("environ")).ok()?;
            Pid::from_raw(pid).filter(|_| is_of_home(environment))
        });
        pids.collect()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        for process in self.processes() {
            // It may have ended by itself.
            let _ = kill_process(process, Signal::KILL);
        }
    }
}
