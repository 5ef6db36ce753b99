//! The real opencode at a pinned version: a client without hooks, with the proxy as its MCP server and the fake API as its
//! model.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::claude::cache;
use crate::fake_api::FakeApi;
use crate::process::{Process, command, program};

/// The version that the tests are written for.
pub const VERSION: &str = "1.18.33";
/// A model that it can use without a network request.
const MODEL: &str = "anthropic/claude-sonnet-4-5";

/// An installation of opencode.
#[derive(Debug, Clone)]
pub struct Opencode {
    program: PathBuf,
}

impl Opencode {
    /// Finds it in the tests' cache folder.
    ///
    /// Errors: it is not there. The error is the reason for a skipped test.
    pub fn find() -> Result<Self> {
        let program = cache()?.join(format!("opencode-{VERSION}/node_modules/.bin/opencode"));
        if !program.is_file() {
            bail!(
                "opencode {VERSION} is not installed; `make test` installs it where npm is there"
            );
        }
        Ok(Self { program })
    }

    /// Starts `opencode run prompt` in the folder `work/project`, with the proxy as its only MCP server.
    ///
    /// Errors: the folders cannot be created, or a program is missing.
    pub fn ask(
        &self,
        work: &Path,
        project: &str,
        prompt: &str,
        model: &FakeApi,
        coordinator: &str,
    ) -> Result<Process> {
        let (home, folder) = (work.join(format!("home-{project}")), work.join(project));
        for made in [&home, &folder] {
            fs::create_dir_all(made).with_context(|| made.display().to_string())?;
        }
        let configuration = configuration(&home, model, coordinator)?.to_string();
        fs::write(folder.join("opencode.json"), configuration)
            .context("writing its configuration")?;
        let mut opencode = command(&self.program, &home);
        opencode
            .args(["run", "--print-logs", prompt])
            .current_dir(&folder);
        opencode
            .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        Process::start(opencode, &work.join(format!("{project}.err")))
    }
}

/// Returns the configuration from docs/CLIENTS.md, with the fake API as the model.
fn configuration(home: &Path, model: &FakeApi, coordinator: &str) -> Result<Value> {
    let server = json!({
        "type": "local", "command": [program("c3po")?, "proxy"], "timeout": 60_000,
        "environment": {"C3PO_COORDINATOR_URL": coordinator, "XDG_RUNTIME_DIR": home},
    });
    let options = json!({"baseURL": format!("{}/v1", model.url()), "apiKey": "fake-key"});
    Ok(json!({
        "model": MODEL, "small_model": MODEL, "autoupdate": false, "share": "disabled",
        "provider": {"anthropic": {"options": options}},
        "mcp": {"c3po": server},
    }))
}
