//! The cost of c3po's own processes: starting, resting, a round trip, a delivery.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use harness::coordinator::Coordinator;
use harness::process::program;
use harness::redis::Redis;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::floors::{DELIVERIES, Floors, IDLE};
use super::measure::{Server, Times, resident};
use super::report::{Goal, Report};

/// Enough for a steady median within a few seconds.
const ROUNDS: usize = 1_000;
/// Lower, because starting processes takes longer.
const STARTS: usize = 50;
/// A message that is settled once it was seen, so that inboxes stay short.
const NEWS: &str = r#"{"target":"meshtastic","message":"What MQTT topics are available?","requires_response":false}"#;
/// The request id of the wait that a delivery ends.
const WAITING: u32 = 1;
/// The request id of the ping behind it.
const PINGING: u32 = 2;

/// Measures everything.
pub(crate) fn all(runtime: &Runtime, floors: &Floors, report: &mut Report) -> Result<()> {
    let work = TempDir::new()?;
    start_of_the_proxy(work.path(), floors, report)?;
    let redis = runtime.block_on(Redis::start())?;
    let coordinator = start_of_the_coordinator(runtime, work.path(), &redis.url(), report)?;
    round_trip(work.path(), &coordinator, floors, report)?;
    let plain = delivery(work.path(), &coordinator, floors, report)?;
    delivery_over_tls(runtime, plain, report)
}

fn proxy(work: &Path, project: &str, coordinator: &str) -> Result<Server> {
    proxy_with(work, project, coordinator, &[])
}

fn proxy_with(
    work: &Path,
    project: &str,
    coordinator: &str,
    variables: &[(&str, &str)],
) -> Result<Server> {
    let folder = work.join(project);
    std::fs::create_dir_all(&folder)?;
    let mut command = Command::new(program("c3po")?);
    command
        .arg("proxy")
        .current_dir(&folder)
        .env_clear()
        .env("HOME", work);
    command
        .env("C3PO_COORDINATOR_URL", coordinator)
        .envs(variables.iter().copied());
    Server::start(command)
}

fn start_of_the_proxy(work: &Path, floors: &Floors, report: &mut Report) -> Result<()> {
    let nobody = "http://127.0.0.1:9";
    let times = Times::of(report.rounds(STARTS), || {
        proxy(work, "starting", nobody)?.initialize()
    })?;
    report.figure(
        "proxy, start to initialize answer, p50",
        times.p50(),
        "ms",
        Some(floors.process),
        Some(Goal::Below(5.0)),
    );
    Ok(())
}

fn start_of_the_coordinator(
    runtime: &Runtime,
    work: &Path,
    redis: &str,
    report: &mut Report,
) -> Result<Coordinator> {
    let mut times = Times::default();
    for _ in 0..10 {
        let mut coordinator = Coordinator::absent(work, redis)?.quietly().unlimited();
        let began = Instant::now();
        runtime.block_on(coordinator.restart())?;
        times.add(began.elapsed());
    }
    report.figure(
        "coordinator, start to serving, p50",
        times.p50(),
        "ms",
        None,
        Some(Goal::Below(50.0)),
    );
    let mut coordinator = Coordinator::absent(work, redis)?.quietly().unlimited();
    runtime.block_on(coordinator.restart())?;
    let memory = resident(coordinator.process()?.id()?)?;
    report.figure(
        "coordinator, resident memory idle",
        memory,
        "MB",
        None,
        Some(Goal::Below(15.0)),
    );
    Ok(coordinator)
}

fn round_trip(
    work: &Path,
    coordinator: &Coordinator,
    floors: &Floors,
    report: &mut Report,
) -> Result<()> {
    let mut proxy = proxy(work, "pinging", &coordinator.url())?;
    proxy.initialize()?;
    let times = Times::of(report.rounds(ROUNDS), || proxy.call("ping", "{}").map(drop))?;
    let floor = floors.stdio + floors.websocket;
    let goal = Some(Goal::Below(0.2));
    report.figure(
        "ping through proxy and coordinator, p50",
        times.p50(),
        "ms",
        Some(floor),
        goal,
    );
    report.figure(
        "ping through proxy and coordinator, p99",
        times.percentile(0.99),
        "ms",
        Some(floor),
        None,
    );
    let memory = proxy.resident()?;
    report.figure(
        "proxy, resident memory",
        memory,
        "MB",
        None,
        Some(Goal::Below(8.0)),
    );
    Ok(())
}

/// Returns the median.
fn delivery(
    work: &Path,
    coordinator: &Coordinator,
    floors: &Floors,
    report: &mut Report,
) -> Result<f64> {
    let times = deliveries(work, &coordinator.url(), &[], report.rounds(DELIVERIES))?;
    let floor = floors.chain;
    let goal = Some(Goal::Times(2.0));
    report.figure(
        "send to the end of another agent's wait, p50",
        times.p50(),
        "ms",
        Some(floor),
        goal,
    );
    report.figure(
        "send to the end of another agent's wait, p99",
        times.percentile(0.99),
        "ms",
        Some(floor),
        None,
    );
    Ok(times.p50())
}

/// The same as from another machine: over TLS with a fingerprint, and with a key.
fn delivery_over_tls(runtime: &Runtime, plain: f64, report: &mut Report) -> Result<()> {
    let work = TempDir::new()?;
    let credential = work.path().join("0123456789abcdef");
    let redis = runtime.block_on(Redis::start())?;
    let secured = Coordinator::absent(work.path(), &redis.url())?
        .quietly()
        .unlimited()
        .over_tls("auto");
    let mut secured = secured.with("C3PO_TOKEN", &credential);
    runtime.block_on(secured.restart())?;
    let (fingerprint, credential) = (secured.fingerprint()?, credential.display().to_string());
    let variables = [
        ("C3PO_FINGERPRINT", fingerprint.as_str()),
        ("C3PO_TOKEN", credential.as_str()),
    ];
    let times = deliveries(
        work.path(),
        &secured.url(),
        &variables,
        report.rounds(DELIVERIES),
    )?;
    let what = "the same over TLS with credentials, beside plain, p50";
    report.figure(what, times.p50(), "ms", Some(plain), Some(Goal::Times(1.2)));
    Ok(())
}

/// Both ends run on their own threads: the sender records when it wrote, the recipient when its wait returned.
fn deliveries(
    work: &Path,
    coordinator: &str,
    variables: &[(&str, &str)],
    count: usize,
) -> Result<Times> {
    let mut sender = proxy_with(work, "homeassistant", coordinator, variables)?;
    let mut recipient = proxy_with(work, "meshtastic", coordinator, variables)?;
    sender.initialize()?;
    recipient.initialize()?;
    recipient.reply("ping", "{}")?;
    let (waiting, is_waiting) = mpsc::sync_channel::<()>(1);
    let (arrived, has_arrived) = mpsc::sync_channel::<Instant>(1);
    let rounds = count + count / 10;
    let receiving = thread::spawn(move || -> Result<()> {
        for _ in 0..rounds {
            // The answer to the ping proves that the wait before it has reached the coordinator.
            recipient.begin(WAITING, "wait_for_message", r#"{"timeout":20}"#)?;
            recipient.begin(PINGING, "ping", "{}")?;
            recipient.answer(PINGING)?;
            waiting.send(())?;
            let answer = recipient.answer(WAITING)?;
            let at = Instant::now();
            ensure!(answer.contains("MQTT"), "not the message: {answer}");
            arrived.send(at)?;
        }
        Ok(())
    });
    let mut times = Times::default();
    for round in 0..rounds {
        is_waiting.recv().context("the recipient ended")?;
        thread::sleep(IDLE);
        let began = Instant::now();
        sender.call("send_message", NEWS)?;
        let at = has_arrived
            .recv_timeout(Duration::from_secs(20))
            .context("nothing arrived")?;
        if round >= count / 10 {
            times.add(at.saturating_duration_since(began));
        }
    }
    receiving
        .join()
        .map_err(|_| anyhow::anyhow!("the recipient panicked"))??;
    Ok(times)
}
