//! The socket beside one session: hooks ask here, and whoever sits at the [`Desk`] answers.
//!
//! A proxy takes its [`Rendezvous`] and calls [`serve`]. Hooks and commands [`find`] the socket and have a [`Conversation`];
//! that half knows no async runtime.

mod conversation;
mod process;
pub mod protocol;
mod rendezvous;
mod serve;

pub use conversation::{Conversation, ask};
pub use process::process_age;
use protocol::{Answer, Event};
pub use rendezvous::{Rendezvous, find, find_above, folders, places, safe};
pub use serve::serve;

/// What every text of ours that goes into a session begins with.
pub const MARK: &str = "[c3po]";

/// Whoever decides what hooks print.
pub trait Desk: Send + Sync + 'static {
    /// Returns what the hook has to do: at once and from memory, but for [`protocol::Name::Wait`].
    fn heard(&self, event: Event) -> impl Future<Output = Answer> + Send;

    /// The hook has flushed the output of that offer.
    fn printed(&self, offer: u64);

    /// The hook went away without having printed that offer.
    fn not_printed(&self, offer: u64);
}
