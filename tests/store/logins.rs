//! Logins and their codes: a code makes one login however many race for it, and no change of a login is lost.

use std::time::Duration;

use anyhow::Result;
use c3po_coordinator::store::{Login, LoginCode};
use c3po_shared::limits::{LOGIN_CODES_MAX, LOGIN_LIFE, LOGINS_MAX};
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::LoginScope;
use futures_util::future::try_join_all;
use harness::eventually::eventually;

use super::Fixture;
use super::fixture::SOON;

pub(crate) fn login(id: &str) -> Login {
    Login {
        id: id.into(),
        hash: "0".repeat(64),
        name: "Ann, \"the\" person\u{1f680}".into(),
        scope: LoginScope::Operator,
        created_at: Timestamp::now(),
        expires_at: Timestamp::now() + LOGIN_LIFE,
        revoked_at: None,
        made_by: "local".into(),
        device: Some("phone".into()),
        revision: 1,
    }
}

pub(crate) fn code(hash: &str, life: Duration) -> LoginCode {
    LoginCode {
        id: "0a1b2c3d".into(),
        hash: hash.into(),
        name: "ann".into(),
        scope: LoginScope::Person,
        made_by: "local".into(),
        login: None,
        expires_at: Timestamp::now() + life,
    }
}

/// Spends a code for a login of that id. Returns whether it was made.
async fn spend(fixture: &Fixture, hash: &str, id: &str, most: usize) -> Result<bool> {
    let made = login(id);
    let spent = fixture
        .store
        .spend_login_code(hash, &made, None, most, None);
    Ok(spent.await?)
}

/// Makes a login with a code of its own.
async fn make(fixture: &Fixture, id: &str) -> Result<Login> {
    let (store, made) = (&fixture.store, login(id));
    assert!(
        store
            .put_login_code(&code(id, SOON), LOGIN_CODES_MAX, None)
            .await?
    );
    assert!(
        store
            .spend_login_code(id, &made, None, LOGINS_MAX, None)
            .await?
    );
    Ok(made)
}

pub(crate) async fn a_code_makes_one_login_also_when_50_race(fixture: Fixture) -> Result<()> {
    let store = &fixture.store;
    let offered = code("a", SOON);
    assert!(
        store
            .put_login_code(&offered, LOGIN_CODES_MAX, None)
            .await?
    );
    assert_eq!(store.login_code("a").await?, Some(offered.clone()));
    assert_eq!(store.login_codes().await?, [offered]);
    assert_eq!(store.login_changes().await?, 0);
    let tries = (0..50).map(|number| async move {
        let made = login(&format!("{number:08x}"));
        store
            .spend_login_code("a", &made, None, LOGINS_MAX, None)
            .await
    });
    let won = try_join_all(tries).await?;
    assert_eq!(won.iter().filter(|won| **won).count(), 1);
    assert_eq!(store.logins().await?.len(), 1);
    assert!(store.login_changes().await? > 0);
    assert_eq!(store.login_code("a").await?, None);
    assert_eq!(store.login_codes().await?, []);
    assert_eq!(store.forget_login_code("a").await?, None);
    Ok(())
}

pub(crate) async fn a_code_ends_and_can_be_deleted(fixture: Fixture) -> Result<()> {
    let store = &fixture.store;
    let brief = code("brief", Duration::from_millis(300));
    assert!(store.put_login_code(&brief, LOGIN_CODES_MAX, None).await?);
    eventually("its time is over", SOON, async || {
        store
            .login_code("brief")
            .await
            .ok()?
            .is_none()
            .then_some(())
    })
    .await?;
    let spent = spend(&fixture, "brief", "00000001", LOGINS_MAX);
    assert!(!spent.await?);
    let other = code("other", SOON);
    assert!(store.put_login_code(&other, LOGIN_CODES_MAX, None).await?);
    assert_eq!(store.forget_login_code("other").await?, Some(other));
    let spent = spend(&fixture, "other", "00000001", LOGINS_MAX);
    assert!(!spent.await? && store.logins().await?.is_empty());
    Ok(())
}

pub(crate) async fn so_many_codes_are_open_and_ended_ones_do_not_count(
    fixture: Fixture,
) -> Result<()> {
    let store = &fixture.store;
    let brief = code("brief", Duration::from_millis(300));
    assert!(store.put_login_code(&brief, 3, None).await?);
    for number in 0..2 {
        let code = code(&number.to_string(), SOON);
        assert!(store.put_login_code(&code, 3, None).await?);
    }
    assert!(
        !store
            .put_login_code(&code("further", SOON), 3, None)
            .await?
    );
    eventually("one has ended", SOON, async || {
        let further = code("further", SOON);
        store
            .put_login_code(&further, 3, None)
            .await
            .ok()?
            .then_some(())
    })
    .await?;
    let spent = spend(&fixture, "1", "00000001", LOGINS_MAX);
    assert!(spent.await?);
    assert!(store.put_login_code(&code("last", SOON), 3, None).await?);
    Ok(())
}

pub(crate) async fn there_are_never_more_logins_than_allowed_also_when_50_race(
    fixture: Fixture,
) -> Result<()> {
    let store = &fixture.store;
    let tries = (0..50).map(|number| async move {
        let id = format!("{number:08x}");
        store
            .put_login_code(&code(&id, SOON), LOGIN_CODES_MAX, None)
            .await?;
        store
            .spend_login_code(&id, &login(&id), None, 5, None)
            .await
    });
    let won = try_join_all(tries).await?;
    assert_eq!(won.iter().filter(|won| **won).count(), 5);
    let kept = store.logins().await?;
    assert_eq!(kept.len(), 5);
    store.forget_login(&kept[0]).await?;
    let open = store.login_codes().await?;
    assert_eq!(open.len(), 45, "no code was spent without a login");
    let spent = spend(&fixture, &open[0].hash, "ffffffff", 5);
    assert!(spent.await?);
    Ok(())
}

pub(crate) async fn of_two_who_change_a_login_one_is_told(fixture: Fixture) -> Result<()> {
    let store = &fixture.store;
    let made = make(&fixture, "00000001").await?;
    assert!(
        !store.put_login(&login("00000002"), None, None).await?,
        "without a code"
    );
    let before = store.login_changes().await?;
    let later = made.expires_at + LOGIN_LIFE;
    let extended = Login {
        expires_at: later,
        revision: 2,
        ..made.clone()
    };
    let revoked = Login {
        revoked_at: Some(Timestamp::now()),
        revision: 2,
        ..made.clone()
    };
    assert!(store.put_login(&revoked, None, None).await?);
    assert!(!store.put_login(&extended, None, None).await?);
    assert_eq!(store.logins().await?, std::slice::from_ref(&revoked));
    let changed = store.login_changes().await?;
    assert!(changed > before);
    store.forget_login(&made).await?;
    assert_eq!(
        store.login_changes().await?,
        changed,
        "it was changed since"
    );
    store.forget_login(&revoked).await?;
    assert!(store.logins().await?.is_empty() && store.login_changes().await? > changed);
    Ok(())
}

pub(crate) async fn a_code_ends_when_the_login_that_made_it_changes(
    fixture: Fixture,
) -> Result<()> {
    let store = &fixture.store;
    let maker = make(&fixture, "00000001").await?;
    assert!(
        store
            .put_login_code(&code("a", SOON), LOGIN_CODES_MAX, None)
            .await?
    );
    let next = Login {
        revision: 2,
        ..maker.clone()
    };
    assert!(store.put_login(&next, None, None).await?);
    let other = login("00000002");
    let spent = store.spend_login_code("a", &other, Some(&maker), LOGINS_MAX, None);
    assert!(!spent.await?);
    let spent = store.spend_login_code("a", &other, Some(&next), LOGINS_MAX, None);
    assert!(spent.await?);
    Ok(())
}

pub(crate) async fn a_login_that_was_changed_meanwhile_changes_no_login(
    fixture: Fixture,
) -> Result<()> {
    let store = &fixture.store;
    let (maker, other) = (
        make(&fixture, "00000001").await?,
        make(&fixture, "00000002").await?,
    );
    let revoked = |login: &Login| Login {
        revoked_at: Some(Timestamp::now()),
        revision: 2,
        ..login.clone()
    };
    let ended = revoked(&maker);
    assert!(
        store.put_login(&ended, Some(&maker), None).await?,
        "a login ends itself"
    );
    let (before, put) = (store.login_changes().await?, revoked(&other));
    assert!(!store.put_login(&put, Some(&maker), None).await?);
    assert_eq!(store.login_changes().await?, before);
    assert!(store.put_login(&put, Some(&ended), None).await?);
    Ok(())
}

pub(crate) async fn logins_and_keys_do_not_mix(fixture: Fixture) -> Result<()> {
    let store = &fixture.store;
    make(&fixture, "00000001").await?;
    assert_eq!(
        (store.keys().await?.len(), store.key_changes().await?),
        (0, 0)
    );
    assert!(
        store
            .put_login_code(&code("a", SOON), LOGIN_CODES_MAX, None)
            .await?
    );
    assert!(store.invites().await?.is_empty() && store.invite("a").await?.is_none());
    assert!(
        store.forget_invite("a", None).await?.is_none() && store.login_code("a").await?.is_some()
    );
    Ok(())
}
