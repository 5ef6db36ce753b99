//! The proxy that a hook finds, and proxies that compete for sockets.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio, id};

use c3po::config::Sockets;
use c3po::local::protocol::{Event, Name};
use c3po::local::{self};
use tokio_util::sync::CancellationToken;

use crate::host::{Clerk, Host, PATIENCE, c3po, eventually, is_nothing, output, stop_input};

#[test]
fn each_session_has_its_own_proxy_and_a_nested_one_without_stays_silent() {
    let (mut host, outer, inner) = (Host::new(), Clerk::saying("outer"), Clerk::saying("inner"));
    host.serve(&outer, id());
    // A shell in between, as in Claude Code's Bash tool, in which another client could be started.
    let through = |named: &str, script: &str| {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", script, env!("CARGO_BIN_EXE_c3po")])
            .env_clear()
            .env("XDG_RUNTIME_DIR", host.runtime.path());
        shell
            .env("CLAUDE_PID", named)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        shell.spawn().unwrap()
    };
    let own = id().to_string();
    // Two commands, so that the shell does not replace itself by the last one.
    let child = through(&own, "\"$0\" hook stop; exit 0");
    assert_eq!(output(child, &stop_input()).stdout, b"outer");
    // The shell acts as a client that names its pid and has no proxy.
    let child = through("", "CLAUDE_PID=$$ \"$0\" hook stop; exit 0");
    assert!(is_nothing(&output(child, &stop_input())));
    // And here it has one, once that listens; inherited variables do not matter.
    let mut child = through(&own, "read go; echo '{}' | \"$0\" hook stop; exit 0");
    let place = host.start(&inner, child.id(), host.stop.clone());
    eventually("a socket", || place.path().exists());
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"inner");
    assert_eq!(
        (
            outer.heard.lock().unwrap().len(),
            inner.heard.lock().unwrap().len()
        ),
        (1, 1)
    );
}

#[test]
fn stale_sockets_are_removed_and_live_ones_stay() {
    let (mut host, desk) = (Host::new(), Clerk::saying("text"));
    let mut gone = Command::new("sleep").arg("60").spawn().unwrap();
    let (stale, attended) = (host.place(gone.id()), host.folder().join("4000000-7.sock"));
    drop(UnixListener::bind(stale.path()).unwrap());
    // Its client is not visible from here, as in another container, but a process listens.
    let elsewhere = UnixListener::bind(&attended).unwrap();
    let mut alive = Command::new("sleep").arg("60").spawn().unwrap();
    let crashed = host.place(alive.id());
    drop(UnixListener::bind(crashed.path()).unwrap());
    fs::write(host.folder().join("notes.txt"), "").unwrap();
    gone.kill().unwrap();
    gone.wait().unwrap();

    let own = host.serve(&desk, id());
    assert!(!stale.path().exists());
    for kept in [
        own.path(),
        &attended,
        crashed.path(),
        &host.folder().join("notes.txt"),
    ] {
        assert!(kept.exists(), "{}", kept.display());
    }
    // Its folder is private from the start.
    let mode = || fs::metadata(own.path()).unwrap().permissions().mode() & 0o777;
    eventually("a private socket", || mode() == 0o600);
    // The next proxy beside the same client takes over the socket of a crashed one.
    host.start(&desk, alive.id(), host.stop.clone());
    eventually("an answer", || {
        local::ask(&[crashed.path()], Event::new(Name::Stop), PATIENCE)
            .is_ok_and(|answer| answer.stdout == "text")
    });
    drop(elsewhere);
    alive.kill().unwrap();
    alive.wait().unwrap();
}

#[test]
fn a_second_proxy_beside_a_client_takes_over_when_the_first_ends() {
    let (mut host, first, second) = (Host::new(), Clerk::saying("first"), Clerk::saying("second"));
    let stop_first = CancellationToken::new();
    let place = host.start(&first, id(), stop_first.clone());
    eventually("a socket", || place.path().exists());
    host.start(&second, id(), host.stop.clone());
    assert_eq!(host.run("stop", &stop_input()).stdout, b"first");
    stop_first.cancel();
    eventually("the second", || {
        host.run("stop", &stop_input()).stdout == b"second"
    });
    host.end();
    assert!(!place.path().exists());
}

#[test]
fn a_proxy_whose_socket_was_removed_makes_another() {
    let (mut host, desk) = (Host::new(), Clerk::saying("text"));
    let place = host.serve(&desk, id());
    let answers = |host: &Host| host.run("stop", &stop_input()).stdout == b"text";
    fs::remove_file(place.path()).unwrap();
    eventually("an answer without the file", || answers(&host));
    // As at the end of the user's last login.
    fs::remove_dir_all(host.folder()).unwrap();
    eventually("an answer without the folder", || answers(&host));
    // A second proxy, which waits, survives that too.
    let (stop_third, third) = (CancellationToken::new(), Clerk::saying("third"));
    host.start(&third, id(), stop_third);
    // Nothing shows that it waits.
    std::thread::sleep(std::time::Duration::from_secs(1));
    fs::remove_dir_all(host.folder()).unwrap();
    eventually("an answer of either", || {
        !host.run("stop", &stop_input()).stdout.is_empty()
    });
    host.stop.cancel();
    eventually("the third", || {
        host.run("stop", &stop_input()).stdout == b"third"
    });
}

#[test]
fn a_proxy_that_cannot_listen_goes_on_without() {
    let (mut host, desk) = (Host::new(), Clerk::saying("text"));
    let place = host.place(id());
    fs::create_dir(place.path()).unwrap();
    host.start(&desk, id(), host.stop.clone());
    let serving = host.serving.pop().unwrap();
    serving.join().unwrap();
    host.is_silent("a folder for a socket", "stop", &stop_input());
    assert!(Path::new(place.path()).is_dir());
}

#[test]
fn a_socket_without_a_listener_hides_none_in_another_folder() {
    let (mut host, desk) = (Host::new(), Clerk::saying("text"));
    let dead = host.place(id());
    drop(UnixListener::bind(dead.path()).unwrap());
    // It was started with fewer variables than its hooks.
    let stop = host.stop.clone();
    let place = host.start_in(Sockets::default(), &desk, id(), stop);
    eventually("a socket", || place.path().exists());
    eventually("an answer", || {
        host.run("stop", &stop_input()).stdout == b"text"
    });
    let mut doctor = c3po(host.runtime.path(), &["doctor"]);
    let home = host.runtime.path();
    doctor
        .env("HOME", home)
        .env("C3PO_COORDINATOR_URL", "http://127.0.0.1:1");
    let said = output(doctor.spawn().unwrap(), b"").stdout;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("does not report its status"), "{said}");
    assert!(!said.contains("has ended"), "{said}");
    host.end();
}

#[test]
fn a_lock_on_the_folder_keeps_no_session_without_a_socket() {
    let (mut host, first) = (Host::new(), Clerk::saying("first"));
    let place = host.place(id());
    let lock = File::open(host.folder()).unwrap();
    lock.lock().unwrap();
    let stop_first = CancellationToken::new();
    host.start(&first, id(), stop_first.clone());
    let answers = |host: &Host, text: &[u8]| host.run("stop", &stop_input()).stdout == text;
    eventually("an answer", || answers(&host, b"first"));
    assert!(!place.path().exists());
    drop(lock);
    // A second one waits, though this folder is free again.
    host.start(&Clerk::saying("second"), id(), host.stop.clone());
    // Nothing shows that it waits.
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(answers(&host, b"first"));
    stop_first.cancel();
    eventually("the second", || answers(&host, b"second"));
    host.end();
}
