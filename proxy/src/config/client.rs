//! The client that started this process: how it was started.

/// Returns whether a program reads the answers of a client with that entry point and command line.
pub(super) fn is_headless(entry: Option<&str>, client: &[String]) -> bool {
    entry.is_some_and(|entry| entry.starts_with("sdk-")) || prints(client)
}

/// Returns whether a client answers one prompt and ends, whoever started it.
pub(super) fn answers_once(entry: Option<&str>, client: &[String]) -> bool {
    (entry == Some("sdk-cli") || prints(client)) && !reads_a_stream(client)
}

/// Returns whether a client without a terminal reads one prompt after the other, as an SDK has it do.
fn reads_a_stream(client: &[String]) -> bool {
    let pairs = client.iter().zip(client.iter().skip(1));
    client.iter().any(|word| word == "--input-format=stream-json")
        || pairs.into_iter().any(|(option, value)| option == "--input-format" && value == "stream-json")
}

/// Returns whether a client prints its answers.
fn prints(client: &[String]) -> bool {
    client.iter().skip(1).any(|word| word == "-p" || word == "--print")
}

/// Returns the words of the command that started this process's parent; none where the system does not show them.
pub(super) fn command() -> Vec<String> {
    let line = std::fs::read(format!("/proc/{}/cmdline", std::os::unix::process::parent_id())).unwrap_or_default();
    line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}
