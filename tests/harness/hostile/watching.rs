//! Records when each client reported that it was idle.

use std::sync::Arc;
use std::time::Duration;

use c3po_shared::time::Timestamp;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::checker::Idle;
use super::journal::Journal;
use super::seat::Watch;

/// The interval between two checks.
const LOOK: Duration = Duration::from_millis(200);

/// Records every idle period until the run is over.
pub(super) async fn watch(journal: &Journal, watches: &[Arc<Watch>], over: &CancellationToken) {
    let mut since: Vec<Option<Timestamp>> = vec![None; watches.len()];
    let mut ends = false;
    while !ends {
        ends = over.run_until_cancelled(sleep(LOOK)).await.is_none();
        for (seat, watch) in watches.iter().enumerate() {
            let now = Timestamp::now();
            match (since[seat], watch.is_idle() && !ends) {
                (None, true) => since[seat] = Some(now),
                (Some(from), false) => {
                    since[seat] = None;
                    journal.idle(Idle {
                        seat,
                        from,
                        to: now,
                    });
                }
                _ => {}
            }
        }
    }
}
