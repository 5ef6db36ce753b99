//! A host for hooks: a folder for sockets, a desk with constant answers, and hooks as a client starts them.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio, id};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use c3po::config::Sockets;
use c3po::local::protocol::{Answer, Event, Name};
use c3po::local::{self, Desk, Rendezvous};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How long a hook may take here: 200 ms are promised, and a debug build on a busy machine starts late.
pub(crate) const IN_TIME: Duration = Duration::from_millis(400);
/// Deadline of operations without a promise of their own.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A desk that answers every hook alike and records the reports.
#[derive(Default)]
pub(crate) struct Clerk {
    pub(crate) says: Answer,
    pub(crate) heard: Mutex<Vec<Event>>,
    pub(crate) printed: Mutex<Vec<u64>>,
    pub(crate) not_printed: Mutex<Vec<u64>>,
    pub(crate) offers: AtomicU64,
    /// Ends the waits.
    pub(crate) wakes: Notify,
    pub(crate) waiting: AtomicU64,
}

impl Clerk {
    pub(crate) fn saying(stdout: &str) -> Arc<Self> {
        Arc::new(Self {
            says: Answer {
                stdout: stdout.to_owned(),
                ..Answer::default()
            },
            ..Self::default()
        })
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::SeqCst)
    }
}

impl Desk for Clerk {
    async fn heard(&self, event: Event) -> Answer {
        let waits = event.name == Name::Wait;
        self.heard.lock().unwrap().push(event);
        if waits {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let _leaves = Leaves(&self.waiting);
            self.wakes.notified().await;
        }
        Answer {
            offer: Some(self.offers.fetch_add(1, Ordering::SeqCst)),
            ..self.says.clone()
        }
    }

    fn printed(&self, offer: u64) {
        self.printed.lock().unwrap().push(offer);
    }

    fn not_printed(&self, offer: u64) {
        self.not_printed.lock().unwrap().push(offer);
    }
}

struct Leaves<'a>(&'a AtomicU64);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A folder for sockets, and the servers that listen in it.
pub(crate) struct Host {
    pub(crate) runtime: TempDir,
    pub(crate) stop: CancellationToken,
    pub(crate) serving: Vec<JoinHandle<()>>,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self {
            runtime: tempfile::tempdir().unwrap(),
            stop: CancellationToken::new(),
            serving: Vec::new(),
        }
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.runtime.path().join("c3po")
    }

    fn sockets(&self) -> Sockets {
        Sockets {
            runtime_dir: Some(self.runtime.path().to_owned()),
            home: None,
        }
    }

    pub(crate) fn place(&self, client: u32) -> Rendezvous {
        Rendezvous::beside(client, &self.sockets()).unwrap()
    }

    /// Serves beside a client until it is stopped; returns once it listens.
    pub(crate) fn serve(&mut self, desk: &Arc<Clerk>, client: u32) -> Rendezvous {
        let place = self.start(desk, client, self.stop.clone());
        // The file is there a moment before.
        eventually("a listener", || UnixStream::connect(place.path()).is_ok());
        place
    }

    pub(crate) fn start(
        &mut self,
        desk: &Arc<Clerk>,
        client: u32,
        stop: CancellationToken,
    ) -> Rendezvous {
        self.start_in(self.sockets(), desk, client, stop)
    }

    /// Starts a proxy that knows those folders alone.
    pub(crate) fn start_in(
        &mut self,
        sockets: Sockets,
        desk: &Arc<Clerk>,
        client: u32,
        stop: CancellationToken,
    ) -> Rendezvous {
        let desk = desk.clone();
        let place = Rendezvous::beside(client, &sockets).unwrap();
        let of_thread = place.clone();
        self.serving.push(thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(local::serve(desk, of_thread, sockets, stop));
        }));
        place
    }

    pub(crate) fn hook(&self, event: &str) -> Command {
        c3po(self.runtime.path(), &["hook", event])
    }

    pub(crate) fn run(&self, event: &str, input: &[u8]) -> Output {
        output(self.hook(event).spawn().unwrap(), input)
    }

    /// Runs a hook that must print nothing, in time. A busy machine may delay one, but not one after another.
    pub(crate) fn is_silent(&self, what: &str, event: &str, input: &[u8]) {
        let mut took = Duration::MAX;
        for _ in 0..3 {
            let began = Instant::now();
            let output = self.run(event, input);
            took = began.elapsed();
            assert!(is_nothing(&output), "{what}: {output:?}");
            if took < IN_TIME {
                return;
            }
        }
        panic!("{what}: {took:?}");
    }

    pub(crate) fn end(&mut self) {
        self.stop.cancel();
        for serving in self.serving.drain(..) {
            serving.join().unwrap();
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A command whose client is this test. `CLAUDE_PID` separates it from a session in which the tests run.
pub(crate) fn c3po(runtime: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_c3po"));
    command
        .args(arguments)
        .env_clear()
        .env("XDG_RUNTIME_DIR", runtime)
        .env("NO_COLOR", "1");
    command.env("CLAUDE_PID", id().to_string());
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

pub(crate) fn output(mut child: Child, input: &[u8]) -> Output {
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A hook that ends early closes its input.
    let writing = thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    let _ = writing.join().unwrap();
    output
}

pub(crate) fn is_nothing(output: &Output) -> bool {
    output.status.code() == Some(0) && output.stdout.is_empty() && output.stderr.is_empty()
}

pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "still not: {what}");
        thread::yield_now();
    }
}

pub(crate) fn stop_input() -> Vec<u8> {
    json!({"session_id": "s", "hook_event_name": "Stop", "stop_hook_active": true})
        .to_string()
        .into_bytes()
}
