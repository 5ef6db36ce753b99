//! One run of `claude -p`: a prompt, an answer, the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use super::{ClaudeCode, Options};
use crate::fake_api::FakeApi;
use crate::process::{Process, command};

/// A running `claude -p`.
#[derive(Debug)]
pub struct Run {
    process: Process,
    output: PathBuf,
}

/// A finished run.
#[derive(Debug)]
pub struct Finished {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its standard output.
    pub output: String,
    /// Its standard error.
    pub log: String,
}

impl ClaudeCode {
    /// Starts `claude -p prompt` in the folder `work/project`, with the proxy as its only MCP server.
    ///
    /// Errors: those of [`print`](Self::print).
    pub fn ask(
        &self,
        work: &Path,
        project: &str,
        prompt: &str,
        model: &FakeApi,
        coordinator: &str,
    ) -> Result<Run> {
        self.print(&Options::new(work, project, model, coordinator), prompt)
    }

    /// Starts `claude -p prompt`.
    ///
    /// Errors: the folders cannot be created, or a program is missing.
    pub fn print(&self, options: &Options, prompt: &str) -> Result<Run> {
        options.make_home()?;
        let output = options.work.join(format!("{}.out", options.project));
        let mut claude = command(&self.program, &options.home());
        claude
            .args(["-p", prompt])
            .args(options.all_arguments())
            .current_dir(options.folder());
        claude.env("TERM", "dumb").envs(options.all_environment());
        let file = fs::File::create(&output).with_context(|| output.display().to_string())?;
        claude.stdin(Stdio::null()).stdout(file);
        let process = Process::start(
            claude,
            &options.work.join(format!("{}.err", options.project)),
        )?;
        Ok(Run { process, output })
    }
}

impl Run {
    /// Waits for its end.
    ///
    /// Errors: it is still running after `within`; then it is killed.
    pub async fn finish(mut self, within: Duration) -> Result<Finished> {
        let status = self.process.end(within).await;
        let output = fs::read_to_string(&self.output).context("reading what it printed")?;
        let status = status.with_context(|| format!("it printed: {output}"))?;
        Ok(Finished {
            status,
            output,
            log: self.process.log(),
        })
    }
}
