//! Messages per second that 64 agents send, beside the highest rate of the same frames and scripts.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::get;
use c3po_shared::wire::{PATH, SUBPROTOCOL};
use harness::crowd::{Crowd, Pace, Sending, Socket};
use harness::loaded::{Loaded, Used};
use harness::redis::Redis;
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::floors::SCRIPT;
use super::group_commit::GroupCommit;
use super::report::{Goal, Report};
use super::scripts::{self, Counts};
use super::{chain, part};

/// How many agents send at once, each with one message in flight.
const SENDERS: usize = 64;
/// How long they send.
const SENDING: Duration = Duration::from_secs(5);
/// The messages per second of the slow run. They come one at a time, and find all processes asleep.
const ALONE: f64 = 200.0;
/// How long a floor is measured.
const FLOOR: Duration = Duration::from_secs(2);
/// A frame of the length of a usual send.
const FRAME: &str = concat!(
    r#"{"jsonrpc":"2.0","id":123,"method":"call","params":{"call_id":"0191e6b0-0000-7000-8000-000000000001","#,
    r#""tool":"send_message","arguments":{"target":"sender-12","requires_response":false,"#,
    r#""message":"What MQTT topics are available? What MQTT topics?"}}}"#
);

/// The processor time that a send may cost the coordinator and Redis, in microseconds.
const PROCESSOR_MAX: f64 = 40.0;
/// The share of their floor that sends must reach: of the same frames and scripts, and of a bare writer.
const SHARE_OF_CHAIN: f64 = 0.3;
const SHARE_OF_WRITER: f64 = 0.5;
/// How many of the most frequent commands of a send are listed.
const NAMED: usize = 12;

/// Measures the floors, and the sends on both stores.
pub(crate) fn all(runtime: &Runtime, report: &mut Report) -> Result<()> {
    let span = report.span(FLOOR);
    let redis = runtime.block_on(Redis::start())?;
    let scripts = runtime.block_on(scripts_alone(&redis.url(), span))?;
    report.floor("Redis script (everysec), 64 at once", scripts, "/s");
    let frames = there_and_back(runtime, None, span)?;
    report.floor("WebSocket echo, 64 connections", frames, "/s");
    let both = there_and_back(runtime, Some(&redis.url()), span)?;
    report.floor("WebSocket, script, and back, 64 connections", both, "/s");
    drop(redis);
    let work = TempDir::new()?;
    let server = runtime.block_on(Loaded::on_redis(work.path()))?;
    runtime.block_on(on_redis(&server, both, report))?;
    drop(server);
    let writer = GroupCommit::open(work.path())?;
    let writes = runtime.block_on(writer.rate(SENDERS, FRAME, span))?;
    report.floor(
        "SQLite, one commit for many callers, 64 at once",
        writes,
        "/s",
    );
    let server = runtime.block_on(Loaded::on_sqlite(work.path()))?;
    let sends = runtime.block_on(sends(&server, Pace::AsAnswered, report))?;
    sends.report("SQLite durable", writes, SHARE_OF_WRITER, report);
    Ok(())
}

/// The sends, and their cost.
struct Sends {
    count: f64,
    per_second: f64,
    used: Used,
    /// How often the coordinator and Redis were woken.
    wake_ups: [u64; 2],
}

/// The agents send to each other, and acknowledge pushed messages.
async fn sends(server: &Loaded, pace: Pace, report: &Report) -> Result<Sends> {
    let crowd = Crowd::new(server.address);
    let senders = crowd.join("sender", SENDERS).await?;
    let targets = senders
        .iter()
        .map(|sender| sender.name().to_owned())
        .collect();
    let span = report.span(SENDING);
    let sending = Sending {
        targets,
        pace,
        span,
        body: 50,
    };
    let (before, woken) = (server.used()?, server.wake_ups()?);
    crowd.send(senders, &sending).await?;
    let (used, wake_ups) = (server.used()?.since(&before), server.wake_ups()?);
    let counted = crowd.tally().take();
    for (trouble, count) in counted.troubles {
        report.left_out(&format!("{count} sends"), &trouble);
    }
    let count = counted.sent.count() as f64;
    let wake_ups = [0, 1].map(|which| wake_ups[which].saturating_sub(woken[which]));
    Ok(Sends {
        count,
        per_second: count / span.as_secs_f64(),
        used,
        wake_ups,
    })
}

impl Sends {
    fn report(&self, store: &str, floor: f64, share: f64, report: &mut Report) {
        let name = format!("sends per second, 64 agents, {store}");
        report.figure(
            &name,
            self.per_second,
            "/s",
            Some(floor),
            Some(Goal::Share(share)),
        );
        let each = |used: Duration| used.as_secs_f64() * 1e6 / self.count;
        let goal = || (!self.used.redis.is_zero()).then_some(Goal::Below(PROCESSOR_MAX));
        let name = format!("processor time of a send, coordinator, {store}");
        report.figure(&name, each(self.used.coordinator), "us", None, goal());
        if let Some(goal) = goal() {
            report.figure(
                "processor time of a send, Redis",
                each(self.used.redis),
                "us",
                None,
                Some(goal),
            );
        }
    }

    fn report_wake_ups(&self, how: &str, report: &mut Report) {
        for (name, wake_ups) in ["coordinator", "Redis"].into_iter().zip(self.wake_ups) {
            report.figure(
                &format!("wake-ups of a send, {name}, {how}"),
                wake_ups as f64 / self.count,
                "",
                None,
                None,
            );
        }
    }
}

async fn on_redis(server: &Loaded, floor: f64, report: &mut Report) -> Result<()> {
    let mut redis = scripts::count_anew(server)
        .await?
        .context("there is no Redis")?;
    let sends = sends(server, Pace::AsAnswered, report).await?;
    let counts = scripts::counts(&mut redis).await?;
    sends.report("Redis everysec", floor, SHARE_OF_CHAIN, report);
    report_counts(&sends, &counts, report);
    sends.report_wake_ups("64 at once", report);
    let alone = self::sends(server, Pace::PerSecond(ALONE), report).await?;
    alone.report_wake_ups("one after another", report);
    scripts::judge(server, "sends", report).await
}

/// Reports the parts of one send: the work of its sender, its recipient and their coordinator.
fn report_counts(sends: &Sends, counts: &Counts, report: &mut Report) {
    let each = |count: f64| count / sends.count;
    report.figure("scripts of a send", each(counts.scripts), "", None, None);
    report.figure(
        "commands of a send",
        each(counts.commands.values().sum()),
        "",
        None,
        None,
    );
    let mut commands: Vec<_> = counts.commands.iter().collect();
    commands.sort_by(|one, other| other.1.total_cmp(one.1));
    let named = commands
        .iter()
        .take(NAMED)
        .map(|(name, calls)| format!("{name} {:.2}", each(**calls)));
    report.note(&named.collect::<Vec<_>>().join(", "));
    report.figure(
        "time in scripts of a send",
        each(counts.time),
        "us",
        None,
        None,
    );
    report.figure(
        "bytes to and from Redis of a send",
        each(counts.bytes),
        "",
        None,
        None,
    );
}

/// Returns the scripts per second with 64 callers, each with one script in flight.
async fn scripts_alone(url: &str, span: Duration) -> Result<f64> {
    let connection = redis::Client::open(url)?
        .get_multiplexed_async_connection()
        .await?;
    let began = Instant::now();
    let callers = (0..SENDERS).map(|number| {
        let mut connection = connection.clone();
        async move {
            let mut done = 0_u64;
            while began.elapsed() < span {
                run_script(&mut connection, &number.to_string()).await?;
                done += 1;
            }
            anyhow::Ok(done)
        }
    });
    let done: u64 = futures_util::future::try_join_all(callers)
        .await?
        .iter()
        .sum();
    Ok(done as f64 / began.elapsed().as_secs_f64())
}

async fn run_script(connection: &mut MultiplexedConnection, text: &str) -> Result<()> {
    let script = redis::Script::new(SCRIPT);
    let mut invocation = script.key("{a}in");
    let _: i64 = invocation
        .key("{a}st")
        .arg(text)
        .arg(1)
        .invoke_async(connection)
        .await?;
    Ok(())
}

/// Returns the frames per second that go to another process and back, over 64 connections.
fn there_and_back(runtime: &Runtime, redis: Option<&str>, span: Duration) -> Result<f64> {
    let mut server = part("echo-frames")?
        .args(redis)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let outcome = count(runtime, &mut server, span);
    server.kill()?;
    server.wait()?;
    outcome
}

fn count(runtime: &Runtime, server: &mut Child, span: Duration) -> Result<f64> {
    let address = chain::address(server)?.parse().context("no address")?;
    runtime.block_on(async {
        let mut sockets = Vec::new();
        for _ in 0..SENDERS {
            sockets.push(Socket::open(address).await?);
        }
        let began = Instant::now();
        let exchanges = sockets.into_iter().map(|mut socket| async move {
            let mut done = 0_u64;
            while began.elapsed() < span {
                socket.send(FRAME).await?;
                socket.next().await?;
                done += 1;
            }
            anyhow::Ok(done)
        });
        let done: u64 = futures_util::future::try_join_all(exchanges)
            .await?
            .iter()
            .sum();
        Ok(done as f64 / began.elapsed().as_secs_f64())
    })
}

/// Prints its address, then echoes each frame.
pub(super) fn echo(redis: Option<&str>) -> Result<()> {
    crate::threads()?.block_on(async {
        let connection = match redis {
            Some(url) => Some(
                redis::Client::open(url)?
                    .get_multiplexed_async_connection()
                    .await?,
            ),
            None => None,
        };
        chain::serve(
            Router::new()
                .route(PATH, get(echo_frames))
                .with_state(connection),
        )
        .await
    })
}

async fn echo_frames(
    State(mut redis): State<Option<MultiplexedConnection>>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let upgrade = upgrade
        .protocols([SUBPROTOCOL])
        .read_buffer_size(1024)
        .write_buffer_size(0);
    upgrade.on_upgrade(|mut socket| async move {
        while let Some(Ok(Message::Text(text))) = socket.recv().await {
            let stored = match &mut redis {
                Some(redis) => run_script(redis, text.as_str()).await,
                None => Ok(()),
            };
            if stored.is_err() || socket.send(Message::Text(text)).await.is_err() {
                return;
            }
        }
    })
}
