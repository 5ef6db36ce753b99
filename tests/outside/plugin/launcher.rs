//! `plugin/bin/c3po`: it executes the host's binary wherever that is, and is silent for hooks if there is none.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use harness::claude::{ClaudeCode, Options};
use harness::coordinator::Coordinator;
use harness::fake_api::{Block, FakeApi, Script};
use harness::process::program;
use harness::skip::skipped;
use serde_json::Value;

use super::project;

const RUN: Duration = Duration::from_secs(90);

/// Creates a program that prints its path, its parent process and its arguments.
fn put(folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let path = folder.join("c3po");
    fs::write(&path, "#!/bin/sh\necho \"$0 $PPID $*\"\n")?;
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755))?;
    Ok(path)
}

fn launch(variables: &[(&str, &str)], arguments: &[&str], cwd: &Path) -> Result<Output> {
    let mut launcher = Command::new(project("plugin/bin/c3po"));
    launcher
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        .current_dir(cwd)
        .stdin(Stdio::null());
    launcher.output().context("running the launcher")
}

#[test]
fn the_first_binary_takes_the_launchers_place() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let home = folder.path().join("my home");
    let home_text = home.display().to_string();
    let path = folder.path().join("on path");
    let path_text = format!(
        ":relative:{}:{}",
        project("plugin/bin").display(),
        path.display()
    );
    let named = put(&folder.path().join("named"))?.display().to_string();
    put(&folder.path().join("relative"))?;
    let variables = [("HOME", home_text.as_str()), ("PATH", &path_text)];

    let check = |variables: &[(&str, &str)], expected: &Path| -> Result<()> {
        let output = launch(variables, &["send", "a b", "*"], folder.path())?;
        let expected = format!("{} {} send a b *\n", expected.display(), std::process::id());
        assert_eq!(
            String::from_utf8(output.stdout)?,
            expected,
            "with {variables:?}"
        );
        Ok(())
    };
    // From the last place in the search order to the first.
    check(&variables, &put(&home.join(".cargo/bin"))?)?;
    check(&variables, &put(&home.join(".local/bin"))?)?;
    check(&variables, &put(&path)?)?;
    check(
        &[variables[0], variables[1], ("C3PO_BIN", &named)],
        Path::new(&named),
    )
}

#[test]
fn a_launcher_without_a_binary_has_silent_hooks_and_an_error_with_advice() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = project("plugin/bin").display().to_string();
    // Another plugin's copy of the launcher does not count as a binary.
    let copy = folder.path().join("copy/bin");
    fs::create_dir_all(folder.path().join("copy/.claude-plugin"))?;
    fs::write(folder.path().join("copy/.claude-plugin/plugin.json"), "{}")?;
    let copy = put(&copy)?.display().to_string();
    for variables in [
        &[][..],
        &[("PATH", path.as_str())],
        &[("C3PO_BIN", "/nowhere/c3po")],
        &[("C3PO_BIN", &copy)],
    ] {
        let hook = launch(variables, &["hook", "stop"], folder.path())?;
        assert_eq!(
            (hook.status.code(), hook.stdout.len(), hook.stderr.len()),
            (Some(0), 0, 0),
            "{variables:?}"
        );
        let proxy = launch(variables, &["proxy"], folder.path())?;
        assert_eq!(
            (proxy.status.code(), proxy.stdout.len()),
            (Some(127), 0),
            "{variables:?}"
        );
        let said = String::from_utf8(proxy.stderr)?;
        assert!(
            said.contains("make install") && said.contains("C3PO_BIN"),
            "{said}"
        );
    }
    Ok(())
}

#[test]
fn the_real_binary_is_launched() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let real = program("c3po")?;
    symlink(&real, folder.path().join("c3po"))?;
    let path = folder.path().display().to_string();
    let output = launch(&[("PATH", &path)], &["--version"], folder.path())?;
    assert_eq!(
        String::from_utf8(output.stdout)?,
        Command::new(&real).arg("--version").output().map(text)??
    );
    Ok(())
}

fn text(output: Output) -> Result<String> {
    Ok(String::from_utf8(output.stdout)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_a_binary_goes_on_and_is_not_nagged() -> Result<()> {
    let claude = match ClaudeCode::find() {
        Ok(claude) => claude,
        Err(reason) => return skipped("a session without a binary", &format!("{reason:#}")),
    };
    let work = tempfile::tempdir()?;
    let coordinator = Coordinator::start(work.path()).await?;
    let model = FakeApi::start(Script::new().then([Block::text("Hello.")])).await?;
    let options = Options::new(work.path(), "web", &model, &coordinator.url())
        .plugin(&project("plugin"))
        .environment("PATH", "/usr/bin:/bin")
        .arguments([
            "--output-format",
            "stream-json",
            "--verbose",
            "--include-hook-events",
        ]);
    // Longer than the buffer of a pipe: a hook that does not read its input must not be reported as broken.
    let run = claude
        .print(&options, &"long ".repeat(20_000))?
        .finish(RUN)
        .await?;
    assert!(run.status.success(), "{}\n{}", run.output, run.log);
    assert!(run.output.contains("Hello."));
    let events: Vec<Value> = run
        .output
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let hooks: Vec<_> = events
        .iter()
        .filter(|event| event["subtype"] == "hook_response")
        .collect();
    assert!(hooks.len() >= 3, "hooks ran: {hooks:?}");
    for hook in hooks {
        let outcome = (&hook["exit_code"], &hook["stdout"], &hook["stderr"]);
        assert_eq!(outcome, (&0.into(), &"".into(), &"".into()), "{hook}");
    }
    Ok(())
}
