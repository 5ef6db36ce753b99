//! The calls of a link: at work, or ended before their replies are written.

use std::collections::VecDeque;
use std::pin::pin;

use c3po_shared::catalogue::{Reply, Tool};
use c3po_shared::ids::CallId;
use c3po_shared::refusal::Refusal;
use c3po_shared::wire::RequestId;
use futures_util::StreamExt;
use futures_util::future::{AbortHandle, BoxFuture};
use futures_util::stream::FuturesUnordered;

use super::ledger::{Ledger, Noted};
use crate::request::Done;
use crate::unfinished::Charge;

/// A call that has begun.
pub(super) struct Running {
    /// Whether it may last for as long as its caller wants.
    pub(super) waits: bool,
    pub(super) abort: AbortHandle,
}

/// A call that ended, with the id of its request.
pub(super) struct Finished {
    pub(super) id: RequestId,
    pub(super) call: CallId,
    pub(super) tool: Tool,
    pub(super) outcome: Result<Done, Refusal>,
    /// The charge of the call, which its reply may need.
    pub(super) held: Option<Charge>,
}

impl Finished {
    /// Returns whether the reply gives a message to the session.
    pub(super) fn hands_a_message(&self) -> bool {
        matches!(
            self.outcome,
            Ok(Done {
                reply: Reply::Message(_),
                ..
            })
        )
    }
}

/// The calls at work; `None` for one that was cancelled.
pub(super) type Calls = FuturesUnordered<BoxFuture<'static, Option<Box<Finished>>>>;

/// Waits until the host has read, or for a turn. Work goes on meanwhile, so that none keeps its place in the store.
pub(super) async fn beside<T>(
    waiting: impl Future<Output = T>,
    calls: &mut Calls,
    ledger: &mut Ledger,
    finished: &mut VecDeque<Box<Finished>>,
    noted: &mut Option<Noted>,
) -> T {
    let mut waiting = pin!(waiting);
    loop {
        tokio::select! {
            biased;
            waited = &mut waiting => return waited,
            Some(call) = calls.next(), if !calls.is_empty() => finished.extend(call),
            entry = ledger.noted(), if noted.is_none() => *noted = Some(entry),
        }
    }
}
