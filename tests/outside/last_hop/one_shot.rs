//! `claude -p`: it prints its own answer in every format, whatever messages wait in its folder or arrive meanwhile.

use anyhow::{Result, ensure};
use harness::fake_api::{Block, Gate, Script};
use serde_json::Value;

use super::scene::{RECIPIENT, SOON, Scene};

const RESULT: &str = "THE RESULT OF THE JOB";
const JOB: &str = "do the job";
/// Extracts the result from the output.
type Read = fn(&str) -> Option<String>;
/// The arguments for each output format, and the function that extracts the result.
const FORMATS: [(&[&str], Read); 3] = [
    (&["--output-format", "text"], |output| {
        Some(output.trim().to_owned())
    }),
    (&["--output-format", "json"], result_of),
    (&["--output-format", "stream-json", "--verbose"], |output| {
        output.lines().last().and_then(result_of)
    }),
];

/// Returns the result in a JSON object of the client, or in the last one of a list.
fn result_of(text: &str) -> Option<String> {
    let value: Value = serde_json::from_str(text).ok()?;
    let last = value
        .as_array()
        .and_then(|objects| objects.last().cloned())
        .unwrap_or(value);
    last["result"].as_str().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_one_shot_run_in_every_format_prints_its_own_answer_alone() -> Result<()> {
    // The model answers when the test has sent its message, so the message arrives during the run.
    let gates: Vec<Gate> = FORMATS.iter().map(|_| Gate::new()).collect();
    let script = gates.iter().fold(Script::new(), |script, gate| {
        script.then([Block::hold(gate), Block::text(RESULT)])
    });
    let Some(scene) = Scene::set("one-shot runs", script).await? else {
        return Ok(());
    };
    scene.start().await?.exit().await?;
    scene.is_offline(RECIPIENT).await?;
    scene.ask("It waited before?").await?;
    for ((arguments, result), gate) in FORMATS.iter().zip(&gates) {
        let before = scene.model.asked().len();
        let run = scene.claude.print(
            &scene.options.clone().arguments(arguments.iter().copied()),
            JOB,
        )?;
        scene
            .model
            .wait_for("the prompt", SOON, |_| scene.model.asked().len() > before)
            .await?;
        let came = scene.ask("It comes meanwhile?").await?;
        gate.open();
        let finished = run.finish(SOON).await?;
        ensure!(
            finished.status.success(),
            "{arguments:?}: {} {}",
            finished.output,
            finished.log
        );
        assert_eq!(
            result(&finished.output).as_deref(),
            Some(RESULT),
            "{arguments:?}: {}",
            finished.output
        );
        assert_eq!(scene.model.asked().len() - before, 1, "{arguments:?}");
        assert_eq!(
            scene.history(&came).await?,
            ["stored"],
            "{arguments:?}: it is not this run's"
        );
    }
    scene.is_offline(RECIPIENT).await.map(drop)
}
