//! A real ntfy server for one test: private topics for questions and answers, and the tokens of a coordinator and a phone.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::claude::cache;
use crate::eventually::eventually;
use crate::http::{self, Answer};
use crate::ports::free_port;

/// The token of the coordinator, which reads and writes all topics that begin with `c3po-`.
pub const COORDINATOR: &str = "tk_aaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
/// The token of the buttons, which may only write to [`REPLIES`].
pub const BUTTONS: &str = "tk_bbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
/// The token of the phone, which reads [`QUESTIONS`] and writes to [`REPLIES`].
pub const PHONE: &str = "tk_ccccccccccccccccccccccccccccc";
/// The topic of questions.
pub const QUESTIONS: &str = "c3po-ask";
/// The topic of answers.
pub const REPLIES: &str = "c3po-reply";

/// The hash of a password that is not used.
const HASH: &str = "$2a$10$N0XaCrBLObzN8fsutQDzd.yQDIrge2.J4Gi57WYa.BEGhHFXMItAK";
/// How long a server may take to respond after its start, on a machine that builds at the same time.
const START_LIMIT: Duration = Duration::from_secs(20);

/// A running server.
#[derive(Debug)]
pub struct Ntfy {
    program: PathBuf,
    port: u16,
    folder: TempDir,
    child: Option<Child>,
}

impl Ntfy {
    /// Starts a server that can update and delete messages.
    ///
    /// Errors: it is not installed in the tests' cache, which is the reason for a skipped test, or does not start.
    pub async fn start() -> Result<Self> {
        let program = cache()?.join("ntfy/usr/bin/ntfy");
        if !program.is_file() {
            bail!("ntfy is not installed; `make test` installs it on Debian");
        }
        Self::start_program(program, &private()).await
    }

    /// Starts an older server, which can neither update nor delete messages, and takes no users in its file: each topic is open.
    ///
    /// Errors: as for [`Self::start`].
    pub async fn start_older() -> Result<Self> {
        let program = cache()?.join("ntfy-older/usr/bin/ntfy");
        if !program.is_file() {
            bail!("an older ntfy is not installed; `make test` installs it on Debian");
        }
        Self::start_program(program, "").await
    }

    /// Starts a server on which anyone can read and write every topic.
    ///
    /// Errors: as for [`Self::start`].
    pub async fn start_public() -> Result<Self> {
        let program = cache()?.join("ntfy/usr/bin/ntfy");
        let settings = private().replace("deny-all", "read-write");
        Self::start_program(program, &settings).await
    }

    async fn start_program(program: PathBuf, settings: &str) -> Result<Self> {
        let (port, folder) = (free_port()?, tempfile::tempdir()?);
        fs::write(
            folder.path().join("server.yml"),
            configuration(port, folder.path(), settings),
        )?;
        let mut server = Self {
            program,
            port,
            folder,
            child: None,
        };
        server.begin().await?;
        Ok(server)
    }

    /// Starts the server again, with the messages that it had.
    ///
    /// Errors: it does not respond in time.
    pub async fn begin(&mut self) -> Result<()> {
        let log = File::create(self.folder.path().join("log"))?;
        let child = Command::new(&self.program)
            .args(["serve", "--config"])
            .arg(self.folder.path().join("server.yml"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting ntfy")?;
        self.child = Some(child);
        let address = self.address();
        eventually("ntfy responds", START_LIMIT, async || {
            http::get(address, "/v1/health")
                .await
                .ok()
                .filter(|answer| answer.status == 200)
        })
        .await
        .map(drop)
    }

    /// Kills the server. Its port refuses connections then.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Returns its URL.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns everything that was sent to a topic, oldest first, including deletions.
    ///
    /// Errors: it does not respond.
    pub async fn messages(&self, topic: &str) -> Result<Vec<Value>> {
        let address = self.address();
        let request = format!(
            "GET /{topic}/json?poll=1&since=all HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
             Authorization: Bearer {COORDINATOR}\r\n\r\n"
        );
        let answer = http::request(address, &request).await?;
        ensure!(answer.status == 200, "{}", answer.body);
        let lines = answer.body.lines().filter(|line| !line.is_empty());
        lines.map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    /// Returns the notifications that a phone shows: the last state of each that is not deleted.
    ///
    /// Errors: it does not respond.
    pub async fn shown(&self) -> Result<Vec<Value>> {
        let mut shown: Vec<Value> = Vec::new();
        for message in self.messages(QUESTIONS).await? {
            let sequence = &message["sequence_id"];
            shown.retain(|known| sequence.is_null() || known["sequence_id"] != *sequence);
            if message["event"] == "message" {
                shown.push(message);
            }
        }
        Ok(shown)
    }

    /// Sends a text to a topic with a token.
    ///
    /// Errors: it does not respond.
    pub async fn send(&self, topic: &str, token: &str, text: &str) -> Result<Answer> {
        let authorization = format!("Bearer {token}");
        let headers = [("Authorization", authorization.as_str())];
        http::post(self.address(), &format!("/{topic}"), &headers, text).await
    }

    /// Sends the request of a button, as a phone does at a tap.
    ///
    /// Errors: it is not such a button, or the server refuses the request.
    pub async fn tap(&self, action: &Value) -> Result<()> {
        let text = |value: &Value| value.as_str().map(str::to_owned).context("a text");
        ensure!(
            action["action"] == "http" && action["method"] == "POST",
            "{action}"
        );
        let url = text(&action["url"])?;
        let topic = url.strip_prefix(&self.url()).context("of this server")?;
        let authorization = text(&action["headers"]["Authorization"])?;
        let token = authorization.strip_prefix("Bearer ").context("a token")?;
        let answer = self
            .send(&topic[1..], token, &text(&action["body"])?)
            .await?;
        ensure!(answer.status == 200, "{}", answer.body);
        Ok(())
    }
}

impl Drop for Ntfy {
    fn drop(&mut self) {
        self.kill();
    }
}

fn private() -> String {
    format!(
        "auth-default-access: deny-all\n\
         auth-users: [\"c3po:{HASH}:user\", \"buttons:{HASH}:user\", \"phone:{HASH}:user\"]\n\
         auth-access: [\"c3po:c3po-*:rw\", \"buttons:{REPLIES}:wo\", \"phone:{QUESTIONS}:ro\", \"phone:{REPLIES}:wo\"]\n\
         auth-tokens: [\"c3po:{COORDINATOR}:c\", \"buttons:{BUTTONS}:b\", \"phone:{PHONE}:p\"]\n"
    )
}

fn configuration(port: u16, folder: &Path, settings: &str) -> String {
    let folder = folder.display();
    let users = if settings.is_empty() {
        String::new()
    } else {
        format!("auth-file: \"{folder}/user.db\"\n{settings}")
    };
    format!(
        "listen-http: \"127.0.0.1:{port}\"\nbase-url: \"http://127.0.0.1:{port}\"\n\
         cache-file: \"{folder}/cache.db\"\nvisitor-request-limit-exempt-hosts: \"127.0.0.1\"\n\
         visitor-subscription-limit: 200\nkeepalive-interval: \"5s\"\n{users}"
    )
}
