//! Pushes by a real ntfy server: questions out, answers in.

mod answers;
mod bounds;
mod outages;
mod pages;
mod triage;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use c3po_shared::ids::CallId;
use harness::eventually::eventually;
use harness::http;
use harness::link::Link;
use harness::ntfy::{BUTTONS, COORDINATOR, Ntfy, QUESTIONS, REPLIES};
use harness::redis::Redis;
use harness::skip::skipped;
use inside::gate::Gate;
use serde_json::{Value, json};

/// How long a push or an answer may take that should be quick, on a machine that builds at the same time.
const SOON: Duration = Duration::from_secs(60);
/// How long a failed push takes until it is repeated: the claim of its duty, and the look of its coordinator.
const REPEATED: Duration = Duration::from_secs(60);

/// Writes the settings of one person into the data folder of a coordinator. `more` are further lines.
fn settings(folder: &Path, url: &str, more: &str) -> Result<()> {
    std::fs::write(folder.join("coordinator.token"), COORDINATOR)?;
    std::fs::write(folder.join("buttons.token"), BUTTONS)?;
    let text = format!(
        "[[person]]\nname = \"ann\"\nserver = \"{url}\"\ntopic = \"{QUESTIONS}\"\ntoken_file = \"coordinator.token\"\n\
         reply_topic = \"{REPLIES}\"\nreply_token_file = \"buttons.token\"\n{more}"
    );
    Ok(std::fs::write(folder.join("notify.toml"), text)?)
}

/// Settings without a grace, with buttons for verdicts.
const QUICK: &str = "grace = \"0s\"\nverdict_buttons = true\n";

/// A coordinator that pushes.
struct Scene {
    ntfy: Ntfy,
    gate: Gate,
    /// The token of a person's login.
    login: String,
    asker: Link,
    redis: Option<Redis>,
}

impl Scene {
    /// Starts a server and a coordinator with these settings. Returns `None` and reports that if ntfy is not installed.
    async fn start(test: &str, redis: Option<Redis>, more: &str) -> Result<Option<Self>> {
        let ntfy = match Ntfy::start().await {
            Ok(ntfy) => ntfy,
            Err(why) => return skipped(test, &why.to_string()).map(|()| None),
        };
        let url = ntfy.url();
        Self::with(ntfy, redis, &url, more).await.map(Some)
    }

    /// Starts a coordinator that pushes to that server by the URL.
    async fn with(ntfy: Ntfy, redis: Option<Redis>, url: &str, more: &str) -> Result<Self> {
        let store = redis
            .as_ref()
            .map(|redis| redis.url().parse())
            .transpose()?;
        let mut written = Ok(());
        let gate = Gate::start_with(|config| {
            config.is_open = true;
            config.store = store.unwrap_or_else(|| config.store.clone());
            config.public_url = Some("http://127.0.0.1:8420".to_owned());
            written = settings(&config.data_dir, url, more);
        });
        let gate = gate.await?;
        written?;
        let login = gate.login("person").await?;
        let asker = gate.served.join("homeassistant").await?;
        Ok(Self {
            ntfy,
            gate,
            login,
            asker,
            redis,
        })
    }

    /// Stops the coordinator. Returns the servers.
    async fn stop(self) -> Result<(Ntfy, Option<Redis>)> {
        drop(self.asker);
        self.gate.served.stop().await?;
        Ok((self.ntfy, self.redis))
    }

    /// Asks people a question in words. Returns its id.
    async fn ask(&mut self, text: &str) -> Result<String> {
        self.ask_with(json!({"target": "human", "message": text, "requires_response": true}))
            .await
    }

    async fn ask_with(&mut self, arguments: Value) -> Result<String> {
        let sent = self.asker.call("send_message", arguments).await?;
        Ok(sent["id"].as_str().context("an id")?.to_owned())
    }

    /// Asks people to choose, as a client does. Returns the id.
    async fn choose(&mut self, text: &str, options: &[&str]) -> Result<String> {
        let options = options.iter().enumerate();
        let options: Vec<Value> = options
            .map(|(at, label)| json!({"id": (at + 1).to_string(), "label": label}))
            .collect();
        let part = json!({"id": "q", "text": text, "options": &options, "allow_text": true});
        let labels: Vec<_> = options
            .iter()
            .map(|option| json!({"label": option["label"]}))
            .collect();
        let input = json!({"questions": [{"question": text, "options": labels}]}).to_string();
        let request = json!({"tool": "AskUserQuestion", "input": input});
        self.request(
            text,
            json!({"kind": "choice", "parts": [part], "request": request}),
        )
        .await
    }

    /// Asks people for a verdict on a command. Returns the id.
    async fn permission(&mut self, command: &str) -> Result<String> {
        let part = json!({"id": "q", "text": "Bash", "allow_text": true});
        let request = json!({"tool": "Bash", "input": command});
        self.request(
            "Bash",
            json!({"kind": "permission", "parts": [part], "request": request}),
        )
        .await
    }

    async fn request(&mut self, message: &str, question: Value) -> Result<String> {
        let arguments = json!({"message": message, "question": question});
        let sent = self.asker.call("request_permission", arguments).await?;
        Ok(sent["id"].as_str().context("an id")?.to_owned())
    }

    /// Waits for the only notification on the phone.
    async fn pushed(&self) -> Result<Value> {
        eventually("one push", SOON, async || {
            match &self.ntfy.shown().await.ok()?[..] {
                [push] => Some(push.clone()),
                _ => None,
            }
        })
        .await
    }

    /// Waits until the phone shows nothing.
    async fn nothing_shown(&self) -> Result<()> {
        eventually("no push is left", SOON, async || {
            self.ntfy.shown().await.ok()?.is_empty().then_some(())
        })
        .await
    }

    /// Waits for the answer as its asker does. Returns the reply.
    async fn answer(&mut self, question: &str) -> Result<Value> {
        let arguments = json!({"message_id": question, "timeout": 20});
        let waiting = self
            .asker
            .begin(CallId::fresh(), "wait_for_message", arguments)
            .await?;
        self.asker.end(waiting).await?.map_err(anyhow::Error::msg)
    }

    /// Returns a question as the REST interface shows it.
    async fn shown(&self, question: &str) -> Result<Value> {
        let (address, login) = (self.gate.address()?, &self.login);
        let request = format!(
            "GET /api/v1/questions/{question} HTTP/1.1
Host: {address}
Authorization: Bearer {login}
\
             Connection: close

"
        );
        let answer = http::request(address, &request).await?;
        ensure!(answer.status == 200, "{}", answer.body);
        let body: Value = serde_json::from_str(&answer.body)?;
        Ok(body["data"].clone())
    }

    /// Waits until the history of a question has this stage, and returns the step.
    async fn step(&self, question: &str, stage: &str) -> Result<Value> {
        eventually(stage, SOON, async || {
            let shown = self.shown(question).await.ok()?;
            let steps = shown["history"].as_array()?;
            steps.iter().find(|step| step["stage"] == stage).cloned()
        })
        .await
    }
}

/// Returns the button of a push with this label.
fn button<'a>(push: &'a Value, label: &str) -> Result<&'a Value> {
    let actions = push["actions"].as_array().context("buttons")?;
    let found = actions.iter().find(|action| action["label"] == label);
    found.with_context(|| format!("{push} has no button {label}"))
}

/// Returns the code for an answer in words.
fn code(push: &Value) -> Result<String> {
    let text = push["message"].as_str().context("a text")?;
    let (_, rest) = text
        .split_once("Answer in the reply topic: ")
        .context("a code")?;
    Ok(rest.chars().take(6).collect())
}
