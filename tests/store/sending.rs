//! Sends: atomic, applied once, within limits, in order.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Result;
use c3po_coordinator::store::{Ending, Send, SendOutcome};
use c3po_shared::vocabulary::State;
use harness::eventually::eventually;
use tokio::task::JoinSet;

use super::Fixture;
use super::fixture::{SOON, again, brief, does, everything, id, message, send};

/// Runs the sends concurrently and returns their outcomes.
async fn send_all(
    fixture: &Fixture,
    sends: impl IntoIterator<Item = Send>,
) -> Result<Vec<SendOutcome>> {
    let mut tasks = JoinSet::new();
    for send in sends {
        let store = Arc::clone(&fixture.store);
        tasks.spawn(async move { store.send(&send).await });
    }
    Ok(tasks
        .join_all()
        .await
        .into_iter()
        .collect::<Result<_, _>>()?)
}

fn count(outcomes: &[SendOutcome], wanted: impl Fn(&SendOutcome) -> bool) -> usize {
    outcomes.iter().filter(|outcome| wanted(outcome)).count()
}

pub(crate) async fn a_send_that_is_refused_leaves_nothing(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    let nobody = message("a", "nobody", "hello?");
    assert_eq!(
        fixture.store.send(&send(nobody.clone())).await?,
        SendOutcome::NoSuchAgent
    );
    assert_eq!(fixture.store.message(&nobody.id).await?, None);
    assert_eq!(fixture.store.agent(&id("nobody")).await?, None);

    let first = fixture.say("a", "b", "first").await?;
    let mut second = message("a", "b", "second");
    second.id = first.id.clone();
    assert_eq!(
        fixture.store.send(&send(second)).await?,
        SendOutcome::IdTaken
    );

    let third = message("a", "b", "third");
    let full = Send {
        bound: 1,
        ..send(third.clone())
    };
    assert_eq!(fixture.store.send(&full).await?, SendOutcome::Full(1));
    assert_eq!(fixture.store.message(&third.id).await?, None);
    assert_eq!(fixture.inbox("b").await?, ["first"]);
    assert_eq!(fixture.pending("b").await?, 1);
    Ok(())
}

pub(crate) async fn an_agent_that_is_away_is_spared_if_the_sender_says_so(
    fixture: Fixture,
) -> Result<()> {
    let tenure = fixture.pair().await?;
    let sparing = || Send {
        spares_away: true,
        ..send(message("a", "b", "work"))
    };
    assert_eq!(fixture.store.send(&sparing()).await?, SendOutcome::Stored);
    fixture
        .store
        .amend(&id("b"), None, &does(State::Away).into())
        .await?;
    assert_eq!(fixture.store.send(&sparing()).await?, SendOutcome::Away);
    assert_eq!(
        fixture
            .store
            .send(&send(message("a", "b", "urgent")))
            .await?,
        SendOutcome::Stored
    );
    fixture.store.release(&tenure, Ending::Goodbye).await?;
    assert_eq!(
        fixture.store.send(&sparing()).await?,
        SendOutcome::Stored,
        "who is offline finds it later"
    );
    Ok(())
}

pub(crate) async fn the_same_call_sends_once(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    let first = send(message("a", "b", "once"));
    let once_more = again(&first, message("a", "b", "once more"));
    assert_eq!(fixture.store.send(&first).await?, SendOutcome::Stored);
    assert_eq!(
        fixture.store.send(&once_more).await?,
        SendOutcome::Repeated(Box::new(first.message.clone()))
    );
    assert_eq!(
        fixture.store.send(&first).await?,
        SendOutcome::Repeated(Box::new(first.message.clone()))
    );
    // The session may have been renamed before it repeats its call.
    let renamed = again(&first, message("c", "b", "as another"));
    assert_eq!(
        fixture.store.send(&renamed).await?,
        SendOutcome::Repeated(Box::new(first.message))
    );
    assert_eq!(fixture.inbox("b").await?, ["once"]);
    assert_eq!(fixture.store.message(&renamed.message.id).await?, None);

    // One that is much longer is not read: it is another one in any case.
    let long = send(message("a", "b", &"long".repeat(1_000)));
    assert_eq!(fixture.store.send(&long).await?, SendOutcome::Stored);
    let short = again(&long, message("a", "b", "short"));
    assert_eq!(fixture.store.send(&short).await?, SendOutcome::CallTaken);
    Ok(())
}

pub(crate) async fn the_same_call_sends_once_also_when_50_race(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    let first = send(message("a", "b", "0"));
    let sends = (0..50).map(|n| again(&first, message("a", "b", &n.to_string())));
    let outcomes = send_all(&fixture, sends).await?;
    let inbox = fixture.store.inbox(&id("b"), everything()).await?;
    assert_eq!(inbox.len(), 1);
    let repeated = SendOutcome::Repeated(Box::new(inbox[0].message.clone()));
    assert_eq!(
        count(&outcomes, |outcome| *outcome == SendOutcome::Stored),
        1
    );
    assert_eq!(count(&outcomes, |outcome| *outcome == repeated), 49);
    Ok(())
}

pub(crate) async fn the_same_call_is_known_after_its_message_was_settled(
    fixture: Fixture,
) -> Result<()> {
    fixture.pair().await?;
    let first = send(message("a", "b", "once"));
    fixture.store.send(&first).await?;
    fixture.acknowledge(&first.message).await?;
    assert_eq!(
        fixture.store.send(&first).await?,
        SendOutcome::Repeated(Box::new(first.message))
    );
    assert_eq!(fixture.pending("b").await?, 0);
    Ok(())
}

pub(crate) async fn one_call_reaches_each_recipient_once(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    fixture.agent("c").await?;
    let to_b = send(message("a", "b", "to both"));
    let to_c = Send {
        message: message("a", "c", "to both"),
        ..to_b.clone()
    };
    for send in [&to_b, &to_c] {
        assert_eq!(fixture.store.send(send).await?, SendOutcome::Stored);
    }
    for send in [to_b, to_c] {
        assert_eq!(
            fixture.store.send(&send).await?,
            SendOutcome::Repeated(Box::new(send.message))
        );
    }
    assert_eq!(
        (fixture.pending("b").await?, fixture.pending("c").await?),
        (1, 1)
    );
    Ok(())
}

pub(crate) async fn an_inbox_takes_exactly_its_bound(fixture: Fixture) -> Result<()> {
    fixture.pair().await?;
    let sends = (0..100).map(|n| Send {
        bound: 40,
        ..send(message("a", "b", &n.to_string()))
    });
    let outcomes = send_all(&fixture, sends).await?;
    assert_eq!(
        count(&outcomes, |outcome| *outcome == SendOutcome::Stored),
        40
    );
    assert_eq!(
        count(&outcomes, |outcome| *outcome == SendOutcome::Full(40)),
        60
    );
    assert_eq!(fixture.inbox("b").await?.len(), 40);
    assert_eq!(fixture.pending("b").await?, 40);
    Ok(())
}

pub(crate) async fn room_comes_back_as_messages_are_settled_or_expire(
    fixture: Fixture,
) -> Result<()> {
    fixture.pair().await?;
    let settled = fixture.say("a", "b", "settled").await?;
    fixture.post(brief("a", "b", "brief")).await?;
    let next = Send {
        bound: 2,
        ..send(message("a", "b", "next"))
    };
    let last = Send {
        bound: 2,
        ..send(message("a", "b", "last"))
    };
    fixture.acknowledge(&settled).await?;
    assert_eq!(fixture.store.send(&next).await?, SendOutcome::Stored);
    let sent =
        async || (fixture.store.send(&last).await.ok()? == SendOutcome::Stored).then_some(());
    eventually("room for one more", SOON, sent).await?;
    assert_eq!(fixture.inbox("b").await?, ["next", "last"]);
    Ok(())
}

pub(crate) async fn order_is_kept_between_one_sender_and_one_recipient(
    fixture: Fixture,
) -> Result<()> {
    fixture.agent("b").await?;
    let mut senders = JoinSet::new();
    for name in ["a1", "a2", "a3", "a4"] {
        let store = Arc::clone(&fixture.store);
        senders.spawn(async move {
            for n in 0..50 {
                store
                    .send(&send(message(name, "b", &format!("{name} {n:02}"))))
                    .await?;
            }
            anyhow::Ok(())
        });
    }
    senders
        .join_all()
        .await
        .into_iter()
        .collect::<Result<()>>()?;

    let placed = fixture.store.inbox(&id("b"), everything()).await?;
    assert_eq!(placed.len(), 200);
    assert!(placed.is_sorted_by(|one, next| one.position < next.position));
    for name in ["a1", "a2", "a3", "a4"] {
        let texts = placed
            .iter()
            .map(|placed| placed.message.text())
            .filter(|text| text.starts_with(name));
        assert!(texts.is_sorted_by(|one, next| one < next), "{name}");
    }
    Ok(())
}

pub(crate) async fn a_thousand_senders_to_one_inbox_all_arrive_once(
    fixture: Fixture,
) -> Result<()> {
    fixture.agent("b").await?;
    let sends = (0..1_000).map(|n| send(message(&format!("a{n}"), "b", &n.to_string())));
    let outcomes = send_all(&fixture, sends).await?;
    assert_eq!(
        count(&outcomes, |outcome| *outcome == SendOutcome::Stored),
        1_000
    );
    let texts: BTreeSet<String> = fixture.inbox("b").await?.into_iter().collect();
    assert_eq!((texts.len(), fixture.pending("b").await?), (1_000, 1_000));
    Ok(())
}

pub(crate) async fn a_thousand_senders_to_many_inboxes_all_arrive_once(
    fixture: Fixture,
) -> Result<()> {
    for n in 0..100 {
        fixture.agent(&format!("b{n}")).await?;
    }
    let sends = (0..1_000).map(|n| {
        send(message(
            &format!("a{n}"),
            &format!("b{}", n % 100),
            &n.to_string(),
        ))
    });
    send_all(&fixture, sends).await?;
    let mut texts = BTreeSet::new();
    for n in 0..100 {
        let inbox = fixture.inbox(&format!("b{n}")).await?;
        assert_eq!(inbox.len(), 10);
        texts.extend(inbox);
    }
    assert_eq!(texts.len(), 1_000);
    Ok(())
}
