//! The credentials that a login or a key has made, itself or through others. They outlive it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use c3po_shared::audit::Event;
use c3po_shared::limits::AUDIT_PAGE_MAX;
use c3po_shared::refusal::Refusal;
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::{LoginScope, Scope};
use schemars::JsonSchema;
use serde::Serialize;

use super::Principal;
use super::issue::{ROTATED, maker_in};
use super::secret;
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
    /// Absent if the maker has made it. True if it only may have: its makers lead to one that is not stored any more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_uncertain: bool,
    /// Of an uncertain one: the maker that is not stored any more, such as a login that was deleted to make room, or an invite
    /// that is used up.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_maker: Option<String>,
}

/// A login or a key that may have made others.
pub(crate) struct Maker {
    label: String,
    created_at: Timestamp,
    is_admin: bool,
}

impl From<&Login> for Maker {
    fn from(login: &Login) -> Self {
        Self {
            label: Principal::label_of_login(&login.id),
            created_at: login.created_at,
            is_admin: login.scope == LoginScope::Admin,
        }
    }
}

impl From<&Key> for Maker {
    fn from(key: &Key) -> Self {
        Self {
            label: key.id.clone(),
            created_at: key.created_at,
            is_admin: key.scope == Scope::Admin,
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
    Ok(made(maker, &all, &rotations(store).await?))
}

/// Adds to the refusal to end a credential that is not stored any more which valid ones it has made: its record may have been
/// deleted to make room. `label` is its name as a maker.
pub(crate) async fn name_those_of_a_lost_maker(
    store: &dyn Store,
    label: String,
    refusal: Refusal,
) -> Refusal {
    let maker = Maker {
        label,
        created_at: Timestamp::default(),
        is_admin: true,
    };
    let Ok(made) = of(store, &maker).await else {
        return refusal;
    };
    let suggestion = suggestion(&made, &refusal.suggestion);
    refusal.suggest(suggestion)
}

/// Returns the next step about the credentials that a maker without a record has made or may have made; `otherwise` is the
/// step if none is named.
fn suggestion(made: &[MadeCredential], otherwise: &str) -> String {
    let (left_out, shown): (Vec<_>, Vec<_>) = made.iter().partition(|made| made.is_joined_host());
    let mut text = otherwise.to_owned();
    if !shown.is_empty() {
        let (perhaps, certain): (Vec<_>, Vec<_>) =
            shown.into_iter().partition(|made| made.is_uncertain);
        text = format!(
            "Revoke the valid credentials that it has made or rotated too. These are certain: {}. A maker of these is not \
             stored any more, so they may be its work: {}.",
            named(&certain),
            named(&perhaps)
        );
    }
    if !left_out.is_empty() {
        text += " Hosts that joined by an invite that is used up may be its work too. They are left out here: \
                 `c3po-coordinator keys list` shows them.";
    }
    text
}

impl MadeCredential {
    /// Returns whether it is the key of a host that joined by an invite that is used up, and makes nothing. Such keys are many.
    fn is_joined_host(&self) -> bool {
        let makes_nothing = [Scope::Agent, Scope::Read].map(Scope::as_str);
        let is_by_invite = self.made_by.starts_with(INVITE)
            && self.lost_maker.as_deref() == Some(&self.made_by)
            && self.rotated_by.is_none();
        self.kind == "key" && makes_nothing.contains(&self.scope) && is_by_invite
    }
}

/// Returns the kinds and ids of credentials, as a list in one line, or `none`.
fn named(made: &[&MadeCredential]) -> String {
    let name = |made: &&MadeCredential| format!("{} {}", made.kind, made.id);
    let names: Vec<_> = made.iter().map(name).collect();
    match names[..] {
        [] => "none".to_owned(),
        _ => names.join(", "),
    }
}

/// A key got a new secret.
struct Rotation {
    key: String,
    by: String,
    at: Timestamp,
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
                at: entry.at,
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
    let valid_keys = keys.iter().filter(|key| key.is_valid(now));
    let valid_keys: HashSet<String> = valid_keys.map(|key| key.hash.clone()).collect();
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
        // It ends with the key that made it.
        is_valid: invite
            .key_hash
            .is_none_or(|hash| valid_keys.contains(&hash)),
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
        lost_maker: None,
    }
}

/// The beginning of the name of an invite as the maker of a key.
const INVITE: &str = "invite ";

/// Returns the name of an invite as the maker of a key.
pub(crate) fn label_of_invite(id: &str) -> String {
    format!("{INVITE}{id}")
}

/// Returns whether a maker is a login, a key or an invite, which has a record until that is deleted.
fn has_record(maker: &str) -> bool {
    let is_login = maker.starts_with(&Principal::label_of_login(""));
    is_login || maker.starts_with(INVITE) || secret::is_id(maker)
}

fn made(maker: &Maker, all: &[Record], rotations: &[Rotation]) -> Vec<MadeCredential> {
    let offspring = Offspring::of(all, rotations);
    let certain = offspring.of_makers(std::iter::once(maker.label.as_str()));
    // The age of an invite is unknown.
    let is_later = |record: &Record| record.created_at.is_none_or(|at| at >= maker.created_at);
    let later_rotations = rotations.iter().filter(|one| one.at >= maker.created_at);
    let later = all.iter().filter(|record| is_later(record));
    let makers = later.map(|record| record.credential.made_by.as_str());
    let makers = makers.chain(later_rotations.clone().map(|one| one.by.as_str()));
    let stored: HashSet<&str> = all.iter().map(|record| record.label.as_str()).collect();
    let lost = makers.filter(|maker| has_record(maker) && !stored.contains(maker));
    let possible = offspring.of_makers(lost);
    let certainly_rotated = first_rotations(rotations.iter(), &certain);
    let possibly_rotated = first_rotations(later_rotations, &possible);
    let listed = |record: &Record| {
        let label = record.label.as_str();
        let made_by = record.credential.made_by.as_str();
        let rotated = certainly_rotated.get(label);
        if rotated.is_some() || certain.contains_key(made_by) {
            return Some(MadeCredential {
                rotated_by: rotated.map(|by| (*by).to_owned()),
                ..record.credential.clone()
            });
        }
        let rotated = possibly_rotated.get(label);
        let by_maker = possible.get(made_by).filter(|_| is_later(record));
        let lost_maker = by_maker.or_else(|| possible.get(rotated?))?;
        Some(MadeCredential {
            rotated_by: rotated.map(|by| (*by).to_owned()),
            is_uncertain: true,
            lost_maker: Some((*lost_maker).to_owned()),
            ..record.credential.clone()
        })
    };
    let outlives = |record: &&Record| record.is_valid && record.label != maker.label;
    all.iter().filter(outlives).filter_map(listed).collect()
}

/// Returns the keys that these makers rotated, each with the first of them that did.
fn first_rotations<'a>(
    rotations: impl DoubleEndedIterator<Item = &'a Rotation>,
    makers: &HashMap<&str, &str>,
) -> HashMap<&'a str, &'a str> {
    let theirs = rotations.filter(|one| makers.contains_key(one.by.as_str()));
    // A later entry of a map replaces an earlier one.
    theirs
        .rev()
        .map(|one| (one.key.as_str(), one.by.as_str()))
        .collect()
}

/// The credentials that each maker has made or rotated, by their names as makers.
struct Offspring<'a>(HashMap<&'a str, Vec<&'a str>>);

impl<'a> Offspring<'a> {
    fn of(all: &'a [Record], rotations: &'a [Rotation]) -> Self {
        let made = all
            .iter()
            .map(|record| (record.credential.made_by.as_str(), record.label.as_str()));
        let rotated = rotations
            .iter()
            .map(|rotation| (rotation.by.as_str(), rotation.key.as_str()));
        let mut of_makers: HashMap<_, Vec<_>> = HashMap::new();
        for (maker, label) in made.chain(rotated) {
            of_makers.entry(maker).or_default().push(label);
        }
        Self(of_makers)
    }

    /// Returns these makers, and all that they have made or rotated, each with the one of these that it comes from.
    fn of_makers(&self, first: impl Iterator<Item = &'a str>) -> HashMap<&'a str, &'a str> {
        let (mut found, mut at) = (HashMap::new(), 0);
        let mut left: Vec<_> = first.map(|maker| (maker, maker)).collect();
        while let Some((maker, from)) = left.get(at).copied() {
            at += 1;
            if let Entry::Vacant(free) = found.entry(maker) {
                free.insert(from);
                let made = self.0.get(maker).into_iter().flatten();
                left.extend(made.map(|label| (*label, from)));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(label: &str, made_by: &str, at: u64, is_valid: bool) -> Record {
        Record {
            label: label.to_owned(),
            created_at: (!label.starts_with(INVITE)).then(|| Timestamp::from_millis(at)),
            is_valid,
            credential: credential("key", label.to_owned(), None, "admin", made_by.to_owned()),
        }
    }

    fn rotated(key: &str, by: &str, at: u64) -> Rotation {
        Rotation {
            key: key.to_owned(),
            by: by.to_owned(),
            at: Timestamp::from_millis(at),
        }
    }

    fn login_a() -> Maker {
        Maker {
            label: "login-a".into(),
            created_at: Timestamp::from_millis(10),
            is_admin: true,
        }
    }

    /// Checks the ids of the credentials that `login_a` has made or may have made, each with the lost maker.
    fn check(all: &[Record], rotations: &[Rotation], expected: &[(&str, Option<&str>)]) {
        let found = made(&login_a(), all, rotations);
        let found: Vec<_> = found
            .iter()
            .inspect(|one| assert_eq!(one.is_uncertain, one.lost_maker.is_some()))
            .map(|one| (one.id.as_str(), one.lost_maker.as_deref()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn offspring_is_found_through_ended_makers_and_used_up_invites() {
        let all = [
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
        // A key that hides who has it, by a rotation of its own, is found too.
        let rotations = [
            rotated("k7", "k1", 13),
            rotated("k7", "k7", 14),
            rotated("k9", "k3", 14),
        ];
        let gone = Some("invite gone");
        let expected = [
            ("login-b", None),
            ("invite i1", None),
            ("k2", None),
            ("k5", gone),
            ("k6", gone),
            ("k7", None),
            ("k8", None),
        ];
        check(&all, &rotations, &expected);
        let found = made(&login_a(), &all, &rotations);
        let of_k7 = found.iter().find(|one| one.id == "k7");
        assert_eq!(of_k7.and_then(|one| one.rotated_by.as_deref()), Some("k1"));
    }

    #[test]
    fn a_maker_whose_record_was_deleted_to_make_room_hides_nothing() {
        let all = [
            record("login-a", "local", 10, false),
            // Made by a login that is gone, and by others below it.
            record("login-c", "login-b", 12, true),
            record("k1", "login-c", 13, true),
            record("invite i1", "login-b", 0, true),
            record("k2", "invite i1", 14, true),
            record("login-d", "login-b", 9, true),
            // The same with a key.
            record("k3", "0a1b2c3d", 12, false),
            record("k4", "k3", 13, true),
            // Made by nothing that has a record.
            record("k5", "token", 12, true),
            record("k6", "anybody", 12, true),
            record("k7", "local", 1, true),
            record("k8", "local", 1, true),
            record("invite i2", "start", 0, true),
            record("invite i3", "", 0, true),
        ];
        let rotations = [rotated("k7", "login-b", 12), rotated("k8", "login-e", 9)];
        let (login, key) = (Some("login-b"), Some("0a1b2c3d"));
        let expected = [
            ("login-c", login),
            ("k1", login),
            ("invite i1", login),
            ("k2", login),
            ("k4", key),
            ("k7", login),
        ];
        check(&all, &rotations, &expected);
    }

    #[test]
    fn only_keys_of_joined_hosts_are_left_out_without_a_record_of_the_maker() {
        let key = |label: &str, made_by: &str, scope| Record {
            credential: credential("key", label.to_owned(), None, scope, made_by.to_owned()),
            ..record(label, made_by, 12, true)
        };
        let rotations = [rotated("k6", "k3", 13)];
        let suggestion_for =
            |all: &[Record]| suggestion(&made(&login_a(), all, &rotations), "List them.");
        let left_out = " Hosts that joined by an invite that is used up may be its work too. They are left out here: \
                        `c3po-coordinator keys list` shows them.";
        let hosts = [
            key("k1", "invite gone", "agent"),
            key("k2", "invite gone", "read"),
        ];
        assert_eq!(suggestion_for(&hosts), format!("List them.{left_out}"));
        let others = [
            key("k3", "invite gone", "admin"),
            key("k4", "k3", "agent"),
            key("k5", "invite gone", "operator"),
            key("k6", "invite gone", "agent"),
            key("k7", "login-a", "agent"),
        ];
        let named = "Revoke the valid credentials that it has made or rotated too. These are certain: key k7. A maker of \
                     these is not stored any more, so they may be its work: key k3, key k4, key k5, key k6.";
        assert_eq!(suggestion_for(&others), named);
        let all: Vec<_> = hosts.into_iter().chain(others).collect();
        assert_eq!(suggestion_for(&all), format!("{named}{left_out}"));
    }
}
