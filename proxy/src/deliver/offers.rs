//! What hooks were given to print, until they say that they did.

use std::collections::VecDeque;

use c3po_shared::ids::MessageId;
use c3po_shared::receipt::Via;

/// How many may be under way: more hooks than that never run at once.
const OFFERS_MAX: usize = 64;

/// What one hook was given.
#[derive(Debug)]
pub(super) struct Offer {
    number: u64,
    pub(super) ids: Vec<MessageId>,
    pub(super) via: Via,
    /// The client's name for the turn that the hook is of.
    pub(super) turn: Option<String>,
    /// Whether it says who the session is.
    pub(super) names: bool,
}

/// The offers under way, oldest first.
#[derive(Debug, Default)]
pub(super) struct Offers {
    offers: VecDeque<Offer>,
    last: u64,
}

impl Offers {
    /// Returns the number of the next offer.
    pub(super) fn next_number(&self) -> u64 {
        self.last + 1
    }

    /// Notes an offer. Returns the oldest one where there are too many.
    pub(super) fn add(&mut self, ids: Vec<MessageId>, via: Via, turn: Option<String>, names: bool) -> Option<Offer> {
        self.last += 1;
        self.offers.push_back(Offer { number: self.last, ids, via, turn, names });
        if self.offers.len() > OFFERS_MAX { self.offers.pop_front() } else { None }
    }

    /// Takes an offer; `None` where it is of no account any more.
    pub(super) fn take(&mut self, number: u64) -> Option<Offer> {
        let at = self.offers.iter().position(|offer| offer.number == number)?;
        self.offers.remove(at)
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        self.offers.clear();
    }
}
