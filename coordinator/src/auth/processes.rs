//! The ids of processes in the store: no credential can take over the process of another by guessing its id.

use uuid::Uuid;

use super::principal::{Principal, Who};

/// The namespace for process ids that are scoped to a credential: a constant random UUID.
const PROCESSES: Uuid = Uuid::from_u128(0x41b7_9c0e_52d4_4d0b_8a31_6f3e_1c90_0002);

fn scoped(scope: &str, instance: Uuid) -> Uuid {
    Uuid::new_v5(&PROCESSES, format!("{scope}\n{instance}").as_bytes())
}

impl Principal {
    /// Returns the stored id of a process behind links: a host that is renamed or joins again keeps its sessions.
    pub(crate) fn process_of_links(instance: Uuid) -> Uuid {
        scoped("links", instance)
    }

    /// Returns the stored id of a process whose id can be guessed: scoped to this key or login, and no id of links.
    pub(crate) fn process(&self, instance: Uuid) -> Uuid {
        match &self.who {
            Who::Key { .. } | Who::Login { .. } => scoped(self.name(), instance),
            Who::Anybody(_) | Who::Token | Who::Local => instance,
        }
    }

    /// Returns the ids under which earlier builds stored a process behind links.
    pub(crate) fn former_processes(&self, instance: Uuid) -> [Uuid; 3] {
        let of_host = |host| scoped(&format!("host {host}"), instance);
        let of_host = self.own_host().map_or(instance, of_host);
        [self.process(instance), of_host, instance]
    }
}

#[cfg(test)]
mod tests {
    use c3po_shared::vocabulary::Scope;

    use super::super::globs::AgentGlobs;
    use super::super::principal::tests::key;
    use super::*;

    #[test]
    fn processes_of_different_keys_are_different() {
        let instance = Uuid::from_u128(7);
        let globs = || AgentGlobs::new(vec!["*".into()]).expect("a glob");
        let other = Principal::key("ff".into(), 1, Scope::Agent, globs(), "nas".into());
        let id = key(Scope::Agent, "*").process(instance);
        assert!(id != other.process(instance) && id != instance);
        assert_eq!(id, key(Scope::Agent, "*").process(instance));
        assert_eq!(Principal::token().process(instance), instance);
        let of_links = Principal::process_of_links(id);
        assert!(of_links != id && of_links != Principal::process_of_links(instance));
    }
}
