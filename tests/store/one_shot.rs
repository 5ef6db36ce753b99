//! Sessions that answer one prompt and end: they leave nothing behind.

use anyhow::Result;
use c3po_coordinator::store::{AnswerOutcome, Claim, Ending, Send, SendOutcome, Tenure};
use c3po_shared::message::Message;
use c3po_shared::receipt::{Stage, Via};
use harness::eventually::eventually;

use super::Fixture;
use super::fixture::{SHORT, SOON, claim, id, message, news, send, woken};

/// Creates the claim of a one-shot session for a generated name.
fn run() -> Claim {
    Claim {
        fleeting: true,
        one_shot: true,
        ..claim("a-run")
    }
}

/// Sends a message from the one-shot session to another agent.
async fn sends(fixture: &Fixture, run: &Tenure, message: Message) -> Result<Message> {
    let outcome = fixture
        .store
        .send(&Send {
            one_shot: run.one_shot,
            ..send(message.clone())
        })
        .await?;
    anyhow::ensure!(outcome == SendOutcome::Stored, "{outcome:?}");
    Ok(message)
}

pub(crate) async fn a_one_shot_session_leaves_nothing_when_it_is_over(
    fixture: Fixture,
) -> Result<()> {
    let b = fixture.agent("b").await?;
    let made = fixture.take(&run()).await?;
    let asked = sends(&fixture, &made, message("a-run", "b", "which?")).await?;
    let shown = sends(
        &fixture,
        &made,
        message("a-run", "b", "and which of these?"),
    )
    .await?;
    fixture
        .advance(&shown, &b, Stage::InSession, Via::GetMessages)
        .await?;
    let answered = sends(&fixture, &made, message("a-run", "b", "yes?")).await?;
    fixture.answer(&answered, "yes").await?;
    let told = sends(&fixture, &made, news("a-run", "b", "it is done")).await?;
    let unread = fixture.say("b", "a-run", "and you?").await?;
    let read = fixture.say("b", "a-run", "are you there?").await?;
    fixture
        .advance(&read, &made, Stage::InSession, Via::GetMessages)
        .await?;

    let mut wakes = fixture.store.wakes();
    fixture.store.release(&made, Ending::Goodbye).await?;
    woken(&mut wakes, "b").await?;
    assert_eq!(fixture.store.agent(&id("a-run")).await?, None);
    assert_eq!(fixture.inbox("b").await?, ["it is done"]);
    assert_eq!(fixture.unshown("b").await?, ["it is done"]);
    let ends = |stages: Vec<Stage>| *stages.last().expect("a first stage");
    for expired in [&asked, &shown, &unread, &read] {
        assert_eq!(
            ends(fixture.stages(&expired.id).await?),
            Stage::Expired,
            "{}",
            expired.text()
        );
    }
    assert_eq!(ends(fixture.stages(&answered.id).await?), Stage::Answered);
    assert_eq!(fixture.stages(&told.id).await?, [Stage::Stored]);
    let late = fixture.answer(&asked, "that one").await?;
    assert_eq!(late, AnswerOutcome::Sent(SendOutcome::NoSuchAgent));

    let next = fixture.take(&run()).await?;
    assert_eq!((next.generation, next.uid == made.uid), (1, false));
    assert_eq!(
        (fixture.pending("a-run").await?, fixture.pending("b").await?),
        (0, 1)
    );
    Ok(())
}

pub(crate) async fn a_one_shot_session_leaves_nothing_however_much_it_has(
    fixture: Fixture,
) -> Result<()> {
    fixture.agent("b").await?;
    one_with_much_ends(&fixture).await?;
    assert_eq!(fixture.pending("b").await?, 0);
    Ok(())
}

/// Ends a one-shot session with many open questions to `b` and many messages in its inbox.
pub(crate) async fn one_with_much_ends(fixture: &Fixture) -> Result<()> {
    let made = fixture.take(&run()).await?;
    for number in 0..120 {
        sends(fixture, &made, message("a-run", "b", &number.to_string())).await?;
        fixture.say("b", "a-run", &number.to_string()).await?;
    }
    fixture.store.release(&made, Ending::Goodbye).await?;
    assert_eq!(fixture.store.agent(&id("a-run")).await?, None);
    assert_eq!(fixture.pending("a-run").await?, 0);
    Ok(())
}

pub(crate) async fn a_one_shot_session_whose_link_broke_ends_with_its_hold(
    fixture: Fixture,
) -> Result<()> {
    fixture.agent("b").await?;
    let wish = Claim {
        lease: SHORT,
        ..run()
    };
    let made = fixture.take(&wish).await?;
    sends(&fixture, &made, message("a-run", "b", "which?")).await?;
    fixture.say("b", "a-run", "and you?").await?;
    fixture.store.release(&made, Ending::Gone).await?;
    let same = fixture
        .take(&Claim {
            lease: SOON / 4,
            ..wish.clone()
        })
        .await?;
    assert_eq!(
        (same.generation, same.uid, same.one_shot),
        (made.generation, made.uid, true),
        "it came back"
    );
    fixture.store.release(&same, Ending::Gone).await?;
    assert!(fixture.store.withdraw(&id("a-run")).await?.is_some());
    assert_eq!(
        (fixture.pending("a-run").await?, fixture.pending("b").await?),
        (1, 1),
        "it may come back"
    );
    eventually("it is forgotten", SOON, async || {
        fixture.store.withdraw(&id("a-run")).await.ok()?;
        fixture
            .store
            .agent(&id("a-run"))
            .await
            .ok()?
            .is_none()
            .then_some(())
    })
    .await?;
    assert_eq!(
        (fixture.pending("a-run").await?, fixture.pending("b").await?),
        (0, 0)
    );
    Ok(())
}

pub(crate) async fn no_session_inherits_from_a_one_shot_session(fixture: Fixture) -> Result<()> {
    fixture.agent("b").await?;
    for heir in [run(), claim("a-run")] {
        let dead = fixture.take(&run()).await?;
        sends(&fixture, &dead, message("a-run", "b", "which?")).await?;
        fixture.say("b", "a-run", "and you?").await?;
        assert_eq!(
            fixture.store.claim(&heir).await?,
            None,
            "it lives as far as anybody knows"
        );
        let one_shot = heir.one_shot;
        let heir = fixture
            .take(&Claim {
                succeeds: vec![dead.instance],
                ..heir
            })
            .await?;
        assert_eq!(heir.one_shot, one_shot);
        assert_eq!(
            (fixture.pending("a-run").await?, fixture.pending("b").await?),
            (0, 0)
        );
        fixture.store.release(&heir, Ending::Goodbye).await?;
    }
    let chosen = fixture.store.agent(&id("a-run")).await?;
    assert!(chosen.is_some(), "a name that somebody chose is kept");
    Ok(())
}

pub(crate) async fn a_one_shot_session_under_anothers_name_takes_nothing_from_it(
    fixture: Fixture,
) -> Result<()> {
    let chosen = fixture.agent("a-run").await?;
    let sent = fixture.say("b", "a-run", "hello").await?;
    fixture.store.release(&chosen, Ending::Goodbye).await?;
    let made = fixture.take(&run()).await?;
    assert!(!made.one_shot);
    fixture.store.release(&made, Ending::Goodbye).await?;
    assert_eq!(
        (
            fixture.inbox("a-run").await?,
            fixture.stages(&sent.id).await?
        ),
        (vec!["hello".into()], vec![Stage::Stored])
    );
    Ok(())
}
