//! How the client that started this process was started.

/// The reader of a client's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    Person,
    /// A program that sends one prompt after another.
    OfManyAnswers,
    /// A client with one prompt, whose answer it prints before it ends.
    OfOneAnswer,
}

/// Returns the reader of a client's answers, by its entry point and command line.
pub(super) fn reader(entry: Option<&str>, client: &[String]) -> Reader {
    let prints = entry == Some("sdk-cli") || prints(client);
    if prints && !reads_a_stream(client) {
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

/// Returns whether a client prints its answers.
fn prints(client: &[String]) -> bool {
    client
        .iter()
        .skip(1)
        .any(|word| word == "-p" || word == "--print")
}

/// Returns the command line of this process's parent; empty if the system does not show it.
pub(super) fn command() -> Vec<String> {
    let line = std::fs::read(format!(
        "/proc/{}/cmdline",
        std::os::unix::process::parent_id()
    ))
    .unwrap_or_default();
    line.split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_answers_a_person_or_a_program() {
        let check = |entry: Option<&str>, client: &str, expected: Reader| {
            let client: Vec<_> = client.split(' ').map(str::to_owned).collect();
            assert_eq!(reader(entry, &client), expected, "{entry:?} {client:?}");
        };
        check(None, "claude", Reader::Person);
        check(Some("cli"), "claude --resume", Reader::Person);
        check(Some("claude-vscode"), "claude", Reader::Person);
        check(Some("cli"), "claude -p go", Reader::OfOneAnswer);
        check(Some("sdk-cli"), "claude", Reader::OfOneAnswer);
        check(
            Some("sdk-cli"),
            "claude -p --input-format stream-json",
            Reader::OfManyAnswers,
        );
        check(
            Some("sdk-ts"),
            "claude --input-format stream-json",
            Reader::OfManyAnswers,
        );
    }
}
