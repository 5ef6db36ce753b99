//! Hosts whose clocks differ from the coordinator's, as listed by `GET /api/health`.

use std::time::Duration;

use anyhow::Result;
use c3po_shared::time::Timestamp;
use harness::eventually::eventually;
use harness::http;
use harness::link::{Link, Who};
use inside::gate::Gate;
use inside::served::Served;
use serde_json::{Value, json};

/// How long the traces of an ended link may remain, on a machine that builds at the same time.
const SOON: Duration = Duration::from_secs(10);

/// Sends a heartbeat of a host whose clock is that many seconds ahead.
async fn beat(link: &mut Link, ahead: i64) -> Result<()> {
    let timestamp = Timestamp::from_millis(
        Timestamp::now()
            .millis()
            .saturating_add_signed(ahead * 1_000),
    );
    let beaten = link
        .request("heartbeat", json!({"timestamp": timestamp}))
        .await?;
    let beaten = beaten.map_err(|error| anyhow::anyhow!("{error}"))?;
    assert_eq!(beaten["timestamp"], timestamp.to_string());
    Ok(())
}

/// Returns the clocks that are listed for that key.
async fn clocks(address: &str, key: Option<&str>) -> Result<Value> {
    let key = key
        .map(|key| format!("X-API-Key: {key}\r\n"))
        .unwrap_or_default();
    let question =
        format!("GET /api/health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{key}\r\n");
    let answer = http::request(address.parse()?, &question).await?;
    assert_eq!(answer.status, 200);
    Ok(serde_json::from_str::<Value>(&answer.body)?["clocks"].take())
}

#[tokio::test]
async fn the_last_heartbeat_of_a_connected_host_decides() -> Result<()> {
    let served = Served::start().await?;
    let (mut cam, mut nas, mut web) = (
        served.join("cam").await?,
        served.join("nas").await?,
        served.join("web").await?,
    );
    beat(&mut web, 4).await?;
    assert_eq!(
        clocks(&served.address, None).await?,
        Value::Null,
        "so much is nothing"
    );
    beat(&mut cam, -60).await?;
    beat(&mut nas, 3_600).await?;
    let both = json!([{"agent_id": "nas", "seconds": 3_600}, {"agent_id": "cam", "seconds": -60}]);
    listed(&served.address, None, both).await?;
    beat(&mut nas, 0).await?;
    let one = json!([{"agent_id": "cam", "seconds": -60}]);
    listed(&served.address, None, one).await?;
    cam.notify("goodbye", json!({})).await?;
    listed(&served.address, None, Value::Null).await
}

/// Waits until these clocks are listed: a listing is up to a quarter of a second old.
async fn listed(address: &str, key: Option<&str>, expected: Value) -> Result<()> {
    eventually("the clocks are listed", SOON, async || {
        let found = clocks(address, key).await.ok()?;
        (found == expected).then_some(())
    })
    .await
}

#[tokio::test]
async fn agents_are_named_only_to_keys_that_may_see_them() -> Result<()> {
    let gate = Gate::start().await?;
    let (agent, reader) = (
        gate.key("agent", "cam", &[]).await?,
        gate.key("read", "*", &[]).await?,
    );
    let mut cam = Link::open_with(&gate.served.address, Some(&agent)).await?;
    cam.hello(&Who::new("cam"))
        .await?
        .map_err(anyhow::Error::msg)?;
    beat(&mut cam, -60).await?;
    for (key, agent_id) in [
        (None, None),
        (Some("c3po_wrong"), None),
        (Some(&*reader), Some("cam")),
    ] {
        let mut clock = json!({"seconds": -60});
        if let Some(agent_id) = agent_id {
            clock["agent_id"] = json!(agent_id);
        }
        listed(&gate.served.address, key, json!([clock])).await?;
    }
    Ok(())
}
