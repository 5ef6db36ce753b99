//! A short hostile day with two real sessions; `make hostile` is the long run.

use std::time::Duration;

use anyhow::{Context, Result};
use harness::claude::ClaudeCode;
use harness::hostile::{Action, Day, run};
use harness::skip::skipped;

/// The default seed.
const SEED: u64 = 1_977;
/// How long people act.
const TIME: Duration = Duration::from_secs(90);

/// Every message is in the conversation of its recipient, once or marked, and no receipt reports more than is true.
#[tokio::test(flavor = "multi_thread")]
async fn random_actions_lose_no_message_and_cause_no_false_receipt() -> Result<()> {
    let claude = match ClaudeCode::find() {
        Ok(claude) => claude,
        Err(reason) => return skipped("a hostile day", &format!("{reason:#}")),
    };
    let seed = match std::env::var("C3PO_HOSTILE_SEED") {
        Ok(seed) => seed.parse().context("C3PO_HOSTILE_SEED")?,
        Err(_) => SEED,
    };
    let actions = Action::all();
    let aftermath = run(
        &claude,
        Day {
            time: TIME,
            sessions: 2,
            seed,
            actions,
            keeps: false,
        },
    )
    .await?;
    let again = format!(
        "again with C3PO_HOSTILE_SEED={seed}; stories, logs and transcripts: {:?}",
        aftermath.kept
    );
    assert!(
        aftermath.report.findings.is_empty(),
        "{again}\n{}",
        aftermath.report
    );
    eprintln!("seed {seed}, {:?}: {}", aftermath.took, aftermath.report);
    Ok(())
}
