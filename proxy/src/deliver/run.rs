//! The task that wakes an idle session for messages that should not wait, and reads the client's files.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::client::{ClientState, is_shared};
use super::push::{InboxSocket, Todo};
use super::transcript::Recorded;
use super::ways::Way;
use super::{Input, LastHop};
use crate::local::is_welcome;
use crate::local::protocol::Answer;

/// How long a post to the session's inbox socket may take.
const POST_MAX: Duration = Duration::from_secs(2);
/// With this exit code, the client reads the standard error of a hook that waited.
const WAKES: u8 = 2;

/// Pushes until `stop` is cancelled.
pub async fn run(hop: LastHop, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = push(&hop) => {}
    }
}

async fn push(hop: &LastHop) {
    loop {
        // Registered before the look, so that nothing in between is missed.
        let news = hop.arrivals.news.notified();
        let follows = match hop.on(Input::Look).todo {
            Todo::Look(None) => {
                news.await;
                None
            }
            Todo::Look(Some(at)) => {
                // Whichever comes first: both mean another look.
                let _ = tokio::time::timeout_at(at, news).await;
                None
            }
            Todo::AskClient => Some(Input::ClientState(ask_client(hop).await)),
            Todo::Read(path) => Some(Input::Conversation(read(hop, path).await)),
            Todo::Post(socket, text) => post(&socket, &text).await.err().map(|error| {
                tracing::debug!("the session's inbox socket does not accept messages: {error}");
                Input::NotPushed(Way::Inbox)
            }),
            Todo::Wake(text) => (!wake(hop, text)).then_some(Input::NotPushed(Way::Rewake)),
            Todo::Notify(text) => hop
                .arrivals
                .notifications
                .try_send(text)
                .is_err()
                .then_some(Input::NotPushed(Way::Channel)),
        };
        if let Some(input) = follows {
            hop.on(input);
            hop.arrivals.decided.notify_waiters();
        }
    }
}

async fn ask_client(hop: &LastHop) -> ClientState {
    let (folder, pid) = hop.arrivals.inside().client.clone();
    off_this_thread(move || ClientState::read(&folder, pid))
        .await
        .unwrap_or_default()
}

/// Returns which messages stand in the conversation of that transcript; nothing where it is no evidence.
async fn read(hop: &LastHop, path: PathBuf) -> Option<Recorded> {
    let (transcript, (folder, pid)) = {
        let inside = hop.arrivals.inside();
        (Arc::clone(&inside.transcript), inside.client.clone())
    };
    let read = move || {
        let mut recorded = transcript
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .conversation(&path)?;
        recorded.is_shared = !recorded.other_turns.is_empty() && is_shared(&folder, pid, &path);
        io::Result::Ok(recorded)
    };
    let read = off_this_thread(read).await?;
    read.inspect_err(|error| {
        tracing::debug!("cannot use the client's transcript as evidence: {error}")
    })
    .ok()
}

/// Runs blocking work on a thread of its own; `None` if the runtime is shutting down.
pub(super) async fn off_this_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

/// Has the hook that waits wake its session. Returns whether it was still there.
fn wake(hop: &LastHop, text: String) -> bool {
    let answer = Answer {
        stderr: text,
        exit: WAKES,
        ..Answer::default()
    };
    let waiter = hop.arrivals.inside().waiter.take();
    waiter.is_some_and(|waiter| waiter.send(answer).is_ok())
}

/// Writes a message to the inbox socket of a session, as its own client does.
async fn post(socket: &InboxSocket, text: &str) -> io::Result<()> {
    let mut lines = String::new();
    if let Some(token) = &socket.token {
        lines = serde_json::json!({"type": "auth", "token": token}).to_string() + "\n";
    }
    let message = serde_json::json!({"type": "user", "message": {"role": "user", "content": text}});
    lines += &message.to_string();
    lines.push('\n');
    let writing = async {
        let mut stream = UnixStream::connect(&socket.path).await?;
        if !is_welcome(&stream) {
            let error = "another user listens at the inbox of this session";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, error));
        }
        stream.write_all(lines.as_bytes()).await?;
        // The lines are whole: a client that has closed its side already has them.
        let _ = stream.shutdown().await;
        Ok(())
    };
    timeout(POST_MAX, writing)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
