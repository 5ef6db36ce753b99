//! The proxy as a client uses it: a real process on pipes, without any coordinator.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use c3po_shared::catalogue::listing;
use serde_json::{Value, json};

/// How long an answer may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the end may take here: 100 ms are promised, and a debug build on a busy machine is slower.
const END: Duration = Duration::from_millis(500);

struct Client {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    last_id: u64,
    _home: tempfile::TempDir,
}

impl Client {
    /// Starts a proxy with the coordinator's address.
    fn start(coordinator: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_c3po"))
            .arg("proxy")
            .env_clear()
            .env("HOME", home.path())
            .env("C3PO_AGENT_ID", "web")
            .env("C3PO_COORDINATOR_URL", coordinator)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        // Ends with the output of the process.
        std::thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        let input = child.stdin.take();
        Self {
            child,
            input,
            lines,
            last_id: 0,
            _home: home,
        }
    }

    fn say(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn hear(&self) -> Value {
        serde_json::from_str(&self.lines.recv_timeout(PATIENCE).expect("an answer"))
            .expect("an answer in JSON")
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        self.say(
            &json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params})
                .to_string(),
        );
        let answer = self.hear();
        assert_eq!(answer["id"], self.last_id, "{answer}");
        answer
    }

    fn initialize(&mut self, version: &str) -> Value {
        let client = json!({"name": "test", "version": "1"});
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client});
        let answer = self.ask("initialize", params);
        self.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        answer["result"].clone()
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    fn signal(&self, name: &str) {
        let killed = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status()
            .unwrap();
        assert!(killed.success());
    }

    /// Waits for the end. Returns the exit status and the time it took.
    fn end(mut self) -> (ExitStatus, Duration) {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status, began.elapsed());
            }
            assert!(began.elapsed() < PATIENCE, "the proxy goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const NOBODY: &str = "http://127.0.0.1:1";

/// Returns the address of a coordinator that accepts connections and never answers, and the listener that keeps it open.
fn black_hole() -> (String, std::net::TcpListener) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    (
        format!("http://{}", listener.local_addr().unwrap()),
        listener,
    )
}

#[test]
fn the_tools_are_listed_without_a_coordinator() {
    let mut client = Client::start(NOBODY);
    let began = Instant::now();
    let server = client.initialize("2025-11-25");
    let list = client.ask("tools/list", json!({}));
    // For a debug build on a busy machine; the promised figure is measured elsewhere.
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(
        (&server["protocolVersion"], &server["serverInfo"]["name"]),
        (&json!("2025-11-25"), &json!("c3po"))
    );
    assert!(server["instructions"].as_str().unwrap().contains("reply"));
    assert_eq!(
        list["result"]["tools"].as_array().unwrap().len(),
        listing().len()
    );
    assert!(list["result"].to_string().len() < 9_000);
}

#[test]
fn a_call_waits_two_seconds_for_a_coordinator_and_the_next_ones_not_at_all() {
    let mut client = Client::start(NOBODY);
    client.initialize("2025-11-25");
    let began = Instant::now();
    let first = client.call("list_agents", json!({}));
    assert!(
        (1.5..4.0).contains(&began.elapsed().as_secs_f64()),
        "{:?}",
        began.elapsed()
    );
    let began = Instant::now();
    let second = client.call("send_message", json!({"target": "b", "message": "hi"}));
    assert!(
        began.elapsed() < Duration::from_millis(500),
        "{:?}",
        began.elapsed()
    );
    for answer in [first, second] {
        let result = &answer["result"];
        assert_eq!(result["isError"], true);
        assert_eq!(result["structuredContent"]["code"], "COORD_DOWN");
        assert_eq!(
            result["structuredContent"]["details"]["coordinator"],
            NOBODY
        );
        assert_eq!(result["structuredContent"]["details"]["applied"], "no");
        assert_eq!(
            result["content"][0]["text"],
            result["structuredContent"].to_string()
        );
    }
}

/// Sends a line, and checks the error that answers it.
fn check_error(client: &mut Client, line: &str, code: i64, id: Value) {
    client.say(line);
    let answer = client.hear();
    assert_eq!(
        (&answer["jsonrpc"], &answer["error"]["code"]),
        (&json!("2.0"), &json!(code)),
        "{line}: {answer}"
    );
    assert_eq!(answer.get("id"), Some(&id), "{line}: {answer}");
    assert!(answer["error"]["message"].is_string(), "{line}: {answer}");
}

#[test]
fn a_line_that_is_not_a_message_is_answered_and_the_session_goes_on() {
    let mut client = Client::start(NOBODY);
    check_error(&mut client, "{", -32700, Value::Null);
    client.initialize("2025-11-25");
    let (nested, call) = (
        "[".repeat(200) + &"]".repeat(200),
        r#""method":"tools/call""#,
    );
    for (line, code, id) in [
        ("no JSON", -32700, Value::Null),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/list""#,
            -32700,
            Value::Null,
        ),
        (&"[".repeat(1_000), -32700, Value::Null),
        (
            &format!(r#"{{"jsonrpc":"2.0","id":7,{call},"params":{nested}}}"#),
            -32700,
            json!(7),
        ),
        ("[]", -32600, Value::Null),
        ("7", -32600, Value::Null),
        (
            r#"{"jsonrpc":"1.0","id":7,"method":"tools/list"}"#,
            -32600,
            json!(7),
        ),
        (
            r#"{"jsonrpc":"2.0","id":"seven","method":7}"#,
            -32600,
            json!("seven"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":{},"method":"tools/list"}"#,
            -32600,
            Value::Null,
        ),
        (r#"{"jsonrpc":"2.0","id":7}"#, -32600, json!(7)),
    ] {
        check_error(&mut client, line, code, id);
    }
    // Empty lines, notifications and responses get no answer: the next output answers the next request.
    for silent in [
        "",
        " \t",
        r#"{"jsonrpc":"2.0","method":"$/unknown","params":[1]}"#,
        r#"{"id":7,"result":1,"error":2}"#,
    ] {
        client.say(silent);
    }
    assert_eq!(client.ask("ping", json!({}))["result"], json!({}));
    assert_eq!(
        client.ask("resources/fly", json!({}))["error"]["code"],
        -32601
    );
}

#[test]
fn a_call_with_half_a_character_is_served() {
    let mut client = Client::start(NOBODY);
    client.initialize("2025-11-25");
    client.say(
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"ping","arguments":{"half \ud83d":1}}}"#,
    );
    let answer = client.hear();
    assert_eq!(answer["id"], 7, "{answer}");
    assert!(
        answer["result"]["structuredContent"]["error"]
            .to_string()
            .contains("half \u{fffd}"),
        "{answer}"
    );
}

#[test]
fn bad_arguments_and_unknown_tools_are_refused_without_a_coordinator() {
    let mut client = Client::start(NOBODY);
    client.initialize("2025-11-25");
    let began = Instant::now();
    let refused = client.call("send_message", json!({"target": "b", "message": ""}));
    assert_eq!(
        refused["result"]["structuredContent"]["code"],
        "INVALID_REQUEST"
    );
    assert_eq!(client.call("fly", json!({}))["error"]["code"], -32602);
    assert_eq!(
        client.call("wait_for_response", json!({}))["result"]["structuredContent"]["code"],
        "INVALID_REQUEST"
    );
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[test]
fn the_handshake_works_after_any_first_line() {
    for (first, refused) in [
        ("garbage", Some(-32700)),
        ("", None),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            None,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
            None,
        ),
        (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, None),
        ("\u{feff}{", Some(-32700)),
    ] {
        let mut client = Client::start(NOBODY);
        client.say(first);
        if let Some(code) = refused {
            assert_eq!(client.hear()["error"]["code"], code, "{first}");
        }
        assert_eq!(
            client.initialize("2024-11-05")["protocolVersion"],
            "2024-11-05",
            "{first}"
        );
    }
}

#[test]
fn a_newer_client_is_referred_to_the_handshake() {
    let mut client = Client::start(NOBODY);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "claude-code", "version": "2.1.329"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    assert_eq!(
        client.ask("server/discover", json!({"_meta": meta}))["error"]["code"],
        -32022
    );
    assert_eq!(
        client.initialize("2025-11-25")["protocolVersion"],
        "2025-11-25"
    );
}

#[test]
fn the_end_of_input_ends_the_proxy_even_with_a_call_that_waits() {
    let (address, _listener) = black_hole();
    let mut client = Client::start(&address);
    client.initialize("2025-11-25");
    client.say(
        r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"wait_for_message"}}"#,
    );
    assert_eq!(client.ask("ping", json!({}))["result"], json!({}));
    client.input = None;
    let (status, took) = client.end();
    assert!(status.success() && took < END, "{status} after {took:?}");
}

#[test]
fn signals_end_the_proxy_even_with_a_call_that_waits() {
    for name in ["TERM", "INT", "HUP"] {
        let (address, _listener) = black_hole();
        let mut client = Client::start(&address);
        client.initialize("2025-11-25");
        client.say(r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"wait_for_message"}}"#);
        assert_eq!(client.ask("ping", json!({}))["result"], json!({}));
        client.signal(name);
        let (status, took) = client.end();
        assert!(
            status.success() && took < END,
            "{name}: {status} after {took:?}"
        );
    }
}

#[test]
fn a_cancelled_call_ends_and_the_session_goes_on() {
    let (address, _listener) = black_hole();
    let mut client = Client::start(&address);
    client.initialize("2025-11-25");
    client.say(
        r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"wait_for_message"}}"#,
    );
    client.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}"#);
    assert_eq!(client.ask("ping", json!({}))["result"], json!({}));
}

/// Returns a value that the schema of an argument admits.
fn valid_argument(name: &str, schema: &Value) -> Value {
    let text = if name.starts_with("message_id") {
        "a::b::00000001"
    } else {
        "x"
    };
    match (&schema["enum"][0], &schema["type"]) {
        (Value::Null, kind) if kind == "array" => json!([text]),
        (Value::Null, _) => json!(text),
        (first, _) => first.clone(),
    }
}

#[test]
fn a_wrong_configuration_is_reported_by_tools_and_does_not_end_the_proxy() {
    let mut client = Client::start("ftp://nas");
    client.initialize("2025-11-25");
    let list = client.ask("tools/list", json!({}));
    let tools = list["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), listing().len());
    for tool in tools {
        let required = tool["inputSchema"]["required"]
            .as_array()
            .into_iter()
            .flatten();
        let arguments = required.map(|name| {
            let name = name.as_str().unwrap();
            (
                name.to_owned(),
                valid_argument(name, &tool["inputSchema"]["properties"][name]),
            )
        });
        let mut arguments: serde_json::Map<_, _> = arguments.collect();
        if tool["name"] == "ask_user" {
            // It needs one of two arguments.
            arguments.insert("question".to_owned(), "which?".into());
        }
        let answer = client.call(tool["name"].as_str().unwrap(), arguments.into());
        assert!(
            answer["result"]["structuredContent"]["error"]
                .as_str()
                .unwrap()
                .contains("ftp://nas"),
            "{answer}"
        );
    }
}

#[test]
fn nothing_but_json_is_on_standard_output() {
    let mut client = Client::start(NOBODY);
    client.say("garbage");
    assert_eq!(client.hear()["error"]["code"], -32700);
    client.initialize("2025-11-25");
    client.call("ping", json!({}));
    client.input = None;
    assert!(
        client
            .lines
            .iter()
            .all(|line| serde_json::from_str::<Value>(&line).is_ok())
    );
}

#[test]
fn answers_are_written_although_the_input_ended() {
    let mut client = Client::start(NOBODY);
    let client_info = json!({"name": "test", "version": "1"});
    let params =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client_info});
    client.say(
        &json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).to_string(),
    );
    client.say(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#);
    client.input = None;
    assert_eq!(client.hear()["id"], 1);
    assert_eq!(client.hear()["id"], 2);
}
