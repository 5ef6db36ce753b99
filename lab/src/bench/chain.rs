//! The floor of a delivery: the same processes in the same order, which only pass it on.
//!
//! client -> relay -> hub -> script in Redis -> hub -> relay -> client. A sleeping process takes time to wake, which
//! a sum of echoes between busy processes would not include.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::get;
use axum::serve::ListenerExt as _;
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio_tungstenite::connect_async_with_config;
use tokio_tungstenite::tungstenite;

use super::floors::SCRIPT;

/// How many frames a slow relay may fall behind; the chain carries one at a time.
const BACKLOG: usize = 16;

/// Passes lines on to the hub and the hub's frames back until the input ends.
pub(super) fn relay(hub: &str) -> Result<()> {
    crate::thread()?.block_on(async {
        let input = std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned()?;
        let output = std::os::fd::AsFd::as_fd(&std::io::stdout()).try_clone_to_owned()?;
        let (input, output) = (UnixStream::from(input), UnixStream::from(output));
        input.set_nonblocking(true)?;
        output.set_nonblocking(true)?;
        let input = tokio::net::UnixStream::from_std(input)?;
        let mut output = tokio::net::UnixStream::from_std(output)?;
        let mut lines = tokio::io::BufReader::new(input).lines();
        let (mut socket, _) = connect_async_with_config(format!("ws://{hub}/"), None, true).await?;
        loop {
            tokio::select! {
                line = lines.next_line() => match line? {
                    Some(line) => socket.send(tungstenite::Message::text(line)).await?,
                    None => return Ok(()),
                },
                frame = socket.next() => {
                    let frame = frame.context("the hub ended")??;
                    output.write_all(format!("{frame}\n").as_bytes()).await?;
                }
            }
        }
    })
}

#[derive(Clone)]
struct Hub {
    redis: ::redis::aio::MultiplexedConnection,
    wakes: broadcast::Sender<String>,
}

/// Prints its address, then runs a script for each frame, answers it, and passes it on to the other relays.
pub(super) fn hub(redis: &str) -> Result<()> {
    crate::threads()?.block_on(async {
        let redis = ::redis::Client::open(redis)?
            .get_multiplexed_async_connection()
            .await?;
        let hub = Hub {
            redis,
            wakes: broadcast::Sender::new(BACKLOG),
        };
        serve(Router::new().route("/", get(pass_on)).with_state(hub)).await
    })
}

/// Serves on a free port, whose address it prints first.
pub(super) async fn serve(router: Router) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut output = tokio::io::stdout();
    output
        .write_all(format!("{}\n", listener.local_addr()?).as_bytes())
        .await?;
    output.flush().await?;
    let listener = listener.tap_io(|stream| {
        // Without it the floor would include waits for acknowledgements and be too high, which the figures would show.
        let _ = stream.set_nodelay(true);
    });
    Ok(axum::serve(listener, router).await?)
}

async fn pass_on(State(mut hub): State<Hub>, upgrade: WebSocketUpgrade) -> Response {
    let script = ::redis::Script::new(SCRIPT);
    let mut wakes = hub.wakes.subscribe();
    upgrade
        .read_buffer_size(1024)
        .write_buffer_size(0)
        .on_upgrade(|mut socket| async move {
            loop {
                tokio::select! {
                    Some(Ok(Message::Text(text))) = socket.recv() => {
                        let mut invocation = script.key("{a}in");
                        invocation.key("{a}st").arg(text.as_str()).arg(1);
                        let stored: Result<i64, _> = invocation.invoke_async(&mut hub.redis).await;
                        // Its own wake is skipped; the other listeners may have left.
                        let _ = hub.wakes.send(text.as_str().to_owned());
                        let _ = wakes.try_recv();
                        if stored.is_err() || socket.send(Message::text("stored")).await.is_err() {
                            return;
                        }
                    }
                    Ok(wake) = wakes.recv() => {
                        if socket.send(Message::text(wake)).await.is_err() {
                            return;
                        }
                    }
                    else => return,
                }
            }
        })
}

/// Returns the first line that a server prints: its address.
pub(crate) fn address(hub: &mut std::process::Child) -> Result<String> {
    let output = hub.stdout.take().context("the hub's output is not piped")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}
