//! The client's files while its dialog is open and afterwards: its session file, and its transcript.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use c3po_shared::message::Message;
use c3po_shared::vocabulary::Decision;
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use super::record::{Fate, fate, open_tool_use, tool_use};
use super::request::Asked;

/// How often the files are read while a dialog is open, or its decision is awaited.
const LOOK: Duration = Duration::from_millis(100);
/// How often they are read while a tool runs.
const LOOK_SLOWLY: Duration = Duration::from_secs(1);
/// How long a session must not wait for a person before its dialog counts as closed.
const CLOSED_FOR: Duration = Duration::from_millis(300);
/// How long a dialog must stay open after the end of its hook before only the terminal can decide.
const OUTLASTS: Duration = Duration::from_secs(1);
/// How long a client may take to use a verdict.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);
/// How long a tool is followed.
const APPLIED_WITHIN: Duration = Duration::from_secs(24 * 3_600);
/// How much of a transcript before the request is read: the use of the tool is in its last lines.
const BEFORE: u64 = 1 << 20;
/// How much is read at most.
const READ_MAX: u64 = 16 << 20;

/// Watches the files of the client from the beginning of a request.
#[derive(Debug)]
pub(super) struct Watch {
    session_file: PathBuf,
    transcript: Option<PathBuf>,
    /// Where reading begins.
    from: u64,
    /// How much of that was written before the request.
    before: usize,
    /// The use of the tool, once it is known: later ones may be equal.
    tool_use: OnceLock<String>,
}

#[derive(Debug, Deserialize)]
struct SessionFile {
    status: Option<String>,
}

impl Watch {
    /// Begins to watch the client of that session file.
    pub(super) fn begin(session_file: &Path, asked: &Asked) -> Self {
        let transcript = asked.transcript();
        let length = |path: &PathBuf| path.metadata().map_or(0, |file| file.len());
        let length = transcript.as_ref().map_or(0, length);
        Self {
            session_file: session_file.to_owned(),
            transcript,
            from: length.saturating_sub(BEFORE),
            before: length.min(BEFORE) as usize,
            tool_use: OnceLock::new(),
        }
    }

    /// Looks for the use of the tool, before it has a result.
    pub(super) async fn identify(&self, asked: &Asked) {
        if self.tool_use.get().is_some() {
            return;
        }
        let (tool, input) = (asked.tool().to_owned(), asked.input().clone());
        let find = move |text: &str| open_tool_use(text, &tool, &input);
        if let Some(id) = self.read(find).await.flatten() {
            self.tool_use.get_or_init(|| id);
        }
    }

    /// Waits until the dialog has closed without us: the tool has a result, or the session has stopped waiting for a person while
    /// the dialog `is_sole`. Without the client's files it never resolves.
    pub(super) async fn dialog_closes(&self, asked: &Asked, is_sole: impl Fn() -> bool) {
        let (mut was_open, mut closed_at, mut read_at) = (false, None, None);
        loop {
            sleep(LOOK).await;
            if self.has_grown(&mut read_at).await && self.has_result(asked).await {
                return;
            }
            match self.is_waiting().await {
                Some(true) if is_sole() => (was_open, closed_at) = (true, None),
                Some(false) if was_open && is_sole() => {
                    let at = *closed_at.get_or_insert_with(Instant::now);
                    if at.elapsed() >= CLOSED_FOR {
                        return;
                    }
                }
                _ => closed_at = None,
            }
        }
    }

    /// Returns whether the dialog is open although its hook has ended. The dialog of a subagent may open only then.
    pub(super) async fn outlasts(&self, asked: &Asked) -> bool {
        let began = Instant::now();
        loop {
            let is_waiting = self.is_waiting().await == Some(true);
            if !(is_waiting || asked.is_of_subagent()) || self.has_result(asked).await {
                return false;
            }
            if began.elapsed() >= OUTLASTS {
                return is_waiting;
            }
            sleep(LOOK).await;
        }
    }

    /// Returns whether the use of the tool is known and has a result.
    async fn has_result(&self, asked: &Asked) -> bool {
        self.identify(asked).await;
        self.tool_use.get().is_some() && self.fate(asked).await.result.is_some()
    }

    /// Returns whether the transcript has another length than at the time of the last call.
    async fn has_grown(&self, known: &mut Option<u64>) -> bool {
        let length = self.length().await;
        length != std::mem::replace(known, length)
    }

    async fn is_waiting(&self) -> Option<bool> {
        let path = self.session_file.clone();
        off_this_thread(move || {
            let text = std::fs::read(path).ok()?;
            let file: SessionFile = serde_json::from_slice(&text).ok()?;
            Some(file.status? == "waiting")
        })
        .await
        .flatten()
    }

    /// Waits until the client records that it uses the verdict of the hook. Returns whether it did so in time.
    pub(super) async fn takes(&self, asked: &Asked, verdict: &Message) -> bool {
        let Some(decision) = verdict.verdict().map(|verdict| verdict.decision) else {
            return false;
        };
        let is_taken = |fate: &Fate| fate.by_hook == Some(decision);
        self.shows(asked, TAKEN_WITHIN, is_taken).await
    }

    /// Waits for the result of the tool. Returns whether it is that of the verdict.
    pub(super) async fn applies(&self, asked: &Asked, verdict: &Message) -> bool {
        let is_over = |fate: &Fate| fate.result.is_some();
        if !self.shows(asked, APPLIED_WITHIN, is_over).await {
            return false;
        }
        let (fate, decision) = (self.fate(asked).await, verdict.verdict());
        let (Some(result), Some(decision)) = (fate.result, decision) else {
            return false;
        };
        match decision.decision {
            Decision::Allow => !result.is_refused,
            Decision::Deny => result.text.contains(&asked.refusal(verdict)),
        }
    }

    /// Returns the length of the transcript, or `None` without one.
    async fn length(&self) -> Option<u64> {
        let path = self.transcript.clone()?;
        let read = move || path.metadata().ok().map(|file| file.len());
        off_this_thread(read).await.flatten()
    }

    async fn shows(&self, asked: &Asked, within: Duration, wanted: impl Fn(&Fate) -> bool) -> bool {
        let (began, mut read_at) = (Instant::now(), None);
        loop {
            // A tool may run for hours, and its transcript is long.
            if self.has_grown(&mut read_at).await && wanted(&self.fate(asked).await) {
                return true;
            }
            let elapsed = began.elapsed();
            if elapsed >= within {
                return false;
            }
            sleep(if elapsed < TAKEN_WITHIN {
                LOOK
            } else {
                LOOK_SLOWLY
            })
            .await;
        }
    }

    async fn fate(&self, asked: &Asked) -> Fate {
        let (tool, input) = (asked.tool().to_owned(), asked.input().clone());
        let (known, before) = (self.tool_use.get().cloned(), self.before);
        let look = move |text: &str| {
            let id = known.or_else(|| tool_use(text, before, &tool, &input))?;
            Some((fate(text, &id), id))
        };
        let Some((fate, id)) = self.read(look).await.flatten() else {
            return Fate::default();
        };
        self.tool_use.get_or_init(|| id);
        fate
    }

    /// Returns the result of `look` at the transcript from the beginning of the request on.
    async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&str) -> T + Send + 'static,
    ) -> Option<T> {
        let (path, from) = (self.transcript.clone()?, self.from);
        let read = move || tail(&path, from).map(|text| look(&text));
        off_this_thread(read).await.flatten()
    }
}

fn tail(path: &Path, from: u64) -> Option<String> {
    let mut file = File::open(path).ok()?;
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    file.take(READ_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

async fn off_this_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}
