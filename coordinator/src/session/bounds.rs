//! The limits of one link and the effect of exceeding each. Limits that hosts must know are in `shared::limits`.
//!
//! | bound | beyond it |
//! | --- | --- |
//! | [`FRAME_MAX`](c3po_shared::limits::FRAME_MAX) | the link ends |
//! | [`HELLO_MAX`](c3po_shared::limits::HELLO_MAX) before `hello` | the link ends |
//! | [`SILENCE_MAX`](c3po_shared::limits::SILENCE_MAX), [`HELLO_DEADLINE`], [`MESSAGE_DEADLINE`], [`ANSWER_DEADLINE`], [`WRITE_DEADLINE`] | the link ends |
//! | [`CONTROL_FRAMES_MAX`] | the link ends |
//! | [`REACH_MAX`] | `hello` is refused, a `session` ignored |
//! | [`CALLS_IN_FLIGHT`] | the call is refused |
//! | [`CALLS_AT_ONCE`] | the call waits, as do the calls after it |
//! | [`QUEUE`], [`QUEUE_BYTES`] | the link is not read |
//! | the budget of [`unfinished`](crate::unfinished) | reading of the link pauses until there is room |
//! | [`PER_SECOND`], after [`SAVED`] | reading of the link pauses until the next piece is due |
//! | [`PAGE`], [`PAGE_BYTES`] | the rest is sent in the next frame |
//! | [`MISSING_MAX`], [`ENDED_WAITS`] | the oldest entry is dropped |
//! | [`WRITE_BUFFER_MAX`] | the buffer is written before more is read or added |
//! | [`TOGETHER`], [`TURN`], [`OUTBOX_FULL`] | replies are written, and other links go on, before more is read |
//! | the shares of the key (`auth/turns.rs`) | the link goes on in its turn, or after a rest |
//! | [`RENEWAL_PAUSE`] | a heartbeat does not renew the lease |

use std::time::Duration;

use c3po_shared::limits::CALLS_IN_FLIGHT;

/// The deadline for `hello`, from the start of the connection.
pub(super) const HELLO_DEADLINE: Duration = Duration::from_secs(10);
/// The deadline for a whole message, from its first byte and including waits for the budget.
pub(crate) const MESSAGE_DEADLINE: Duration = Duration::from_secs(10);
/// How long a host may take to accept a frame.
pub(super) const WRITE_DEADLINE: Duration = Duration::from_secs(10);
/// How long a host may take to reply to a page of messages.
pub(super) const ANSWER_DEADLINE: Duration = Duration::from_secs(30);
/// How long calls may continue after the coordinator begins to stop. Hosts send their waits again elsewhere.
pub(super) const DRAIN: Duration = Duration::from_secs(3);
/// How long a wait of the same session has to take a new message before the message is also pushed.
pub(super) const WAITS_FIRST: Duration = Duration::from_millis(5);
/// The pause after a page could not be read from the store.
pub(super) const RETRY: Duration = Duration::from_secs(2);

/// Concurrent calls of one link, not counting waits. The limit keeps one link from filling the store's queue.
pub(super) const CALLS_AT_ONCE: usize = 4;
/// The size of the ledger's queue.
pub(super) const QUEUE: usize = 2 * CALLS_IN_FLIGHT;
/// The bytes of queued calls and receipts without a charge.
pub(super) const QUEUE_BYTES: usize = 16 * 1024;
/// Pieces read per second. A piece is part of a long frame, or a frame that arrives beside [`CALLS_AT_ONCE`] calls.
pub(super) const PER_SECOND: u32 = 250;
/// The burst that a link may save up, as time at [`PER_SECOND`].
pub(super) const SAVED: Duration = Duration::from_secs(2);
/// The size of a piece in bytes. A shorter frame has no pieces.
pub(super) const PIECE: usize = 4096;
/// Refused receipts that are remembered: as many as a proxy keeps without a reply.
pub(super) const MISSING_MAX: usize = 1_024;
/// Ended waits that are remembered: a cancellation is at most a few replies late.
pub(super) const ENDED_WAITS: usize = 16;
/// Events that are handled before the replies are written and other links go on.
pub(super) const TOGETHER: usize = 16;
/// The time after which no further one is handled together.
pub(super) const TURN: Duration = Duration::from_micros(500);
/// The pause between renewals of a lease: a heartbeat that is sooner costs no work of the store.
pub(super) const RENEWAL_PAUSE: Duration = Duration::from_secs(1);
/// The bytes of replies at which they are written before there are more.
pub(super) const OUTBOX_FULL: usize = 32 * 1024;
/// Pings and pongs between two messages. A host sends a message at least with each heartbeat.
pub(super) const CONTROL_FRAMES_MAX: usize = 128;
/// The ways that a session may report to be reachable by, repeated ones included.
pub(super) const REACH_MAX: usize = 32;
/// Messages in one `deliver` frame.
pub(super) const PAGE: usize = 16;
/// Bytes of messages in one `deliver` frame. A longer message is sent alone. Each link that reads slowly holds as many.
pub(super) const PAGE_BYTES: usize = 32 * 1024;

/// The read buffer in bytes. Every idle connection holds its buffer, and the default has 128 KiB.
pub(super) const READ_BUFFER: usize = 1024;
/// The longest frame that is sent, in bytes. A longer message has several.
pub(super) const FRAGMENT: usize = 16 * 1024;
/// The write buffer in bytes. The buffer never shrinks.
pub(super) const WRITE_BUFFER: usize = 4 * 1024;
/// The limit of the write buffer: it is written when it has more than [`WRITE_BUFFER`] bytes, so that no more than one frame
/// is added to them.
pub(super) const WRITE_BUFFER_MAX: usize = 2 * FRAGMENT;
