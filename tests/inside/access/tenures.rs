//! A link whose session holds its agent no longer does and reads nothing more in the agent's name.

use anyhow::{Result, anyhow, ensure};
use c3po_shared::catalogue::Tool;
use c3po_shared::ids::CallId;
use c3po_shared::wire::CLOSE_TAKEN_OVER;
use harness::eventually::eventually;
use harness::link::{Link, Who};
use inside::gate::Gate;
use serde_json::{Value, json};
use uuid::Uuid;

use super::former::two_hosts;
use super::hosts::{SOON, invited, joined, session};
use super::{arguments, ask, call};

/// The text that only the next owner of a name may read.
const SECRET: &str = "for the laptop alone";

/// Opens a link with that key.
async fn linked(gate: &Gate, key: &str, who: &Who) -> Result<Link> {
    let mut link = Link::open_with(&gate.served.address, Some(key)).await?;
    let welcome = link.hello(who).await?;
    let welcome = welcome.map_err(|refused| anyhow!("{refused}"))?;
    ensure!(welcome["agent_id"] == who.name, "{welcome}");
    Ok(link)
}

/// Ends the hold of a session beneath its link, and frees the name for all hosts.
async fn ended(gate: &Gate, name: &str) -> Result<()> {
    let store = &gate.served.store;
    ensure!(store.unregister(&name.parse()?, None, None).await?);
    gate.ask(&["agents", "rm", name]).await?;
    Ok(())
}

async fn id_of(link: &mut Link, tool: &str, arguments: Value) -> Result<String> {
    let sent = link.call(tool, arguments).await?;
    Ok(sent["id"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_session_of_a_host_that_joined_again_keeps_its_agent() -> Result<()> {
    let gate = Gate::start().await?;
    let (key, host) = joined(&gate, &invited(&gate, &[]).await?, "nas", None).await?;
    let who = Who::new("web");
    // Its connection breaks, and the coordinator does not notice.
    let _before = linked(&gate, &key, &who).await?;
    let (newer, _) = joined(
        &gate,
        &invited(&gate, &["--host", &host]).await?,
        "nas",
        None,
    )
    .await?;
    linked(&gate, &newer, &who).await?;
    Ok(())
}

#[tokio::test]
async fn a_session_of_a_renamed_host_goes_on() -> Result<()> {
    let gate = Gate::start().await?;
    let (key, _) = joined(&gate, &invited(&gate, &[]).await?, "laptop", None).await?;
    let who = Who::new("web");
    let mut before = linked(&gate, &key, &who).await?;
    gate.ask(&["hosts", "rename", "laptop", "macbook"]).await?;
    eventually("it is to come back", SOON, async || {
        before.call("ping", json!({})).await.err()
    })
    .await?;
    let again = eventually("the key counts", SOON, async || {
        let mut link = Link::open_with(&gate.served.address, Some(&key))
            .await
            .ok()?;
        link.hello(&who).await.ok()?.ok()
    })
    .await?;
    let known = [&again["agent_id"], &again["host"], &again["generation"]];
    ensure!(
        known == [&json!("web"), &json!("macbook"), &json!(1)],
        "{again}"
    );
    Ok(())
}

#[tokio::test]
async fn a_link_does_and_reads_nothing_as_a_name_that_became_another_hosts() -> Result<()> {
    let (gate, nas, laptop) = two_hosts().await?;
    let (mut peer, _) = session(&gate, &laptop, "others").await?;
    for (number, tool) in Tool::ALL.iter().enumerate() {
        let name = format!("web{number}");
        // Without pushes and changes of its state, only the call can find out.
        let quiet = Who {
            more: json!({"one_shot": true, "state": "ready"}),
            ..Who::new(&name)
        };
        let mut link = linked(&gate, &nas, &quiet).await?;
        ended(&gate, &name).await?;
        let mut next = linked(&gate, &laptop, &Who::person(&name)).await?;
        let question = json!({"question": SECRET, "wait": false});
        let question = id_of(&mut next, "ask_user", question).await?;
        let mail = json!({"target": name, "message": SECRET});
        let mail = id_of(&mut peer, "send_message", mail).await?;
        if *tool == Tool::Ping {
            link.call("ping", json!({})).await?;
            continue;
        }
        let asked = if matches!(tool, Tool::AnswerInDialog | Tool::Conclude) {
            &question
        } else {
            &mail
        };
        let arguments = arguments(*tool, "forged", [asked, &mail]);
        let refused = link.try_call(tool.name(), arguments).await?;
        let refused = refused
            .err()
            .ok_or_else(|| anyhow!("{tool:?} was not refused"))?;
        assert_eq!(refused["code"], "CONFLICT", "{tool:?}: {refused}");
        assert_eq!(link.hear_close().await?, CLOSE_TAKEN_OVER, "{tool:?}");
        let status = next
            .call("message_status", json!({"message_id": question}))
            .await?;
        assert_eq!(status["stage"], "stored", "{tool:?}");
        let inbox = next.call("get_messages", json!({})).await?;
        assert_eq!(inbox["count"], 1, "{tool:?}: {inbox}");
    }
    assert!(
        !format!("{:?}", peer.heard).contains("forged"),
        "{:?}",
        peer.heard
    );
    Ok(())
}

#[tokio::test]
async fn nothing_is_pushed_to_a_link_whose_name_became_another_hosts() -> Result<()> {
    let (gate, nas, laptop) = two_hosts().await?;
    let (mut peer, _) = session(&gate, &laptop, "others").await?;
    let mut link = linked(&gate, &nas, &Who::new("web")).await?;
    ended(&gate, "web").await?;
    let _next = linked(&gate, &laptop, &Who::person("web")).await?;
    peer.call("send_message", json!({"target": "web", "message": SECRET}))
        .await?;
    assert_eq!(link.hear_close().await?, CLOSE_TAKEN_OVER);
    assert!(link.heard.is_empty(), "{:?}", link.heard);
    Ok(())
}

#[tokio::test]
async fn a_wait_from_before_a_new_name_gets_nothing_of_the_next_owner_of_the_old_one() -> Result<()>
{
    let (gate, nas, laptop) = two_hosts().await?;
    let mut link = linked(&gate, &nas, &Who::new("web")).await?;
    let arguments = json!({"timeout": 600});
    let wait = link
        .begin(CallId::fresh(), "wait_for_message", arguments)
        .await?;
    link.call("register_agent", json!({"name": "other"}))
        .await?;
    gate.ask(&["agents", "rm", "web"]).await?;
    let _next = linked(&gate, &laptop, &Who::new("web")).await?;
    let (mut peer, _) = session(&gate, &laptop, "others").await?;
    peer.call("send_message", json!({"target": "web", "message": SECRET}))
        .await?;
    let waited = link.end(wait).await?.expect_err("it is of the laptop");
    assert_eq!(waited["data"]["code"], "CONFLICT", "{waited}");
    link.call("ping", json!({})).await?;
    Ok(())
}

#[tokio::test]
async fn a_client_of_the_same_process_ends_a_link_if_it_unregisters_the_agent() -> Result<()> {
    let (gate, nas, _) = two_hosts().await?;
    let (mut peer, _) = session(&gate, &nas, "peer").await?;
    // As /mcp makes it of the header.
    let namespace = Uuid::from_u128(0x6d0c_2a6e_6f0b_4c1a_9d57_3e0f_c390_0001);
    for (name, has_mail) in [("web", false), ("api", true)] {
        let who = Who {
            instance: Uuid::new_v5(&namespace, format!("{name}\n").as_bytes()),
            more: json!({"one_shot": true, "state": "ready"}),
            ..Who::new(name)
        };
        let mut link = linked(&gate, &nas, &who).await?;
        call(&gate, Some(&nas), name, "ping", &json!({})).await?;
        if has_mail {
            peer.call("send_message", json!({"target": name, "message": "hello"}))
                .await?;
        }
        let left = ask(&gate, "POST", "/api/unregister", Some(&nas), Some(name), "").await?;
        if left.status != 409 {
            assert_eq!(link.refusal("get_messages", json!({})).await?, "CONFLICT");
            assert_eq!(link.hear_close().await?, CLOSE_TAKEN_OVER, "{name}");
        }
    }
    Ok(())
}
