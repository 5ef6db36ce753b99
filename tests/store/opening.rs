//! A Redis that the store refuses when it is opened: the reason names the remedy, and nothing is changed.

use anyhow::{Context, Result};
use c3po_coordinator::config::{Fleet, RedisAddress, StoreAddress};
use c3po_coordinator::store::redis::{OpenError, RedisStore};
use c3po_coordinator::store::{self, KeyStore};
use harness::redis::Redis;
use tokio::time::timeout;

use super::fixture::SOON;
use super::redis::{address, open};

#[tokio::test]
async fn a_redis_that_evicts_is_refused_with_the_remedy() -> Result<()> {
    let redis = Redis::start().await?;
    redis
        .tell(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])
        .await?;
    let check = async || {
        let refused = open(&redis.url()).await.expect_err("it evicts");
        assert!(
            matches!(&refused, OpenError::Evicts { policy, .. } if policy == "allkeys-lru"),
            "{refused}"
        );
        assert!(
            refused
                .to_string()
                .contains("CONFIG SET maxmemory-policy noeviction"),
            "{refused}"
        );
    };
    check().await;
    redis
        .tell(&["ACL", "SETUSER", "default", "-config"])
        .await?;
    check().await;
    assert_eq!(redis.tell(&["DBSIZE"]).await?, ":0\r\n");
    Ok(())
}

#[tokio::test]
async fn a_replica_is_refused_with_the_address_form_to_use() -> Result<()> {
    let master = Redis::start().await?;
    open(&master.url()).await?;
    let replica =
        Redis::start_with(&["--replicaof", &format!("127.0.0.1 {}", master.port())]).await?;
    let refused = open(&replica.url())
        .await
        .expect_err("it takes no messages");
    assert!(
        matches!(refused, OpenError::Replica { .. }) && refused.to_string().contains("+sentinel"),
        "{refused}"
    );
    Ok(())
}

#[tokio::test]
async fn a_newer_layout_is_refused_and_left_alone() -> Result<()> {
    let redis = Redis::start().await?;
    redis.tell(&["SET", "{c3po}:schema", "99"]).await?;
    let refused = open(&redis.url()).await.expect_err("it is newer");
    assert!(
        matches!(&refused, OpenError::NewerSchema { found, .. } if found == "99"),
        "{refused}"
    );
    assert_eq!(redis.tell(&["GET", "{c3po}:schema"]).await?, "$2\r\n99\r\n");
    assert_eq!(redis.tell(&["DBSIZE"]).await?, ":1\r\n");
    Ok(())
}

#[tokio::test]
async fn a_password_is_never_shown() -> Result<()> {
    let redis = Redis::start().await?;
    redis
        .tell(&["CONFIG", "SET", "requirepass", "open-sesame"])
        .await?;
    let place = redis.url().replace("redis://", "");
    let store = open(&format!("redis://:open-sesame@{place}")).await?;
    let refused = open(&format!("redis://:wrong-sesame@{place}"))
        .await
        .expect_err("it is wrong");
    let shown = format!("{store:?} {refused} {refused:?}");
    assert!(!shown.contains("sesame"), "{shown}");
    Ok(())
}

/// A permanent error of Redis ends the start with a clear message; only a Redis that does not respond is waited for.
#[tokio::test]
async fn a_coordinator_ends_its_start_where_redis_refuses_it() -> Result<()> {
    let redis = Redis::start().await?;
    redis
        .tell(&["CONFIG", "SET", "requirepass", "open-sesame"])
        .await?;
    let place = redis.url().replace("redis://", "");
    for (url, reason) in [
        (format!("redis://:wrong@{place}"), "password"),
        (format!("redis://{place}"), "Authentication required"),
        (format!("redis://:open-sesame@{place}/99"), "DB index"),
    ] {
        let (address, fleet) = (
            StoreAddress::Redis(Box::new(address(&url))),
            Fleet::default(),
        );
        let refused = timeout(SOON, store::open(&address, &fleet))
            .await
            .context(url)?
            .expect_err("it is refused")
            .to_string();
        assert!(
            refused.contains("refuses this coordinator") && refused.contains(reason),
            "{refused}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn data_of_an_earlier_build_is_discarded_on_request_except_keys_and_invites() -> Result<()> {
    let redis = Redis::start().await?;
    for command in [
        &["SET", "c3po:schema", "3"][..],
        &["ZADD", "c3po:agents", "0", "a"],
        &["HSET", "c3po:{a}:agent", "uid", "x"],
        &["HSET", "c3po:{a}:m:0123abcd", "env", "{}"],
        &["HSET", "c3po:keys", "changes", "7", "0badcafe", "1 {}"],
        &["HSET", "c3po:{c3po:keys}:invites", "hash", "0 0 {}"],
        &["SET", "c3po:mine", "not c3po's"],
    ] {
        redis.tell(command).await?;
    }
    let refused = open(&redis.url())
        .await
        .expect_err("it holds what an earlier build stored");
    assert!(
        matches!(refused, OpenError::EarlierBuild { .. }),
        "{refused}"
    );
    assert!(refused.to_string().contains("--discard-old"), "{refused}");
    assert_eq!(
        redis.tell(&["DBSIZE"]).await?,
        ":7\r\n",
        "nothing was changed"
    );

    let discarding = RedisAddress {
        discard_old: true,
        ..address(&redis.url())
    };
    let store = RedisStore::open(&discarding, &Fleet::default()).await?;
    assert_eq!(store.key_changes().await?, 7);
    assert!(
        redis
            .tell(&["HGET", "{c3po}:invites", "hash"])
            .await?
            .contains("0 0 {}")
    );
    let left = redis.tell(&["KEYS", "c3po:*"]).await?;
    assert_eq!(
        left.lines()
            .filter(|line| line.starts_with("c3po:"))
            .collect::<Vec<_>>(),
        ["c3po:mine"]
    );
    open(&redis.url()).await?;
    Ok(())
}
