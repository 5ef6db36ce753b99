//! Tests of the guarantees that the catalogue gives to clients.

use serde_json::{Value, json, value::to_raw_value};

use super::{Call, INSTRUCTIONS, Listing, Tool, listing};
use crate::refusal::ErrorCode;

fn parse(name: &str, arguments: Value) -> Result<Call, ErrorCode> {
    let raw = to_raw_value(&arguments).expect("JSON");
    Call::parse(name, &raw).map_err(|refusal| refusal.code)
}

#[test]
fn the_whole_list_stays_under_nine_thousand_bytes() {
    let tools: Vec<Value> = listing().iter().map(Listing::wire).collect();
    let bytes = serde_json::to_string(&tools).expect("JSON").len();
    assert!(bytes < 9_000, "tools/list has {bytes} bytes");
    assert!(
        INSTRUCTIONS.len() < 1_500,
        "the instructions have {} bytes",
        INSTRUCTIONS.len()
    );
}

#[test]
fn schemas_have_type_and_required_and_nothing_superfluous() {
    let send = &listing()
        .iter()
        .find(|one| one.tool == Tool::SendMessage)
        .expect("listed")
        .schema;
    assert_eq!(send["type"], "object");
    assert_eq!(send["required"], json!(["target", "message"]));
    assert_eq!(send["additionalProperties"], false);
    assert_eq!(
        send["properties"]["priority"],
        json!({"type": "string", "enum": ["low", "normal", "high", "urgent"]})
    );
    assert_eq!(
        send["properties"]["title"],
        json!({"type": "string", "description": "One line"})
    );
    let text = serde_json::to_string(&listing().iter().map(|one| &one.schema).collect::<Vec<_>>())
        .expect("JSON");
    for superfluous in ["$schema", "$defs", "null", "format", "anyOf"] {
        assert!(!text.contains(superfluous), "{superfluous} in {text}");
    }
}

#[test]
fn four_tools_are_always_loaded() {
    let names: Vec<_> = Tool::ALL
        .iter()
        .filter(|tool| tool.always_loaded())
        .map(|tool| tool.name())
        .collect();
    assert_eq!(
        names,
        ["send_message", "reply", "get_messages", "wait_for_message"]
    );
}

#[test]
fn clients_are_asked_to_take_the_results_of_reading_tools_whole() {
    let check = |name: &str, meta: Value| {
        let listed = listing()
            .iter()
            .find(|one| one.tool.name() == name)
            .expect("listed")
            .wire();
        assert_eq!(listed["_meta"], meta, "{name}");
    };
    for name in ["get_messages", "wait_for_message"] {
        check(
            name,
            json!({"anthropic/alwaysLoad": true, "anthropic/maxResultSizeChars": 48_000}),
        );
    }
    for name in ["get_thread", "list_agents", "get_agent_status"] {
        check(name, json!({"anthropic/maxResultSizeChars": 48_000}));
    }
    check("reply", json!({"anthropic/alwaysLoad": true}));
    check("ack_messages", Value::Null);
}

#[test]
fn older_names_mean_the_same_and_are_never_listed() {
    let check = |older: &str, arguments: Value, name: &str, canonical: Value| {
        assert_eq!(parse(older, arguments), parse(name, canonical), "{older}");
        assert!(
            Tool::ALL.iter().all(|tool| tool.name() != older),
            "{older} is listed"
        );
    };
    let id = "a::b::00000001";
    check(
        "send_request",
        json!({"target": "b", "message": "hi", "context": "c"}),
        "send_message",
        json!({"target": "b", "message": "hi", "context": "c"}),
    );
    check("get_pending_requests", json!({}), "get_messages", json!({}));
    check(
        "respond_to_request",
        json!({"request_id": id, "response": "yes", "status": "success"}),
        "reply",
        json!({"message_id": id, "response": "yes", "status": "success"}),
    );
    check(
        "wait_for_response",
        json!({"request_id": id, "timeout": 5}),
        "wait_for_message",
        json!({"message_id": id, "timeout": 5}),
    );
    check(
        "wait_for_request",
        json!({"timeout": 5}),
        "wait_for_message",
        json!({"kind": "message", "timeout": 5}),
    );
    assert_eq!(
        parse("wait_for_response", json!({})),
        Err(ErrorCode::InvalidRequest)
    );
}

#[test]
fn arguments_are_an_object() {
    for arguments in [
        json!(["b", "hello"]),
        json!("b"),
        json!(1),
        json!(null),
        json!([]),
    ] {
        assert_eq!(
            parse("send_message", arguments.clone()).err(),
            Some(ErrorCode::InvalidRequest),
            "{arguments}"
        );
        assert_eq!(
            parse("ping", arguments.clone()).err(),
            Some(ErrorCode::InvalidRequest),
            "{arguments}"
        );
    }
    assert!(parse("send_message", json!({"target": "b", "message": "hello"})).is_ok());
}

/// Returns the arguments that are invalid, by the tool.
fn invalid_arguments() -> [(&'static str, Vec<Value>); 9] {
    // A person would read the message, and answer the part.
    let options = json!([{"id": "1", "label": "yes"}, {"id": "2", "label": "no"}]);
    let part = json!({"id": "1", "text": "Delete the production database?", "options": options});
    let in_words =
        json!({"message": "Fix the typo?", "question": {"kind": "ask", "parts": [part]}});
    let sends = vec![
        json!({"target": "b", "message": ""}),
        json!({"target": "", "message": "hi"}),
        json!({"target": "b"}),
        json!({"target": "b", "message": "hi", "colour": "red"}),
        json!({"target": "b", "message": "hi", "priority": "asap"}),
        json!({"target": "b", "message": "hi", "expires_in": 0}),
    ];
    let replies = vec![
        json!({"message_id": "a::b::00000001", "response": " "}),
        json!({"message_id": "a::b", "response": "x"}),
    ];
    let waits = vec![
        json!({"timeout": 0}),
        json!({"timeout": 3_601}),
        json!({"until": "seen"}),
        json!({"message_id": "a::b::00000001", "until": "stored"}),
    ];
    let pages = vec![json!({"limit": 1_001}), json!({"limit": 0})];
    [
        ("send_message", sends),
        ("reply", replies),
        ("wait_for_message", waits),
        ("get_messages", pages),
        ("ack_messages", vec![json!({"message_ids": []})]),
        ("get_agent_status", vec![json!({"agent_id": "agent@home"})]),
        ("set_status", vec![json!({"status": "sleeping"})]),
        ("request_permission", vec![in_words]),
        (
            "register_agent",
            vec![json!({"capabilities": vec!["x"; 51]})],
        ),
    ]
}

/// Returns the arguments with a text that is too long, by the tool.
fn long_arguments() -> [(&'static str, Vec<Value>); 4] {
    let sends = vec![
        json!({"target": "b", "message": long(50_001)}),
        json!({"target": "b", "message": "hi", "context": long(50_001)}),
        json!({"target": "b", "message": "hi", "title": long(201)}),
    ];
    let reply = json!({"message_id": "a::b::00000001", "response": long(50_001)});
    let registrations = vec![
        json!({"description": long(501)}),
        json!({"capabilities": vec![long(41); 50]}),
    ];
    [
        ("send_message", sends),
        ("reply", vec![reply]),
        ("broadcast", vec![json!({"message": long(50_001)})]),
        ("register_agent", registrations),
    ]
}

/// Returns a text of that many characters, each of two bytes.
fn long(count: usize) -> String {
    "é".repeat(count)
}

#[test]
fn arguments_out_of_bounds_are_refused() {
    let check = |name: &str, arguments: Value, expected: ErrorCode| {
        assert_eq!(
            parse(name, arguments.clone()),
            Err(expected),
            "{name} {}",
            arguments.to_string().chars().take(80).collect::<String>()
        );
    };
    for (name, cases) in invalid_arguments() {
        for arguments in cases {
            check(name, arguments, ErrorCode::InvalidRequest);
        }
    }
    for (name, cases) in long_arguments() {
        for arguments in cases {
            check(name, arguments, ErrorCode::PayloadTooLarge);
        }
    }
    check("fly", json!({}), ErrorCode::NotSupported);
    let capabilities = json!({"capabilities": vec![long(40); 50]});
    assert!(parse("register_agent", capabilities).is_ok());
    let texts = json!({"target": "b", "message": long(50_000), "context": long(50_000)});
    assert!(parse("send_message", texts).is_ok());
    assert!(parse("wait_for_message", json!({"timeout": 3_600})).is_ok());
}

#[test]
fn an_integer_may_be_written_with_a_fraction() {
    let called = |arguments: Value| {
        let Value::Object(arguments) = arguments else {
            panic!("an object")
        };
        Call::of_object("get_messages", arguments)
    };
    assert_eq!(called(json!({"limit": 5.0})), called(json!({"limit": 5})));
    assert!(called(json!({"limit": 5.5})).is_err());
}
