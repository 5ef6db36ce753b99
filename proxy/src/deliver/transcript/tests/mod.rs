//! Conversations as the client writes them, line by line.

mod forks;

use std::fs;

use serde_json::json;
use tempfile::tempdir;

use super::*;
use crate::deliver::testing::id;

fn uuid(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn line(number: u128, parent: u128, of: &str) -> Value {
    let parent = (parent > 0).then(|| uuid(parent));
    json!({"type": "user", "uuid": uuid(number), "parentUuid": parent, "isSidechain": false, "message": of})
}

fn prompt(number: u128, parent: u128, turn: u64, of: &str) -> Value {
    let mut line = line(number, parent, of);
    line["turnPosition"] = json!({"promptIndex": 1, "turnIndex": turn});
    line["promptId"] = json!(format!("prompt {number}"));
    line
}

fn named(number: u32) -> String {
    format!(
        "[c3po] 1 message for homeassistant\n[FROM: meshtastic @nas2] [ID: {}]\n> hi",
        id(number)
    )
}

fn standing(lines: &[Value]) -> Recorded {
    let folder = tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(&path, text).unwrap();
    Transcript::default().conversation(&path).unwrap()
}

fn ids(numbers: &[u32]) -> HashSet<MessageId> {
    numbers.iter().map(|number| id(*number)).collect()
}

fn check(lines: &[Value], expected: &[u32]) {
    assert_eq!(standing(lines).named, ids(expected));
}

fn answer(number: u128, parent: u128, of: &str, model: &str) -> Value {
    let mut line = line(number, parent, "");
    line["message"] =
        json!({"id": of, "model": model, "content": [{"type": "text", "text": "done"}]});
    line
}

#[test]
fn a_conversation_consists_of_the_last_line_and_its_ancestors() {
    let lines = [
        line(1, 0, &named(1)),
        line(2, 1, &named(2)),
        line(3, 1, &named(3)),
    ];
    check(&lines, &[1, 3]);
}

#[test]
fn a_repeated_turn_removes_the_lines_since_it_from_the_conversation() {
    let before = [
        prompt(1, 0, 1, "first"),
        line(2, 1, &named(1)),
        prompt(3, 2, 2, &named(2)),
        line(4, 3, "answer"),
    ];
    let check = |after: &[Value], expected: &[u32]| check(&[&before[..], after].concat(), expected);
    check(&[prompt(5, 4, 3, "third")], &[1, 2]);
    check(
        &[
            prompt(5, 2, 2, "a rewind to the middle"),
            line(6, 5, &named(3)),
        ],
        &[1, 3],
    );
    check(&[prompt(5, 4, 2, "the same below the old line")], &[1]);
    check(
        &[
            prompt(5, 4, 1, "a rewind to the beginning"),
            line(6, 5, &named(3)),
        ],
        &[3],
    );
    let result = json!({"turnPosition": {"turnIndex": 3}, "promptId": "prompt 5", "uuid": uuid(6), "parentUuid": uuid(5)});
    check(&[prompt(5, 4, 3, &named(3)), result], &[1, 2, 3]);
}

#[test]
fn a_conversation_goes_on_above_lines_that_were_lost() {
    let before = [prompt(1, 0, 1, &named(1)), line(2, 1, &named(2))];
    let after = [line(9, 8, &named(3)), line(10, 9, "")];
    check(&[&before[..], &after].concat(), &[1, 2, 3]);
    check(&after, &[3]);
}

#[test]
fn a_line_with_half_a_character_is_a_part_of_the_conversation() {
    let lines = [
        line(1, 0, &named(1)),
        line(2, 1, &(named(2) + "half")),
        line(3, 2, ""),
    ];
    let text = lines
        .map(|line| format!("{line}\n"))
        .concat()
        .replace("half", r"\ud83d");
    let folder = tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    fs::write(&path, text).unwrap();
    assert_eq!(
        Transcript::default().conversation(&path).unwrap().named,
        ids(&[1, 2])
    );
}

#[test]
fn a_summary_or_a_quote_that_names_a_message_does_not_hold_it() {
    let mut summary = line(1, 0, &named(1));
    summary["isCompactSummary"] = json!(true);
    let quote = named(2).replace("[c3po] 1 message for homeassistant", "A person pasted:");
    check(&[summary, line(2, 1, &quote), line(3, 2, &named(3))], &[3]);
}

#[test]
fn lines_that_a_compaction_kept_stay_in_the_conversation() {
    let boundary = |kept: &[u128]| {
        let mut boundary = line(4, 0, "");
        let kept: Vec<_> = kept.iter().map(|number| uuid(*number)).collect();
        boundary["subtype"] = json!("compact_boundary");
        boundary["compactMetadata"] = json!({"preservedMessages": {"allUuids": kept}});
        boundary
    };
    let before = [
        prompt(1, 0, 1, &named(1)),
        prompt(2, 1, 2, &named(2)),
        line(3, 2, &named(3)),
    ];
    let conversation = |kept: &[u128]| {
        let after = [
            boundary(kept),
            prompt(5, 4, 1, "summary"),
            answer(6, 5, "msg_1", "claude"),
            line(7, 6, &named(4)),
        ];
        standing(&[&before[..], &after].concat())
    };
    let kept = conversation(&[2, 3]);
    assert_eq!((kept.named, kept.answered), (ids(&[2, 3, 4]), ids(&[2, 3])));
    assert_eq!(conversation(&[]).named, ids(&[4]));
}

#[test]
fn a_prompt_that_a_person_broke_a_tool_off_for_is_in_the_conversation() {
    let part = |number: u128, parent: u128| answer(number, parent, "msg_1", "claude");
    let mut hook = line(6, 5, &named(1));
    hook["type"] = json!("attachment");
    let mut notice = line(7, 3, "[Request interrupted by user for tool use]");
    notice["promptId"] = json!("prompt 5");
    let lines = [
        prompt(1, 0, 1, "go"),
        part(2, 1),
        part(3, 2),
        line(4, 2, "the result of the other tool"),
        prompt(5, 4, 2, &named(2)),
        hook,
        notice,
        answer(8, 7, "msg_2", "claude"),
    ];
    let Recorded {
        named,
        answered,
        other_turns,
        ..
    } = standing(&lines);
    assert_eq!((named, answered), (ids(&[1, 2]), ids(&[1, 2])));
    assert!(other_turns.is_empty(), "{other_turns:?}");
    let unanswered = standing(&lines[..7]);
    assert_eq!(
        unanswered.open,
        ids(&[1, 2]),
        "its person may have taken it back at once"
    );
}

#[test]
fn turns_that_are_not_in_the_conversation_are_named() {
    let turns = |lines: &[Value]| standing(lines).other_turns.into_iter().collect::<Vec<_>>();
    let branch = [
        prompt(1, 0, 1, ""),
        prompt(2, 1, 2, ""),
        prompt(3, 1, 2, ""),
    ];
    assert_eq!(turns(&branch), ["prompt 2"]);
    assert!(turns(&branch[..2]).is_empty());
    let mut summary = line(4, 0, "");
    summary["subtype"] = json!("compact_boundary");
    assert!(
        turns(&[&branch[..2], &[summary, line(5, 4, "")]].concat()).is_empty(),
        "a turn goes on after a compaction"
    );
}

#[test]
fn a_message_is_in_the_conversation_with_the_result_that_holds_its_end() {
    let result = |number: u128, parent: u128, text: Value| {
        let mut line = line(number, parent, "");
        line["message"] =
            json!({"content": [{"type": "tool_result", "content": text.to_string()}]});
        line
    };
    let lines = [
        line(1, 0, "go"),
        result(2, 1, json!({"id": id(1), "rest": "1+23594"})),
        result(
            3,
            2,
            json!({"messages": [{"id": id(2)}, {"id": id(3), "rest": "3+9"}]}),
        ),
        result(4, 3, json!({"messages": [{"id": id(3)}]})),
    ];
    check(&lines[..3], &[2]);
    check(&lines, &[2, 3]);
}

#[test]
fn results_of_tools_that_were_used_at_once_are_in_the_conversation() {
    let part = |number: u128, parent: u128| {
        let mut line = line(number, parent, "");
        line["message"] = json!({"id": "msg_1", "content": [{"type": "tool_use"}]});
        line
    };
    let result = |number: u128, parent: u128, of: u32| {
        let text = json!({"id": id(of), "message": "hi"}).to_string();
        let mut line = line(number, parent, "");
        line["message"] = json!({"content": [{"type": "tool_result", "content": [{"type": "text", "text": text}]}]});
        line
    };
    let lines = [
        line(1, 0, "go"),
        part(2, 1),
        part(3, 2),
        result(4, 2, 1),
        result(5, 3, 2),
        line(6, 5, "done"),
    ];
    check(&lines, &[1, 2]);
}

#[test]
fn a_message_that_is_only_mentioned_does_not_stand_in_the_conversation() {
    let mention = id(1);
    let status = json!({"message_id": mention, "stage": "seen"}).to_string();
    let reply = format!(
        "[c3po] 1 message for b\n[FROM: a] [ID: {}] [reply to {mention}]",
        id(2)
    );
    let lines = [
        line(1, 0, &format!("did you use {mention}?")),
        line(2, 1, &format!("[c3po] still open: [ID: {mention}]")),
        line(3, 2, &status),
        line(4, 3, &reply),
        line(
            5,
            4,
            &format!(
                "{}\n> [FROM: a] [ID: {mention}]\n> {{\"id\":\"{mention}\"}}",
                named(3)
            ),
        ),
    ];
    check(&lines, &[2, 3]);
}

#[test]
fn a_message_is_answered_where_the_model_answered_below_it() {
    let call = |number: u128, parent: u128| {
        let mut line = answer(number, parent, "msg_1", "claude");
        line["message"]["content"] = json!([{"type": "tool_use"}]);
        line
    };
    let result = |number: u128, parent: u128, of: u32| {
        let text = json!({"id": id(of), "message": "hi"}).to_string();
        let mut line = line(number, parent, "");
        line["message"] = json!({"content": [{"type": "tool_result", "content": text}]});
        line
    };
    let check = |after: &[Value], answered: &[u32], all: &[u32]| {
        let before = [
            line(1, 0, &named(1)),
            call(2, 1),
            call(3, 2),
            result(4, 2, 2),
            result(5, 3, 3),
        ];
        let expected = Recorded {
            named: ids(all),
            answered: ids(answered),
            ..Recorded::default()
        };
        assert_eq!(standing(&[&before[..], after].concat()), expected);
    };
    check(&[], &[1], &[1, 2, 3]);
    let queued = line(6, 5, &named(4));
    check(std::slice::from_ref(&queued), &[1], &[1, 2, 3, 4]);
    check(
        &[queued.clone(), answer(7, 6, "msg_2", NO_MODEL)],
        &[1],
        &[1, 2, 3, 4],
    );
    check(
        &[queued, answer(7, 6, "msg_2", "claude")],
        &[1, 2, 3, 4],
        &[1, 2, 3, 4],
    );
}

#[test]
fn the_age_of_a_message_is_that_of_its_latest_copy() {
    let written = |mut line: Value, minutes: u64| {
        let at = Timestamp::from_millis(Timestamp::now().millis() - 60_000 * minutes);
        line["timestamp"] = json!(at);
        line
    };
    let lines = [
        written(line(1, 0, &named(1)), 9),
        written(line(2, 1, &named(1)), 5),
        written(line(3, 2, &named(2)), 2),
        line(4, 3, &named(3)),
    ];
    let ages = standing(&lines).ages;
    let minutes = |number: u32| Some(ages.get(&id(number))?.as_secs() / 60);
    assert_eq!(
        [minutes(1), minutes(2), minutes(3)],
        [Some(5), Some(2), None]
    );
}

#[test]
fn a_prompt_that_a_hook_refused_does_not_stand_in_the_conversation() {
    let refused = json!({"type": "system", "uuid": uuid(2), "parentUuid": uuid(1), "isSidechain": false,
        "content": format!("UserPromptSubmit operation blocked by hook:\nno\n\nOriginal prompt: {}", named(1))});
    check(&[line(1, 0, &named(2)), refused, line(3, 2, "go on")], &[2]);
}

#[test]
fn numbers_of_another_shape_are_passed_over() {
    let mut odd = line(2, 1, &named(2));
    odd["turnPosition"] = json!("third");
    odd["promptId"] = json!(3);
    check(&[prompt(1, 0, 7, &named(1)), odd], &[1, 2]);
}

#[test]
fn the_rest_of_the_answer_that_uses_a_tool_is_none_to_its_result() {
    let part = |number: u128, parent: u128, answer: &str| {
        let mut line = line(number, parent, "");
        line["type"] = json!("assistant");
        line["message"] = json!({"id": answer, "model": "claude", "content": []});
        line
    };
    let mut result = line(3, 2, "");
    let text = json!({"id": id(1)}).to_string();
    result["message"] = json!({"content": [{"type": "tool_result", "content": text}]});
    let running = [
        prompt(1, 0, 1, "go"),
        part(2, 1, "msg_1"),
        result,
        part(4, 3, "msg_1"),
    ];
    let recorded = |answered: &[u32]| Recorded {
        named: ids(&[1]),
        answered: ids(answered),
        ..Recorded::default()
    };
    assert_eq!(standing(&running), recorded(&[]));
    let answered = [&running[..], &[part(5, 4, "msg_2")]].concat();
    assert_eq!(standing(&answered), recorded(&[1]));
}

#[test]
fn a_result_that_came_in_the_background_stands_in_its_notice() {
    let result = json!({"messages": [{"id": id(1)}]});
    let notice = format!(
        "<task-notification>\n<status>completed</status>\n<result>\n{result}\n</result>\n</task-notification>"
    );
    assert_eq!(standing(&[prompt(1, 0, 1, &notice)]).named, ids(&[1]));
    assert_eq!(
        standing(&[prompt(1, 0, 1, &format!("see {notice}"))]).named,
        ids(&[]),
        "a quotation"
    );
}

#[test]
fn nothing_from_before_a_compaction_is_in_the_conversation_after_a_rewind_to_its_summary() {
    let mut boundary = line(3, 0, "");
    boundary["type"] = json!("system");
    boundary["subtype"] = json!("compact_boundary");
    let before = prompt(1, 0, 1, &named(1));
    let summed = [
        before,
        line(2, 1, ""),
        boundary,
        prompt(4, 3, 1, "summary"),
        prompt(5, 4, 2, &named(2)),
    ];
    assert_eq!(standing(&summed).named, ids(&[2]));
    let rewound = [&summed[..], &[prompt(6, 2, 2, &named(3))]].concat();
    assert_eq!(
        standing(&rewound).named,
        ids(&[3]),
        "the client's own request has the summary above it"
    );
}

#[test]
fn a_prompt_at_the_end_is_open_until_anything_follows_it() {
    let attachment = |number: u128, parent: u128, of: &str| {
        let mut line = line(number, parent, of);
        line["type"] = json!("attachment");
        line
    };
    let begun = [
        prompt(1, 0, 1, "first"),
        answer(2, 1, "m1", "model"),
        prompt(3, 2, 2, &named(1)),
    ];
    let open = |more: &[Value]| standing(&[&begun[..], more].concat()).open;
    assert_eq!(open(&[]), ids(&[1]));
    assert_eq!(open(&[attachment(4, 3, &named(2))]), ids(&[1, 2]));
    assert_eq!(
        open(&[line(4, 3, "[Request interrupted by user]")]),
        ids(&[])
    );
    assert_eq!(open(&[answer(4, 3, "m2", "model")]), ids(&[]));
    assert_eq!(open(&[answer(4, 3, "m2", NO_MODEL)]), ids(&[]));
}

#[test]
fn a_result_that_the_client_replaced_is_not_in_the_conversation() {
    let result = |number: u128, parent: u128, used: &str, of: u32| {
        let mut line = line(number, parent, "");
        let text = json!({"id": id(of), "message": "hi"}).to_string();
        line["message"] =
            json!({"content": [{"type": "tool_result", "tool_use_id": used, "content": text}]});
        line
    };
    let replacement = json!({"type": "content-replacement", "sessionId": "s",
        "replacements": [{"kind": "tool-result", "toolUseId": "t1", "replacement": "a preview"}]});
    let lines = [
        prompt(1, 0, 1, "go"),
        answer(2, 1, "m1", "model"),
        result(3, 2, "t1", 1),
        result(4, 3, "t2", 2),
    ];
    check(&lines, &[1, 2]);
    check(
        &[&lines[..], std::slice::from_ref(&replacement)].concat(),
        &[2],
    );
    check(&[&[replacement], &lines[..]].concat(), &[2]);
    let over = HashSet::from(["t1", "t2"].map(str::to_owned));
    assert_eq!(standing(&lines).over, over);
}

#[test]
fn a_turn_that_another_plugin_ended_is_stopped_until_the_next_answer() {
    let attachment = |number: u128, parent: u128, of: &str| {
        let mut line = line(number, parent, "");
        line["type"] = json!("attachment");
        line["attachment"] = json!({"type": of});
        line
    };
    let lines = [
        prompt(1, 0, 1, "go"),
        answer(2, 1, "m1", "model"),
        attachment(3, 2, "hook_additional_context"),
        attachment(4, 3, "hook_stopped_continuation"),
        prompt(5, 4, 2, "more"),
        answer(6, 5, "m2", "model"),
    ];
    for (length, expected) in [(3, false), (4, true), (6, false)] {
        assert_eq!(standing(&lines[..length]).is_stopped, expected, "{length}");
    }
}
