//! `lab record`: two real sessions of Claude Code with scripted models, a question and its answer, as an animated picture.

mod picture;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use harness::claude::{ClaudeCode, Interactive, Options as Session, plugin_copy};
use harness::coordinator::Coordinator;
use harness::fake_api::{Block, FakeApi, Script};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::sleep;

const REQUEST: &str = "ask meshtastic what MQTT topics there are";
const QUESTION: &str = "What MQTT topics are there?";
const ANSWER: &str = "zigbee2mqtt/# for the sensors, frigate/events for the cameras.";
/// The size of each terminal.
const COLUMNS: u16 = 96;
const ROWS: u16 = 26;
/// How often the screens are read.
const EVERY: Duration = Duration::from_millis(120);
/// How long a step of the conversation may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the last picture stays.
const REST: Duration = Duration::from_secs(4);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The file to write
    #[arg(long, default_value = "docs/two-sessions.svg")]
    output: PathBuf,
}

/// The screens at one moment.
struct Frame {
    at: Duration,
    screens: [String; 2],
}

pub(crate) async fn run(options: &Options) -> Result<ExitCode> {
    let claude = ClaudeCode::find()?;
    let work = TempDir::new()?;
    let coordinator = Coordinator::start(work.path()).await?.quietly();
    let plugin = plugin_copy(work.path())?;
    let (asker, answerer) = (
        FakeApi::start(asker()).await?,
        FakeApi::start(answerer()).await?,
    );
    let start =
        async |name, model| start(&claude, work.path(), name, model, &coordinator, &plugin).await;
    let sessions = [
        start("homeassistant", &asker).await?,
        start("meshtastic", &answerer).await?,
    ];
    let mut frames = watch(&sessions).await?;
    frames
        .iter_mut()
        .flat_map(|frame| &mut frame.screens)
        .for_each(|screen| *screen = tidied(screen, work.path()));
    let size = (usize::from(COLUMNS), usize::from(ROWS));
    let picture = picture::of(&["homeassistant", "meshtastic"], size, &frames, REST);
    std::fs::write(&options.output, &picture)
        .with_context(|| options.output.display().to_string())?;
    println!(
        "{}: {} pictures, {} kB",
        options.output.display(),
        frames.len(),
        picture.len() / 1_000
    );
    Ok(ExitCode::SUCCESS)
}

async fn start(
    claude: &ClaudeCode,
    work: &Path,
    name: &str,
    model: &FakeApi,
    coordinator: &Coordinator,
    plugin: &Path,
) -> Result<Interactive> {
    let session = claude
        .interactive(
            &Session::new(work, name, model, &coordinator.url())
                .plugin(plugin)
                .environment("C3PO_HOST", "laptop"),
        )
        .await?;
    session.resize(COLUMNS, ROWS).await?;
    Ok(session.quietly())
}

/// Returns a screen without the traces of this run: its folder, and the client's log path.
fn tidied(screen: &str, work: &Path) -> String {
    let lines = screen
        .lines()
        .filter(|line| !line.contains("Debug mode enabled"));
    lines
        .map(|line| line.replace(&work.display().to_string(), "~") + "\n")
        .collect()
}

/// The model that asks, waits and passes the answer on.
fn asker() -> Script {
    let ask = json!({"target": "meshtastic", "message": QUESTION});
    Script::new()
        .when(REQUEST, move |_| {
            vec![
                Block::text("I will ask meshtastic."),
                Block::call("send_message", ask.clone()),
            ]
        })
        .when_it(
            |asked| asked.tool_result()["receipt"]["stage"] == "stored",
            |asked| {
                let id = asked.tool_result()["id"].clone();
                vec![Block::call(
                    "wait_for_message",
                    json!({"message_id": id, "timeout": 60}),
                )]
            },
        )
        .otherwise([Block::text(format!(
            "meshtastic has these topics: {ANSWER}"
        ))])
}

/// The model that answers.
fn answerer() -> Script {
    Script::new()
        .when_told(QUESTION, |asked| {
            let text = asked.new_text();
            let id = text
                .split_once("[ID: ")
                .and_then(|(_, rest)| rest.split_once(']'))
                .map(|(id, _)| id.to_owned());
            vec![
                Block::pause(1_500),
                Block::call("reply", json!({"message_id": id, "response": ANSWER})),
            ]
        })
        .otherwise([Block::text("I have answered homeassistant.")])
}

/// Types the request and reads the screens until both turns have ended. Returns the pictures that differ.
async fn watch(sessions: &[Interactive; 2]) -> Result<Vec<Frame>> {
    let began = Instant::now();
    let typing = async {
        sleep(Duration::from_secs(1)).await;
        for letter in REQUEST.chars() {
            sessions[0].write(&letter.to_string()).await?;
            sleep(Duration::from_millis(35)).await;
        }
        sleep(Duration::from_millis(400)).await;
        sessions[0].key("Enter").await
    };
    let reading = async {
        let mut frames: Vec<Frame> = Vec::new();
        while began.elapsed() < PATIENCE {
            let screens = [sessions[0].screen().await?, sessions[1].screen().await?];
            let is_over =
                screens[0].contains("has these topics") && screens[1].contains("have answered");
            if frames.last().is_none_or(|last| last.screens != screens) {
                frames.push(Frame {
                    at: began.elapsed(),
                    screens,
                });
            }
            if is_over {
                return Ok(frames);
            }
            sleep(EVERY).await;
        }
        anyhow::bail!(
            "the conversation did not end within {} s",
            PATIENCE.as_secs()
        )
    };
    let ((), frames) = tokio::try_join!(typing, reading)?;
    Ok(frames)
}
