//! Does what nobody asks for: wakes an idle session when something has come that it should not sleep over.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::push::{InboxSocket, Todo};
use super::ways::Way;
use super::{Inside, LastHop, Waiter};
use crate::local::protocol::Answer;

/// How long a post to the session's inbox socket may take.
const POST_MAX: Duration = Duration::from_secs(2);
/// With this code a hook that waited has its client read what it wrote to standard error.
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
        let (todo, waiter) = hop.with(Inside::next);
        let failed = match todo {
            Todo::Look(None) => {
                news.await;
                continue;
            }
            Todo::Look(Some(at)) => {
                // Whichever comes first: both mean another look.
                let _ = tokio::time::timeout_at(at, news).await;
                continue;
            }
            Todo::AskClient => {
                let (folder, pid) = hop.with(|inside| inside.client.clone());
                let client = off_this_thread(move || Client::read(&folder, pid)).await.unwrap_or_default();
                hop.with(|inside| inside.hop.client_is(client, Instant::now()));
                hop.arrivals.decided.notify_waiters();
                continue;
            }
            Todo::Read(path) => {
                let transcript = hop.with(|inside| Arc::clone(&inside.transcript));
                let read = move || {
                    let mut transcript = transcript.lock().unwrap_or_else(PoisonError::into_inner);
                    transcript.conversation(&path)
                };
                let named = off_this_thread(read).await.and_then(|read| {
                    read.inspect_err(|error| tracing::debug!("the client's transcript is no evidence: {error}")).ok()
                });
                hop.with(|inside| inside.hop.conversation(named.as_ref(), Instant::now()));
                hop.arrivals.decided.notify_waiters();
                continue;
            }
            Todo::Post(socket, text) => post(&socket, &text).await.err().map(|error| {
                tracing::debug!("the session's inbox socket does not take messages: {error}");
                Way::Inbox
            }),
            Todo::Wake(text) => (!wake(waiter, text)).then_some(Way::Rewake),
            Todo::Notify(text) => hop.arrivals.notifications.try_send(text).is_err().then_some(Way::Channel),
        };
        if let Some(way) = failed {
            hop.with(|inside| inside.hop.not_pushed(way, Instant::now()));
        }
    }
}

/// Does what blocks on a thread of its own; nothing where that is not to be had.
async fn off_this_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

/// Has the hook that waits wake its session. Returns whether it was still there.
fn wake(waiter: Option<Waiter>, text: String) -> bool {
    let answer = Answer { stderr: text, exit: WAKES, ..Answer::default() };
    waiter.is_some_and(|waiter| waiter.wake.send(answer).is_ok())
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
        stream.write_all(lines.as_bytes()).await?;
        // The lines are whole: a client that has closed its side already has them.
        let _ = stream.shutdown().await;
        Ok(())
    };
    timeout(POST_MAX, writing).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
