//! The reports, output and confirmations of hooks.

use std::fs::{self};
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio, id};
use std::sync::Arc;
use std::thread;

use c3po::local::protocol::{Answer, Event, Name};
use c3po::local::{self, MARK};
use serde_json::json;

use crate::host::{Clerk, Host, PATIENCE, c3po, eventually, is_nothing, output, stop_input};

#[test]
fn a_hook_prints_the_answer_of_the_desk_and_reports_that() {
    let (mut host, desk) = (Host::new(), Clerk::saying("{\"decision\":\"block\"}"));
    host.serve(&desk, id());
    let mut hook = host.hook("stop");
    hook.env("CLAUDE_CODE_MESSAGING_SOCKET", "/x.sock")
        .env("CLAUDE_CODE_MESSAGING_TOKEN", "hush");
    let output = output(hook.spawn().unwrap(), &stop_input());
    assert_eq!(
        (output.stdout.as_slice(), output.status.code()),
        (&b"{\"decision\":\"block\"}"[..], Some(0))
    );
    assert!(output.stderr.is_empty());
    eventually("printed", || *desk.printed.lock().unwrap() == [0]);
    let heard = desk.heard.lock().unwrap();
    let expected = Event {
        session_id: Some("s".to_owned()),
        stop_hook_active: true,
        messaging_socket: Some("/x.sock".to_owned()),
        messaging_token: Some("hush".to_owned()),
        ..Event::new(Name::Stop)
    };
    assert_eq!(*heard, [expected]);
    assert!(!format!("{heard:?}").contains("hush"));
    assert!(desk.not_printed.lock().unwrap().is_empty());
}

#[test]
fn an_answer_can_be_an_exit_code_and_a_text_on_standard_error() {
    let says = Answer {
        stderr: "wake up".to_owned(),
        exit: 2,
        ..Answer::default()
    };
    let (mut host, desk) = (
        Host::new(),
        Arc::new(Clerk {
            says,
            ..Clerk::default()
        }),
    );
    host.serve(&desk, id());
    let output = host.run("stop", &stop_input());
    assert_eq!(
        (output.stderr.as_slice(), output.status.code()),
        (&b"wake up"[..], Some(2))
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn a_hook_reports_an_answer_that_it_could_not_print() {
    let (mut host, desk) = (Host::new(), Clerk::saying("text"));
    host.serve(&desk, id());
    let mut hook = host.hook("stop");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    hook.stdout(writer);
    let output = output(hook.spawn().unwrap(), &stop_input());
    assert!(is_nothing(&output), "{output:?}");
    eventually("not printed", || *desk.not_printed.lock().unwrap() == [0]);
    assert!(desk.printed.lock().unwrap().is_empty());
}

#[test]
fn prompts_of_people_do_not_leave_the_hook() {
    let (mut host, desk) = (Host::new(), Clerk::saying(""));
    host.serve(&desk, id());
    let ours = format!("{MARK} 1 message for web\n> hi");
    for prompt in ["my password is hush", &ours] {
        host.run(
            "user-prompt-submit",
            json!({"prompt": prompt}).to_string().as_bytes(),
        );
    }
    let prompts: Vec<_> = desk
        .heard
        .lock()
        .unwrap()
        .iter()
        .map(|event| event.prompt.clone())
        .collect();
    assert_eq!(prompts, [None, Some(ours)]);
    let typed: Vec<_> = desk
        .heard
        .lock()
        .unwrap()
        .iter()
        .map(|event| event.typed)
        .collect();
    assert_eq!(typed, [true, false]);
}

#[test]
fn hundreds_of_events_at_once_are_all_answered() {
    let (mut host, desk) = (Host::new(), Clerk::saying("text"));
    let place = host.serve(&desk, id());
    let said: usize = thread::scope(|scope| {
        let asking = (0..20).map(|_| {
            scope.spawn(|| {
                let asked =
                    (0..20).map(|_| local::ask(&[place.path()], Event::new(Name::Stop), PATIENCE));
                asked
                    .filter(|answer| answer.as_ref().is_ok_and(|answer| answer.stdout == "text"))
                    .count()
            })
        });
        asking
            .collect::<Vec<_>>()
            .into_iter()
            .map(|asking| asking.join().unwrap())
            .sum()
    });
    assert_eq!((said, desk.heard.lock().unwrap().len()), (400, 400));
    // None of these was printed, and each is reported as such, once.
    eventually("the last one", || {
        desk.not_printed.lock().unwrap().len() == 400
    });
    assert!(desk.printed.lock().unwrap().is_empty());
    // Silent connections do not keep others out for long.
    let idle: Vec<_> = (0..300)
        .filter_map(|_| std::os::unix::net::UnixStream::connect(place.path()).ok())
        .collect();
    eventually("room", || host.run("stop", &stop_input()).stdout == b"text");
    drop(idle);
}

#[test]
fn a_status_line_shows_the_status_and_is_empty_without_a_proxy() {
    let status = json!({"status": {"version": "0.1.0", "agent_id": "web", "link": "connected", "coordinator": "x",
        "state": "ready", "unread": 2, "reach": []}});
    let says = serde_json::from_value(status.clone()).unwrap();
    let (mut host, desk) = (
        Host::new(),
        Arc::new(Clerk {
            says,
            ..Clerk::default()
        }),
    );
    let runtime = host.runtime.path().to_owned();
    let line = |arguments: &[&str]| {
        let mut command = c3po(&runtime, &["statusline"]);
        output(
            command.args(arguments).spawn().unwrap(),
            br#"{"session_id": "s", "model": {"id": "m"}}"#,
        )
    };
    assert!(is_nothing(&line(&[])));
    drop(UnixListener::bind(host.place(id()).path()).unwrap());
    assert!(is_nothing(&line(&[])));
    let place = host.place(id());
    fs::remove_file(place.path()).unwrap();
    let hole = UnixListener::bind(place.path()).unwrap();
    assert!(is_nothing(&line(&[])));
    drop(hole);
    host.serve(&desk, id());
    eventually("a line", || {
        line(&[]).stdout == "c3po web · 2 unread · connected\n".as_bytes()
    });
    let document: serde_json::Value = serde_json::from_slice(&line(&["--json"]).stdout).unwrap();
    assert_eq!(document, status["status"]);
}

#[test]
fn a_waiter_waits_until_it_is_woken_or_the_proxy_ends() {
    let (mut host, desk) = (Host::new(), Clerk::saying("text"));
    let place = host.serve(&desk, id());
    let wait = || {
        let mut child = host.hook("wait").spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"{}").unwrap();
        child
    };
    let mut killed = wait();
    eventually("one", || desk.waiting() == 1);
    killed.kill().unwrap();
    killed.wait().unwrap();
    eventually("none", || desk.waiting() == 0);

    let woken = wait();
    eventually("another one", || desk.waiting() == 1);
    desk.wakes.notify_one();
    assert_eq!(woken.wait_with_output().unwrap().stdout, b"text");
    eventually("printed", || desk.printed.lock().unwrap().len() == 1);

    let last = wait();
    eventually("a last one", || desk.waiting() == 1);
    host.end();
    assert!(is_nothing(&last.wait_with_output().unwrap()));
    assert_eq!(desk.waiting(), 0);
    assert!(!place.path().exists());
}

#[test]
fn a_waiter_that_was_started_before_its_proxy_finds_it() {
    let (mut host, desk) = (Host::new(), Clerk::saying("text"));
    let mut waiter = host.hook("wait").arg("session-start").spawn().unwrap();
    waiter.stdin.take().unwrap().write_all(b"{}").unwrap();
    // A hook without `session-start` does not wait; when it ends, this one has looked and found no proxy.
    host.is_silent("no proxy", "wait", b"{}");
    host.serve(&desk, id());
    eventually("a waiter", || desk.waiting() == 1);
    desk.wakes.notify_one();
    assert_eq!(waiter.wait_with_output().unwrap().stdout, b"text");
}

#[test]
fn a_waiter_does_not_outlive_its_client() {
    let (mut host, desk) = (Host::new(), Clerk::saying("text"));
    host.serve(&desk, id());
    let mut client = Command::new("sh")
        .args([
            "-c",
            "echo '{}' | \"$0\" hook wait; exit 0",
            env!("CARGO_BIN_EXE_c3po"),
        ])
        .env("XDG_RUNTIME_DIR", host.runtime.path())
        .env("CLAUDE_PID", id().to_string())
        .spawn()
        .unwrap();
    eventually("a waiter", || desk.waiting() == 1);
    client.kill().unwrap();
    client.wait().unwrap();
    eventually("its end", || desk.waiting() == 0);
}

#[test]
fn a_waiter_whose_parent_ended_before_its_first_instruction_ends_at_once() {
    let (mut host, desk) = (Host::new(), Clerk::saying("text"));
    host.serve(&desk, id());
    // The shell ends; its orphan becomes the waiter a moment later, below the process that adopts orphans.
    let script =
        "exec 3<&0; (while kill -0 $$ 2>/dev/null; do :; done; exec \"$0\" hook wait <&3) & exit 0";
    let mut parent = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_c3po")])
        .env("XDG_RUNTIME_DIR", host.runtime.path())
        .env("CLAUDE_PID", id().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = parent.stdin.take().unwrap();
    parent.wait().unwrap();
    input.write_all(b"{}").unwrap();
    drop(input);
    let (sender, ended) = std::sync::mpsc::channel();
    let mut output = parent.stdout.take().unwrap();
    // Ends with the waiter, which holds the other end.
    thread::spawn(move || sender.send(output.read_to_end(&mut Vec::new())));
    assert!(ended.recv_timeout(PATIENCE).is_ok(), "it waits for nobody");
    assert_eq!(desk.waiting(), 0);
}

#[test]
fn a_waiter_whose_client_ended_leaves_also_an_input_that_goes_on() {
    let (mut host, desk) = (Host::new(), Clerk::saying("text"));
    host.serve(&desk, id());
    let mut client = Command::new("sh")
        .args([
            "-c",
            "exec 3<&0; \"$0\" hook wait <&3 & wait",
            env!("CARGO_BIN_EXE_c3po"),
        ])
        .env("XDG_RUNTIME_DIR", host.runtime.path())
        .env("CLAUDE_PID", id().to_string())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = client.stdin.take().unwrap();
    // More than a pipe holds, so writing ends only when the waiter reads.
    input.write_all(&vec![b' '; 1 << 20]).unwrap();
    client.kill().unwrap();
    client.wait().unwrap();
    // Only the waiter reads it.
    eventually("its end", || input.write_all(b" ").is_err());
    assert_eq!(desk.waiting(), 0);
}
