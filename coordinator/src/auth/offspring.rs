//! The credentials that a login or a key has made, itself or through others. They outlive it.

use c3po_shared::audit::Event;
use c3po_shared::limits::AUDIT_PAGE_MAX;
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::{LoginScope, Scope};
use schemars::JsonSchema;
use serde::Serialize;

use super::Principal;
use super::issue::{ROTATED, maker_in};
use crate::clock;
use crate::store::{Invite, Key, Login, Store, StoreError};

/// A valid credential that a login or a key has made, or a key that it rotated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct MadeCredential {
    /// `login`, `key` or `invite`.
    kind: &'static str,
    /// Its id.
    id: String,
    /// The name of the person or of the key's holder; absent for an invite.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Its scope.
    scope: &'static str,
    /// Its maker: `login-ID`, the id of a key, or `invite ID`.
    made_by: String,
    /// Of a key that the maker rotated, itself or through others, and so has had: the one that did.
    #[serde(skip_serializing_if = "Option::is_none")]
    rotated_by: Option<String>,
    /// Absent if the maker has made it. True if it only may have: the key was made after it, with an invite that is used up
    /// and no longer stored.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_uncertain: bool,
}

/// A login or a key that may have made others.
pub(crate) struct Maker {
    label: String,
    created_at: Timestamp,
    is_admin: bool,
    is_key: bool,
}

impl From<&Login> for Maker {
    fn from(login: &Login) -> Self {
        Self {
            label: Principal::label_of_login(&login.id),
            created_at: login.created_at,
            is_admin: login.scope == LoginScope::Admin,
            is_key: false,
        }
    }
}

impl From<&Key> for Maker {
    fn from(key: &Key) -> Self {
        Self {
            label: key.id.clone(),
            created_at: key.created_at,
            is_admin: key.scope == Scope::Admin,
            is_key: true,
        }
    }
}

/// Returns the valid credentials that the maker has made, and those that it may have made.
pub(crate) async fn of(
    store: &dyn Store,
    maker: &Maker,
) -> Result<Vec<MadeCredential>, StoreError> {
    if !maker.is_admin {
        return Ok(Vec::new());
    }
    let all = all(
        store.logins().await?,
        store.keys().await?,
        store.invites().await?,
    );
    Ok(made(maker, all, &rotations(store).await?))
}

/// A key got a new secret.
struct Rotation {
    key: String,
    by: String,
}

/// Returns the rotations that the log has. One that it has lost is not found.
async fn rotations(store: &dyn Store) -> Result<Vec<Rotation>, StoreError> {
    let (mut found, mut after) = (Vec::new(), 0);
    loop {
        let page = store.audit(after, AUDIT_PAGE_MAX).await?;
        let Some(last) = page.last() else {
            return Ok(found);
        };
        after = last.position;
        let rotated = page.into_iter().filter(|entry| {
            entry.event == Event::KeyChanged && entry.verb.as_deref() == Some(ROTATED)
        });
        found.extend(rotated.filter_map(|entry| {
            let by = maker_in(entry.why.as_deref()?)?.to_owned();
            Some(Rotation {
                key: entry.key?,
                by,
            })
        }));
    }
}

/// A credential with its name as a maker.
struct Record {
    label: String,
    credential: MadeCredential,
    created_at: Option<Timestamp>,
    is_valid: bool,
}

fn all(logins: Vec<Login>, keys: Vec<Key>, invites: Vec<Invite>) -> Vec<Record> {
    let now = clock::now();
    let of_login = |login: Login| Record {
        label: Principal::label_of_login(&login.id),
        is_valid: login.is_valid(now),
        created_at: Some(login.created_at),
        credential: credential(
            "login",
            login.id,
            Some(login.name),
            login.scope.as_str(),
            login.made_by,
        ),
    };
    let of_key = |key: Key| Record {
        label: key.id.clone(),
        is_valid: key.is_valid(now),
        created_at: Some(key.created_at),
        credential: credential(
            "key",
            key.id,
            Some(key.name),
            key.scope.as_str(),
            key.made_by,
        ),
    };
    let of_invite = |invite: Invite| Record {
        label: label_of_invite(&invite.id),
        is_valid: true,
        created_at: None,
        credential: credential(
            "invite",
            invite.id,
            None,
            invite.scope.as_str(),
            invite.made_by.unwrap_or_default(),
        ),
    };
    let logins = logins.into_iter().map(of_login);
    let rest = keys
        .into_iter()
        .map(of_key)
        .chain(invites.into_iter().map(of_invite));
    logins.chain(rest).collect()
}

fn credential(
    kind: &'static str,
    id: String,
    name: Option<String>,
    scope: &'static str,
    made_by: String,
) -> MadeCredential {
    MadeCredential {
        kind,
        id,
        name,
        scope,
        made_by,
        rotated_by: None,
        is_uncertain: false,
    }
}

/// The beginning of the name of an invite as the maker of a key.
const INVITE: &str = "invite ";

/// Returns the name of an invite as the maker of a key.
pub(crate) fn label_of_invite(id: &str) -> String {
    format!("{INVITE}{id}")
}

fn made(maker: &Maker, all: Vec<Record>, rotations: &[Rotation]) -> Vec<MadeCredential> {
    let first = vec![maker.label.clone()];
    let certain = with_offspring(first, &all, rotations);
    let is_later = |record: &Record| record.created_at.is_some_and(|at| at >= maker.created_at);
    let is_lost =
        |maker: &str| maker.starts_with(INVITE) && all.iter().all(|record| record.label != maker);
    let lost = all.iter().filter(|record| is_later(record));
    let lost = lost.map(|record| record.credential.made_by.clone());
    let lost = lost.filter(|maker| is_lost(maker)).collect();
    let possible = with_offspring(lost, &all, rotations);
    let found = all
        .iter()
        .filter(|record| record.is_valid && !ends_with(record, maker))
        .filter_map(|record| {
            let maker = &record.credential.made_by;
            let rotated = rotations
                .iter()
                .find(|rotation| rotation.key == record.label && certain.contains(&rotation.by));
            let is_certain = certain.contains(maker) || rotated.is_some();
            let is_listed = is_certain || (possible.contains(maker) && is_later(record));
            is_listed.then(|| MadeCredential {
                rotated_by: rotated.map(|rotation| rotation.by.clone()),
                is_uncertain: !is_certain,
                ..record.credential.clone()
            })
        });
    found.collect()
}

/// Returns whether a credential ends with its maker: the maker itself, and the invite of a key.
fn ends_with(record: &Record, maker: &Maker) -> bool {
    let made = &record.credential;
    let is_of_key = made.kind == "invite" && made.made_by == maker.label && maker.is_key;
    record.label == maker.label || is_of_key
}

/// Returns these makers, and all that they have made or rotated.
fn with_offspring(mut makers: Vec<String>, all: &[Record], rotations: &[Rotation]) -> Vec<String> {
    let mut at = 0;
    while let Some(maker) = makers.get(at).cloned() {
        let made = all
            .iter()
            .filter(|record| record.credential.made_by == maker)
            .map(|record| &record.label);
        let rotated = rotations
            .iter()
            .filter(|rotation| rotation.by == maker)
            .map(|rotation| &rotation.key);
        for label in made.chain(rotated) {
            if !makers.contains(label) {
                makers.push(label.clone());
            }
        }
        at += 1;
    }
    makers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offspring_is_found_through_ended_makers_and_used_up_invites() {
        let record = |label: &str, made_by: &str, at: u64, is_valid: bool| Record {
            label: label.to_owned(),
            created_at: (!label.starts_with(INVITE)).then(|| Timestamp::from_millis(at)),
            is_valid,
            credential: credential("key", label.to_owned(), None, "admin", made_by.to_owned()),
        };
        let login = Maker {
            label: "login-a".into(),
            created_at: Timestamp::from_millis(10),
            is_admin: true,
            is_key: false,
        };
        let all = vec![
            record("login-a", "local", 10, false),
            record("login-b", "login-a", 11, true),
            record("k1", "login-b", 12, false),
            record("invite i1", "k1", 0, true),
            record("k2", "invite i1", 13, true),
            record("k3", "local", 13, true),
            record("k4", "invite gone", 9, true),
            record("k5", "invite gone", 13, true),
            record("k6", "k5", 14, true),
            record("k7", "local", 1, true),
            record("k8", "k7", 15, true),
            record("k9", "local", 1, true),
        ];
        let rotated = |key: &str, by: &str| Rotation {
            key: key.to_owned(),
            by: by.to_owned(),
        };
        // A key that hides who has it, by a rotation of its own, is found too.
        let rotations = [
            rotated("k7", "k1"),
            rotated("k7", "k7"),
            rotated("k9", "k3"),
        ];
        let found = made(&login, all, &rotations);
        let of_k7 = found.iter().find(|one| one.id == "k7");
        assert_eq!(of_k7.and_then(|one| one.rotated_by.as_deref()), Some("k1"));
        let found: Vec<_> = found
            .iter()
            .map(|one| (one.id.as_str(), one.is_uncertain))
            .collect();
        let expected = [
            ("login-b", false),
            ("invite i1", false),
            ("k2", false),
            ("k5", true),
            ("k6", true),
            ("k7", false),
            ("k8", false),
        ];
        assert_eq!(found, expected);
    }
}
