//! Each command of `c3po` with the fields that another side chooses, and hostile answers with these fields.

use std::collections::BTreeMap;

use harness::corpus::{filled, lines};
use serde_json::{Value, json};

/// The last text of output that goes on.
pub(super) const LAST: &str = "this is the last one";
/// The commands that print nothing of another side: they work on files of this host, or speak to a client.
pub(super) const LOCAL: &[&str] = &[
    "answers",
    "completions",
    "help",
    "hook",
    "man",
    "proxy",
    "statusline",
    "uninstall",
];

const MESSAGE: &[&str] = &["from_host", "title", "message", "context"];

/// The commands, with the fields that their text shows. Their JSON has these and others. `URL` is the coordinator's.
pub(super) const COMMANDS: &[(&str, &[&str])] = &[
    ("status", &["store"]),
    ("doctor", &["coordinator", "host", "error"]),
    ("agents", &["host", "role", "description"]),
    ("agents --online", &["host", "role", "description"]),
    ("agents rm a", &[]),
    ("send a hi", &[]),
    (
        "send --wait a hi",
        &["from_host", "title", "response", "context"],
    ),
    ("send --wait --timeout 1 b hi", &["timed_out"]),
    ("send @role hi", &["error"]),
    ("broadcast hi", &["error"]),
    ("inbox", MESSAGE),
    ("inbox --follow", MESSAGE),
    ("tail", MESSAGE),
    ("sent", &["title"]),
    ("reply a::human::00000001 hi", &[]),
    (
        "questions",
        &["from_host", "title", "message", "context", "label"],
    ),
    (
        "questions --follow",
        &["from_host", "title", "message", "context"],
    ),
    ("answer a::human::00000001 hi", &[]),
    ("answer a::human::00000001 --option 1", &[]),
    ("ask hi", &["answer", "chosen"]),
    ("notify hi", &[]),
    ("ack a::human::00000001", &[]),
    ("ack --all", &[]),
    ("thread a::human::00000001", MESSAGE),
    ("receipt a::human::00000001", &["session"]),
    ("join URL", &["key_id", "agents", "expires_at", "host"]),
    ("audit", &["verb", "key", "login", "why"]),
    ("audit --follow", &["verb", "key", "login", "why"]),
    ("events", &["verb", "key", "login", "why"]),
    ("policy show", &["path", "text", "outdated"]),
    (
        "policy check a b message",
        &["role", "host", "reason", "outdated"],
    ),
    ("guard list", &[]),
    ("guard allow a b", &[]),
    ("guard stop a b", &[]),
    ("hosts rename a b", &["from", "to"]),
    ("install --coordinator URL", &["error", "suggestion"]),
    ("logout", &[]),
    ("login URL --yes", &["id", "name"]),
];

/// Returns the last output of a command that then waits until it is ended or answered.
pub(super) fn waits_after(command: &str) -> Option<&'static str> {
    let asks = command.starts_with("reply ") || command.starts_with("answer ");
    let goes_on = command.ends_with("--follow") || command == "tail";
    asks.then_some("[y/N]").or(goes_on.then_some(LAST))
}

/// Returns the answers to a command, by path and tool.
pub(super) fn answers(command: &str) -> BTreeMap<String, String> {
    let mut all = requests();
    all.extend(of_logins());
    all.extend(of_questions());
    all.extend(calls());
    match command {
        // Its messages to its own session would be waited for.
        "doctor" => all.retain(|asked, _| !matches!(*asked, "send_message" | "wait_for_message")),
        "install --coordinator URL" => drop(all.remove("/api/health")),
        "questions" | "questions --follow" => drop(all.insert(
            "get_messages",
            json!({"messages": [question()], "count": 1}),
        )),
        "ask hi" => drop(all.insert("ask_user", answered())),
        "send @role hi" => drop(all.insert("send_message", copies())),
        "send --wait --timeout 1 b hi" => drop(all.insert("wait_for_message", timed_out())),
        _ => {}
    }
    all.iter()
        .map(|(asked, result)| ((*asked).to_owned(), filled(result)))
        .collect()
}

/// Returns a refusal with all its fields, with that advice.
pub(super) fn refusal(code: &str, advice: Option<&str>) -> String {
    filled(&json!({
        "error": "§error", "code": code, "suggestion": "§suggestion", "advice": advice,
        "details": {"§detail": 1, "nearest": ["§nearest"], "agent": "§agent", "agents": ["§glob"], "last_error": "§last"},
    }))
}

fn page_of_log() -> Value {
    let entry = json!({"position": 1, "at": at(), "event": "denied", "verb": "§verb", "key": "§key",
        "login": "§login", "why": "§why"});
    let last = json!({"position": 2, "at": at(), "event": "denied", "why": LAST});
    json!({"entries": [entry, last], "next": 2, "complete": true})
}

fn enveloped(data: &Value) -> Value {
    let id = "00000000-0000-0000-0000-000000000000";
    json!({"data": data, "meta": {"request_id": id, "timestamp": at()}})
}

/// Returns the answers over REST, by path.
fn requests() -> BTreeMap<&'static str, Value> {
    let party = |id: &str| json!({"id": id, "known": true, "role": "§role", "host": "§host"});
    let pair = json!({"agents": ["a", "b"], "standing": "stopped", "count": 1, "stopped_at": at(), "more": "§more"});
    // The lines of a file are printed as they are.
    let file = lines("text");
    BTreeMap::from([
        ("/api/agents", json!([agent()])),
        (
            "/api/agents/remove",
            json!({"agent_id": "a", "host": "§host", "expired": 1, "§more": 1}),
        ),
        ("/api/audit", page_of_log()),
        ("/api/v1/events", enveloped(&page_of_log())),
        (
            "/api/guard",
            json!({"limit": 60, "pairs": [pair], "more": "§more"}),
        ),
        ("/api/guard/allow", pair.clone()),
        ("/api/guard/stop", pair),
        (
            "/api/health",
            json!({"status": "§status", "store": "§store", "version": "§version"}),
        ),
        (
            "/api/hosts/rename",
            json!({"from": "§from", "to": "§to", "agents": 1, "keys": 0, "more": "§more"}),
        ),
        (
            "/api/join",
            json!({
                "key": "c3po_0a1b2c3d_secret", "key_id": "§key_id", "agents": ["§agents"], "expires_at": "§expires_at",
                "host": "§host", "older_key": {"id": "§older_id", "valid": true, "revoke": "§revoke"},
            }),
        ),
        (
            "/api/pending",
            json!({"count": 1, "messages": [message()], "more": "§more"}),
        ),
        (
            "/api/policy",
            json!({"rules": 1, "path": "§path", "text": file, "outdated": "§outdated", "§more": 1}),
        ),
        (
            "/api/policy/check",
            json!({
                "effect": "allow", "rule": 1, "reason": "§reason", "verb": "message", "from": party("a"), "to": party("b"),
                "outdated": "§outdated",
            }),
        ),
        (
            "/api/sent",
            json!({"agent_id": "human", "messages": [
                {"message_id": "human::a::00000001", "to": "a", "at": at(), "stage": "seen", "title": "§title"},
            ]}),
        ),
    ])
}

/// Returns the answers about questions to people, by path.
fn of_questions() -> [(&'static str, Value); 2] {
    [
        (
            "/api/v1/questions/a::human::00000001",
            enveloped(
                &json!({"message": question(), "stage": "stored", "history": [], "more": "§more"}),
            ),
        ),
        (
            "/api/v1/questions/a::human::00000001/answer",
            enveloped(&sent_to("a")),
        ),
    ]
}

/// Returns the answers about logins, by path.
fn of_logins() -> [(&'static str, Value); 2] {
    [
        (
            "/api/v1/logins/0a1b2c3d",
            enveloped(&json!({"id": "§id", "name": "§name"})),
        ),
        (
            "/api/v1/login",
            enveloped(&json!({"token": "c3po-login_0a1b2c3d_secret", "login": {
                "id": "§id", "name": "§name", "scope": "answer", "state": "valid", "created_at": at(), "expires_at": at(),
                "made_by": "§made_by", "device": "§device",
            }})),
        ),
    ]
}

/// Returns the answers on a link, by tool.
fn calls() -> BTreeMap<&'static str, Value> {
    let (sent, mut reply, mut arriving, mut last) = (sent_to("a"), message(), message(), message());
    reply["kind"] = "reply".into();
    reply["response"] = "§response".into();
    (last["id"], last["context"]) = ("a::human::00000002".into(), LAST.into());
    for message in [&mut arriving, &mut last] {
        message["expires_in_ms"] = 1_000_000.into();
        message["requires_response"] = true.into();
    }
    let step =
        |stage: &str| json!({"stage": stage, "at": at(), "via": "hook", "session": "§session"});
    BTreeMap::from([
        (
            "hello",
            json!({
                "agent_id": "human", "uid": "0191e6b0-0000-7000-8000-000000000001", "generation": 1,
                "heartbeat_seconds": 15, "coordinator_version": "§version", "pending": 0, "host": "§host",
            }),
        ),
        (
            "deliver",
            json!({"messages": [arriving, last], "position": 2}),
        ),
        (
            "ping",
            json!({"pong": true, "timestamp": at(), "coordinator": "§coordinator", "agent_id": "human"}),
        ),
        ("get_agent_status", agent()),
        ("send_message", sent.clone()),
        ("reply", sent.clone()),
        ("notify_user", sent),
        ("broadcast", copies()),
        ("wait_for_message", reply),
        ("get_messages", json!({"messages": [message()], "count": 1})),
        ("get_thread", json!({"messages": [message()]})),
        (
            "ack_messages",
            json!({"acked": ["a::human::00000001"], "unknown": [], "more": "§more"}),
        ),
        (
            "message_status",
            json!({"message_id": "a::human::00000001", "stage": "seen", "history": [step("on_host"), step("seen")]}),
        ),
    ])
}

fn at() -> &'static str {
    "2026-01-15T10:30:00.000Z"
}

fn agent() -> Value {
    json!({
        "id": "a", "uid": "0191e6b0-0000-7000-8000-000000000001", "host": "§host", "status": "online", "state": "ready",
        "description": "§description", "capabilities": ["§capability"], "role": "§role", "registered_at": at(),
        "last_seen": at(), "current_task": "§task", "pending": 1,
    })
}

fn message() -> Value {
    json!({
        "id": "a::human::00000001", "thread_id": "a::human::00000001", "kind": "message", "from_agent": "a",
        "from_host": "§from_host", "to_agent": "human", "title": "§title", "message": "§message", "context": "§context",
        "priority": "urgent", "requires_response": false, "timestamp": at(), "expires_at": "2099-01-16T10:30:00.000Z",
    })
}

/// Returns a question to people with its options.
fn question() -> Value {
    let part = json!({"id": "1", "text": "§message", "options": [{"id": "1", "label": "§label"}], "allow_text": true});
    let mut question = message();
    question["requires_response"] = true.into();
    question["question"] = json!({"kind": "ask", "parts": [part]});
    question
}

/// Returns the outcome of a question, which is the reply to the call that asks it too.
fn answered() -> Value {
    let mut answered = sent_to("human");
    for (name, value) in [
        ("question_id", json!("a::human::00000001")),
        ("status", json!("answered")),
        (
            "answers",
            json!([{"options": ["§chosen"], "text": "§answer"}]),
        ),
        ("answered_by", json!("§by")),
        ("waited_seconds", json!(1)),
    ] {
        answered[name] = value;
    }
    answered
}

fn sent_to(agent: &str) -> Value {
    let mut sent = message();
    sent["to_agent"] = agent.into();
    sent["receipt"] = json!({"stage": "stored", "at": at(), "more": "§more"});
    sent
}

fn copies() -> Value {
    let refusal = json!({"error": "§error", "code": "FORBIDDEN", "suggestion": "§suggestion"});
    json!({
        "id": "human::all::00000001", "recipients": ["a"],
        "receipts": [{"agent_id": "a", "stage": "refused", "refusal": refusal}],
    })
}

fn timed_out() -> Value {
    json!({
        "status": "timeout", "code": "TIMEOUT", "timeout": true, "waited_seconds": 1, "message": "§timed_out",
        "suggestion": "§suggestion",
    })
}
