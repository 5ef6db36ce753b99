//! The cost of a hook for a session: the process from its start to its end, in every state of the coordinator.

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use harness::coordinator::Coordinator;
use harness::process::program;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::measure::{Server, Times};
use super::report::{Goal, Report};

/// Enough for a steady 99th percentile.
const ROUNDS: usize = 500;
/// How long a proxy may take until it listens for hooks.
const LISTENS: Duration = Duration::from_secs(10);
/// The input of a client at the end of a turn.
const INPUT: &[u8] = br#"{"session_id":"17a5f148-3c2e-4b8e-9d0e-3f2b1c0d9e8f","transcript_path":"/home/ann/.claude/projects/p/s.jsonl","cwd":"/home/ann/web","prompt_id":"4a1c","permission_mode":"default","hook_event_name":"Stop","stop_hook_active":false,"last_assistant_message":"All done.","background_tasks":[],"session_crons":[]}"#;

/// Measures a hook without a proxy, and beside proxies whose coordinator is running, absent, or silent.
pub(crate) fn all(runtime: &Runtime, report: &mut Report) -> Result<()> {
    let work = TempDir::new()?;
    let mut coordinator = Coordinator::absent(
        work.path(),
        &format!("sqlite:{}", work.path().join("c3po.db").display()),
    )?;
    coordinator = coordinator.quietly();
    runtime.block_on(coordinator.restart())?;
    let live = coordinator.url();
    let hole = TcpListener::bind("127.0.0.1:0")?;
    let silent = format!("http://{}", hole.local_addr()?);
    let beside = [
        ("no proxy", None),
        ("live coordinator", Some(live.as_str())),
        ("no coordinator", Some("http://127.0.0.1:9")),
        ("silent coordinator", Some(silent.as_str())),
    ];
    for (beside, coordinator) in beside {
        let folder = TempDir::new()?;
        let proxy = coordinator
            .map(|coordinator| proxy(folder.path(), coordinator, &[]))
            .transpose()?;
        let (floor, hook) = rounds(folder.path(), report.rounds(ROUNDS))?;
        for (name, share, most) in [("p50", 0.5, 2.0), ("p99", 0.99, 5.0)] {
            let what = format!("hook, {beside}, start to end, {name}");
            let floor = Some(floor.percentile(share));
            report.figure(
                &what,
                hook.percentile(share),
                "ms",
                floor,
                Some(Goal::Below(most)),
            );
        }
        drop(proxy);
    }
    Ok(())
}

/// Starts a proxy beside this process, which is the client of its hooks. `more` are further variables.
pub(super) fn proxy(runtime: &Path, coordinator: &str, more: &[(&str, &str)]) -> Result<Server> {
    let mut command = command(program("c3po")?, runtime);
    command
        .arg("proxy")
        .env("C3PO_AGENT_ID", "hooked")
        .env("C3PO_COORDINATOR_URL", coordinator)
        .envs(more.iter().copied());
    let mut server = Server::start(command)?;
    server.initialize()?;
    let (folder, end) = (runtime.join("c3po"), Instant::now() + LISTENS);
    while folder.read_dir().map_or(0, Iterator::count) == 0 {
        ensure!(Instant::now() < end, "the proxy does not listen for hooks");
        std::thread::yield_now();
    }
    Ok(server)
}

/// Runs `/bin/true` and a hook in turn, so that other load on the machine affects both.
fn rounds(runtime: &Path, rounds: usize) -> Result<(Times, Times)> {
    let (mut floor, mut hook) = (Times::default(), Times::default());
    let c3po = program("c3po")?;
    for round in 0..rounds + rounds / 10 {
        let took = [time_of(command(PathBuf::from("/bin/true"), runtime))?, {
            let mut command = command(c3po.clone(), runtime);
            command.args(["hook", "stop"]);
            time_of(command)?
        }];
        // The first rounds are a warm-up.
        if round >= rounds / 10 {
            floor.add(took[0]);
            hook.add(took[1]);
        }
    }
    Ok((floor, hook))
}

pub(super) fn command(program: PathBuf, runtime: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("HOME", runtime)
        .env("XDG_RUNTIME_DIR", runtime);
    // Separates the measured session from a session in which this program may run.
    command.env("CLAUDE_PID", std::process::id().to_string());
    command
}

/// Runs a command as a client runs a hook: writes to it, and reads to its end.
pub(super) fn time_of(mut command: Command) -> Result<Duration> {
    let began = Instant::now();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // `true` does not read, and may have ended by now.
    let _ = child
        .stdin
        .take()
        .context("no standard input")?
        .write_all(INPUT);
    let output = child.wait_with_output()?;
    let took = began.elapsed();
    ensure!(
        output.status.success() && output.stdout.is_empty(),
        "not as a silent hook: {output:?}"
    );
    Ok(took)
}
