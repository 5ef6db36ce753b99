//! A separate host: an empty home, and a folder in PATH with only `c3po` and `claude`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use harness::claude::ClaudeCode;
use harness::process::{command, program};
use harness::terminal::Terminal;
use serde_json::Value;
use tokio::time::timeout;

/// One call of claude takes 0.3 s alone; c3po makes up to four.
pub(super) const CALL: Duration = Duration::from_secs(60);
/// The length up to which files are compared; programs are longer.
const COMPARED: usize = 1 << 20;

/// The variables that keep Claude Code off the network.
const SILENCE: [&str; 3] = [
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "DISABLE_AUTOUPDATER",
    "DISABLE_TELEMETRY",
];

pub(super) struct Host {
    folder: tempfile::TempDir,
}

pub(super) struct Said {
    pub(super) status: ExitStatus,
    pub(super) out: String,
    pub(super) err: String,
}

/// The state of all paths: mode, time, length and contents.
pub(super) type Tree = BTreeMap<PathBuf, (u32, SystemTime, u64, Vec<u8>)>;

impl Host {
    /// Creates a host with `c3po`, and with `claude` if given.
    pub(super) fn new(claude: Option<&ClaudeCode>) -> Result<Self> {
        let host = Self {
            folder: tempfile::tempdir()?,
        };
        fs::create_dir_all(host.home())?;
        fs::create_dir(host.bin())?;
        link_or_copy(&program("c3po")?, &host.bin().join("c3po"))?;
        if let Some(claude) = claude {
            symlink(
                fs::canonicalize(claude.program())?,
                host.bin().join("claude"),
            )?;
        }
        Ok(host)
    }

    /// Returns the folder of the host, in which its programs run.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the user's home. Its name contains a space, as some do.
    pub(super) fn home(&self) -> PathBuf {
        self.folder.path().join("home of ann")
    }

    pub(super) fn bin(&self) -> PathBuf {
        self.folder.path().join("bin")
    }

    /// Returns the folder to which c3po installs.
    pub(super) fn installed(&self) -> PathBuf {
        self.home().join(".local/share/c3po/claude-code")
    }

    pub(super) fn settings(&self) -> PathBuf {
        self.home().join(".claude/settings.json")
    }

    pub(super) fn write_settings(&self, text: &str) -> Result<()> {
        fs::create_dir_all(self.home().join(".claude"))?;
        Ok(fs::write(self.settings(), text)?)
    }

    pub(super) fn parsed_settings(&self) -> Result<Value> {
        Ok(serde_json::from_str(&fs::read_to_string(self.settings())?)?)
    }

    /// Returns the backups of the settings.
    pub(super) fn backups(&self) -> Result<Vec<PathBuf>> {
        let names = fs::read_dir(self.home().join(".claude"))?.map(|entry| Ok(entry?.path()));
        let names: Vec<_> = names.collect::<Result<_>>()?;
        Ok(names
            .into_iter()
            .filter(|path| path.display().to_string().contains("before-c3po"))
            .collect())
    }

    pub(super) async fn c3po(&self, arguments: &[&str]) -> Result<Said> {
        self.run(&self.bin().join("c3po"), arguments).await
    }

    pub(super) async fn claude(&self, arguments: &[&str]) -> Result<Said> {
        self.run(&self.bin().join("claude"), arguments).await
    }

    pub(super) async fn claude_with(
        &self,
        variables: &[(&str, &str)],
        arguments: &[&str],
    ) -> Result<Said> {
        self.run_with(&self.bin().join("claude"), variables, arguments)
            .await
    }

    pub(super) async fn run(&self, program: &Path, arguments: &[&str]) -> Result<Said> {
        self.run_with(program, &[], arguments).await
    }

    /// Runs a c3po command in a terminal, as a person would.
    pub(super) async fn terminal(&self, arguments: &[&str]) -> Result<Terminal> {
        let path = format!("{}:/usr/bin:/bin", self.bin().display());
        let folder = |folder: &Path| folder.as_os_str().to_owned();
        let mut environment = vec![
            ("PATH".to_owned(), path.into()),
            ("HOME".to_owned(), folder(&self.home())),
            ("TMPDIR".to_owned(), folder(self.folder())),
        ];
        environment.extend(SILENCE.map(|silence| (silence.to_owned(), "1".into())));
        let arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
        // A new path each time: the server of an ended terminal may still be exiting.
        let socket = tempfile::Builder::new()
            .prefix("tmux")
            .tempfile_in(self.folder())?
            .path()
            .to_owned();
        Terminal::open(
            &socket,
            self.folder(),
            &environment,
            &self.bin().join("c3po"),
            &arguments,
        )
        .await
    }

    /// Runs a program with only this host's programs and the system's in PATH.
    async fn run_with(
        &self,
        program: &Path,
        variables: &[(&str, &str)],
        arguments: &[&str],
    ) -> Result<Said> {
        let mut command = command(program, &self.home());
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command.env("PATH", format!("{}:/usr/bin:/bin", self.bin().display()));
        command.envs(SILENCE.map(|silence| (silence, "1")));
        command.envs(variables.iter().copied());
        let output = timeout(CALL, command.output())
            .await
            .with_context(|| format!("{arguments:?} does not end"))??;
        Ok(Said {
            status: output.status,
            out: String::from_utf8(output.stdout)?,
            err: String::from_utf8(output.stderr)?,
        })
    }

    /// Returns Claude Code's entry for the plugin.
    pub(super) async fn plugin(&self) -> Result<Option<Value>> {
        let said = self.claude(&["plugin", "list", "--json"]).await?.good()?;
        let listed: Vec<Value> = serde_json::from_str(&said)?;
        Ok(listed
            .into_iter()
            .find(|plugin| plugin["id"] == "c3po@c3po"))
    }

    /// Returns the state of everything in the home.
    pub(super) fn tree(&self) -> Result<Tree> {
        let mut tree = Tree::new();
        collect(&self.home(), &mut tree)?;
        Ok(tree)
    }
}

impl Said {
    /// Returns the standard output.
    ///
    /// Errors: the program failed.
    pub(super) fn good(&self) -> Result<String> {
        ensure!(
            self.status.success(),
            "{}: {}\n{}",
            self.status,
            self.out,
            self.err
        );
        Ok(self.out.clone())
    }

    /// Returns the outcome of every step with that name in the output of `--json`.
    pub(super) fn outcomes(&self, step: &str) -> Result<Vec<String>> {
        let document: Value = serde_json::from_str(&self.good()?)?;
        let steps = document["steps"]
            .as_array()
            .context("no steps")?
            .iter()
            .filter(|one| one["step"] == step);
        Ok(steps
            .filter_map(|step| Some(step["outcome"].as_str()?.to_owned()))
            .collect())
    }
}

/// `c3po install` treats a hard link as the program itself; across file systems a copy works too.
fn link_or_copy(from: &Path, to: &Path) -> Result<()> {
    fs::hard_link(from, to)
        .or_else(|_| fs::copy(from, to).map(drop))
        .context("putting c3po into PATH")
}

fn collect(folder: &Path, tree: &mut Tree) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let about = fs::symlink_metadata(&path)?;
        let mut text = if about.is_file() {
            fs::read(&path)?
        } else {
            Vec::new()
        };
        text.truncate(COMPARED);
        tree.insert(
            path.clone(),
            (about.mode(), about.modified()?, about.len(), text),
        );
        if about.is_dir() {
            collect(&path, tree)?;
        }
    }
    Ok(())
}
