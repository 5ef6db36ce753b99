//! A request of the client is written to a link only while the relay is on, and to the coordinators that had the relay when it was
//! asked.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use c3po::config::Coordinators;
use c3po_shared::catalogue::RequestPermission;
use c3po_shared::ids::CallId;
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

/// Asks people as the hook of a client does.
async fn asks(running: &Running) -> JoinHandle<Outcome> {
    let to = running.link.relays().await.unwrap();
    asks_those(running, to)
}

/// Asks people of those coordinators.
fn asks_those(running: &Running, to: Arc<Coordinators>) -> JoinHandle<Outcome> {
    let part = json!({"id": "1", "text": "make", "allow_text": true});
    let request = json!({"tool": "Bash", "input": "{}"});
    let question = json!({"kind": "permission", "parts": [part], "request": request});
    let request = json!({"message": "make", "question": question});
    let request: RequestPermission = serde_json::from_value(request).unwrap();
    let link = running.link.clone();
    running.tasks.spawn(async move {
        let reply = link.relay_until_done(CallId::fresh(), request, &to).await;
        reply.map(|reply| reply.into_value())
    })
}

/// Checks that the request of the client is the next call on the link, and answers it.
async fn hears_the_request(asked: JoinHandle<Outcome>, talk: &mut Talk) {
    let heard = talk.hear().await;
    assert_eq!(tool(&heard), "request_permission");
    talk.answer(&heard, json!({})).await;
    outcome(asked).await.unwrap();
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
async fn a_request_of_the_client_is_not_written_again_while_the_relay_is_off() {
    let peer = Peer::listen().await;
    let running = relays(&peer);
    let asked = asks(&running).await;
    let (mut talk, _) = peer.welcome("web").await;
    assert_eq!(tool(&talk.hear().await), "request_permission");
    drop(talk);
    writes(running.state.path(), &peer.url(), "");
    let (mut talk, _) = peer.welcome("web").await;
    hears_only_a_ping(&running, &mut talk).await;
    // The file was only replaced.
    writes(running.state.path(), &peer.url(), ON);
    hears_the_request(asked, &mut talk).await;
}

#[tokio::test]
async fn a_request_of_the_client_is_not_written_to_a_coordinator_that_the_file_does_not_name() {
    let peer = Peer::listen().await;
    let running = relays(&peer);
    running.link.begin();
    let (mut talk, _) = peer.welcome("web").await;
    let to = running.link.relays().await.unwrap();
    writes(running.state.path(), "ws://127.0.0.1:9/acp", ON);
    assert!(running.link.relays().await.is_none());
    let asked = asks_those(&running, to);
    hears_only_a_ping(&running, &mut talk).await;
    writes(running.state.path(), &peer.url(), ON);
    hears_the_request(asked, &mut talk).await;
}

/// Checks that a request for the first coordinator does not go to another one, after the file names those URLs, and that later
/// requests do.
async fn goes_to_no_other(named: impl Fn(&Peer, &Peer) -> String) {
    let (peer, other) = (Peer::listen().await, Peer::listen().await);
    let running = relays(&peer);
    let to = running.link.relays().await.unwrap();
    let asked = asks(&running).await;
    let (mut talk, _) = peer.welcome("web").await;
    assert_eq!(tool(&talk.hear().await), "request_permission");
    assert!(running.link.is_to(&to));
    drop(talk);
    writes(running.state.path(), &named(&peer, &other), ON);
    let (mut talk, _) = other.welcome("web").await;
    hears_only_a_ping(&running, &mut talk).await;
    assert!(!running.link.is_to(&to), "its verdicts do not count");
    hears_the_request(asks(&running).await, &mut talk).await;
    assert!(!asked.is_finished());
}

#[tokio::test]
async fn a_request_of_the_client_never_goes_to_other_coordinators_than_those_that_it_was_for() {
    goes_to_no_other(|_, other| other.url()).await;
}

#[tokio::test]
async fn a_request_of_the_client_never_goes_to_a_coordinator_that_was_added_later() {
    // The one that is tried second after a lost connection is the other one.
    goes_to_no_other(|peer, other| format!("{},{}", peer.url(), other.url())).await;
}
