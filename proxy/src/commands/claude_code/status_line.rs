//! The main status line of Claude Code. Plugins cannot set it, so it is a member of the user's settings.

use std::path::Path;

use serde_json::{Value, json};

use super::settings::Members;

/// The name of the member.
pub(in crate::commands) const STATUS_LINE: &str = "statusLine";
/// How often an idle session redraws it, in seconds.
const REFRESH: u64 = 5;

/// The owner of the status line.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::commands) enum StatusLineOwner {
    /// There is no status line.
    Nobody,
    /// This program.
    Us,
    /// An older or moved c3po.
    Older,
    /// Another program.
    Another,
}

/// Returns its entry in the settings.
pub(in crate::commands) fn value(program: &Path) -> Value {
    json!({"type": "command", "command": command(program), "refreshInterval": REFRESH})
}

/// Returns the owner of the status line in the settings.
pub(in crate::commands) fn owner(settings: &Members, program: &Path) -> StatusLineOwner {
    let Some(found) = settings.get(STATUS_LINE) else {
        return StatusLineOwner::Nobody;
    };
    if *found == value(program) {
        return StatusLineOwner::Us;
    }
    let command = found["command"].as_str().unwrap_or_default();
    let ours = command
        .strip_suffix(" statusline")
        .map(|program| program.trim_matches('\''));
    match ours.and_then(|program| Path::new(program).file_name()) {
        Some(name) if name == "c3po" => StatusLineOwner::Older,
        _ => StatusLineOwner::Another,
    }
}

/// Returns the command line, quoted for a shell.
fn command(program: &Path) -> String {
    let program = program.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@".contains(c);
    if program.chars().all(plain) {
        format!("{program} statusline")
    } else {
        format!("'{}' statusline", program.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_status_line_is_distinguished_from_others() {
        let check = |settings: &str, expected: StatusLineOwner| {
            let members = serde_json::from_str(settings).unwrap();
            assert_eq!(
                owner(&members, Path::new("/d/bin/c3po")),
                expected,
                "{settings}"
            );
        };
        check("{}", StatusLineOwner::Nobody);
        check(
            &json!({"statusLine": value(Path::new("/d/bin/c3po"))}).to_string(),
            StatusLineOwner::Us,
        );
        check(
            &json!({"statusLine": value(Path::new("/an other/c3po"))}).to_string(),
            StatusLineOwner::Older,
        );
        check(
            r#"{"statusLine": {"type": "command", "command": "c3po statusline"}}"#,
            StatusLineOwner::Older,
        );
        check(
            r#"{"statusLine": {"type": "command", "command": "mine; c3po statusline | tr a b"}}"#,
            StatusLineOwner::Another,
        );
        check(
            r#"{"statusLine": {"type": "command", "command": "~/line.sh"}}"#,
            StatusLineOwner::Another,
        );
        check(r#"{"statusLine": null}"#, StatusLineOwner::Another);
    }

    #[test]
    fn a_shell_gets_the_path_as_it_is() {
        assert_eq!(command(Path::new("/d/bin/c3po")), "/d/bin/c3po statusline");
        assert_eq!(
            command(Path::new("/it's/c3po")),
            "'/it'\\''s/c3po' statusline"
        );
    }
}
