//! A person who has logged in, and answers questions over REST.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::coordinator::Coordinator;
use crate::eventually::eventually;
use crate::http;
use crate::process::{command, program};

/// How long a question may take to be there.
const SOON: Duration = Duration::from_secs(60);

/// A person with a login.
#[derive(Debug, Clone)]
pub struct Person {
    address: SocketAddr,
    token: String,
}

impl Person {
    /// Logs in with a code that the coordinator's own command makes.
    ///
    /// Errors: no code is made, or it is refused.
    pub async fn log_in(
        work: &Path,
        coordinator: &Coordinator,
        name: &str,
        scope: &str,
    ) -> Result<Self> {
        Self::log_in_with(
            command(program("c3po-coordinator")?, work),
            coordinator,
            name,
            scope,
        )
        .await
    }

    /// Does the same with a coordinator whose data folder is `folder`.
    ///
    /// Errors: as for [`Self::log_in`].
    pub async fn log_in_at(
        folder: &Path,
        coordinator: &Coordinator,
        name: &str,
        scope: &str,
    ) -> Result<Self> {
        let mut program = command(program("c3po-coordinator")?, folder);
        program.env("C3PO_DATA_DIR", folder);
        Self::log_in_with(program, coordinator, name, scope).await
    }

    async fn log_in_with(
        mut program: Command,
        coordinator: &Coordinator,
        name: &str,
        scope: &str,
    ) -> Result<Self> {
        let address = coordinator.address();
        let listen = address.to_string();
        program.args([
            "login", name, "--scope", scope, "--json", "--listen", &listen,
        ]);
        let made = program.output().await?;
        let made: Value = serde_json::from_slice(&made.stdout)
            .with_context(|| String::from_utf8_lossy(&made.stderr).into_owned())?;
        let body = json!({"code": made["code"]}).to_string();
        let answer = http::post(address, "/api/v1/login", &[], &body).await?;
        let answer: Value = serde_json::from_str(&answer.body)?;
        let token = answer["data"]["token"].as_str();
        Ok(Self {
            address,
            token: token.with_context(|| answer.to_string())?.to_owned(),
        })
    }

    /// Returns the same person at another coordinator of the fleet.
    #[must_use]
    pub fn at(&self, address: SocketAddr) -> Self {
        let token = self.token.clone();
        Self { address, token }
    }

    /// Returns the open questions.
    ///
    /// Errors: the coordinator refuses.
    pub async fn questions(&self) -> Result<Vec<Value>> {
        let data = self.get("/api/v1/questions").await?;
        Ok(data["questions"].as_array().cloned().unwrap_or_default())
    }

    /// Waits for an open question whose text contains `part`.
    ///
    /// Errors: it does not come in time.
    pub async fn question(&self, part: &str) -> Result<Value> {
        eventually(&format!("the question {part}"), SOON, async || {
            let questions = self.questions().await.ok()?;
            questions.into_iter().find(|one| {
                one["message"]
                    .as_str()
                    .is_some_and(|text| text.contains(part))
            })
        })
        .await
    }

    /// Returns the stages of a question, each as `stage` or `stage via`.
    ///
    /// Errors: there is no such question.
    pub async fn stages(&self, id: &str) -> Result<Vec<String>> {
        let shown = self.get(&format!("/api/v1/questions/{id}")).await?;
        let steps = shown["history"].as_array().context("no history")?;
        let step = |step: &Value| {
            let words =
                [&step["stage"], &step["via"]].map(|word| word.as_str().unwrap_or_default());
            words.join(" ").trim_end().to_owned()
        };
        Ok(steps.iter().map(step).collect())
    }

    /// Returns the reply to a question; null without one.
    ///
    /// Errors: there is no such question.
    pub async fn reply(&self, id: &str) -> Result<Value> {
        let shown = self.get(&format!("/api/v1/questions/{id}")).await?;
        Ok(shown["reply"].clone())
    }

    /// Waits until a question has reached a stage. Returns its stages.
    ///
    /// Errors: it does not reach the stage in time.
    pub async fn reaches(&self, id: &str, stage: &str) -> Result<Vec<String>> {
        let (mut last, what) = (Vec::new(), format!("{id} {stage}"));
        let reached = eventually(&what, SOON, async || {
            last = self.stages(id).await.ok()?;
            let is_it = |step: &String| step.split(' ').next() == Some(stage);
            last.iter().any(is_it).then(|| last.clone())
        });
        reached
            .await
            .with_context(|| format!("its stages: {last:?}"))
    }

    /// Gives a verdict on a request of a client, with more members of the answer or of the verdict. Returns the status and
    /// the body.
    ///
    /// Errors: the coordinator does not respond.
    pub async fn decide(
        &self,
        question: &Value,
        decision: &str,
        more: &Value,
    ) -> Result<(u16, Value)> {
        let hash = &question["question"]["request"]["hash"];
        let mut body = json!({"verdict": {"decision": decision, "request_hash": hash}});
        for (name, value) in more.as_object().into_iter().flatten() {
            if name == "parts" {
                body[name] = value.clone();
            } else {
                body["verdict"][name] = value.clone();
            }
        }
        self.post_answer(question, &body).await
    }

    /// Answers a question with these parts. Returns the status and the body.
    ///
    /// Errors: the coordinator does not respond.
    pub async fn answer(&self, question: &Value, parts: &Value) -> Result<(u16, Value)> {
        self.post_answer(question, &json!({"parts": parts})).await
    }

    async fn post_answer(&self, question: &Value, body: &Value) -> Result<(u16, Value)> {
        let id = question["id"].as_str().context("an id")?;
        let path = format!("/api/v1/questions/{id}/answer");
        let bearer = format!("Bearer {}", self.token);
        let headers = [("Authorization", bearer.as_str())];
        let answer = http::post(self.address, &path, &headers, &body.to_string()).await?;
        Ok((answer.status, serde_json::from_str(&answer.body)?))
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let (address, token) = (self.address, &self.token);
        let text = format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        );
        let answer = http::request(address, &text).await?;
        ensure!(answer.status == 200, "{path}: {}", answer.body);
        let body: Value = serde_json::from_str(&answer.body)?;
        Ok(body["data"].clone())
    }
}
