//! The link against a peer with real frames that behaves like a real coordinator in trouble.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod disk;
mod names;
mod peer;
mod relayed;

use std::time::{Duration, Instant};

use c3po::link::State;
use c3po_shared::receipt::{Progress, Stage, Via};
use c3po_shared::refusal::{ErrorCode, Refusal};
use futures_util::StreamExt;
use peer::{PATIENCE, Peer, Talk, outcome, run, run_as, run_with};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

#[tokio::test]
async fn no_agent_is_registered_before_the_session_begins() {
    let peer = Peer::listen().await;
    let running = run(vec![peer.url()]);
    assert!(
        timeout(Duration::from_millis(200), peer.listener.accept())
            .await
            .is_err(),
        "dialled without a reason"
    );
    let began = Instant::now();
    running.link.initialized();
    let (_talk, hello) = peer.welcome("web").await;
    assert!(
        (2.9..6.0).contains(&began.elapsed().as_secs_f64()),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(
        (&hello["name"], &hello["host"], &hello["protocol_version"]),
        (&json!("web"), &json!("nas2"), &json!("1.0"))
    );
}

#[tokio::test]
async fn an_unanswered_call_is_sent_again_under_the_same_id() {
    let peer = Peer::listen().await;
    let running = run(vec![peer.url()]);
    let call = running.call("send_message", json!({"target": "b", "message": "hi"}));
    let (mut talk, first_hello) = peer.welcome("web-2").await;
    let first = talk.hear().await;
    drop(talk);
    let (mut talk, second_hello) = peer.welcome("web-2").await;
    let second = talk.hear().await;
    assert_eq!(first, second);
    assert_eq!(
        (&first_hello["name"], &second_hello["name"]),
        (&json!("web"), &json!("web-2"))
    );
    assert_eq!(first_hello["instance"], second_hello["instance"]);
    talk.answer(&second, json!({"id": "x"})).await;
    assert_eq!(outcome(call).await, Ok(json!({"id": "x"})));
}

#[tokio::test]
async fn a_coordinator_that_is_alive_and_does_not_answer_a_call_is_dialled_again() {
    let peer = Peer::listen().await;
    let running = run(vec![peer.url()]);
    let call = running.call("ping", json!({}));
    let (mut talk, _) = peer.welcome_that_beats("web", 1).await;
    let first = talk.hear().await;
    let began = Instant::now();
    timeout(6 * PATIENCE, answer_beats(&mut talk))
        .await
        .expect("the end of the link");
    assert!((44.0..55.0).contains(&began.elapsed().as_secs_f64()));
    let (mut talk, _) = peer.welcome("web").await;
    let second = talk.hear().await;
    assert_eq!(first, second);
    talk.answer(&second, json!({"pong": true})).await;
    assert_eq!(outcome(call).await, Ok(json!({"pong": true})));
}

#[tokio::test]
async fn a_question_to_a_person_has_its_answer_on_the_same_link_however_long_it_takes() {
    let peer = Peer::listen().await;
    let running = run(vec![peer.url()]);
    let call = running.call("ask_user", json!({"question": "Now?"}));
    let (mut talk, _) = peer.welcome_that_beats("web", 1).await;
    let asked = talk.hear().await;
    let lasted = timeout(Duration::from_secs(48), answer_beats(&mut talk)).await;
    assert!(lasted.is_err(), "the link has ended");
    talk.answer(&asked, json!({"status": "answered"})).await;
    assert_eq!(outcome(call).await, Ok(json!({"status": "answered"})));
}

/// Answers heartbeats, until the link ends.
async fn answer_beats(talk: &mut Talk) {
    while let Some(Ok(frame)) = talk.socket.next().await {
        if let Ok(text) = frame.to_text()
            && let Ok(beat) = serde_json::from_str(text)
        {
            talk.answer(&beat, json!({})).await;
        }
    }
}

#[tokio::test]
async fn receipts_go_before_later_calls_and_are_sent_until_they_are_answered() {
    let peer = Peer::listen().await;
    let running = run(vec![peer.url()]);
    running.link.begin();
    let (mut talk, _) = peer.welcome("web").await;
    let (message_ids, stage, via) = (
        vec!["a::web::00000001".parse().unwrap()],
        Stage::InSession,
        Via::GetMessages,
    );
    running.link.receipt(Progress {
        message_ids,
        stage,
        via,
        seen_via: None,
        context: 0,
    });
    let call = running.call("ping", json!({}));
    let receipt = talk.hear().await;
    let wanted =
        json!({"message_ids": ["a::web::00000001"], "stage": "in_session", "via": "get_messages"});
    assert_eq!(
        (&receipt["method"], &receipt["params"]),
        (&json!("receipt"), &wanted)
    );
    let ping = talk.hear().await;
    talk.answer(&ping, json!({})).await;
    outcome(call).await.unwrap();
    drop(talk);
    let (mut talk, _) = peer.welcome("web").await;
    assert_eq!(talk.hear().await, receipt);
    talk.answer(&receipt, json!({})).await;
    timeout(PATIENCE, running.link.receipts_settled())
        .await
        .expect("settled");
}

#[tokio::test]
async fn requests_of_the_coordinator_are_answered() {
    let peer = Peer::listen().await;
    let running = run(vec![peer.url()]);
    running.link.begin();
    let (mut talk, hello) = peer.welcome("web").await;
    assert_eq!(hello.get("last_delivered"), None);
    let message = json!({
        "id": "a::web::00000001", "thread_id": "a::web::00000001", "kind": "message", "from_agent": "a",
        "to_agent": "web", "message": "hi",
        "timestamp": "2026-01-15T10:30:00.000Z", "expires_at": "2026-01-16T10:30:00.000Z",
        "expires_in_ms": 86_400_000,
    });
    let deliver = json!({"messages": [message], "position": 7});
    talk.say(json!({"jsonrpc": "2.0", "id": 1, "method": "deliver", "params": deliver}))
        .await;
    assert_eq!(
        talk.hear().await,
        json!({"jsonrpc": "2.0", "id": 1, "result": {}})
    );
    assert_eq!(running.inbox.take_present()[0].text(), "hi");
    talk.say(json!({"jsonrpc": "2.0", "id": 3, "method": "fly"}))
        .await;
    assert_eq!(talk.hear().await["error"]["code"], -32601);
    talk.say(json!([1])).await;
    assert_eq!(talk.hear().await["error"]["code"], -32600);
    drop(talk);
    let (_talk, hello) = peer.welcome("web").await;
    assert_eq!(hello["last_delivered"], 7);
}

#[tokio::test]
async fn a_refused_version_stops_the_link_for_a_minute_and_fails_every_call() {
    let peer = Peer::listen().await;
    let running = run(vec![peer.url()]);
    let waiting = running.call("ping", json!({}));
    let mut talk = peer.connection().await;
    let hello = talk.hear().await;
    talk.refuse(&hello, Refusal::new(ErrorCode::VersionMismatch, "too old"))
        .await;
    talk.close(4002).await;
    assert_eq!(
        outcome(waiting).await.unwrap_err().code,
        ErrorCode::VersionMismatch
    );
    running.becomes(State::Failed).await;
    assert_eq!(
        outcome(running.call("ping", json!({})))
            .await
            .unwrap_err()
            .error,
        "too old"
    );
    let again = timeout(Duration::from_millis(1_500), peer.listener.accept()).await;
    assert!(
        again.is_err(),
        "dialled again at once after a refusal that is final"
    );
    tokio::time::pause();
    timeout(Duration::from_secs(67), peer.listener.accept())
        .await
        .expect("it dials again after a minute")
        .unwrap();
}

#[tokio::test]
async fn a_typed_prompt_is_reported_with_the_facts_of_the_session() {
    let peer = Peer::listen().await;
    let running = run(vec![peer.url()]);
    running.link.begin();
    let (mut talk, _) = peer.welcome("web").await;
    running.becomes(State::Connected).await;
    running.link.prompted(tokio::time::Instant::now());
    let told = talk.hear().await;
    assert_eq!(
        (&told["method"], &told["params"]["prompted"]),
        (&json!("session"), &json!(true))
    );
}

#[tokio::test]
async fn a_session_that_was_taken_over_does_not_fight() {
    let peer = Peer::listen().await;
    let running = run(vec![peer.url()]);
    let call = running.call("send_message", json!({"target": "b", "message": "hi"}));
    let (mut talk, _) = peer.welcome("web").await;
    talk.hear().await;
    talk.close(4001).await;
    let refusal = outcome(call).await.unwrap_err();
    assert_eq!(
        (refusal.code, &refusal.details["applied"]),
        (ErrorCode::Conflict, &json!("unknown"))
    );
    let (mut talk, hello) = peer.welcome("web-2").await;
    assert_eq!(hello["name"], "web");
    running.becomes(State::Connected).await;
    let call = running.call("ping", json!({}));
    let ping = talk.hear().await;
    assert_eq!(
        ping["params"]["tool"], "ping",
        "what was under way was sent again under another name"
    );
    talk.answer(&ping, json!({})).await;
    outcome(call).await.unwrap();
}

#[tokio::test]
async fn a_draining_coordinator_is_left_for_the_next_one() {
    let (one, two) = (Peer::listen().await, Peer::listen().await);
    let running = run(vec![one.url(), two.url()]);
    let call = running.call("send_message", json!({"target": "b", "message": "hi"}));
    let (mut talk, _) = one.welcome("web").await;
    let first = talk.hear().await;
    talk.say(json!({"jsonrpc": "2.0", "method": "draining"}))
        .await;
    let (mut other, _) = two.welcome("web").await;
    let second = other.hear().await;
    assert_eq!(first["params"]["call_id"], second["params"]["call_id"]);
    other.answer(&second, json!({"id": "x"})).await;
    outcome(call).await.unwrap();
}

#[tokio::test]
async fn the_second_coordinator_is_tried_where_the_first_is_away() {
    let peer = Peer::listen().await;
    let running = run(vec!["ws://127.0.0.1:1/acp".to_owned(), peer.url()]);
    running.link.begin();
    let (_talk, _) = peer.welcome("web").await;
    running.becomes(State::Connected).await;
}

#[tokio::test]
async fn a_wait_whose_time_is_up_without_a_link_has_timed_out() {
    let peer = Peer::listen().await;
    let running = run(vec![peer.url()]);
    let call = running.call("wait_for_message", json!({"timeout": 1}));
    let (mut talk, _) = peer.welcome("web").await;
    talk.hear().await;
    drop((talk, peer));
    assert_eq!(outcome(call).await.unwrap()["code"], "TIMEOUT");
}

#[tokio::test]
async fn an_abandoned_call_is_cancelled_and_forgotten() {
    let peer = Peer::listen().await;
    let running = run(vec![peer.url()]);
    let call = running.call("wait_for_message", json!({"timeout": 60}));
    let (mut talk, _) = peer.welcome("web").await;
    let request = talk.hear().await;
    call.abort();
    let cancel = talk.hear().await;
    assert_eq!(cancel["method"], "cancel");
    assert_eq!(cancel["params"]["call_id"], request["params"]["call_id"]);
}

#[tokio::test]
async fn the_end_of_the_session_is_a_goodbye() {
    let peer = Peer::listen().await;
    let running = run(vec![peer.url()]);
    running.link.begin();
    let (mut talk, _) = peer.welcome("web").await;
    running.becomes(State::Connected).await;
    running.stop.cancel();
    assert_eq!(talk.hear().await["method"], "goodbye");
}

#[tokio::test]
async fn queued_messages_are_sent_once_and_in_order() {
    let peer = Peer::listen().await;
    let url = peer.url();
    let address = peer.listener.local_addr().unwrap();
    drop(peer);
    let running = run(vec![url]);
    let send = |text: &str| json!({"target": "b", "message": text, "queue_if_down": true});
    let mut kept = Vec::new();
    for text in ["one", "two", "three"] {
        let answer = outcome(running.call("send_message", send(text)))
            .await
            .unwrap();
        assert_eq!(answer["receipt"]["stage"], "queued_on_host");
        kept.push(answer["call_id"].clone());
    }
    let peer = Peer {
        listener: TcpListener::bind(address).await.unwrap(),
    };
    let (mut talk, _) = peer.welcome("web").await;
    let first = talk.hear().await;
    // Not answered: the same one comes again, and later requests get behind the others.
    drop(talk);
    let (mut talk, _) = peer.welcome("web").await;
    running.becomes(State::Connected).await;
    let behind = outcome(running.call("send_message", send("four")))
        .await
        .unwrap();
    kept.push(behind["call_id"].clone());
    let says = behind["message"].as_str().unwrap();
    assert!(says.starts_with("Earlier messages are still"), "{says}");
    let plain = outcome(running.call("send_message", json!({"target": "b", "message": "no"})))
        .await
        .unwrap_err();
    assert_eq!(plain.code, ErrorCode::Timeout, "it would overtake");
    assert_eq!(plain.details["applied"], "no");
    let mut ids = Vec::new();
    for text in ["one", "two", "three", "four"] {
        let request = talk.hear().await;
        assert_eq!(request["params"]["arguments"]["message"], text);
        ids.push(request["params"]["call_id"].clone());
        if text == "two" {
            talk.refuse(&request, Refusal::invalid("no")).await;
        } else {
            talk.answer(&request, json!({"id": "x"})).await;
        }
    }
    assert_eq!((&first["params"]["call_id"], &ids), (&kept[0], &kept));
    let told = timeout(PATIENCE, running.inbox.take())
        .await
        .expect("the session is told of the refused one");
    assert_eq!((told.len(), told[0].from_agent.as_str()), (1, "system"));
    assert!(
        told[0].text().contains("message to b") && told[0].text().ends_with("two"),
        "{}",
        told[0].text()
    );
    let direct = running.call("send_message", send("five"));
    let request = talk.hear().await;
    talk.answer(&request, json!({"id": "direct"})).await;
    // It found the journal empty and was sent directly, or it was queued behind the last line for a moment.
    assert!(outcome(direct).await.is_ok());
}

#[tokio::test]
async fn a_send_that_cannot_be_queued_is_refused() {
    let state = tempfile::tempdir().unwrap();
    std::fs::write(
        state.path().join("journal"),
        "a file where the folder would be",
    )
    .unwrap();
    let running = run_with(vec!["ws://127.0.0.1:1/acp".to_owned()], state);
    let send = json!({"target": "b", "message": "hi", "queue_if_down": true});
    let refusal = outcome(running.call("send_message", send))
        .await
        .unwrap_err();
    assert_eq!(
        (refusal.code, &refusal.details["applied"]),
        (ErrorCode::CoordDown, &json!("no"))
    );
    assert!(
        refusal.error.contains("could not be queued on this host"),
        "{refusal}"
    );
}

#[tokio::test]
async fn the_heart_beats_as_often_as_the_coordinator_asks() {
    let peer = Peer::listen().await;
    let running = run(vec![peer.url()]);
    running.link.begin();
    let (mut talk, _) = peer.welcome_that_beats("web", 1).await;
    for online in [3, 4] {
        let began = Instant::now();
        let beat = talk.hear().await;
        assert_eq!(beat["method"], "heartbeat");
        assert!(began.elapsed() < Duration::from_secs(2));
        let timestamp = &beat["params"]["timestamp"];
        talk.answer(
            &beat,
            json!({"timestamp": timestamp, "server_time": timestamp, "agents_online": online}),
        )
        .await;
    }
    talk.hear().await;
    assert_eq!(running.link.status().borrow().agents_online, Some(4));
}

#[tokio::test]
async fn a_refused_token_stops_the_link_and_fails_waiting_and_later_calls() {
    let peer = Peer::listen().await;
    let token = serde_json::from_value(json!("hush")).unwrap();
    let running = run_as(vec![peer.url()], tempfile::tempdir().unwrap(), Some(token));
    let call = running.call("ping", json!({}));
    let (mut stream, _) = timeout(PATIENCE, peer.listener.accept())
        .await
        .expect("a connection")
        .unwrap();
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.unwrap());
    }
    assert!(
        String::from_utf8(request)
            .unwrap()
            .to_lowercase()
            .contains("authorization: bearer hush\r\n")
    );
    stream
        .write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(
        outcome(call).await.unwrap_err().code,
        ErrorCode::Unauthorized
    );
    running.becomes(State::Failed).await;
    assert_eq!(
        outcome(running.call("list_agents", json!({})))
            .await
            .unwrap_err()
            .code,
        ErrorCode::Unauthorized
    );
}

#[tokio::test]
async fn a_call_cut_off_by_a_final_refusal_may_have_been_applied() {
    let peer = Peer::listen().await;
    let running = run(vec![peer.url()]);
    let call = running.call("send_message", json!({"target": "b", "message": "hi"}));
    let (mut talk, _) = peer.welcome("web").await;
    talk.hear().await;
    drop(talk);
    let mut talk = peer.connection().await;
    let hello = talk.hear().await;
    talk.refuse(&hello, Refusal::new(ErrorCode::VersionMismatch, "too old"))
        .await;
    let refusal = outcome(call).await.unwrap_err();
    assert_eq!(
        (refusal.code, &refusal.details["applied"]),
        (ErrorCode::VersionMismatch, &json!("unknown"))
    );
}
