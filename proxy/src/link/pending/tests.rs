//! The requests without a reply, and the frames that are written for them.

use super::*;
use c3po_shared::catalogue::Call;
use c3po_shared::receipt::{Stage, Via};
use serde_json::{Value, json};

fn outgoing(name: &str, arguments: Value, now: Instant) -> OutgoingCall {
    let arguments = arguments.as_object().cloned().unwrap();
    OutgoingCall::new(
        CallId::fresh(),
        Call::of_object(name, arguments).unwrap(),
        now,
    )
}

fn frames(pending: &mut Pending, now: Instant) -> Vec<Value> {
    std::iter::from_fn(|| pending.next_frame(now, &SessionChange::default))
        .map(|(text, _)| serde_json::from_str(&text).unwrap())
        .collect()
}

#[test]
fn a_call_is_owed_an_answer_on_the_link_on_which_it_was_written_and_a_question_to_a_person_is_not()
{
    let (mut pending, now) = (Pending::default(), Instant::now());
    let asked = outgoing("ask_user", json!({"question": "Now?"}), now);
    let _asked = pending.add_call(asked).unwrap();
    assert_eq!(frames(&mut pending, now).len(), 1);
    assert_eq!(pending.owed_since(), None);
    let _pinged = pending.add_call(outgoing("ping", json!({}), now)).unwrap();
    assert_eq!(frames(&mut pending, now).len(), 1);
    assert_eq!(pending.owed_since(), Some(now));
    pending.write_all_again();
    assert_eq!(pending.owed_since(), None, "not on the next link");
    let later = now + std::time::Duration::from_secs(40);
    assert_eq!(frames(&mut pending, later).len(), 2);
    assert_eq!(pending.owed_since(), Some(later));
}

fn receipt() -> Progress {
    let (stage, via) = (Stage::InSession, Via::WaitForMessage);
    Progress {
        message_ids: Vec::new(),
        stage,
        via,
        seen_via: None,
        context: 0,
    }
}

#[test]
fn unanswered_requests_are_written_again_oldest_first_and_receipts_before_calls() {
    let (mut pending, now) = (Pending::default(), Instant::now());
    let (first, _one) = pending.add_call(outgoing("ping", json!({}), now)).unwrap();
    let (wait, _two) = pending
        .add_call(outgoing("wait_for_message", json!({}), now))
        .unwrap();
    pending.add_receipt(receipt());
    pending.add_receipt(Progress {
        stage: Stage::Seen,
        ..receipt()
    });
    let (last, _three) = pending
        .add_call(outgoing("list_agents", json!({}), now))
        .unwrap();
    let before = frames(&mut pending, now);
    assert!(frames(&mut pending, now).is_empty());
    pending.answered(first).unwrap();
    pending.write_all_again();
    let again = frames(&mut pending, now);
    assert_eq!(again[..2], before[2..4]);
    assert_eq!(
        [&again[2]["id"], &again[3]["id"]],
        [&json!(wait), &json!(last)]
    );
}

#[test]
fn a_receipt_goes_behind_those_that_the_store_could_not_take() {
    let (mut pending, now) = (Pending::default(), Instant::now());
    pending.add_receipt(receipt());
    let first = frames(&mut pending, now).remove(0);
    pending.postpone(first["id"].as_i64().unwrap());
    pending.add_receipt(Progress {
        stage: Stage::Seen,
        ..receipt()
    });
    let both = frames(&mut pending, now);
    assert_eq!(
        (&both[0], both[1]["params"]["stage"].as_str(), both.len()),
        (&first, Some("seen"), 2)
    );
}

#[test]
fn only_a_call_that_was_written_is_cancelled_on_the_wire() {
    let (mut pending, now) = (Pending::default(), Instant::now());
    let (first, _one) = pending.add_call(outgoing("ping", json!({}), now)).unwrap();
    assert!(!pending.forget(first));
    assert!(frames(&mut pending, now).is_empty());
    let (second, _two) = pending.add_call(outgoing("ping", json!({}), now)).unwrap();
    let call = frames(&mut pending, now).remove(0);
    assert!(pending.is_written(second) && pending.forget(second));
    let cancel = frames(&mut pending, now).remove(0);
    assert_eq!(cancel["params"]["call_id"], call["params"]["call_id"]);
    assert_eq!(cancel["method"], "cancel");
}

#[test]
fn a_call_that_breaks_every_connection_is_not_tried_for_ever() {
    let (mut pending, now) = (Pending::default(), Instant::now());
    let (_, mut thread) = pending
        .add_call(outgoing(
            "get_thread",
            json!({"message_id": "a::b::00000001"}),
            now,
        ))
        .unwrap();
    let (_, mut wait) = pending
        .add_call(outgoing("wait_for_message", json!({}), now))
        .unwrap();
    for connection in 0..WRITES_MAX {
        pending.write_all_again();
        assert_eq!(frames(&mut pending, now).len(), 2, "{connection}");
    }
    pending.write_all_again();
    assert_eq!(frames(&mut pending, now).len(), 1);
    assert_eq!(
        thread.try_recv().unwrap().unwrap_err().code,
        ErrorCode::Internal
    );
    assert!(wait.try_recv().is_err());
}

#[test]
fn a_receipt_for_many_messages_is_sent_in_parts_within_the_limit() {
    let (mut pending, now) = (Pending::default(), Instant::now());
    let message_ids = vec!["a::b::00000001".parse().unwrap(); 2 * IDS_MAX + 1];
    pending.add_receipt(Progress {
        message_ids,
        context: 2,
        ..receipt()
    });
    let parts: Vec<Progress> = frames(&mut pending, now)
        .into_iter()
        .map(|frame| serde_json::from_value(frame["params"].clone()).unwrap())
        .collect();
    assert!(
        parts
            .iter()
            .all(|part| part.check_reported().is_ok() && part.context == 2)
    );
    let sizes: Vec<_> = parts.iter().map(|part| part.message_ids.len()).collect();
    assert_eq!(sizes, [IDS_MAX, IDS_MAX, 1]);
}

#[test]
fn a_receipt_that_the_store_could_not_take_goes_ahead_of_the_next_call() {
    let (mut pending, now) = (Pending::default(), Instant::now());
    pending.add_receipt(receipt());
    let (ping, _reply) = pending.add_call(outgoing("ping", json!({}), now)).unwrap();
    let first = frames(&mut pending, now);
    assert!(pending.postpone(first[0]["id"].as_i64().unwrap()) && !pending.postpone(ping));
    assert!(frames(&mut pending, now).is_empty() && pending.has_receipts());
    let (wait, _reply) = pending
        .add_call(outgoing("wait_for_message", json!({}), now))
        .unwrap();
    let again = frames(&mut pending, now);
    assert_eq!(
        (&again[0], &again[1]["id"], again.len()),
        (&first[0], &json!(wait), 2)
    );
    pending.postpone(first[0]["id"].as_i64().unwrap());
    pending.write_all_again();
    assert_eq!(frames(&mut pending, now).len(), 3);
    pending.write_postponed();
    assert!(frames(&mut pending, now).is_empty());
}

#[test]
fn calls_and_receipts_are_bounded() {
    let (mut pending, now) = (Pending::default(), Instant::now());
    let _replies: Vec<_> = (0..CALLS_IN_FLIGHT)
        .map(|_| pending.add_call(outgoing("ping", json!({}), now)).unwrap())
        .collect();
    assert_eq!(
        pending
            .add_call(outgoing("ping", json!({}), now))
            .unwrap_err()
            .code,
        ErrorCode::RateLimited
    );
    (0..RECEIPTS_MAX + 5).for_each(|_| pending.add_receipt(receipt()));
    assert_eq!(pending.entries.len(), CALLS_IN_FLIGHT + RECEIPTS_MAX);
}

#[test]
fn a_takeover_ends_only_calls_that_were_written() {
    let (mut pending, now) = (Pending::default(), Instant::now());
    let (_, mut old) = pending.add_call(outgoing("ping", json!({}), now)).unwrap();
    pending.add_receipt(receipt());
    frames(&mut pending, now);
    let (_, mut new) = pending.add_call(outgoing("ping", json!({}), now)).unwrap();
    pending.taken_over(&Refusal::new(ErrorCode::Conflict, "taken over"));
    assert_eq!(
        old.try_recv().unwrap().unwrap_err().code,
        ErrorCode::Conflict
    );
    assert!(new.try_recv().is_err());
    assert_eq!(frames(&mut pending, now).len(), 1);
}
