//! A slow or full disk under the log of shown messages.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use c3po::link::State;
use c3po_shared::ids::MessageId;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use super::peer::{PATIENCE, Peer, run_with};

/// A state folder whose disk does not answer.
struct Slow(PathBuf);

impl Slow {
    fn begins(state: &Path) -> Self {
        let log = log(state);
        fs::create_dir_all(log.parent().unwrap()).unwrap();
        let made = Command::new("mkfifo").arg(&log).status().unwrap();
        assert!(made.success());
        Self(log)
    }

    /// The disk answers: dead sessions were shown that message.
    fn answers(self, id: &MessageId) {
        // A pipe is opened for writing once it is read.
        let mut pipe = fs::OpenOptions::new().write(true).open(&self.0).unwrap();
        fs::remove_file(&self.0).unwrap();
        writeln!(pipe, "{id}").unwrap();
    }
}

fn log(state: &Path) -> PathBuf {
    state.join("seats/web@nas2.shown")
}

fn ids() -> [MessageId; 2] {
    ["a::web::00000001", "a::web::00000002"].map(|id| id.parse().unwrap())
}

#[tokio::test]
async fn a_session_on_a_slow_disk_waits_for_the_log_of_its_name() {
    let state = TempDir::new().unwrap();
    let slow = Slow::begins(state.path());
    let peer = Peer::listen().await;
    let running = run_with(vec![peer.url()], state);
    running.link.begin();
    let dialled = timeout(Duration::from_millis(1_500), peer.listener.accept()).await;
    assert!(dialled.is_err(), "dialled without the log");
    slow.answers(&ids()[0]);
    let (_talk, _) = peer.welcome("web").await;
    running.becomes(State::Connected).await;
    assert_eq!(running.link.about_to_show(&ids()), ids()[..1]);
}

#[tokio::test]
async fn a_log_that_the_disk_gives_too_late_is_in_use_from_then_on() {
    let state = TempDir::new().unwrap();
    let slow = Slow::begins(state.path());
    let peer = Peer::listen().await;
    let running = run_with(vec![peer.url()], state);
    running.link.begin();
    let (_talk, _) = peer.welcome("web").await;
    running.becomes(State::Connected).await;
    slow.answers(&ids()[0]);
    let is_in_use = async {
        while running.link.about_to_show(&ids()) != ids()[..1] {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, is_in_use).await.expect("the log");
}

#[tokio::test]
async fn a_log_that_could_not_be_opened_is_opened_with_its_next_use() {
    let state = TempDir::new().unwrap();
    let seats = state.path().join("seats");
    // As without a free file descriptor: neither can be opened.
    for folder in [log(state.path()), seats.join("web@nas2")] {
        fs::create_dir_all(folder).unwrap();
    }
    let peer = Peer::listen().await;
    let running = run_with(vec![peer.url()], state);
    running.link.begin();
    let (_talk, _) = peer.welcome("web").await;
    running.becomes(State::Connected).await;
    assert_eq!(running.link.about_to_show(&ids()[..1]), []);
    let log = log(running.state.path());
    fs::remove_dir(&log).unwrap();
    running.link.about_to_show(&ids());
    let noted = ids().map(|id| format!("{id}\n")).concat();
    assert_eq!(fs::read_to_string(log).unwrap(), noted);
}
