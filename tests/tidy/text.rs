//! Rules that concern each file separately.

use super::tree::File;

const LINES_MAX: usize = 500;
/// The files that may read the environment.
const CONFIGS: &[&str] = &["proxy/src/config/mod.rs", "coordinator/src/config.rs"];
const STORE: &str = "coordinator/src/store/";

pub(super) fn too_long(file: &File) -> Vec<String> {
    let lines = file.text.lines().count();
    if !file.is_rust() || lines <= LINES_MAX {
        return Vec::new();
    }
    vec![format!(
        "{}: {lines} lines; {LINES_MAX} is the end, and 80 to 250 are normal",
        file.path
    )]
}

pub(super) fn without_purpose(file: &File) -> Vec<String> {
    if !file.is_rust() || file.text.starts_with("//! ") {
        return Vec::new();
    }
    vec![format!(
        "{}:1: the first line is `//!` and one sentence: what the file is for",
        file.path
    )]
}

pub(super) fn environment_outside_config(file: &File) -> Vec<String> {
    if file.is_test() || CONFIGS.contains(&file.path.as_str()) {
        return Vec::new();
    }
    file.lines_with(
        &file.code,
        "env::var",
        "the environment is read in config.rs, once",
    )
}

pub(super) fn database_outside_store(file: &File) -> Vec<String> {
    if file.is_test() || file.path.starts_with(STORE) {
        return Vec::new();
    }
    let lines = file.code.lines().enumerate();
    let knowing =
        lines.filter(|(_, line)| names_crate(line, "redis") || names_crate(line, "rusqlite"));
    knowing
        .map(|(number, _)| {
            format!(
                "{}:{}: only {STORE} knows a database",
                file.path,
                number + 1
            )
        })
        .collect()
}

/// Returns whether a line refers to a crate, not to a module of ours with the same name.
fn names_crate(line: &str, name: &str) -> bool {
    let path = format!("{name}::");
    line.match_indices(&path)
        .any(|(at, _)| !line[..at].ends_with(|c: char| c == ':' || c == '_' || c.is_alphanumeric()))
}

pub(super) fn unowned_task(file: &File) -> Vec<String> {
    let complaint = "tasks are spawned by their owner's TaskTracker";
    ["tokio::spawn", "task::spawn("]
        .iter()
        .flat_map(|call| file.lines_with(&file.code, call, complaint))
        .collect()
}

pub(super) fn ignored_test(file: &File) -> Vec<String> {
    file.lines_with(&file.code, "#[ignore", "an ignored test holds nothing")
}

pub(super) fn foreign_path(file: &File) -> Vec<String> {
    // Split, because this file is among the searched ones.
    let paths = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("../sha", "red"),
    ];
    let complaint = "a path that only one machine has";
    paths
        .iter()
        .flat_map(|path| file.lines_with(&file.text, path, complaint))
        .collect()
}

pub(super) fn left_for_later(file: &File) -> Vec<String> {
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME")];
    marks
        .iter()
        .flat_map(|mark| file.lines_with(&file.text, mark, "do it, or write an issue"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: impl Fn(&File) -> Vec<String>, breaches: usize, path: &str, text: &str) {
        let found = rule(&File::new(path, text));
        assert_eq!(found.len(), breaches, "{path}: {text}: {found:?}");
    }

    #[test]
    fn long_files_and_files_without_purpose_are_caught() {
        check(too_long, 1, "shared/src/a.rs", &"x\n".repeat(501));
        check(too_long, 0, "shared/src/a.rs", &"x\n".repeat(500));
        check(too_long, 0, "Cargo.lock", &"x\n".repeat(501));
        check(without_purpose, 1, "shared/src/a.rs", "use std::fmt;\n");
        check(without_purpose, 1, "shared/src/a.rs", "");
        check(without_purpose, 0, "shared/src/a.rs", "//! Ids.\n");
    }

    #[test]
    fn reading_the_environment_is_caught() {
        check(
            environment_outside_config,
            2,
            "proxy/src/link/mod.rs",
            "std::env::var(x);\nenv::var_os(x);",
        );
        check(
            environment_outside_config,
            0,
            "proxy/src/link/mod.rs",
            "// env::var is for config\nenv!(\"X\")",
        );
        check(
            environment_outside_config,
            0,
            "proxy/src/config/mod.rs",
            "env::var(x)",
        );
        check(
            environment_outside_config,
            0,
            "tests/harness/claude.rs",
            "env::var(x)",
        );
        check(
            environment_outside_config,
            0,
            "proxy/tests/cli.rs",
            "env::var(x)",
        );
    }

    #[test]
    fn knowing_a_database_is_caught() {
        check(
            database_outside_store,
            1,
            "coordinator/src/main.rs",
            "use redis::Client;",
        );
        check(
            database_outside_store,
            1,
            "coordinator/src/lib.rs",
            "fn f(c: &rusqlite::Connection)",
        );
        check(
            database_outside_store,
            0,
            "coordinator/src/lib.rs",
            "use crate::store::redis::Redis;",
        );
        check(
            database_outside_store,
            0,
            "coordinator/src/store/redis/mod.rs",
            "use redis::Client;",
        );
        check(
            database_outside_store,
            0,
            "tests/store/redis.rs",
            "use redis::Client;",
        );
    }

    #[test]
    fn tasks_without_owner_and_ignored_tests_are_caught() {
        check(unowned_task, 1, "proxy/src/mcp.rs", "tokio::spawn(x);");
        check(unowned_task, 1, "tests/store/redis.rs", "task::spawn(x);");
        check(
            unowned_task,
            0,
            "proxy/src/mcp.rs",
            "tracker.spawn(x); spawn_blocking(y);",
        );
        check(
            ignored_test,
            1,
            "tests/store/redis.rs",
            "#[test]\n#[ignore = \"slow\"]",
        );
    }

    #[test]
    fn foreign_paths_and_things_left_for_later_are_caught() {
        check(foreign_path, 1, "README.md", concat!("see ../sha", "red/x"));
        check(
            foreign_path,
            1,
            "tests/setup/install",
            concat!("cd /wo", "rk/x"),
        );
        check(foreign_path, 0, "Cargo.toml", "path = \"shared\"");
        check(
            left_for_later,
            1,
            "proxy/src/mcp.rs",
            concat!("// TO", "DO: more"),
        );
        check(left_for_later, 0, "Cargo.toml", "todo = \"warn\"");
    }
}
