//! The socket beside one session, over which hooks ask; the implementation of [`Desk`] answers.
//!
//! A proxy takes its [`Rendezvous`] and calls [`serve`]. Hooks and commands [`find`] the socket and have a [`Conversation`];
//! that half knows no async runtime.

mod conversation;
pub mod protocol;
mod rendezvous;
mod serve;

pub use conversation::{Conversation, ask};
use protocol::{Answer, Event};
pub use rendezvous::{Rendezvous, find, find_above, folders, places, safe};
pub(crate) use serve::is_welcome;
pub use serve::serve;

/// The beginning of every text that c3po puts into a session.
pub const MARK: &str = "[c3po]";

/// Decides the answers to hooks.
pub trait Desk: Send + Sync + 'static {
    /// Returns the hook's answer: at once and from memory, except for [`protocol::Name::Wait`].
    fn heard(&self, event: Event) -> impl Future<Output = Answer> + Send;

    /// Called when the hook has flushed the output of that offer.
    fn printed(&self, offer: u64);

    /// Called when the hook ended without printing that offer.
    fn not_printed(&self, offer: u64);
}
