//! Questions in words, and the list of those that wait.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use c3po_shared::ids::CallId;
use harness::coordinator::Coordinator;
use harness::eventually::eventually;
use serde_json::{Value, json};

use super::{Desk, IS_OVER};
use crate::login_page::offer;

const SOON: Duration = Duration::from_secs(20);

/// Returns the stages of a history with their evidence, in order.
fn stages(stored: &Value) -> Vec<String> {
    let steps = stored["history"].as_array().into_iter().flatten();
    let words = steps.map(|step| {
        let word = |name: &str| step[name].as_str().unwrap_or_default().to_owned();
        format!("{} {}", word("stage"), word("via"))
    });
    words.collect()
}

#[tokio::test]
async fn an_answer_on_the_page_reaches_the_agent_that_waits() -> Result<()> {
    let Some(mut desk) = Desk::open().await? else {
        return Ok(());
    };
    let id = desk.ask("Which port?").await?;
    let wait = json!({"message_id": id, "timeout": 120});
    let waiting = desk
        .agent
        .begin(CallId::fresh(), "wait_for_message", wait)
        .await?;
    desk.show(&id).await?;
    desk.wait_for_text("web@testhost asks").await?;
    desk.wait_for_text("Which port?").await?;
    // It stays on the screen for a second before its person does anything.
    eventually("it was displayed", SOON, async || {
        let stored = desk.stored(&id).await.ok()?;
        (stored["stage"] == "in_session").then_some(())
    })
    .await?;
    desk.browser.type_into("textarea", "8081").await?;
    desk.press("#send").await?;
    desk.browser.wait_for(IS_OVER).await?;
    let reply = desk.agent.end(waiting).await?.map_err(anyhow::Error::msg)?;
    ensure!(reply["response"] == "8081", "{reply}");
    let answer = json!({"by": "Ann", "via": "page", "parts": [{"id": "1", "text": "8081"}]});
    ensure!(reply["answer"] == answer, "{reply}");
    desk.wait_for_text("Answered by Ann on the page").await?;
    let stored = desk.stored(&id).await?;
    let expected = [
        "stored ",
        "on_host page",
        "in_session page",
        "seen page",
        "answered reply",
    ];
    ensure!(stages(&stored) == expected, "{stored}");
    let reply = reply["id"].as_str().context("an id")?;
    desk.agent
        .receipt(&[reply], "in_session", "wait_for_message")
        .await?;
    let has = "document.querySelector('#progress li:nth-child(2).done')";
    desk.browser.wait_for(has).await
}

#[tokio::test]
async fn two_presses_send_one_answer() -> Result<()> {
    let Some(mut desk) = Desk::open().await? else {
        return Ok(());
    };
    let option = |id: &str, label: &str| json!({"id": id, "label": label});
    let part = json!({"id": "1", "text": "Which store?", "allow_text": true,
        "options": [option("1", "SQLite"), option("2", "Redis")]});
    let input = json!({"tool": "AskUserQuestion", "input": "{}"});
    let id = desk.request("choice", json!([part]), input).await?;
    desk.show(&id).await?;
    desk.tap("[name='part-1'][value='2']").await?;
    desk.press("#allow").await?;
    // The second press comes while the first is under way, or finds no button.
    let _ = desk.browser.click("#allow").await;
    desk.browser.wait_for(IS_OVER).await?;
    let stored = desk.stored(&id).await?;
    ensure!(
        stored["reply"]["answer"]["parts"] == json!([{"id": "1", "options": ["2"]}]),
        "{stored}"
    );
    let sent = "return performance.getEntriesByType('resource').filter((one) => one.name.endsWith('/answer')).length";
    ensure!(desk.browser.run(sent).await? == 1);
    Ok(())
}

#[tokio::test]
async fn a_second_answer_is_not_used_and_the_page_shows_the_first() -> Result<()> {
    let Some(mut desk) = Desk::open().await? else {
        return Ok(());
    };
    let id = desk.ask("Which port?").await?;
    desk.show(&id).await?;
    desk.browser.type_into("textarea", "8081").await?;
    desk.hold_answer().await?;
    desk.press("#send").await?;
    desk.browser.wait_for("window.go").await?;
    let path = format!("/api/v1/questions/{id}/answer");
    let other = desk
        .send(
            "POST",
            &path,
            r#"{"parts": [{"text": "9000"}], "via": "terminal"}"#,
        )
        .await?;
    ensure!(other.status == 201, "{}", other.body);
    desk.browser.run("window.go()").await?;
    desk.wait_for_text("Your answer was not used").await?;
    desk.wait_for_text("Answered by Ann on a terminal").await?;
    desk.wait_for_text("9000").await
}

#[tokio::test]
async fn the_list_follows_what_waits_and_leads_to_each_question() -> Result<()> {
    let Some(mut desk) = Desk::open().await? else {
        return Ok(());
    };
    let url = format!("{}/q", desk.coordinator.url());
    desk.browser.open(&url).await?;
    desk.wait_for_text("Nothing waits for you").await?;
    let id = desk.ask("Which port?").await?;
    desk.wait_for_text("Which port?").await?;
    // A press ends on the element on which it began, whatever comes and goes meanwhile.
    let keep = "window.first = document.querySelector('#waiting a span'); return true";
    desk.browser.run(keep).await?;
    let other = desk.ask("Which host?").await?;
    desk.wait_for_text("Which host?").await?;
    let path = format!("/api/v1/questions/{other}/answer");
    desk.send("POST", &path, r#"{"parts": [{"text": "nas"}]}"#)
        .await?;
    let is_alone = "document.querySelectorAll('#waiting li').length === 1";
    desk.browser.wait_for(is_alone).await?;
    ensure!(desk.browser.run("return window.first.isConnected").await? == true);
    desk.browser.click("#waiting a").await?;
    desk.browser
        .wait_for("document.querySelector('textarea')")
        .await?;
    ensure!(desk.browser.run("return location.pathname").await? == format!("/q/{id}"));
    desk.browser.open(&url).await?;
    desk.wait_for_text("Which port?").await?;
    let path = format!("/api/v1/questions/{id}/answer");
    desk.send("POST", &path, r#"{"parts": [{"text": "8081"}]}"#)
        .await?;
    desk.wait_for_text("Nothing waits for you").await
}

#[tokio::test]
async fn without_a_login_a_page_leads_to_the_login_and_back() -> Result<()> {
    let Some(desk) = Desk::open().await? else {
        return Ok(());
    };
    let path = format!("/api/v1/logins/{}", login_id(&desk.token)?);
    let mut agent = desk.agent;
    let sent = json!({"target": "human", "message": "Which port?", "requires_response": true});
    let id = agent.call("send_message", sent).await?["id"]
        .as_str()
        .context("an id")?
        .to_owned();
    let desk = Desk { agent, ..desk };
    ensure!(desk.send("DELETE", &path, "").await?.status == 200);
    let url = format!("{}/q/{id}", desk.coordinator.url());
    desk.browser.open(&url).await?;
    desk.browser
        .wait_for(
            "location.pathname === '/login' && document.querySelector('#offer:not([hidden])')",
        )
        .await?;
    let code = offer(desk.work.path(), &desk.coordinator).await?;
    desk.browser.type_into("#code", &code).await?;
    desk.browser.click("#spend").await?;
    desk.browser
        .wait_for("document.querySelector('textarea')")
        .await?;
    ensure!(desk.browser.run("return location.pathname").await? == format!("/q/{id}"));
    Ok(())
}

/// Returns the id of the login of a token.
fn login_id(token: &str) -> Result<&str> {
    token.split('_').nth(1).context("an id")
}

#[tokio::test]
async fn a_page_reports_a_lost_connection_keeps_the_text_and_goes_on() -> Result<()> {
    let Some(mut desk) = Desk::open().await? else {
        return Ok(());
    };
    let id = desk.ask("Which port?").await?;
    desk.show(&id).await?;
    desk.browser.type_into("textarea", "8081").await?;
    let is_lost = "!document.querySelector('#lost').hidden";
    ensure!(desk.browser.run(&format!("return {is_lost}")).await? == false);
    desk.coordinator.kill().await?;
    desk.browser.wait_for(is_lost).await?;
    desk.press("#send").await?;
    desk.wait_for_text("The coordinator does not answer")
        .await?;
    desk.coordinator.restart().await?;
    desk.browser.wait_for(&format!("!({is_lost})")).await?;
    let typed = "return document.querySelector('textarea').value";
    ensure!(desk.browser.run(typed).await? == "8081");
    desk.press("#send").await?;
    desk.browser.wait_for(IS_OVER).await
}

#[tokio::test]
async fn a_hidden_page_keeps_no_stream_and_looks_again_when_it_is_shown() -> Result<()> {
    let Some(mut desk) = Desk::open().await? else {
        return Ok(());
    };
    let id = desk.ask("Which port?").await?;
    desk.show(&id).await?;
    let hide = "window.isShown = false;
        Object.defineProperty(document, 'visibilityState', {get: () => window.isShown ? 'visible' : 'hidden'});
        document.dispatchEvent(new Event('visibilitychange'))";
    desk.browser.run(hide).await?;
    let path = format!("/api/v1/questions/{id}/answer");
    desk.send("POST", &path, r#"{"parts": [{"text": "8081"}]}"#)
        .await?;
    // A stream that stayed open would have had the event before this one, which begins later, and the page time to show it.
    let event = "const headers = {Accept: 'text/event-stream', Authorization: 'Bearer ' + localStorage.getItem('c3po-login')};
        const reader = (await fetch('/api/v1/events?agent=human&after=0', {headers})).body.getReader();
        for (let text = ''; !text.includes('event: answered'); ) text += new TextDecoder().decode((await reader.read()).value);
        for (let asked = 0; asked < 10; asked += 1) await fetch('/api/v1/me', {headers});
        return document.querySelector('#outcome') === null";
    ensure!(
        desk.browser.run(event).await? == true,
        "a hidden page read on"
    );
    desk.browser
        .run("window.isShown = true; document.dispatchEvent(new Event('visibilitychange'))")
        .await?;
    desk.browser.wait_for(IS_OVER).await
}

#[tokio::test]
async fn a_page_looks_from_time_to_time_if_there_is_no_stream() -> Result<()> {
    let without = |coordinator: Coordinator| coordinator.with("C3PO_AUDIT_ENTRIES", Path::new("0"));
    let Some(mut desk) = Desk::open_with(without).await? else {
        return Ok(());
    };
    let id = desk.ask("Which port?").await?;
    desk.show(&id).await?;
    ensure!(desk.send("GET", "/api/v1/events", "").await?.status != 200);
    let path = format!("/api/v1/questions/{id}/answer");
    desk.send("POST", &path, r#"{"parts": [{"text": "8081"}]}"#)
        .await?;
    desk.browser.wait_for(IS_OVER).await?;
    ensure!(
        desk.browser
            .run("return document.querySelector('#lost').hidden")
            .await?
            == true
    );
    Ok(())
}
