//! The right of a triage agent goes with its name and its host: the next holder of a name that became free gets
//! nothing.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use c3po_coordinator::store::Removal;
use c3po_shared::ids::AgentId;
use harness::eventually::eventually;
use harness::http;
use harness::link::{Link, Who};
use harness::redis::Redis;
use inside::gate::Gate;
use serde_json::{Value, json};

use super::triage::{SOON, inbox, offer};

/// How many questions are asked: with two agents that may have them, each would get some.
const QUESTIONS: usize = 4;

/// A coordinator that requires keys, with the triage agent `helper` of the host `vic`, another one of `nas`, and a host `evil`.
struct Scene {
    gate: Gate,
    helper: Link,
    second: Link,
    asker: Link,
    evil: String,
    _redis: Option<Redis>,
}

impl Scene {
    async fn start(redis: Option<Redis>) -> Result<Self> {
        let store = redis.as_ref().map(|redis| redis.url().parse());
        let store = store.transpose()?;
        let mut written = Ok(());
        let gate = Gate::start_with(|config| {
            config.store = store.unwrap_or_else(|| config.store.clone());
            written = name(&config.data_dir, &["helper@vic", "second@nas"]);
        });
        let gate = gate.await?;
        written?;
        let (vic, nas) = (key(&gate, "vic").await?, key(&gate, "nas").await?);
        Ok(Self {
            helper: session(&gate, &vic, "helper").await?,
            second: session(&gate, &nas, "second").await?,
            asker: session(&gate, &vic, "asker").await?,
            evil: key(&gate, "evil").await?,
            gate,
            _redis: redis,
        })
    }

    async fn each() -> Result<[Self; 2]> {
        let redis = Redis::start().await?;
        Ok([Self::start(None).await?, Self::start(Some(redis)).await?])
    }

    async fn ask(&mut self) -> Result<String> {
        let call = json!({"question": "Which pin?", "options": ["1", "2"], "wait": false});
        let sent = self.asker.call("ask_user", call).await?;
        Ok(sent["id"].as_str().context("an id")?.to_owned())
    }

    /// Asks until the agent `helper` gets an offer. Returns it.
    async fn ask_helper(&mut self) -> Result<Value> {
        for _ in 0..QUESTIONS {
            let question = self.ask().await?;
            let offered = tokio::select! {
                offered = offer(&mut self.helper, &question) => Some(offered?),
                offered = offer(&mut self.second, &question) => { offered?; None }
            };
            if let Some(offered) = offered {
                return Ok(offered);
            }
        }
        anyhow::bail!("the other agent gets every question")
    }

    /// Waits until a policy that names this agent is in force.
    async fn in_force(&self, agent: &str) -> Result<()> {
        let operator = self.gate.login("operator").await?;
        let address = self.gate.address()?;
        let request = format!(
            "GET /api/policy HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {operator}\r\nConnection: close\r\n\r\n"
        );
        eventually("the policy is in force", SOON, async || {
            let answer = http::request(address, &request).await.ok()?;
            answer.body.contains(agent).then_some(())
        })
        .await
    }

    /// Asks several questions, and checks that the other triage agent gets all of them.
    async fn check_only_second(&mut self) -> Result<()> {
        for _ in 0..QUESTIONS {
            let question = self.ask().await?;
            offer(&mut self.second, &question).await?;
        }
        Ok(())
    }

    /// Ends the session of the agent `helper` and frees its name, as time does after it was away for long.
    async fn free_name(&mut self) -> Result<()> {
        self.helper.notify("goodbye", json!({})).await?;
        let (helper, store): (AgentId, _) = ("helper".parse()?, &self.gate.served.store);
        eventually("the name is free", SOON, async || {
            let removal = store.remove(&helper, None, true, None).await;
            (removal.ok()? == Removal::Removed).then_some(())
        })
        .await
    }
}

/// Writes a policy that names these agents for triage.
fn name(folder: &Path, agents: &[&str]) -> std::io::Result<()> {
    let text = format!("[triage]\nagents = {agents:?}\n");
    fs::write(folder.join("policy.toml"), text)
}

async fn key(gate: &Gate, host: &str) -> Result<String> {
    gate.key("agent", "*", &["--host", host]).await
}

/// Opens the session of a key, which gets exactly that name.
async fn session(gate: &Gate, key: &str, name: &str) -> Result<Link> {
    let mut link = Link::open_with(&gate.served.address, Some(key)).await?;
    let welcome = link.hello(&Who::new(name)).await?;
    let welcome = welcome.map_err(|error| anyhow::anyhow!("{error}"))?;
    assert_eq!(welcome["agent_id"], name);
    Ok(link)
}

#[tokio::test]
async fn the_next_holder_of_the_name_of_a_triage_agent_gets_no_right() -> Result<()> {
    for mut scene in Scene::each().await? {
        let offered = scene.ask_helper().await?;
        scene.free_name().await?;
        let evil = scene.evil.clone();
        let mut evil = session(&scene.gate, &evil, "helper").await?;
        scene.check_only_second().await?;
        assert_eq!(inbox(&mut evil).await?, Vec::<Value>::new());
        // The name was offered a question that is still open.
        let reply = json!({"message_id": offered["id"], "response": "1"});
        assert_eq!(evil.refusal("reply", reply).await?, "FORBIDDEN");
        let hand_back = json!({"question_id": offered["id"], "reason": "it costs money"});
        let refusal = evil.refusal("escalate_to_human", hand_back).await?;
        assert_eq!(refusal, "FORBIDDEN");
        let thread = json!({"message_id": offered["id"]});
        assert_eq!(
            evil.refusal("get_thread", thread).await?,
            "MESSAGE_NOT_FOUND"
        );
        // Nor may it use the offer of another agent.
        let question = scene.ask().await?;
        let offered = offer(&mut scene.second, &question).await?;
        let reply = json!({"message_id": offered["id"], "response": "1"});
        let refusal = evil.refusal("reply", reply).await?;
        assert_eq!(refusal, "MESSAGE_NOT_FOUND");
    }
    Ok(())
}

#[tokio::test]
async fn an_agent_of_a_renamed_host_has_its_right_again_once_the_policy_names_it() -> Result<()> {
    for mut scene in Scene::each().await? {
        scene.gate.ask(&["hosts", "rename", "vic", "attic"]).await?;
        scene.helper.notify("goodbye", json!({})).await?;
        let key = key(&scene.gate, "attic").await?;
        scene.helper = eventually("the agent of the renamed host", SOON, async || {
            session(&scene.gate, &key, "helper").await.ok()
        })
        .await?;
        scene.asker = session(&scene.gate, &key, "asker-of-attic").await?;
        scene.check_only_second().await?;
        assert_eq!(inbox(&mut scene.helper).await?, Vec::<Value>::new());
        name(scene.gate.served.folder(), &["helper@attic", "second@nas"])?;
        scene.in_force("helper@attic").await?;
        let offered = scene.ask_helper().await?;
        let reply = json!({"message_id": offered["id"], "response": "1"});
        let sent = scene.helper.call("reply", reply).await?;
        assert_eq!(sent["response"], "[triage/helper, not a person] 1");
    }
    Ok(())
}

#[tokio::test]
async fn a_name_without_its_host_has_no_right_at_a_closed_coordinator() -> Result<()> {
    for mut scene in Scene::each().await? {
        name(scene.gate.served.folder(), &["helper", "second@nas"])?;
        // The answer has the text as JSON.
        scene.in_force(r#"helper\""#).await?;
        scene.check_only_second().await?;
        assert_eq!(inbox(&mut scene.helper).await?, Vec::<Value>::new());
    }
    Ok(())
}
