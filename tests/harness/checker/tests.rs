//! The checker finds each kind of violation, and nothing in a correct run.

use super::*;

fn key(number: u64) -> Key {
    Key {
        lane: "a>b/send".to_owned(),
        number,
    }
}

fn id(number: u64) -> String {
    format!("a::b::{number:08}")
}

fn sent(number: u64, outcome: Outcome) -> Event {
    Event::Sent {
        key: key(number),
        outcome,
        answers: None,
    }
}

fn accepted(number: u64) -> Event {
    sent(number, Outcome::Accepted(id(number)))
}

fn shown(session: Session, number: u64, repeated: bool) -> Event {
    Event::Shown {
        session,
        shown: Shown {
            id: id(number),
            key: key(number),
            repeated,
        },
    }
}

fn began(session: Session, at: u64) -> Event {
    Event::Began {
        session,
        at: Timestamp::from_millis(at),
    }
}

fn named(session: Session, number: u64) -> Event {
    Event::Named {
        session,
        id: id(number),
    }
}

fn step(stage: &str, at: u64, session: Option<&str>) -> Step {
    Step {
        stage: stage.to_owned(),
        at: Timestamp::from_millis(at),
        session: session.map(str::to_owned),
        reply: None,
    }
}

fn history(number: u64, steps: &[(&str, u64, Option<&str>)]) -> Event {
    Event::History {
        id: id(number),
        steps: steps
            .iter()
            .map(|(stage, at, whose)| step(stage, *at, *whose))
            .collect(),
    }
}

fn in_session(number: u64) -> Event {
    history(
        number,
        &[
            ("stored", 1, None),
            ("on_host", 2, Some("1")),
            ("in_session", 3, Some("1")),
        ],
    )
}

fn seen(number: u64) -> Event {
    let one = Some("1");
    history(
        number,
        &[
            ("stored", 1, None),
            ("on_host", 2, one),
            ("in_session", 3, one),
            ("seen", 4, one),
        ],
    )
}

/// Returns the first word of each finding.
fn found(events: &[Event]) -> Vec<String> {
    let report = check(events);
    report
        .findings
        .iter()
        .map(|finding| {
            finding
                .to_string()
                .split(':')
                .next()
                .unwrap_or_default()
                .to_owned()
        })
        .collect()
}

#[test]
fn a_correct_record_has_no_findings() {
    let events = [
        began(0, 0),
        began(1, 0),
        accepted(1),
        sent(2, Outcome::Refused),
        sent(3, Outcome::Unknown),
        sent(4, Outcome::Unknown),
        sent(5, Outcome::Queued),
        shown(1, 1, false),
        named(1, 1),
        shown(1, 3, false),
        shown(1, 5, false),
        seen(1),
        in_session(3),
        in_session(5),
    ];
    // The session named no other message.
    let report = check(&events);
    assert_eq!(report.findings, []);
    let Report {
        sends,
        accepted,
        queued,
        refused,
        unknown,
        shown,
        ..
    } = report;
    assert_eq!(
        (sends, accepted, queued, refused, unknown, shown),
        (5, 1, 1, 1, 2, 3)
    );
}

#[test]
fn an_accepted_message_that_was_never_shown_is_lost() {
    assert_eq!(
        found(&[began(1, 0), accepted(1), sent(2, Outcome::Queued)]),
        ["lost", "lost"]
    );
}

#[test]
fn messages_that_were_refused_or_never_sent_are_not_shown() {
    assert_eq!(
        found(&[
            began(1, 0),
            sent(1, Outcome::Refused),
            shown(1, 1, false),
            in_session(1)
        ]),
        ["undead"]
    );
    assert_eq!(
        found(&[began(1, 0), shown(1, 1, false), in_session(1)]),
        ["undead"]
    );
}

#[test]
fn one_send_is_one_message() {
    let again = Event::Shown {
        session: 1,
        shown: Shown {
            id: id(9),
            key: key(1),
            repeated: false,
        },
    };
    let events = [
        began(1, 0),
        sent(1, Outcome::Unknown),
        shown(1, 1, false),
        again,
        in_session(1),
        in_session(9),
    ];
    assert_eq!(found(&events), ["sent twice"]);
    let left = Event::Left {
        id: id(9),
        key: key(1),
    };
    assert_eq!(
        found(&[
            began(1, 0),
            accepted(1),
            shown(1, 1, false),
            left,
            in_session(1)
        ]),
        ["sent twice"]
    );
}

#[test]
fn one_session_is_shown_a_message_once() {
    for repeated in [false, true] {
        let events = [
            began(1, 0),
            accepted(1),
            shown(1, 1, false),
            shown(1, 1, repeated),
            in_session(1),
        ];
        assert_eq!(found(&events), ["shown twice"], "{repeated}");
    }
}

#[test]
fn a_later_session_is_shown_earlier_messages_marked_as_repeated() {
    let killed = Event::Killed { session: 1 };
    let check_mark = |repeated: bool, expected: &[&str]| {
        let begin = [
            began(1, 0),
            accepted(1),
            shown(1, 1, false),
            killed.clone(),
            began(2, 10),
        ];
        // The result is the same whether or not the first session could report it.
        let end = [
            shown(2, 1, repeated),
            history(1, &[("stored", 1, None), ("in_session", 20, Some("2"))]),
        ];
        assert_eq!(
            found(&[&begin[..], &end[..]].concat()),
            expected,
            "{repeated}"
        );
    };
    check_mark(true, &[]);
    check_mark(false, &["shown twice"]);
    assert_eq!(
        found(&[began(1, 0), accepted(1), shown(1, 1, true), in_session(1)]),
        ["falsely repeated"]
    );
}

#[test]
fn a_mark_may_be_of_a_session_that_was_killed_before_it_came_to_it() {
    let killed = Event::Killed { session: 1 };
    let events = [
        began(1, 0),
        accepted(1),
        killed,
        began(2, 10),
        shown(2, 1, true),
        in_session(1),
    ];
    assert_eq!(found(&events), Vec::<String>::new());
}

#[test]
fn the_order_of_a_lane_stays_within_a_session() {
    let later_first = [
        shown(1, 2, false),
        shown(1, 1, false),
        in_session(1),
        in_session(2),
    ];
    let check_order = |outcome: Outcome, expected: &[&str]| {
        let events = [
            &[began(1, 0), sent(1, outcome), accepted(2)],
            &later_first[..],
        ]
        .concat();
        assert_eq!(found(&events), expected);
    };
    check_order(Outcome::Accepted(id(1)), &["reordered"]);
    check_order(Outcome::Queued, &["reordered"]);
    check_order(Outcome::Unknown, &[]);
}

#[test]
fn a_stage_needs_its_evidence() {
    let begin = [began(1, 0), accepted(1)];
    let check_history =
        |between: &[Event], steps: &[(&str, u64, Option<&str>)], expected: usize| {
            let events = [&begin[..], between, &[history(1, steps)]].concat();
            let receipts = found(&events)
                .into_iter()
                .filter(|word| word == "receipt")
                .count();
            assert_eq!(receipts, expected, "{steps:?}");
        };
    let (stored, had) = (("stored", 1, None), ("in_session", 2, Some("1")));
    let with = |last| [stored, had, last];
    let is_shown = [shown(1, 1, false)];
    check_history(&[], &[stored, had], 1);
    check_history(&is_shown, &[had], 1);
    check_history(&is_shown, &[("stored", 3, None), had], 1);
    check_history(&is_shown, &with(("in_session", 3, Some("2"))), 1);
    check_history(&is_shown, &with(("seen", 3, Some("1"))), 1);
    check_history(&is_shown, &with(("expired", 3, None)), 1);
    let of_another = [shown(1, 1, false), named(1, 2), named(2, 1)];
    check_history(&of_another, &with(("seen", 3, Some("1"))), 1);
    let is_named = [shown(1, 1, false), named(1, 1)];
    check_history(&is_named, &with(("seen", 3, Some("2"))), 1);
    check_history(&is_named, &with(("seen", 3, Some("1"))), 0);
}

#[test]
fn a_message_of_a_late_sweep_is_in_an_inbox_and_was_read_there() {
    let left = Event::Left {
        id: id(1),
        key: key(1),
    };
    assert_eq!(
        found(&[
            began(1, 0),
            sent(1, Outcome::Unknown),
            left.clone(),
            seen(1)
        ]),
        Vec::<String>::new()
    );
    // An accepted message should have been shown before.
    assert_eq!(found(&[began(1, 0), accepted(1), left, seen(1)]), ["lost"]);
}

#[test]
fn every_observed_stage_is_in_the_receipt() {
    let begin = [began(1, 0), accepted(1), shown(1, 1, false)];
    assert_eq!(
        found(&[&begin[..], &[history(1, &[("stored", 1, None)])]].concat()),
        ["receipt"]
    );
    assert_eq!(
        found(&[&begin[..], &[named(1, 1), in_session(1)]].concat()),
        ["receipt"]
    );
    let killed = [
        Event::Killed { session: 1 },
        history(1, &[("stored", 1, None)]),
    ];
    assert_eq!(found(&[&begin[..], &killed].concat()), Vec::<String>::new());
}

#[test]
fn an_answer_has_its_reply_and_a_reply_its_answer() {
    let reply = |outcome| Event::Sent {
        key: Key {
            lane: "b>a/reply".into(),
            number: 1,
        },
        outcome,
        answers: Some(id(1)),
    };
    let answered = |reply: &str| {
        let answered = Step {
            reply: Some(reply.to_owned()),
            ..step("answered", 9, None)
        };
        let steps = vec![
            step("stored", 1, None),
            step("in_session", 3, Some("1")),
            answered,
        ];
        Event::History { id: id(1), steps }
    };
    let begin = [began(1, 0), accepted(1), shown(1, 1, false)];
    let check_reply = |outcome: Outcome, history: Event, expected: &[&str]| {
        let mut words = found(&[&begin[..], &[reply(outcome), history]].concat());
        words.retain(|word| word == "receipt");
        assert_eq!(words, expected);
    };
    check_reply(Outcome::Accepted("r".into()), answered("r"), &[]);
    check_reply(
        Outcome::Accepted("r".into()),
        answered("other"),
        &["receipt"],
    );
    check_reply(Outcome::Accepted("r".into()), in_session(1), &["receipt"]);
    check_reply(Outcome::Unknown, answered("r"), &[]);
    check_reply(Outcome::Refused, answered("r"), &["receipt"]);
}

#[test]
fn a_call_without_an_answer_is_found() {
    assert_eq!(
        found(&[
            began(1, 0),
            Event::Hung {
                session: 1,
                what: "ping".into()
            }
        ]),
        ["hung"]
    );
}

#[test]
fn keys_stand_at_the_beginning_of_texts() {
    assert_eq!(
        Key::read("a>b/send#17 hello #3"),
        Some(Key {
            lane: "a>b/send".into(),
            number: 17
        })
    );
    assert_eq!(
        Key::read("a>b/send#17")
            .map(|key| key.to_string())
            .as_deref(),
        Some("a>b/send#17")
    );
    assert_eq!(Key::read("hello"), None);
}
