//! The Redis store on a cluster of three masters: the location of its keys, and its behaviour when a master is lost.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use c3po_coordinator::store::redis::OpenError;
use c3po_coordinator::store::{Actor, Duty, Ending, SendOutcome, Store, StoreError, Tenure};
use c3po_shared::audit::{Entry, Event};
use c3po_shared::message::Message;
use c3po_shared::receipt::{Stage, Via};
use c3po_shared::time::Timestamp;
use futures_util::future::{try_join, try_join4};
use harness::cluster::Cluster;
use harness::eventually::eventually;
use harness::redis::Redis;

use super::Fixture;
use super::fixture::{SOON, by, claim, everything, id, message, news, progress, send};
use super::redis::{ANSWERED, address, fixture_of, fixture_on, keep_apart, open, recovered};

/// A key in the hash slot of the fleet.
const FLEET: &str = "{c3po}:-";
/// A fleet whose slot is on another master.
const OTHER: &str = "other";
const OTHER_FLEET: &str = "{other}:-";

/// How long the other masters may take to detect the loss of a master and promote its replica.
const FAILOVER: Duration = Duration::from_secs(30);

/// Starts a store on a separate cluster, whose servers the test may kill.
async fn own() -> Result<(Cluster, Fixture)> {
    // With everysec, a killed server may lose writes that a busy disk has delayed.
    let cluster = Cluster::start_with(&["--appendfsync", "always"]).await?;
    let fixture = fixture_on(cluster.url(), ()).await?;
    for name in ["a", "b", "c"] {
        fixture.agent(name).await?;
    }
    Ok((cluster, fixture))
}

/// Opens a store of the other fleet on that cluster.
async fn other_fleet(cluster: &Cluster) -> Result<Fixture> {
    fixture_of(OTHER.parse()?, address(&cluster.url()), ()).await
}

#[tokio::test]
async fn a_fleet_is_on_one_master_and_sees_nothing_of_another_fleet() -> Result<()> {
    let (cluster, fixture) = own().await?;
    let other = other_fleet(&cluster).await?;
    let question = fixture.say("a", "b", "who?").await?;
    fixture.answer(&question, "me").await?;
    fixture.acknowledge(&question).await?;
    keep_apart_on(&cluster, &fixture, &other).await
}

async fn keep_apart_on(cluster: &Cluster, fixture: &Fixture, other: &Fixture) -> Result<()> {
    let empty = fixture_of("third".parse()?, address(&cluster.url()), ()).await?;
    keep_apart(&empty, other).await?;
    fixture.do_duties("b").await?;
    super::duties::one_goes_round(fixture).await?;
    let homes = [
        cluster.master_of(FLEET).await?,
        cluster.master_of(OTHER_FLEET).await?,
    ];
    assert_ne!(
        homes[0], homes[1],
        "the fleets of the tests are on different masters"
    );
    for (number, master) in cluster.masters.iter().enumerate() {
        let keys = master.tell(&["KEYS", "{c3po}:*"]).await?;
        assert_eq!(
            keys.starts_with("*0"),
            number != homes[0],
            "at {number}: {keys}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_master_takes_only_its_own_fleets_with_it_until_it_is_back() -> Result<()> {
    let (mut cluster, fixture) = own().await?;
    let other = other_fleet(&cluster).await?;
    other.pair().await?;
    let lost = cluster.master_of(FLEET).await?;
    let before = fixture.say("a", "b", "before").await?;
    cluster.masters[lost].kill()?;
    for _ in 0..2 {
        let begun = Instant::now();
        let refused = fixture
            .store
            .pending(&id("b"))
            .await
            .expect_err("its server is away");
        assert!(
            matches!(refused, StoreError::Unavailable(_)) && begun.elapsed() < ANSWERED,
            "{refused}"
        );
        let begun = Instant::now();
        let question = other.say("a", "b", "still there?").await?;
        other.answer(&question, "yes").await?;
        assert!(
            begun.elapsed() < ANSWERED,
            "the other fleet waits for nobody: {:?}",
            begun.elapsed()
        );
        noticed(&cluster, lost).await?;
    }
    let unwell = fixture
        .store
        .check()
        .await
        .expect_err("its server is away")
        .to_string();
    assert!(
        unwell.contains(&cluster.masters[lost].port().to_string()),
        "{unwell}"
    );
    other.store.check().await?;

    cluster.masters[lost].restart().await?;
    cluster.ready().await?;
    recovered(&*fixture.store).await?;
    assert_eq!(fixture.inbox("b").await?, ["before"]);
    fixture.acknowledge(&before).await?;
    super::duties::one_goes_round(&fixture).await
}

/// Waits until the other masters have detected the loss of this one.
async fn noticed(cluster: &Cluster, lost: usize) -> Result<()> {
    eventually("the cluster has noticed the loss", SOON, async || {
        for master in cluster
            .masters
            .iter()
            .enumerate()
            .filter(|(number, _)| *number != lost)
            .map(|(_, master)| master)
        {
            master
                .tell(&["CLUSTER", "INFO"])
                .await
                .ok()?
                .contains("cluster_slots_fail:546")
                .then_some(())?;
        }
        Some(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_takes_over_is_found() -> Result<()> {
    let (mut cluster, fixture) = own().await?;
    let lost = cluster.master_of(FLEET).await?;
    let replica = cluster.replica_of(lost).await?;
    let kept = fixture.say("b", "a", "before").await?;
    eventually("the replica has it", SOON, async || {
        replica.tell(&["INFO", "replication"]).await.ok()?;
        let told = replica
            .tell_all(&[&["READONLY"], &["ZCARD", "{c3po}:unshown:a"]])
            .await
            .ok()?;
        told.starts_with(":1").then_some(())
    })
    .await?;
    cluster.masters[lost].kill()?;
    let call = send(message("b", "a", "after"));
    eventually("the replica has taken over", FAILOVER, async || {
        let begun = Instant::now();
        let sent = fixture.store.send(&call).await;
        assert!(begun.elapsed() < ANSWERED, "{:?}", begun.elapsed());
        matches!(sent, Ok(SendOutcome::Stored)).then_some(())
    })
    .await?;
    assert_eq!(fixture.inbox("a").await?, ["before", "after"]);
    fixture.acknowledge(&kept).await?;
    fixture.store.check().await?;

    // The old master returns as a replica of the new one, and no client is misled by it.
    cluster.masters[lost].restart().await?;
    eventually("the old master follows the new one", FAILOVER, async || {
        let told = cluster.masters[lost]
            .tell(&["INFO", "replication"])
            .await
            .ok()?;
        told.contains("master_link_status:up").then_some(())
    })
    .await?;
    assert_eq!(fixture.inbox("a").await?, ["after"]);
    let other = open(&format!(
        "redis+cluster://127.0.0.1:{}",
        cluster.masters[lost].port()
    ))
    .await?;
    assert_eq!(other.pending(&id("a")).await?.count, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_was_accepted_is_lost_or_doubled_while_every_master_is_killed_once()
-> Result<()> {
    let (mut cluster, fixture) = own().await?;
    let (killed, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
    let store = &*fixture.store;
    // Each agent sends to the next without a pause, until every master has been killed and restarted.
    let send_on = async |from: &str, to: &str| -> Result<Vec<String>> {
        let mut sent = Vec::new();
        while !killed.load(Ordering::Relaxed) || sent.len() < 50 {
            let call = send(news(from, to, &sent.len().to_string()));
            match insist(&refused, async || store.send(&call).await).await? {
                SendOutcome::Stored | SendOutcome::Repeated(_) => {
                    sent.push(call.message.text().to_owned())
                }
                // Among tens of thousands of 32-bit numbers two may collide; then another one is drawn.
                SendOutcome::IdTaken => continue,
                other => anyhow::bail!("{other:?}"),
            }
            if sent.len() % 100 == 0 {
                let held =
                    insist(&refused, async || store.inbox(&id(to), everything()).await).await?;
                let ids: Vec<_> = held
                    .iter()
                    .map(|placed| placed.message.id.clone())
                    .collect();
                assert_eq!(
                    held.iter()
                        .map(|placed| placed.message.text())
                        .collect::<Vec<_>>(),
                    sent
                );
                insist(&refused, async || {
                    store.acknowledge(&id(to), &Actor::default(), &ids).await
                })
                .await?;
                sent.clear();
            }
        }
        Ok(sent)
    };
    let kill = async {
        for number in 0..cluster.masters.len() {
            cluster.masters[number].restart().await?;
            cluster.ready().await?;
        }
        killed.store(true, Ordering::Relaxed);
        Ok(())
    };
    let (to_b, to_c, to_a, ()) = try_join4(
        send_on("a", "b"),
        send_on("b", "c"),
        send_on("c", "a"),
        kill,
    )
    .await?;
    for (name, sent) in [("a", to_a), ("b", to_b), ("c", to_c)] {
        assert_eq!(fixture.inbox(name).await?, sent, "{name}");
    }
    assert!(refused.load(Ordering::Relaxed) > 0, "nobody noticed a kill");
    Ok(())
}

#[tokio::test]
async fn a_wrong_kind_of_redis_address_is_refused_with_the_right_one() -> Result<()> {
    let cluster = Cluster::start().await?;
    let refused = open(&cluster.masters[0].url())
        .await
        .expect_err("it is one of three");
    assert!(matches!(refused, OpenError::InCluster { .. }), "{refused}");
    let alone = Redis::start().await?;
    let lost = Redis::start_with(&["--cluster-enabled", "yes"]).await?;
    let refused = open(&format!("redis+cluster://127.0.0.1:{}", alone.port()))
        .await
        .expect_err("there is none");
    let part = "cluster support disabled";
    assert!(
        matches!(&refused, OpenError::Refused { reason, .. } if reason.contains(part)),
        "{refused}"
    );
    let refused = open(&format!("redis+cluster://127.0.0.1:{}", lost.port()))
        .await
        .expect_err("it has no slots");
    let part = "did not return a slot map";
    assert!(
        matches!(&refused, OpenError::Unreachable { reason, .. } if reason.contains(part)),
        "{refused}"
    );
    // One good server among the named ones is enough.
    let (good, lost) = (cluster.masters[1].port(), lost.port());
    let store = open(&format!(
        "redis+cluster://127.0.0.1:{lost},127.0.0.1:{good}"
    ))
    .await?;
    for _ in 0..20 {
        store.check().await?;
    }
    Ok(())
}

/// Moves a slot key by key, like `redis-cli --cluster reshard`.
async fn move_slot(slot: &str, from: &Redis, to: &Redis) -> Result<()> {
    let to_id = begin_move(slot, from, to).await?;
    end_move(slot, from, to, &to_id).await
}

/// Begins to move a slot, without any key. Returns the id of its next server.
async fn begin_move(slot: &str, from: &Redis, to: &Redis) -> Result<String> {
    let (from_id, to_id) = (
        from.tell(&["CLUSTER", "MYID"]).await?,
        to.tell(&["CLUSTER", "MYID"]).await?,
    );
    let name = |told: &str| told.lines().last().unwrap_or_default().to_owned();
    let (from_id, to_id) = (name(&from_id), name(&to_id));
    to.tell(&["CLUSTER", "SETSLOT", slot, "IMPORTING", &from_id])
        .await?;
    from.tell(&["CLUSTER", "SETSLOT", slot, "MIGRATING", &to_id])
        .await?;
    Ok(to_id)
}

async fn end_move(slot: &str, from: &Redis, to: &Redis, to_id: &str) -> Result<()> {
    let port = to.port().to_string();
    loop {
        let keys = from.tell(&["CLUSTER", "GETKEYSINSLOT", slot, "1"]).await?;
        let Some(key) = keys.lines().find(|line| line.starts_with("{c3po}:")) else {
            break;
        };
        from.tell(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"])
            .await?;
    }
    for master in [to, from] {
        master
            .tell(&["CLUSTER", "SETSLOT", slot, "NODE", to_id])
            .await?;
    }
    Ok(())
}

/// Returns the master of the fleet and its slot.
async fn place_of_fleet(cluster: &Cluster) -> Result<(usize, String)> {
    let from = cluster.master_of(FLEET).await?;
    let told = cluster.masters[from]
        .tell(&["CLUSTER", "KEYSLOT", FLEET])
        .await?;
    Ok((from, told.trim().trim_start_matches(':').to_owned()))
}

/// Else they would find nothing on the next server, and leave keys there for which the move has no place.
#[tokio::test]
async fn calls_without_keys_run_on_one_server_while_a_slot_moves() -> Result<()> {
    let (cluster, fixture) = own().await?;
    let store = &fixture.store;
    store.keep_log(Some(1_000)).await?;
    let (from, slot) = place_of_fleet(&cluster).await?;
    let (here, there) = (&cluster.masters[from], &cluster.masters[(from + 1) % 3]);
    let to_id = begin_move(&slot, here, there).await?;

    let end = store.audit_end().await?;
    let (duty, entry) = (Duty::withdraw(&id("early")), Entry::new(Event::Denied));
    let refused = [
        store.plan(&duty, Timestamp::now()).await.err(),
        store.note(&[entry]).await.err(),
    ];
    for error in &refused {
        assert!(
            matches!(error, Some(StoreError::Unavailable(_))),
            "{refused:?}"
        );
    }
    let keys = ["CLUSTER", "COUNTKEYSINSLOT", &slot];
    assert_eq!(there.tell(&keys).await?.trim(), ":0");

    end_move(&slot, here, there, &to_id).await?;
    store.plan(&duty, Timestamp::now()).await?;
    assert_eq!(store.audit_end().await?, end);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_is_followed_and_nothing_is_half_done() -> Result<()> {
    const MESSAGES: usize = 60;
    let (cluster, fixture) = own().await?;
    let tenure = fixture.take(&claim("x")).await?;
    let (from, slot) = place_of_fleet(&cluster).await?;
    let mut sent = Vec::new();
    for n in 0..MESSAGES {
        sent.push(fixture.say("a", "x", &n.to_string()).await?);
    }

    let moving = async {
        for step in 0..4 {
            let (here, there) = (
                &cluster.masters[(from + step) % 3],
                &cluster.masters[(from + step + 1) % 3],
            );
            move_slot(&slot, here, there).await?;
        }
        Ok(())
    };
    let refused = AtomicUsize::new(0);
    let (expected, ()) = try_join(work(&*fixture.store, &tenure, &sent, &refused), moving).await?;
    // Only very few: a call waits while its slot is being moved.
    assert!(
        refused.load(Ordering::Relaxed) < 10,
        "{refused:?} calls were refused"
    );
    assert_eq!(fixture.inbox("x").await?, expected);
    assert_eq!(
        fixture.unshown("x").await?,
        expected,
        "a new session is shown everything"
    );
    Ok(())
}

/// Acknowledges the old messages, sends as many new ones, and claims the name repeatedly. Refused calls are repeated. Returns
/// the expected contents of the inbox.
async fn work(
    store: &dyn Store,
    tenure: &Tenure,
    old: &[Message],
    refused: &AtomicUsize,
) -> Result<Vec<String>> {
    let mut tenure = tenure.clone();
    let mut expected = Vec::new();
    for (number, message) in old.iter().enumerate() {
        let ids = std::slice::from_ref(&message.id);
        let progress = progress(ids, Stage::InSession, Via::GetMessages);
        insist(refused, async || {
            store
                .advance(&message.to_agent, &by(&tenure), &progress)
                .await
        })
        .await?;
        let left = insist(refused, async || {
            store.unshown(&id("x"), everything()).await
        })
        .await?;
        assert_eq!(left.len(), old.len() - 1);
        insist(refused, async || {
            store.release(&tenure, Ending::Goodbye).await
        })
        .await?;
        let wish = claim("x");
        tenure = insist(refused, async || store.claim(&wish).await)
            .await?
            .expect("the name is free");
        let shown = insist(refused, async || {
            store.unshown(&id("x"), everything()).await
        })
        .await?;
        assert_eq!(
            shown.len(),
            old.len(),
            "the next session is shown everything, in round {number}"
        );
        insist(refused, async || {
            store
                .acknowledge(&message.to_agent, &Actor::default(), ids)
                .await
        })
        .await?;
        let call = send(super::fixture::message("a", "x", &format!("new {number}")));
        insist(refused, async || store.send(&call).await).await?;
        expected.push(call.message.text().to_owned());
    }
    Ok(expected)
}

/// Repeats the attempt while the store is unavailable, as a proxy does.
async fn insist<T>(
    refused: &AtomicUsize,
    mut attempt: impl AsyncFnMut() -> Result<T, StoreError>,
) -> Result<T> {
    let mut last = None;
    let done = eventually(
        "it is not refused any more",
        SOON,
        async || match attempt().await {
            Ok(value) => Some(Ok(value)),
            Err(StoreError::Unavailable(why)) => {
                refused.fetch_add(1, Ordering::Relaxed);
                last = Some(why);
                None
            }
            Err(error) => Some(Err(error)),
        },
    );
    Ok(done.await.with_context(|| format!("{last:?}"))??)
}
