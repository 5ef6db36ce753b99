//! The reading side of a link: the bytes of a message that is not whole yet are charged to a budget and have a deadline.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use c3po_shared::limits::HELLO_MAX;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::bounds::MESSAGE_DEADLINE;
use crate::unfinished::{Account, Held};

/// The bytes of a control frame from a client beside its payload.
const CONTROL_HEAD: usize = 6;

/// A stream whose reader reports which messages were whole.
pub(super) struct Intake<S> {
    stream: S,
    account: Account,
    /// Bytes that were read since the last message was whole.
    unfinished: usize,
    /// How many of them there may be.
    longest: usize,
    /// Waits for room, with what is missing.
    room: Option<(usize, BoxFuture<'static, Held>)>,
    /// When a message that has begun is overdue.
    overdue: Option<Pin<Box<Sleep>>>,
}

impl<S> Intake<S> {
    pub(super) fn new(stream: S, account: Account) -> Self {
        Self { stream, account, unfinished: 0, longest: HELLO_MAX, room: None, overdue: None }
    }

    /// Accepts messages of every length that the WebSocket accepts.
    pub(super) fn welcome(&mut self) {
        self.longest = usize::MAX;
    }

    /// Notes that a message was whole.
    pub(super) fn settle(&mut self) {
        self.unfinished = 0;
        self.overdue = None;
        self.account.settle();
    }

    /// Notes a control frame, which may stand between the fragments of a message and is no part of it.
    pub(super) fn note_control(&mut self, payload: usize) {
        self.unfinished = self.unfinished.saturating_sub(payload + CONTROL_HEAD);
        if self.unfinished == 0 {
            self.settle();
        }
    }

    /// Waits until the budget has room for so many bytes more.
    fn poll_room(&mut self, cx: &mut Context<'_>, more: usize) -> Poll<()> {
        if self.room.is_none() {
            let missing = self.account.missing(self.unfinished + more);
            self.room = missing.map(|missing| (missing, Box::pin(self.account.room(missing)) as BoxFuture<'_, _>));
        }
        if let Some((missing, waiting)) = &mut self.room {
            let held = ready!(waiting.as_mut().poll(cx));
            self.account.keep(held, *missing);
            self.room = None;
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> Intake<S> {
    fn poll_within_budget(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_room(cx, buffer.remaining()));
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        self.unfinished += buffer.filled().len() - before;
        if self.unfinished > self.longest {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "a message longer than a hello")));
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Intake<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = this.poll_within_budget(cx, buffer);
        // Only whoever has to be waited for is late: what has arrived is read, however long the link was not.
        if polled.is_ready() || this.unfinished == 0 {
            return polled;
        }
        let overdue = this.overdue.get_or_insert_with(|| Box::pin(sleep(MESSAGE_DEADLINE)));
        overdue.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Intake<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::{Duration, Instant};

    use super::*;
    use crate::unfinished::{Budget, Room};

    fn intake() -> (DuplexStream, Intake<DuplexStream>) {
        let (theirs, ours) = duplex(64);
        (theirs, Intake::new(ours, Budget::default().account(&Room::default())))
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_has_begun_is_overdue_however_it_dribbles() {
        let (mut theirs, mut ours) = intake();
        let began = Instant::now();
        let dribbling = tokio_util::task::TaskTracker::new();
        dribbling.spawn(async move {
            while theirs.write_all(b"x").await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        });
        let error = loop {
            if let Err(error) = ours.read(&mut [0; 8]).await {
                break error;
            }
        };
        assert_eq!((error.kind(), began.elapsed()), (io::ErrorKind::TimedOut, MESSAGE_DEADLINE));
    }

    #[tokio::test]
    async fn before_hello_a_message_is_no_longer_than_one() {
        let (theirs, mut ours) = intake();
        let writing = tokio_util::task::TaskTracker::new();
        let write =
            |mut theirs: DuplexStream| async move { theirs.write_all(&vec![b'x'; 2 * HELLO_MAX]).await.is_ok() };
        writing.spawn(write(theirs));
        let error = ours.read_to_end(&mut Vec::new()).await.expect_err("it is too long");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);

        let (theirs, mut ours) = intake();
        ours.welcome();
        writing.spawn(write(theirs));
        assert_eq!(ours.read_to_end(&mut Vec::new()).await.expect("read"), 2 * HELLO_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_between_two_messages_has_no_deadline_and_control_frames_begin_none() {
        let (mut theirs, mut ours) = intake();
        for payload in [0, 20] {
            theirs.write_all(&vec![0; CONTROL_HEAD + payload]).await.expect("written");
            assert_eq!(ours.read(&mut [0; 64]).await.expect("read"), CONTROL_HEAD + payload);
            ours.note_control(payload);
            let waited = tokio::time::timeout(10 * MESSAGE_DEADLINE, ours.read(&mut [0; 8])).await;
            assert!(waited.is_err(), "nothing is overdue");
        }
        theirs.write_all(b"x").await.expect("written");
        ours.read_u8().await.expect("read");
        ours.settle();
        assert!(tokio::time::timeout(10 * MESSAGE_DEADLINE, ours.read(&mut [0; 8])).await.is_err());
    }
}
