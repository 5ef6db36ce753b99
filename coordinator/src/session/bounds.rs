//! Every bound of one link, and its effect where it is reached. Those that a host has to know are in `shared::limits`.
//!
//! | bound | beyond it |
//! | --- | --- |
//! | [`FRAME_MAX`](c3po_shared::limits::FRAME_MAX) | the link ends |
//! | [`HELLO_MAX`](c3po_shared::limits::HELLO_MAX) before `hello` | the link ends |
//! | [`SILENCE_MAX`](c3po_shared::limits::SILENCE_MAX), [`HELLO_DEADLINE`], [`MESSAGE_DEADLINE`], [`ANSWER_DEADLINE`], [`WRITE_DEADLINE`] | the link ends |
//! | [`CALLS_IN_FLIGHT`] | the call is refused |
//! | [`CALLS_AT_ONCE`] | the call waits, those behind it too |
//! | [`QUEUE`] | the link is not read |
//! | the budget of [`unfinished`](crate::unfinished) | the link is not read until there is room |
//! | [`PER_SECOND`], after [`SAVED`] | the link is not read until the next one is due |
//! | [`PAGE`], [`PAGE_BYTES`] | the rest follows in the next frame |
//! | [`MISSING_MAX`], [`ENDED_WAITS`] | the oldest is forgotten |
//! | [`TOGETHER`] | answers are written before more is read |

use std::time::Duration;

use c3po_shared::limits::CALLS_IN_FLIGHT;

/// The time from the connection to `hello`.
pub(super) const HELLO_DEADLINE: Duration = Duration::from_secs(10);
/// The time from the first byte of a message to its last, budget included.
pub(crate) const MESSAGE_DEADLINE: Duration = Duration::from_secs(10);
/// The time that a host may take to accept a frame.
pub(super) const WRITE_DEADLINE: Duration = Duration::from_secs(10);
/// The time that a host may take to answer a page of messages.
pub(super) const ANSWER_DEADLINE: Duration = Duration::from_secs(30);
/// The time that calls may still take once the coordinator stops. Waits are sent again elsewhere.
pub(super) const DRAIN: Duration = Duration::from_secs(3);
/// The time in which a wait of the same session may take a new message before it is pushed as well.
pub(super) const WAITS_FIRST: Duration = Duration::from_millis(5);
/// The pause after a page could not be read from the store.
pub(super) const RETRY: Duration = Duration::from_secs(2);

/// Calls of one link at work at once, waits aside: no link fills the store's queue ahead of the others.
pub(super) const CALLS_AT_ONCE: usize = 4;
/// Entries that wait for their turn.
pub(super) const QUEUE: usize = 2 * CALLS_IN_FLIGHT;
/// Frames beside [`CALLS_AT_ONCE`] calls, and pieces of long frames, that are read in a second.
pub(super) const PER_SECOND: u32 = 250;
/// The time for which a link may save up what [`PER_SECOND`] allows.
pub(super) const SAVED: Duration = Duration::from_secs(2);
/// Bytes of a piece. A shorter frame has none.
pub(super) const PIECE: usize = 4096;
/// Refused receipts that are remembered: as many as a proxy keeps without an answer.
pub(super) const MISSING_MAX: usize = 1_024;
/// Ended waits that are remembered: a cancellation crosses at most the last few answers.
pub(super) const ENDED_WAITS: usize = 16;
/// Events that are handled before the answers are written.
pub(super) const TOGETHER: usize = 16;
/// Messages in one `deliver` frame.
pub(super) const PAGE: usize = 16;
/// Bytes of messages in one `deliver` frame, well below the largest frame. A longer message comes alone.
pub(super) const PAGE_BYTES: usize = 256 * 1024;

/// Bytes read from a link at once. The default of 128 KiB is held by every idle connection.
pub(super) const READ_BUFFER: usize = 1024;
/// Bytes of frames that are written together. The buffer keeps the size of the most that it held.
pub(super) const WRITE_BUFFER: usize = 4 * 1024;
