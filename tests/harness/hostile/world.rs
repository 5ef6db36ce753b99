//! The shared world of a run: the coordinator, the senders, the folder, the journal, and the signal for the end of the day.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use tokio_util::sync::CancellationToken;

use super::Day;
use super::checker::Seat;
use super::journal::Journal;
use crate::claude::{ClaudeCode, plugin_copy};
use crate::coordinator::Coordinator;
use crate::http;
use crate::mcp::McpClient;
use crate::proxy::proxy_command;

/// The most lines of a screen, and the most characters of each, in the log.
const LINES_MAX: usize = 30;
const LINE_MAX: usize = 160;
/// The names of the senders.
const SENDERS: [&str; 2] = ["anna", "bert"];

/// The shared state of a run.
pub(super) struct World {
    pub(super) day: Day,
    pub(super) claude: ClaudeCode,
    /// The plugin, with the program as built.
    pub(super) plugin: PathBuf,
    pub(super) senders: Vec<McpClient>,
    pub(super) journal: Arc<Journal>,
    /// Cancelled at the end of the day.
    pub(super) calm: CancellationToken,
    coordinator: Coordinator,
    folder: PathBuf,
    began: Instant,
    log: Mutex<Vec<String>>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("day", &self.day)
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl World {
    /// Starts the coordinator and the senders.
    ///
    /// Errors: a program does not start.
    pub(super) async fn start(claude: &ClaudeCode, day: Day, folder: &Path) -> Result<Self> {
        let store = format!("sqlite:{}", folder.join("c3po.db").display());
        let mut coordinator = Coordinator::absent(folder, &store)?.quietly();
        coordinator.restart().await?;
        let mut senders = Vec::new();
        for name in SENDERS {
            let command = proxy_command(folder, name, &coordinator.url())?;
            let sender = McpClient::start(command, &folder.join(format!("{name}.log")))?.quietly();
            sender
                .initialize()
                .await
                .with_context(|| format!("the proxy of {name}"))?;
            senders.push(sender);
        }
        Ok(Self {
            day,
            claude: claude.clone(),
            plugin: plugin_copy(folder)?,
            senders,
            journal: Arc::default(),
            calm: CancellationToken::new(),
            coordinator,
            folder: folder.to_owned(),
            began: Instant::now(),
            log: Mutex::default(),
        })
    }

    /// Returns the name of a session, which is that of its folder.
    pub(super) fn name(seat: Seat) -> String {
        format!("house{seat}")
    }

    /// Returns the sender of the message with that id.
    pub(super) fn sender_of(&self, id: &str) -> &McpClient {
        let number = SENDERS
            .iter()
            .position(|name| id.starts_with(&format!("{name}::")));
        &self.senders[number.unwrap_or_default()]
    }

    /// Returns the folder of the run.
    pub(super) fn work(&self) -> &Path {
        &self.folder
    }

    /// Returns the URL of the coordinator.
    pub(super) fn url(&self) -> String {
        self.coordinator.url()
    }

    /// Returns the contents of that session's inbox, as text.
    ///
    /// Errors: the coordinator does not respond.
    pub(super) async fn inbox(&self, seat: Seat) -> Result<String> {
        let (address, name) = (self.coordinator.address(), Self::name(seat));
        let head = format!("Host: {address}\r\nConnection: close\r\nX-Agent-ID: {name}");
        let asked = format!("GET /api/pending?limit=1000 HTTP/1.1\r\n{head}\r\n\r\n");
        Ok(http::request(address, &asked).await?.body)
    }

    /// Writes a line to the log. An error with a screen in it is shortened to its beginning and end.
    pub(super) fn say(&self, text: &str) {
        let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
        let rest: Vec<_> = rest
            .lines()
            .map(str::trim_end)
            .filter(|line| !line.is_empty())
            .collect();
        let shown = rest[rest.len().saturating_sub(LINES_MAX)..].iter();
        let shown =
            shown.map(|line| format!("\n    {}", line.chars().take(LINE_MAX).collect::<String>()));
        let line = format!(
            "{:7.2} {first}{}",
            self.began.elapsed().as_secs_f64(),
            shown.collect::<String>()
        );
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(line);
    }

    /// Returns the log.
    pub(super) fn log(&self) -> String {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .join("\n")
    }
}
