//! What is known of the session on this host, and told to the coordinator: all of it at once, as often as it changes.

use c3po_shared::receipt::Via;
use c3po_shared::vocabulary::State;
use c3po_shared::wire::SessionChange;

/// What is known of the session. Each telling holds everything, so that one may be lost or come twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// What the session does; `None` where nothing ever said it.
    pub state: Option<State>,
    /// The client's session.
    pub session_id: Option<String>,
    /// The ways into the session that are there; pushes only once one was confirmed.
    pub reach: Vec<Via>,
    /// Which context of the session it is, from 0.
    pub context: u64,
}

impl Facts {
    /// Returns them as the link says them.
    pub(super) fn change(&self) -> SessionChange {
        SessionChange {
            state: self.state,
            session_id: self.session_id.clone(),
            reach: Some(self.reach.clone()),
            context: Some(self.context),
        }
    }
}
