//! TLS handshakes: they take turns, because a recorded hello costs its sender nothing and this machine a signature.

use std::future::poll_fn;
use std::io;
use std::mem::replace;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread::available_parallelism;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;
use tokio::task::{block_in_place, yield_now};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The turns of the handshakes of a port: half of the cores may work on them, so that a flood leaves the others to everybody
/// else.
#[derive(Debug, Clone)]
pub(super) struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self(Arc::new(Semaphore::new((cores / 2).max(1))))
    }
}

impl Turns {
    /// Polls the work only in its turn, in order of arrival, after everybody else who has something to do. It has no turn while
    /// it waits for the other side.
    async fn apply<T>(self, mut work: Pin<Box<impl Future<Output = T>>>) -> T {
        loop {
            let turn = self.0.acquire().await;
            yield_now().await;
            let polled = poll_fn(|context| Poll::Ready(aside(|| work.as_mut().poll(context))));
            if let Poll::Ready(done) = polled.await {
                return done;
            }
            drop(turn);
            woken().await;
        }
    }
}

/// Runs work that may take milliseconds, such as a signature with a long key. The other tasks of the worker go on elsewhere
/// meanwhile, if the runtime has workers.
fn aside<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => block_in_place(work),
        _ => work(),
    }
}

/// Waits until this task is woken, by the work that it polled before.
async fn woken() {
    let mut is_woken = false;
    poll_fn(|_| {
        if replace(&mut is_woken, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// Accepts TLS connections of a port.
pub(super) struct Acceptor {
    tls: TlsAcceptor,
    turns: Turns,
}

impl Acceptor {
    /// Returns the acceptor with that certificate.
    pub(super) fn new(config: Arc<ServerConfig>, turns: &Turns) -> Self {
        Self {
            tls: TlsAcceptor::from(config),
            turns: turns.clone(),
        }
    }

    /// Shakes hands. Errors: the other side does not speak TLS as this coordinator does, or leaves.
    ///
    /// The state of the handshake is boxed once: there are many at a time.
    pub(super) fn accept<S>(&self, stream: S) -> impl Future<Output = io::Result<TlsStream<S>>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let handshake = Box::pin(self.tls.accept(stream));
        self.turns.clone().apply(handshake)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::pin::pin;

    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn work_waits_for_its_turn_and_has_none_while_it_waits_for_others() {
        let turns = Turns(Arc::new(Semaphore::new(1)));
        let mut waits = pin!(turns.clone().apply(Box::pin(pending::<()>())));
        while turns.0.available_permits() == 1 {
            assert!(poll!(waits.as_mut()).is_pending());
        }
        let mut next = pin!(turns.clone().apply(Box::pin(async { 7 })));
        for _ in 0..3 {
            assert!(poll!(next.as_mut()).is_pending(), "it has no turn");
        }
        assert!(poll!(waits.as_mut()).is_pending());
        assert_eq!(next.await, 7, "the first one waits for the other side");
    }
}
