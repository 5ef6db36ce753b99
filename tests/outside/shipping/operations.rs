//! Every command in `docs/OPERATIONS.md` exists with its flags: programs are run with `--help`, other commands are compared.

use anyhow::{Context, Result, bail, ensure};
use harness::process::{command, program};
use harness::project::root;
use tempfile::TempDir;

use super::{text, well};

/// System commands that are allowed. Their arguments are not checked.
const OF_THE_SYSTEM: [&str; 6] = ["git", "install", "mv", "rm", "journalctl", "redis-cli"];

/// Returns the lines of the code blocks in a document.
fn commands(document: &str) -> Vec<&str> {
    document
        .split("\n```")
        .skip(1)
        .step_by(2)
        .flat_map(str::lines)
        .filter(|line| !line.is_empty())
        .collect()
}

/// Returns a command without `sudo` and its user.
fn without_sudo(line: &str) -> Vec<&str> {
    let mut words: Vec<_> = line.split_whitespace().collect();
    if words.first() == Some(&"sudo") {
        words.remove(0);
        if words.first() == Some(&"-u") {
            words.drain(..2);
        }
    }
    words
}

/// Checks the subcommand and the flags of a command of one of our programs.
async fn check_program(name: &str, words: &[&str]) -> Result<()> {
    let work = TempDir::new()?;
    let is_subcommand = |word: &&&str| {
        word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-')
    };
    let subcommand: Vec<_> = words.iter().filter(is_subcommand).collect();
    let mut help = command(program(name)?, work.path());
    let help = well(&help.args(subcommand).arg("--help").output().await?)?;
    for flag in words.iter().filter(|word| word.starts_with('-')) {
        ensure!(
            help.contains(&format!("{flag} ")) || help.contains(&format!("{flag}\n")),
            "no {flag} in:\n{help}"
        );
    }
    Ok(())
}

/// Checks a command without running it: everything that it names must exist.
pub(crate) async fn check(line: &str) -> Result<()> {
    let words = without_sudo(line);
    let (first, rest) = words.split_first().context("a command")?;
    let file = |path: &str| text(&root().join(path));
    match *first {
        "make" => {
            let target = rest.first().context("a target")?;
            ensure!(
                file("Makefile")?.contains(&format!("\n{target}:")),
                "no such target"
            );
        }
        "c3po" => check_program("c3po", rest).await?,
        "c3po-coordinator" | "target/shipped/c3po-coordinator" => {
            check_program("c3po-coordinator", rest).await?
        }
        "docker" => ensure!(
            rest.first() == Some(&"compose"),
            "compose is what the project has files for"
        ),
        "systemctl" => ensure!(rest.last() == Some(&"c3po-coordinator"), "no such unit"),
        // Only its subcommand is checked here, because claude may not be installed.
        "claude" => ensure!(
            rest.first() == Some(&"plugin"),
            "plugins are what the project calls it for"
        ),
        setting if setting.starts_with("C3PO_") => {
            let (variable, _) = setting.split_once('=').context("a value")?;
            ensure!(
                file("docs/CONFIGURATION.md")?.contains(&format!("`{variable}")),
                "docs/CONFIGURATION.md lacks it"
            );
        }
        other => ensure!(OF_THE_SYSTEM.contains(&other), "{other} is not known here"),
    }
    // Every path of the service must be one that the installation creates. Debian's folder for backups is for those.
    let installs = file("dist/install-server")? + &file("dist/c3po-coordinator.service")?;
    let is_of_service =
        |word: &&&str| word.starts_with('/') && !word.starts_with("/var/backups/c3po");
    for path in rest.iter().filter(is_of_service) {
        let known = [
            "/var/lib/c3po",
            "/etc/systemd/system/c3po-coordinator.service",
            "/usr/local/bin/c3po-coordinator",
        ];
        let Some(known) = known.iter().find(|known| path.starts_with(*known)) else {
            bail!("{path} is not known")
        };
        ensure!(installs.contains(known), "{known} is not installed");
    }
    Ok(())
}

#[tokio::test]
async fn every_command_of_the_first_week_exists_with_its_flags() -> Result<()> {
    let document = text(&root().join("docs/OPERATIONS.md"))?;
    let commands = commands(&document);
    ensure!(commands.len() > 25, "where are the commands? {commands:?}");
    for line in commands {
        check(line)
            .await
            .with_context(|| format!("docs/OPERATIONS.md: {line}"))?;
    }
    for wrong in [
        "make nothing",
        "c3po nothing",
        "c3po audit --nothing",
        "c3po-coordinator keys nothing ID",
        "nothing",
    ] {
        ensure!(check(wrong).await.is_err(), "{wrong} passes");
    }
    Ok(())
}
