//! `c3po statusline`: one line about this session's mail, for the client's status line.
//!
//! Clients run it often and show its output, so it prints nothing on any failure.

use std::io::{self, IsTerminal};
use std::time::Duration;

use c3po_shared::question::Waiting;
use c3po_shared::text::harmless;
use c3po_shared::time::age;

use super::print::{Printer, Tone};
use crate::config::HookEnvironment;
use crate::link;
use crate::local;
use crate::local::protocol::{Event, Name, Status};

/// How long the proxy may take to answer.
const ANSWER_MAX: Duration = Duration::from_millis(150);

/// How many characters of a reason are shown.
const REASON_MAX: usize = 70;

/// Prints the line of the session that this process belongs to, if there is one.
pub(super) fn run(printer: &Printer) {
    let environment = HookEnvironment::read();
    if !io::stdin().is_terminal() {
        // The client's input is not needed, but the client may fail if it is not read.
        std::thread::spawn(|| io::copy(&mut io::stdin().lock(), &mut io::sink()));
    }
    let sockets = local::find(environment.client, &environment.sockets);
    let answer = local::ask(&sockets, Event::new(Name::Status), ANSWER_MAX);
    let Some(status) = answer.ok().and_then(|answer| answer.status) else {
        return;
    };
    // The reader may be gone; that is not a failure of a status line.
    let _ = if printer.json {
        printer.document(&status)
    } else {
        printer.line(&text(&status, printer))
    };
}

fn text(status: &Status, printer: &Printer) -> String {
    let mut parts = vec![format!(
        "c3po {}",
        printer.tinted(Tone::Strong, status.agent_id.as_str())
    )];
    if status.unread > 0 {
        parts.push(printer.tinted(Tone::Alarm, &format!("{} unread", status.unread)));
    }
    let questions = status.questions.and_then(questions);
    parts.extend(questions.map(|questions| printer.tinted(Tone::Alarm, &questions)));
    parts.extend(
        status
            .agents_online
            .map(|online| format!("{online} online")),
    );
    let tone = if status.link == link::State::Connected {
        Tone::Good
    } else {
        Tone::Alarm
    };
    parts.push(printer.tinted(tone, &link(status)));
    parts.join(" · ")
}

/// Returns how many questions wait for people, and since when; `None` if none waits.
pub(super) fn questions(waiting: Waiting) -> Option<String> {
    let oldest = age(waiting.oldest_seconds?);
    Some(match waiting.count {
        1 => format!("1 question, {oldest}"),
        count => format!("{count} questions, the oldest {oldest}"),
    })
}

/// Returns the state of the link; if it is refused, with the reason as far as it fits.
fn link(status: &Status) -> String {
    let (link::State::Failed, Some(error)) = (status.link, &status.last_error) else {
        return status.link.as_str().to_owned();
    };
    let whole = error.split(" (").next().unwrap_or_default();
    let mut shown: String = whole.chars().take(REASON_MAX).collect();
    if shown.len() < whole.len() {
        shown.push('…');
    }
    format!("refused: {}", harmless(&shown, false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use c3po_shared::vocabulary::State;

    #[test]
    fn the_status_line_has_agent_unread_count_and_state_of_the_link() {
        let mut status = Status {
            version: "0.1.0".to_owned(),
            agent_id: "web".parse().unwrap(),
            link: link::State::Connected,
            coordinator: "http://nas:8420".to_owned(),
            last_error: None,
            state: State::Ready,
            unread: 2,
            agents_online: Some(3),
            questions: Some(Waiting {
                count: 1,
                oldest_seconds: Some(59),
            }),
            reach: Vec::new(),
            session_id: None,
        };
        let plain = Printer::of_status_line(false, false);
        assert_eq!(
            text(&status, &plain),
            "c3po web · 2 unread · 1 question, 59 s · 3 online · connected"
        );
        status = Status {
            unread: 0,
            questions: None,
            agents_online: None,
            link: link::State::Reconnecting,
            ..status
        };
        assert_eq!(text(&status, &plain), "c3po web · reconnecting");
        let error = "the coordinator at nas:8430 presents another certificate (sha256:ab) than the one this host trusts (x)";
        status = Status {
            link: link::State::Failed,
            last_error: Some(error.to_owned()),
            ..status
        };
        let refused =
            "c3po web · refused: the coordinator at nas:8430 presents another certificate";
        assert_eq!(text(&status, &plain), refused);
        status.last_error = Some("x".repeat(71));
        assert_eq!(
            text(&status, &plain),
            format!("c3po web · refused: {}…", "x".repeat(70))
        );
        status = Status {
            link: link::State::Reconnecting,
            ..status
        };
        let coloured = Printer::of_status_line(false, true);
        assert_eq!(
            text(&status, &coloured),
            "c3po \u{1b}[1mweb\u{1b}[0m · \u{1b}[31mreconnecting\u{1b}[0m"
        );
    }

    #[test]
    fn questions_are_counted_with_the_age_of_the_oldest() {
        let check = |count: usize, oldest_seconds: Option<u64>, expected: Option<&str>| {
            let waiting = Waiting {
                count,
                oldest_seconds,
            };
            assert_eq!(questions(waiting).as_deref(), expected);
        };
        check(0, None, None);
        check(1, Some(59), Some("1 question, 59 s"));
        check(2, Some(300), Some("2 questions, the oldest 5 min"));
    }
}
