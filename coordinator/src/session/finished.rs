//! A call of a link that ended, before its reply is written.

use c3po_shared::catalogue::{Reply, Tool};
use c3po_shared::ids::CallId;
use c3po_shared::refusal::Refusal;
use c3po_shared::wire::RequestId;

use crate::request::Done;
use crate::unfinished::Charge;

/// A call that ended, with the id of its request.
pub(super) struct Finished {
    pub(super) id: RequestId,
    pub(super) call: CallId,
    pub(super) tool: Tool,
    pub(super) outcome: Result<Done, Refusal>,
    /// The charge of the call, which its reply may need.
    pub(super) held: Option<Charge>,
}

impl Finished {
    /// Returns whether the reply gives a message to the session.
    pub(super) fn hands_a_message(&self) -> bool {
        matches!(
            self.outcome,
            Ok(Done {
                reply: Reply::Message(_),
                ..
            })
        )
    }
}
