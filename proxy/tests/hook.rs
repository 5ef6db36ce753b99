//! The hook as a client meets it: a real process, beside a real socket, and beside everything that can be wrong with one.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio, id};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use c3po::local::protocol::{Answer, Event, Name};
use c3po::local::{self, Desk, MARK, Place};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How long a hook may take here: 200 ms are promised, and a debug build on a busy machine starts late.
const IN_TIME: Duration = Duration::from_millis(400);
/// How long something may take that has no promise of its own.
const PATIENCE: Duration = Duration::from_secs(10);

/// A desk that says the same to everybody and remembers what it was told.
#[derive(Default)]
struct Clerk {
    says: Answer,
    heard: Mutex<Vec<Event>>,
    printed: Mutex<Vec<u64>>,
    not_printed: Mutex<Vec<u64>>,
    offers: AtomicU64,
    /// Lets those go who wait.
    wakes: Notify,
    waiting: AtomicU64,
}

impl Clerk {
    fn saying(stdout: &str) -> Arc<Self> {
        Arc::new(Self { says: Answer { stdout: stdout.to_owned(), ..Answer::default() }, ..Self::default() })
    }

    fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::SeqCst)
    }
}

impl Desk for Clerk {
    async fn heard(&self, event: Event) -> Answer {
        let waits = event.name == Name::Wait;
        self.heard.lock().unwrap().push(event);
        if waits {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let _leaves = Leaves(&self.waiting);
            self.wakes.notified().await;
        }
        Answer { offer: Some(self.offers.fetch_add(1, Ordering::SeqCst)), ..self.says.clone() }
    }

    fn printed(&self, offer: u64) {
        self.printed.lock().unwrap().push(offer);
    }

    fn not_printed(&self, offer: u64) {
        self.not_printed.lock().unwrap().push(offer);
    }
}

struct Leaves<'a>(&'a AtomicU64);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A folder for sockets, and whatever listens in it.
struct Host {
    runtime: TempDir,
    stop: CancellationToken,
    serving: Vec<JoinHandle<()>>,
}

impl Host {
    fn new() -> Self {
        Self { runtime: tempfile::tempdir().unwrap(), stop: CancellationToken::new(), serving: Vec::new() }
    }

    fn folder(&self) -> PathBuf {
        self.runtime.path().join("c3po")
    }

    fn place(&self, client: u32) -> Place {
        Place::beside(client, Some(self.runtime.path())).unwrap()
    }

    /// Serves beside a client until the stop; returns when it listens.
    fn serve(&mut self, desk: &Arc<Clerk>, client: u32) -> Place {
        let place = self.start(desk, client, self.stop.clone());
        eventually("a socket", || place.path().exists());
        place
    }

    fn start(&mut self, desk: &Arc<Clerk>, client: u32, stop: CancellationToken) -> Place {
        let (desk, place) = (desk.clone(), self.place(client));
        let of_thread = place.clone();
        self.serving.push(thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(local::serve(desk, of_thread, stop));
        }));
        place
    }

    fn hook(&self, event: &str) -> Command {
        c3po(self.runtime.path(), &["hook", event])
    }

    fn run(&self, event: &str, input: &[u8]) -> Output {
        output(self.hook(event).spawn().unwrap(), input)
    }

    fn is_silent(&self, what: &str, event: &str, input: &[u8]) {
        let began = Instant::now();
        let output = self.run(event, input);
        let took = began.elapsed();
        assert!(is_nothing(&output), "{what}: {output:?}");
        assert!(took < IN_TIME, "{what}: {took:?}");
    }

    fn end(&mut self) {
        self.stop.cancel();
        for serving in self.serving.drain(..) {
            serving.join().unwrap();
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A command of the client that this test is. The client's own word keeps it from the sessions in which tests are run.
fn c3po(runtime: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_c3po"));
    command.args(arguments).env_clear().env("XDG_RUNTIME_DIR", runtime).env("NO_COLOR", "1");
    command.env("CLAUDE_PID", id().to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn output(mut child: Child, input: &[u8]) -> Output {
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A hook that ends early closes its input.
    let writing = thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    let _ = writing.join().unwrap();
    output
}

fn is_nothing(output: &Output) -> bool {
    output.status.code() == Some(0) && output.stdout.is_empty() && output.stderr.is_empty()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "still not: {what}");
        thread::yield_now();
    }
}

fn stop_input() -> Vec<u8> {
    json!({"session_id": "s", "hook_event_name": "Stop", "stop_hook_active": true}).to_string().into_bytes()
}

#[test]
fn a_hook_prints_what_the_desk_says_and_says_that_it_did() {
    let (mut host, desk) = (Host::new(), Clerk::saying("{\"decision\":\"block\"}"));
    host.serve(&desk, id());
    let mut hook = host.hook("stop");
    hook.env("CLAUDE_CODE_MESSAGING_SOCKET", "/x.sock").env("CLAUDE_CODE_MESSAGING_TOKEN", "hush");
    let output = output(hook.spawn().unwrap(), &stop_input());
    assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"{\"decision\":\"block\"}"[..], Some(0)));
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
    let says = Answer { stderr: "wake up".to_owned(), exit: 2, ..Answer::default() };
    let (mut host, desk) = (Host::new(), Arc::new(Clerk { says, ..Clerk::default() }));
    host.serve(&desk, id());
    let output = host.run("stop", &stop_input());
    assert_eq!((output.stderr.as_slice(), output.status.code()), (&b"wake up"[..], Some(2)));
    assert!(output.stdout.is_empty());
}

#[test]
fn where_nobody_answers_a_hook_is_silent() {
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

    // The kernel takes connections for one that never accepts them, until its queue is full: then connecting blocks.
    let hole = UnixListener::bind(place.path()).unwrap();
    for number in 0..3 {
        host.is_silent(&format!("a black hole, {number}"), "user-prompt-submit", &stop_input());
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
    let answers = ["", "\n", "hello\n", "{\"stdout\": 7}\n", "{\"stdout\": \"half", "\u{0}\u{1b}[2J\n", "[]\n"];
    let peer = thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut first = [0; 1];
            stream.read_exact(&mut first).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        }
        // More than a line may be long, without an end.
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
    let none = Command::new(env!("CARGO_BIN_EXE_c3po")).arg("hook").stdin(Stdio::null()).output().unwrap();
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
fn what_tools_return_is_read_whatever_its_size_and_passed_over() {
    let (mut host, desk) = (Host::new(), Clerk::saying("text"));
    let batch = |size: usize| {
        let call = json!({"tool_use_id": "toolu_1", "tool_response": "x".repeat(size)});
        json!({"session_id": "s", "tool_calls": [call]}).to_string().into_bytes()
    };
    // Without a proxy as well the client can write all of it: nobody closes the pipe on it.
    let mut child = host.hook("post-tool-batch").spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&batch(1 << 20)).unwrap();
    drop(stdin);
    assert!(is_nothing(&child.wait_with_output().unwrap()));

    host.serve(&desk, id());
    assert_eq!(host.run("post-tool-batch", &batch(1 << 20)).stdout, b"text");
    assert_eq!(desk.heard.lock().unwrap()[0].tool_use_ids, ["toolu_1"]);
    // A debug build reads that too slowly for its deadline, and is silent by that or by the size.
    host.is_silent("huge", "post-tool-batch", &batch(40 << 20));
    assert_eq!(desk.heard.lock().unwrap().len(), 1);
}

#[test]
fn what_was_not_printed_is_said_to_be_so() {
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
        host.run("user-prompt-submit", json!({"prompt": prompt}).to_string().as_bytes());
    }
    let prompts: Vec<_> = desk.heard.lock().unwrap().iter().map(|event| event.prompt.clone()).collect();
    assert_eq!(prompts, [None, Some(ours)]);
}

#[test]
fn each_session_has_its_own_proxy_and_a_nested_one_without_stays_silent() {
    let (mut host, outer, inner) = (Host::new(), Clerk::saying("outer"), Clerk::saying("inner"));
    host.serve(&outer, id());
    // A shell in between, as under Claude Code's Bash tool: another client could be started in it.
    let through = |named: &str, script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script, env!("CARGO_BIN_EXE_c3po")]).env_clear().env("XDG_RUNTIME_DIR", host.runtime.path());
        shell.env("CLAUDE_PID", named).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        shell.spawn().unwrap()
    };
    let own = id().to_string();
    // Two commands, so that no shell replaces itself by the last one.
    let child = through(&own, "\"$0\" hook stop; exit 0");
    assert_eq!(output(child, &stop_input()).stdout, b"outer");
    // The shell stands for a client that says who it is and has no proxy.
    let child = through("", "CLAUDE_PID=$$ \"$0\" hook stop; exit 0");
    assert!(is_nothing(&output(child, &stop_input())));
    // And here it has one, once it listens; what it inherited from outside does not matter.
    let mut child = through(&own, "read go; echo '{}' | \"$0\" hook stop; exit 0");
    let place = host.start(&inner, child.id(), host.stop.clone());
    eventually("a socket", || place.path().exists());
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"inner");
    assert_eq!((outer.heard.lock().unwrap().len(), inner.heard.lock().unwrap().len()), (1, 1));
}

#[test]
fn hundreds_of_events_at_once_are_all_answered() {
    let (mut host, desk) = (Host::new(), Clerk::saying("text"));
    let place = host.serve(&desk, id());
    let said: usize = thread::scope(|scope| {
        let asking = (0..20).map(|_| {
            scope.spawn(|| {
                let asked = (0..20).map(|_| local::ask(place.path(), Event::new(Name::Stop), PATIENCE));
                asked.filter(|answer| answer.as_ref().is_ok_and(|answer| answer.stdout == "text")).count()
            })
        });
        asking.collect::<Vec<_>>().into_iter().map(|asking| asking.join().unwrap()).sum()
    });
    assert_eq!((said, desk.heard.lock().unwrap().len()), (400, 400));
    // None of these was printed, and every one is said to be so, once.
    eventually("the last one", || desk.not_printed.lock().unwrap().len() == 400);
    assert!(desk.printed.lock().unwrap().is_empty());
    // Those who come and say nothing take nobody's place for long.
    let idle: Vec<_> = (0..300).filter_map(|_| std::os::unix::net::UnixStream::connect(place.path()).ok()).collect();
    eventually("room", || host.run("stop", &stop_input()).stdout == b"text");
    drop(idle);
}

#[test]
fn a_status_line_says_how_things_stand_and_nothing_where_nobody_knows() {
    let status = json!({"status": {"version": "0.1.0", "agent_id": "web", "link": "connected", "coordinator": "x",
        "state": "ready", "unread": 2, "reach": []}});
    let says = serde_json::from_value(status.clone()).unwrap();
    let (mut host, desk) = (Host::new(), Arc::new(Clerk { says, ..Clerk::default() }));
    let runtime = host.runtime.path().to_owned();
    let line = |arguments: &[&str]| {
        let mut command = c3po(&runtime, &["statusline"]);
        output(command.args(arguments).spawn().unwrap(), br#"{"session_id": "s", "model": {"id": "m"}}"#)
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
    eventually("a line", || line(&[]).stdout == "c3po web · 2 unread · connected\n".as_bytes());
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
fn a_waiter_does_not_outlive_its_client() {
    let (mut host, desk) = (Host::new(), Clerk::saying("text"));
    host.serve(&desk, id());
    let mut client = Command::new("sh")
        .args(["-c", "echo '{}' | \"$0\" hook wait; exit 0", env!("CARGO_BIN_EXE_c3po")])
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
fn what_is_left_of_others_is_swept_and_what_lives_is_not() {
    let (mut host, desk) = (Host::new(), Clerk::saying("text"));
    let mut gone = Command::new("sleep").arg("60").spawn().unwrap();
    let (stale, attended) = (host.place(gone.id()), host.folder().join("4000000-7.sock"));
    drop(UnixListener::bind(stale.path()).unwrap());
    // Its client cannot be seen from here, as in another container, but somebody listens.
    let elsewhere = UnixListener::bind(&attended).unwrap();
    let mut alive = Command::new("sleep").arg("60").spawn().unwrap();
    let crashed = host.place(alive.id());
    drop(UnixListener::bind(crashed.path()).unwrap());
    fs::write(host.folder().join("notes.txt"), "").unwrap();
    gone.kill().unwrap();
    gone.wait().unwrap();

    let own = host.serve(&desk, id());
    assert!(!stale.path().exists());
    for kept in [own.path(), &attended, crashed.path(), &host.folder().join("notes.txt")] {
        assert!(kept.exists(), "{}", kept.display());
    }
    assert_eq!(fs::metadata(own.path()).unwrap().permissions().mode() & 0o777, 0o600);
    // The place that a crashed proxy has left is taken over by the next one beside the same client.
    host.start(&desk, alive.id(), host.stop.clone());
    eventually("an answer", || {
        local::ask(crashed.path(), Event::new(Name::Stop), PATIENCE).is_ok_and(|answer| answer.stdout == "text")
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
    eventually("the second", || host.run("stop", &stop_input()).stdout == b"second");
    host.end();
    assert!(!place.path().exists());
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
