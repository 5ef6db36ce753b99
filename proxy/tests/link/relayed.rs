//! A request of the client is written to a link only while the relay is on.

use std::fs;
use std::path::Path;

use c3po_shared::catalogue::Call;
use c3po_shared::refusal::ErrorCode;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::peer::{Outcome, Peer, Running, Talk, outcome, run_with};

const ON: &str = "relay_permissions = true\n";

/// Writes `config.toml` with that coordinator and further settings.
fn writes(home: &Path, url: &str, more: &str) {
    let folder = home.join(".config/c3po");
    fs::create_dir_all(&folder).unwrap();
    let url = url.replace("ws://", "http://").replace("/acp", "");
    let text = format!("coordinator_url = \"{url}\"\n{more}");
    fs::write(folder.join("config.toml"), text).unwrap();
}

/// Starts the link of a session whose relay is on.
fn relays(peer: &Peer) -> Running {
    let home = tempfile::tempdir().unwrap();
    writes(home.path(), &peer.url(), ON);
    run_with(vec![peer.url()], home)
}

fn asks(running: &Running) -> JoinHandle<Outcome> {
    let part = json!({"id": "1", "text": "make", "allow_text": true});
    let request = json!({"tool": "Bash", "input": "{}"});
    let question = json!({"kind": "permission", "parts": [part], "request": request});
    let call = json!({"message": "make", "question": question});
    let call = Call::RequestPermission(serde_json::from_value(call).unwrap());
    let link = running.link.clone();
    running
        .tasks
        .spawn(async move { link.call(call).await.map(|reply| reply.into_value()) })
}

/// Checks that a ping is the next call on the link.
async fn hears_only_a_ping(running: &Running, talk: &mut Talk) {
    let ping = running.call("ping", json!({}));
    let heard = talk.hear().await;
    assert_eq!(tool(&heard), "ping");
    talk.answer(&heard, json!({})).await;
    outcome(ping).await.unwrap();
}

fn tool(frame: &Value) -> &Value {
    &frame["params"]["tool"]
}

#[tokio::test]
async fn a_request_of_the_client_is_not_written_again_after_the_relay_was_turned_off() {
    let peer = Peer::listen().await;
    let running = relays(&peer);
    let asked = asks(&running);
    let (mut talk, _) = peer.welcome("web").await;
    assert_eq!(tool(&talk.hear().await), "request_permission");
    drop(talk);
    writes(running.state.path(), &peer.url(), "");
    let (mut talk, _) = peer.welcome("web").await;
    let refusal = outcome(asked).await.unwrap_err();
    assert_eq!(
        (refusal.code, &refusal.details["applied"]),
        (ErrorCode::Forbidden, &json!("unknown"))
    );
    hears_only_a_ping(&running, &mut talk).await;
}

#[tokio::test]
async fn a_request_of_the_client_is_not_written_to_a_coordinator_that_the_file_does_not_name() {
    let peer = Peer::listen().await;
    let running = relays(&peer);
    running.link.begin();
    let (mut talk, _) = peer.welcome("web").await;
    writes(running.state.path(), "ws://127.0.0.1:9/acp", ON);
    let refusal = outcome(asks(&running)).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::Forbidden);
    hears_only_a_ping(&running, &mut talk).await;
    writes(running.state.path(), &peer.url(), ON);
    let asked = asks(&running);
    let heard = talk.hear().await;
    assert_eq!(tool(&heard), "request_permission");
    talk.answer(&heard, json!({})).await;
    outcome(asked).await.unwrap();
}
