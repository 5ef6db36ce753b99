//! Messages to people: their duty from the first to the last moment, and the evidence for each person.

use std::time::Duration;

use anyhow::{Context, Result};
use c3po_coordinator::store::{Claimed, Conclusion, Duty, DutyKind, PersonReached};
use c3po_shared::message::Message;
use c3po_shared::receipt::{Stage, Via};

use super::Fixture;
use super::fixture::{id, woken};

/// A time that outlasts every test.
const HOLD: Duration = Duration::from_secs(600);

impl Fixture {
    /// Returns a question to people, whose asker is `a`.
    async fn question_to_people(&self) -> Result<Message> {
        self.agent("a").await?;
        self.introduce("human", None).await?;
        self.say("a", "human", "which one?").await
    }

    /// Claims the duties that are due, and returns the pushes.
    async fn due_pushes(&self) -> Result<Vec<Claimed>> {
        let due = self.store.claim_due(10, HOLD).await?;
        let pushes = due.claimed.into_iter();
        Ok(pushes
            .filter(|claimed| claimed.duty.kind == DutyKind::Push)
            .collect())
    }
}

fn reached(message: &Message, by: &str, via: Via) -> PersonReached {
    PersonReached {
        message: message.id.clone(),
        by: by.to_owned(),
        stage: Stage::OnHost,
        via,
    }
}

pub(crate) async fn a_message_to_people_has_a_duty_from_its_first_moment(
    fixture: Fixture,
) -> Result<()> {
    let question = fixture.question_to_people().await?;
    fixture.agent("b").await?;
    fixture.say("a", "b", "nothing for people").await?;
    let pushes = fixture.due_pushes().await?;
    let duties: Vec<_> = pushes.iter().map(|claimed| &claimed.duty).collect();
    assert_eq!(duties, [&Duty::push(&question.id)]);
    Ok(())
}

pub(crate) async fn that_duty_is_due_when_the_question_ends(fixture: Fixture) -> Result<()> {
    let (first, second) = (
        fixture.question_to_people().await?,
        fixture.say("a", "human", "and then?").await?,
    );
    let mut pushes = fixture.due_pushes().await?;
    assert_eq!(pushes.len(), 2);
    let at = pushes
        .iter()
        .position(|claimed| claimed.duty.id == first.id.as_str());
    let of_first = pushes.remove(at.context("the first")?);
    assert!(fixture.store.postpone(&of_first, HOLD).await?);
    assert_eq!(fixture.due_pushes().await?, []);
    fixture.answer(&first, "this one").await?;
    let due = fixture.due_pushes().await?;
    assert_eq!(due.len(), 1, "{due:?}");
    assert!(due[0].duty == of_first.duty && !due[0].taken_over);

    // The other one ends while its duty is claimed.
    let conclusion = Conclusion {
        asker: id("a"),
        question: second.id.clone(),
        stage: Stage::Withdrawn,
        via: Via::Terminal,
        key: None,
        speaker: None,
    };
    assert_eq!(fixture.store.conclude(&conclusion).await?, Some(true));
    assert_eq!(fixture.due_pushes().await?, []);
    assert!(fixture.store.postpone(&pushes[0], HOLD).await?);
    assert_eq!(fixture.due_pushes().await?.len(), 1);
    Ok(())
}

pub(crate) async fn each_person_is_reached_once_on_each_way(fixture: Fixture) -> Result<()> {
    let question = fixture.question_to_people().await?;
    let mut wakes = fixture.store.wakes();
    let store = &fixture.store;
    for (by, via) in [
        ("ann", Via::Ntfy),
        ("Jo Smith @ Ü", Via::Ntfy),
        ("ann", Via::Page),
    ] {
        assert!(
            store.reach_person(&reached(&question, by, via)).await?,
            "{by}"
        );
        assert!(
            !store.reach_person(&reached(&question, by, via)).await?,
            "{by}: once"
        );
    }
    woken(&mut wakes, "a").await?;
    let kept = store.message(&question.id).await?.context("it is there")?;
    let steps: Vec<_> = kept
        .history
        .iter()
        .map(|step| (step.via, step.by.as_deref()))
        .collect();
    let of_people = [
        (Some(Via::Ntfy), Some("ann")),
        (Some(Via::Ntfy), Some("Jo Smith @ Ü")),
        (Some(Via::Page), Some("ann")),
    ];
    assert_eq!(steps[1..], of_people);
    assert!(kept.history.iter().all(|step| step.session.is_none()));
    fixture.answer(&question, "this one").await?;
    assert!(
        !store
            .reach_person(&reached(&question, "bob", Via::Ntfy))
            .await?,
        "too late"
    );

    fixture.agent("b").await?;
    let other = fixture.say("a", "b", "not for people").await?;
    assert!(
        !store
            .reach_person(&reached(&other, "ann", Via::Ntfy))
            .await?
    );
    Ok(())
}
