//! The events that end a link from elsewhere. Their tokens are shared by many links, and each wait at one takes its lock twice, so a
//! link waits at each once, and not at each turn of its loop.

use std::future::pending;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio_util::sync::CancellationToken;

use crate::auth::Principal;
use crate::presence::Present;

/// An event that ends a link, or begins its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interruption {
    /// The coordinator stops.
    Stop,
    /// Another connection has the agent.
    Replaced,
    /// The credential has ended.
    Revoked,
}

/// The interruptions of one link. Each comes once, and anew after the link has another agent.
pub(super) struct Interruptions(FuturesUnordered<BoxFuture<'static, Interruption>>);

impl Interruptions {
    pub(super) fn new(
        stop: CancellationToken,
        present: Option<&Present>,
        principal: Arc<Principal>,
    ) -> Self {
        let all = FuturesUnordered::new();
        all.push(
            async move { stop.cancelled().await }
                .map(|()| Interruption::Stop)
                .boxed(),
        );
        if let Some(present) = present {
            let replaced = present.replaced();
            all.push(replaced.map(|()| Interruption::Replaced).boxed());
        }
        let ended = async move { principal.ended().await };
        all.push(ended.map(|()| Interruption::Revoked).boxed());
        Self(all)
    }

    /// Waits for the next one. Cancel-safe.
    pub(super) async fn next(&mut self) -> Interruption {
        match self.0.next().await {
            Some(interruption) => interruption,
            None => pending().await,
        }
    }
}
