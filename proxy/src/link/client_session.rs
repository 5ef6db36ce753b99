//! Whether the client's process is the one that runs the session, by the file that the client keeps of it.
//!
//! Claude Code can move a session into the background: another process continues it, and this one only shows it. It also
//! starts spare processes for that. Neither may hold a name: messages for it would reach no conversation, or a hidden one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::sleep;

use crate::client::session_file;
use crate::config::Config;

/// How often the file is read.
const EVERY: Duration = Duration::from_secs(1);
/// How long a session in the background waits for its name: the process that showed it before notices its file, and leaves.
const LEAVES: Duration = Duration::from_millis(2_500);

/// The members of the file that are read. It is the client's own and undocumented: without it nothing changes.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SessionFile {
    kind: Option<String>,
    /// Another process continues the session.
    parked_job_id: Option<IgnoredAny>,
    spare: bool,
}

impl SessionFile {
    fn read(path: &Path) -> Self {
        fs::read(path)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default()
    }

    fn runs(&self) -> bool {
        self.parked_job_id.is_none() && !self.spare
    }
}

/// The file of our client.
#[derive(Debug)]
pub(super) struct ClientSession(PathBuf);

impl ClientSession {
    /// Returns the file of the client that started this process.
    pub(super) fn of(config: &Config) -> Self {
        Self(session_file(&config.places.claude_dir, config.client))
    }

    /// Waits until the client's process runs the session.
    pub(super) async fn runs(&self) {
        while !self.read().await.runs() {
            sleep(EVERY).await;
        }
    }

    /// In a session in the background, waits until the process that showed it before has left.
    pub(super) async fn is_left(&self) {
        if self.read().await.kind.as_deref() == Some("bg") {
            sleep(LEAVES).await;
        }
    }

    /// Waits until another process runs the session.
    pub(super) async fn ends(&self) {
        while self.read().await.runs() {
            sleep(EVERY).await;
        }
    }

    async fn read(&self) -> SessionFile {
        let path = self.0.clone();
        tokio::task::spawn_blocking(move || SessionFile::read(&path))
            .await
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parked_process_and_a_spare_one_do_not_run_their_session() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("7.json");
        let check = |text: &str, expected: bool| {
            fs::write(&path, text).unwrap();
            assert_eq!(SessionFile::read(&path).runs(), expected, "{text}");
        };
        assert!(
            SessionFile::read(&path).runs(),
            "other clients have no file"
        );
        check("{", true);
        check(
            r#"{"pid": 7, "kind": "interactive", "status": "idle"}"#,
            true,
        );
        check(
            r#"{"kind": "interactive", "status": "idle", "parkedJobId": "bd6b9711"}"#,
            false,
        );
        check(r#"{"kind": "interactive", "parkedJobId": null}"#, true);
        check(r#"{"kind": "bg", "spare": true}"#, false);
        check(r#"{"kind": "bg", "jobId": "bd6b9711"}"#, true);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_in_the_background_begins_once_its_predecessor_had_time_to_leave() {
        let folder = tempfile::tempdir().unwrap();
        let session = ClientSession(folder.path().join("7.json"));
        let took = async || {
            let began = tokio::time::Instant::now();
            session.runs().await;
            session.is_left().await;
            began.elapsed()
        };
        fs::write(&session.0, r#"{"kind": "interactive"}"#).unwrap();
        assert_eq!(took().await, Duration::ZERO);
        fs::write(&session.0, r#"{"kind": "bg"}"#).unwrap();
        assert!(took().await >= LEAVES);
    }
}
