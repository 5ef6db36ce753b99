//! Every promise, kept by Redis as the documented user, over TLS, behind a sentinel; that user in every topology.

use anyhow::{Context, Result};
use c3po_coordinator::store::Store;
use harness::certificates::Certificates;
use harness::cluster::Cluster;
use harness::redis::Redis;
use harness::watched::{MASTER, Watched};

use super::Fixture;
use super::fixture::woken;
use super::redis::{fixture_at, fixture_on, open};
use super::tls::trusting;

const DOCUMENT: &str = include_str!("../../docs/REDIS.md");
/// The first words of the permissions that only sentinels, and only clusters, need.
const WITH_SENTINELS: &str = "+role";
const IN_CLUSTERS: &str = "+cluster|slots";

/// Makes the user c3po by the documented words, except for those that begin with one of `without`.
async fn introduce(redis: &Redis, without: &[&str]) -> Result<()> {
    let (_, block) = DOCUMENT
        .split_once("\nACL SETUSER c3po ")
        .context("the command that makes the user")?;
    let (block, _) = block
        .split_once("\n```")
        .context("the end of the command")?;
    let lines = block
        .lines()
        .filter(|line| !without.iter().any(|word| line.trim().starts_with(word)));
    let words = lines.flat_map(str::split_whitespace).map(|word| {
        if word == ">PASSWORD" {
            ">open-sesame"
        } else {
            word
        }
    });
    let words: Vec<&str> = ["ACL", "SETUSER", "c3po"]
        .into_iter()
        .chain(words)
        .collect();
    redis.tell(&words).await.map(drop)
}

/// Returns the address with the credentials of that user.
fn as_user(url: &str) -> String {
    url.replacen("://", "://c3po:open-sesame@", 1)
}

/// Each of these affects the connection to the store, not its operations, so one run covers them together.
async fn start() -> Result<Fixture> {
    let certificates = Certificates::make()?;
    let (watched, url) = Watched::start_with_tls(&certificates).await?;
    introduce(&watched.servers[0], &[IN_CLUSTERS]).await?;
    fixture_at(
        trusting(&certificates, &as_user(&url)),
        (watched, certificates),
    )
    .await
}

every_promise!(start);

/// Sends a message and its answer through two coordinators.
async fn converse(url: &str) -> Result<()> {
    let fixture = fixture_on(url.to_owned(), ()).await?;
    let other = open(url).await?;
    let mut wakes = other.wakes();
    fixture.pair().await?;
    let question = fixture.say("a", "b", "may I?").await?;
    woken(&mut wakes, "b").await?;
    fixture.answer(&question, "yes").await?;
    assert_eq!(fixture.inbox("a").await?, ["yes"]);
    fixture.do_duties("b").await?;
    super::duties::one_goes_round(&fixture).await?;
    fixture.store.check().await?;
    Ok(())
}

#[tokio::test]
async fn a_user_of_a_cluster_needs_only_the_documented_rules() -> Result<()> {
    let cluster = Cluster::start().await?;
    for master in &cluster.masters {
        introduce(master, &[WITH_SENTINELS]).await?;
    }
    converse(&as_user(&cluster.url())).await
}

#[tokio::test]
async fn a_user_of_a_watched_master_needs_only_the_documented_rules() -> Result<()> {
    let watched = Watched::start(0, 1).await?;
    introduce(&watched.servers[0], &[IN_CLUSTERS]).await?;
    converse(&as_user(&watched.url())).await?;
    watched.servers[0].tell(&["FLUSHALL"]).await?;
    let sentinel = &watched.sentinels[0];
    sentinel
        .tell(&[
            "ACL",
            "SETUSER",
            "c3po",
            "on",
            ">open-sesame",
            "allchannels",
            "+sentinel|master",
        ])
        .await?;
    sentinel.tell(&["ACL", "SETUSER", "default", "off"]).await?;
    converse(&as_user(&watched.url())).await?;
    let refused = open(&watched.url())
        .await
        .expect_err("nobody may ask")
        .to_string();
    assert!(
        refused.contains(MASTER) && refused.contains("NOAUTH"),
        "{refused}"
    );
    Ok(())
}

#[tokio::test]
async fn the_user_reaches_no_keys_but_ours() -> Result<()> {
    let redis = Redis::start().await?;
    introduce(&redis, &[WITH_SENTINELS, IN_CLUSTERS]).await?;
    let login = ["AUTH", "c3po", "open-sesame"];
    for command in [
        &["GET", "theirs"][..],
        &["SPUBLISH", "theirs", "x"],
        &["KEYS", "*"],
        &["FLUSHALL"],
        &["ACL", "LIST"],
    ] {
        let refused = redis
            .tell_all(&[&login, command])
            .await
            .expect_err("it is not ours")
            .to_string();
        assert!(refused.contains("NOPERM"), "{command:?}: {refused}");
    }
    redis
        .tell_all(&[&login, &["GET", "{c3po}:schema"]])
        .await
        .map(drop)
}
