//! The questions that wait for people, for the status line: asked of the coordinator from the first status line on.

use std::time::Duration;

use c3po_shared::event::Envelope;
use c3po_shared::question::{WAITING_PATH, Waiting};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{Link, LinkStatus, Shared, State, Trust, WaitingAt, http};
use crate::config::as_written;

/// How often the coordinator is asked.
const EVERY: Duration = Duration::from_secs(30);

impl Link {
    /// Records that the client shows a status line.
    pub fn shows_status_line(&self) {
        let is_first =
            |status: &mut LinkStatus| !std::mem::replace(&mut status.has_status_line, true);
        self.shared.status.send_if_modified(is_first);
    }
}

/// Keeps the numbers in the status of the link, until `stop`. It begins with the first status line, so that a session without
/// one causes no requests, and neither does a host with a key alone. The login may change or end meanwhile.
pub async fn count_questions(link: Link, stop: CancellationToken) {
    stop.run_until_cancelled(count(&link.shared)).await;
}

async fn count(shared: &Shared) {
    let mut status = shared.status.subscribe();
    loop {
        let up = status.wait_for(|now| now.has_status_line && now.state == State::Connected);
        let Ok(coordinator) = up.await.map(|status| status.coordinator.clone()) else {
            return;
        };
        let waiting = ask(shared, &coordinator).await;
        let at = Instant::now();
        // Only the status line reads it.
        shared.status.send_if_modified(|status| {
            status.questions = waiting.map(|waiting| WaitingAt { waiting, at });
            false
        });
        sleep(EVERY).await;
    }
}

/// Returns the numbers; `None` if people's questions are not for this host, or no answer came.
async fn ask(shared: &Shared, coordinator: &str) -> Option<Waiting> {
    let endpoints = shared.directory.entry();
    let reader = shared
        .config
        .read_person(&endpoints.coordinators)
        .reads_at(&endpoints.coordinators)?;
    // The file may have named others since the link began: they get no credential that is not for them.
    if !reader.urls.iter().any(|url| as_written(url) == coordinator) {
        return None;
    }
    let bearer = reader
        .token
        .map(|token| format!("Bearer {}", token.expose()));
    let headers: Vec<_> = bearer
        .iter()
        .map(|bearer| ("Authorization", bearer.as_str()))
        .collect();
    let trust = Trust::new(reader.fingerprints);
    match http::get(coordinator, &trust, WAITING_PATH, &headers).await {
        Ok((200, body)) => {
            let answer = serde_json::from_str::<Envelope<Waiting>>(&body).ok()?;
            Some(answer.data)
        }
        _ => None,
    }
}
