//! If anything is wrong, a hook prints nothing and ends in time: the session goes on as if c3po were not there.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio, id};
use std::thread;
use std::time::Instant;

use c3po::local::protocol::{Event, Name};
use c3po::local::{self};
use serde_json::json;

use crate::host::{Clerk, Host, IN_TIME, PATIENCE, c3po, eventually, is_nothing, stop_input};

#[test]
fn a_hook_without_an_answering_proxy_is_silent() {
    let host = Host::new();
    host.is_silent("no folder", "stop", &stop_input());
    host.is_silent("no folder, no input", "session-start", b"");

    let place = host.place(id());
    host.is_silent("no socket", "stop", &stop_input());

    fs::write(place.path(), "no socket").unwrap();
    host.is_silent("a file", "stop", &stop_input());
    fs::remove_file(place.path()).unwrap();

    drop(UnixListener::bind(place.path()).unwrap());
    host.is_silent("nobody listens", "stop", &stop_input());
    fs::remove_file(place.path()).unwrap();

    // The kernel accepts connections for a listener that never does, until its backlog is full: then `connect` blocks.
    let hole = UnixListener::bind(place.path()).unwrap();
    for number in 0..3 {
        host.is_silent(
            &format!("a black hole, {number}"),
            "user-prompt-submit",
            &stop_input(),
        );
    }
    drop(hole);

    let mode = |mode| fs::set_permissions(host.folder(), Permissions::from_mode(mode)).unwrap();
    mode(0o000);
    host.is_silent("an unreadable folder", "stop", &stop_input());
    mode(0o700);
    fs::remove_file(place.path()).unwrap();
}

#[test]
fn a_folder_in_which_others_may_put_sockets_is_not_used() {
    let (mut host, desk) = (Host::new(), Clerk::saying("text"));
    host.serve(&desk, id());
    for mode in [0o770, 0o707, 0o710] {
        fs::set_permissions(host.folder(), Permissions::from_mode(mode)).unwrap();
        host.is_silent(&format!("mode {mode:o}"), "stop", &stop_input());
    }
    fs::set_permissions(host.folder(), Permissions::from_mode(0o700)).unwrap();
    assert_eq!(host.run("stop", &stop_input()).stdout, b"text");
}

#[test]
fn an_answer_that_is_none_is_not_printed() {
    let host = Host::new();
    let place = host.place(id());
    let listener = UnixListener::bind(place.path()).unwrap();
    let answers = [
        "",
        "\n",
        "hello\n",
        "{\"stdout\": 7}\n",
        "{\"stdout\": \"half",
        "\u{0}\u{1b}[2J\n",
        "[]\n",
    ];
    let peer = thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut first = [0; 1];
            stream.read_exact(&mut first).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        }
        // Longer than the longest line, without an end.
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(&vec![b'{'; 8 << 20]);
    });
    for answer in answers {
        host.is_silent(answer, "stop", &stop_input());
    }
    host.is_silent("endless", "stop", &stop_input());
    peer.join().unwrap();
}

#[test]
fn input_that_is_none_is_not_passed_on() {
    let (mut host, desk) = (Host::new(), Clerk::saying("text"));
    host.serve(&desk, id());
    for input in ["", "{", "null", "hello", "{\"session_id\": 7}", "\u{0}"] {
        host.is_silent(input, "stop", input.as_bytes());
    }
    host.is_silent("bytes", "stop", &[0xff, 0xfe]);
    host.is_silent("an unknown event", "fly", &stop_input());
    host.is_silent("a command that is no hook", "status", &stop_input());
    let none = Command::new(env!("CARGO_BIN_EXE_c3po"))
        .arg("hook")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(is_nothing(&none), "{none:?}");
    assert!(desk.heard.lock().unwrap().is_empty());
}

#[test]
fn input_that_does_not_end_is_left() {
    let (mut host, desk) = (Host::new(), Clerk::saying("text"));
    for what in ["no proxy", "a proxy"] {
        let began = Instant::now();
        let mut child = host.hook("stop").spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&stop_input()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(is_nothing(&output), "{what}: {output:?}");
        assert!(began.elapsed() < IN_TIME, "{what}: {:?}", began.elapsed());
        drop(stdin);
        host.serve(&desk, id());
    }
    assert!(desk.heard.lock().unwrap().is_empty());
}

#[test]
fn results_of_any_size_are_read_and_skipped() {
    let (mut host, desk) = (Host::new(), Clerk::saying("text"));
    let batch = |size: usize| {
        let call = json!({"tool_use_id": "toolu_1", "tool_response": "x".repeat(size)});
        json!({"session_id": "s", "tool_calls": [call]})
            .to_string()
            .into_bytes()
    };
    // Without a proxy too, the client can write all of its input: the pipe stays open.
    let mut child = host.hook("post-tool-batch").spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&batch(1 << 20)).unwrap();
    drop(stdin);
    assert!(is_nothing(&child.wait_with_output().unwrap()));

    host.serve(&desk, id());
    assert_eq!(host.run("post-tool-batch", &batch(1 << 20)).stdout, b"text");
    assert_eq!(desk.heard.lock().unwrap()[0].tool_use_ids, ["toolu_1"]);
    // A debug build reads this too slowly for its deadline, so it is silent because of the time or of the size.
    host.is_silent("huge", "post-tool-batch", &batch(40 << 20));
    assert_eq!(desk.heard.lock().unwrap().len(), 1);
}

#[test]
fn a_proxy_that_was_stopped_or_killed_is_as_none() {
    let host = Host::new();
    let mut command = c3po(host.runtime.path(), &["proxy"]);
    command
        .env("HOME", host.runtime.path())
        .env("C3PO_COORDINATOR_URL", "http://127.0.0.1:1");
    let mut proxy = command.spawn().unwrap();
    let place = host.place(id());
    let answers = || {
        local::ask(&[place.path()], Event::new(Name::Status), PATIENCE)
            .is_ok_and(|a| a.status.is_some())
    };
    eventually("a proxy that answers", answers);
    let signal = |name| {
        let sent = Command::new("kill")
            .args(["-s", name, &proxy.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
    };
    signal("STOP");
    host.is_silent("stopped", "stop", &stop_input());
    signal("CONT");
    eventually("a proxy that answers again", answers);
    proxy.kill().unwrap();
    proxy.wait().unwrap();
    assert!(place.path().exists());
    host.is_silent("killed", "stop", &stop_input());
}
