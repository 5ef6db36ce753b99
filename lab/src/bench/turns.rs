//! The cost of the plugin for a session without mail: time of a turn, weight of its requests, beside one without it.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use harness::claude::{ClaudeCode, Conversation, Options, plugin_copy};
use harness::coordinator::Coordinator;
use harness::fake_api::{Asked, Block, FakeApi, Script};
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::measure::Times;
use super::report::{Goal, Report};

/// A turn takes a tenth of a second.
const ROUNDS: usize = 20;
/// The first turns of a session are slower than all later ones.
const WARM_UP: usize = 2;
/// How much longer a turn may take with the plugin, in milliseconds: one of text only, one with a tool.
const LONGER: [f64; 2] = [20.0, 40.0];
/// How many tokens larger the first request may be, by the client's own estimate of four characters each.
const HEAVIER: f64 = 1_300.0;
const CHARACTERS_PER_TOKEN: f64 = 4.0;
const PROMPTS: [&str; 2] = ["say something", "read the note"];

/// A session and its model.
struct Session {
    conversation: Conversation,
    model: FakeApi,
}

/// Measures sessions with the plugin and without it, in turns.
pub(super) fn all(claude: &ClaudeCode, runtime: &Runtime, report: &mut Report) -> Result<()> {
    let work = TempDir::new()?;
    runtime.block_on(async {
        let store = format!("sqlite:{}", work.path().join("c3po.db").display());
        let mut coordinator = Coordinator::absent(work.path(), &store)?.quietly();
        coordinator.restart().await?;
        let plugin = plugin_copy(work.path())?;
        let url = coordinator.url();
        let mut plain = start(
            claude,
            work.path(),
            "plain",
            |options| options.without_c3po(),
            &url,
        )
        .await?;
        let mut plugged = start(
            claude,
            work.path(),
            "addon",
            |options| options.plugin(&plugin),
            &url,
        )
        .await?;
        let mut times = [
            [Times::default(), Times::default()],
            [Times::default(), Times::default()],
        ];
        for round in 0..WARM_UP + report.rounds(ROUNDS) {
            for (which, prompt) in PROMPTS.iter().enumerate() {
                for (session, times) in [&mut plain, &mut plugged].into_iter().zip(&mut times) {
                    let began = Instant::now();
                    session.conversation.say(prompt).await?;
                    if round >= WARM_UP {
                        times[which].add(began.elapsed());
                    }
                }
            }
        }
        let [[words, tool], [words_with, tool_with]] = times;
        let goals = LONGER.map(|more| Some(Goal::FloorAnd(more)));
        report.floor("a turn of words alone without c3po, p50", words.p50(), "ms");
        report.figure(
            "the same with the plugin, p50",
            words_with.p50(),
            "ms",
            Some(words.p50()),
            goals[0],
        );
        report.floor("a turn with one tool without c3po, p50", tool.p50(), "ms");
        report.figure(
            "the same with the plugin, p50",
            tool_with.p50(),
            "ms",
            Some(tool.p50()),
            goals[1],
        );
        weigh(&plain.model, &plugged.model, report)
    })
}

/// Starts a session whose model reads a note on request. Names have the same length, because requests contain them.
async fn start(
    claude: &ClaudeCode,
    work: &Path,
    name: &str,
    with: impl FnOnce(Options) -> Options,
    coordinator: &str,
) -> Result<Session> {
    let note = work.join(name).join("note.txt");
    let arguments = json!({"file_path": note.display().to_string()});
    let model = FakeApi::start(Script::new().when(PROMPTS[1], move |_| {
        vec![Block::call("Read", arguments.clone())]
    }))
    .await?;
    let options = with(Options::new(work, name, &model, coordinator));
    fs::create_dir_all(options.folder())?;
    fs::write(&note, "nothing of importance\n").with_context(|| note.display().to_string())?;
    let conversation = claude.converse(&options)?.quietly();
    Ok(Session {
        conversation,
        model,
    })
}

/// Compares the requests of both sessions, which had the same turns.
fn weigh(plain: &FakeApi, plugged: &FakeApi, report: &mut Report) -> Result<()> {
    let [plain, plugged] = [plain, plugged].map(|model| {
        let asked = model.asked().into_iter().filter(Asked::offers_tools);
        asked
            .map(|asked| asked.body().to_string().chars().count() as f64)
            .collect::<Vec<_>>()
    });
    ensure!(
        plain.len() == plugged.len(),
        "{} requests without c3po, {} with it",
        plain.len(),
        plugged.len()
    );
    let (Some(first), Some(first_with)) = (plain.first(), plugged.first()) else {
        return Ok(());
    };
    let tokens = (first_with - first) / CHARACTERS_PER_TOKEN;
    report.figure(
        "tokens that the plugin adds to a first request",
        tokens,
        "",
        None,
        Some(Goal::Below(HEAVIER)),
    );
    let (Some(last), Some(last_with)) = (plain.last(), plugged.last()) else {
        return Ok(());
    };
    let turns = ((last_with - last) - (first_with - first)) / CHARACTERS_PER_TOKEN;
    report.figure(
        "tokens that all turns after it add",
        turns,
        "",
        None,
        Some(Goal::Below(CHARACTERS_PER_TOKEN)),
    );
    Ok(())
}
