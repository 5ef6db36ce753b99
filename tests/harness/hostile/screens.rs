//! Reads the screen of the client, and presses keys in it.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::sleep;

use super::seat::Seat;
use crate::claude::Interactive;
use crate::eventually::eventually;

/// The character before the input line, and before the selected line of a menu.
const POINTER: char = '❯';
/// How long a key press may take to show.
const KEY: Duration = Duration::from_millis(250);
/// How long a screen may take to appear.
pub(super) const APPEARS: Duration = Duration::from_secs(15);
/// How long a menu may take to change its selected line.
const MOVES: Duration = Duration::from_secs(2);
/// The most lines of a menu, counted down and up.
const LINES: usize = 16;

/// Returns whether the client accepts a prompt: the pointer is at the left, between two rules.
pub(super) fn is_ready(screen: &str) -> bool {
    let lines: Vec<_> = screen
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let Some(place) = lines.iter().rposition(|line| line.starts_with(POINTER)) else {
        return false;
    };
    let is_rule = |line: Option<&&str>| line.is_some_and(|line| line.starts_with("───"));
    // The rule below a prompt of several lines is further down.
    is_rule(place.checked_sub(1).and_then(|above| lines.get(above)))
        && lines[place + 1..].iter().any(|line| is_rule(Some(line)))
}

/// Returns the text on the input line.
pub(super) fn typed(screen: &str) -> String {
    let line = screen
        .lines()
        .rfind(|line| line.starts_with(POINTER))
        .unwrap_or_default();
    line.trim_start_matches(POINTER).trim().to_owned()
}

/// Returns the selected line of a menu: the last one that starts with a pointer.
fn chosen(screen: &str) -> String {
    let line = screen
        .lines()
        .rfind(|line| line.trim_start().starts_with(POINTER));
    line.unwrap_or_default().trim().to_owned()
}

/// Returns a line that must never be on a screen.
pub(super) fn error_of_ours(screen: &str) -> Option<String> {
    screen
        .lines()
        .find(|line| line.contains("hook error"))
        .map(|line| line.trim().to_owned())
}

/// Clears the input line.
///
/// Errors: the terminal is gone.
pub(super) async fn clear_line(session: &Interactive) -> Result<()> {
    // Once for each line of a longer text.
    for _ in 0..3 {
        session.key("C-u").await?;
    }
    sleep(KEY).await;
    Ok(())
}

/// Types a command and presses Enter. Menus that open while it is typed move the input line.
///
/// Errors: the command does not appear.
pub(super) async fn command(session: &Interactive, text: &str) -> Result<()> {
    clear_line(session).await?;
    session.write(text).await?;
    session
        .wait_for_screen(text, APPEARS, |screen| typed(screen) == text)
        .await?;
    sleep(KEY).await;
    session.key("Enter").await
}

/// Moves to the line of a menu with that text, first down and then up, and presses Enter.
///
/// Errors: there is no such line.
pub(super) async fn choose(session: &Interactive, text: &str) -> Result<()> {
    session
        .wait_for_screen(text, APPEARS, |screen| screen.contains(text))
        .await?;
    let mut keys = ["Down", "Up"].into_iter();
    let mut key = keys.next().unwrap_or_default();
    for _ in 0..LINES {
        let before = chosen(&session.screen().await?);
        if before.contains(text) {
            // A delayed key press may still move the selection to another line.
            sleep(KEY).await;
            if chosen(&session.screen().await?) == before {
                return session.key("Enter").await;
            }
            continue;
        }
        session.key(key).await?;
        let moves = session
            .wait_for_screen("a move", MOVES, |screen| chosen(screen) != before)
            .await;
        if moves.is_err() {
            // That is the last line of the menu.
            key = keys
                .next()
                .with_context(|| format!("no line of the menu is {text:?}"))?;
        }
    }
    bail!("no line of the menu is {text:?}")
}

/// Waits until the client is idle.
///
/// Errors: it does not become idle.
pub(super) async fn wait_idle(seat: &Seat, within: Duration) -> Result<()> {
    let idle = eventually("an idle client", within, async || {
        sleep(KEY).await;
        (seat.watch.status().as_deref() == Some("idle")).then_some(())
    });
    idle.await
        .with_context(|| format!("it is {:?}", seat.watch.status()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: &str = "────────────────────────────────";

    #[test]
    fn a_prompt_is_distinguished_from_a_menu() {
        let prompt = format!("● ok\n\n{RULE}\n❯ one\n  two\n{RULE}\n  ? for shortcuts\n\n");
        assert!(is_ready(&prompt));
        assert_eq!(typed(&prompt), "one");
        let menu = "Rewind\n\n  first prompt\n❯ (current)\n\n  Enter to continue";
        assert!(!is_ready(menu));
        assert_eq!(chosen(menu), "❯ (current)");
        let dialog = format!(
            "❯ typed before\n● Write\n{RULE}\n Do you want to create it?\n ❯ 1. Yes\n   2. No\n"
        );
        assert!(!is_ready(&dialog));
        assert_eq!(chosen(&dialog), "❯ 1. Yes");
        assert!(!is_ready(""));
    }

    #[test]
    fn an_error_of_a_hook_is_noticed() {
        assert_eq!(
            error_of_ours("x\n  ⎿ Stop hook error\n").as_deref(),
            Some("⎿ Stop hook error")
        );
        assert_eq!(error_of_ours("● hooks are fine"), None);
    }
}
