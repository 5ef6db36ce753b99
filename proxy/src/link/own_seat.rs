//! The seat of this process. It follows the name of the agent, and the log of shown messages follows it.

use std::future::pending;
use std::io;
use std::time::Duration;

use c3po_shared::ids::AgentId;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use super::seats::Seat;
use super::shown::ShownLog;
use super::{Kind, Shared};

/// How long the link waits for the disk.
const SEAT_MAX: Duration = Duration::from_secs(5);

/// The seat that this process has, if it has one.
#[derive(Debug, Default)]
pub(super) struct OwnSeat {
    seat: Option<Seat>,
    /// Until the disk has answered.
    taking: Option<Taking>,
}

/// A seat that is being taken, and the log of its name.
#[derive(Debug)]
struct Taking {
    name: AgentId,
    /// How long the link waits for it.
    until: Instant,
    task: JoinHandle<(Option<Seat>, ShownLog)>,
    /// Dropped with this: a seat that comes after that is released, or the next process would count us as dead.
    _wanted: DropGuard,
}

impl OwnSeat {
    /// Takes the seat of a name and releases any other, and opens the log of that name. Without a seat, the lease of a dead
    /// process has to expire.
    pub(super) async fn sit(&mut self, shared: &Shared, name: &AgentId) {
        if matches!(shared.kind, Kind::Person { .. })
            || self.seat.as_ref().is_some_and(|seat| seat.name == *name)
        {
            return;
        }
        let taking = self.taking.take_if(|taking| taking.name == *name);
        let taking = taking.unwrap_or_else(|| Taking::begins(shared, name, self.seat.take()));
        let until = taking.until;
        self.taking = Some(taking);
        if timeout_at(until, self.comes(shared)).await.is_err() {
            tracing::debug!("could not take a seat in time");
        }
    }

    /// Returns when the disk has given the seat and the log for which the link waited no longer. Cancel-safe.
    pub(super) async fn comes(&mut self, shared: &Shared) {
        let Some(taking) = &mut self.taking else {
            return pending().await;
        };
        // An error means that the process ends.
        if let Ok((seat, shown)) = (&mut taking.task).await {
            self.seat = seat;
            *shared.shown() = Some(shown);
        }
        self.taking = None;
    }

    /// Leaves the seat to another process, which runs the session now.
    pub(super) fn leave(&mut self) -> io::Result<()> {
        self.taking = None;
        self.seat.take().map_or(Ok(()), Seat::give_up)
    }

    /// Returns whether this process has no seat.
    pub(super) fn is_none(&self) -> bool {
        self.seat.is_none()
    }

    /// Returns the processes that this one is known to succeed.
    pub(super) fn succeeds(&self) -> Vec<Uuid> {
        self.seat.as_ref().map(Seat::succeeds).unwrap_or_default()
    }
}

impl Taking {
    fn begins(shared: &Shared, name: &AgentId, older: Option<Seat>) -> Self {
        let (seats, name, instance) = (shared.seats.clone(), name.clone(), shared.instance);
        let wanted = CancellationToken::new();
        let is_wanted = wanted.clone();
        let mut shown = seats.shown(&name);
        // Never the log of another name: the next process reads only its own.
        shared.shown().take_if(|other| !other.is_same(&shown));
        let of = name.clone();
        let task = tokio::task::spawn_blocking(move || {
            let taken = older
                .map_or(Ok(()), Seat::give_up)
                .and_then(|()| seats.take(&of, instance));
            // Opened later if that fails now.
            if let Err(error) = shown.open() {
                tracing::debug!("cannot use the log of shown messages: {error}");
            }
            let taken = taken.and_then(|seat| match seat {
                Some(seat) if is_wanted.is_cancelled() => seat.give_up().map(|()| None),
                seat => Ok(seat),
            });
            let seat = taken.unwrap_or_else(|error| {
                tracing::warn!(
                    "could not take a seat, so a later session may get another name: {error}"
                );
                None
            });
            (seat, shown)
        });
        Self {
            name,
            until: Instant::now() + SEAT_MAX,
            task,
            _wanted: wanted.drop_guard(),
        }
    }
}
