//! Changes of keys, logins, pairs of agents and agents append their entry to the log in their own step, if they happen.

use anyhow::Result;
use c3po_coordinator::store::{Key, Login, Pair, Removal};
use c3po_shared::audit::{Entry, Event};
use c3po_shared::limits::{INVITE_LIFE, KEYS_MAX, LOGIN_CODES_MAX, LOGINS_MAX};

use super::Fixture;
use super::fixture::id;
use super::keys::{invite, key};
use super::logins::{code, login};

/// Returns an entry that is distinguished by its verb, with a text that needs escapes.
fn entry(verb: &str) -> Entry {
    let entry = Entry::new(Event::KeyChanged).verb(verb);
    entry.because("by \"Ann\" \u{1f680}\n")
}

/// Asserts that the log has exactly these entries, without waiting.
async fn check(fixture: &Fixture, verbs: &[&str]) -> Result<()> {
    let log = fixture.store.audit(0, 100).await?;
    let found: Vec<_> = log
        .iter()
        .filter_map(|entry| entry.verb.as_deref())
        .collect();
    assert_eq!(found, verbs);
    assert!(log.iter().all(|found| found.why == entry("").why));
    Ok(())
}

pub(crate) async fn changes_of_keys_append_their_entries_in_their_own_step(
    fixture: Fixture,
) -> Result<()> {
    let store = &fixture.store;
    store.keep_log(Some(1_000)).await?;
    let (made, next) = (
        key("0000000a"),
        Key {
            revision: 2,
            ..key("0000000a")
        },
    );
    for _ in 0..2 {
        store
            .put_key(&made, None, KEYS_MAX, Some(&entry("created")))
            .await?;
    }
    check(&fixture, &["created"]).await?;
    store
        .put_key(&key("0000000b"), None, 1, Some(&entry("no room")))
        .await?;
    store
        .put_key(&next, None, KEYS_MAX, Some(&entry("revoked")))
        .await?;
    let invite = invite(1, INVITE_LIFE);
    store.put_invite(&invite, Some(&entry("invited"))).await?;
    for id in ["0000000c", "0000000d"] {
        let joined = key(id);
        let entry = entry("joined");
        let redeem = store.redeem(&invite.hash, &joined, None, KEYS_MAX, Some(&entry));
        redeem.await?;
    }
    check(&fixture, &["created", "revoked", "invited", "joined"]).await?;
    store.put_invite(&invite, None).await?;
    for _ in 0..2 {
        store
            .forget_invite(&invite.hash, Some(&entry("ended")))
            .await?;
    }
    check(
        &fixture,
        &["created", "revoked", "invited", "joined", "ended"],
    )
    .await
}

pub(crate) async fn changes_of_logins_append_their_entries_in_their_own_step(
    fixture: Fixture,
) -> Result<()> {
    let store = &fixture.store;
    store.keep_log(Some(1_000)).await?;
    let offered = code("a", INVITE_LIFE);
    store
        .put_login_code(&offered, LOGIN_CODES_MAX, Some(&entry("offered")))
        .await?;
    store
        .put_login_code(&code("b", INVITE_LIFE), 1, Some(&entry("no room")))
        .await?;
    for id in ["0000000a", "0000000b"] {
        let entry = entry("logged in");
        let made = login(id);
        let spent = store.spend_login_code("a", &made, None, LOGINS_MAX, Some(&entry));
        spent.await?;
    }
    check(&fixture, &["offered", "logged in"]).await?;
    let revoked = Login {
        revision: 2,
        ..login("0000000a")
    };
    for _ in 0..2 {
        store
            .put_login(&revoked, None, Some(&entry("revoked")))
            .await?;
    }
    check(&fixture, &["offered", "logged in", "revoked"]).await
}

pub(crate) async fn rulings_and_removals_append_their_entries_in_their_own_step(
    fixture: Fixture,
) -> Result<()> {
    let store = &fixture.store;
    for name in ["a", "b"] {
        fixture.introduce(name, Some("nas")).await?;
    }
    store.keep_log(Some(1_000)).await?;
    let mut grows = store.log_grows();
    grows.mark_unchanged();
    store
        .rule(&Pair::of(&id("a"), &id("b")), true, Some(&entry("stop")))
        .await?;
    check(&fixture, &["stop"]).await?;
    tokio::time::timeout(super::fixture::SOON, grows.changed()).await??;
    for _ in 0..2 {
        store
            .unregister(&id("a"), None, Some(&entry("unregistered")))
            .await?;
    }
    check(&fixture, &["stop", "unregistered"]).await?;
    for outcome in [Removal::Removed, Removal::Unknown] {
        let removal = store
            .remove(&id("b"), None, false, Some(&entry("removed")))
            .await?;
        assert_eq!(removal, outcome);
    }
    let freed = store
        .remove(&id("b"), None, true, Some(&entry("freed")))
        .await?;
    assert_eq!(freed, Removal::Removed);
    check(&fixture, &["stop", "unregistered", "removed", "freed"]).await
}
