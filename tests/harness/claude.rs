//! The real Claude Code, pinned, in a home made for one run, asking a model of ours and nobody else.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::fake_api::FakeApi;
use crate::process::{Process, command, program};

/// The version that the tests are written against: what it does at the edges differs from one to the next.
pub const VERSION: &str = "2.1.329";
/// The key that it is given. The stand-in for the API reads none.
const KEY: &str = "fake-key";
/// How the server of c3po is called in its configuration, and so in the names of its tools.
const SERVER: &str = "c3po";

/// An installed Claude Code.
#[derive(Debug, Clone)]
pub struct ClaudeCode {
    program: PathBuf,
}

/// One `claude -p` that is running.
#[derive(Debug)]
pub struct Run {
    process: Process,
    output: PathBuf,
}

/// One that ended.
#[derive(Debug)]
pub struct Finished {
    /// How.
    pub status: ExitStatus,
    /// What it printed.
    pub output: String,
    /// What it complained about.
    pub log: String,
}

impl ClaudeCode {
    /// Finds the one that `C3PO_TEST_CLAUDE` names, or the pinned one in the tests' cache folder.
    ///
    /// Errors: there is none. The error is the reason for a skipped test, unless a named one is missing, which panics.
    pub fn find() -> Result<Self> {
        if let Some(named) = env::var_os("C3PO_TEST_CLAUDE") {
            let program = PathBuf::from(named);
            assert!(program.is_file(), "C3PO_TEST_CLAUDE names {}, which is no file", program.display());
            return Ok(Self { program });
        }
        let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
        let cache = cache.context("neither XDG_CACHE_HOME nor HOME is set")?;
        let program = cache.join(format!("c3po-tests/claude-{VERSION}/node_modules/.bin/claude"));
        if !program.is_file() {
            bail!("Claude Code {VERSION} is not installed; `make test` installs it where npm is there");
        }
        Ok(Self { program })
    }

    /// Starts `claude -p prompt` in the folder `work/project`, with the proxy as its only MCP server.
    ///
    /// Errors: the folders cannot be made, or a program is missing.
    pub fn ask(&self, work: &Path, project: &str, prompt: &str, model: &FakeApi, coordinator: &str) -> Result<Run> {
        let home = work.join(format!("home-{project}"));
        let folder = work.join(project);
        for made in [&home, &folder] {
            fs::create_dir_all(made).with_context(|| made.display().to_string())?;
        }
        fs::write(home.join(".claude.json"), answered_questions(&folder).to_string()).context("writing its home")?;
        let servers = home.join("mcp.json");
        fs::write(&servers, mcp_servers(&home, coordinator)?.to_string()).context("writing its servers")?;

        let output = work.join(format!("{project}.out"));
        let mut claude = command(&self.program, &home);
        claude.args(["-p", prompt, "--strict-mcp-config", "--permission-mode", "default", "--allowedTools"]);
        claude.arg(format!("mcp__{SERVER}")).arg("--mcp-config").arg(&servers).current_dir(&folder);
        claude.envs([("LANG", "C.UTF-8"), ("TERM", "dumb"), ("ANTHROPIC_API_KEY", KEY)]);
        claude.env("ANTHROPIC_BASE_URL", model.url());
        for silence in [
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
            "DISABLE_AUTOUPDATER",
            "DISABLE_TELEMETRY",
            "DISABLE_ERROR_REPORTING",
        ] {
            claude.env(silence, "1");
        }
        let file = fs::File::create(&output).with_context(|| output.display().to_string())?;
        claude.stdin(Stdio::null()).stdout(file);
        let process = Process::start(claude, &work.join(format!("{project}.err")))?;
        Ok(Run { process, output })
    }
}

impl Run {
    /// Waits for its end.
    ///
    /// Errors: it runs on after `within`; it is killed then.
    pub async fn finish(mut self, within: Duration) -> Result<Finished> {
        let status = self.process.end(within).await;
        let output = fs::read_to_string(&self.output).context("reading what it printed")?;
        let status = status.with_context(|| format!("it printed: {output}"))?;
        Ok(Finished { status, output, log: self.process.log() })
    }
}

/// The answers to what it would ask at its first start, and about a folder it does not know.
fn answered_questions(folder: &Path) -> Value {
    let trusted =
        json!({"hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true, "projectOnboardingSeenCount": 5});
    json!({
        "hasCompletedOnboarding": true, "theme": "dark", "numStartups": 5, "autoUpdates": false,
        "customApiKeyResponses": {"approved": [KEY], "rejected": []},
        "projects": {folder.display().to_string(): trusted},
    })
}

/// The proxy as a user would enter it, but loaded before the first request: a script cannot ask again for late tools.
fn mcp_servers(home: &Path, coordinator: &str) -> Result<Value> {
    let proxy = program("c3po")?;
    let environment = json!({"C3PO_COORDINATOR_URL": coordinator, "XDG_RUNTIME_DIR": home});
    let server = json!({"type": "stdio", "command": proxy, "args": ["proxy"], "env": environment, "alwaysLoad": true});
    Ok(json!({"mcpServers": {SERVER: server}}))
}
