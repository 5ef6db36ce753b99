//! Questions to people: from a dialog of a client to the question, from a verdict to its hook, from an answer to `ask_user`,
//! and from a question to its push.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use harness::coordinator::Coordinator;
use harness::http;
use harness::ntfy::{COORDINATOR, Ntfy, QUESTIONS};
use harness::person::Person;
use harness::process::program;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::hooks;
use super::measure::{Server, Times};
use super::report::{Goal, Report};

/// How often each figure is taken.
const ROUNDS: usize = 100;
/// The same for pushes: a person gets ten in five minutes.
const PUSHES: usize = 9;
/// How long one step of a round may take.
const STEP: Duration = Duration::from_secs(10);

/// Measures questions on coordinators with the embedded store.
pub(crate) fn all(runtime: &Runtime, report: &mut Report) -> Result<()> {
    let rounds = report.rounds(ROUNDS);
    let mut scene = Scene::start(runtime, None)?;
    scene.verdicts(rounds, report)?;
    scene.answers(rounds, report)?;
    match runtime.block_on(Ntfy::start()) {
        Ok(ntfy) => Scene::start(runtime, Some(&ntfy))?.pushes(&ntfy, report),
        Err(why) => {
            report.left_out("question -> push accepted", &why.to_string());
            Ok(())
        }
    }
}

/// Writes the settings of pushes into the data folder of a coordinator with that home.
fn push_to(home: &Path, url: &str) -> Result<()> {
    let folder = home.join(".local/share/c3po");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("token"), COORDINATOR)?;
    let settings = format!(
        "[[person]]\nname = \"ann\"\nserver = \"{url}\"\ntopic = \"{QUESTIONS}\"\ntoken_file = \"token\"\ngrace = \"0s\"\n"
    );
    Ok(std::fs::write(folder.join("notify.toml"), settings)?)
}

/// A coordinator, a person who has logged in, and a proxy that relays requests for permission.
struct Scene<'a> {
    runtime: &'a Runtime,
    coordinator: Coordinator,
    ann: Person,
    proxy: Server,
    work: TempDir,
}

impl<'a> Scene<'a> {
    fn start(runtime: &'a Runtime, pushes: Option<&Ntfy>) -> Result<Self> {
        let work = TempDir::new()?;
        if let Some(ntfy) = pushes {
            push_to(work.path(), &ntfy.url())?;
        }
        let store = format!("sqlite:{}", work.path().join("c3po.db").display());
        let coordinator = Coordinator::absent(work.path(), &store)?;
        let mut coordinator = coordinator.quietly().unlimited();
        runtime.block_on(coordinator.restart())?;
        let login = Person::log_in(work.path(), &coordinator, "ann", "person");
        Ok(Self {
            runtime,
            ann: runtime.block_on(login)?,
            proxy: hooks::proxy(
                work.path(),
                &coordinator.url(),
                &[("C3PO_RELAY_PERMISSIONS", "true")],
            )?,
            coordinator,
            work,
        })
    }

    /// Measures hooks of permission requests, beside `/bin/true` and one request over HTTP.
    fn verdicts(&self, rounds: usize, report: &mut Report) -> Result<()> {
        let (folder, address) = (self.work.path(), self.coordinator.address());
        let (mut start, mut request) = (Times::default(), Times::default());
        let (mut readable, mut printed) = (Times::default(), Times::default());
        for round in 0..rounds + rounds / 10 {
            let started = hooks::time_of(hooks::command("/bin/true".into(), folder))?;
            let (requested, health) = self.timed(http::get(address, "/api/health"));
            health?;
            let command = format!("echo {round}");
            let began = Instant::now();
            let hook = ask(folder, &command)?;
            let question = self.question(&command)?;
            let asked = began.elapsed();
            let decided = Instant::now();
            let (status, answer) =
                self.runtime
                    .block_on(self.ann.decide(&question, "allow", &json!({})))?;
            ensure!(status == 201, "{answer}");
            let output = hook.wait_with_output()?;
            let took = decided.elapsed();
            let output = String::from_utf8_lossy(&output.stdout);
            ensure!(output.contains("\"allow\""), "{output}");
            // The first rounds are a warm-up.
            if round >= rounds / 10 {
                start.add(started);
                request.add(requested);
                readable.add(asked);
                printed.add(took);
            }
        }
        let (start, request) = (start.percentile(0.95), request.percentile(0.95));
        report.figure(
            "dialog -> question readable over REST, p95",
            readable.percentile(0.95),
            "ms",
            Some(start + request),
            Some(Goal::Below(150.0)),
        );
        report.figure(
            "verdict over REST -> hook has printed it, p95",
            printed.percentile(0.95),
            "ms",
            Some(request),
            Some(Goal::Below(50.0)),
        );
        Ok(())
    }

    /// Measures answers, beside one request over HTTP.
    fn answers(&mut self, rounds: usize, report: &mut Report) -> Result<()> {
        let address = self.coordinator.address();
        let (mut request, mut answered) = (Times::default(), Times::default());
        for round in 0..rounds + rounds / 10 {
            let (requested, health) = self.timed(http::get(address, "/api/health"));
            health?;
            let text = format!("question {round}?");
            self.proxy
                .begin(1, "ask_user", &json!({"question": text}).to_string())?;
            let question = self.question(&text)?;
            let began = Instant::now();
            let (status, answer) = self
                .runtime
                .block_on(self.ann.answer(&question, &json!([{"text": "yes"}])))?;
            ensure!(status == 201, "{answer}");
            ensure!(self.proxy.answer(1)?.contains("answered"));
            let took = began.elapsed();
            if round >= rounds / 10 {
                request.add(requested);
                answered.add(took);
            }
        }
        report.figure(
            "answer over REST -> ask_user returns, p50",
            answered.p50(),
            "ms",
            Some(request.p50()),
            Some(Goal::Below(5.0)),
        );
        Ok(())
    }

    /// Measures pushes of questions without a grace, beside the same request to the ntfy server.
    fn pushes(mut self, ntfy: &Ntfy, report: &mut Report) -> Result<()> {
        let mut stream = subscribe(ntfy)?;
        let (mut direct, mut pushed) = (Times::default(), Times::default());
        for round in 0..PUSHES {
            let text = format!("direct {round}");
            let (took, sent) = self.timed(ntfy.send(QUESTIONS, COORDINATOR, &text));
            ensure!(sent?.status == 200, "ntfy refused it");
            wait_for(&mut stream, &text)?;
            direct.add(took);
            let text = format!("push {round}?");
            let began = Instant::now();
            let question = json!({"question": text, "wait": false});
            self.proxy.call("ask_user", &question.to_string())?;
            wait_for(&mut stream, &text)?;
            pushed.add(began.elapsed());
        }
        report.figure(
            "question without a grace -> push accepted, p50",
            pushed.p50(),
            "ms",
            Some(direct.p50()),
            Some(Goal::Below(20.0)),
        );
        Ok(())
    }

    /// Returns the open question with that text, as soon as it can be read.
    fn question(&self, text: &str) -> Result<Value> {
        let end = Instant::now() + STEP;
        while Instant::now() < end {
            let questions = self.runtime.block_on(self.ann.questions())?;
            let found = questions.into_iter().find(|one| {
                one["message"]
                    .as_str()
                    .is_some_and(|message| message.ends_with(text))
            });
            if let Some(question) = found {
                return Ok(question);
            }
        }
        anyhow::bail!("no question {text}")
    }

    fn timed<T>(&self, work: impl Future<Output = T>) -> (Duration, T) {
        let began = Instant::now();
        let done = self.runtime.block_on(work);
        (began.elapsed(), done)
    }
}

/// Starts the hook of a request to run a command.
fn ask(folder: &Path, shell: &str) -> Result<Child> {
    let mut command: Command = hooks::command(program("c3po")?, folder);
    command.args(["hook", "permission-request"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let input = json!({
        "session_id": "17a5f148-3c2e-4b8e-9d0e-3f2b1c0d9e8f", "prompt_id": "4a1c", "permission_mode": "default",
        "hook_event_name": "PermissionRequest", "tool_name": "Bash", "tool_input": {"command": shell},
    });
    let mut stdin = child.stdin.take().context("no standard input")?;
    stdin.write_all(input.to_string().as_bytes())?;
    Ok(child)
}

/// Opens the stream of the topic with questions.
fn subscribe(ntfy: &Ntfy) -> Result<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect(ntfy.address())?;
    stream.set_read_timeout(Some(STEP))?;
    let address = ntfy.address();
    write!(
        stream,
        "GET /{QUESTIONS}/json HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {COORDINATOR}\r\n\r\n"
    )?;
    let mut stream = BufReader::new(stream);
    wait_for(&mut stream, "\"event\":\"open\"")?;
    Ok(stream)
}

/// Reads until a line has that text.
fn wait_for(stream: &mut BufReader<impl Read>, text: &str) -> Result<()> {
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        ensure!(stream.read_line(&mut line)? > 0, "the stream ended");
    }
    Ok(())
}
