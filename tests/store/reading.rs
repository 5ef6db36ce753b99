//! Reads: complete, in order, filtered, and without side effects.

use anyhow::Result;
use c3po_coordinator::store::{Backlog, Selection};
use c3po_shared::receipt::Stage;
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::KindFilter;
use harness::eventually::eventually;

use super::Fixture;
use super::fixture::{SOON, brief, everything, id, message};

pub(crate) async fn reading_changes_nothing(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    let sent = fixture.say("a", "b", "hello").await?;
    for _ in 0..2 {
        let inbox = fixture.store.inbox(&id("b"), everything()).await?;
        assert_eq!(inbox, fixture.store.unshown(&id("b"), everything()).await?);
        assert_eq!(inbox[0].message, sent);
        assert_eq!(
            fixture.thread(&sent.id, "a").await?,
            std::slice::from_ref(&sent)
        );
        assert_eq!(fixture.stages(&sent.id).await?, [Stage::Stored]);
        assert_eq!(fixture.pending("b").await?, 1);
    }
    assert!(fixture.inbox("a").await?.is_empty() && fixture.inbox("nobody").await?.is_empty());
    assert_eq!(
        fixture
            .store
            .message(&message("a", "b", "never sent").id)
            .await?,
        None
    );
    Ok(())
}

pub(crate) async fn an_inbox_is_paged_by_position(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    for n in 0..7 {
        fixture.say("a", "b", &n.to_string()).await?;
    }
    let (mut after, mut texts, mut pages) = (0, Vec::new(), 0);
    for _ in 0..10 {
        let selection = Selection {
            after,
            limit: 3,
            ..Selection::default()
        };
        let page = fixture.store.inbox(&id("b"), selection).await?;
        assert_eq!(page, fixture.store.unshown(&id("b"), selection).await?);
        let Some(last) = page.last() else { break };
        after = last.position;
        texts.extend(page.iter().map(|placed| placed.message.text().to_owned()));
        pages += 1;
    }
    assert_eq!((texts.join(""), pages), ("0123456".into(), 3));
    assert!(
        fixture
            .store
            .inbox(&id("b"), Selection::default())
            .await?
            .is_empty()
    );
    Ok(())
}

pub(crate) async fn long_messages_fill_a_page_before_its_limit(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    let long = "x".repeat(10_000);
    for text in [long.as_str(), "short", &long, &long, "last"] {
        fixture.say("a", "b", text).await?;
    }
    for kind in [KindFilter::Any, KindFilter::Message] {
        let (mut after, mut pages) = (0, Vec::new());
        loop {
            let selection = Selection {
                kind,
                after,
                limit: 4,
                bytes: 9_000,
                ..Selection::default()
            };
            let page = fixture.store.inbox(&id("b"), selection).await?;
            assert_eq!(page, fixture.store.unshown(&id("b"), selection).await?);
            pages.push(page.len());
            after = page.last().map_or(after, |last| last.position);
            if !selection.is_filled_by(&page) {
                break;
            }
        }
        assert_eq!(
            pages,
            [1, 2, 1, 1],
            "the first that goes over the bound is the last of its page"
        );
    }
    Ok(())
}

pub(crate) async fn kind_and_thread_select(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    let question = fixture.say("b", "a", "question").await?;
    fixture.say("a", "b", "unrelated").await?;
    fixture.answer(&question, "reply").await?;
    let mut further = message("a", "b", "further");
    further.thread_id = question.id.clone();
    fixture.post(further).await?;

    let check = async |kind, thread, expected: &[&str]| -> Result<()> {
        let selection = Selection {
            kind,
            thread,
            ..everything()
        };
        for placed in [
            fixture.store.inbox(&id("b"), selection).await?,
            fixture.store.unshown(&id("b"), selection).await?,
        ] {
            let texts: Vec<&str> = placed.iter().map(|placed| placed.message.text()).collect();
            assert_eq!(texts, expected, "{kind:?} {thread:?}");
        }
        Ok(())
    };
    check(KindFilter::Any, None, &["unrelated", "reply", "further"]).await?;
    check(KindFilter::Reply, None, &["reply"]).await?;
    check(KindFilter::Message, None, &["unrelated", "further"]).await?;
    check(KindFilter::Any, Some(&question.id), &["reply", "further"]).await?;
    check(KindFilter::Message, Some(&question.id), &["further"]).await?;

    // The limit counts the selected messages, not the skipped ones.
    let first = Selection {
        thread: Some(&question.id),
        limit: 1,
        ..Selection::default()
    };
    assert_eq!(
        fixture.store.inbox(&id("b"), first).await?[0]
            .message
            .text(),
        "reply"
    );
    Ok(())
}

pub(crate) async fn pending_counts_what_is_in_the_inbox(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    assert_eq!(
        fixture.store.pending(&id("b")).await?,
        Backlog {
            count: 0,
            oldest: None
        }
    );
    assert_eq!(
        fixture.store.pending(&id("nobody")).await?,
        Backlog {
            count: 0,
            oldest: None
        }
    );
    let first = fixture.say("a", "b", "first").await?;
    let second = fixture.say("a", "b", "second").await?;
    assert_eq!(
        fixture.store.pending(&id("b")).await?,
        Backlog {
            count: 2,
            oldest: Some(first.timestamp)
        }
    );
    fixture.acknowledge(&first).await?;
    assert_eq!(
        fixture.store.pending(&id("b")).await?,
        Backlog {
            count: 1,
            oldest: Some(second.timestamp)
        }
    );
    Ok(())
}

pub(crate) async fn a_message_past_its_time_is_out_at_once_and_says_so(
    fixture: Fixture,
) -> Result<()> {
    fixture.pair().await?;
    let sent = fixture.post(brief("a", "b", "brief")).await?;
    fixture.say("a", "b", "long").await?;
    let out = async || (fixture.pending("b").await.ok()? == 1).then_some(());
    eventually("the message's time is over", SOON, out).await?;

    assert_eq!(fixture.inbox("b").await?, ["long"]);
    assert_eq!(fixture.unshown("b").await?, ["long"]);
    let history = fixture
        .store
        .message(&sent.id)
        .await?
        .map(|kept| kept.history)
        .unwrap_or_default();
    assert_eq!(
        history.last().map(|step| (step.stage, step.at)),
        Some((Stage::Expired, sent.expires_at))
    );
    assert_eq!(history.len(), 2);
    // It was in this inbox: it counts as acknowledged, and stays expired.
    fixture.acknowledge(&sent).await?;
    assert_eq!(
        fixture.stages(&sent.id).await?,
        [Stage::Stored, Stage::Expired]
    );
    assert_eq!(fixture.pending("b").await?, 1);
    Ok(())
}

pub(crate) async fn messages_expire_in_order_behind_expired_ones(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    let first = fixture.post(brief("a", "b", "first")).await?;
    fixture.say("a", "b", "lasts").await?;
    // The inbox is not read until the next message arrives.
    eventually("its time is over", SOON, async || {
        (Timestamp::now() > first.expires_at).then_some(())
    })
    .await?;
    let second = fixture.post(brief("a", "b", "second")).await?;
    eventually("its time is over", SOON, async || {
        (Timestamp::now() > second.expires_at).then_some(())
    })
    .await?;
    assert_eq!(fixture.inbox("b").await?, ["lasts"]);
    assert_eq!(
        fixture.stages(&second.id).await?,
        [Stage::Stored, Stage::Expired]
    );
    Ok(())
}
