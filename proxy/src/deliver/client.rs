//! The file that the client keeps of a running session: whether it works, and in which conversation it is.
//!
//! It is the client's own and undocumented: evidence where the hooks are silent, and nothing without it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use c3po_shared::time::Timestamp;
use serde::Deserialize;

use crate::client::session_file;

/// The client's own report of its session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClientState {
    /// Whether a turn is under way; `None` if unknown.
    pub(super) is_busy: Option<bool>,
    /// Where the transcript of the conversation is.
    pub(super) transcript: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionFile {
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    session_id: Option<String>,
    #[serde(default)]
    status_updated_at: Option<u64>,
}

/// Returns how long the client with that process has worked without a pause; `None` if it does not work. Blocks.
pub(super) fn works_for(folder: &Path, pid: u32) -> Option<Duration> {
    let text = fs::read(session_file(folder, pid)).ok()?;
    let file = serde_json::from_slice::<SessionFile>(&text).ok()?;
    let since = file.status_updated_at.map(Timestamp::from_millis)?;
    (file.status.as_deref() == Some("busy")).then(|| Timestamp::now().since(since))
}

impl ClientState {
    /// Reads the session file of the client with that process, in the folder of its settings. Blocks.
    pub(super) fn read(folder: &Path, pid: u32) -> Self {
        let text = fs::read(session_file(folder, pid)).unwrap_or_default();
        let Ok(file) = serde_json::from_slice::<SessionFile>(&text) else {
            return Self::default();
        };
        let is_busy = match file.status.as_deref() {
            // `shell`: idle, while a shell runs in the background.
            Some("idle" | "shell") => Some(false),
            Some("busy") => Some(true),
            _ => None,
        };
        Self {
            is_busy,
            transcript: file.session_id.and_then(|id| transcript(folder, &id)),
        }
    }
}

/// Returns whether another living process of the client runs the session of that transcript. Blocks.
pub(super) fn is_shared(folder: &Path, pid: u32, transcript: &Path) -> bool {
    let files = fs::read_dir(folder.join("sessions")).into_iter().flatten();
    let others = files.filter_map(|file| {
        let path = file.ok()?.path();
        let other: u32 = path.file_stem()?.to_str()?.parse().ok()?;
        let lives = other != pid && Path::new("/proc").join(format!("{other}")).exists();
        lives.then(|| fs::read(path).ok()).flatten()
    });
    let mut sessions = others.filter_map(|text| {
        let file = serde_json::from_slice::<SessionFile>(&text).ok()?;
        file.session_id
    });
    sessions.any(|session| transcript.file_stem().is_some_and(|name| name == &*session))
}

/// Returns where the transcript of that conversation is: in the folder of one of the projects.
fn transcript(folder: &Path, session_id: &str) -> Option<PathBuf> {
    let name = format!("{session_id}.jsonl");
    let projects = fs::read_dir(folder.join("projects")).ok()?;
    projects
        .filter_map(|project| Some(project.ok()?.path().join(&name)))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_shared_with_another_living_process_of_its_own_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sessions")).unwrap();
        let own = std::process::id();
        for (pid, session, expected) in [
            (own, "s1", false),
            (u32::MAX, "s1", false),
            (1, "s2", false),
            (1, "s1", true),
        ] {
            fs::write(
                folder.path().join(format!("sessions/{pid}.json")),
                format!(r#"{{"sessionId":"{session}"}}"#),
            )
            .unwrap();
            let transcript = folder.path().join("projects/p/s1.jsonl");
            assert_eq!(
                is_shared(folder.path(), own, &transcript),
                expected,
                "{pid} {session}"
            );
        }
    }

    #[test]
    fn a_client_works_since_its_file_says_so() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sessions")).unwrap();
        let since = Timestamp::now().millis() - 5_000;
        for (status, expected) in [("busy", true), ("idle", false)] {
            let text = format!(r#"{{"status":"{status}","statusUpdatedAt":{since}}}"#);
            fs::write(folder.path().join("sessions/7.json"), text).unwrap();
            let works_for = works_for(folder.path(), 7);
            assert_eq!(
                works_for.is_some_and(|time| time >= Duration::from_secs(5)),
                expected,
                "{status}"
            );
        }
    }

    #[test]
    fn a_session_with_a_background_shell_alone_is_idle() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sessions")).unwrap();
        for (status, expected) in [
            ("idle", Some(false)),
            ("shell", Some(false)),
            ("busy", Some(true)),
            ("waiting", None),
        ] {
            fs::write(
                folder.path().join("sessions/7.json"),
                format!(r#"{{"status":"{status}"}}"#),
            )
            .unwrap();
            assert_eq!(
                ClientState::read(folder.path(), 7).is_busy,
                expected,
                "{status}"
            );
        }
    }
}
