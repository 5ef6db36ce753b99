//! How many messages a second 64 agents send, beside how often the same frames and scripts go there and back at the most.

use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::get;
use axum::serve::ListenerExt as _;
use c3po_shared::wire::{PATH, SUBPROTOCOL};
use harness::crowd::{Crowd, Pace, Sending, Socket};
use harness::loaded::Loaded;
use harness::redis::Redis;
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::chain;
use crate::floors::SCRIPT;
use crate::report::{Goal, Report};

/// The argument that makes this program answer frames with themselves, after a script in the Redis whose URL may follow.
pub(crate) const ECHO: &str = "--echo-frames";
/// How many agents send at once, each with one message under way.
const SENDERS: usize = 64;
/// For how long they send.
const SENDING: Duration = Duration::from_secs(5);
/// For how long a floor is taken.
const FLOOR: Duration = Duration::from_secs(2);
/// A frame of the length of a usual send.
const FRAME: &str = concat!(
    r#"{"jsonrpc":"2.0","id":123,"method":"call","params":{"call_id":"0191e6b0-0000-7000-8000-000000000001","#,
    r#""tool":"send_message","arguments":{"target":"sender-12","requires_response":false,"#,
    r#""message":"What MQTT topics are available? What MQTT topics?"}}}"#
);

/// Measures the floors, and the sends on both stores.
pub(crate) fn all(runtime: &Runtime, report: &mut Report) -> Result<()> {
    let redis = runtime.block_on(Redis::start())?;
    let scripts = runtime.block_on(scripts(&redis.url()))?;
    report.floor("Redis script (everysec), 64 at once", scripts, "/s");
    let frames = there_and_back(runtime, None)?;
    report.floor("WebSocket echo, 64 connections", frames, "/s");
    let both = there_and_back(runtime, Some(&redis.url()))?;
    report.floor("WebSocket, script, and back, 64 connections", both, "/s");
    drop(redis);
    let work = TempDir::new()?;
    let on_redis = runtime.block_on(Loaded::on_redis(work.path()))?;
    sends(runtime, &on_redis, "Redis everysec", both, 15_000.0, report)?;
    drop(on_redis);
    let on_sqlite = runtime.block_on(Loaded::on_sqlite(work.path()))?;
    sends(runtime, &on_sqlite, "SQLite durable", frames, 5_000.0, report)
}

/// The agents send to each other, and acknowledge what is pushed to them.
fn sends(runtime: &Runtime, server: &Loaded, store: &str, floor: f64, goal: f64, report: &mut Report) -> Result<()> {
    let (counted, used) = runtime.block_on(async {
        let crowd = Crowd::new(server.address);
        let senders = crowd.join("sender", SENDERS).await?;
        let targets = senders.iter().map(|sender| sender.name().to_owned()).collect();
        let sending = Sending { targets, pace: Pace::AsAnswered, span: SENDING, body: 50 };
        let before = server.used()?;
        crowd.send(senders, &sending).await?;
        anyhow::Ok((crowd.tally().take(), server.used()?.since(&before)))
    })?;
    let sent = counted.sent.count() as f64;
    let per_second = sent / SENDING.as_secs_f64();
    report.figure(
        &format!("sends per second, 64 agents, {store}"),
        per_second,
        "/s",
        Some(floor),
        Some(Goal::Above(goal)),
    );
    let each = |used: Duration| used.as_secs_f64() * 1e6 / sent;
    report.figure(&format!("processor time of a send, coordinator, {store}"), each(used.coordinator), "us", None, None);
    if !used.redis.is_zero() {
        report.figure("processor time of a send, Redis", each(used.redis), "us", None, None);
    }
    for (trouble, count) in counted.troubles {
        report.left_out(&format!("{count} sends"), &trouble);
    }
    Ok(())
}

/// Returns how many scripts run in a second when 64 callers have one under way each.
async fn scripts(url: &str) -> Result<f64> {
    let connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let began = Instant::now();
    let callers = (0..SENDERS).map(|number| {
        let mut connection = connection.clone();
        async move {
            let mut done = 0_u64;
            while began.elapsed() < FLOOR {
                run_script(&mut connection, &number.to_string()).await?;
                done += 1;
            }
            anyhow::Ok(done)
        }
    });
    let done: u64 = futures_util::future::try_join_all(callers).await?.iter().sum();
    Ok(done as f64 / began.elapsed().as_secs_f64())
}

async fn run_script(connection: &mut MultiplexedConnection, text: &str) -> Result<()> {
    let script = redis::Script::new(SCRIPT);
    let mut invocation = script.key("{a}in");
    let _: i64 = invocation.key("{a}st").arg(text).arg(1).invoke_async(connection).await?;
    Ok(())
}

/// Returns how many frames go to another process and back in a second, over 64 connections.
fn there_and_back(runtime: &Runtime, redis: Option<&str>) -> Result<f64> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut server = command.arg(ECHO).args(redis).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let outcome = count(runtime, &mut server);
    server.kill()?;
    server.wait()?;
    outcome
}

fn count(runtime: &Runtime, server: &mut Child) -> Result<f64> {
    let address = chain::address(server)?.parse().context("no address")?;
    runtime.block_on(async {
        let mut sockets = Vec::new();
        for _ in 0..SENDERS {
            sockets.push(Socket::open(address).await?);
        }
        let began = Instant::now();
        let exchanges = sockets.into_iter().map(|mut socket| async move {
            let mut done = 0_u64;
            while began.elapsed() < FLOOR {
                socket.send(FRAME).await?;
                socket.next().await?;
                done += 1;
            }
            anyhow::Ok(done)
        });
        let done: u64 = futures_util::future::try_join_all(exchanges).await?.iter().sum();
        Ok(done as f64 / began.elapsed().as_secs_f64())
    })
}

/// Prints its address, then answers each frame with itself.
pub(crate) fn echo(redis: Option<&str>) -> ExitCode {
    let outcome = tokio::runtime::Builder::new_multi_thread().enable_all().build().map(|runtime| {
        runtime.block_on(async {
            let connection = match redis {
                Some(url) => Some(redis::Client::open(url)?.get_multiplexed_async_connection().await?),
                None => None,
            };
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let mut output = tokio::io::stdout();
            output.write_all(format!("{}\n", listener.local_addr()?).as_bytes()).await?;
            output.flush().await?;
            let listener = listener.tap_io(|stream| {
                // A floor that waits for acknowledgements would be too low, which the figures would show.
                let _ = stream.set_nodelay(true);
            });
            let router = Router::new().route(PATH, get(echo_frames)).with_state(connection);
            Ok(axum::serve(listener, router).await?)
        })
    });
    chain::code(outcome.map_err(anyhow::Error::from).and_then(|outcome: Result<()>| outcome))
}

async fn echo_frames(State(mut redis): State<Option<MultiplexedConnection>>, upgrade: WebSocketUpgrade) -> Response {
    let upgrade = upgrade.protocols([SUBPROTOCOL]).read_buffer_size(1024).write_buffer_size(0);
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
