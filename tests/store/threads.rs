//! Threads: in order, in stretches, whatever changes meanwhile, and only the messages that concern the reader.

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use c3po_coordinator::store::{Excerpt, Mark, Stretch};
use c3po_shared::ids::MessageId;
use c3po_shared::limits::PAGE_MAX;
use c3po_shared::message::Message;
use c3po_shared::receipt::{Stage, furthest};
use harness::eventually::eventually;

use super::Fixture;
use super::fixture::{SOON, brief, id, message, reply, send};

/// Creates a message in the thread of `first`, that many milliseconds after it.
fn further(first: &Message, from: &str, to: &str, text: &str, millis: u64) -> Message {
    let timestamp = first.timestamp + Duration::from_millis(millis);
    Message {
        thread_id: first.thread_id.clone(),
        timestamp,
        ..message(from, to, text)
    }
}

/// Returns the messages of that part of a thread, and the mark at which reading continues.
async fn stretch(
    fixture: &Fixture,
    thread: &MessageId,
    stretch: Stretch<'_>,
) -> Result<(Vec<Message>, Option<Mark>)> {
    let Excerpt { messages, next } = fixture.store.thread(thread, stretch).await?;
    let messages = messages.into_iter().map(|found| found.message);
    Ok((messages.collect(), next))
}

pub(crate) async fn a_thread_has_both_sides_in_order(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    let question = fixture.say("a", "b", "question").await?;
    let mut first = reply(&question, "reply");
    first.timestamp = question.timestamp + Duration::from_millis(5);
    fixture.store.answer(&send(first.clone())).await?;
    let last = fixture
        .post(further(&question, "a", "b", "thanks", 9))
        .await?;
    fixture.say("a", "b", "unrelated").await?;
    fixture.acknowledge(&last).await?;

    for reader in ["a", "b"] {
        let both = fixture.thread(&question.id, reader).await?;
        assert_eq!(
            both,
            [question.clone(), first.clone(), last.clone()],
            "{reader}"
        );
    }
    assert_eq!(fixture.thread(&question.id, "c").await?, []);
    assert_eq!(
        fixture
            .thread(&message("a", "b", "no thread").id, "a")
            .await?,
        []
    );
    Ok(())
}

/// The time of a message is its coordinator's; that of its storing is the clock by which agents are registered.
pub(crate) async fn a_thread_has_the_time_at_which_each_message_was_stored(
    fixture: Fixture,
) -> Result<()> {
    fixture.pair().await?;
    let first = fixture.say("a", "b", "first").await?;
    let later = fixture
        .post(further(&first, "b", "a", &"x".repeat(9_000), 60_000))
        .await?;
    let reader = id("a");
    let all = Stretch {
        reader: &reader,
        after: None,
        limit: PAGE_MAX,
        bytes: usize::MAX,
    };
    let found = fixture.store.thread(&first.id, all).await?.messages;
    assert_eq!(found.len(), 2);
    for (found, sent) in found.iter().zip([first, later]) {
        let kept = fixture.store.message(&sent.id).await?;
        let kept = kept.ok_or_else(|| anyhow!("{} is not stored", sent.id))?;
        assert_eq!(
            (&found.message, found.stored_at),
            (&sent, kept.history[0].at)
        );
    }
    Ok(())
}

/// Reads a thread as `b`, each time at most that many messages and bytes beyond the last message.
async fn read_in_stretches(
    fixture: &Fixture,
    thread: &MessageId,
    limit: usize,
    bytes: usize,
) -> Result<Vec<Message>> {
    let reader = id("b");
    let (mut read, mut after) = (Vec::new(), None);
    loop {
        let part = Stretch {
            reader: &reader,
            after: after.as_ref(),
            limit,
            bytes,
        };
        let (messages, next) = stretch(fixture, thread, part).await?;
        let sizes: Vec<usize> = messages.iter().map(|one| one.text().len()).collect();
        let last = sizes.last().copied().unwrap_or_default();
        ensure!(
            sizes.len() <= limit && sizes.iter().sum::<usize>() - last <= bytes,
            "{limit} {bytes}: {sizes:?}"
        );
        read.extend(messages);
        let Some(next) = next else {
            return Ok(read);
        };
        ensure!(
            after.as_ref() < Some(&next),
            "{limit} {bytes}: no way forward from {next}"
        );
        after = Some(next);
    }
}

pub(crate) async fn a_thread_is_the_same_in_stretches_of_any_length(
    fixture: Fixture,
) -> Result<()> {
    fixture.pair().await?;
    // The first message does not have the earliest time, because another coordinator's clock may be behind. Most share a
    // millisecond.
    let first = fixture.say("a", "b", "first").await?;
    let mut all = vec![first.clone()];
    for number in 0..24_u64 {
        let (from, to) = if number % 3 == 0 {
            ("b", "a")
        } else {
            ("a", "b")
        };
        let text = "x".repeat(if number % 5 == 0 { 9_000 } else { 10 });
        let mut next = further(&first, from, to, &text, number / 8);
        next.timestamp = c3po_shared::time::Timestamp::from_millis(next.timestamp.millis() - 1);
        all.push(fixture.post(next).await?);
    }
    all.sort_by_key(Mark::of);
    assert_eq!(fixture.thread(&first.id, "a").await?, all);

    for (limit, bytes) in [
        (1, usize::MAX),
        (7, usize::MAX),
        (25, usize::MAX),
        (25, 0),
        (25, 9_500),
        (3, 9_500),
    ] {
        let read = read_in_stretches(&fixture, &first.id, limit, bytes).await?;
        assert!(
            read == all,
            "{limit} {bytes}: {} of {}",
            read.len(),
            all.len()
        );
    }
    Ok(())
}

pub(crate) async fn a_thread_goes_on_where_reading_ended_whatever_comes_and_goes(
    fixture: Fixture,
) -> Result<()> {
    fixture.pair().await?;
    let first = fixture.post_for_once(message("a", "b", "first")).await?;
    let mut old = vec![first.clone()];
    for millis in 1..=3 {
        old.push(
            fixture
                .post_for_once(further(&first, "a", "b", "old", millis))
                .await?,
        );
    }
    let young = [
        fixture.post(further(&first, "b", "a", "young", 4)).await?,
        fixture
            .post(further(&first, "a", "b", "younger", 5))
            .await?,
    ];
    let reader = id("a");
    let begin = Stretch {
        reader: &reader,
        after: None,
        limit: 3,
        bytes: usize::MAX,
    };
    let (before, after) = stretch(&fixture, &first.id, begin).await?;
    assert_eq!(before, old[..3]);

    // All but one of the messages that were read, and one that was not.
    for one in [&old[0], &old[2], &old[3]] {
        fixture.acknowledge(one).await?;
    }
    let left = [&old[1..2], &young].concat();
    let gone = async || {
        fixture.store.sweep().await.ok()?;
        (fixture.thread(&first.id, "a").await.ok()? == left).then_some(())
    };
    eventually("what is kept no longer is gone", SOON, gone).await?;
    let last = fixture.post(further(&first, "a", "b", "last", 6)).await?;
    let rest = Stretch {
        reader: &reader,
        after: after.as_ref(),
        limit: PAGE_MAX,
        bytes: usize::MAX,
    };
    let rest = stretch(&fixture, &first.id, rest).await?;
    assert_eq!(rest, ([young.as_slice(), &[last]].concat(), None));
    Ok(())
}

pub(crate) async fn a_reader_of_a_thread_passes_over_what_others_said(
    fixture: Fixture,
) -> Result<()> {
    fixture.pair().await?;
    fixture.agent("c").await?;
    let thread: MessageId = "a::all::0badcafe".parse()?;
    let copy = |to: &str| Message {
        thread_id: thread.clone(),
        ..message("a", to, "everybody?")
    };
    let (to_b, to_c) = (
        fixture.post(copy("b")).await?,
        fixture.post(copy("c")).await?,
    );
    for number in 0..450 {
        fixture
            .post(further(&to_c, "c", "a", &number.to_string(), 1))
            .await?;
    }
    let answer = fixture.post(further(&to_b, "b", "a", "me", 1_000)).await?;

    let (reader, mut after, mut read, mut calls) = (id("b"), None, Vec::new(), 0);
    loop {
        let part = Stretch {
            reader: &reader,
            after: after.as_ref(),
            limit: 10,
            bytes: 1_000,
        };
        let (messages, next) = stretch(&fixture, &thread, part).await?;
        read.extend(messages);
        calls += 1;
        let Some(next) = next else { break };
        ensure!(calls < 5, "{calls} calls for two messages");
        after = Some(next);
    }
    assert_eq!(read, [to_b, answer.clone()]);
    let everything = fixture.thread(&thread, "a").await?;
    assert_eq!((everything.len(), everything.last()), (453, Some(&answer)));
    Ok(())
}

pub(crate) async fn the_stages_of_sent_messages_are_read_in_stretches(
    fixture: Fixture,
) -> Result<()> {
    let thread: MessageId = "a::all::0badcafe".parse()?;
    fixture.agent("a").await?;
    let mut copies = Vec::new();
    for name in ["b", "c", "d", "e"] {
        fixture.agent(name).await?;
        let copy = if name == "d" {
            brief("a", name, "everybody?")
        } else {
            message("a", name, "everybody?")
        };
        let thread_id = thread.clone();
        copies.push(fixture.post(Message { thread_id, ..copy }).await?);
    }
    fixture.post(further(&copies[0], "b", "a", "me", 2)).await?;
    fixture.acknowledge(&copies[1]).await?;
    let expired = eventually("an expired copy", SOON, async || {
        let stages = fixture.stages(&copies[2].id).await.ok()?;
        stages.ends_with(&[Stage::Expired]).then_some(())
    });
    expired.await?;

    let (sender, mut after, mut stages) = (id("a"), None, Vec::new());
    loop {
        let part = Stretch {
            reader: &sender,
            after: after.as_ref(),
            limit: 2,
            bytes: usize::MAX,
        };
        let sent = fixture.store.sent(&thread, part).await?;
        ensure!(sent.stages.len() <= 2, "{sent:?}");
        stages.extend(sent.stages);
        let Some(next) = sent.next else { break };
        ensure!(after.as_ref() < Some(&next), "no way forward from {next}");
        after = Some(next);
    }
    let mut expected = Vec::new();
    copies.sort_by_key(|copy| (copy.timestamp, copy.id.clone()));
    for copy in &copies {
        let kept = fixture.store.message(&copy.id).await?;
        expected.extend(kept.map(|kept| furthest(&kept.history)));
    }
    assert_eq!(stages, expected);
    assert!(expected.contains(&Stage::Expired) && expected.contains(&Stage::Stored));
    Ok(())
}
