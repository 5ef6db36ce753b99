//! The keys of a host that gets another name.

use c3po_shared::audit::{Entry, Event};
use c3po_shared::limits::KEYS_MAX;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::vocabulary::Scope;

use super::Principal;
use super::issue::{
    BY, CHANGE_TRIES, NewKey, all_agents, change, draft, entry, kept_keys, make_room, unchanged,
    vouching,
};
use crate::store::{FORMER_NAME, Key, Store};

/// The name of keys that hold the new name of a host while it gets that.
const NEW_NAME: &str = "new-name";

/// Holds the name of a host while agents and keys are moved to it or from it: an ended key has it, so that no host that joins
/// gets it, and none its person's name. `moves` is the log's text for the move that begins with it. Returns that key.
///
/// Errors: `UNAUTHORIZED` if the key that was presented has ended, `CONFLICT` if there is no room.
pub(crate) async fn hold_host(
    store: &dyn Store,
    host: &str,
    by: &Principal,
    moves: Option<&str>,
) -> Result<Key, Refusal> {
    let new = NewKey {
        name: moves.map_or(NEW_NAME, |_| FORMER_NAME).to_owned(),
        host: Some(host.to_owned()),
        scope: Scope::Read,
        agents: all_agents(),
        expires_in: None,
    };
    let (key, _) = draft(new, by.name())?;
    let key = Key {
        expires_at: Some(key.created_at),
        revoked_at: Some(key.created_at),
        ..key
    };
    let entry = moves.map(|text| {
        let entry = Entry::new(Event::KeyChanged).verb("moved");
        let why = format!("{BY}{}: {text}", by.name());
        entry.under(Some(&key.id)).because(why)
    });
    for _ in 0..CHANGE_TRIES {
        let keys = kept_keys(store).await?;
        let made_with = vouching(&keys, by.presented())?;
        make_room(store, &keys).await?;
        let put = store.put_key(&key, made_with, KEYS_MAX, entry.as_ref());
        if put.await? {
            return Ok(key);
        }
    }
    Err(Refusal::new(
        ErrorCode::Conflict,
        "other keys are being created at the same time; try again",
    ))
}

/// Moves the keys of a host to another host, except those that hold its name, and returns them. Their links and requests end
/// and reconnect under the new host.
pub(crate) async fn rename_host(
    store: &dyn Store,
    from: &str,
    to: &str,
    by: &Principal,
) -> Result<Vec<Key>, Refusal> {
    // The move has begun, and is completed even if the key that began it has ended.
    let keys = store.keys().await.map_err(unchanged)?;
    let mut renamed = Vec::new();
    for id in keys
        .iter()
        .filter(|key| key.host() == from && !key.only_holds_a_name())
        .map(|key| key.id.clone())
    {
        // No key is checked here: the caller's own key has another revision once it was renamed itself.
        let entry = entry("renamed", &id, by.name());
        let (key, _) = change(store, &id, None, &entry, |key| {
            key.host = Some(to.to_owned());
            Ok(true)
        })
        .await?;
        renamed.push(key);
    }
    Ok(renamed)
}
