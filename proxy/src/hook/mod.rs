//! `c3po hook EVENT`: the short process by which a client reports an event of a session, and gets its output.
//!
//! It asks the proxy of the same session and prints its answer. On any failure it prints nothing and exits 0 within 200 ms,
//! or 500 ms if the client does not read the output, so that the session goes on as if c3po were not installed. It uses no
//! async runtime, no file and no network.

mod input;

use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::config::{HookEnvironment, may_wait_for_people};
use crate::local::protocol::{Answer, Event, Name};
use crate::local::{self, Conversation};
pub use input::{event, name};

/// Deadline of the whole hook.
const DEADLINE: Duration = Duration::from_millis(200);
/// How long printing may go on after that, once begun: half an answer would be worse than a late one. Only a client that
/// does not read the output makes it last.
const PRINT_MAX: Duration = Duration::from_millis(300);
/// How much of standard input is kept. The rest is read and dropped.
const INPUT_MAX: u64 = 32 << 20;
/// How long a client may take to start the proxy, and how often a waiting hook looks for it.
const START_MAX: Duration = Duration::from_secs(30);
const START_LOOK: Duration = Duration::from_millis(50);
/// How often a waiting hook checks whether its client still exists.
const LOOK: Duration = Duration::from_secs(2);

/// Runs the hook of that event. Returns `None` if a person at a terminal should be shown an explanation of hooks instead.
///
/// `wait session-start` is the one that a session begins with: it looks for a proxy that is starting beside it.
pub fn run(event: Option<&str>, beginning: Option<&str>) -> Option<ExitCode> {
    let (began, client) = (Instant::now(), parent_id());
    match event.and_then(name) {
        Some(name) => Some(ended_in_time(
            Run {
                name,
                starts: beginning == Some("session-start"),
                waits: name == Name::Wait
                    || (name == Name::PermissionRequest && may_wait_for_people()),
                client,
            },
            began,
        )),
        None if matches!(event, Some("-h" | "--help" | "help")) || io::stdin().is_terminal() => {
            None
        }
        None => Some(ExitCode::SUCCESS),
    }
}

/// The kind of run.
#[derive(Debug, Clone, Copy)]
struct Run {
    name: Name,
    /// Whether it starts with the session.
    starts: bool,
    /// Whether it lasts as long as its client wants. The client goes on beside it.
    waits: bool,
    /// The parent at the start. A later one adopted this process as an orphan.
    client: u32,
}

impl Run {
    fn has_client(self) -> bool {
        parent_id() == self.client
    }
}

/// Runs the work on another thread, and ends in time even if the work blocks or panics.
fn ended_in_time(run: Run, began: Instant) -> ExitCode {
    // The session would show the message of a panic as a failed hook.
    std::panic::set_hook(Box::new(|_| {}));
    let (sender, code) = sync_channel(1);
    let first = Arc::new(First::default());
    let of_worker = first.clone();
    let work = move || {
        // Without a receiver, the process is ending.
        let _ = sender.send(work(run, &of_worker));
    };
    let Ok(_worker) = thread::Builder::new().spawn(work) else {
        return ExitCode::SUCCESS;
    };
    let waits = run.waits;
    let code = loop {
        let pause = if waits {
            LOOK
        } else {
            DEADLINE.saturating_sub(began.elapsed())
        };
        match code.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) if waits && run.has_client() => {}
            Err(RecvTimeoutError::Timeout) if !first.take() => {
                break code.recv_timeout(PRINT_MAX).ok();
            }
            outcome => break outcome.ok(),
        }
    };
    ExitCode::from(code.flatten().unwrap_or(0))
}

/// Decides a race between the worker that is about to print and the main thread that is about to give up.
#[derive(Debug, Default)]
struct First(AtomicBool);

impl First {
    /// Returns whether it was not taken before.
    fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

/// Does the work and returns the exit code; `None` on any error.
fn work(run: Run, first: &First) -> Option<u8> {
    let environment = HookEnvironment::read();
    let (waits, headless) = (run.name == Name::Wait, environment.headless);
    // A waiting hook reports by its end, so its client must still be above it: another client would not notice the end, and
    // would never end the wait.
    let find = if waits {
        local::find_above
    } else {
        local::find
    };
    let find = || find(environment.client, &environment.sockets);
    let begins = waits && run.starts && !headless;
    let sockets = if begins || (waits && headless) {
        Vec::new()
    } else {
        find()
    };
    if sockets.is_empty() && !begins {
        // The client may fail if its input is not read.
        io::copy(&mut io::stdin().lock(), &mut io::sink()).ok()?;
        return None;
    }
    let mut event = event(run.name, &standard_input()?)?;
    event.messaging_socket = environment.messaging_socket;
    event.messaging_token = environment
        .messaging_token
        .map(|token| token.expose().to_owned());
    if begins {
        return in_time(|| converse(&find(), &event, first));
    }
    converse(&sockets, &event, first)
}

/// Retries to reach a proxy that may be starting.
fn in_time(converse: impl Fn() -> Option<u8>) -> Option<u8> {
    let began = Instant::now();
    loop {
        let code = converse();
        if code.is_some() || began.elapsed() >= START_MAX {
            return code;
        }
        thread::sleep(START_LOOK);
    }
}

fn converse(sockets: &[PathBuf], event: &Event, first: &First) -> Option<u8> {
    let mut conversation = Conversation::begin(sockets, event).ok()?;
    let answer = conversation.answer().ok()?;
    if !first.take() {
        return None;
    }
    print(&answer).ok()?;
    if answer.offer.is_some() {
        // A proxy that is gone gets no report; the text is printed all the same.
        let _ = conversation.printed();
    }
    Some(answer.exit)
}

/// Reads standard input to its end, which may never come; `None` if it is too long.
fn standard_input() -> Option<Vec<u8>> {
    let (mut stdin, mut input) = (io::stdin().lock(), Vec::new());
    stdin
        .by_ref()
        .take(INPUT_MAX)
        .read_to_end(&mut input)
        .ok()?;
    let beyond = io::copy(&mut stdin, &mut io::sink()).ok()?;
    (beyond == 0).then_some(input)
}

/// Prints an answer and flushes it. A closed output is an error, not a signal.
fn print(answer: &Answer) -> io::Result<()> {
    if !answer.stdout.is_empty() {
        let mut out = io::stdout().lock();
        out.write_all(answer.stdout.as_bytes())?;
        out.flush()?;
    }
    if !answer.stderr.is_empty() {
        io::stderr().lock().write_all(answer.stderr.as_bytes())?;
    }
    Ok(())
}
