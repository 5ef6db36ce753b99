//! Verdicts on requests of a client, given on the page.

use anyhow::{Result, ensure};
use serde_json::json;

use super::{Desk, IS_OVER};

/// Whether the button that allows can be pressed.
const MAY_ALLOW: &str = "document.querySelector('#allow:enabled')";

/// A command whose end no screen shows at once.
fn long_command() -> String {
    let lines: Vec<String> = (0..200).map(|step| format!("make step-{step}")).collect();
    format!("{}\nrm -rf build", lines.join("\n"))
}

#[tokio::test]
async fn a_request_is_allowed_only_after_its_end_was_shown_and_the_page_reports_that_it_ran()
-> Result<()> {
    let Some(mut desk) = Desk::open().await? else {
        return Ok(());
    };
    let id = desk.request_bash(&long_command()).await?;
    desk.browser.imitate((390, 844), "light").await?;
    desk.show(&id).await?;
    desk.wait_for_text("wants to use a tool").await?;
    // A click that brings the window to the front presses no button.
    desk.browser.click("main").await?;
    // The other button becomes active at the same time, so this one had its chance.
    desk.browser
        .wait_for("document.querySelector('#deny:enabled')")
        .await?;
    let may_allow = format!("return Boolean({MAY_ALLOW})");
    ensure!(
        desk.browser.run(&may_allow).await? == false,
        "the end is unseen"
    );
    let script = "const allow = document.querySelector('#allow');
        allow.disabled = false; allow.click(); allow.disabled = true";
    desk.browser.run(script).await?;
    desk.browser
        .run("document.querySelector('#end').scrollIntoView({block: 'center'})")
        .await?;
    desk.browser.wait_for(MAY_ALLOW).await?;
    ensure!(
        desk.stored(&id).await?["reply"].is_null(),
        "no script may press a button"
    );
    desk.browser.click("#allow").await?;
    desk.browser.wait_for(IS_OVER).await?;
    desk.wait_for_text("Allowed by Ann on the page").await?;
    let stored = desk.stored(&id).await?;
    let verdict = &stored["reply"]["answer"]["verdict"];
    let hash = &stored["message"]["question"]["request"]["hash"];
    ensure!(
        *verdict == json!({"decision": "allow", "request_hash": hash}),
        "{stored}"
    );
    let done =
        |count: u32| format!("document.querySelectorAll('#progress .done').length === {count}");
    desk.browser.wait_for(&done(1)).await?;
    desk.conclude(&id, "taken", "transcript").await?;
    desk.browser.wait_for(&done(2)).await?;
    desk.conclude(&id, "applied", "transcript").await?;
    desk.browser.wait_for(&done(3)).await?;
    desk.wait_for_text("It ran").await
}

#[tokio::test]
async fn a_verdict_that_no_session_takes_is_reported_after_10_seconds() -> Result<()> {
    let Some(mut desk) = Desk::open().await? else {
        return Ok(());
    };
    let id = desk.request_bash("make").await?;
    desk.show(&id).await?;
    desk.browser.type_into("#reason", "not on a Friday").await?;
    desk.press("#deny").await?;
    desk.wait_for_text("Denied by Ann on the page").await?;
    desk.wait_for_text("not on a Friday").await?;
    let stored = desk.stored(&id).await?;
    ensure!(
        stored["reply"]["answer"]["verdict"]["text"] == "not on a Friday",
        "{stored}"
    );
    desk.wait_for_text("did not take it within 10 s").await
}

#[tokio::test]
async fn a_rule_is_added_only_behind_its_exact_text() -> Result<()> {
    let Some(mut desk) = Desk::open().await? else {
        return Ok(());
    };
    let id = desk.request_bash("make").await?;
    desk.show(&id).await?;
    desk.wait_for_text("Always for Bash(make:*)").await?;
    ensure!(
        desk.browser.click("[data-rule='0']").await.is_err(),
        "it is hidden"
    );
    desk.tap("summary").await?;
    desk.wait_for_text("\"ruleContent\": \"make:*\"").await?;
    desk.press("[data-rule='0']").await?;
    desk.wait_for_text("Allowed, with a rule, by Ann").await?;
    let stored = desk.stored(&id).await?;
    ensure!(
        stored["reply"]["answer"]["verdict"]["suggestion"] == 0,
        "{stored}"
    );
    Ok(())
}

#[tokio::test]
async fn a_client_that_lets_its_person_choose_gets_the_choices_with_the_verdict() -> Result<()> {
    let Some(mut desk) = Desk::open().await? else {
        return Ok(());
    };
    let option = |id: &str, label: &str| json!({"id": id, "label": label});
    let parts = json!([
        {"id": "1", "text": "Which store?", "options": [option("1", "SQLite"), option("2", "Redis")]},
        {"id": "2", "text": "Which parts?", "multi": true, "allow_text": true,
         "options": [option("1", "TLS"), option("2", "Audit"), option("3", "Policy")]},
    ]);
    let request = json!({"tool": "AskUserQuestion", "input": r#"{"questions":[]}"#});
    let id = desk.request("choice", parts, request).await?;
    desk.show(&id).await?;
    for input in [
        "part-1'][value='2'",
        "part-2'][value='1'",
        "part-2'][value='3'",
    ] {
        desk.tap(&format!("[name='{input}]")).await?;
    }
    desk.browser
        .type_into("[data-part='2']", "and docs")
        .await?;
    desk.press("#allow").await?;
    desk.browser.wait_for(IS_OVER).await?;
    let stored = desk.stored(&id).await?;
    let expected = json!([
        {"id": "1", "options": ["2"]}, {"id": "2", "options": ["1", "3"], "text": "and docs"},
    ]);
    ensure!(stored["reply"]["answer"]["parts"] == expected, "{stored}");
    Ok(())
}

#[tokio::test]
async fn a_request_that_was_decided_at_the_terminal_can_not_be_answered_any_more() -> Result<()> {
    let Some(mut desk) = Desk::open().await? else {
        return Ok(());
    };
    for (via, text) in [
        ("terminal", "It was decided at the terminal"),
        ("time_out", "only the session's terminal can still decide"),
    ] {
        let id = desk.request_bash("make").await?;
        desk.show(&id).await?;
        desk.browser
            .wait_for("document.querySelector('#allow:enabled')")
            .await?;
        desk.conclude(&id, "withdrawn", via).await?;
        desk.wait_for_text(text).await?;
        let is_bare = "return document.querySelector('button') === null";
        ensure!(desk.browser.run(is_bare).await? == true, "{via}");
    }
    Ok(())
}
