//! A session without a terminal, as used by an SDK: prompts and results as lines of JSON.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::{ClaudeCode, Options};
use crate::process::{Process, command};

/// The time limit of a turn.
const TURN: Duration = Duration::from_secs(60);

/// A running conversation. Dropping it ends the client.
#[derive(Debug)]
pub struct Conversation {
    process: Process,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl ClaudeCode {
    /// Starts `claude -p` with a stream of JSON prompts as its input.
    ///
    /// Errors: the folders cannot be created, or a program is missing.
    pub fn converse(&self, options: &Options) -> Result<Conversation> {
        options.make_home()?;
        let mut claude = command(&self.program, &options.home());
        claude.args([
            "-p",
            "--input-format",
            "stream-json",
            "--output-format",
            "stream-json",
            "--verbose",
        ]);
        claude
            .args(options.all_arguments())
            .current_dir(options.folder());
        claude
            .env("TERM", "dumb")
            .envs(options.all_environment())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = Process::start(
            claude,
            &options.work.join(format!("{}.err", options.project)),
        )?;
        let (input, output) = process.take_pipes()?;
        Ok(Conversation {
            process,
            input,
            output: BufReader::new(output).lines(),
        })
    }
}

impl Conversation {
    /// Prints no log at the end.
    #[must_use]
    pub fn quietly(mut self) -> Self {
        self.process = self.process.quietly();
        self
    }

    /// Writes a prompt and returns the result of its turn.
    ///
    /// Errors: the client ended, or the turn takes longer than a minute.
    pub async fn say(&mut self, prompt: &str) -> Result<Value> {
        let line = json!({"type": "user", "message": {"role": "user", "content": prompt}})
            .to_string()
            + "\n";
        self.input
            .write_all(line.as_bytes())
            .await
            .context("writing a prompt")?;
        timeout(TURN, self.result())
            .await
            .with_context(|| format!("the turn of {prompt:?} does not end"))?
    }

    async fn result(&mut self) -> Result<Value> {
        loop {
            let line = self.output.next_line().await?.context("the client ended")?;
            let line: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
            if line["type"] == "result" {
                return Ok(line);
            }
        }
    }
}
