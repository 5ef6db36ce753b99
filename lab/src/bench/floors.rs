//! The floors of the same work on this machine: a process, a line over stdio, a frame over WebSocket, a script in Redis.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::get;
use axum::serve::ListenerExt as _;
use futures_util::{SinkExt, StreamExt};
use harness::redis::Redis;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_tungstenite::connect_async_with_config;
use tokio_tungstenite::tungstenite;

use super::measure::{Server, Times};
use super::report::Report;
use super::{chain, part};

/// Enough for a steady median within a few seconds.
const ROUNDS: usize = 2_000;
/// How many deliveries are timed, each after a pause.
pub(crate) const DELIVERIES: usize = 500;
/// Lower, because starting processes takes longer.
const STARTS: usize = 100;
/// A line of the length of a usual call.
const LINE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send_message","arguments":"#,
    r#"{"target":"meshtastic","message":"What MQTT topics are available?","requires_response":false}}}"#,
    "\n"
);
/// The least work for one accepted message: an entry, its state, its life, a wake.
pub(crate) const SCRIPT: &str = "redis.call('XADD', KEYS[1], '*', 'm', ARGV[1]) redis.call('HSET', KEYS[2], 'seq', ARGV[2]) \
                      redis.call('PEXPIRE', KEYS[1], 86400000) redis.call('PUBLISH', 'wake', ARGV[2]) return 1";

/// The pause of all processes before a delivery: a waiting agent is idle, and idle processes wake slowly.
pub(crate) const IDLE: Duration = Duration::from_millis(3);

/// The medians of all floors, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Floors {
    /// Running a process that does nothing, from start to end.
    pub(crate) process: f64,
    /// A line to an echo process and back.
    pub(crate) stdio: f64,
    /// A frame to an echo server and back.
    pub(crate) websocket: f64,
    /// A line through two relays, a hub and a script, to the other end.
    pub(crate) chain: f64,
}

/// Measures all floors.
pub(crate) fn all(runtime: &Runtime, report: &mut Report) -> Result<Floors> {
    let rounds = report.rounds(ROUNDS);
    let process = process(report.rounds(STARTS))?;
    report.floor("/bin/true, start to end, p50", process, "ms");
    let stdio = stdio(rounds)?;
    report.floor("stdio echo, there and back, p50", stdio, "ms");
    let websocket = websocket(rounds)?;
    report.floor("WebSocket echo, there and back, p50", websocket, "ms");
    let (script, wake) = runtime.block_on(redis(rounds))?;
    report.floor("Redis script (everysec), p50", script, "ms");
    report.floor("Redis wake-up by publication, p50", wake, "ms");
    let chain = chain(runtime, report.rounds(DELIVERIES))?;
    report.floor("relay, hub, script, hub, relay, one way, p50", chain, "ms");
    Ok(Floors {
        process,
        stdio,
        websocket,
        chain,
    })
}

fn process(starts: usize) -> Result<f64> {
    let times = Times::of(starts, || {
        let status = Command::new("/bin/true")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()?;
        ensure!(status.success());
        Ok(())
    });
    Ok(times?.p50())
}

fn stdio(rounds: usize) -> Result<f64> {
    let mut server = Server::start(part("echo")?)?;
    Ok(Times::of(rounds, || server.line(LINE).map(drop))?.p50())
}

async fn echo_frames(upgrade: WebSocketUpgrade) -> Response {
    upgrade
        .read_buffer_size(1024)
        .write_buffer_size(0)
        .on_upgrade(|mut socket| async move {
            while let Some(Ok(message)) = socket.recv().await {
                if matches!(message, Message::Close(_)) || socket.send(message).await.is_err() {
                    return;
                }
            }
        })
}

/// The server runs on its own thread, in place of a separate process.
fn websocket(rounds: usize) -> Result<f64> {
    let (announce, announced) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            announce.send(listener.local_addr()?)?;
            let listener = listener.tap_io(|stream| {
                // Without it the floor would include waits for acknowledgements and be too high, which the figures would show.
                let _ = stream.set_nodelay(true);
            });
            let app = Router::new().route("/", get(echo_frames));
            let ending = tokio::time::sleep(Duration::from_secs(60));
            axum::serve(listener, app)
                .with_graceful_shutdown(ending)
                .await?;
            Ok(())
        })
    });
    let address = announced
        .recv_timeout(Duration::from_secs(10))
        .context("the echo server did not start")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let times = runtime.block_on(async {
        let (mut socket, _) =
            connect_async_with_config(format!("ws://{address}/"), None, true).await?;
        let mut times = Times::default();
        for _ in 0..rounds {
            let began = Instant::now();
            socket.send(tungstenite::Message::text(LINE)).await?;
            socket.next().await.context("the echo ended")??;
            times.add(began.elapsed());
        }
        anyhow::Ok(times)
    })?;
    // The server ends with this program.
    drop(server);
    Ok(times.p50())
}

/// The recipient is idle before each line, like an agent that waits.
fn chain(runtime: &Runtime, deliveries: usize) -> Result<f64> {
    let redis = runtime.block_on(Redis::start())?;
    let mut hub = part("hub")?
        .arg(redis.url())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let outcome = chain::address(&mut hub).and_then(|address| {
        let relay = || {
            let mut command = part("relay")?;
            command.arg(&address);
            Server::start(command)
        };
        // A relay is linked after its first answer; the other relay's output from that is dropped.
        let mut sender = relay()?;
        sender.line(LINE)?;
        let mut recipient = relay()?;
        recipient.line(LINE)?;
        sender.read()?;
        let mut times = Times::default();
        for _ in 0..deliveries {
            let began = Instant::now();
            sender.send(LINE)?;
            recipient.read()?;
            times.add(began.elapsed());
            sender.read()?;
            std::thread::sleep(IDLE);
        }
        Ok(times.p50())
    });
    hub.kill()?;
    hub.wait()?;
    outcome
}

async fn redis(rounds: usize) -> Result<(f64, f64)> {
    let server = Redis::start().await?;
    let client = ::redis::Client::open(server.url())?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let mut subscription = client.get_async_pubsub().await?;
    subscription.subscribe("wake").await?;
    let mut published = subscription.into_on_message();
    let script = ::redis::Script::new(SCRIPT);
    let (mut answered, mut woken) = (Times::default(), Times::default());
    for round in 0..rounds {
        let began = Instant::now();
        let mut invocation = script.key("{a}in");
        invocation.key("{a}st").arg(LINE).arg(round);
        let _: i64 = invocation.invoke_async(&mut connection).await?;
        answered.add(began.elapsed());
        published.next().await.context("the subscription ended")?;
        woken.add(began.elapsed());
    }
    Ok((answered.p50(), (woken.p50() - answered.p50()).max(0.0)))
}
