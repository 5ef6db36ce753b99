//! The plugin's commands in a real session with the installed plugin: their tools run without a permission question.

use anyhow::{Context, Result, ensure};
use harness::claude::ClaudeCode;
use harness::coordinator::Coordinator;
use harness::fake_api::{Block, FakeApi, Script};
use harness::skip::skipped;
use serde_json::{Value, json};

use super::host::Host;

/// Types a command into a new session whose model calls that tool, and returns the tool's reply.
async fn answer_to(host: &Host, typed: &str, tool: &'static str, part: &str) -> Result<Value> {
    // The first request does not wait for servers, so the model calls twice, by the full name, which that request does not
    // contain.
    let call = || {
        [
            Block::pause(1_000),
            Block::call(format!("mcp__plugin_c3po_c3po__{tool}"), json!({})),
        ]
    };
    let script = Script::new()
        .then(call())
        .then(call())
        .then([Block::text("Done.")]);
    let model = FakeApi::start(script).await?;
    let url = model.url();
    let variables = [
        ("ANTHROPIC_BASE_URL", url.as_str()),
        ("ANTHROPIC_API_KEY", "fake-key"),
    ];
    let session = host
        .claude_with(&variables, &["-p", typed, "--permission-mode", "default"])
        .await?;
    session.good()?;
    let asked = model.asked();
    let first = asked.first().context("the model was not asked")?;
    ensure!(
        first.holds(part),
        "the command's text is missing: {}",
        first.last_user_text()
    );
    let last = asked.get(2).context("the tool was not answered")?;
    let result = last.tool_result();
    ensure!(
        result.is_object(),
        "no result of {tool}: {}",
        last.new_text()
    );
    Ok(result)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_plugin_use_its_tools_without_asking() -> Result<()> {
    let claude = match ClaudeCode::find() {
        Ok(claude) => claude,
        Err(reason) => return skipped("the plugin's commands", &format!("{reason:#}")),
    };
    let host = Host::new(Some(&claude))?;
    let coordinator = Coordinator::start(host.folder()).await?;
    host.c3po(&["install", "--coordinator", &coordinator.url()])
        .await?
        .good()?;

    let pong = answer_to(
        &host,
        "/c3po:coordinate status",
        "ping",
        "The user asks for: `status`",
    )
    .await?;
    assert!(pong["agent_id"].is_string(), "{pong}");
    let inbox = answer_to(
        &host,
        "/c3po:mailbox",
        "get_messages",
        "The user looks into the mailbox",
    )
    .await?;
    assert_eq!(inbox["count"], 0, "{inbox}");
    // Only the command grants the permission, and only for the tools that it names.
    for (typed, tool) in [("Say hello.", "ping"), ("/c3po:mailbox", "send_message")] {
        let refused = answer_to(&host, typed, tool, typed.trim_start_matches("/c3po:"))
            .await
            .err();
        let refused = refused
            .with_context(|| format!("{tool} runs after {typed}"))?
            .to_string();
        assert!(refused.contains("permission"), "{refused}");
    }
    Ok(())
}
