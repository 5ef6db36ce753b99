//! What a person sees on the screen of the client, and presses there.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::sleep;

use super::seat::Seat;
use crate::claude::Interactive;
use crate::eventually::eventually;

/// What stands before the line that is typed, and before the chosen line of a menu.
const POINTER: char = '❯';
/// A key takes so long to show.
const KEY: Duration = Duration::from_millis(250);
/// So long a screen may take to appear.
pub(super) const APPEARS: Duration = Duration::from_secs(15);
/// So long the chosen line of a menu may take to change.
const MOVES: Duration = Duration::from_secs(2);
/// A menu has no more lines than that, down and up.
const LINES: usize = 16;

/// Returns whether a prompt can be typed: the pointer stands at the left, between two rules.
pub(super) fn is_ready(screen: &str) -> bool {
    let lines: Vec<_> = screen.lines().filter(|line| !line.trim().is_empty()).collect();
    let Some(place) = lines.iter().rposition(|line| line.starts_with(POINTER)) else { return false };
    let is_rule = |line: Option<&&str>| line.is_some_and(|line| line.starts_with("───"));
    // A prompt of several lines has its rule further below.
    is_rule(place.checked_sub(1).and_then(|above| lines.get(above)))
        && lines[place + 1..].iter().any(|line| is_rule(Some(line)))
}

/// Returns what is typed.
pub(super) fn typed(screen: &str) -> String {
    let line = screen.lines().rfind(|line| line.starts_with(POINTER)).unwrap_or_default();
    line.trim_start_matches(POINTER).trim().to_owned()
}

/// Returns the chosen line of a menu, which is the last one that a pointer stands before.
fn chosen(screen: &str) -> String {
    let line = screen.lines().rfind(|line| line.trim_start().starts_with(POINTER));
    line.unwrap_or_default().trim().to_owned()
}

/// Returns what must never be on a screen.
pub(super) fn error_of_ours(screen: &str) -> Option<String> {
    screen.lines().find(|line| line.contains("hook error")).map(|line| line.trim().to_owned())
}

/// Takes away what is typed.
///
/// Errors: the terminal is gone.
pub(super) async fn clear_line(session: &Interactive) -> Result<()> {
    // One for each line of a longer text.
    for _ in 0..3 {
        session.key("C-u").await?;
    }
    sleep(KEY).await;
    Ok(())
}

/// Types a command and presses Enter. Menus that appear while it is typed move what was typed before.
///
/// Errors: it does not appear.
pub(super) async fn command(session: &Interactive, text: &str) -> Result<()> {
    clear_line(session).await?;
    session.write(text).await?;
    session.wait_for_screen(text, APPEARS, |screen| typed(screen) == text).await?;
    sleep(KEY).await;
    session.key("Enter").await
}

/// Goes to the line of a menu with that text, down and then up, and presses Enter.
///
/// Errors: there is no such line.
pub(super) async fn choose(session: &Interactive, text: &str) -> Result<()> {
    session.wait_for_screen(text, APPEARS, |screen| screen.contains(text)).await?;
    let mut keys = ["Down", "Up"].into_iter();
    let mut key = keys.next().unwrap_or_default();
    for _ in 0..LINES {
        let before = chosen(&session.screen().await?);
        if before.contains(text) {
            // A key that was slow to show may still move on, to a line that does something else.
            sleep(KEY).await;
            if chosen(&session.screen().await?) == before {
                return session.key("Enter").await;
            }
            continue;
        }
        session.key(key).await?;
        let moves = session.wait_for_screen("a move", MOVES, |screen| chosen(screen) != before).await;
        if moves.is_err() {
            // That is the last line.
            key = keys.next().with_context(|| format!("no line of the menu is {text:?}"))?;
        }
    }
    bail!("no line of the menu is {text:?}")
}

/// Waits until the client is idle.
///
/// Errors: it is not.
pub(super) async fn wait_idle(seat: &Seat, within: Duration) -> Result<()> {
    let idle = eventually("an idle client", within, async || {
        sleep(KEY).await;
        (seat.watch.status().as_deref() == Some("idle")).then_some(())
    });
    idle.await.with_context(|| format!("it is {:?}", seat.watch.status()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: &str = "────────────────────────────────";

    #[test]
    fn a_prompt_is_told_from_a_menu() {
        let prompt = format!("● ok\n\n{RULE}\n❯ one\n  two\n{RULE}\n  ? for shortcuts\n\n");
        assert!(is_ready(&prompt));
        assert_eq!(typed(&prompt), "one");
        let menu = "Rewind\n\n  first prompt\n❯ (current)\n\n  Enter to continue";
        assert!(!is_ready(menu));
        assert_eq!(chosen(menu), "❯ (current)");
        let dialog = format!("❯ typed before\n● Write\n{RULE}\n Do you want to create it?\n ❯ 1. Yes\n   2. No\n");
        assert!(!is_ready(&dialog));
        assert_eq!(chosen(&dialog), "❯ 1. Yes");
        assert!(!is_ready(""));
    }

    #[test]
    fn an_error_of_a_hook_is_noticed() {
        assert_eq!(error_of_ours("x\n  ⎿ Stop hook error\n").as_deref(), Some("⎿ Stop hook error"));
        assert_eq!(error_of_ours("● hooks are fine"), None);
    }
}
