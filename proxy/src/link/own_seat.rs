//! The seat of this process. It follows the name of the agent, and the log of shown messages follows it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use c3po_shared::ids::AgentId;
use uuid::Uuid;

use super::seats::Seat;
use super::{Kind, Shared};

/// How long the disk may take for a seat.
const SEAT_MAX: Duration = Duration::from_secs(1);

/// The seat that this process has, if it has one.
#[derive(Debug, Default)]
pub(super) struct OwnSeat(Option<Seat>);

impl OwnSeat {
    /// Takes the seat of a name and releases any other, and opens the log of that name. Without a seat, the lease of a dead
    /// process has to expire.
    pub(super) async fn sit(&mut self, shared: &Shared, name: &AgentId) {
        if matches!(shared.kind, Kind::Person { .. })
            || self.0.as_ref().is_some_and(|seat| seat.name == *name)
        {
            return;
        }
        let (older, seats, name, instance) = (
            self.0.take(),
            shared.seats.clone(),
            name.clone(),
            shared.instance,
        );
        let too_late = Arc::new(AtomicBool::new(false));
        let is_too_late = Arc::clone(&too_late);
        let taking = tokio::task::spawn_blocking(move || {
            older.map_or(Ok(()), Seat::give_up)?;
            let seat = seats.take(&name, instance)?;
            let shown = seats.shown(&name).inspect_err(|error| {
                tracing::debug!("cannot use the log of shown messages: {error}");
            });
            let seat = match seat {
                // It came after the deadline: release it, or the next process would count us as dead.
                Some(seat) if is_too_late.load(Ordering::Relaxed) => {
                    seat.give_up()?;
                    None
                }
                seat => seat,
            };
            io::Result::Ok((seat, shown.ok()))
        });
        let (seat, shown) = match tokio::time::timeout(SEAT_MAX, taking).await {
            Ok(Ok(Ok(taken))) => taken,
            Ok(Ok(Err(error))) => {
                tracing::debug!("could not take a seat: {error}");
                (None, None)
            }
            Ok(Err(_)) | Err(_) => {
                too_late.store(true, Ordering::Relaxed);
                tracing::debug!("could not take a seat in time");
                (None, None)
            }
        };
        self.0 = seat;
        // Never the log of another name: the next process reads only its own.
        *shared.shown() = shown;
    }

    /// Leaves the seat to another process, which runs the session now.
    pub(super) fn leave(&mut self) -> io::Result<()> {
        self.0.take().map_or(Ok(()), Seat::give_up)
    }

    /// Returns whether this process has no seat.
    pub(super) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the processes that this one is known to succeed.
    pub(super) fn succeeds(&self) -> Vec<Uuid> {
        self.0.as_ref().map(Seat::succeeds).unwrap_or_default()
    }
}
