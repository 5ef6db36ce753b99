//! Names that differ from a known one only in case: refused at `hello` with the known name.

use anyhow::{Context, Result};
use harness::link::{Link, Who};
use inside::gate::Gate;
use inside::served::Served;
use serde_json::json;

use super::call;

#[tokio::test]
async fn a_name_that_differs_in_case_alone_is_refused_at_hello_with_the_known_one() -> Result<()> {
    let served = Served::start().await?;
    let mut web = served.join("web").await?;
    let mut link = Link::open(&served.address).await?;
    let refusal = link
        .hello(&Who::new("Web"))
        .await?
        .expect_err("it looks like another")["data"]
        .clone();
    assert_eq!(
        (&refusal["code"], &refusal["details"]["nearest"]),
        (&json!("CONFLICT"), &json!(["web"]))
    );
    assert_eq!(
        refusal["error"],
        "Web differs from the existing agent web only in case"
    );
    let suggestion = refusal["suggestion"].as_str().context("a suggestion")?;
    assert!(
        suggestion.contains("Use web") && suggestion.contains("`c3po agents rm web`"),
        "{refusal}"
    );
    let mut other = served.join("other").await?;
    assert_eq!(
        other
            .refusal("register_agent", json!({"name": "WEB"}))
            .await?,
        "CONFLICT"
    );
    other
        .call(
            "send_message",
            json!({"target": "Web", "message": "whoever that is"}),
        )
        .await?;
    assert_eq!(web.call("get_messages", json!({})).await?["count"], 1);
    Ok(())
}

#[tokio::test]
async fn a_name_that_differs_in_case_alone_is_refused_over_http_too() -> Result<()> {
    let gate = Gate::start().await?;
    let key = gate.key("agent", "*", &[]).await?;
    assert_eq!(
        call(&gate, Some(&key), "web", "ping", &json!({})).await?,
        (200, None)
    );
    let refused = call(&gate, Some(&key), "weB", "ping", &json!({})).await?;
    assert_eq!(refused.1.as_deref(), Some("CONFLICT"), "{refused:?}");
    assert_eq!(
        call(&gate, Some(&key), "web", "ping", &json!({})).await?,
        (200, None)
    );
    Ok(())
}
