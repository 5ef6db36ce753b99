//! Keys and invites: they are read back as stored, no change is lost, and no invite can be used more often than it allows.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use c3po_coordinator::config::{Fleet, StoreAddress};
use c3po_coordinator::store::{self, Invite, Key};
use c3po_shared::limits::KEYS_MAX;
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::Scope;
use futures_util::future::try_join_all;
use harness::eventually::eventually;
use harness::redis::Redis;

use super::Fixture;
use super::fixture::SOON;

pub(crate) fn key(id: &str) -> Key {
    Key {
        id: id.into(),
        hash: "0".repeat(64),
        name: "nas2, \"the\" host\u{1f680}".into(),
        host: Some(id.into()),
        scope: Scope::Operator,
        agents: vec!["web-*".into(), "api".into()],
        created_at: Timestamp::now(),
        expires_at: Some(Timestamp::now() + Duration::from_secs(60)),
        revoked_at: None,
        made_by: "local".into(),
        awaits_host: false,
        revision: 1,
    }
}

pub(crate) fn invite(uses: u32, life: Duration) -> Invite {
    Invite {
        id: "0a1b2c3d".into(),
        made_by: Some("local".into()),
        key_hash: Some("00".repeat(32)),
        hash: "f".repeat(64),
        agents: vec!["*".into()],
        scope: Scope::Agent,
        host: Some("nas".into()),
        uses,
        expires_at: Timestamp::now() + life,
        key_seconds: Some(7),
    }
}

pub(crate) async fn keys_are_kept_and_counted(fixture: Fixture) -> Result<()> {
    let store = &fixture.store;
    assert_eq!(
        (store.keys().await?, store.key_changes().await?),
        (vec![], 0)
    );
    let (one, other) = (key("00000001"), key("00000002"));
    assert!(
        store.put_key(&one, None, KEYS_MAX, None).await?
            && store.put_key(&other, None, KEYS_MAX, None).await?
    );
    let counted = store.key_changes().await?;
    assert!(counted > 0);
    assert_eq!(store.key(&one.id).await?, Some(one.clone()));
    let (at, revision) = (Timestamp::now(), 2);
    let revoked = Key {
        revoked_at: Some(at),
        revision,
        ..other
    };
    let revoke = async |by| store.revoke_key(&revoked.id, at, by, None).await;
    assert!(!revoke(Some(&revoked)).await?, "it was changed");
    assert!(revoke(Some(&one)).await?);
    assert!(!revoke(None).await?, "it has ended");
    assert!(store.key_changes().await? > counted);
    let mut kept = store.keys().await?;
    kept.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(kept, [one, revoked]);
    Ok(())
}

pub(crate) async fn a_forgotten_key_is_a_change(fixture: Fixture) -> Result<()> {
    let store = &fixture.store;
    let (one, other) = (key("00000001"), key("00000002"));
    let changed = Key {
        revision: 2,
        ..one.clone()
    };
    assert!(
        store.put_key(&one, None, KEYS_MAX, None).await?
            && store.put_key(&changed, None, KEYS_MAX, None).await?
            && store.put_key(&other, None, KEYS_MAX, None).await?
    );
    let before = store.key_changes().await?;
    store.forget_key(&one).await?;
    assert_eq!(
        (store.keys().await?.len(), store.key_changes().await?),
        (2, before),
        "it was changed since"
    );
    store.forget_key(&changed).await?;
    let after = store.key_changes().await?;
    assert!(after > before);
    assert_eq!(store.keys().await?, [other]);
    assert!(
        store.put_key(&one, None, KEYS_MAX, None).await?,
        "the first again"
    );
    assert!(store.key_changes().await? > after);
    Ok(())
}

pub(crate) async fn when_a_key_was_used_is_kept_and_goes_with_it(fixture: Fixture) -> Result<()> {
    let store = &fixture.store;
    let (one, other) = (key("00000001"), key("00000002"));
    assert_eq!(store.uses().await?, []);
    assert!(
        store.put_key(&one, None, KEYS_MAX, None).await?
            && store.put_key(&other, None, KEYS_MAX, None).await?
    );
    let changes = store.key_changes().await?;
    let use_of = |key: &Key, millis| (key.id.clone(), Timestamp::from_millis(millis));
    store
        .note_uses(&[use_of(&one, 5), use_of(&other, 6)])
        .await?;
    store.note_uses(&[use_of(&other, 9)]).await?;
    let mut uses = store.uses().await?;
    uses.sort();
    assert_eq!(uses, [use_of(&one, 5), use_of(&other, 9)]);
    assert_eq!(
        store.key_changes().await?,
        changes,
        "nobody reads the keys again for that"
    );
    assert_eq!(store.keys().await?.len(), 2);
    store.forget_key(&one).await?;
    assert_eq!(store.uses().await?, [use_of(&other, 9)]);
    assert!(store.key_changes().await? > changes);
    Ok(())
}

pub(crate) async fn there_are_never_more_keys_than_allowed_also_when_100_race(
    fixture: Fixture,
) -> Result<()> {
    let (store, invite) = (&fixture.store, invite(100, SOON));
    store.put_invite(&invite, None).await?;
    let most = 5;
    let tries = (0..50).map(|number| {
        let invite = &invite;
        async move {
            let (made, joined) = (
                key(&format!("a{number:07x}")),
                key(&format!("b{number:07x}")),
            );
            let made = store.put_key(&made, None, most, None).await?;
            let joined = store
                .redeem(&invite.hash, &joined, None, most, None)
                .await?;
            anyhow::Ok(usize::from(made) + usize::from(joined))
        }
    });
    let done: usize = try_join_all(tries).await?.into_iter().sum();
    let kept = store.keys().await?;
    assert_eq!((done, kept.len()), (most, most));
    let changed = Key {
        revision: 2,
        ..kept[0].clone()
    };
    assert!(
        store.put_key(&changed, None, most, None).await?,
        "keys may still be changed"
    );
    store.forget_key(&changed).await?;
    assert!(
        store
            .redeem(&invite.hash, &key("c0000000"), None, most, None)
            .await?,
        "there is room again"
    );
    assert!(!store.put_key(&key("c0000001"), None, most, None).await?);
    Ok(())
}

pub(crate) async fn of_two_who_change_a_key_one_is_told(fixture: Fixture) -> Result<()> {
    let first = key("00000001");
    assert!(fixture.store.put_key(&first, None, KEYS_MAX, None).await?);
    assert!(
        !fixture.store.put_key(&first, None, KEYS_MAX, None).await?,
        "it is there"
    );
    let changes = (0..20).map(|number| {
        let (store, change) = (
            Arc::clone(&fixture.store),
            Key {
                revision: 2,
                name: number.to_string(),
                ..first.clone()
            },
        );
        async move { store.put_key(&change, None, KEYS_MAX, None).await }
    });
    let done: Vec<bool> = try_join_all(changes).await?;
    assert_eq!(done.iter().filter(|done| **done).count(), 1);
    assert!(
        !fixture
            .store
            .put_key(
                &Key {
                    revision: 4,
                    ..first.clone()
                },
                None,
                KEYS_MAX,
                None
            )
            .await?,
        "a revision is missing"
    );
    assert!(
        !fixture
            .store
            .put_key(
                &Key {
                    id: "00000009".into(),
                    revision: 2,
                    ..first
                },
                None,
                KEYS_MAX,
                None
            )
            .await?,
        "there is no first"
    );
    Ok(())
}

pub(crate) async fn an_invite_is_good_for_as_many_as_it_says(fixture: Fixture) -> Result<()> {
    let invite = invite(3, SOON);
    fixture.store.put_invite(&invite, None).await?;
    assert!(
        !fixture
            .store
            .redeem(&"e".repeat(64), &key("00000001"), None, KEYS_MAX, None)
            .await?,
        "there is none"
    );
    assert_eq!(fixture.store.invite(&"e".repeat(64)).await?, None);
    assert_eq!(
        fixture.store.invite(&invite.hash).await?,
        Some(invite.clone()),
        "to look takes nothing"
    );
    let tries = (0..20).map(|number| {
        let (store, hash) = (Arc::clone(&fixture.store), invite.hash.clone());
        async move {
            store
                .redeem(&hash, &key(&format!("{number:08x}")), None, KEYS_MAX, None)
                .await
        }
    });
    let done: Vec<bool> = try_join_all(tries).await?;
    assert_eq!(done.iter().filter(|done| **done).count(), 3, "{done:?}");
    assert_eq!(fixture.store.keys().await?.len(), 3, "one key for each use");
    assert_eq!(fixture.store.invite(&invite.hash).await?, None);
    Ok(())
}

pub(crate) async fn no_use_is_taken_without_a_key_and_no_key_is_made_without_a_use(
    fixture: Fixture,
) -> Result<()> {
    let (store, invite) = (&fixture.store, invite(1, SOON));
    store.put_invite(&invite, None).await?;
    let (taken, free) = (key("00000001"), key("00000002"));
    assert!(store.put_key(&taken, None, KEYS_MAX, None).await?);
    let before = store.key_changes().await?;
    let namesake = Key {
        name: "other".into(),
        ..taken.clone()
    };
    assert!(
        !store
            .redeem(&invite.hash, &namesake, None, KEYS_MAX, None)
            .await?,
        "its id is another's"
    );
    assert_eq!(
        store.invite(&invite.hash).await?,
        Some(invite.clone()),
        "the use is still there"
    );
    assert!(
        !store
            .redeem(&"e".repeat(64), &free, None, KEYS_MAX, None)
            .await?,
        "there is no such invite"
    );
    assert_eq!(
        (store.keys().await?, store.key_changes().await?),
        (vec![taken.clone()], before)
    );

    assert!(
        store
            .redeem(&invite.hash, &free, None, KEYS_MAX, None)
            .await?
    );
    assert!(
        !store
            .redeem(&invite.hash, &key("00000003"), None, KEYS_MAX, None)
            .await?,
        "its use was taken"
    );
    assert!(
        store.key_changes().await? > before,
        "whoever follows the keys reads them again"
    );
    let mut kept = store.keys().await?;
    kept.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(kept, [taken, free.clone()]);
    let changed = Key {
        revision: 2,
        ..free
    };
    assert!(
        store.put_key(&changed, None, KEYS_MAX, None).await?,
        "it is changed like any other"
    );
    Ok(())
}

pub(crate) async fn an_invite_ends_when_its_key_changes(fixture: Fixture) -> Result<()> {
    let (store, invite, inviter) = (&fixture.store, invite(3, SOON), key("00000001"));
    store.put_invite(&invite, None).await?;
    let redeem = async |id: &str, maker: &Key| {
        let joined = key(id);
        let redeem = store.redeem(&invite.hash, &joined, Some(maker), KEYS_MAX, None);
        redeem.await
    };
    assert!(!redeem("00000002", &inviter).await?, "there is no such key");
    assert!(store.put_key(&inviter, None, KEYS_MAX, None).await?);
    assert!(redeem("00000002", &inviter).await?);
    let changed = Key {
        revision: 2,
        ..inviter.clone()
    };
    assert!(store.put_key(&changed, None, KEYS_MAX, None).await?);
    let before = (store.keys().await?.len(), store.invite(&invite.hash).await?);
    assert!(!redeem("00000003", &inviter).await?);
    assert_eq!(
        (store.keys().await?.len(), store.invite(&invite.hash).await?),
        before
    );
    assert!(redeem("00000003", &changed).await?);
    Ok(())
}

pub(crate) async fn a_key_that_was_changed_meanwhile_changes_no_key(
    fixture: Fixture,
) -> Result<()> {
    let (store, maker, other) = (&fixture.store, key("00000001"), key("00000002"));
    let next = |key: &Key| Key {
        revision: key.revision + 1,
        ..key.clone()
    };
    assert!(
        !store.put_key(&other, Some(&maker), KEYS_MAX, None).await?,
        "there is no such key"
    );
    assert!(store.put_key(&maker, None, KEYS_MAX, None).await?);
    assert!(store.put_key(&other, Some(&maker), KEYS_MAX, None).await?);
    let changed = next(&maker);
    assert!(
        store
            .put_key(&changed, Some(&maker), KEYS_MAX, None)
            .await?,
        "a key changes itself"
    );
    for put in [key("00000003"), next(&other)] {
        let before = store.key_changes().await?;
        assert!(!store.put_key(&put, Some(&maker), KEYS_MAX, None).await?);
        assert_eq!(store.key_changes().await?, before);
        assert!(store.put_key(&put, Some(&changed), KEYS_MAX, None).await?);
    }
    Ok(())
}

pub(crate) async fn invites_are_listed_while_they_let_somebody_in_and_forgotten_once(
    fixture: Fixture,
) -> Result<()> {
    let store = &fixture.store;
    assert_eq!(store.invites().await?, []);
    let (one, used) = (
        invite(2, SOON),
        Invite {
            hash: "c".repeat(64),
            ..invite(1, SOON)
        },
    );
    for invite in [&one, &used] {
        store.put_invite(invite, None).await?;
    }
    let listed = async || -> Result<Vec<Invite>> {
        let mut listed = store.invites().await?;
        listed.sort_by(|a, b| a.hash.cmp(&b.hash));
        Ok(listed)
    };
    assert_eq!(listed().await?, [used.clone(), one.clone()]);
    let brief = Invite {
        hash: "b".repeat(64),
        ..invite(1, Duration::from_secs(1))
    };
    store.put_invite(&brief, None).await?;
    assert!(
        store
            .redeem(&one.hash, &key("00000001"), None, KEYS_MAX, None)
            .await?
            && store
                .redeem(&used.hash, &key("00000002"), None, KEYS_MAX, None)
                .await?
    );
    let rest = Invite {
        uses: 1,
        ..one.clone()
    };
    eventually("one has ended", SOON, async || {
        (store.invites().await.ok()? == [rest.clone()]).then_some(())
    })
    .await?;
    for ended in [&brief, &used] {
        assert_eq!(store.forget_invite(&ended.hash, None).await?, None);
    }
    let forgets = (0..20).map(|_| store.forget_invite(&one.hash, None));
    let forgotten: Vec<Invite> = try_join_all(forgets).await?.into_iter().flatten().collect();
    assert_eq!(forgotten, [rest]);
    assert_eq!(
        (
            store.invites().await?,
            store
                .redeem(&one.hash, &key("00000003"), None, KEYS_MAX, None)
                .await?
        ),
        (vec![], false)
    );
    Ok(())
}

pub(crate) async fn an_invite_ends(fixture: Fixture) -> Result<()> {
    let brief = invite(1_000, Duration::from_millis(500));
    fixture.store.put_invite(&brief, None).await?;
    let over = async || {
        fixture
            .store
            .invite(&brief.hash)
            .await
            .ok()?
            .is_none()
            .then_some(())
    };
    eventually("it has ended", SOON, over).await?;
    fixture
        .store
        .put_invite(
            &Invite {
                hash: "a".repeat(64),
                ..invite(1, SOON)
            },
            None,
        )
        .await?;
    assert!(
        !fixture
            .store
            .redeem(&brief.hash, &key("00000001"), None, KEYS_MAX, None)
            .await?
    );
    assert!(
        fixture
            .store
            .redeem(&"a".repeat(64), &key("00000001"), None, KEYS_MAX, None)
            .await?
    );
    Ok(())
}

#[tokio::test]
async fn a_record_in_redis_that_cannot_be_read_is_in_no_other_keys_way() -> Result<()> {
    let redis = Redis::start().await?;
    let store = store::open(&redis.url().parse::<StoreAddress>()?, &Fleet::default()).await?;
    let key = key("00000001");
    assert!(store.put_key(&key, None, KEYS_MAX, None).await?);
    redis
        .tell(&["HSET", "{c3po}:credentials", "00000002", "1 {}"])
        .await?;
    assert_eq!(store.keys().await?, [key]);
    store.close().await;
    Ok(())
}
