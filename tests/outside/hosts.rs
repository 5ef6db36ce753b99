//! Agents belong to their hosts: in any order of starts and kills, no message for one host is shown on another.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::coordinator::Coordinator;
use harness::dice::Dice;
use harness::eventually::eventually;
use harness::mcp::McpClient;
use harness::proxy::proxy_command;
use harness::redis::Redis;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The time limit of any operation, on a machine that builds at the same time.
const SOON: Duration = Duration::from_secs(30);
/// The hosts of the random test.
const HOSTS: [&str; 3] = ["laptop", "nas", "box"];
/// The number of random events in that test.
const ROUNDS: usize = 60;

/// Starts a session of a project on a host with its own files.
async fn session_on(work: &Path, host: &str, project: &str, url: &str) -> Result<McpClient> {
    let home = work.join(host);
    let mut command = proxy_command(&home, project, url)?;
    command.env("C3PO_HOST", host);
    let client = McpClient::start(command, &home.join(format!("{project}.log")))?;
    client
        .initialize()
        .await
        .with_context(|| format!("the proxy of {project} on {host}"))?;
    Ok(client)
}

/// Returns the name of the session when it is connected.
async fn name(session: &McpClient) -> Result<String> {
    let pong = eventually("the link", SOON, async || {
        let pong = session.call("ping", json!({})).await.ok()?;
        (!pong.is_error).then(|| pong.json().ok())?
    })
    .await?;
    Ok(pong["agent_id"].as_str().context("a name")?.to_owned())
}

/// Sends a message from a session and returns it.
async fn send(sender: &McpClient, target: &str, text: &str) -> Result<Value> {
    sender
        .reply("send_message", json!({"target": target, "message": text}))
        .await
}

/// Returns the texts in the session's inbox.
async fn inbox(session: &McpClient) -> Result<Vec<String>> {
    let page = session.reply("get_messages", json!({})).await?;
    let messages = page["messages"].as_array().context("messages")?;
    Ok(messages
        .iter()
        .filter_map(|message| message["message"].as_str())
        .map(str::to_owned)
        .collect())
}

async fn end(mut session: McpClient) -> Result<()> {
    session.process().kill().await
}

/// Each host keeps its name and its messages after a reboot, whichever starts first.
async fn reboots_in_either_order(mut coordinator: Coordinator, work: &Path) -> Result<()> {
    let url = coordinator.url();
    let desk = session_on(work, "desk", "desk", &url).await?;
    for order in [["laptop", "nas"], ["nas", "laptop"]] {
        let project = format!("homeassistant-of-{}", order[0]);
        let names = BTreeMap::from([
            (order[0], project.clone()),
            (order[1], format!("{project}-2")),
        ]);
        for host in order {
            let session = session_on(work, host, &project, &url).await?;
            assert_eq!(name(&session).await?, names[host], "{host}");
            end(session).await?;
        }
        for host in order {
            send(
                &desk,
                &format!("{project}@{host}"),
                &format!("for {host} only"),
            )
            .await?;
        }
        // Everything is rebooted without a goodbye; then the other host starts first.
        coordinator.kill().await?;
        coordinator.restart().await?;
        name(&desk).await?;
        for host in [order[1], order[0]] {
            let session = session_on(work, host, &project, &url).await?;
            assert_eq!(name(&session).await?, names[host], "{host}");
            assert_eq!(inbox(&session).await?, [format!("for {host} only")]);
            // Killed together with the coordinator, its lease is still valid, but its host reports that it is dead.
            coordinator.kill().await?;
            end(session).await?;
            coordinator.restart().await?;
            name(&desk).await?;
            let next = session_on(work, host, &project, &url).await?;
            assert_eq!(name(&next).await?, names[host], "{host} again");
            end(next).await?;
        }
    }
    mail_for_one_host_while_the_other_starts(&desk, work, &url).await?;
    let unknown = desk
        .call(
            "send_message",
            json!({"target": "homeassistant-of-laptop-2@laptop", "message": "x"}),
        )
        .await?;
    let refusal = unknown.json()?;
    assert_eq!(refusal["code"], "AGENT_NOT_FOUND", "{refusal}");
    assert_eq!(
        refusal["suggestion"],
        "On laptop it is homeassistant-of-laptop."
    );
    Ok(())
}

/// Sends to one host while a session of the same folder starts on the other.
async fn mail_for_one_host_while_the_other_starts(
    desk: &McpClient,
    work: &Path,
    url: &str,
) -> Result<()> {
    let project = "homeassistant-of-laptop";
    let target = format!("{project}@nas");
    let (sent, laptop) = tokio::join!(send(desk, &target, "while laptop starts"), async {
        let session = session_on(work, "laptop", project, url).await?;
        name(&session).await?;
        anyhow::Ok(session)
    });
    assert_eq!(sent?["to_agent"], format!("{project}-2"));
    let laptop = laptop?;
    let is_of_nas = |text: &String| text == "while laptop starts" || text == "for nas only";
    assert!(!inbox(&laptop).await?.iter().any(is_of_nas));
    let nas = session_on(work, "nas", project, url).await?;
    assert!(inbox(&nas).await?.iter().all(is_of_nas));
    assert_eq!(inbox(&nas).await?.len(), 2);
    // A second session in the folder gets the host's next name, and inherits nothing.
    let second = session_on(work, "nas", project, url).await?;
    assert_eq!(
        (name(&second).await?, inbox(&second).await?),
        (format!("{project}-3"), Vec::<String>::new())
    );
    Ok(())
}

#[tokio::test]
async fn no_mail_of_one_host_is_shown_on_another_with_sqlite() -> Result<()> {
    let work = TempDir::new()?;
    reboots_in_either_order(Coordinator::start(work.path()).await?, work.path()).await
}

#[tokio::test]
async fn no_mail_of_one_host_is_shown_on_another_with_redis() -> Result<()> {
    let (work, redis) = (TempDir::new()?, Redis::start().await?);
    reboots_in_either_order(
        Coordinator::start_on(work.path(), &redis.url()).await?,
        work.path(),
    )
    .await
}

/// Three hosts whose sessions in the same folder come and go, and a sender that addresses each by its host.
struct Coming<'a> {
    work: &'a Path,
    coordinator: Coordinator,
    desk: McpClient,
    sessions: BTreeMap<&'static str, McpClient>,
    names: BTreeMap<&'static str, String>,
    sent: BTreeMap<&'static str, usize>,
    read: BTreeMap<&'static str, usize>,
}

impl Coming<'_> {
    async fn one_thing_happens(&mut self, dice: &mut Dice) -> Result<()> {
        let host = HOSTS[dice.below(HOSTS.len())];
        match dice.below(10) {
            0 => {
                self.coordinator.kill().await?;
                if dice.percent(50) {
                    self.goes(host).await?;
                }
                self.coordinator.restart().await?;
                name(&self.desk).await?;
                Ok(())
            }
            1..=3 => self.goes(host).await,
            4..=6 => self.comes(host).await,
            _ => self.is_written_to(host).await,
        }
    }

    async fn goes(&mut self, host: &'static str) -> Result<()> {
        match self.sessions.remove(host) {
            Some(session) => end(session).await,
            None => Ok(()),
        }
    }

    async fn comes(&mut self, host: &'static str) -> Result<()> {
        if !self.sessions.contains_key(host) {
            let session = session_on(self.work, host, "web", &self.coordinator.url()).await?;
            self.sessions.insert(host, session);
        }
        let session = &self.sessions[host];
        let name = name(session).await?;
        let before = self.names.entry(host).or_insert_with(|| name.clone());
        ensure!(*before == name, "{host} was {before} and is {name}");
        let texts = inbox(session).await?;
        ensure!(
            texts.iter().all(|text| text == host),
            "{host} was shown {texts:?}"
        );
        let ids = session.reply("get_messages", json!({})).await?;
        let ids: Vec<&Value> = ids["messages"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|message| &message["id"])
            .collect();
        if !ids.is_empty() {
            session
                .reply("ack_messages", json!({"message_ids": ids}))
                .await?;
        }
        *self.read.entry(host).or_default() += texts.len();
        Ok(())
    }

    async fn is_written_to(&mut self, host: &'static str) -> Result<()> {
        if self.names.contains_key(host) {
            send(&self.desk, &format!("web@{host}"), host).await?;
            *self.sent.entry(host).or_default() += 1;
        }
        Ok(())
    }
}

#[tokio::test]
async fn three_hosts_come_and_go_and_each_gets_its_own_mail_and_all_of_it() -> Result<()> {
    let (work, redis) = (TempDir::new()?, Redis::start().await?);
    let second = TempDir::new()?;
    for (coordinator, work) in [
        (Coordinator::start(work.path()).await?, work.path()),
        (
            Coordinator::start_on(second.path(), &redis.url()).await?,
            second.path(),
        ),
    ] {
        let desk = session_on(work, "desk", "desk", &coordinator.url()).await?;
        let mut coming = Coming {
            work,
            coordinator,
            desk,
            sessions: BTreeMap::new(),
            names: BTreeMap::new(),
            sent: BTreeMap::new(),
            read: BTreeMap::new(),
        };
        let mut dice = Dice::new(7);
        for round in 0..ROUNDS {
            coming
                .one_thing_happens(&mut dice)
                .await
                .with_context(|| format!("round {round}"))?;
        }
        for host in HOSTS {
            coming.comes(host).await?;
        }
        assert_eq!(coming.read, coming.sent);
        assert!(coming.sent.values().sum::<usize>() > 5, "{:?}", coming.sent);
    }
    Ok(())
}
