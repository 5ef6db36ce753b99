//! The seat of a session: its folder, its model, and the client in it, which is killed and restarted.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::process::Command;
use tokio::time::sleep;

use super::checker;
use super::journal::Journal;
use super::model::{Model, NOTES};
use super::world::World;
use crate::claude::{ClaudeCode, Interactive, Options, said};
use crate::dice::Dice;
use crate::eventually::eventually;
use crate::fake_api::FakeApi;

/// How long a proxy may take to start after its client.
const PROXY: Duration = Duration::from_secs(20);
/// The interval between two checks.
const LOOK: Duration = Duration::from_millis(250);
/// How often a client retries a request to the model before it gives up.
const RETRIES: &str = "1";

/// The conversation with which a client starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beginning {
    /// An empty one.
    Anew,
    /// The previous one.
    Resumed,
    /// A copy of the previous one.
    Forked,
    /// The latest one of the folder.
    Continued,
}

/// The observable state of a seat.
#[derive(Debug)]
pub(super) struct Watch {
    home: PathBuf,
    pid: AtomicU32,
    /// Whether a dialog waits for a person, or the client is not available.
    occupied: AtomicBool,
}

impl Watch {
    /// Returns the status that the client reports, such as `idle`; `None` if it reports none.
    pub(super) fn status(&self) -> Option<String> {
        let said = said(&self.home, self.pid.load(Ordering::Relaxed)).ok()?;
        Some(said["status"].as_str()?.to_owned())
    }

    /// Returns whether the client is idle and able to receive a message.
    pub(super) fn is_idle(&self) -> bool {
        !self.occupied.load(Ordering::Relaxed) && self.status().as_deref() == Some("idle")
    }

    pub(super) fn occupied(&self, is_occupied: bool) {
        self.occupied.store(is_occupied, Ordering::Relaxed);
    }
}

/// The seat of one session after the other.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) number: checker::Seat,
    pub(super) model: Arc<Model>,
    pub(super) watch: Arc<Watch>,
    claude: ClaudeCode,
    options: Options,
    session: Option<Interactive>,
    conversation: Option<String>,
    /// Kept running.
    _service: FakeApi,
}

impl Seat {
    /// Creates the folder and the model, without starting a client.
    pub(super) async fn make(
        world: &World,
        number: checker::Seat,
        journal: Arc<Journal>,
    ) -> Result<Self> {
        let (work, name) = (world.work(), World::name(number));
        let folder = work.join(&name);
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        fs::write(folder.join(NOTES), "There is nothing to note.\n")
            .context("writing the notes")?;
        let model = Arc::new(Model::new(
            number,
            &folder,
            journal,
            Dice::of(world.day.seed, 100 + number as u64),
        ));
        let service = FakeApi::start_forgetful(model.script()).await?;
        let options = Options::new(work, &name, &service, &world.url()).plugin(&world.plugin);
        let options = options
            .environment("CLAUDE_CODE_MAX_RETRIES", RETRIES)
            .environment("C3PO_LOG", "debug");
        let log = work.join(format!("proxy-{name}.log")).display().to_string();
        let options = options.environment("C3PO_LOG_FILE", log);
        let watch = Watch {
            home: options.home(),
            pid: AtomicU32::new(0),
            occupied: AtomicBool::new(true),
        };
        Ok(Self {
            number,
            model,
            watch: Arc::new(watch),
            claude: world.claude.clone(),
            options,
            session: None,
            conversation: None,
            _service: service,
        })
    }

    /// Starts a client and waits until it accepts input. Returns whether its conversation contains the messages shown before.
    ///
    /// Errors: it does not start.
    pub(super) async fn start(&mut self, beginning: Beginning) -> Result<bool> {
        self.enable_server()?;
        let known = self
            .conversation
            .clone()
            .filter(|id| self.has_transcript(id));
        let options = self.options.clone();
        let (options, carries) = match (beginning, known) {
            (Beginning::Anew, _) | (_, None) => (options, false),
            (Beginning::Resumed, Some(id)) => {
                (options.arguments(["--resume".to_owned(), id]), true)
            }
            (Beginning::Forked, Some(id)) => (
                options.arguments(["--resume".to_owned(), id, "--fork-session".to_owned()]),
                true,
            ),
            (Beginning::Continued, Some(_)) => (options.arguments(["-c"]), true),
        };
        let session = self.claude.interactive(&options).await?.quietly();
        self.watch
            .pid
            .store(session.claude_pid(), Ordering::Relaxed);
        self.session = Some(session);
        // A session whose server is not connected yet has no tools in its first request.
        let connected = eventually("a proxy", PROXY, async || {
            sleep(LOOK).await;
            self.session().ok()?.proxy_pid().ok()
        });
        connected.await?;
        self.watch.occupied(false);
        Ok(carries)
    }

    /// Returns the client.
    ///
    /// Errors: there is none.
    pub(super) fn session(&self) -> Result<&Interactive> {
        self.session.as_ref().context("no client runs")
    }

    /// Kills the client as `kill -9` does.
    ///
    /// Errors: there is none.
    pub(super) async fn kill(&mut self) -> Result<()> {
        self.remember();
        let session = self.session()?;
        if !session.has_ended().await? {
            session.kill("KILL").await?;
        }
        self.gone();
        Ok(())
    }

    /// Makes the client exit.
    ///
    /// Errors: it does not exit.
    pub(super) async fn leave(&mut self) -> Result<()> {
        self.remember();
        self.session()?.end().await?;
        self.gone();
        Ok(())
    }

    /// Kills the proxy beside the client.
    ///
    /// Errors: there is none.
    pub(super) async fn kill_proxy(&self) -> Result<()> {
        let proxy = self.session()?.proxy_pid()?.to_string();
        // The exit code is irrelevant: the proxy may have ended meanwhile.
        Command::new("kill")
            .args(["-s", "KILL", &proxy])
            .status()
            .await
            .context("running kill")
            .map(drop)
    }

    /// Remembers the client's conversation, to resume it later.
    fn remember(&mut self) {
        let id = self
            .session
            .as_ref()
            .and_then(|session| session.session_id().ok());
        self.conversation = id.or(self.conversation.take());
    }

    fn gone(&mut self) {
        self.watch.pid.store(0, Ordering::Relaxed);
        self.session = None;
    }

    /// Enables the server again: after a delayed key press, the menu may have disabled it.
    fn enable_server(&self) -> Result<()> {
        let path = self.options.home().join(".claude.json");
        // Before the first client there is no file.
        let Ok(text) = fs::read_to_string(&path) else {
            return Ok(());
        };
        let mut answers: Value =
            serde_json::from_str(&text).context("the client's answers are no JSON")?;
        let folders = answers["projects"].as_object_mut().into_iter().flatten();
        let disabled =
            folders.filter_map(|(_, folder)| folder.as_object_mut()?.remove("disabledMcpServers"));
        if disabled.count() > 0 {
            fs::write(&path, answers.to_string()).context("enabling the server")?;
        }
        Ok(())
    }

    /// Returns whether that conversation has any user message.
    fn has_transcript(&self, id: &str) -> bool {
        let Ok(projects) = fs::read_dir(self.options.home().join(".claude/projects")) else {
            return false;
        };
        let mut files = projects
            .flatten()
            .map(|project| project.path().join(format!("{id}.jsonl")));
        files.any(|file| {
            fs::read_to_string(file).is_ok_and(|text| text.contains(r#""type":"user""#))
        })
    }
}
