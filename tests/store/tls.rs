//! The Redis store over TLS: the certificates that it trusts.

use anyhow::Result;
use c3po_coordinator::config::{CertificateFiles, Fleet, RedisAddress};
use c3po_coordinator::store::redis::{OpenError, RedisStore};
use harness::certificates::Certificates;
use harness::cluster::Cluster;
use harness::redis::Redis;
use harness::watched::Watched;

use super::redis::{address, fixture_at};

/// Returns the address with the certificate authority to trust.
pub(super) fn trusting(certificates: &Certificates, url: &str) -> RedisAddress {
    RedisAddress {
        authority: Some(certificates.authority()),
        ..address(url)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_reached_over_tls() -> Result<()> {
    let certificates = Certificates::make()?;
    let (cluster, url) = Cluster::start_with_tls(&certificates).await?;
    let fixture = fixture_at(trusting(&certificates, &url), ()).await?;
    fixture.pair().await?;
    let question = fixture.say("a", "b", "hidden?").await?;
    fixture.answer(&question, "yes").await?;
    assert_eq!(fixture.inbox("a").await?, ["yes"]);
    let plain = fixture_at(address(&cluster.url()), ()).await?;
    assert_eq!(
        plain.inbox("a").await?,
        ["yes"],
        "it is one cluster, by whichever of its ports"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watched_master_is_reached_over_tls() -> Result<()> {
    let certificates = Certificates::make()?;
    let (watched, url) = Watched::start_with_tls(&certificates).await?;
    let fixture = fixture_at(trusting(&certificates, &url), watched).await?;
    fixture.pair().await?;
    let question = fixture.say("a", "b", "hidden?").await?;
    fixture.answer(&question, "yes").await?;
    assert_eq!(fixture.inbox("a").await?, ["yes"]);
    Ok(())
}

#[tokio::test]
async fn a_server_with_an_untrusted_certificate_is_refused_with_the_next_step() -> Result<()> {
    let certificates = Certificates::make()?;
    let (_redis, url) = Redis::start_with_tls(&certificates).await?;
    let others = Certificates::make()?;
    let strange = trusting(&others, &url);
    let elsewhere = trusting(&certificates, &url.replace("127.0.0.1", "localhost"));
    for untrusted in [address(&url), strange, elsewhere] {
        let refused = RedisStore::open(&untrusted, &Fleet::default())
            .await
            .expect_err("nobody vouches for it");
        assert!(matches!(refused, OpenError::Untrusted { .. }), "{refused}");
        assert!(refused.to_string().contains("--redis-ca"), "{refused}");
    }
    Ok(())
}

#[tokio::test]
async fn a_redis_that_asks_for_a_certificate_gets_ours() -> Result<()> {
    let certificates = Certificates::make()?;
    let (_redis, url) =
        Redis::start_with_tls_and(&certificates, &["--tls-auth-clients", "yes"]).await?;
    let refused = RedisStore::open(&trusting(&certificates, &url), &Fleet::default())
        .await
        .expect_err("we are nobody");
    assert!(
        matches!(refused, OpenError::AsksForCertificate { .. }),
        "{refused}"
    );
    assert!(refused.to_string().contains("--redis-cert"), "{refused}");

    let identity = |certificates: &Certificates| {
        let (certificate, key) = certificates.identity();
        Some(CertificateFiles { certificate, key })
    };
    let known = RedisAddress {
        identity: identity(&certificates),
        ..trusting(&certificates, &url)
    };
    let fixture = fixture_at(known.clone(), ()).await?;
    fixture.pair().await?;
    fixture.say("a", "b", "it is me").await?;
    assert_eq!(fixture.pending("b").await?, 1);

    let others = Certificates::make()?;
    let strange = RedisAddress {
        identity: identity(&others),
        ..known.clone()
    };
    RedisStore::open(&strange, &Fleet::default())
        .await
        .expect_err("nobody there vouches for us");
    let CertificateFiles { certificate, .. } = known.identity.clone().expect("ours");
    let mixed = Some(CertificateFiles {
        certificate,
        key: others.identity().1,
    });
    let refused = RedisStore::open(
        &RedisAddress {
            identity: mixed,
            ..known
        },
        &Fleet::default(),
    )
    .await
    .expect_err("it is another's key");
    assert!(!refused.to_string().contains("PRIVATE"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn an_authority_that_cannot_be_read_is_named() -> Result<()> {
    let certificates = Certificates::make()?;
    let (redis, url) = Redis::start_with_tls(&certificates).await?;
    let folder = tempfile::tempdir()?;
    let (missing, empty) = (
        folder.path().join("missing.pem"),
        folder.path().join("empty.pem"),
    );
    let broken = folder.path().join("broken.pem");
    std::fs::write(&empty, "")?;
    std::fs::write(
        &broken,
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )?;
    for file in [missing, empty, broken] {
        let unusable = RedisAddress {
            authority: Some(file.clone()),
            ..address(&url)
        };
        let refused = RedisStore::open(&unusable, &Fleet::default())
            .await
            .expect_err("there is no certificate");
        assert!(
            matches!(refused, OpenError::Certificates { .. }),
            "{refused}"
        );
        assert!(
            refused.to_string().contains(&file.display().to_string()),
            "{refused}"
        );
    }
    // A plain connection to a TLS port, or a TLS connection to a plain port, is reported as unreachable.
    for wrong in [
        address(&url.replace("rediss", "redis")),
        trusting(&certificates, &redis.url().replace("redis", "rediss")),
    ] {
        let refused = RedisStore::open(&wrong, &Fleet::default())
            .await
            .expect_err("it does not answer");
        assert!(
            matches!(refused, OpenError::Unreachable { .. }),
            "{refused}"
        );
    }
    Ok(())
}
