//! Tests of the texts and the buttons of pushes.

use c3po_shared::message::Message;
use serde_json::{Value, json};

use super::*;
use crate::notify::config::tests::person;

/// A message with these members besides the usual ones.
pub(in crate::notify) fn message(members: Value) -> Message {
    let mut message = json!({
        "id": "ha::human::0a1b2c3d", "thread_id": "ha::human::0a1b2c3d", "kind": "message", "from_agent": "ha",
        "from_host": "nas", "to_agent": "human", "message": "Which database?", "priority": "normal",
        "requires_response": true, "timestamp": "2026-01-15T10:30:00.000Z", "expires_at": "2026-01-22T10:30:00.000Z",
    });
    for (name, value) in members.as_object().expect("members") {
        message[name] = value.clone();
    }
    serde_json::from_value(message).expect("a message")
}

fn question(kind: &str, options: &[&str], request: Value) -> Value {
    let options = options
        .iter()
        .map(|label| json!({"id": label, "label": label}));
    let part =
        json!({"id": "q", "text": "?", "options": options.collect::<Vec<_>>(), "allow_text": true});
    let mut question = json!({"kind": kind, "parts": [part]});
    if !request.is_null() {
        question["request"] = request;
    }
    question
}

fn pushed(message: &Message, change: impl FnOnce(&mut Person, &mut Frame<'_>)) -> Value {
    let mut person = person();
    let of = person.clone();
    let codes = Codes::of(&of, uuid::Uuid::nil()).expect("codes");
    let mut frame = Frame {
        person: &of,
        codes: Some(&codes),
        buttons: true,
        content: Content::Full,
        public_url: Some("https://nas:8420"),
    };
    change(&mut person, &mut frame);
    let frame = Frame {
        person: &person,
        ..frame
    };
    serde_json::to_value(frame.push(message)).expect("JSON")
}

fn labels(push: &Value) -> Vec<&str> {
    let actions = push["actions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    actions
        .iter()
        .filter_map(|action| action["label"].as_str())
        .collect()
}

#[test]
fn a_question_with_two_options_has_them_as_buttons() {
    let question = question("ask", &["PostgreSQL", "SQLite"], Value::Null);
    let push = pushed(
        &message(json!({"question": question, "title": "Storage"})),
        |_, _| (),
    );
    assert_eq!(push["title"], "[ha@nas] Storage");
    assert_eq!(labels(&push), ["PostgreSQL", "SQLite", "Answer in words"]);
    let button = &push["actions"][0];
    assert_eq!(button["url"], "https://ntfy.example/answers");
    assert_eq!(
        button["headers"],
        json!({"Authorization": "Bearer tk_phone"})
    );
    let body: Value = serde_json::from_str(button["body"].as_str().expect("a body")).expect("JSON");
    assert_eq!(
        (&body["question"], &body["option"]),
        (&json!("ha::human::0a1b2c3d"), &json!("PostgreSQL"))
    );
    assert_eq!(
        push["actions"][2]["url"],
        "https://nas:8420/q/ha::human::0a1b2c3d"
    );
    assert!(push["message"].as_str().is_some_and(|text| {
        text.starts_with("Which database?\n1. PostgreSQL\n2. SQLite\nAnswer in")
    }));
}

#[test]
fn a_push_names_the_answers_that_it_takes_and_shows_no_buttons_for_a_masked_text() {
    let answer = |allow_text: bool, text: &str| {
        let mut question = question("ask", &["Yes", "No"], Value::Null);
        question["parts"][0]["allow_text"] = json!(allow_text);
        pushed(
            &message(json!({"question": question, "message": text})),
            |_, _| (),
        )
    };
    for (allow_text, end) in [
        (true, " and a number or your words"),
        (false, " and a number"),
    ] {
        let push = answer(allow_text, "Go on?");
        let text = push["message"].as_str().expect("a text");
        assert!(text.ends_with(end), "{text}");
        assert_eq!(labels(&push)[..2], ["Yes", "No"]);
    }
    let masked = answer(true, "Go on with token=abcdefgh?");
    assert_eq!(labels(&masked), ["Answer in words"]);
    let title = "Drop the one with token=abcdefgh?";
    let of_title = question("ask", &["Yes", "No"], Value::Null);
    let of_title = pushed(
        &message(json!({"question": of_title, "title": title})),
        |_, _| (),
    );
    assert_eq!(labels(&of_title), ["Answer in words"]);
    let of_label = question("ask", &["Use token=abcdefgh", "No"], Value::Null);
    let of_label = pushed(&message(json!({"question": of_label})), |_, _| ());
    assert_eq!(labels(&of_label), ["Answer in words"]);
    assert!(!of_label.to_string().contains("abcdefgh"), "{of_label}");
}

#[test]
fn a_question_for_which_a_notification_has_no_room_has_no_buttons() {
    let check = |text: &str, title: &str, expected: &[&str]| {
        let question = question("ask", &["Yes", "No"], Value::Null);
        let asked = message(json!({"question": question, "message": text, "title": title}));
        assert_eq!(labels(&pushed(&asked, |_, _| ())), expected, "{text}");
    };
    let (with, without) = (["Yes", "No", "Answer in words"], ["Answer in words"]);
    let gap = |count: usize| format!("Keep it?{}\"Yes\" deletes it.", "\n".repeat(count));
    // The options take two rows.
    check(&gap(7), "Notes", &with);
    check(&gap(8), "Notes", &without);
    check(&"x".repeat(360), "Notes", &with);
    check(&"x".repeat(361), "Notes", &without);
    let wrapped = |lines: usize| vec!["x".repeat(46); lines].join("\n");
    check(&wrapped(4), "Notes", &with);
    check(&wrapped(5), "Notes", &without);
    // A row of 45 columns has 22 of them.
    check(&"備".repeat(176), "Notes", &with);
    check(&"備".repeat(177), "Notes", &without);
    // A phone breaks a row between words.
    check(&"abcdefghijklmnopqrstuvw ".repeat(8), "Notes", &with);
    check(&"abcdefghijklmnopqrstuvw ".repeat(9), "Notes", &without);
    check(
        &format!("Keep it?{}\"Yes\" deletes it.", "\t".repeat(60)),
        "Notes",
        &without,
    );
    check(&"\u{fdfd}".repeat(25), "Notes", &without);
    // Of a long title one row is seen, so it stands in the text too.
    let long = "Shall I keep the backup? (Yes deletes it)";
    check(&"x".repeat(270), long, &with);
    check(&"x".repeat(271), long, &without);
    check(&"x".repeat(300), &"Notes".repeat(40), &without);
}

#[test]
fn a_list_with_a_label_that_is_the_number_of_another_option_has_no_numbers() {
    let question = question("ask", &["2", "none"], Value::Null);
    let push = pushed(&message(json!({"question": question})), |_, _| ());
    let text = push["message"].as_str().expect("a text");
    assert!(text.contains("\n- 2\n- none\n"), "{text}");
    assert!(text.ends_with(" and an option or your words"), "{text}");
}

#[test]
fn more_options_are_listed_and_have_no_buttons() {
    let question = question("ask", &["a", "b", "c"], Value::Null);
    let push = pushed(&message(json!({"question": question})), |_, _| ());
    assert_eq!(labels(&push), ["Answer in words"]);
    let text = push["message"].as_str().expect("a text");
    assert!(text.contains("\n1. a\n2. b\n3. c\n"), "{text}");
}

#[test]
fn a_verdict_has_buttons_only_if_wanted_and_if_the_whole_text_is_shown() {
    let request = |input: &str| json!({"tool": "Bash", "input": input, "hash": "00"});
    let check = |input: &str, wanted: bool, expected: &[&str]| {
        let question = question("permission", &[], request(input));
        let push = pushed(&message(json!({"question": question})), |person, _| {
            person.verdict_buttons = wanted;
        });
        assert_eq!(labels(&push), expected, "{input}");
        assert_eq!(push["title"], "[ha@nas] Bash");
        push["message"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(
        check("make deploy", true, &["Allow", "Deny", "Open"]),
        "make deploy"
    );
    check("make deploy", false, &["Open"]);
    let text = check("curl -H 'Authorization: Bearer abcdef'", true, &["Open"]);
    assert!(!text.contains("abcdef"), "{text}");
    let long = format!("echo {} && rm -rf /", "é".repeat(3_000));
    let text = check(&long, true, &["Open"]);
    assert!(
        text.len() <= PUSH_BYTES_MAX && text.ends_with("&& rm -rf /"),
        "{text}"
    );
}

#[test]
fn less_than_the_text_has_neither_buttons_nor_codes() {
    let question = question("ask", &["a", "b"], Value::Null);
    let message = message(json!({"question": question, "title": "Storage"}));
    for (content, title) in [
        (Content::Title, "[ha@nas] Storage"),
        (Content::None, "c3po"),
    ] {
        let push = pushed(&message, |_, frame| frame.content = content);
        assert_eq!(
            (&push["title"], &push["message"]),
            (&json!(title), &json!("A question waits"))
        );
        assert_eq!(labels(&push), ["Open"]);
    }
    let push = pushed(&message, |_, frame| frame.codes = None);
    assert_eq!(
        (&push["message"], labels(&push)),
        (
            &json!("Which database?\n1. a\n2. b"),
            vec!["Answer in words"]
        )
    );
    let push = pushed(&message, |_, frame| frame.public_url = None);
    assert_eq!(labels(&push), ["a", "b"]);
    assert!(push.get("click").is_none());
}

#[test]
fn every_text_fits_and_no_character_is_cut() {
    for text in [
        "a".repeat(50_000),
        "é".repeat(25_000),
        "🤖\n".repeat(12_000),
        "\u{202e}x\u{7}".repeat(9_000),
    ] {
        let push = pushed(
            &message(json!({"message": text, "title": text.chars().take(200).collect::<String>()})),
            |_, _| (),
        );
        let shown = push["message"].as_str().expect("a text");
        assert!(
            shown.len() <= PUSH_BYTES_MAX && shown.contains("[…]"),
            "{}",
            shown.len()
        );
        assert!(!shown.contains('\u{202e}') && !shown.contains('\u{7}'));
    }
}

#[test]
fn a_title_that_does_not_fit_is_marked_and_stands_whole_in_the_text() {
    let title = format!(
        "Update the README{} and drop the production database",
        ", the notes".repeat(10)
    );
    // The sender stands there too if it has no room in one row.
    let long = "h".repeat(118);
    for (host, sender) in [("nas", ""), (&long, &format!("[ha@{long}] "))] {
        let push = pushed(
            &message(json!({"title": title, "from_host": host})),
            |_, _| (),
        );
        let (head, text) = (
            push["title"].as_str().expect("a title"),
            push["message"].as_str().expect("a text"),
        );
        assert_eq!(
            (head.ends_with('…'), head.chars().count()),
            (true, 120),
            "{head}"
        );
        assert!(
            text.starts_with(&format!("{sender}{title}\n\nWhich database?")),
            "{text}"
        );
    }
    // A notification shows one row of it.
    for (length, is_repeated) in [(26, false), (27, true), (120 - "[ha@nas] ".len(), true)] {
        let title = "x".repeat(length);
        let push = pushed(&message(json!({"title": title})), |_, _| ());
        assert_eq!(push["title"], format!("[ha@nas] {title}"));
        let text = push["message"].as_str().expect("a text");
        assert_eq!(text.starts_with(&title), is_repeated, "{text}");
    }
}

#[test]
fn the_push_of_a_choice_has_the_question_that_an_option_answers() {
    let request = json!({"tool": "AskUserQuestion", "input": "{}"});
    let mut question = question("choice", &["Red"], request);
    question["parts"][0]["text"] = json!("Wipe the database?");
    let push = pushed(&message(json!({"question": question})), |_, _| ());
    let text = push["message"].as_str().expect("a text");
    assert!(text.starts_with("Wipe the database?"), "{text}");
}

#[test]
fn a_request_with_a_character_without_ink_has_no_buttons() {
    for (input, expected) in [
        ("echo hello", 2),
        ("echo hello\u{e0072}", 0),
        ("echo\u{3164}hello", 0),
        ("echo\u{fff9}hello", 0),
        ("echo\u{a0}hello", 0),
        ("echo\u{2003}hello", 0),
        ("echo\u{3000}hello", 0),
        ("echo hello\n\n\nrm -rf /", 2),
    ] {
        let request = json!({"tool": "Bash", "input": input});
        let question = question("permission", &[], request);
        let push = pushed(&message(json!({"question": question})), |person, _| {
            person.verdict_buttons = true;
        });
        let found = labels(&push);
        let buttons = found
            .iter()
            .filter(|label| ["Allow", "Deny"].contains(label))
            .count();
        assert_eq!(buttons, expected, "{input:?}: {found:?}");
    }
}

/// Returns the labels of the buttons of a request with that tool and input.
fn buttons_of(kind: &str, tool: &str, input: &str, part: &str) -> Vec<String> {
    let request = json!({"tool": tool, "input": input});
    let options = if kind == "choice" {
        &["Red", "Blue"][..]
    } else {
        &[]
    };
    let mut question = question(kind, options, request);
    question["parts"][0]["text"] = json!(part);
    let push = pushed(&message(json!({"question": question})), |person, _| {
        person.verdict_buttons = true;
    });
    let found = labels(&push).into_iter().filter(|label| *label != "Open");
    found.map(str::to_owned).collect()
}

#[test]
fn a_verdict_has_buttons_only_if_the_tool_and_all_lines_are_shown() {
    let count = |tool: &str, input: &str| buttons_of("permission", tool, input, "?").len();
    assert_eq!(count("mcp__files__write_file", "a"), 2);
    for tool in [
        "B".repeat(200).as_str(),
        "token=abcdefgh",
        "Re\u{200b}ad",
        "Read\u{3164}",
        "Read     Bash",
        "",
    ] {
        assert_eq!(count(tool, "a"), 0, "{tool:?}");
    }
    let lines = |number| format!("echo hello{}rm -rf /", "\n".repeat(number));
    assert_eq!(count("Bash", &lines(9)), 2);
    assert_eq!(count("Bash", &lines(10)), 0);
    assert_eq!(count("Bash", &"a".repeat(450)), 2);
    assert_eq!(count("Bash", &"a".repeat(451)), 0);
}

#[test]
fn a_choice_has_buttons_only_if_its_parts_are_those_of_the_request() {
    let input = |text: &str, labels: [&str; 2]| {
        let options = labels.map(|label| json!({"label": label, "description": "as it is"}));
        let asked = json!({"question": text, "header": "Colour", "options": options});
        json!({"questions": [asked]}).to_string()
    };
    let text = "Which colour should the button have?";
    let check = |input: &str, expected: &[&str]| {
        let found = buttons_of("choice", "AskUserQuestion", input, text);
        assert_eq!(found, expected, "{input}");
    };
    check(&input(text, ["Red", "Blue"]), &["Red", "Blue"]);
    check(&input("Really wipe it?", ["Red", "Blue"]), &[]);
    check(&input(text, ["Blue", "Red"]), &[]);
    let more = input(text, ["Red", "Blue"]).replace("\"description\"", "\"preview\"");
    check(&more, &[]);
    check(
        &input(text, ["Red", "Blue"]).replace("as it is", &"x".repeat(90)),
        &["Red", "Blue"],
    );
    check(
        &input(text, ["Red", "Blue"]).replace("as it is", &"x".repeat(91)),
        &[],
    );
    check(r#"{"questions":[{"question":"Really wipe it?"}]}"#, &[]);
    check(r#"{"questions":[]}"#, &[]);
    check("rm", &[]);
}

#[test]
fn the_push_of_a_choice_has_the_descriptions_of_its_options() {
    let options =
        json!([{"label": "Yes", "description": "also drops the backups"}, {"label": "No"}]);
    let input = json!({"questions": [{"question": "Clean up?", "header": "Disk", "options": options, "multiSelect": false}]});
    let request = json!({"tool": "AskUserQuestion", "input": input.to_string()});
    let push = pushed(
        &message(json!({"question": question("choice", &["Yes", "No"], request)})),
        |_, _| (),
    );
    let text = push["message"].as_str().expect("a text");
    assert!(
        text.starts_with("Disk\nClean up?\nYes: also drops the backups\n1. Yes"),
        "{text}"
    );
}

/// Returns the largest question of that kind, whose texts and ids are made of one character.
fn largest(kind: &str, character: char, parts: usize, options: usize) -> Message {
    let text = |length: usize| character.to_string().repeat(length);
    let id = |number: usize| format!("{}{number}", text(39 / character.len_utf8()));
    let label = |number: usize| json!({"id": id(number), "label": format!("{}{number}", text(79))});
    let part = |number: usize| {
        let options: Vec<_> = (0..options).map(label).collect();
        json!({"id": number.to_string(), "text": text(20_000), "options": options, "allow_text": true})
    };
    let parts: Vec<_> = (0..parts).map(part).collect();
    let mut question = json!({"kind": kind, "parts": parts});
    if kind != "ask" {
        question["request"] = json!({"tool": text(500), "input": text(20_000), "hash": "00"});
    }
    let id = format!("{}::human::0a1b2c3d", "a".repeat(64));
    message(json!({
        "id": id, "from_host": text(500), "title": text(200), "message": text(20_000), "context": text(20_000),
        "question": question,
    }))
}

#[test]
fn ntfy_takes_the_push_of_every_question() {
    let characters = ['a', '"', '\\', '\n', '\t', 'é', '🤖', '\u{1}', '\u{202e}'];
    let sizes = [
        ("ask", 1, 0),
        ("ask", 1, 2),
        ("ask", 1, 10),
        ("choice", 1, 2),
        ("choice", 4, 10),
        ("permission", 1, 0),
    ];
    for (character, (kind, parts, options)) in characters
        .into_iter()
        .flat_map(|character| sizes.map(|size| (character, size)))
    {
        let push = pushed(&largest(kind, character, parts, options), |person, _| {
            person.verdict_buttons = true;
        });
        let (size, text) = (push.to_string().len(), push["message"].as_str());
        let text = text.expect("a text");
        let of = format!("{kind} of {character:?}, {parts} x {options}: {size}");
        assert!(
            size <= JSON_BYTES_MAX && text.len() <= PUSH_BYTES_MAX,
            "{of}"
        );
        assert!(size > JSON_BYTES_MAX / 4, "as much as possible: {of}");
        if kind == "ask" {
            let line = text.lines().last().unwrap_or_default();
            assert!(
                line.starts_with("Answer in the reply topic: ") && line.ends_with("your words"),
                "{of}: {line}"
            );
        }
    }
}

#[test]
fn each_option_is_shown_whole_beside_a_text_of_any_length() {
    let mut labels: Vec<_> = ('a'..='j')
        .map(|letter| format!("{letter}{}", "🤖".repeat(79)))
        .collect();
    labels[4] = "Keep the data as it is for one more hour, then delete every copy of it".to_owned();
    let listed: String = (1..)
        .zip(&labels)
        .map(|(number, label)| format!("\n{number}. {label}"))
        .collect();
    let labels: Vec<_> = labels.iter().map(String::as_str).collect();
    let question = question("ask", &labels, Value::Null);
    for length in (0..5_000).step_by(50) {
        let whole = "Which one? ".repeat(length / 11);
        let message = message(json!({"question": question, "message": whole}));
        let push = pushed(&message, |_, _| ());
        let text = push["message"].as_str().expect("a text");
        assert!(text.len() <= PUSH_BYTES_MAX, "{}", text.len());
        let (shown, end) = text.split_once(&listed).expect("all options");
        assert!(end.ends_with(" and a number or your words"), "{end}");
        assert!(shown == whole || shown.len() >= 600, "{shown}");
        assert_eq!(shown == whole, !shown.contains("[…]"), "{shown}");
    }
}
