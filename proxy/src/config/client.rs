//! How the client that started this process was started.

use std::fs;
use std::os::unix::process::parent_id;
use std::path::PathBuf;

/// The reader of a client's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    Person,
    /// A program that sends one prompt after another.
    OfManyAnswers,
    /// A client with one prompt, whose answer it prints before it ends.
    OfOneAnswer,
}

/// The client that started this process, as far as the system shows it.
#[derive(Debug, Default)]
pub(super) struct Client {
    /// Its command line; empty if unknown.
    pub(super) command: Vec<String>,
    /// Whether its answers are written to a terminal.
    pub(super) has_terminal: bool,
}

impl Client {
    /// Returns the parent of this process.
    pub(super) fn of_parent() -> Self {
        let process = PathBuf::from(format!("/proc/{}", parent_id()));
        let line = fs::read(process.join("cmdline")).unwrap_or_default();
        let output = fs::read_link(process.join("fd/1")).unwrap_or_default();
        Self {
            command: line
                .split(|byte| *byte == 0)
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect(),
            has_terminal: output.starts_with("/dev/pts") || output.starts_with("/dev/tty"),
        }
    }
}

/// Returns the reader of a client's answers, by its entry point and command line. The client decides by its output and command
/// too, but keeps an entry point that it inherited from a session above.
pub(super) fn reader(entry: Option<&str>, client: &Client) -> Reader {
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

/// Returns the pid of the client in the name of its inbox socket: clients name it `PID.sock`, or `PID-SUFFIX.sock` if there is
/// such a file.
pub fn client_of_socket(socket: &str) -> Option<u32> {
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
    use super::*;

    #[test]
    fn a_client_answers_a_person_or_a_program() {
        let check = |entry: Option<&str>, command: &str, has_terminal: bool, expected: Reader| {
            let client = Client {
                command: command.split(' ').map(str::to_owned).collect(),
                has_terminal,
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
            };
            assert_eq!(reader(Some(entry), &client), expected, "{entry} {command}");
        };
        check("sdk-cli", "claude", Reader::Person);
        check("sdk-cli", "claude --resume", Reader::Person);
        check("sdk-ts", "claude", Reader::Person);
        check("sdk-cli", "claude -p go", Reader::OfOneAnswer);
        check("sdk-cli", "claude --print go", Reader::OfOneAnswer);
    }
}
