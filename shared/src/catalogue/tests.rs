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
    assert!(INSTRUCTIONS.len() < 1_500, "the instructions have {} bytes", INSTRUCTIONS.len());
}

#[test]
fn schemas_have_type_and_required_and_nothing_superfluous() {
    let send = &listing().iter().find(|one| one.tool == Tool::SendMessage).expect("listed").schema;
    assert_eq!(send["type"], "object");
    assert_eq!(send["required"], json!(["target", "message"]));
    assert_eq!(send["additionalProperties"], false);
    assert_eq!(send["properties"]["priority"], json!({"type": "string", "enum": ["low", "normal", "high", "urgent"]}));
    assert_eq!(send["properties"]["title"], json!({"type": "string", "description": "One line"}));
    let text = serde_json::to_string(&listing().iter().map(|one| &one.schema).collect::<Vec<_>>()).expect("JSON");
    for superfluous in ["$schema", "$defs", "null", "format", "anyOf"] {
        assert!(!text.contains(superfluous), "{superfluous} in {text}");
    }
}

#[test]
fn four_tools_are_always_loaded() {
    let names: Vec<_> = Tool::ALL.iter().filter(|tool| tool.always_loaded()).map(|tool| tool.name()).collect();
    assert_eq!(names, ["send_message", "reply", "get_messages", "wait_for_message"]);
}

#[test]
fn clients_are_asked_to_take_the_results_of_reading_tools_whole() {
    let check = |name: &str, meta: Value| {
        let listed = listing().iter().find(|one| one.tool.name() == name).expect("listed").wire();
        assert_eq!(listed["_meta"], meta, "{name}");
    };
    for name in ["get_messages", "wait_for_message"] {
        check(name, json!({"anthropic/alwaysLoad": true, "anthropic/maxResultSizeChars": 48_000}));
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
        assert!(Tool::ALL.iter().all(|tool| tool.name() != older), "{older} is listed");
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
    check("wait_for_request", json!({"timeout": 5}), "wait_for_message", json!({"kind": "message", "timeout": 5}));
    assert_eq!(parse("wait_for_response", json!({})), Err(ErrorCode::InvalidRequest));
}

#[test]
fn arguments_are_an_object() {
    for arguments in [json!(["b", "hello"]), json!("b"), json!(1), json!(null), json!([])] {
        assert_eq!(parse("send_message", arguments.clone()).err(), Some(ErrorCode::InvalidRequest), "{arguments}");
        assert_eq!(parse("ping", arguments.clone()).err(), Some(ErrorCode::InvalidRequest), "{arguments}");
    }
    assert!(parse("send_message", json!({"target": "b", "message": "hello"})).is_ok());
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
    let long = |count: usize| "é".repeat(count);
    check("send_message", json!({"target": "b", "message": ""}), ErrorCode::InvalidRequest);
    check("send_message", json!({"target": "", "message": "hi"}), ErrorCode::InvalidRequest);
    check("send_message", json!({"target": "b"}), ErrorCode::InvalidRequest);
    check("send_message", json!({"target": "b", "message": "hi", "colour": "red"}), ErrorCode::InvalidRequest);
    check("send_message", json!({"target": "b", "message": "hi", "priority": "asap"}), ErrorCode::InvalidRequest);
    check("send_message", json!({"target": "b", "message": "hi", "expires_in": 0}), ErrorCode::InvalidRequest);
    check("send_message", json!({"target": "b", "message": long(50_001)}), ErrorCode::PayloadTooLarge);
    check("send_message", json!({"target": "b", "message": "hi", "context": long(50_001)}), ErrorCode::PayloadTooLarge);
    check("send_message", json!({"target": "b", "message": "hi", "title": long(201)}), ErrorCode::PayloadTooLarge);
    check("reply", json!({"message_id": "a::b::00000001", "response": " "}), ErrorCode::InvalidRequest);
    check("reply", json!({"message_id": "a::b", "response": "x"}), ErrorCode::InvalidRequest);
    check("reply", json!({"message_id": "a::b::00000001", "response": long(50_001)}), ErrorCode::PayloadTooLarge);
    check("broadcast", json!({"message": long(50_001)}), ErrorCode::PayloadTooLarge);
    check("wait_for_message", json!({"timeout": 0}), ErrorCode::InvalidRequest);
    check("wait_for_message", json!({"timeout": 3_601}), ErrorCode::InvalidRequest);
    check("wait_for_message", json!({"until": "seen"}), ErrorCode::InvalidRequest);
    check("wait_for_message", json!({"message_id": "a::b::00000001", "until": "stored"}), ErrorCode::InvalidRequest);
    check("get_messages", json!({"limit": 1_001}), ErrorCode::InvalidRequest);
    check("get_messages", json!({"limit": 0}), ErrorCode::InvalidRequest);
    check("ack_messages", json!({"message_ids": []}), ErrorCode::InvalidRequest);
    check("get_agent_status", json!({"agent_id": "agent@home"}), ErrorCode::InvalidRequest);
    check("set_status", json!({"status": "sleeping"}), ErrorCode::InvalidRequest);
    check("register_agent", json!({"capabilities": vec!["x"; 51]}), ErrorCode::InvalidRequest);
    check("register_agent", json!({"description": long(501)}), ErrorCode::PayloadTooLarge);
    check("register_agent", json!({"capabilities": vec![long(41); 50]}), ErrorCode::PayloadTooLarge);
    assert!(parse("register_agent", json!({"capabilities": vec![long(40); 50]})).is_ok());
    check("fly", json!({}), ErrorCode::NotSupported);
    assert!(parse("send_message", json!({"target": "b", "message": long(50_000), "context": long(50_000)})).is_ok());
    assert!(parse("wait_for_message", json!({"timeout": 3_600})).is_ok());
}

#[test]
fn an_integer_may_be_written_with_a_fraction() {
    let called = |arguments: Value| {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        Call::of_object("get_messages", arguments)
    };
    assert_eq!(called(json!({"limit": 5.0})), called(json!({"limit": 5})));
    assert!(called(json!({"limit": 5.5})).is_err());
}
