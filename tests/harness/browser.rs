//! A real Chromium without a window, driven by chromedriver over its HTTP protocol (WebDriver).

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::eventually::eventually;
use crate::http;
use crate::ports::free_port;
use crate::process::{Process, command};

/// The programs of the Debian packages `chromium` and `chromium-driver`.
const DRIVER: &str = "/usr/bin/chromedriver";
/// How long a step may take, on a machine that builds at the same time.
const STEP: Duration = Duration::from_secs(60);

/// A browser with a profile of its own. Dropping it ends it.
#[derive(Debug)]
pub struct Browser {
    _driver: Process,
    address: SocketAddr,
    session: String,
}

/// Returns whether this machine has the browser and its driver.
pub fn is_installed() -> bool {
    Path::new(DRIVER).exists()
}

impl Browser {
    /// Starts one with its files in `folder`.
    ///
    /// Errors: the programs are not installed or do not start.
    pub async fn start(folder: &Path) -> Result<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let mut driver = command(DRIVER, folder);
        driver.arg(format!("--port={}", address.port()));
        driver.stdin(Stdio::null()).stdout(Stdio::null());
        let driver = Process::start(driver, &folder.join("chromedriver.log"))?;
        eventually("the driver answers", STEP, async || {
            let text = format!("GET /status HTTP/1.1\r\nHost: {address}\r\n\r\n");
            http::request_of_length(address, &text, STEP).await.ok()
        })
        .await?;
        let profile = folder.join("profile");
        // With the pipe, it ends when its driver does.
        let options = json!({"args": ["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", format!("--user-data-dir={}", profile.display())]});
        let wished = json!({"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}});
        let made = tell(address, "/session", &wished).await?;
        let session = made["sessionId"].as_str().context("no session")?.to_owned();
        Ok(Self {
            _driver: driver,
            address,
            session,
        })
    }

    /// Loads a page, and waits until it is complete.
    ///
    /// Errors: it cannot be loaded.
    pub async fn open(&self, url: &str) -> Result<()> {
        self.tell("/url", &json!({"url": url})).await.map(drop)
    }

    /// Runs the body of an async function in the page. Returns its result.
    ///
    /// Errors: it throws.
    pub async fn run(&self, body: &str) -> Result<Value> {
        let script = format!(
            "const done = arguments[0]; (async () => {{ {body} }})().then(done, (error) => done('threw ' + error));"
        );
        self.tell("/execute/async", &json!({"script": script, "args": []}))
            .await
    }

    /// Waits until an expression is true in the page.
    ///
    /// Errors: it does not become true.
    pub async fn wait_for(&self, expression: &str) -> Result<()> {
        eventually(expression, STEP, async || {
            let found = self.run(&format!("return Boolean({expression})")).await;
            (found.ok()? == true).then_some(())
        })
        .await
    }

    /// Clicks on the element of a CSS selector as a person does.
    ///
    /// Errors: there is none, or it is hidden.
    pub async fn click(&self, selector: &str) -> Result<()> {
        let wished = json!({"using": "css selector", "value": selector});
        let found = self.tell("/element", &wished).await?;
        let element = found.as_object().and_then(|found| found.values().next());
        let element = element.and_then(Value::as_str).context("no element")?;
        let path = format!("/element/{element}/click");
        self.tell(&path, &json!({})).await.map(drop)
    }

    /// Sets the size of the window.
    ///
    /// Errors: the browser refuses.
    pub async fn resize(&self, width: u32, height: u32) -> Result<()> {
        let size = json!({"width": width, "height": height});
        self.tell("/window/rect", &size).await.map(drop)
    }

    async fn tell(&self, path: &str, body: &Value) -> Result<Value> {
        tell(
            self.address,
            &format!("/session/{}{path}", self.session),
            body,
        )
        .await
    }
}

/// A web server that answers every request with an empty page, as an agent's development server might. It stops when the guard is dropped.
///
/// Errors: there is no free port.
pub async fn development_server() -> Result<(SocketAddr, DropGuard)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (address, stop) = (listener.local_addr()?, CancellationToken::new());
    let guard = stop.clone().drop_guard();
    let serving = async move {
        while let Some(Ok((mut stream, _))) = stop.run_until_cancelled(listener.accept()).await {
            let mut request = [0; 4096];
            // A browser that leaves early needs no answer.
            let _ = stream.read(&mut request).await;
            let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 28\r\nConnection: close\r\n\r\n\
                        <!doctype html><body></body>";
            let _ = stream.write_all(page.as_bytes()).await;
        }
    };
    TaskTracker::new().spawn(serving);
    Ok((address, guard))
}

async fn tell(address: SocketAddr, path: &str, body: &Value) -> Result<Value> {
    let body = body.to_string();
    let text = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = http::request_of_length(address, &text, STEP).await?;
    let said: Value = serde_json::from_str(&answer.body).with_context(|| answer.body.clone())?;
    ensure!(answer.status == 200, "{path}: {said}");
    Ok(said["value"].clone())
}
