//! A host whose configuration is wrong, and the texts that its user sees.

use std::process::Output;

use anyhow::{Context, Result, ensure};
use harness::mcp::McpClient;
use harness::process::{command, program};
use harness::proxy::proxy_command;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::pasted::Terminals;

/// A host without a key, and the texts that its user sees.
pub(super) struct Host {
    pub(super) home: TempDir,
    pub(super) variables: Vec<(&'static str, String)>,
    pub(super) told: String,
}

impl Host {
    pub(super) fn knowing(url: &str) -> Result<Self> {
        let variables = vec![("C3PO_COORDINATOR_URL", url.to_owned())];
        Ok(Self {
            home: TempDir::new()?,
            variables,
            told: String::new(),
        })
    }

    /// Creates a host with this configuration file, and without environment variables.
    pub(super) fn configured(text: &str) -> Result<Self> {
        let host = Self {
            home: TempDir::new()?,
            variables: Vec::new(),
            told: String::new(),
        };
        let file = host.home.path().join(".config/c3po/config.toml");
        std::fs::create_dir_all(file.parent().context("a folder")?)?;
        std::fs::write(file, text)?;
        Ok(host)
    }

    /// Returns the terminals in which its user pastes commands.
    pub(super) fn terminals(&self) -> Terminals {
        let terminals = Terminals::of(self.home.path());
        self.variables
            .iter()
            .fold(terminals, |terminals, (variable, value)| {
                terminals.with(variable, value.as_str())
            })
    }

    /// Pastes every command from the texts that this host printed. Each must be valid.
    pub(super) async fn pastes(&self, terminals: Terminals) -> Result<()> {
        ensure!(
            terminals.paste_all(&self.told).await? > 0,
            "nothing to paste: {}",
            self.told
        );
        Ok(())
    }

    /// Asserts that the pasted commands solved the problem.
    pub(super) async fn is_well(&mut self) -> Result<()> {
        self.types(&["status"]).await?;
        ensure!(self.told.ends_with("[exit 0]\n\n"), "{}", self.told);
        Ok(())
    }

    /// Runs the doctor, and adds its failures to the texts, without that of the session.
    pub(super) async fn asks_the_doctor(&mut self) -> Result<()> {
        let mut doctor = command(program("c3po")?, self.home.path());
        doctor.args(["doctor", "--json"]);
        self.prepare(&mut doctor);
        let document: Value = serde_json::from_slice(&doctor.output().await?.stdout)?;
        self.told += "$ c3po doctor\n";
        for finding in document["findings"].as_array().context("findings")? {
            let text = |name: &str| finding[name].as_str().unwrap_or_default().to_owned();
            if text("verdict") == "fail" && text("check") != "session" {
                self.told += &format!(
                    "FAIL  {}  {}\n      -> {}\n",
                    text("check"),
                    text("found"),
                    text("advice")
                );
            }
        }
        self.told += "\n";
        Ok(())
    }

    pub(super) fn with(mut self, variable: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((variable, value.into()));
        self
    }

    pub(super) fn prepare(&self, command: &mut Command) {
        command
            .env("XDG_RUNTIME_DIR", self.home.path())
            .envs(self.variables.iter().cloned());
    }

    /// Runs these commands as a person would.
    pub(super) async fn types(&mut self, lines: &[&str]) -> Result<()> {
        for line in lines {
            let mut c3po = command(program("c3po")?, self.home.path());
            c3po.args(line.split(' '));
            self.prepare(&mut c3po);
            self.hears(line, &c3po.output().await?);
        }
        Ok(())
    }

    /// Does the same in a separate network namespace, which `setup` prepares. Returns false if that is not permitted.
    pub(super) async fn types_apart(&mut self, setup: &str, line: &str) -> Result<bool> {
        let mut unshare = command("unshare", self.home.path());
        let script = format!("{{ {setup}; }} || exit 99; exec \"$@\"");
        unshare
            .args(["-n", "sh", "-c", &script, "sh"])
            .arg(program("c3po")?)
            .args(line.split(' '));
        self.prepare(&mut unshare);
        let path = std::env::var_os("PATH")
            .unwrap_or_default()
            .into_string()
            .unwrap_or_default();
        let output = unshare
            .env("PATH", format!("{path}:/usr/sbin:/sbin"))
            .output()
            .await?;
        if matches!(output.status.code(), Some(99))
            || String::from_utf8_lossy(&output.stderr).contains("unshare:")
        {
            return Ok(false);
        }
        self.hears(line, &output);
        Ok(true)
    }

    pub(super) fn hears(&mut self, line: &str, output: &Output) {
        let (code, said) = (
            output.status.code().unwrap_or(-1),
            String::from_utf8_lossy(&output.stderr),
        );
        let printed = if said.is_empty() {
            String::from_utf8_lossy(&output.stdout)
        } else {
            said
        };
        self.told += &format!("$ c3po {line}\n{printed}[exit {code}]\n\n");
    }

    /// Calls a tool in a session of this host, as a model would.
    pub(super) async fn calls(&mut self, project: &str, tool: &str) -> Result<()> {
        let mut proxy = proxy_command(self.home.path(), project, "")?;
        self.prepare(&mut proxy);
        let client = McpClient::start(proxy, &self.home.path().join(format!("{project}.log")))?;
        client.initialize().await?;
        let arguments = if tool == "ping" {
            json!({})
        } else {
            json!({"target": "b", "message": "hi"})
        };
        let answer = client.call(tool, arguments).await?;
        ensure!(answer.is_error, "{tool} was not refused: {answer:?}");
        let refusal = answer.json()?;
        let text = |name: &str| refusal[name].as_str().unwrap_or_default().to_owned();
        self.told += &format!(
            "> {tool}\n{} ({})\n{}\n\n",
            text("error"),
            text("code"),
            text("suggestion")
        );
        Ok(())
    }

    /// Returns all texts so far, without the parts that vary.
    pub(super) fn told(&self, hidden: &[(&str, &str)]) -> String {
        let home = self.home.path().display().to_string();
        let told = hidden
            .iter()
            .fold(self.told.replace(&home, "HOME"), |told, (from, to)| {
                told.replace(from, to)
            });
        told.trim_end().to_owned()
    }
}
