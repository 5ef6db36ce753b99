//! A session that takes another name by `register_agent`: its seat and its log of shown messages follow.

use std::fs::File;
use std::path::PathBuf;

use c3po::link::State;
use c3po_shared::ids::MessageId;
use serde_json::json;

use super::peer::{Peer, Running, Talk, outcome, run, run_with};

#[tokio::test]
async fn another_name_by_register_agent_is_kept() {
    let peer = Peer::listen().await;
    let running = run(vec![peer.url()]);
    running.link.begin();
    let (mut talk, _) = peer.welcome("web").await;
    becomes(&running, &mut talk, "shop").await;
    drop(talk);
    let (_talk, hello) = peer.welcome("shop").await;
    assert_eq!(hello["name"], "shop");
}

#[tokio::test]
async fn shown_messages_are_noted_in_the_log_of_the_present_name() {
    let peer = Peer::listen().await;
    let running = run(vec![peer.url()]);
    running.link.begin();
    let (mut talk, _) = peer.welcome("web").await;
    let ids: Vec<MessageId> = ["a::shop::00000001", "a::web::00000002"]
        .map(|id| id.parse().unwrap())
        .to_vec();
    becomes(&running, &mut talk, "shop").await;
    running.link.about_to_show(&ids[..1]);
    becomes(&running, &mut talk, "web").await;
    running.link.about_to_show(&ids[1..]);
    let log = |name: &str| {
        std::fs::read_to_string(seat_of(&running, name).with_added_extension("shown")).unwrap()
    };
    assert_eq!(log("shop"), format!("{}\n", ids[0]));
    assert_eq!(log("web"), format!("{}\n", ids[1]));
}

#[tokio::test]
async fn a_session_learns_which_messages_the_dead_ones_of_its_new_name_were_shown() {
    let state = tempfile::tempdir().unwrap();
    std::fs::create_dir(state.path().join("seats")).unwrap();
    std::fs::write(
        state.path().join("seats/shop@nas2.shown"),
        "a::shop::00000001\n",
    )
    .unwrap();
    let peer = Peer::listen().await;
    let running = run_with(vec![peer.url()], state);
    running.link.begin();
    let (mut talk, _) = peer.welcome("web").await;
    becomes(&running, &mut talk, "shop").await;
    let ids = ["a::shop::00000001", "a::shop::00000002"].map(|id| id.parse().unwrap());
    assert_eq!(running.link.about_to_show(&ids), ids[..1]);
}

#[tokio::test]
async fn a_session_with_another_name_leaves_its_seat_to_others() {
    let peer = Peer::listen().await;
    let running = run(vec![peer.url()]);
    running.link.begin();
    let (mut talk, _) = peer.welcome("web").await;
    becomes(&running, &mut talk, "shop").await;
    let is_free =
        |name: &str| File::open(seat_of(&running, name)).is_ok_and(|file| file.try_lock().is_ok());
    assert!(is_free("web") && !is_free("shop"));
    drop(talk);
    let (_talk, hello) = peer.welcome("shop").await;
    assert_eq!(hello["succeeds"], json!(null), "no process has died");
}

#[tokio::test]
async fn a_session_without_a_seat_has_the_log_of_its_name() {
    let state = tempfile::tempdir().unwrap();
    let seats = state.path().join("seats");
    std::fs::create_dir(&seats).unwrap();
    std::fs::write(seats.join("web@nas2.shown"), "a::web::00000001\n").unwrap();
    // As that of a process that was stopped for longer than its lease.
    let held = File::create(seats.join("web@nas2")).unwrap();
    held.try_lock().unwrap();
    let peer = Peer::listen().await;
    let running = run_with(vec![peer.url()], state);
    running.link.begin();
    let (_talk, _) = peer.welcome("web").await;
    running.becomes(State::Connected).await;
    let ids = ["a::web::00000001", "a::web::00000002"].map(|id| id.parse().unwrap());
    assert_eq!(running.link.about_to_show(&ids), ids[..1]);
    let log = std::fs::read_to_string(seats.join("web@nas2.shown")).unwrap();
    assert_eq!(log, format!("{}\n{}\n", ids[0], ids[1]));
}

/// Makes the session take that name.
async fn becomes(running: &Running, talk: &mut Talk, name: &'static str) {
    let call = running.call("register_agent", json!({"name": name}));
    let request = talk.hear().await;
    let record = json!({
        "id": name, "uid": "0191e6b0-0000-7000-8000-000000000001", "status": "online", "state": "ready",
        "registered_at": "2026-01-15T10:30:00.000Z", "last_seen": "2026-01-15T10:30:00.000Z",
    });
    talk.answer(&request, record).await;
    outcome(call).await.unwrap();
}

fn seat_of(running: &Running, name: &str) -> PathBuf {
    running
        .state
        .path()
        .join("seats")
        .join(format!("{name}@nas2"))
}
