//! Sessions, each with a real proxy. They ask, answer, read and acknowledge, and some of them are restarted.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use harness::dice::Dice;
use harness::mcp::{McpClient, ToolResult};
use harness::proxy::{prompt, session};
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::samples::{Roster, Traffic, failure};
use super::waits::{Alarm, OngoingWait, Picture};

/// One session in this number is restarted periodically.
const RESTARTED: usize = 5;
/// How long such a session lives.
const SESSION_LIFE: Duration = Duration::from_secs(120);
/// A proxy sends its goodbye within 100 ms; the rest is for a busy machine.
const GOODBYE: Duration = Duration::from_secs(10);
/// The timeout of a wait.
const WAIT_SECONDS: u64 = 20;
/// Deadline of a wait's answer.
const WAIT_END: Duration = Duration::from_secs(WAIT_SECONDS + 20);
/// The pause of a session after an error.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a person leaves a session alone, in seconds: shortest and longest.
const PERSON_AWAY: (u64, u64) = (60, 240);
/// The code of a wait that would close a cycle.
const CYCLE: &str = "WOULD_DEADLOCK";
/// One action in this number is a broadcast to all agents.
const BROADCAST_ONE_IN: usize = 400;

/// The shared state of all sessions.
#[derive(Debug, Clone)]
pub(crate) struct Sessions {
    work: PathBuf,
    urls: Arc<[String]>,
    crowd: usize,
    roster: Arc<Roster>,
    traffic: Arc<Traffic>,
    picture: Arc<Picture>,
}

impl Sessions {
    pub(crate) fn new(
        work: &Path,
        urls: Vec<String>,
        crowd: usize,
        roster: Arc<Roster>,
        traffic: Arc<Traffic>,
    ) -> Self {
        Self {
            work: work.to_owned(),
            urls: urls.into(),
            crowd,
            roster,
            traffic,
            picture: Arc::default(),
        }
    }

    /// Runs one session after another under one name, until it is stopped.
    pub(crate) async fn live(self, number: usize, count: usize, stop: CancellationToken) {
        let name = name_of(number);
        let mut chance = Dice::new(number as u64 + 1);
        let mut lives = 0_u32;
        while !stop.is_cancelled() {
            if let Err(error) = self
                .one_life(&name, number, count, lives, &mut chance, &stop)
                .await
            {
                self.traffic
                    .count(failure("sessions: a session", &format!("{error:#}")));
                sleep(PAUSE).await;
            }
            lives += 1;
        }
    }

    async fn one_life(
        &self,
        name: &str,
        number: usize,
        count: usize,
        lives: u32,
        chance: &mut Dice,
        stop: &CancellationToken,
    ) -> Result<()> {
        // Each session begins with another coordinator, and knows the others.
        let mut urls = self.urls.to_vec();
        urls.rotate_left(number % self.urls.len());
        // A hook finds the proxy by its folder, because all sessions here have the same client: this process.
        let work = self.work.join(name);
        let mut client = session(&work, name, &urls.join(",")).await?.quietly();
        let process = format!("proxy-{number}");
        self.roster.enter(&process, client.process().id()?);
        let restarts = number % RESTARTED == RESTARTED - 1;
        let life = async {
            if restarts {
                sleep(SESSION_LIFE).await
            } else {
                std::future::pending().await
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = life => {}
            never = self.answer_questions(&client) => match never {},
            never = self.do_things(&client, number, count, chance) => match never {},
            never = self.be_typed_into(&work, number) => match never {},
        }
        self.roster.leave(&process);
        if restarts && !lives.is_multiple_of(3) {
            self.traffic.count("sessions: killed");
            return client.process().kill().await;
        }
        self.traffic.count("sessions: ended");
        let status = client.end(GOODBYE).await?;
        ensure!(status.success(), "a proxy ended with {status}");
        Ok(())
    }

    /// Types a prompt into the session periodically, as a person would.
    async fn be_typed_into(&self, work: &Path, number: usize) -> std::convert::Infallible {
        let mut chance = Dice::new(1_000 + number as u64);
        loop {
            sleep(chance.millis(PERSON_AWAY.0 * 1_000, PERSON_AWAY.1 * 1_000)).await;
            self.traffic.count("sessions: prompts");
            self.note("a prompt", prompt(work, "go on").await).await;
        }
    }

    /// Answers all questions.
    async fn answer_questions(&self, client: &McpClient) -> std::convert::Infallible {
        loop {
            let answered = async {
                let got = wait(client, json!({"kind": "message", "timeout": WAIT_SECONDS})).await?;
                if got["requires_response"] == true {
                    client
                        .reply(
                            "reply",
                            json!({"message_id": got["id"], "response": "so it is"}),
                        )
                        .await?;
                    self.traffic.count("sessions: answers given");
                }
                anyhow::Ok(())
            };
            self.note("answering", answered.await).await;
        }
    }

    /// Performs one action after another, with pauses.
    async fn do_things(
        &self,
        client: &McpClient,
        number: usize,
        count: usize,
        chance: &mut Dice,
    ) -> std::convert::Infallible {
        let mut asked = Value::Null;
        loop {
            sleep(chance.millis(500, 3_000)).await;
            let deed = chance.below(10);
            let done = async {
                match deed {
                    0..=4 => {
                        let other = (number + 1 + chance.below(count - 1)) % count;
                        asked = self.ask(client, &name_of(number), &name_of(other)).await?;
                    }
                    5 => read_and_acknowledge(client).await?,
                    6 => drop(client.reply("list_agents", json!({"limit": 20})).await?),
                    7 if asked.is_string() => {
                        client
                            .reply("get_thread", json!({"message_id": asked}))
                            .await?;
                        client
                            .reply("message_status", json!({"message_id": asked}))
                            .await?;
                    }
                    8 => {
                        let target = format!("agent-{}", chance.below(self.crowd));
                        let news = json!({"target": target, "message": "news", "requires_response": false});
                        client.reply("send_message", news).await?;
                    }
                    _ => drop(
                        client
                            .reply(
                                "set_status",
                                json!({"status": "busy", "current_task": "soaking"}),
                            )
                            .await?,
                    ),
                }
                if chance.below(BROADCAST_ONE_IN) == 0 {
                    client
                        .reply("broadcast", json!({"message": "backup at ten"}))
                        .await?;
                    self.traffic.count("sessions: broadcasts");
                }
                anyhow::Ok(())
            };
            self.note("doing", done.await).await;
        }
    }

    /// Asks, and waits for the answer. Returns the question's id.
    async fn ask(&self, client: &McpClient, own: &str, other: &str) -> Result<Value> {
        let question = client
            .reply(
                "send_message",
                json!({"target": other, "message": "is it so?", "title": "a question"}),
            )
            .await?;
        let waiting = self.picture.begin(own, other);
        let arguments = json!({"message_id": question["id"], "timeout": WAIT_SECONDS});
        let result = wait_result(client, arguments).await?;
        let answer = result.json()?;
        let what = match answer["timeout"].as_bool() {
            _ if answer["code"] == CYCLE => judge(&waiting, &answer)?,
            _ if result.is_error => bail!("a wait was refused: {}", result.text),
            // The other session may just have been restarted, and answer later.
            Some(true) => "sessions: questions without an answer in time",
            _ => "sessions: questions answered",
        };
        ensure!(!waiting.end(), "a wait was in a cycle that did not end");
        self.traffic.count(what);
        Ok(question["id"].clone())
    }

    async fn note(&self, what: &str, outcome: Result<()>) {
        if let Err(error) = outcome {
            let error = format!("{error:#}");
            let reason = error
                .split("the server's log")
                .next()
                .unwrap_or_default()
                .chars()
                .take(400)
                .collect::<String>();
            self.traffic
                .count(failure(&format!("sessions: {what}"), &reason));
            sleep(PAUSE).await;
        }
    }
}

fn name_of(number: usize) -> String {
    format!("session-{number}")
}

/// Judges a refusal as a cycle, by the picture. Returns the name of its count.
///
/// Errors: it is a false alarm.
fn judge(waiting: &OngoingWait<'_>, refusal: &Value) -> Result<&'static str> {
    let cycle: Vec<String> = serde_json::from_value(refusal["details"]["cycle"].clone())?;
    match waiting.judge(&cycle) {
        Alarm::True => Ok("sessions: wait cycles refused"),
        Alarm::OfCancelledWait => {
            Ok("sessions: wait cycles refused, of a wait cancelled within 30 s")
        }
        Alarm::False => bail!("a FALSE ALARM: {refusal}"),
    }
}

async fn wait_result(client: &McpClient, arguments: Value) -> Result<ToolResult> {
    let id = client.begin_call("wait_for_message", arguments).await?;
    client.call_result(id, WAIT_END).await.context("a wait")
}

async fn wait(client: &McpClient, arguments: Value) -> Result<Value> {
    let result = wait_result(client, arguments).await?;
    ensure!(!result.is_error, "a wait was refused: {}", result.text);
    result.json()
}

async fn read_and_acknowledge(client: &McpClient) -> Result<()> {
    let inbox = client.reply("get_messages", json!({"limit": 50})).await?;
    // Questions are left to the answering task.
    let read = inbox["messages"].as_array().into_iter().flatten();
    let ids: Vec<_> = read
        .filter(|one| one["requires_response"] != true)
        .map(|one| one["id"].clone())
        .collect();
    if !ids.is_empty() {
        client
            .reply("ack_messages", json!({"message_ids": ids}))
            .await?;
    }
    Ok(())
}
