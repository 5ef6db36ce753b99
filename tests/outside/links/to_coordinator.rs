//! Silent breaks of the link between a proxy and its coordinator: half open, or held for half a minute.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use harness::breaker::{Breaker, Way};
use harness::coordinator::Coordinator;
use harness::eventually::eventually;
use harness::mcp::McpClient;
use harness::proxy::session;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The silence after which a link counts as broken.
const SILENCE: Duration = Duration::from_secs(45);
/// The time for redialling and for the delivery of queued messages.
const SLACK: Duration = Duration::from_secs(6);
/// How long a route is lost.
const HELD: Duration = Duration::from_secs(30);

/// A kind of break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Break {
    Both,
    There,
    Back,
    Held,
}

impl Break {
    const ALL: [Self; 4] = [Self::Both, Self::There, Self::Back, Self::Held];

    fn name(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::There => "there",
            Self::Back => "back",
            Self::Held => "held",
        }
    }

    fn apply(self, breaker: &Breaker) {
        match self {
            Self::Both => {
                breaker.forget(Way::There);
                breaker.forget(Way::Back);
            }
            Self::There => breaker.forget(Way::There),
            Self::Back => breaker.forget(Way::Back),
            Self::Held => breaker.hold(),
        }
    }

    /// How long it may take until the delayed calls continue.
    fn noticed_within(self) -> Duration {
        match self {
            Self::Held => HELD + SLACK,
            _ => SILENCE + SLACK,
        }
    }
}

/// Waits for the result of that wait and returns it.
async fn next(session: &McpClient, wait: u64, within: Duration) -> Result<Value> {
    session.call_result(wait, within).await?.json()
}

/// Asserts that a message was delivered to the session once, and that this was reported.
async fn came_once(how: Break, proxy: &McpClient, other: &McpClient, id: &Value) -> Result<()> {
    let again = proxy
        .reply("wait_for_message", json!({"timeout": 1}))
        .await?;
    ensure!(again["timeout"] == true, "{how:?}: {again}");
    // A client without hooks shows that its model read a message by naming it.
    proxy
        .reply("ack_messages", json!({"message_ids": [id]}))
        .await?;
    let status = eventually("it is seen", SLACK, async || {
        let status = other
            .reply("message_status", json!({"message_id": id}))
            .await
            .ok()?;
        (status["stage"] == "seen").then_some(status)
    });
    let status = status.await.with_context(|| format!("{how:?}"))?;
    let history = status["history"].as_array().context("a history")?;
    let of = |stage: &str| history.iter().filter(|step| step["stage"] == stage).count();
    ensure!(
        of("in_session") == 1 && of("on_host") == 1,
        "{how:?}: {status}"
    );
    Ok(())
}

/// Breaks the link of a session while it waits and sends. Returns the breaker and the session.
async fn through(
    how: Break,
    work: &TempDir,
    coordinator: &Coordinator,
    other: &McpClient,
) -> Result<(Breaker, McpClient)> {
    let breaker = Breaker::before(coordinator.address()).await?;
    let proxy = session(
        work.path(),
        how.name(),
        &format!("http://{}", breaker.address()),
    )
    .await?;
    proxy.reply("ping", json!({})).await?;
    let waiting = proxy
        .begin_call("wait_for_message", json!({"timeout": 300}))
        .await?;
    // Follows the wait on the same link, so its answer shows that the coordinator has received the wait.
    proxy.reply("ping", json!({})).await?;
    let broken = Instant::now();
    how.apply(&breaker);
    let text = format!("to {}", how.name());
    let sent = other
        .reply(
            "send_message",
            json!({"target": how.name(), "message": text}),
        )
        .await?;
    let arguments = json!({"target": "other", "message": format!("from {}", how.name())});
    let sending = proxy.begin_call("send_message", arguments).await?;
    if how == Break::Held {
        eventually("half a minute", 2 * HELD, async || {
            (broken.elapsed() > HELD).then_some(())
        })
        .await?;
        ensure!(!proxy.has_answered(sending), "the route is lost");
        breaker.heal();
    }
    let received = next(&proxy, waiting, how.noticed_within()).await?;
    ensure!(
        received["id"] == sent["id"] && received["repeated"].is_null(),
        "{how:?}: {received}"
    );
    let accepted = next(&proxy, sending, how.noticed_within())
        .await
        .with_context(|| format!("{how:?}"))?;
    ensure!(accepted["id"].is_string(), "{how:?}: {accepted}");
    ensure!(
        broken.elapsed() < how.noticed_within(),
        "{how:?}: {:?}",
        broken.elapsed()
    );
    ensure!(
        (breaker.taken() == 1) == (how == Break::Held),
        "{how:?}: {} links",
        breaker.taken()
    );

    came_once(how, &proxy, other, &sent["id"]).await?;
    Ok((breaker, proxy))
}

/// Asserts that both ends notice such a break within 45 s, and that nothing has an effect twice.
pub(super) async fn breaks_without_a_word() -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = Coordinator::start(work.path()).await?;
    let other = session(work.path(), "other", &coordinator.url()).await?;
    other.reply("ping", json!({})).await?;
    let sessions =
        try_join_all(Break::ALL.map(|how| through(how, &work, &coordinator, &other))).await?;

    let mut texts = Vec::new();
    for _ in Break::ALL {
        let next = other
            .reply("wait_for_message", json!({"timeout": 5}))
            .await?;
        texts.push(next["message"].as_str().context("a message")?.to_owned());
    }
    texts.sort();
    assert_eq!(texts, ["from back", "from both", "from held", "from there"]);
    assert_eq!(
        other.reply("get_messages", json!({})).await?["count"],
        4,
        "each of them once"
    );
    let agents = other
        .reply("list_agents", json!({"status": "online"}))
        .await?;
    let online = agents["agents"].as_array().map(Vec::len);
    assert_eq!(
        online,
        Some(1 + sessions.len()),
        "the end of an older link has ended no newer one: {agents}"
    );
    Ok(())
}
