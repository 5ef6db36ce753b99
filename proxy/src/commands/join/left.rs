//! The credentials of this host that stay valid after a join although it no longer uses them.

use super::{Joining, Relation};
use crate::commands::stored_login::revocation;
use crate::config::PersonLogin;

/// The commands that revoke such credentials, on the machines of their coordinators.
#[derive(Debug, Default)]
pub(super) struct LeftBehind {
    /// The key for the coordinator before.
    key: Option<String>,
    /// The login of the host's person there.
    login: Option<String>,
    /// The key that another command has stored meanwhile.
    meanwhile: Option<String>,
}

impl LeftBehind {
    /// Returns the credentials that a join leaves: the key before if this coordinator does not know it, the login if this is
    /// another fleet, and the key that was in the file when it was written if it is not the key before.
    pub(super) fn of(
        joining: &Joining,
        relation: Relation,
        (knows_key, same_fleet): (bool, bool),
        key_in_file: Option<&str>,
        login: Option<&PersonLogin>,
    ) -> Self {
        let before = joining.older_key.as_deref();
        let is_elsewhere = relation != Relation::First && !knows_key;
        let is_of_others = relation == Relation::Instead && !same_fleet;
        let revoke = |id: &str| format!("c3po-coordinator keys revoke {id}");
        Self {
            key: before.filter(|_| is_elsewhere).map(revoke),
            login: login.filter(|_| is_of_others).map(revocation),
            meanwhile: key_in_file.filter(|id| before != Some(*id)).map(revoke),
        }
    }

    /// Returns all commands.
    pub(super) fn commands(&self) -> Vec<&str> {
        let all = [&self.key, &self.login, &self.meanwhile];
        all.into_iter().flatten().map(String::as_str).collect()
    }

    /// Returns the sentences about the coordinators before, each after a space; empty if there are none.
    pub(super) fn there(&self) -> String {
        let key = self.key.iter().map(|command| {
            format!(
                " Its key there may still be valid. To revoke it, run on that machine: `{command}`."
            )
        });
        let login = self.login.iter().map(|command| {
            format!(
                " The login of its person there stays valid, and is not used here: `c3po logout` ends it while that \
                 coordinator can be reached, or on its machine `{command}`."
            )
        });
        key.chain(login).collect()
    }

    /// Returns the sentence about another command that ran at the same time.
    pub(super) fn meanwhile(&self) -> Option<String> {
        let command = self.meanwhile.as_ref()?;
        Some(format!(
            "Another command stored a key in that file meanwhile, which this one replaced. To revoke it, run on its \
             coordinator's machine: `{command}`."
        ))
    }
}
