//! The reading side of a connection: the bytes of an incomplete message are charged, counted and have a deadline.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Duration, Sleep, sleep};

use super::frames::Frames;
use super::records::Records;
use super::{Account, Charge};

/// The size of a client's control frame without its payload.
const CONTROL_HEAD: usize = 6;

/// A stream whose reader reports each complete message.
pub(crate) struct Intake<S> {
    stream: S,
    /// The account to charge; `None` once the budget no longer applies.
    account: Option<Account>,
    /// Bytes read since the last complete message.
    unfinished: usize,
    /// The limit of these bytes.
    longest: usize,
    /// The deadline of a message, from its first byte.
    within: Duration,
    /// A pending charge, with its amount.
    room: Option<(usize, BoxFuture<'static, Charge>)>,
    /// The timer of the deadline of the present message.
    overdue: Option<Pin<Box<Sleep>>>,
    /// The position in the frames; `None` before the upgrade to a WebSocket.
    frames: Option<Frames>,
    /// The position in the records; `None` without TLS.
    records: Option<Records>,
}

impl<S> Intake<S> {
    /// Charges messages of at most `longest` bytes, each with the deadline `within`.
    pub(crate) fn new(stream: S, account: Account, longest: usize, within: Duration) -> Self {
        Self {
            stream,
            account: Some(account),
            unfinished: 0,
            longest,
            within,
            room: None,
            overdue: None,
            frames: None,
            records: None,
        }
    }

    /// Follows the records of TLS from now on.
    pub(crate) fn of_tls(self) -> Self {
        Self {
            records: Some(Records::default()),
            ..self
        }
    }

    /// Follows the frames of a WebSocket from now on.
    pub(crate) fn framed(self) -> Self {
        Self {
            frames: Some(Frames::default()),
            ..self
        }
    }

    /// Returns the stream.
    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }

    /// Returns the stream alone.
    pub(crate) fn into_stream(self) -> S {
        self.stream
    }

    /// Returns whether a long message was just read, and nothing beyond it.
    pub(crate) fn is_behind_long(&self) -> bool {
        self.frames.as_ref().is_some_and(Frames::is_behind_long)
    }

    /// Raises the limit for messages from now on.
    pub(crate) fn allow(&mut self, longest: usize) {
        // One message with its frames, and the beginning of the next one.
        self.longest = 2 * longest;
        if let Some(account) = &mut self.account {
            account.allow(longest);
        }
    }

    /// Ends charging: later input has other limits. Records of TLS take turns from now on.
    pub(crate) fn finish(&mut self) {
        self.settle(0);
        self.account = None;
        self.begin_turn();
    }

    /// Begins the next turn. Returns whether the one before is over, so that others go first.
    pub(crate) fn begin_turn(&mut self) -> bool {
        let is_over = self.is_turn_over();
        if is_over {
            self.frames.iter_mut().for_each(Frames::begin_turn);
            self.records.iter_mut().for_each(Records::begin_turn);
        }
        is_over
    }

    fn is_turn_over(&self) -> bool {
        self.is_turn_of_frames_over() || self.records.as_ref().is_some_and(Records::is_turn_over)
    }

    fn is_turn_of_frames_over(&self) -> bool {
        self.frames.as_ref().is_some_and(Frames::is_turn_over)
    }

    /// Records that a message of this size is complete. Returns its charge, to be held until the message is processed.
    pub(crate) fn settle(&mut self, bytes: usize) -> Option<Charge> {
        // The frames of a short message may be long, because they may be empty.
        let read = std::mem::take(&mut self.unfinished).max(bytes);
        self.overdue = None;
        self.account
            .as_mut()
            .and_then(|account| account.settle(bytes, read))
    }

    /// Records a control frame. It may arrive between fragments of a message and is not part of it.
    pub(crate) fn note_control(&mut self, payload: usize) {
        self.unfinished = self.unfinished.saturating_sub(payload + CONTROL_HEAD);
        if self.unfinished == 0 {
            self.settle(0);
        }
    }

    /// Waits until the budget has room for more. Returns how many bytes may be read: those free or already charged.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        let Some(account) = &mut self.account else {
            return Poll::Ready(usize::MAX);
        };
        if self.room.is_none() {
            let missing = account.missing(self.unfinished + 1);
            self.room = missing
                .map(|missing| (missing, Box::pin(account.room(missing)) as BoxFuture<'_, _>));
        }
        if let Some((missing, waiting)) = &mut self.room {
            let held = ready!(waiting.as_mut().poll(cx));
            account.keep(held, *missing);
            self.room = None;
        }
        Poll::Ready(account.covers() - self.unfinished)
    }
}

impl<S: AsyncRead + Unpin> Intake<S> {
    fn poll_within_budget(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.account.is_none() {
            return self.poll_in_turn(cx, buffer);
        }
        if self.is_turn_of_frames_over() {
            // The reader begins the next turn.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let within_frame = self.frames.as_ref().map_or(usize::MAX, Frames::most);
        let within_message = self.longest.saturating_sub(self.unfinished);
        if within_message == 0 {
            // A handshake may have ended within what was read; else it is overdue in time.
            return match &self.frames {
                None => Poll::Pending,
                Some(_) => Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a longer message than there may be",
                ))),
            };
        }
        let most = ready!(self.poll_room(cx))
            .min(buffer.remaining())
            .min(within_frame)
            .min(within_message);
        self.unfinished += ready!(self.poll_part(most, cx, buffer))?;
        Poll::Ready(Ok(()))
    }

    /// Reads without a budget. Records of TLS are read until others have their turn.
    fn poll_in_turn(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(records) = &self.records else {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        };
        if records.is_turn_over() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let most = records.most().min(buffer.remaining());
        self.poll_part(most, cx, buffer).map_ok(drop)
    }

    /// Reads at most so many bytes. Returns how many.
    fn poll_part(
        &mut self,
        most: usize,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(most));
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
        let read = part.filled().len();
        if let Some(frames) = &mut self.frames {
            frames.note(part.filled());
        }
        if let Some(records) = &mut self.records {
            records.note(part.filled());
        }
        buffer.advance(read);
        Poll::Ready(Ok(read))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Intake<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = this.poll_within_budget(cx, buffer);
        // The deadline applies only while waiting: data that has arrived is read, even if the link was not read for long.
        if polled.is_ready() || this.unfinished == 0 || this.is_turn_of_frames_over() {
            return polled;
        }
        let overdue = this
            .overdue
            .get_or_insert_with(|| Box::pin(sleep(this.within)));
        overdue
            .as_mut()
            .poll(cx)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Intake<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::task::unconstrained;
    use tokio::time::Instant;

    use super::*;
    use crate::unfinished::{Budget, Room};

    const LONGEST: usize = 16 << 10;
    const WITHIN: Duration = Duration::from_secs(10);

    fn intake() -> (DuplexStream, Intake<DuplexStream>) {
        let (theirs, ours) = duplex(64);
        (
            theirs,
            Intake::new(
                ours,
                Budget::within(None).account(&Room::default(), LONGEST),
                LONGEST,
                WITHIN,
            ),
        )
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
        assert_eq!(
            (error.kind(), began.elapsed()),
            (io::ErrorKind::TimedOut, WITHIN)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_beginning_takes_no_room_however_large_the_buffer_is() {
        let (budget, room) = (Budget::within(None), Room::default());
        let mut begun = Vec::new();
        for _ in 0..100 {
            let (mut theirs, ours) = duplex(64);
            let mut ours = Intake::new(ours, budget.account(&room, LONGEST), LONGEST, WITHIN);
            theirs.write_all(b"x").await.expect("written");
            let read = tokio::time::timeout(WITHIN, ours.read(&mut [0; LONGEST]))
                .await
                .expect("there is room");
            begun.push((theirs, ours, read.expect("read")));
        }
        assert!(begun.iter().all(|(_, _, read)| *read == 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_is_as_long_as_is_allowed_and_no_longer() {
        let (theirs, mut ours) = intake();
        let writing = tokio_util::task::TaskTracker::new();
        let write = |mut theirs: DuplexStream| async move {
            theirs.write_all(&vec![b'x'; 2 * LONGEST]).await.is_ok()
        };
        writing.spawn(write(theirs));
        let error = ours
            .read_to_end(&mut Vec::new())
            .await
            .expect_err("it is too long");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);

        let (theirs, mut ours) = intake();
        ours.allow(2 * LONGEST);
        writing.spawn(write(theirs));
        assert_eq!(
            ours.read_to_end(&mut Vec::new()).await.expect("read"),
            2 * LONGEST
        );

        let (theirs, mut ours) = intake();
        ours.finish();
        writing.spawn(write(theirs));
        assert_eq!(
            ours.read_to_end(&mut Vec::new()).await.expect("read"),
            2 * LONGEST
        );
    }

    #[tokio::test]
    async fn input_right_behind_the_longest_message_is_left_for_the_next_one() {
        let (mut theirs, ours) = duplex(8 * LONGEST);
        theirs
            .write_all(&vec![b'x'; 3 * LONGEST])
            .await
            .expect("written");
        let account = Budget::within(None).account(&Room::default(), LONGEST);
        let mut intake = Intake::new(ours, account, LONGEST, WITHIN);
        let (mut buffer, mut read) = (vec![0; 8 * LONGEST], 0);
        while read < LONGEST {
            read += intake.read(&mut buffer).await.expect("read");
        }
        intake.finish();
        read += intake.read(&mut buffer).await.expect("read");
        assert_eq!(read, 3 * LONGEST);
    }

    #[tokio::test(start_paused = true)]
    async fn short_records_of_tls_take_turns() {
        let (mut theirs, ours) = duplex(1 << 20);
        let (records, account) = (1_000, Budget::within(None));
        for _ in 0..records {
            let record = [&[23, 3, 3, 0, 22][..], &[0; 22]].concat();
            theirs.write_all(&record).await.expect("written");
        }
        drop(theirs);
        let account = account.account(&Room::default(), LONGEST);
        let mut ours = Intake::new(ours, account, LONGEST, WITHIN).of_tls();
        ours.finish();
        let (mut turns, mut read) = (0, 0);
        loop {
            let mut buffer = vec![0; LONGEST];
            let reading = unconstrained(ours.read(&mut buffer));
            match futures_util::poll!(std::pin::pin!(reading)) {
                Poll::Ready(Ok(0)) => break,
                Poll::Ready(part) => read += part.expect("read"),
                Poll::Pending => {
                    assert!(ours.begin_turn() && !ours.begin_turn());
                    turns += 1;
                }
            }
        }
        assert_eq!(read, records * 27);
        assert!(turns >= records / 32, "{turns}");
    }

    #[tokio::test(start_paused = true)]
    async fn frames_that_have_arrived_are_not_overdue_at_the_end_of_a_turn() {
        let (mut theirs, ours) = duplex(1 << 16);
        let account = Budget::within(None).account(&Room::default(), LONGEST);
        let mut ours = Intake::new(ours, account, LONGEST, WITHIN).framed();
        // The beginning of a text, with empty frames.
        let arrived = [[1, 0x80, 0, 0, 0, 0], [0, 0x80, 0, 0, 0, 0]]
            .concat()
            .repeat(300);
        theirs.write_all(&arrived).await.expect("there is room");
        let (mut turns, mut read) = (0, 0);
        while read < arrived.len() {
            let mut buffer = [0; 64];
            let reading = unconstrained(ours.read(&mut buffer));
            match futures_util::poll!(std::pin::pin!(reading)) {
                Poll::Ready(part) => read += part.expect("it has arrived"),
                Poll::Pending => {
                    assert!(ours.begin_turn());
                    turns += 1;
                    sleep(WITHIN).await;
                }
            }
        }
        assert_eq!(turns, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_between_two_messages_has_no_deadline_and_control_frames_begin_none() {
        let (mut theirs, mut ours) = intake();
        for payload in [0, 20] {
            theirs
                .write_all(&vec![0; CONTROL_HEAD + payload])
                .await
                .expect("written");
            assert_eq!(
                ours.read(&mut [0; 64]).await.expect("read"),
                CONTROL_HEAD + payload
            );
            ours.note_control(payload);
            let waited = tokio::time::timeout(10 * WITHIN, ours.read(&mut [0; 8])).await;
            assert!(waited.is_err(), "nothing is overdue");
        }
        theirs.write_all(b"x").await.expect("written");
        ours.read_u8().await.expect("read");
        ours.settle(1);
        assert!(
            tokio::time::timeout(10 * WITHIN, ours.read(&mut [0; 8]))
                .await
                .is_err()
        );
    }
}
