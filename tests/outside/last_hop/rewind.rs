//! Messages that a person removes from a conversation with `/rewind` are shown again, marked and once.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use harness::claude::Interactive;
use harness::eventually::eventually;
use harness::fake_api::Script;

use super::scene::{RECIPIENT, REPEATED, SOON, Scene};

const QUESTION: &str = "Can you turn on the living room lights?";
const NEWS: &str = "The lights in the garage are off.";
/// How soon after its next prompt the session is shown the lost messages again: its transcript is written within a second,
/// and read a second later.
const SHOWN_AGAIN: Duration = Duration::from_secs(15);

/// Returns the selected row of a list, without its mark.
fn chosen(screen: &str) -> Option<&str> {
    // Prompts of the conversation above have the same mark.
    screen
        .lines()
        .rev()
        .find_map(|line| line.trim().strip_prefix('❯'))
        .map(str::trim)
}

/// Rewinds the conversation to before that prompt. The client then puts the prompt on the input line, which is cleared.
async fn rewind(session: &Interactive, to: &str) -> Result<()> {
    session.type_line("/rewind").await?;
    // Dialogs ignore keys in their first moments, so each look at the screen decides again.
    eventually("the prompt in the edited line", SOON, async || {
        let screen = session.screen().await.ok()?;
        let dialogs = [
            ("and/or conversation", to, "Up"),
            ("to the point before", "Restore conversation", "Down"),
        ];
        let Some((_, row, key)) = dialogs
            .into_iter()
            .find(|(title, ..)| screen.contains(title))
        else {
            return (chosen(&screen) == Some(to)).then_some(());
        };
        let is_chosen = chosen(&screen).is_some_and(|chosen| chosen.contains(row));
        session
            .key(if is_chosen { "Enter" } else { key })
            .await
            .ok()?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        None
    })
    .await
    .with_context(|| session.log())?;
    session.key("C-u").await?;
    session
        .wait_for_screen("an empty line", SOON, |screen| chosen(screen) != Some(to))
        .await
}

/// Waits until the history of a message names both contexts in which it was shown. `seen` occurs only once.
async fn is_in_two_contexts(scene: &Scene, id: &str) -> Result<()> {
    let mut history = Vec::new();
    let twice = eventually("a second context", SOON, async || {
        history = scene.history(id).await.ok()?;
        (history
            .iter()
            .filter(|step| step.starts_with("in_session"))
            .count()
            == 2)
            .then_some(())
    });
    twice
        .await
        .with_context(|| format!("the history of {id}: {history:?}"))?;
    ensure!(
        history
            .iter()
            .filter(|step| step.starts_with("seen"))
            .count()
            == 1,
        "{history:?}"
    );
    Ok(())
}

/// Has a question pushed and news come with a prompt, both in the transcript of the client.
async fn pushed_and_prompted(scene: &Scene, session: &Interactive) -> Result<(String, String)> {
    let question = scene.ask(QUESTION).await?;
    scene.reaches(&question, "seen").await?;
    let news = scene.inform(NEWS).await?;
    scene.reaches(&news, "on_host").await?;
    let mut shown = scene
        .type_and_see(session, "the last of the old prompts")
        .await?;
    if !shown.holds(NEWS) {
        // On a busy machine a hook may be too late for its prompt.
        shown = scene
            .type_and_see(session, "and one more of the old prompts")
            .await?;
    }
    assert_eq!(
        (
            shown.count_of(QUESTION),
            shown.count_of(NEWS),
            shown.count_of(REPEATED)
        ),
        (1, 1, 0)
    );
    scene.reaches(&news, "seen").await?;
    scene.is(RECIPIENT, "ready").await?;
    // The client must have written the messages to its transcript before it can remove them.
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok((question, news))
}

/// A rewind to `to` removes a pushed question and news that arrived with a prompt. Both must be shown again.
async fn rewound_messages_come_again(scene: Scene, prompts: &[&str], to: &str) -> Result<()> {
    let session = scene.start().await?;
    for prompt in prompts {
        scene.type_and_see(&session, prompt).await?;
        scene.is(RECIPIENT, "ready").await?;
    }
    let (question, news) = pushed_and_prompted(&scene, &session).await?;
    rewind(&session, to).await?;
    let without = scene
        .type_and_see(&session, "the first of the new prompts")
        .await?;
    let typed = Instant::now();
    let kept = prompts
        .iter()
        .filter(|prompt| without.holds(prompt))
        .count();
    assert_eq!(
        Some(kept),
        prompts.iter().position(|prompt| *prompt == to),
        "{}",
        without.all_text()
    );
    assert_eq!(
        (without.count_of(QUESTION), without.count_of(NEWS)),
        (0, 0),
        "{}",
        without.all_text()
    );
    let again = scene.model.wait_for("both again", SOON, |asked| {
        asked.holds("the first of the new prompts") && asked.holds(QUESTION) && asked.holds(NEWS)
    });
    let again = again.await.with_context(|| session.log())?;
    let took = typed.elapsed();
    ensure!(took < SHOWN_AGAIN, "it took {took:?}");
    assert_eq!(
        (again.count_of(QUESTION), again.count_of(NEWS)),
        (1, 1),
        "{}",
        again.all_text()
    );
    assert!(again.count_of(REPEATED) == 2, "{}", again.all_text());
    is_in_two_contexts(&scene, &question).await?;
    is_in_two_contexts(&scene, &news).await?;

    scene.is(RECIPIENT, "ready").await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let later = scene
        .type_and_see(&session, "the second of the new prompts")
        .await?;
    assert_eq!(
        (later.count_of(QUESTION), later.count_of(NEWS)),
        (1, 1),
        "once: {}",
        later.all_text()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_come_again_after_a_rewind_to_the_middle() -> Result<()> {
    let Some(scene) = Scene::set("a rewind to the middle", Script::new()).await? else {
        return Ok(());
    };
    let prompts = ["the first prompt of all", "the prompt in the middle"];
    rewound_messages_come_again(scene, &prompts, "the prompt in the middle").await
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_come_again_after_a_rewind_to_the_beginning() -> Result<()> {
    let Some(scene) = Scene::set("a rewind to the beginning", Script::new()).await? else {
        return Ok(());
    };
    if !scene.claude.has_inbox().await? {
        // That version does not number its turns, so the rewind cannot be detected.
        return Ok(());
    }
    rewound_messages_come_again(
        scene,
        &["the first prompt of all"],
        "the first prompt of all",
    )
    .await
}
