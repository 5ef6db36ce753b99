//! Mechanisms that were removed and must not return.

use super::tree::File;

/// Each entry is a removed text, the prefix of the paths where it is forbidden, and the reason for its removal.
const GONE: &[(&str, &str, &str)] = &[
    (
        "Cargo.lock",
        "tests/tidy/packages.rs",
        "`cargo deny` compares the lock file with deny.toml",
    ),
    (
        "static IDLE",
        "tests/harness/",
        "each test is a process, so a pool in a static is always empty",
    ),
    (
        "outbox",
        "coordinator/src/store/redis/",
        "a reply is one step",
    ),
    (
        "EVALSHA",
        "coordinator/src/store/redis/",
        "a library is loaded once, a script is defined anew at each call",
    ),
    (
        "Doubts",
        "coordinator/src/store/redis/",
        "everyone is woken after a command without an answer",
    ),
    (
        "Newcomer",
        "coordinator/src/",
        "the wish for a name is a claim of the store",
    ),
    (
        "Inquiry",
        "coordinator/src/session/",
        "operators ask over REST",
    ),
    ("GetStatus", "shared/src/", "a frame comes with its user"),
    (
        "json_text",
        "proxy/src/",
        "the claude command rewrites settings.json, and a backup is kept",
    ),
    (
        "struct Online",
        "proxy/src/deliver/",
        "the reply to a heartbeat counts who is online",
    ),
    (
        "suggestion.replace",
        "proxy/src/",
        "a refusal carries an advice, which each front end words",
    ),
    (
        "schemathesis",
        "tests/setup/run-tests",
        "it takes minutes and a Python of its own, so `make nightly` runs it",
    ),
];

/// Returns a complaint for each line of a file that contains a removed text.
pub(super) fn came_back(file: &File) -> Vec<String> {
    let text = if file.is_rust() {
        &file.code
    } else {
        &file.text
    };
    let here = GONE
        .iter()
        .filter(|(_, place, _)| file.path.starts_with(place));
    here.flat_map(|(needle, _, why)| {
        file.lines_with(text, needle, &format!("`{needle}` was removed: {why}"))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_word_is_found_where_it_returns() {
        let check = |breaches, path, text| {
            assert_eq!(
                came_back(&File::new(path, text)).len(),
                breaches,
                "{path}: {text}"
            )
        };
        check(
            1,
            "tests/harness/cluster.rs",
            "use std::sync::Mutex;\nstatic IDLE: Mutex<()>;",
        );
        check(0, "tests/harness/cluster.rs", "// static IDLE");
        check(0, "proxy/src/cluster.rs", "static IDLE: Mutex<()>;");
    }
}
