//! The home, arguments and environment with which a session starts without questions and without the network.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::options::{Options, Servers};
use crate::process::program;

/// The API key for the client. The fake API does not check it.
const KEY: &str = "fake-key";
/// The name of c3po's server in the client's configuration, and so in the names of its tools.
const SERVER: &str = "c3po";
/// The prefix of these names if the plugin provides the server.
const PLUGIN_SERVER: &str = "plugin_c3po_c3po";

impl Options {
    /// Creates the folders, and answers in advance the questions of a first start and of a new folder.
    ///
    /// Errors: a file cannot be written.
    pub(super) fn make_home(&self) -> Result<()> {
        for made in [self.home(), self.folder(), self.runtime_folder()] {
            fs::create_dir_all(&made).with_context(|| made.display().to_string())?;
        }
        fs::set_permissions(self.runtime_folder(), Permissions::from_mode(0o700))
            .context("closing the runtime folder")?;
        let answers = self.home().join(".claude.json");
        // A second session in the same home uses the file that the first one left.
        if !answers.exists() {
            fs::write(&answers, answered_questions(&self.folder()).to_string())
                .context("writing its home")?;
        }
        if let Some(settings) = &self.settings {
            let folder = self.home().join(".claude");
            fs::create_dir_all(&folder).context("making the folder of its settings")?;
            fs::write(folder.join("settings.json"), settings.to_string())
                .context("writing its settings")?;
        }
        if let Servers::Entered = self.servers {
            fs::write(
                self.home().join("mcp.json"),
                self.entered_servers()?.to_string(),
            )
            .context("writing its servers")?;
        }
        Ok(())
    }

    /// Returns the arguments, without the prompt.
    pub(super) fn all_arguments(&self) -> Vec<OsString> {
        let server = if let Servers::Plugin(_) = self.servers {
            PLUGIN_SERVER
        } else {
            SERVER
        };
        let allowed = format!("mcp__{server},Bash,Read");
        let mut arguments: Vec<OsString> =
            ["--permission-mode", "default", "--allowedTools", &allowed]
                .map(OsString::from)
                .into();
        match &self.servers {
            Servers::Entered => {
                arguments.extend(["--strict-mcp-config".into(), "--mcp-config".into()]);
                arguments.push(self.home().join("mcp.json").into());
            }
            Servers::Plugin(folder) => arguments.extend(["--plugin-dir".into(), folder.into()]),
            Servers::Nowhere => arguments.push("--strict-mcp-config".into()),
        }
        arguments.extend(self.arguments.iter().map(OsString::from));
        arguments
    }

    /// Returns the environment, without PATH, HOME and TMPDIR.
    pub(super) fn all_environment(&self) -> Vec<(String, OsString)> {
        let fixed = [
            ("LANG", "C.UTF-8"),
            ("ANTHROPIC_API_KEY", KEY),
            ("ANTHROPIC_BASE_URL", &self.model),
            ("C3PO_COORDINATOR_URL", &self.coordinator),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL", "1"),
            ("DISABLE_AUTOUPDATER", "1"),
            ("DISABLE_TELEMETRY", "1"),
            ("DISABLE_ERROR_REPORTING", "1"),
        ];
        let mut environment: Vec<_> = fixed
            .map(|(name, value)| (name.to_owned(), value.into()))
            .into();
        environment.push(("XDG_RUNTIME_DIR".to_owned(), self.runtime_folder().into()));
        environment.extend(
            self.environment
                .iter()
                .map(|(name, value)| (name.clone(), value.into())),
        );
        environment
    }

    /// The proxy as a user would configure it, except that its tools load before the first request: a script cannot search
    /// for tools later.
    fn entered_servers(&self) -> Result<Value> {
        let proxy = program("c3po")?;
        let environment = json!({"C3PO_COORDINATOR_URL": self.coordinator, "XDG_RUNTIME_DIR": self.runtime_folder()});
        let server = json!({"type": "stdio", "command": proxy, "args": ["proxy"], "env": environment, "alwaysLoad": true});
        Ok(json!({"mcpServers": {SERVER: server}}))
    }
}

fn answered_questions(folder: &Path) -> Value {
    let trusted = json!({"hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true, "projectOnboardingSeenCount": 5});
    json!({
        "hasCompletedOnboarding": true, "theme": "dark", "numStartups": 5, "autoUpdates": false,
        "customApiKeyResponses": {"approved": [KEY], "rejected": []},
        "projects": {folder.display().to_string(): trusted},
    })
}
