//! Receipts: each step once, in order, with its evidence, and never from a session that has lost the agent.

use anyhow::{Result, ensure};
use c3po_coordinator::store::{Actor, Ending, StoreError, Wake};
use c3po_shared::receipt::{Stage, Via};
use harness::eventually::eventually;
use tokio::time::timeout;

use super::Fixture;
use super::fixture::{
    SOON, brief, by, claim, everything, id, message, news, progress, seen_at_once, woken,
};

pub(crate) async fn a_history_has_each_step_once_in_order_with_its_evidence(
    fixture: Fixture,
) -> Result<()> {
    let tenure = fixture.pair().await?;
    let sent = fixture.say("a", "b", "hello").await?;
    for _ in 0..2 {
        fixture
            .advance(&sent, &tenure, Stage::OnHost, Via::Deliver)
            .await?;
        fixture
            .advance(&sent, &tenure, Stage::InSession, Via::WaitForMessage)
            .await?;
        fixture
            .advance(&sent, &tenure, Stage::Seen, Via::ToolCall)
            .await?;
    }
    fixture.answer(&sent, "reply").await?;

    let history = fixture
        .store
        .message(&sent.id)
        .await?
        .map(|kept| kept.history)
        .unwrap_or_default();
    let steps: Vec<_> = history.iter().map(|step| (step.stage, step.via)).collect();
    let expected = [
        (Stage::Stored, None),
        (Stage::OnHost, Some(Via::Deliver)),
        (Stage::InSession, Some(Via::WaitForMessage)),
        (Stage::Seen, Some(Via::ToolCall)),
        (Stage::Answered, Some(Via::Reply)),
    ];
    assert_eq!(steps, expected);
    assert!(history.is_sorted_by_key(|step| step.at));
    assert!(
        history[1..4]
            .iter()
            .all(|step| step.session.as_deref() == Some("1"))
    );
    assert_eq!(history[0].session, None);
    Ok(())
}

pub(crate) async fn in_session_proves_on_host(fixture: Fixture) -> Result<()> {
    let tenure = fixture.pair().await?;
    let sent = fixture.say("a", "b", "hello").await?;
    fixture
        .advance(&sent, &tenure, Stage::InSession, Via::GetMessages)
        .await?;
    assert_eq!(
        fixture.stages(&sent.id).await?,
        [Stage::Stored, Stage::OnHost, Stage::InSession]
    );
    Ok(())
}

pub(crate) async fn seen_settles_only_what_wants_no_answer(fixture: Fixture) -> Result<()> {
    let tenure = fixture.pair().await?;
    let question = fixture.say("a", "b", "question").await?;
    let news = fixture.post(news("a", "b", "news")).await?;
    for message in [&question, &news] {
        fixture
            .advance(message, &tenure, Stage::InSession, Via::GetMessages)
            .await?;
        assert_eq!(fixture.pending("b").await?, 2);
    }
    for message in [&question, &news] {
        fixture
            .advance(message, &tenure, Stage::Seen, Via::ToolCall)
            .await?;
        assert_eq!(
            fixture.stages(&message.id).await?.last(),
            Some(&Stage::Seen)
        );
    }
    assert_eq!(fixture.inbox("b").await?, ["question"]);
    assert_eq!(fixture.pending("b").await?, 1);
    Ok(())
}

pub(crate) async fn in_session_shows_a_message_and_a_new_session_shows_it_again(
    fixture: Fixture,
) -> Result<()> {
    let first = fixture.pair().await?;
    let shown = fixture.say("a", "b", "shown").await?;
    fixture.say("a", "b", "waiting").await?;
    fixture
        .advance(&shown, &first, Stage::OnHost, Via::Deliver)
        .await?;
    assert_eq!(fixture.unshown("b").await?, ["shown", "waiting"]);
    fixture
        .advance(&shown, &first, Stage::InSession, Via::WaitForMessage)
        .await?;
    assert_eq!(fixture.unshown("b").await?, ["waiting"]);
    assert_eq!(fixture.inbox("b").await?, ["shown", "waiting"]);

    fixture.store.release(&first, Ending::Goodbye).await?;
    let second = fixture.take(&claim("b")).await?;
    assert_eq!(fixture.unshown("b").await?, ["shown", "waiting"]);
    for _ in 0..2 {
        fixture
            .advance(&shown, &second, Stage::InSession, Via::GetMessages)
            .await?;
        assert_eq!(fixture.unshown("b").await?, ["waiting"]);
    }
    let history = fixture
        .store
        .message(&shown.id)
        .await?
        .map(|kept| kept.history)
        .unwrap_or_default();
    let sessions: Vec<_> = history
        .iter()
        .map(|step| (step.stage, step.session.as_deref()))
        .collect();
    let expected = [
        (Stage::Stored, None),
        (Stage::OnHost, Some("1")),
        (Stage::InSession, Some("1")),
        (Stage::InSession, Some("2")),
    ];
    assert_eq!(sessions, expected);
    Ok(())
}

pub(crate) async fn late_evidence_adds_nothing(fixture: Fixture) -> Result<()> {
    let tenure = fixture.pair().await?;
    let sent = fixture.say("a", "b", "hello").await?;
    fixture
        .advance(&sent, &tenure, Stage::InSession, Via::GetMessages)
        .await?;
    fixture
        .advance(&sent, &tenure, Stage::Seen, Via::ToolCall)
        .await?;
    for stage in [Stage::OnHost, Stage::InSession] {
        fixture.advance(&sent, &tenure, stage, Via::Deliver).await?;
        assert_eq!(fixture.stages(&sent.id).await?.last(), Some(&Stage::Seen));
    }
    fixture.answer(&sent, "reply").await?;
    let before = fixture.stages(&sent.id).await?;
    for stage in [Stage::OnHost, Stage::InSession, Stage::Seen] {
        fixture
            .advance(&sent, &tenure, stage, Via::ToolCall)
            .await?;
    }
    assert_eq!(fixture.stages(&sent.id).await?, before);
    Ok(())
}

pub(crate) async fn evidence_counts_after_the_message_expired(fixture: Fixture) -> Result<()> {
    let tenure = fixture.pair().await?;
    let sent = fixture.post(brief("a", "b", "brief")).await?;
    fixture
        .advance(&sent, &tenure, Stage::OnHost, Via::Deliver)
        .await?;
    let out = async || (fixture.pending("b").await.ok()? == 0).then_some(());
    eventually("the message's time is over", SOON, out).await?;

    fixture
        .advance(&sent, &tenure, Stage::InSession, Via::UserPromptSubmit)
        .await?;
    fixture
        .advance(&sent, &tenure, Stage::Seen, Via::Hook)
        .await?;
    let expected = [
        Stage::Stored,
        Stage::OnHost,
        Stage::Expired,
        Stage::InSession,
        Stage::Seen,
    ];
    assert_eq!(fixture.stages(&sent.id).await?, expected);
    fixture
        .advance(&sent, &tenure, Stage::Seen, Via::Hook)
        .await?;
    assert_eq!(fixture.pending("b").await?, 0);
    assert_eq!(fixture.stages(&sent.id).await?, expected);
    Ok(())
}

pub(crate) async fn an_expired_message_no_longer_reaches_a_host(fixture: Fixture) -> Result<()> {
    let tenure = fixture.pair().await?;
    let sent = fixture.post(brief("a", "b", "brief")).await?;
    let out = async || (fixture.pending("b").await.ok()? == 0).then_some(());
    eventually("the message's time is over", SOON, out).await?;
    for (stage, via, expected) in [
        (
            Stage::OnHost,
            Via::Deliver,
            &[Stage::Stored, Stage::Expired][..],
        ),
        (
            Stage::InSession,
            Via::UserPromptSubmit,
            &[
                Stage::Stored,
                Stage::Expired,
                Stage::OnHost,
                Stage::InSession,
            ],
        ),
    ] {
        fixture.advance(&sent, &tenure, stage, via).await?;
        assert_eq!(fixture.stages(&sent.id).await?, expected);
    }
    Ok(())
}

pub(crate) async fn others_mail_and_unknown_messages_do_not_advance(
    fixture: Fixture,
) -> Result<()> {
    let tenure = fixture.pair().await?;
    let to_a = fixture.say("b", "a", "for a").await?;
    let to_b = fixture.say("a", "b", "for b").await?;
    let messages = [
        message("a", "b", "never sent").id,
        to_a.id.clone(),
        to_b.id.clone(),
    ];
    let progress = progress(&messages, Stage::InSession, Via::GetMessages);
    fixture
        .store
        .advance(&id("b"), &by(&tenure), &progress)
        .await?;
    assert_eq!(fixture.stages(&to_a.id).await?, [Stage::Stored]);
    assert_eq!(
        fixture.stages(&to_b.id).await?.last(),
        Some(&Stage::InSession)
    );
    Ok(())
}

pub(crate) async fn an_outdated_session_advances_nothing(fixture: Fixture) -> Result<()> {
    let old = fixture.pair().await?;
    let sent = fixture.say("a", "b", "hello").await?;
    fixture.store.release(&old, Ending::Goodbye).await?;
    fixture.take(&claim("b")).await?;
    let messages = std::slice::from_ref(&sent.id);
    for progress in [
        progress(messages, Stage::InSession, Via::GetMessages),
        seen_at_once(messages, 0),
    ] {
        let refused = fixture.store.advance(&id("b"), &by(&old), &progress).await;
        assert!(matches!(refused, Err(StoreError::TakenOver(agent)) if agent == id("b")));
    }
    assert_eq!(fixture.stages(&sent.id).await?, [Stage::Stored]);
    assert_eq!(fixture.unshown("b").await?, ["hello"]);
    Ok(())
}

pub(crate) async fn evidence_without_a_session_is_recorded(fixture: Fixture) -> Result<()> {
    fixture.introduce("human", None).await?;
    let sent = fixture.post(news("a", "human", "news")).await?;
    for stage in [Stage::InSession, Stage::Seen] {
        let progress = progress(std::slice::from_ref(&sent.id), stage, Via::Terminal);
        fixture
            .store
            .advance(&id("human"), &Actor::default(), &progress)
            .await?;
    }
    let history = fixture
        .store
        .message(&sent.id)
        .await?
        .map(|kept| kept.history)
        .unwrap_or_default();
    assert!(
        history[1..]
            .iter()
            .all(|step| step.session.is_none() && step.via == Some(Via::Terminal))
    );
    let stages = [Stage::Stored, Stage::OnHost, Stage::InSession, Stage::Seen];
    assert_eq!(fixture.stages(&sent.id).await?, stages);
    assert_eq!(fixture.pending("human").await?, 0);
    Ok(())
}

pub(crate) async fn a_combined_receipt_records_every_stage_with_its_evidence(
    fixture: Fixture,
) -> Result<()> {
    let tenure = fixture.pair().await?;
    let (question, news) = (
        fixture.say("a", "b", "question").await?,
        fixture.post(news("a", "b", "news")).await?,
    );
    let both = [question.id.clone(), news.id.clone()];
    let mut wakes = fixture.store.wakes();
    let recorded = fixture
        .store
        .advance(&id("b"), &by(&tenure), &seen_at_once(&both, 0))
        .await?;
    let expected = both
        .iter()
        .flat_map(|id| [(id.clone(), Stage::InSession), (id.clone(), Stage::Seen)]);
    assert_eq!(recorded, expected.collect::<Vec<_>>());
    woken(&mut wakes, "a").await?;
    for id in &both {
        let history = fixture
            .store
            .message(id)
            .await?
            .map(|kept| kept.history)
            .unwrap_or_default();
        let steps: Vec<_> = history
            .iter()
            .map(|step| (step.stage, step.via, step.session.as_deref()))
            .collect();
        let expected = [
            (Stage::Stored, None, None),
            (Stage::OnHost, Some(Via::InboxSocket), Some("1")),
            (Stage::InSession, Some(Via::InboxSocket), Some("1")),
            (Stage::Seen, Some(Via::Hook), Some("1")),
        ];
        assert_eq!(steps, expected);
    }
    assert_eq!(
        (fixture.inbox("b").await?, fixture.unshown("b").await?.len()),
        (vec!["question".to_owned()], 0)
    );
    assert!(
        fixture
            .store
            .advance(&id("b"), &by(&tenure), &seen_at_once(&both, 0))
            .await?
            .is_empty(),
        "once"
    );
    Ok(())
}

/// A recipient has as many contexts as it likes, and all waits of the sender would look at the store.
pub(crate) async fn a_further_context_wakes_no_sender(fixture: Fixture) -> Result<()> {
    let tenure = fixture.pair().await?;
    let question = fixture.say("a", "b", "question").await?;
    let mut wakes = fixture.store.wakes();
    let show = async |context| {
        fixture
            .advance_in(context, &question, &tenure, Stage::InSession, Via::Stop)
            .await
    };
    show(0).await?;
    woken(&mut wakes, "a").await?;
    for context in 1..=3 {
        show(context).await?;
    }
    fixture.say("b", "a", "the end").await?;
    loop {
        match timeout(SOON, wakes.recv()).await?? {
            Wake::Inbox(woken, _) if woken == id("a") => return Ok(()),
            Wake::Receipt(message) => ensure!(message != question.id, "a receipt"),
            _ => {}
        }
    }
}

pub(crate) async fn a_combined_receipt_adds_the_missing_stages_of_each_message(
    fixture: Fixture,
) -> Result<()> {
    let tenure = fixture.pair().await?;
    let shown = fixture.say("a", "b", "shown").await?;
    let seen = fixture.say("a", "b", "seen").await?;
    let fresh = fixture.say("a", "b", "fresh").await?;
    let answered = fixture.say("a", "b", "answered").await?;
    for message in [&shown, &seen] {
        fixture
            .advance(message, &tenure, Stage::OnHost, Via::Deliver)
            .await?;
        fixture
            .advance(message, &tenure, Stage::InSession, Via::GetMessages)
            .await?;
    }
    fixture
        .advance(&seen, &tenure, Stage::Seen, Via::ToolCall)
        .await?;
    fixture.answer(&answered, "reply").await?;
    let all = [&shown, &seen, &fresh, &answered].map(|message| message.id.clone());
    let recorded = fixture
        .store
        .advance(&id("b"), &by(&tenure), &seen_at_once(&all, 0))
        .await?;
    let of_fresh = [Stage::InSession, Stage::Seen].map(|stage| (fresh.id.clone(), stage));
    assert_eq!(
        recorded,
        [[(shown.id.clone(), Stage::Seen)].as_slice(), &of_fresh].concat()
    );
    let history = fixture
        .store
        .message(&shown.id)
        .await?
        .map(|kept| kept.history)
        .unwrap_or_default();
    let via: Vec<_> = history.iter().filter_map(|step| step.via).collect();
    assert_eq!(
        via,
        [Via::Deliver, Via::GetMessages, Via::Hook],
        "the evidence that came first stays"
    );
    Ok(())
}

/// A person has no session, so its reading repeats nothing.
pub(crate) async fn a_message_that_a_person_was_shown_is_not_repeated(
    fixture: Fixture,
) -> Result<()> {
    fixture.pair().await?;
    let sent = fixture.say("a", "b", "hello").await?;
    let read = progress(
        std::slice::from_ref(&sent.id),
        Stage::InSession,
        Via::GetMessages,
    );
    let recorded = fixture
        .store
        .advance(&id("b"), &Actor::default(), &read)
        .await?;
    assert_eq!(recorded.len(), 1);
    let inbox = fixture.store.inbox(&id("b"), everything()).await?;
    assert_eq!(inbox.len(), 1);
    assert!(!inbox[0].message.repeated);
    Ok(())
}
