//! Commands in printed texts: each is found in the text, and run in a shell as if a reader had pasted it.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use harness::coordinator::Coordinator;
use harness::process::{command, join_code, program};
use harness::project::root;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use crate::shipping;

/// The time limit of a command that asks no question.
const ENDS: Duration = Duration::from_secs(60);
/// The programs with which an indented command line may begin.
const BEGINNINGS: [&str; 5] = ["c3po", "c3po-coordinator", "curl", "claude", "docker"];
/// Commands that only inspect the system, with their exit codes: 1 and 2 report that nothing was found.
const LOOKING: [(&str, &[i32]); 5] = [
    ("ss", &[0]),
    ("df", &[0]),
    ("openssl", &[0]),
    ("getent", &[0, 2]),
    ("ping", &[0, 1, 2]),
];
/// The exit codes of `c3po`, as its help documents them; 2 is wrong usage.
const ENDINGS: [i32; 5] = [0, 1, 3, 4, 5];

/// The terminals for pasting: one on a host, and one on the coordinator's machine.
pub(super) struct Terminals {
    home: PathBuf,
    variables: Vec<(String, String)>,
    coordinator: Option<(PathBuf, String)>,
    apart: bool,
}

impl Terminals {
    /// Creates the terminals of a host with that home.
    pub(super) fn of(home: &Path) -> Self {
        let variables = vec![("XDG_RUNTIME_DIR".to_owned(), home.display().to_string())];
        Self {
            home: home.to_owned(),
            variables,
            coordinator: None,
            apart: false,
        }
    }

    /// Adds an environment variable of the host.
    pub(super) fn with(mut self, variable: &str, value: impl Into<String>) -> Self {
        self.variables.push((variable.to_owned(), value.into()));
        self
    }

    /// Adds a terminal on the machine of a coordinator whose home is that folder.
    pub(super) fn beside(mut self, folder: &Path, coordinator: &Coordinator) -> Self {
        self.coordinator = Some((folder.to_owned(), coordinator.address().to_string()));
        self
    }

    /// Removes all network access, by a new network namespace.
    pub(super) fn apart(mut self) -> Self {
        self.apart = true;
        self
    }

    /// Pastes every command of a text. Returns the number of commands.
    ///
    /// Errors: a command is invalid, or is in the text without a mark.
    pub(super) async fn paste_all(&self, text: &str) -> Result<usize> {
        let found = commands(text)?;
        for line in &found {
            self.check(line)
                .await
                .with_context(|| format!("pasted: {line}"))?;
        }
        Ok(found.len())
    }

    /// Pastes a command, and returns both its outputs.
    ///
    /// Errors: it fails.
    pub(super) async fn paste(&self, line: &str) -> Result<String> {
        let output = self.run(line).await?;
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        ensure!(
            output.status.success(),
            "$ {line}\n{said}[{}]",
            output.status
        );
        Ok(said)
    }

    /// Runs a command, or only parses it if it cannot be run here.
    async fn check(&self, line: &str) -> Result<()> {
        let (words, first) = (words(line), first(line));
        if line.starts_with("--") {
            return self
                .paste(&format!("c3po-coordinator {line} --help"))
                .await
                .map(drop);
        }
        if let Some((variable, _)) = line
            .split_once('=')
            .filter(|_| words.len() == 1 && line.starts_with("C3PO_"))
        {
            let document = std::fs::read_to_string(root().join("docs/CONFIGURATION.md"))?;
            ensure!(
                document.contains(&format!("`{variable}")),
                "docs/CONFIGURATION.md lacks it"
            );
            return Ok(());
        }
        let is_ours = first == "c3po" || first == "c3po-coordinator";
        if is_ours
            && (has_placeholder(&words)
                || first == "c3po-coordinator" && self.coordinator.is_none())
        {
            // The program's own parser rejects unknown arguments before it prints its help.
            let filled: Vec<_> = line.split(' ').map(filled).collect();
            return self
                .paste(&format!("{} --help", filled.join(" ")))
                .await
                .map(drop);
        }
        let expected: &[i32] = match first {
            "c3po" => &ENDINGS,
            "c3po-coordinator" => &[0],
            // These need root, a service or Docker, or build for minutes.
            "make" | "systemctl" | "journalctl" | "docker" | "claude" => {
                return shipping::check(line).await;
            }
            looking => {
                let known = LOOKING.iter().find(|(program, _)| *program == looking);
                let (_, codes) = known.with_context(|| format!("{looking} is not known here"))?;
                if !self.has(looking).await? {
                    eprintln!("not installed here, so it was not run: {line}");
                    return Ok(());
                }
                codes
            }
        };
        let output = self.run(line).await?;
        ensure!(
            output
                .status
                .code()
                .is_some_and(|code| expected.contains(&code)),
            "{output:?}"
        );
        Ok(())
    }

    async fn has(&self, program: &str) -> Result<bool> {
        let found = self.run(&format!("command -v {program}")).await?;
        Ok(found.status.success())
    }

    async fn run(&self, line: &str) -> Result<Output> {
        let here = first(line) == "c3po-coordinator";
        let (home, listen) = match (&self.coordinator, here) {
            (Some((folder, listen)), true) => (folder, Some(listen)),
            _ => (&self.home, None),
        };
        let mut shell = if self.apart {
            command("unshare", home)
        } else {
            command("sh", home)
        };
        if self.apart {
            shell.args(["-n", "sh"]);
        }
        shell
            .arg("-c")
            .arg(line)
            .current_dir(home)
            .kill_on_drop(true);
        shell
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        match listen {
            Some(listen) => shell.env("C3PO_LISTEN", listen),
            None => shell.envs(self.variables.iter().cloned()),
        };
        in_path(&mut shell)?;
        let mut running = shell.spawn()?;
        let mut input = running.stdin.take().context("its input")?;
        if line.starts_with("c3po join ") {
            let code = self.code().await?;
            input.write_all(format!("{code}\n").as_bytes()).await?;
        }
        drop(input);
        timeout(ENDS, running.wait_with_output())
            .await
            .context("it does not end")?
            .context("running a shell")
    }

    /// Returns a join code, which a person types when `c3po join` asks for it.
    async fn code(&self) -> Result<String> {
        ensure!(
            self.coordinator.is_some(),
            "there is no coordinator to join"
        );
        let said = Box::pin(self.paste("c3po-coordinator invite")).await?;
        Ok(join_code(&said)?.to_owned())
    }
}

/// Sets a shell's PATH to our programs and those of the system.
fn in_path(shell: &mut Command) -> Result<()> {
    let programs = program("c3po-coordinator")?
        .parent()
        .context("a folder")?
        .display()
        .to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    shell.env("PATH", format!("{programs}:{path}:/usr/sbin:/sbin"));
    Ok(())
}

/// Returns the relevant words of a command, without the variables in front of it.
fn words(line: &str) -> Vec<&str> {
    let is_set = |word: &&str| word.starts_with("C3PO_") && word.contains('=');
    let words: Vec<_> = line.split_whitespace().collect();
    if words.len() > 1 {
        words.into_iter().skip_while(is_set).collect()
    } else {
        words
    }
}

/// Returns the name of a command's program.
fn first(line: &str) -> &str {
    let word = words(line).first().copied().unwrap_or_default();
    // A path with a space is quoted, and is the only quoted word.
    let called = line
        .strip_prefix('\'')
        .and_then(|rest| rest.split('\'').next())
        .unwrap_or(word);
    called.rsplit('/').next().unwrap_or(called)
}

fn has_placeholder(words: &[&str]) -> bool {
    words.iter().any(|word| is_placeholder(word))
}

fn is_placeholder(word: &str) -> bool {
    word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase() || c == ',')
}

/// Returns a value for a placeholder; other words are returned unchanged.
fn filled(word: &str) -> String {
    match word {
        "ID" => "a::b::00000001".to_owned(),
        "SCOPE" => "agent".to_owned(),
        word if is_placeholder(word) => word.to_lowercase(),
        word => word.to_owned(),
    }
}

/// Returns the commands in a text: those in backquotes, and indented lines.
///
/// Errors: a command of ours is elsewhere, so that its end is unclear.
pub(super) fn commands(text: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with("$ ")) {
        let is_own = line.starts_with("  ") && BEGINNINGS.contains(&first(line));
        if is_own {
            found.push(line.trim().to_owned());
            continue;
        }
        let parts: Vec<_> = line.split('`').collect();
        ensure!(parts.len() % 2 == 1, "a backquote is not closed: {line}");
        found.extend(
            parts
                .iter()
                .skip(1)
                .step_by(2)
                .map(|part| (*part).to_owned()),
        );
        for plain in parts.iter().step_by(2) {
            if let Some(bare) = bare_command(plain) {
                bail!("{bare:?} is not marked as a command in: {line}");
            }
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Returns a command of ours in a text outside of marks.
fn bare_command(text: &str) -> Option<String> {
    const COMMANDS: [&str; 12] = [
        "invite", "invites", "keys", "guard", "agents", "join", "doctor", "status", "inbox",
        "install", "restore", "send",
    ];
    let words: Vec<_> = text
        .split(|c: char| !c.is_alphanumeric() && c != '-')
        .collect();
    let is_ours = |pair: &&[&str]| {
        matches!(pair[0], "c3po" | "c3po-coordinator") && COMMANDS.contains(&pair[1])
    };
    words.windows(2).find(is_ours).map(|pair| pair.join(" "))
}

#[test]
fn commands_are_found_by_their_marks_alone() -> Result<()> {
    let text = "$ c3po status\nRun `c3po doctor`, or `ss -l` there.\n\n  C3PO_JOIN_CODE=a c3po join https://nas:1\n  c3po is fine";
    let found = commands(text)?;
    assert_eq!(
        found,
        [
            "C3PO_JOIN_CODE=a c3po join https://nas:1",
            "c3po doctor",
            "c3po is fine",
            "ss -l"
        ]
    );
    assert!(commands("then c3po-coordinator invite prints it").is_err());
    assert!(commands("`c3po doctor").is_err());
    Ok(())
}

#[tokio::test]
async fn a_command_that_is_wrong_does_not_pass() -> Result<()> {
    let home = TempDir::new()?;
    let terminals = Terminals::of(home.path()).with("C3PO_COORDINATOR_URL", "http://127.0.0.1:1");
    for right in [
        "c3po status",
        "c3po thread ID",
        "c3po-coordinator invite",
        "--tls auto",
        "C3PO_LOG=debug",
        "make up",
    ] {
        terminals
            .check(right)
            .await
            .with_context(|| right.to_owned())?;
    }
    for wrong in [
        "c3po join",
        "c3po reply",
        "c3po nothing",
        "c3po thread ID --nothing",
        "c3po-coordinator nothing",
    ] {
        assert!(terminals.check(wrong).await.is_err(), "{wrong} passes");
    }
    for wrong in [
        "c3po-coordinator invite --agents",
        "--nothing",
        "C3PO_NOTHING=1",
        "make nothing",
        "guard",
    ] {
        assert!(terminals.check(wrong).await.is_err(), "{wrong} passes");
    }
    Ok(())
}
