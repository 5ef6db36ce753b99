//! The client that started this process, perhaps by a program in between: which process it is, and how it was started.

mod process;

use std::fs;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};

pub use process::{Identity, Process, process_age, upward};

/// Programs between a client and the programs that it starts.
const WRAPPERS: &[&str] = &[
    "ash", "bash", "busybox", "bwrap", "dash", "doas", "env", "fish", "ionice", "ksh", "ltrace",
    "nice", "nohup", "npx", "script", "setpriv", "setsid", "sh", "stdbuf", "strace", "sudo",
    "time", "timeout", "xargs", "zsh",
];

/// The reader of a client's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    Person,
    /// A program that sends one prompt after another.
    OfManyAnswers,
    /// A client with one prompt, whose answer it prints before it ends.
    OfOneAnswer,
}

/// The client that started this process, as far as the system shows it.
#[derive(Debug, Default)]
pub struct Client {
    /// Its pid.
    pub pid: u32,
    /// Its command line; empty if unknown.
    pub command: Vec<String>,
    /// Whether its answers are written to a terminal.
    pub has_terminal: bool,
}

impl Client {
    /// Returns the nearest process above this one that is no wrapper, else the parent.
    pub fn look() -> Self {
        let parent = parent_id();
        let pid = upward(parent)
            .find(|process| !is_wrapper(process))
            .map_or(parent, |process| process.id.pid);
        let process = PathBuf::from(format!("/proc/{pid}"));
        let line = fs::read(process.join("cmdline")).unwrap_or_default();
        let output = fs::read_link(process.join("fd/1")).unwrap_or_default();
        Self {
            pid,
            command: line
                .split(|byte| *byte == 0)
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect(),
            has_terminal: output.starts_with("/dev/pts") || output.starts_with("/dev/tty"),
        }
    }
}

fn is_wrapper(process: &Process) -> bool {
    let is_known = |name: &str| WRAPPERS.contains(&name);
    // npm runs programs under a title of its own, as `npm exec c3po`. A shell that runs a script has the script's name.
    is_known(&process.name)
        || process.name.starts_with("npm ")
        || process.program().is_some_and(|name| is_known(&name))
}

/// Returns the reader of a client's answers, by its entry point and command line. The client decides by its output and command
/// too, but keeps an entry point that it inherited from a session above.
pub fn reader(entry: Option<&str>, client: &Client) -> Reader {
    let command = &client.command;
    if client.has_terminal && !prints(command) {
        return Reader::Person;
    }
    let prints = entry == Some("sdk-cli") || prints(command);
    if prints && !reads_a_stream(command) {
        Reader::OfOneAnswer
    } else if prints || entry.is_some_and(|entry| entry.starts_with("sdk-")) {
        Reader::OfManyAnswers
    } else {
        Reader::Person
    }
}

/// Returns whether a client without a terminal reads a stream of prompts, as with an SDK.
fn reads_a_stream(client: &[String]) -> bool {
    let pairs = client.iter().zip(client.iter().skip(1));
    client
        .iter()
        .any(|word| word == "--input-format=stream-json")
        || pairs
            .into_iter()
            .any(|(option, value)| option == "--input-format" && value == "stream-json")
}

/// Returns the file in which the client with that pid describes its session, in the folder of its settings.
pub fn session_file(claude_dir: &Path, client: u32) -> PathBuf {
    claude_dir.join(format!("sessions/{client}.json"))
}

/// Returns the pid of the client in the name of its inbox socket: clients name it `PID.sock`, or `PID-SUFFIX.sock` if there is
/// such a file.
pub fn of_socket(socket: &str) -> Option<u32> {
    let name = socket.rsplit('/').next()?.strip_suffix(".sock")?;
    name.split('-').next()?.parse().ok()
}

/// Returns whether a client prints its answers.
fn prints(client: &[String]) -> bool {
    client
        .iter()
        .skip(1)
        .any(|word| word == "-p" || word == "--print")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_client_answers_a_person_or_a_program() {
        let check = |entry: Option<&str>, command: &str, has_terminal: bool, expected: Reader| {
            let client = Client {
                command: command.split(' ').map(str::to_owned).collect(),
                has_terminal,
                ..Client::default()
            };
            assert_eq!(reader(entry, &client), expected, "{entry:?} {client:?}");
        };
        check(None, "claude", true, Reader::Person);
        check(Some("cli"), "claude --resume", true, Reader::Person);
        check(Some("claude-vscode"), "claude", false, Reader::Person);
        check(Some("cli"), "claude -p go", true, Reader::OfOneAnswer);
        check(Some("sdk-cli"), "claude go", false, Reader::OfOneAnswer);
        check(
            Some("sdk-cli"),
            "claude -p --input-format stream-json",
            false,
            Reader::OfManyAnswers,
        );
        check(
            Some("sdk-ts"),
            "claude --input-format stream-json",
            false,
            Reader::OfManyAnswers,
        );
    }

    #[test]
    fn a_client_with_a_terminal_answers_a_person_whatever_it_inherited() {
        let check = |entry: &str, command: &str, expected: Reader| {
            let client = Client {
                command: command.split(' ').map(str::to_owned).collect(),
                has_terminal: true,
                ..Client::default()
            };
            assert_eq!(reader(Some(entry), &client), expected, "{entry} {command}");
        };
        check("sdk-cli", "claude", Reader::Person);
        check("sdk-cli", "claude --resume", Reader::Person);
        check("sdk-ts", "claude", Reader::Person);
        check("sdk-cli", "claude -p go", Reader::OfOneAnswer);
        check("sdk-cli", "claude --print go", Reader::OfOneAnswer);
    }

    #[test]
    fn wrappers_are_distinguished_from_clients() {
        let check = |name: &str, expected: bool| {
            let process = Process {
                name: name.to_owned(),
                ..Process::look(std::process::id()).unwrap()
            };
            assert_eq!(is_wrapper(&process), expected, "{name}");
        };
        for name in ["sh", "bash", "npx", "npm exec c3po", "timeout", "strace"] {
            check(name, true);
        }
        for name in ["claude", "node", "opencode", "npm", "tmux"] {
            check(name, false);
        }
        assert!(WRAPPERS.is_sorted());
    }

    #[test]
    fn a_shell_that_runs_a_script_is_a_wrapper() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("c3po");
        fs::write(&script, "#!/bin/sh\nread line\nexit\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
        let mut shell = Command::new(&script).stdin(Stdio::piped()).spawn().unwrap();
        let process = Process::look(shell.id()).unwrap();
        assert_eq!((&*process.name, is_wrapper(&process)), ("c3po", true));
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }
}
