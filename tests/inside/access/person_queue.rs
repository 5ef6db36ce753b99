//! Messages that a person queues while no coordinator is reachable go out with the login. No project can add to them.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use anyhow::{Context, Result, ensure};
use harness::link::{Link, Who};
use harness::process::{command, program};
use inside::gate::Gate;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;

/// A coordinator that is away.
const AWAY: &str = "http://127.0.0.1:1";

/// Runs `c3po` in a home, with that folder of the state if there is one.
async fn c3po(home: &Path, state: Option<&Path>, words: &[&str], input: &str) -> Result<Output> {
    let mut c3po = command(program("c3po")?, home);
    c3po.args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(state) = state {
        c3po.env("XDG_STATE_HOME", state);
    }
    let mut c3po = c3po.spawn()?;
    let mut asked = c3po.stdin.take().context("a standard input")?;
    // A program that does not read its input may have closed it.
    let _ = asked.write_all(input.as_bytes()).await;
    drop(asked);
    let done = c3po.wait_with_output().await?;
    ensure!(done.status.success(), "{words:?}: {done:?}");
    Ok(done)
}

#[tokio::test]
async fn a_folder_of_a_project_adds_nothing_to_what_a_person_sends() -> Result<()> {
    let (gate, home, project) = (Gate::start().await?, TempDir::new()?, TempDir::new()?);
    let key = gate.key("agent", "*", &[]).await?;
    let mut web = Link::open_with(&gate.served.address, Some(&key)).await?;
    web.hello(&Who::new("web")).await?.expect("it is covered");
    let (folder, url) = (
        home.path().join(".config/c3po"),
        format!("http://{}", gate.served.address),
    );
    fs::create_dir_all(&folder)?;
    let set_up = |urls: &str| {
        let text = format!("coordinator_url = \"{urls}\"\n");
        fs::write(folder.join("config.toml"), text)
    };
    let both = format!("{AWAY},{url}");
    set_up(&both)?;
    let code = gate.login_code("answer").await?;
    c3po(home.path(), None, &["login", &url, "--yes"], &code).await?;

    set_up(AWAY)?;
    c3po(home.path(), None, &["send", "web", "one", "--queue"], "").await?;
    set_up(&both)?;
    let own = folder.join("journal/human.jsonl");
    let planted = project.path().join("c3po/journal/human.jsonl");
    fs::create_dir_all(planted.parent().context("a folder")?)?;
    fs::copy(&own, &planted)?;
    let aside = folder.join("aside");
    fs::rename(&own, &aside)?;
    let state = Some(project.path());
    c3po(home.path(), state, &["send", "web", "two"], "").await?;
    fs::rename(&aside, &own)?;
    c3po(home.path(), state, &["send", "web", "three"], "").await?;

    let inbox = web.call("get_messages", json!({})).await?;
    let texts = inbox["messages"].as_array().context("messages")?.iter();
    let texts: Vec<_> = texts.map(|one| &one["message"]).collect();
    assert_eq!(texts, ["two", "one", "three"]);
    Ok(())
}
