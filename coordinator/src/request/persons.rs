//! The hosts of persons' names. They are in memory, because each command as a name like that of a host's person asks for one.

use std::collections::HashMap;

use c3po_shared::ids::AgentId;
use tokio::sync::Mutex;

use crate::store::{Key, Result, Store};

/// The hosts of all keys, also of ended ones, by the names of their persons. A former name of a host has no person.
#[derive(Debug, Default)]
pub(crate) struct Persons(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The change counter of the keys before they were read.
    changes: Option<u64>,
    hosts: HashMap<String, String>,
}

impl Persons {
    /// Returns the host whose person has that name, if it is the host of a key. A key that another coordinator has just made
    /// counts: the store is asked each time whether keys have changed.
    pub(super) async fn host_of(
        &self,
        store: &dyn Store,
        name: &AgentId,
    ) -> Result<Option<String>> {
        if !name.is_person_of_a_host() {
            return Ok(None);
        }
        // The counter is read first, so that a concurrent change is read twice rather than missed.
        let changes = Some(store.key_changes().await?);
        // While one request reads the keys, the others wait for it.
        let mut known = self.0.lock().await;
        if known.changes != changes {
            let keys = store.keys().await?;
            let person = |host: &str| (AgentId::of_person(host).look(), host.to_owned());
            let keys = keys.iter().filter(|key| !key.holds_a_former_name());
            // A new name that a rename holds does not count while a host has one that reads like it.
            let (held, real): (Vec<&Key>, _) = keys.partition(|key| key.only_holds_a_name());
            let hosts = held.into_iter().chain(real).map(Key::host);
            known.hosts = hosts.map(person).collect();
            known.changes = changes;
        }
        Ok(known.hosts.get(&name.look()).cloned())
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::config::Fleet;
    use crate::store::KeyStore;
    use crate::store::sqlite::SqliteStore;

    async fn store() -> (SqliteStore, TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c3po.db");
        let store = SqliteStore::open(&path, &Fleet::default()).await;
        (store.expect("a store"), folder)
    }

    fn id(name: &str) -> AgentId {
        name.parse().expect("an id")
    }

    /// Stores a key of that host.
    async fn add_key(store: &SqliteStore, host: &str) {
        add(store, host, serde_json::Value::Null).await;
    }

    /// Stores a key of that host with an end.
    async fn add(store: &SqliteStore, host: &str, end: serde_json::Value) {
        let key = serde_json::json!({"expires_at": end,
            "id": format!("{:08x}", host.as_bytes()[0]), "hash": "", "name": host, "host": host, "scope": "agent",
            "agents": ["*"], "created_at": "2026-01-01T00:00:00Z", "made_by": "test", "revision": 1});
        let key: Key = serde_json::from_value(key).expect("a key");
        assert!(store.put_key(&key, None, 10, None).await.expect("stored"));
    }

    #[tokio::test]
    async fn a_new_key_counts_at_once_and_keys_are_read_only_when_they_change() {
        let (store, _folder) = store().await;
        let persons = Persons::default();
        let host_of = async |name: &str| {
            let of = persons.host_of(&store, &id(name)).await;
            of.expect("it is read")
        };
        assert_eq!(host_of("nas-cli").await, None);
        for host in ["nas", "Laptop"] {
            add_key(&store, host).await;
            assert_eq!(host_of(&format!("{host}-CLI")).await.as_deref(), Some(host));
        }
        let noted = ("attic-cli".to_owned(), "attic".to_owned());
        persons.0.lock().await.hosts.extend([noted]);
        assert_eq!(host_of("attic-cli").await.as_deref(), Some("attic"));
        store.close().await;
    }

    #[tokio::test]
    async fn a_name_that_is_only_held_takes_no_hosts_person() {
        let (store, _folder) = store().await;
        add_key(&store, "VIC").await;
        // As after a rename that broke off.
        for host in ["vic", "new"] {
            add(&store, host, "2026-01-01T00:00:00Z".into()).await;
        }
        let persons = Persons::default();
        for (name, host) in [("vic-cli", "VIC"), ("new-cli", "new")] {
            let of = persons.host_of(&store, &id(name)).await;
            assert_eq!(of.expect("it is read").as_deref(), Some(host));
        }
        store.close().await;
    }
}
