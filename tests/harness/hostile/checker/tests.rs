//! Each rule finds its violation, and nothing in a correct run.

use std::time::Duration;

use c3po_shared::time::Timestamp;

use super::{Asker, Deed, Effect, Finding, Idle, Record, Request, Sent, Standing, Step, check};
use crate::fake_api::Fate;
use crate::hostile::token::{Text, Token};

fn token(number: usize) -> Token {
    Token {
        text: Text::Message,
        seat: 0,
        number,
    }
}

/// Returns the time that many seconds after the start.
fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + seconds * 1_000)
}

fn sent(number: usize, seconds: u64) -> Sent {
    Sent {
        token: token(number),
        id: format!("a::b::{number}"),
        wants_answer: true,
        presses: true,
        at: at(seconds),
    }
}

/// Creates a request with these messages that was answered after one second.
fn request(seconds: u64, numbers: &[usize]) -> Request {
    let standing = numbers
        .iter()
        .map(|number| Standing {
            token: token(*number),
            marked: false,
        })
        .collect();
    let ended = Some((Fate::Answered, at(seconds + 1)));
    Request {
        seat: 0,
        asker: Asker::Session,
        at: at(seconds),
        ended,
        standing,
    }
}

fn step(stage: &str, seconds: u64, session: &str) -> Step {
    Step {
        stage: stage.into(),
        via: Some("hook".into()),
        at: at(seconds),
        session: Some(session.into()),
    }
}

fn deed(effect: Effect, from: u64, to: u64) -> Deed {
    Deed {
        seat: 0,
        name: "deed".into(),
        from: at(from),
        to: at(to),
        effect,
    }
}

fn idle(from: u64, to: u64) -> Idle {
    Idle {
        seat: 0,
        from: at(from),
        to: at(to),
    }
}

/// Two messages that were sent, shown, answered and seen, the second of them in the last context.
fn good() -> Record {
    let steps = |shown: u64| vec![step("in_session", shown, "1"), step("seen", shown + 2, "1")];
    Record {
        sent: vec![sent(1, 10), sent(2, 20)],
        requests: vec![request(11, &[1]), request(21, &[1, 2])],
        idle: vec![idle(0, 11), idle(13, 21), idle(23, 400)],
        histories: [(token(1), steps(11)), (token(2), steps(21))].into(),
        last: [(0, token(2))].into(),
        over: at(500),
        ..Record::default()
    }
}

/// Returns the findings for a modified copy of the good run.
fn found(change: impl FnOnce(&mut Record)) -> Vec<Finding> {
    let mut record = good();
    change(&mut record);
    check(&record).findings
}

fn mark(record: &mut Record, request: usize, place: usize) {
    record.requests[request].standing[place].marked = true;
}

#[test]
fn nothing_is_found_where_everything_is_as_it_should_be() {
    let report = check(&good());
    assert_eq!(
        (report.questions, report.news, report.requests),
        (2, 0, [2, 0, 0])
    );
    assert_eq!(
        (report.longest, report.findings),
        (Duration::from_secs(1), Vec::new())
    );
}

#[test]
fn a_receipt_before_the_answer_of_a_request_with_its_message_is_found() {
    let unseen = |number| {
        vec![Finding::Unseen {
            token: token(number),
            via: "hook".into(),
        }]
    };
    let early = |record: &mut Record| record.histories.get_mut(&token(2)).unwrap()[1].at = at(21);
    assert_eq!(found(early), unseen(2));
    let failed = |record: &mut Record| record.requests[0].ended = Some((Fate::Failed, at(12)));
    assert_eq!(
        found(failed),
        unseen(1),
        "it is in a later request, after the receipt"
    );
    let of_a_subagent = |record: &mut Record| record.requests[0].asker = Asker::Subagent;
    assert_eq!(found(of_a_subagent), unseen(1), "that is not the session");
    let of_another = |record: &mut Record| record.requests[0].seat = 1;
    assert_eq!(found(of_another), unseen(1));
}

#[test]
fn a_receipt_of_a_message_that_was_in_no_request_is_found_and_the_message_is_lost() {
    let nowhere = |record: &mut Record| {
        record.sent.push(sent(3, 30));
        record
            .histories
            .insert(token(3), vec![step("in_session", 31, "0")]);
        record.settled.insert(token(3), at(31));
    };
    let expected = [
        Finding::NeverThere {
            token: token(3),
            via: "hook".into(),
        },
        Finding::Lost { token: token(3) },
    ];
    assert_eq!(found(nowhere), expected);
}

#[test]
fn a_message_without_an_answered_request_is_lost() {
    let cut_off = |record: &mut Record| {
        let mut request = request(31, &[1, 2, 3]);
        request.ended = Some((Fate::CutOff, at(32)));
        record.sent.push(sent(3, 30));
        record.requests.push(request);
        record.settled.insert(token(3), at(31));
    };
    assert_eq!(found(cut_off), [Finding::Lost { token: token(3) }]);
}

#[test]
fn a_second_copy_without_a_mark_is_found_and_one_with_a_mark_is_counted() {
    let again = |record: &mut Record| record.requests.push(request(31, &[1, 2, 1]));
    assert_eq!(
        found(again),
        [Finding::Twice {
            token: token(1),
            copies: 2,
            asker: Asker::Session
        }]
    );
    let mut record = good();
    again(&mut record);
    mark(&mut record, 2, 2);
    let report = check(&record);
    assert_eq!(
        (report.repeated, report.most, report.findings),
        (1, 2, Vec::new())
    );
}

#[test]
fn the_copy_without_a_mark_may_stand_behind_a_marked_one_if_it_is_older() {
    let behind = |number: usize| {
        move |record: &mut Record| {
            record.requests.push(request(31, &[number, number, 2]));
            mark(record, 2, 0);
        }
    };
    assert_eq!(found(behind(1)), [], "it stood there before");
    let newer = |record: &mut Record| {
        record.sent.push(sent(3, 30));
        behind(3)(record);
    };
    let twice = Finding::Twice {
        token: token(3),
        copies: 2,
        asker: Asker::Session,
    };
    assert!(
        found(newer).contains(&twice),
        "it came with the marked one, or after it"
    );
    let both = |record: &mut Record| record.requests.push(request(31, &[1, 1, 2]));
    assert_eq!(
        found(both).len(),
        1,
        "one of them has no mark and is not the older one"
    );
}

#[test]
fn a_mark_is_false_unless_something_happened_by_which_the_message_may_have_been_shown() {
    let marked = |record: &mut Record| mark(record, 1, 1);
    assert_eq!(found(marked), [Finding::FalselyMarked { token: token(2) }]);
    let disturbed = |record: &mut Record| {
        marked(record);
        record.deeds.push(deed(Effect::Disturbs, 15, 20));
    };
    assert_eq!(found(disturbed), []);
    let long_before = |record: &mut Record| {
        marked(record);
        record.deeds.push(deed(Effect::Disturbs, 15, 19));
    };
    assert_eq!(
        found(long_before),
        [Finding::FalselyMarked { token: token(2) }]
    );
    let harmless = |record: &mut Record| {
        marked(record);
        record.deeds.push(deed(Effect::None, 15, 20));
    };
    assert_eq!(
        found(harmless),
        [Finding::FalselyMarked { token: token(2) }]
    );
    let failed = |record: &mut Record| {
        marked(record);
        let other = Request {
            ended: Some((Fate::Failed, at(21))),
            ..request(20, &[1])
        };
        record.requests.insert(1, other);
    };
    assert_eq!(found(failed), []);
}

#[test]
fn a_receipt_for_the_last_context_needs_the_message_there() {
    let gone = |record: &mut Record| record.requests.push(request(31, &[2]));
    assert_eq!(
        found(gone),
        [Finding::Missing {
            token: token(1),
            stage: "seen".into()
        }]
    );
    let of_an_earlier_one = |record: &mut Record| {
        gone(record);
        record
            .histories
            .get_mut(&token(2))
            .unwrap()
            .iter_mut()
            .for_each(|step| step.session = Some("1.1".into()));
    };
    assert_eq!(found(of_an_earlier_one), []);
    let failed = |record: &mut Record| {
        let mut request = request(31, &[2]);
        request.ended = Some((Fate::Failed, at(32)));
        record.requests.push(request);
    };
    assert_eq!(found(failed), [], "the last one that was answered counts");
}

#[test]
fn messages_in_the_inbox_must_be_in_the_last_context() {
    let left = |record: &mut Record| {
        record.left.insert(token(1));
        record.requests.push(request(31, &[2]));
        record
            .histories
            .get_mut(&token(2))
            .unwrap()
            .iter_mut()
            .for_each(|step| step.session = Some("1.1".into()));
    };
    assert_eq!(found(left), [Finding::Forgotten { token: token(1) }]);
}

#[test]
fn a_message_beside_an_idle_session_is_found_after_half_a_minute() {
    let late = |at_second: u64| {
        move |record: &mut Record| {
            record.sent.push(sent(3, 100));
            record.requests.push(request(at_second, &[1, 2, 3]));
        }
    };
    assert_eq!(found(late(131)), []);
    assert_eq!(
        found(late(132)),
        [Finding::LeftIdle {
            token: token(3),
            seconds: 32
        }]
    );
    let busy = |record: &mut Record| {
        late(150)(record);
        record.idle[2].from = at(120);
    };
    assert_eq!(found(busy), [], "it was idle for 30 s of them");
    let news = |record: &mut Record| {
        late(300)(record);
        record.sent[2].presses = false;
    };
    assert_eq!(found(news), []);
    let cut_off_by = |name: &'static str, next: &'static [usize]| {
        move |record: &mut Record| {
            record.sent.push(sent(3, 100));
            record.requests.push(request(101, &[1, 2, 3]));
            record.requests[2].ended = Some((Fate::CutOff, at(103)));
            record.requests.push(request(200, next));
            record.requests.push(request(300, &[1, 2, 3]));
            record.deeds.push(Deed {
                name: name.into(),
                ..deed(Effect::Disturbs, 102, 104)
            });
        }
    };
    assert_eq!(
        found(cut_off_by("escape", &[1, 2, 3])),
        [],
        "the person sees it in the conversation"
    );
    let left_idle = |seconds| {
        let token = token(3);
        [Finding::LeftIdle { token, seconds }]
    };
    assert_eq!(found(cut_off_by("reconnect", &[1, 2, 3])), left_idle(100));
    assert_eq!(found(cut_off_by("escape", &[1, 2])), left_idle(200));
    let settled = |record: &mut Record| {
        late(300)(record);
        record.settled.insert(token(3), at(110));
    };
    assert_eq!(found(settled), []);
}

#[test]
fn a_failing_service_gives_a_minute_more() {
    let late = |at_second: u64| {
        move |record: &mut Record| {
            record.requests[1].ended = Some((Fate::Failed, at(22)));
            record.requests.push(request(22, &[1, 2]));
            record.histories.get_mut(&token(2)).unwrap()[1].at = at(24);
            record.requests.push(Request {
                ended: Some((Fate::Failed, at(23))),
                ..request(23, &[1, 2])
            });
            record.sent.push(sent(3, 100));
            record.requests.push(request(at_second, &[1, 2, 3]));
        }
    };
    assert_eq!(found(late(190)), []);
    assert_eq!(
        found(late(192)),
        [Finding::LeftIdle {
            token: token(3),
            seconds: 92
        }]
    );
}

#[test]
fn a_new_conversation_is_shown_its_unsettled_messages_again() {
    let cleared = |again: u64| {
        move |record: &mut Record| {
            record.deeds.push(deed(Effect::Renews, 100, 101));
            let mut request = request(again, &[1, 2]);
            request
                .standing
                .iter_mut()
                .for_each(|standing| standing.marked = true);
            record.requests.push(request);
        }
    };
    assert_eq!(found(cleared(132)), []);
    let late = [1, 2].map(|number| Finding::LeftIdle {
        token: token(number),
        seconds: 39,
    });
    assert_eq!(found(cleared(140)), late);
    let settled = |record: &mut Record| {
        cleared(140)(record);
        record.settled.insert(token(1), at(50));
    };
    assert_eq!(found(settled), late[1..]);
    let urgent_news = |record: &mut Record| {
        cleared(140)(record);
        record.sent[0].wants_answer = false;
    };
    assert_eq!(found(urgent_news), late[1..]);
}

#[test]
fn forbidden_text_on_a_screen_is_a_finding() {
    let error = |record: &mut Record| record.screens.push((1, "Stop hook error".into()));
    assert_eq!(
        found(error),
        [Finding::Screen {
            seat: 1,
            text: "Stop hook error".into()
        }]
    );
}
