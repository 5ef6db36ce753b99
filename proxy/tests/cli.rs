//! The commands as people meet them: their help, their exit codes, their output without a coordinator.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use c3po::commands::Cli;
use clap::CommandFactory as _;

/// An address without a listener.
const NOBODY: &str = "http://127.0.0.1:1";

fn c3po(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_c3po"));
    command
        .args(arguments)
        .env_clear()
        .env("HOME", home)
        .env("C3PO_COORDINATOR_URL", NOBODY);
    command
}

fn run(arguments: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    c3po(home.path(), arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn every_command_describes_itself_in_its_help() {
    let mut all = text(&run(&["--help"]).stdout);
    for command in Cli::command()
        .get_subcommands()
        .map(clap::Command::get_name)
    {
        let output = run(&[command, "--help"]);
        assert!(output.status.success(), "{command}");
        all += &format!("\n----- {command}\n{}", text(&output.stdout));
    }
    insta::assert_snapshot!("help", all);
}

#[test]
fn status_without_a_coordinator_names_the_next_step() {
    let output = run(&["status"]);
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stderr);
    for part in [
        NOBODY,
        "Connection refused",
        "make up",
        "C3PO_COORDINATOR_URL",
    ] {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
    let output = run(&["status", "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&document["link"], &document["error"]["code"]),
        (&"disconnected".into(), &"COORD_DOWN".into())
    );
}

#[test]
fn every_command_reports_a_missing_coordinator_by_its_exit_code() {
    for arguments in [
        &["agents"][..],
        &["send", "b", "hi"],
        &["inbox"],
        &["ack", "a::b::00000001"],
        &["reply", "a::b::00000001", "hi"],
        &["thread", "a::b::00000001"],
        &["receipt", "a::b::00000001"],
        &["tail"],
        &["audit"],
        &["policy", "check", "a", "b", "message"],
        &["policy", "show"],
        &["sent"],
        &["guard", "list"],
        &["guard", "stop", "a", "b"],
    ] {
        let output = run(arguments);
        assert_eq!(
            output.status.code(),
            Some(3),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_message_is_kept_on_this_host_only_if_that_is_asked_for() {
    let home = tempfile::tempdir().unwrap();
    assert_eq!(
        c3po(home.path(), &["send", "b", "hi"])
            .output()
            .unwrap()
            .status
            .code(),
        Some(3)
    );
    let output = c3po(home.path(), &["send", "b", "hi", "--queue"])
        .output()
        .unwrap();
    let (said, noted) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success() && said.trim_end().ends_with("  queued_on_host"),
        "{said}{noted}"
    );
    assert!(noted.contains("only on this host's disk"), "{noted}");
}

#[test]
fn wrong_usage_is_exit_code_two() {
    for arguments in [
        &["fly"][..],
        &["send", "b"],
        &["ack"],
        &["ack", "no-id"],
        &["send", "b", "hi", "--priority", "asap"],
        &["send", "b", "hi", "--timeout", "5"],
        &["send", "b", "hi", "--wait", "--no-answer"],
        &["send", "@role", "hi", "--wait"],
        &["inbox", "--as", "not a name"],
        &["policy"],
        &["policy", "check", "a", "b", "fly"],
        &["guard", "allow", "a"],
        &["audit", "--since", "yesterday"],
    ] {
        assert_eq!(run(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_wrong_configuration_is_reported_by_commands() {
    let home = tempfile::tempdir().unwrap();
    let output = c3po(home.path(), &["status"])
        .env("C3PO_COORDINATOR_URL", "ftp://nas")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("neither http:// nor https://"),
        "{}",
        text(&output.stderr)
    );
    std::fs::create_dir_all(home.path().join(".config/c3po")).unwrap();
    std::fs::write(
        home.path().join(".config/c3po/config.toml"),
        "colour = true\n",
    )
    .unwrap();
    let output = c3po(home.path(), &["status"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("colour"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_text_can_come_from_standard_input() {
    let home = tempfile::tempdir().unwrap();
    let mut command = c3po(home.path(), &["send", "b", "-"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"from a pipe\n")
        .unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(3));
}

#[test]
fn completions_name_every_command() {
    let script = text(&run(&["completions", "fish"]).stdout);
    assert!(script.contains("C3PO_COMPLETE=fish c3po --"), "{script}");
    let home = tempfile::tempdir().unwrap();
    let offered = |words: &[&str]| {
        let words = [&["--", "c3po"], words].concat();
        text(
            &c3po(home.path(), &words)
                .env("C3PO_COMPLETE", "fish")
                .output()
                .unwrap()
                .stdout,
        )
    };
    let commands = offered(&[""]);
    for command in ["status", "agents", "send", "inbox", "tail"] {
        assert!(
            commands
                .lines()
                .any(|line| line.starts_with(&format!("{command}\t"))),
            "{command}: {commands}"
        );
    }
    assert!(
        offered(&["send", "--"]).contains("--priority\t"),
        "the options of a command"
    );
    let mut other = c3po(home.path(), &["--version"]);
    let other = other.env("C3PO_COMPLETE", "fish").output().unwrap();
    assert!(text(&other.stdout).starts_with("c3po "), "{other:?}");
    let without = offered(&["send", ""]);
    assert!(
        without.lines().all(|line| line.starts_with("--")),
        "options where no coordinator answers: {without}"
    );
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("share/man/man1");
    let output = c3po(home.path(), &["man", folder.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    assert!(
        page("c3po.1").contains("c3po\\-send(1)"),
        "{}",
        page("c3po.1")
    );
    assert!(
        page("c3po-send.1").contains(".SH OPTIONS"),
        "{}",
        page("c3po-send.1")
    );
}

#[test]
fn a_text_on_standard_input_is_read_as_far_as_a_message_may_be_long() {
    let home = tempfile::tempdir().unwrap();
    let mut command = c3po(home.path(), &["send", "b", "-"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // The command ends before it has read all of this.
    let endless = std::thread::spawn(move || while input.write_all(&[b'x'; 65_536]).is_ok() {});
    let output = child.wait_with_output().unwrap();
    endless.join().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("longer than 50000 characters"), "{said}");
}

#[test]
fn output_that_cannot_be_written_is_an_error_and_a_closed_pipe_is_none() {
    let home = tempfile::tempdir().unwrap();
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = c3po(home.path(), &["completions", "bash"])
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("cannot write the output: No space left"),
        "{}",
        text(&output.stderr)
    );
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = c3po(home.path(), &["completions", "bash"])
        .stdout(writer)
        .output()
        .unwrap();
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(0), String::new())
    );
}

#[test]
fn without_home_files_are_in_the_home_of_the_user() {
    let output = Command::new(env!("CARGO_BIN_EXE_c3po"))
        .args(["install", "--dry-run"])
        .env_clear()
        .env("TMPDIR", "/elsewhere")
        .output()
        .unwrap();
    let said = text(&output.stdout);
    assert!(
        said.contains("/.local/share/c3po/") && !said.contains("/elsewhere"),
        "{said}"
    );
}
