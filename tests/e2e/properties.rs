//! Whatever comes in is taken or refused, and panics nothing: generated texts, and good ones that were damaged.

use anyhow::Result;
use harness::entries;
use harness::http;
use harness::served::Served;
use proptest::prelude::{Strategy, any, prop};
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};

/// How many texts each entry is given: some seconds for all of them.
const CASES: u32 = 4_000;

/// A text of any characters, or one of these with some places changed.
fn texts(good: &'static [&'static str]) -> impl Strategy<Value = String> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<Option<char>>(), any::<bool>()), 0..4);
    let damaged = (prop::sample::select(good), changes).prop_map(|(text, changes)| {
        let mut text: Vec<char> = text.chars().collect();
        for (at, with, cuts) in changes {
            if text.is_empty() {
                break;
            }
            let at = at.index(text.len());
            match with {
                _ if cuts && at % 7 == 0 => text.truncate(at),
                Some(c) if cuts => text.insert(at, c),
                Some(c) => text[at] = c,
                None => drop(text.remove(at)),
            }
        }
        text.into_iter().collect()
    });
    proptest::prop_oneof![1 => any::<String>(), 3 => damaged]
}

/// Gives the entry that many texts. A failure is shrunk to a short one.
fn check<T: std::fmt::Debug>(strategy: &impl Strategy<Value = T>, entry: impl Fn(&T)) {
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(strategy, |text| {
        entry(&text);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

const FRAMES: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol_version":"1.0","name":"a","host":"h","instance":"0191e6b0-0000-7000-8000-000000000001","client":{"name":"x"}}}"#,
    r#"{"jsonrpc":"2.0","id":"x","method":"call","params":{"call_id":"0191e6b0-0000-7000-8000-000000000002","tool":"send_message","arguments":{"target":"b","message":"hi"}}}"#,
    r#"{"jsonrpc":"2.0","method":"goodbye","params":{}}"#,
    r#"{"jsonrpc":"2.0","id":7,"method":"receipt","params":{"message_ids":["a::b::00000001"],"stage":"seen","via":"hook"}}"#,
    r#"{"jsonrpc":"2.0","id":7,"method":"audit","params":{"after":3,"since":"2026-01-15T10:30:00Z","agent":"a"}}"#,
    r#"{"jsonrpc":"2.0","id":-1,"result":{"x":[1,2,{"y":null}]}}"#,
    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}"#,
];

const ARGUMENTS: &[&str] = &[
    r#"{"target":"b@host","message":"hi","title":"t","priority":"HIGH","requires_response":true,"expires_in":60}"#,
    r#"{"message_id":"a::b::00000001","response":"yes","status":"success"}"#,
    r#"{"message_ids":["a::b::00000001","b::a::ffffffff"]}"#,
    r#"{"timeout":3600,"kind":"message"}"#,
    r#"{"limit":1000,"cursor":"17","status":"online"}"#,
    r#"{"name":"x","capabilities":["a","b"],"role":"r","description":"d"}"#,
];

const TOOLS: &[&str] = &[
    "send_message",
    "reply",
    "broadcast",
    "get_messages",
    "ack_messages",
    "wait_for_message",
    "get_thread",
    "message_status",
    "list_agents",
    "get_agent_status",
    "set_status",
    "register_agent",
    "ping",
    "respond_to_request",
];

const HOOKS: &[&str] = &[
    r#"{"session_id":"s","cwd":"/p","hook_event_name":"SessionStart","source":"clear"}"#,
    r#"{"prompt":"[c3po] 1 message","prompt_id":"p","stop_hook_active":null}"#,
    r#"{"tool_calls":[{"tool_use_id":"toolu_1","tool_response":[[{"x":1}]]}],"tool_name":"Read"}"#,
];

const EVENTS: &[&str] = &["session-start", "user-prompt-submit", "post-tool-batch", "notification", "stop", "wait"];

const JOIN_CODES: &[&str] =
    &["AAECAwQFBgcICQoLDA0ODw", "AAECAwQFBgcICQoLDA0OD_AAECAwQFBgcICQoLDA0OD_AAECAwQFBgcICQoLDA0O"];

const HOST_FILES: &[&str] = &[
    "coordinator_url = \"http://nas:8420,https://b:1\"\nagent_id = \"web\"\ntimeout = 60\ntoken = \"0123456789abcdef\"\n",
    "# nothing\n",
];

const POLICIES: &[&str] = &[
    "[[rule]]\nfrom = \"guest-*\"\nto = [\"role:ops\", \"host:nas?\"]\nverb = \"*\"\neffect = \"deny\"\nreason = \"no\"\n",
    "[default]\nmessage = \"deny\"\nspawn = \"allow\"\n\n[[rule]]\nfrom = \"*\"\nto = \"*\"\nverb = [\"reply\"]\neffect = \"allow\"\n",
];

const QUERIES: &[&str] = &[
    "after=3&since=2026-01-15T10:30:00Z&agent=a&limit=10",
    "from=a&to=b&verb=message",
    "agent=%61&limit=%31",
    "homeassistant",
    "a::b::00000001",
];

const STORES: &[&str] = &[
    "sqlite:/var/lib/c3po.db",
    "redis://user:p%40ss@nas:6379/2",
    "rediss+sentinel://:pw@[::1]:26379,b/main/1",
    "redis+cluster://a:1,b:2,c:3",
];

#[test]
fn any_frame_is_read_or_refused_and_what_is_read_is_written_the_same() {
    check(&texts(FRAMES), |text| entries::acp_frame(text));
}

#[test]
fn any_arguments_make_a_call_or_a_refusal() {
    let tools = prop::sample::select(TOOLS);
    check(&(tools, texts(ARGUMENTS)), |(tool, arguments)| entries::tool_arguments(tool, arguments));
}

#[test]
fn any_input_of_a_hook_is_an_event_or_none() {
    let words = prop::sample::select(EVENTS);
    check(&(words, texts(HOOKS)), |(word, input)| entries::hook_input(word, input.as_bytes()));
    let bytes = prop::collection::vec(any::<u8>(), 0..200);
    check(&bytes, |input| entries::hook_input("stop", input));
}

#[test]
fn any_join_code_is_one_or_refused_and_is_written_the_same() {
    check(&texts(JOIN_CODES), |text| entries::join_code(text));
    let codes = (any::<[u8; 16]>(), any::<Option<[u8; 32]>>());
    check(&codes, |(secret, fingerprint)| {
        let fingerprint = fingerprint.map(c3po_shared::join::Fingerprint::of);
        let code = c3po_shared::join::JoinCode::new(*secret, fingerprint);
        let again: c3po_shared::join::JoinCode = code.reveal().parse().expect("a code that was made");
        assert_eq!((again.secret(), again.fingerprint), (code.secret(), fingerprint));
        entries::join_code(&code.reveal());
    });
}

#[test]
fn any_file_of_a_host_is_read_or_told_what_is_wrong() {
    check(&texts(HOST_FILES), |text| entries::host_file(text));
}

#[test]
fn any_file_of_rules_is_a_policy_or_told_what_is_wrong() {
    check(&texts(POLICIES), |text| entries::policy_file(text));
}

#[test]
fn any_query_and_any_name_is_read_or_refused() {
    check(&texts(QUERIES), |text| entries::rest_query(text));
}

#[test]
fn any_address_of_a_store_is_one_or_refused() {
    check(&texts(STORES), |text| entries::store_address(text));
}

/// What can stand in a line of a request: anything but its end.
fn line(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect()
}

#[tokio::test]
async fn any_query_and_any_header_is_answered_and_the_coordinator_goes_on() -> Result<()> {
    let served = Served::start().await?;
    let address = served.address.parse()?;
    let mut runner = TestRunner::deterministic();
    let texts = texts(QUERIES);
    for number in 0..200 {
        let mut draw = || texts.new_tree(&mut runner).map(|tree| line(&tree.current())).unwrap_or_default();
        let (query, agent, session) = (draw(), draw(), draw());
        let path = ["/api/audit", "/api/policy/check", "/api/pending", "/api/agents"][number % 4];
        // In a path spaces end it, and in neither place is every character allowed: that is the point.
        let request = format!(
            "GET {path}?{} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nX-Agent-ID: {agent}\r\nX-Session-ID: {session}\r\n\r\n",
            query.replace(' ', "+")
        );
        let answer = http::request(address, &request).await?;
        assert!((200..500).contains(&answer.status), "{request}: {} {}", answer.status, answer.body);
    }
    assert_eq!(http::get(address, "/api/health").await?.status, 200);
    Ok(())
}
