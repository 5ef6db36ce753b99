//! A real Chromium without a window, driven by chromedriver over its HTTP protocol (WebDriver).

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::claude::cache;
use crate::eventually::eventually;
use crate::http;
use crate::ports::free_port;
use crate::process::{Process, command};

/// The programs of the Debian packages `chromium` and `chromium-driver`.
const DRIVER: &str = "/usr/bin/chromedriver";
/// The version of axe-core, the checks of accessibility.
pub const AXE: &str = "4.14.1";
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

    /// Waits until an expression is true in the page. The page itself looks, for a second at a time: a command of WebDriver
    /// costs three processes some milliseconds.
    ///
    /// Errors: it does not become true.
    pub async fn wait_for(&self, expression: &str) -> Result<()> {
        let looks = format!(
            "for (let look = 0; look < 50; look += 1) {{
                if ({expression}) return true;
                await new Promise((next) => setTimeout(next, 20));
            }}
            return false;"
        );
        eventually(expression, STEP, async || {
            let found = self.run(&looks).await;
            (found.ok()? == true).then_some(())
        })
        .await
    }

    /// Clicks on the element of a CSS selector as a person does.
    ///
    /// Errors: there is none, or it is hidden.
    pub async fn click(&self, selector: &str) -> Result<()> {
        let path = format!("/element/{}/click", self.element(selector).await?);
        self.tell(&path, &json!({})).await.map(drop)
    }

    /// Clicks at a place of the window, so many times, with a pause before each.
    ///
    /// Errors: the browser refuses.
    pub async fn click_at(&self, (x, y): (f64, f64), times: usize, pause: Duration) -> Result<()> {
        let one = [
            json!({"type": "pointerMove", "duration": 0, "x": x.round(), "y": y.round()}),
            json!({"type": "pause", "duration": pause.as_millis()}),
            json!({"type": "pointerDown", "button": 0}),
            json!({"type": "pointerUp", "button": 0}),
        ];
        let mouse = json!({"type": "pointer", "id": "mouse", "actions": vec![one; times].concat()});
        self.tell("/actions", &json!({"actions": [mouse]}))
            .await
            .map(drop)
    }

    /// Types into the element of a CSS selector. Keys without a character are those of WebDriver.
    ///
    /// Errors: there is none, or it takes no text.
    pub async fn type_into(&self, selector: &str, text: &str) -> Result<()> {
        let path = format!("/element/{}/value", self.element(selector).await?);
        self.tell(&path, &json!({"text": text})).await.map(drop)
    }

    async fn element(&self, selector: &str) -> Result<String> {
        let wished = json!({"using": "css selector", "value": selector});
        let found = self.tell("/element", &wished).await?;
        let element = found.as_object().and_then(|found| found.values().next());
        let element = element.and_then(Value::as_str).context("no element")?;
        Ok(element.to_owned())
    }

    /// Sets the size of the window.
    ///
    /// Errors: the browser refuses.
    pub async fn resize(&self, width: u32, height: u32) -> Result<()> {
        let size = json!({"width": width, "height": height});
        self.tell("/window/rect", &size).await.map(drop)
    }

    /// Makes it a screen of that size with that colour scheme, `light` or `dark`. A window has a least width; this has none.
    ///
    /// Errors: the browser refuses.
    pub async fn imitate(&self, (width, height): (u32, u32), scheme: &str) -> Result<()> {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        let scheme = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        for (cmd, params) in [
            ("Emulation.setDeviceMetricsOverride", size),
            ("Emulation.setEmulatedMedia", scheme),
        ] {
            let wished = json!({"cmd": cmd, "params": params});
            self.tell("/goog/cdp/execute", &wished).await?;
        }
        Ok(())
    }

    /// Returns the violations of the rules of accessibility on the page, each with the elements; `None` if axe-core is not
    /// installed.
    ///
    /// Errors: the check does not run.
    pub async fn inaccessible(&self) -> Result<Option<Vec<String>>> {
        let path = cache()?.join(format!("axe-core-{AXE}/node_modules/axe-core/axe.min.js"));
        if !path.is_file() {
            return Ok(None);
        }
        let axe = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let check = "const {violations} = await axe.run(document); return violations.map((one) =>
            one.id + ': ' + one.nodes.map((node) => node.html.slice(0, 200)).join(' | '))";
        let found = self.run(&format!("{axe};\n{check}")).await?;
        let found = serde_json::from_value(found.clone());
        Ok(Some(found.context("axe-core found an error")?))
    }

    /// Returns whether a dialog box of the page is open.
    ///
    /// Errors: the browser does not answer.
    pub async fn has_box(&self) -> Result<bool> {
        let text = format!(
            "GET /session/{}/alert/text HTTP/1.1\r\nHost: {}\r\n\r\n",
            self.session, self.address
        );
        let answer = http::request_of_length(self.address, &text, STEP).await?;
        Ok(answer.status == 200)
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
    let page = |_: &str| "Content-Type: text/html\r\n\r\n<!doctype html><body></body>".to_owned();
    foreign_server(SocketAddr::from(([127, 0, 0, 1], 0)), page).await
}

/// A web server with the answers of `answer` to the first lines of requests: further headers, an empty line and the content. It
/// stops when the guard is dropped.
///
/// Errors: the port is taken.
pub async fn foreign_server(
    address: SocketAddr,
    answer: impl Fn(&str) -> String + Send + Sync + 'static,
) -> Result<(SocketAddr, DropGuard)> {
    let listener = TcpListener::bind(address).await?;
    let (address, stop) = (listener.local_addr()?, CancellationToken::new());
    let (guard, tasks, answer) = (
        stop.clone().drop_guard(),
        TaskTracker::new(),
        Arc::new(answer),
    );
    let connections = tasks.clone();
    let serving = async move {
        while let Some(Ok((stream, _))) = stop.run_until_cancelled(listener.accept()).await {
            let (stop, answer) = (stop.clone(), Arc::clone(&answer));
            connections.spawn(async move {
                stop.run_until_cancelled(respond(stream, answer.as_ref()))
                    .await
            });
        }
    };
    tasks.spawn(serving);
    Ok((address, guard))
}

/// Answers one request. A browser that leaves early needs no answer.
async fn respond(mut stream: TcpStream, answer: &(impl Fn(&str) -> String + Sync)) {
    let mut request = [0; 4096];
    let length = stream.read(&mut request).await.unwrap_or_default();
    let request = String::from_utf8_lossy(&request[..length]).into_owned();
    let answer = answer(request.lines().next().unwrap_or_default());
    let answer = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n{answer}");
    let _ = stream.write_all(answer.as_bytes()).await;
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
