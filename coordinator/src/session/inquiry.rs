//! What a person asks about the coordinator itself, and not of an agent's mail: the policy and the audit.

use c3po_shared::audit::AuditQuery;
use c3po_shared::policy::PolicyQuestion;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::wire::{Outgoing, RequestId, RpcError};
use serde::Serialize;

use crate::auth::Right;
use crate::request::{self, Caller, Office};

/// How many of them one link may have under way: a command asks one after another.
pub(super) const AT_ONCE: usize = 4;

/// What is asked.
pub(super) enum Inquiry {
    Policy(PolicyQuestion),
    Audit(AuditQuery),
}

/// Returns the frame that answers it.
pub(super) async fn answer(office: &Office, caller: &Caller, id: RequestId, inquiry: Inquiry) -> String {
    if let Err(refusal) = may_ask(caller) {
        return refused(&id, refusal);
    }
    match inquiry {
        Inquiry::Policy(question) => frame(&id, request::explain_policy(office, question).await),
        Inquiry::Audit(query) => frame(&id, request::audit_page(office, &query).await),
    }
}

/// Refuses a credential that is not for that, and whoever is no person: what all agents do is not for an agent to read.
fn may_ask(caller: &Caller) -> Result<(), Refusal> {
    caller.principal.check(Right::Operate)?;
    match caller.tenure {
        None => Ok(()),
        Some(_) => {
            let error = "a session may not read the policy or the audit";
            Err(Refusal::new(ErrorCode::Forbidden, error).suggest("A person asks with c3po policy or c3po audit."))
        }
    }
}

fn frame<T: Serialize>(id: &RequestId, outcome: Result<T, Refusal>) -> String {
    match outcome {
        Ok(result) => Outgoing::result(id, &result).text(),
        Err(refusal) => refused(id, refusal),
    }
}

/// Returns the frame that refuses it.
pub(super) fn refused(id: &RequestId, refusal: Refusal) -> String {
    Outgoing::error(Some(id), &RpcError::from(refusal)).text()
}
