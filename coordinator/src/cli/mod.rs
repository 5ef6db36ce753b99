//! The coordinator's command line. Whatever it does besides serving, it asks the coordinator that runs to do, but for `backup`
//! and `restore`, which work on files.

mod absent;
mod admin;
mod audit;
mod backup;
mod health;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use axum::body::{Body, to_bytes};
use axum::http::header::{CONNECTION, CONTENT_TYPE, HOST};
use axum::http::{Method, Request, StatusCode};
use clap::{Parser, Subcommand};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

pub use self::admin::Admin;
pub use self::audit::AuditOptions;
pub use self::backup::{back_up, restore};
pub use self::health::ask as ask_health;
use crate::config::ServeFlags;

/// The longest answer that is read, in bytes: 10,000 keys.
const ANSWER_MAX: usize = 16 << 20;

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "c3po-coordinator", version, about = "The c3po server: keeps every message and serves agents")]
pub struct CommandLine {
    /// What to do instead of serving.
    #[command(subcommand)]
    pub action: Option<Action>,
    /// How to serve.
    #[command(flatten)]
    pub settings: ServeFlags,
}

/// What the program can do besides serving.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Ask the coordinator at --listen whether it is well; exit code 0 if it is (for container health checks)
    Health,
    /// Copy the embedded store and the certificate into a new file, also while the coordinator runs
    Backup {
        /// The file to write
        file: PathBuf,
    },
    /// Put such a copy in their place, while no coordinator runs; what was there is kept beside it
    Restore {
        /// The file that `backup` wrote
        file: PathBuf,
    },
    /// Show what happened, in order: who did what to whom, and why; times are in UTC
    Audit(AuditOptions),
    /// Ask the coordinator of this machine for something, over its own socket.
    #[command(flatten)]
    Admin(Admin),
}

/// An answer over HTTP.
#[derive(Debug)]
struct HttpAnswer {
    status: StatusCode,
    body: String,
}

/// Sends one request on a connection of its own.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    (method, path, body): (Method, &str, String),
    deadline: Duration,
) -> anyhow::Result<HttpAnswer> {
    let request = Request::builder().method(method).uri(path).header(HOST, "localhost").header(CONNECTION, "close");
    let request = request.header(CONTENT_TYPE, "application/json").body(Body::from(body))?;
    let exchange = async {
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
        let asking = async move {
            let response = sender.send_request(request).await?;
            let status = response.status();
            let body = to_bytes(Body::new(response.into_body()), ANSWER_MAX).await?;
            Ok(HttpAnswer { status, body: String::from_utf8(body.into())? })
        };
        // Whatever breaks the connection also fails the request on it.
        let (answer, _) = tokio::join!(asking, connection);
        answer
    };
    timeout(deadline, exchange).await.context("no answer in time")?
}
