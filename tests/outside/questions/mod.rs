//! The pages of questions in a real Chromium: a person answers on `/q/ID`, and the session that asked gets the answer.

mod answering;
mod correcting;
mod input;
mod led_here;
mod looks;
mod verdicts;

use anyhow::{Context, Result};
use harness::browser::{self, Browser};
use harness::coordinator::Coordinator;
use harness::http;
use harness::link::Link;
use harness::skip::skipped;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::login_page::{link, log_in};

/// Whether the page shows the end of the question.
const IS_OVER: &str = "document.querySelector('#outcome')";

/// A coordinator, a browser in which Ann has logged in, and an agent.
struct Desk {
    work: TempDir,
    coordinator: Coordinator,
    browser: Browser,
    token: String,
    agent: Link,
}

impl Desk {
    /// Opens one; `None` if this machine has no browser.
    async fn open() -> Result<Option<Self>> {
        Self::open_with(|coordinator| coordinator).await
    }

    /// Opens one with a changed coordinator.
    async fn open_with(change: impl Fn(Coordinator) -> Coordinator) -> Result<Option<Self>> {
        if !browser::is_installed() {
            skipped("questions", "chromium-driver is not installed")?;
            return Ok(None);
        }
        let work = TempDir::new()?;
        let store = format!("sqlite:{}", work.path().join("c3po.db").display());
        let mut coordinator = change(Coordinator::absent(work.path(), &store)?);
        coordinator.restart().await?;
        let browser = Browser::start(work.path()).await?;
        let link = link(work.path(), &coordinator).await?;
        let token = log_in(&browser, &coordinator.url(), &link).await?;
        let (agent, _) = Link::join(&coordinator.address().to_string(), "web").await?;
        Ok(Some(Self {
            work,
            coordinator,
            browser,
            token,
            agent,
        }))
    }

    /// Asks people in words. Returns the id of the question.
    async fn ask(&mut self, text: &str) -> Result<String> {
        let question = json!({"target": "human", "message": text, "requires_response": true});
        let sent = self.agent.call("send_message", question).await?;
        Ok(sent["id"].as_str().context("an id")?.to_owned())
    }

    /// Asks as the client of a session does. Returns the id of the question.
    async fn request(&mut self, kind: &str, parts: Value, request: Value) -> Result<String> {
        let question = json!({"kind": kind, "parts": parts, "request": request});
        let call = json!({"message": "May the tool run?", "question": question});
        let sent = self.agent.call("request_permission", call).await?;
        Ok(sent["id"].as_str().context("an id")?.to_owned())
    }

    /// Asks whether a command may run. Returns the id of the question.
    async fn request_bash(&mut self, command: &str) -> Result<String> {
        let rule = json!({"type": "addRules", "behavior": "allow", "destination": "localSettings",
            "rules": [{"toolName": "Bash", "ruleContent": "make:*"}]});
        let input = json!({"command": command}).to_string();
        let request = json!({"tool": "Bash", "input": input, "suggestions": [rule]});
        let part = json!([{"id": "1", "text": "May it run?", "allow_text": true}]);
        self.request("permission", part, request).await
    }

    /// Opens the page of a question, and waits until it shows it.
    async fn show(&self, id: &str) -> Result<()> {
        let url = format!("{}/q/{id}", self.coordinator.url());
        self.browser.open(&url).await?;
        self.browser
            .wait_for("document.querySelector('#text')")
            .await
    }

    /// Presses a button once it is active.
    async fn press(&self, button: &str) -> Result<()> {
        let active = format!("{button}:enabled");
        let is_active = format!("document.querySelector({})", json!(active));
        self.browser.wait_for(&is_active).await?;
        self.tap(button).await
    }

    /// Scrolls to an element, clear of the bar at the lower edge, and clicks on it.
    async fn tap(&self, element: &str) -> Result<()> {
        let found = format!("document.querySelector({})", json!(element));
        self.browser.wait_for(&found).await?;
        let scroll = format!("{found}.scrollIntoView({{block: 'center'}})");
        self.browser.run(&scroll).await?;
        self.browser.click(element).await
    }

    /// Makes the page send its next answer only after `window.go()`, and read nothing meanwhile: no event of another answer comes
    /// before its own is sent.
    async fn hold_answer(&self) -> Result<()> {
        let hold =
            "const real = fetch; window.fetch = (path, options) => new Promise((done, failed) => {
            if (!String(path).endsWith('/answer')) return new Promise(() => {});
            window.go = () => { window.fetch = real; real(path, options).then(done, failed); }; })";
        self.browser.run(hold).await.map(drop)
    }

    /// Waits until the page shows this text somewhere.
    async fn wait_for_text(&self, text: &str) -> Result<()> {
        let shown = format!("document.body.innerText.includes({})", json!(text));
        self.browser.wait_for(&shown).await
    }

    /// Returns a question as the coordinator has it.
    async fn stored(&self, id: &str) -> Result<Value> {
        let answer = self
            .send("GET", &format!("/api/v1/questions/{id}"), "")
            .await?;
        let body: Value = serde_json::from_str(&answer.body)?;
        Ok(body["data"].clone())
    }

    /// Sends a request with the login.
    async fn send(&self, method: &str, path: &str, body: &str) -> Result<http::Answer> {
        let address = self.coordinator.address();
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        );
        http::request(address, &text).await
    }

    /// Reports what became of a verdict, as the proxy of the session does.
    async fn conclude(&mut self, id: &str, stage: &str, via: &str) -> Result<()> {
        let call = json!({"message_id": id, "stage": stage, "via": via});
        self.agent.call("conclude", call).await.map(drop)
    }
}
