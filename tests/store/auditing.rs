//! The audit log: in order, bounded and correct.

use std::time::Duration;

use anyhow::Result;
use c3po_coordinator::store::{Actor, Amendment, Claim, Ending, Send};
use c3po_shared::audit::{Entry, Event};
use c3po_shared::message::Message;
use c3po_shared::receipt::{Progress, Stage, Via};
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::State;
use c3po_shared::wire::SessionChange;
use futures_util::future::try_join_all;
use harness::redis::Redis;
use tokio::time::timeout;

use super::Fixture;
use super::fixture::{SHORT, SOON, by, claim, id, message, progress, reply, send, speaking};
use super::redis::fixture_on;

/// A limit that these tests do not reach.
const PLENTY: u64 = 100_000;

/// Returns entries of that agent, distinguished by their verbs.
fn entries(agent: &str, verbs: impl IntoIterator<Item = u64>) -> Vec<Entry> {
    verbs
        .into_iter()
        .map(|n| {
            Entry::new(Event::Accepted)
                .by(&id(agent))
                .verb(n.to_string())
        })
        .collect()
}

/// Reads all entries after that position, page by page.
async fn read(fixture: &Fixture, mut after: u64, limit: usize) -> Result<Vec<Entry>> {
    let mut all = Vec::new();
    loop {
        let page = fixture.store.audit(after, limit).await?;
        let Some(last) = page.last() else {
            return Ok(all);
        };
        after = last.position;
        all.extend(page);
    }
}

fn verbs(entries: &[Entry]) -> Vec<&str> {
    entries
        .iter()
        .filter_map(|entry| entry.verb.as_deref())
        .collect()
}

pub(crate) async fn the_audit_is_read_in_the_order_in_which_it_was_written(
    fixture: Fixture,
) -> Result<()> {
    assert!(read(&fixture, 0, 10).await?.is_empty());
    assert_eq!(fixture.store.audit_end().await?, 0);
    fixture.store.keep_log(Some(PLENTY)).await?;
    let gap = Entry {
        count: Some(4),
        ..Entry::new(Event::Gap)
    };
    let receipt = Entry {
        message_id: Some("a::b::00000001".parse()?),
        stage: Some(Stage::Seen),
        via: Some(Via::Hook),
        key: Some("k1".into()),
        ..Entry::new(Event::Receipt)
            .by(&id("b"))
            .to(&id("a"))
            .because("äöü \" \\ \u{1F916}")
    };
    let written = [entries("a", 0..3), vec![gap, receipt]].concat();
    fixture.store.note(&written[..2]).await?;
    fixture.store.note(&[]).await?;
    fixture.store.note(&written[2..]).await?;
    let found = read(&fixture, 0, 2).await?;
    assert_eq!(
        found.iter().map(|entry| entry.position).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5]
    );
    assert_eq!(fixture.store.audit_end().await?, 5);
    let unplaced: Vec<_> = found
        .iter()
        .cloned()
        .map(|entry| Entry {
            position: 0,
            ..entry
        })
        .collect();
    assert_eq!(unplaced, written);
    assert_eq!(
        read(&fixture, 1, 10).await?,
        found[1..],
        "from the middle of a batch"
    );
    assert!(
        read(&fixture, 5, 10).await?.is_empty() && read(&fixture, u64::MAX, 10).await?.is_empty()
    );
    Ok(())
}

pub(crate) async fn the_audit_forgets_the_oldest_beyond_its_bound(fixture: Fixture) -> Result<()> {
    const BOUND: u64 = 500;
    fixture.store.keep_log(Some(BOUND)).await?;
    for batch in 0..40 {
        fixture
            .store
            .note(&entries("a", batch * 50..(batch + 1) * 50))
            .await?;
    }
    fixture.store.keep_log(Some(BOUND)).await?;
    let found = read(&fixture, 0, 1_000).await?;
    // Redis trims its stream by whole nodes, and each node holds one or two batches.
    assert!(
        (500..1_000).contains(&found.len()),
        "{} entries are kept",
        found.len()
    );
    assert_eq!(
        found
            .last()
            .map(|entry| (entry.position, entry.verb.as_deref())),
        Some((2_000, Some("1999")))
    );
    assert!(
        found
            .windows(2)
            .all(|pair| pair[1].position == pair[0].position + 1)
    );
    Ok(())
}

pub(crate) async fn without_a_log_nothing_is_appended(fixture: Fixture) -> Result<()> {
    fixture.store.note(&entries("a", 0..3)).await?;
    fixture.pair().await?;
    assert!(read(&fixture, 0, 10).await?.is_empty());
    fixture.store.keep_log(Some(PLENTY)).await?;
    fixture.store.note(&entries("a", 3..4)).await?;
    fixture.store.keep_log(None).await?;
    fixture.store.note(&entries("a", 4..5)).await?;
    fixture.say("a", "b", "nobody notes this").await?;
    fixture.store.keep_log(Some(PLENTY)).await?;
    fixture.store.note(&entries("a", 5..6)).await?;
    let found = read(&fixture, 0, 10).await?;
    assert_eq!(verbs(&found), ["3", "5"]);
    assert_eq!(found.last().map(|entry| entry.position), Some(2));
    Ok(())
}

pub(crate) async fn the_audit_survives_closing_and_opening(mut fixture: Fixture) -> Result<()> {
    fixture.store.keep_log(Some(PLENTY)).await?;
    fixture.store.note(&entries("a", 0..3)).await?;
    fixture.reopen().await?;
    fixture.store.keep_log(Some(PLENTY)).await?;
    fixture.store.note(&entries("a", 3..5)).await?;
    let found = read(&fixture, 0, 10).await?;
    assert_eq!(verbs(&found), ["0", "1", "2", "3", "4"]);
    assert_eq!(found.last().map(|entry| entry.position), Some(5));
    Ok(())
}

pub(crate) async fn many_writers_share_one_order(fixture: Fixture) -> Result<()> {
    let batches: Vec<Vec<Entry>> = (0..20)
        .map(|writer| entries(&format!("w{writer}"), 0..10))
        .collect();
    fixture.store.keep_log(Some(PLENTY)).await?;
    try_join_all(batches.iter().map(|batch| fixture.store.note(batch))).await?;
    let found = read(&fixture, 0, 1_000).await?;
    assert_eq!(
        found.iter().map(|entry| entry.position).collect::<Vec<_>>(),
        (1..=200).collect::<Vec<_>>()
    );
    for batch in found.chunks(10) {
        assert!(
            batch.iter().all(|entry| entry.agent == batch[0].agent),
            "a batch stays together"
        );
        assert_eq!(
            verbs(batch),
            ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
        );
    }
    Ok(())
}

pub(crate) async fn only_what_is_recorded_of_a_message_counts_as_an_advance(
    fixture: Fixture,
) -> Result<()> {
    let tenure = fixture.pair().await?;
    let (mine, theirs) = (
        fixture.say("a", "b", "one").await?,
        fixture.say("b", "a", "not mine").await?,
    );
    let messages = [
        theirs.id.clone(),
        mine.id.clone(),
        "a::b::00000000".parse()?,
    ];
    let recorded = async |stage| {
        let progress = progress(&messages, stage, Via::Hook);
        fixture
            .store
            .advance(&tenure.agent, &by(&tenure), &progress)
            .await
    };
    assert!(
        recorded(Stage::Seen).await?.is_empty(),
        "it was not in the session"
    );
    assert_eq!(
        recorded(Stage::InSession).await?,
        [(mine.id.clone(), Stage::InSession)]
    );
    assert!(
        recorded(Stage::InSession).await?.is_empty() && recorded(Stage::OnHost).await?.is_empty()
    );
    assert_eq!(
        recorded(Stage::Seen).await?,
        [(mine.id.clone(), Stage::Seen)]
    );
    Ok(())
}

/// Returns entries in short: event, agent, the other agent, and verb or stage.
fn short(entries: &[Entry]) -> Vec<String> {
    let text = |entry: &Entry| {
        let words = [
            Some(entry.event.to_string()),
            entry.agent.as_ref().map(ToString::to_string),
            entry.to.as_ref().map(|to| format!("-> {to}")),
            entry.verb.clone(),
            entry.stage.map(|stage| stage.to_string()),
            entry.via.map(|via| format!("via {via}")),
            entry.key.as_ref().map(|key| format!("key {key}")),
            entry.login.as_ref().map(|login| format!("login {login}")),
        ];
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    };
    entries.iter().map(text).collect()
}

pub(crate) async fn each_change_appends_its_entries_in_its_own_step(
    fixture: Fixture,
) -> Result<()> {
    fixture.store.keep_log(Some(PLENTY)).await?;
    let tenure = fixture.pair().await?;
    let question = fixture.say("a", "b", "how?").await?;
    let progress = Progress {
        seen_via: Some(Via::Hook),
        ..progress(
            std::slice::from_ref(&question.id),
            Stage::InSession,
            Via::WaitForMessage,
        )
    };
    for _ in 0..2 {
        fixture
            .store
            .advance(&tenure.agent, &by(&tenure), &progress)
            .await?;
    }
    fixture.answer(&question, "so").await?;
    let news = fixture.say("a", "b", "news").await?;
    for _ in 0..2 {
        fixture.acknowledge(&news).await?;
    }
    let busy = Amendment::from(SessionChange {
        state: Some(State::Busy),
        ..SessionChange::default()
    });
    for _ in 0..2 {
        fixture
            .store
            .amend(&tenure.agent, Some(&speaking(&tenure)), &busy)
            .await?;
    }
    fixture.store.release(&tenure, Ending::Goodbye).await?;
    let found = read(&fixture, 0, 100).await?;
    assert_eq!(
        short(&found),
        [
            "session_begun a session key 0a0b0c0d",
            "session_begun b session key 0a0b0c0d",
            "accepted a -> b message",
            "receipt b -> a in_session via wait_for_message key 0a0b0c0d",
            "receipt b -> a seen via hook key 0a0b0c0d",
            "answered b -> a reply",
            "accepted a -> b message",
            "acknowledged b -> a",
            "status_changed b busy key 0a0b0c0d",
            "session_ended b goodbye key 0a0b0c0d",
        ]
    );
    let positions: Vec<u64> = found.iter().map(|entry| entry.position).collect();
    assert_eq!(positions, (1..=10).collect::<Vec<_>>());
    assert_eq!(found[5].about.as_ref(), Some(&question.id));
    let now = Timestamp::now();
    assert!(found.iter().all(|entry| now.since(entry.at) < SOON));
    Ok(())
}

pub(crate) async fn a_message_of_a_person_is_recorded_with_its_login(
    fixture: Fixture,
) -> Result<()> {
    fixture.pair().await?;
    fixture.store.keep_log(Some(PLENTY)).await?;
    let question = fixture.say("a", "b", "how?").await?;
    let sent = Send {
        login: Some("0a1b2c3d".into()),
        ..send(message("a", "b", "by a person"))
    };
    fixture.store.send(&sent).await?;
    let answer = Send {
        login: Some(r#"ntfy/Ann "work"\home"#.into()),
        ..send(reply(&question, "so"))
    };
    fixture.store.answer(&answer).await?;
    assert_eq!(
        short(&read(&fixture, 0, 100).await?),
        [
            "accepted a -> b message",
            "accepted a -> b message login 0a1b2c3d",
            r#"answered b -> a reply login ntfy/Ann "work"\home"#,
        ]
    );
    Ok(())
}

pub(crate) async fn an_acknowledgement_and_a_receipt_are_recorded_with_their_credentials(
    fixture: Fixture,
) -> Result<()> {
    fixture.pair().await?;
    fixture.store.keep_log(Some(PLENTY)).await?;
    for (key, login) in [(Some("0a0b0c0d"), None), (None, Some("0a1b2c3d"))] {
        let sent = fixture.say("a", "b", "how?").await?;
        let actor = Actor {
            speaker: None,
            key: key.map(str::to_owned),
            login: login.map(str::to_owned),
        };
        let (of, ids) = (&sent.to_agent, std::slice::from_ref(&sent.id));
        let progress = Progress {
            seen_via: Some(Via::Terminal),
            ..progress(ids, Stage::InSession, Via::Terminal)
        };
        fixture.store.advance(of, &actor, &progress).await?;
        fixture.store.acknowledge(of, &actor, ids).await?;
    }
    let mut found = read(&fixture, 0, 100).await?;
    found.retain(|entry| entry.agent == Some(id("b")));
    assert_eq!(
        short(&found),
        [
            "receipt b -> a in_session via terminal key 0a0b0c0d",
            "receipt b -> a seen via terminal key 0a0b0c0d",
            "acknowledged b -> a key 0a0b0c0d",
            "receipt b -> a in_session via terminal login 0a1b2c3d",
            "receipt b -> a seen via terminal login 0a1b2c3d",
            "acknowledged b -> a login 0a1b2c3d",
        ]
    );
    Ok(())
}

pub(crate) async fn a_change_that_did_not_happen_appends_nothing(fixture: Fixture) -> Result<()> {
    let old = fixture.pair().await?;
    let tenure = fixture
        .take(&Claim {
            succeeds: vec![old.instance],
            ..claim("b")
        })
        .await?;
    fixture.store.keep_log(Some(PLENTY)).await?;
    let first = send(message("a", "b", "once"));
    fixture.store.send(&first).await?;
    fixture.store.send(&first).await?;
    fixture
        .store
        .send(&Send {
            bound: 1,
            ..send(message("a", "b", "full"))
        })
        .await?;
    fixture
        .store
        .send(&send(message("a", "nobody", "no such agent")))
        .await?;
    fixture.store.claim(&claim("b")).await?;
    fixture.store.release(&old, Ending::Goodbye).await?;
    let unseen = progress(
        std::slice::from_ref(&first.message.id),
        Stage::Seen,
        Via::Hook,
    );
    fixture
        .store
        .advance(&tenure.agent, &by(&tenure), &unseen)
        .await?;
    assert_eq!(
        short(&read(&fixture, 0, 100).await?),
        ["accepted a -> b message"]
    );
    Ok(())
}

pub(crate) async fn an_expiry_is_in_the_log_once_however_it_is_noticed(
    fixture: Fixture,
) -> Result<()> {
    let tenure = fixture.pair().await?;
    fixture.store.keep_log(Some(PLENTY)).await?;
    let brief = |text: &str| {
        let message = message("a", "b", text);
        Message {
            expires_at: message.timestamp + SHORT,
            ..message
        }
    };
    let (acked, read_late) = (
        fixture.post(brief("acked")).await?,
        fixture.post(brief("seen late")).await?,
    );
    let swept = fixture.post(brief("swept")).await?;
    tokio::time::sleep(SHORT + Duration::from_millis(50)).await;
    fixture.acknowledge(&acked).await?;
    fixture
        .advance(&read_late, &tenure, Stage::InSession, Via::Hook)
        .await?;
    for _ in 0..2 {
        fixture.store.expire(&id("b")).await?;
    }
    let found = read(&fixture, 3, 100).await?;
    for message in [&acked, &read_late, &swept] {
        let of_it: Vec<Entry> = found
            .iter()
            .filter(|entry| {
                entry.message_id.as_ref() == Some(&message.id)
                    && entry.stage == Some(Stage::Expired)
            })
            .cloned()
            .collect();
        assert_eq!(short(&of_it), ["receipt b -> a expired"], "{message:?}");
    }
    assert!(
        !short(&found)
            .iter()
            .any(|entry| entry.starts_with("acknowledged"))
    );
    Ok(())
}

pub(crate) async fn readers_of_the_log_are_woken(fixture: Fixture) -> Result<()> {
    fixture.store.keep_log(Some(PLENTY)).await?;
    let mut grows = fixture.store.log_grows();
    grows.mark_unchanged();
    fixture.pair().await?;
    timeout(SOON, grows.changed()).await??;
    grows.mark_unchanged();
    fixture.say("a", "b", "hello").await?;
    timeout(SOON, grows.changed()).await??;
    Ok(())
}

/// Redis deletes at most 10,000 entries of a stream at once, and a flood of changes brings more between two sweeps.
#[tokio::test]
async fn the_log_keeps_its_bound_between_sweeps_in_redis() -> Result<()> {
    let redis = Redis::start().await?;
    let fixture = fixture_on(redis.url(), ()).await?;
    fixture.store.keep_log(Some(500)).await?;
    for number in 0..3_000 {
        fixture.store.note(&entries("a", [number])).await?;
    }
    let length = redis.tell(&["XLEN", "{c3po}:audit"]).await?;
    let length: u64 = length.trim().trim_start_matches(':').parse()?;
    assert!((500..800).contains(&length), "{length} entries are kept");
    Ok(())
}
