//! The real client in a terminal, with and without a plugin: typed text reaches the model, and `/exit` ends the client.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use harness::claude::{ClaudeCode, Interactive, Options};
use harness::coordinator::Coordinator;
use harness::fake_api::{Block, FakeApi, Script};
use harness::process::program;
use harness::skip::skipped;
use serde_json::json;
use tempfile::TempDir;

/// A turn takes about 0.2 s alone.
const TURN: Duration = Duration::from_secs(60);

/// Creates a plugin that contains only a server: the proxy.
fn plugin_with_a_server(work: &Path) -> Result<PathBuf> {
    let folder = work.join("plugin");
    fs::create_dir_all(folder.join(".claude-plugin"))?;
    fs::write(
        folder.join(".claude-plugin/plugin.json"),
        json!({"name": "c3po"}).to_string(),
    )?;
    let server = json!({"command": program("c3po")?, "args": ["proxy"], "alwaysLoad": true});
    fs::write(
        folder.join(".mcp.json"),
        json!({"mcpServers": {"c3po": server}}).to_string(),
    )?;
    Ok(folder)
}

#[tokio::test(flavor = "multi_thread")]
async fn typed_text_reaches_the_model_and_the_plugin_of_a_real_session() -> Result<()> {
    let claude = match ClaudeCode::find() {
        Ok(claude) => claude,
        Err(reason) => return skipped("a real session in a terminal", &format!("{reason:#}")),
    };
    let work = tempfile::tempdir()?;
    let coordinator = Coordinator::start(work.path()).await?;
    let script = Script::new()
        .when("call it", |_| {
            vec![
                Block::pause(200),
                Block::call("ping", json!({})),
                Block::call("Bash", json!({"command": "echo from-bash"})),
            ]
        })
        .otherwise([Block::text("as you say")]);
    let model = FakeApi::start(script).await?;
    let plugin = plugin_with_a_server(work.path())?;
    let options =
        Options::new(work.path(), "homeassistant", &model, &coordinator.url()).plugin(&plugin);

    let session = claude.interactive(&options).await?;
    session.type_line("do you hear me").await?;
    model
        .wait_for("what was typed", TURN, |asked| {
            asked.last_user_text().contains("do you hear me")
        })
        .await?;
    session
        .wait_for_screen("the answer", TURN, |screen| screen.contains("as you say"))
        .await?;

    session.type_line("call it").await?;
    let asked = model
        .wait_for("the result", TURN, |asked| asked.holds("from-bash"))
        .await?;
    assert!(
        asked.holds("\"agent_id\":\"homeassistant\""),
        "{}",
        asked.new_text()
    );
    session.wait_ready().await?;
    assert_eq!(session.exit().await?, Some(0));
    assert!(
        model.others().is_empty(),
        "nothing else is asked of the API: {:?}",
        model.others()
    );
    Ok(())
}

/// A session without c3po, with a client that has an inbox socket.
struct Bare {
    session: Interactive,
    model: FakeApi,
    work: TempDir,
}

impl Bare {
    /// Starts one; `None` if there is no such client.
    async fn start(test: &str) -> Result<Option<Self>> {
        let claude = match ClaudeCode::find() {
            Ok(claude) => claude,
            Err(reason) => return skipped(test, &format!("{reason:#}")).map(|()| None),
        };
        if !claude.has_inbox().await? {
            return Ok(None);
        }
        let work = tempfile::tempdir()?;
        let model = FakeApi::start(Script::new()).await?;
        let options =
            Options::new(work.path(), "homeassistant", &model, "http://127.0.0.1:9").without_c3po();
        let session = claude.interactive(&options).await?;
        Ok(Some(Self {
            session,
            model,
            work,
        }))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_posted_to_the_inbox_of_an_idle_session_wakes_it() -> Result<()> {
    let Some(Bare {
        work: _work,
        model,
        session,
    }) = Bare::start("a post to a real session").await?
    else {
        return Ok(());
    };
    for text in ["the first post", "the second post"] {
        session.post(text).await?;
        let asked = model
            .wait_for(text, TURN, |asked| asked.holds(text))
            .await?;
        assert_eq!(asked.count_of(text), 1);
        assert!(
            asked.last_user_text().contains(text),
            "{}",
            asked.new_text()
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inbox_that_was_taken_away_stays_away_and_the_session_works() -> Result<()> {
    let Some(Bare {
        work: _work,
        model,
        session,
    }) = Bare::start("a real session without an inbox").await?
    else {
        return Ok(());
    };
    session.remove_inbox().await?;
    session.type_line("do you hear me").await?;
    model
        .wait_for("what was typed", TURN, |asked| {
            asked.holds("do you hear me")
        })
        .await?;
    session.wait_ready().await?;
    assert!(!session.inbox().exists());
    Ok(())
}
