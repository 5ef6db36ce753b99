//! The coordinator's command line. Actions other than serving are sent to the running coordinator, except `backup` and
//! `restore`, which work on files.

mod absent;
mod admin;
mod audit;
mod backup;
mod health;
mod left;
mod logins;
mod requests;
mod tables;

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
pub use self::backup::{Origin, back_up, restore};
pub use self::health::ask as ask_health;
pub use self::logins::{LoginOptions, LoginsCommand};
use crate::config::ServeFlags;
use crate::notify;

/// The largest response that is read, in bytes, which has room for 10,000 keys.
const ANSWER_MAX: usize = 16 << 20;

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "c3po-coordinator",
    version,
    about = "The c3po server: keeps every message and serves agents"
)]
pub struct CommandLine {
    /// The action, if not serving.
    #[command(subcommand)]
    pub action: Option<Action>,
    /// The settings of the server.
    #[command(flatten)]
    pub settings: ServeFlags,
}

/// The actions besides serving.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Check the health of the coordinator at --listen; exit code 0 if it is healthy (for containers)
    Health,
    /// Copy the embedded store and the certificate into a new file; the coordinator may be running
    Backup {
        /// The file to write
        file: PathBuf,
    },
    /// Replace the store and the certificate with such a copy, while no coordinator is running; the replaced files are kept
    Restore {
        /// The file that `backup` wrote
        file: PathBuf,
        /// Restore it even if other users own it or could have changed it, as on a network share
        #[arg(long)]
        trust_file: bool,
    },
    /// Check the settings of pushes
    #[command(subcommand)]
    Notify(NotifyCommand),
    /// Show the audit in order, with actors, targets and reasons; times are in UTC
    Audit(AuditOptions),
    /// Send a command to the coordinator of this machine, over its control socket.
    #[command(flatten)]
    Admin(Admin),
}

/// The actions on pushes.
#[derive(Debug, Subcommand)]
pub enum NotifyCommand {
    /// Push to a person's phone, and wait until the button is tapped
    Test {
        /// The person, if there are several
        name: Option<String>,
    },
}

impl NotifyCommand {
    /// Does it. `report` prints the progress. Returns the output.
    pub async fn run(
        &self,
        settings: &ServeFlags,
        report: impl Fn(&str),
    ) -> anyhow::Result<String> {
        let Self::Test { name } = self;
        notify::test(settings, name.as_deref(), report).await
    }
}

/// An HTTP response.
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
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "localhost")
        .header(CONNECTION, "close");
    let request = request
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from(body))?;
    let exchange = async {
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
        let asking = async move {
            let response = sender.send_request(request).await?;
            let status = response.status();
            let body = to_bytes(Body::new(response.into_body()), ANSWER_MAX).await?;
            Ok(HttpAnswer {
                status,
                body: String::from_utf8(body.into())?,
            })
        };
        // An error of the connection also fails its request.
        let (answer, _) = tokio::join!(asking, connection);
        answer
    };
    timeout(deadline, exchange)
        .await
        .context("no answer in time")?
}
