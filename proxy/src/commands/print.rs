//! The output of commands: JSON, or aligned text in which no message can control the terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use c3po_shared::host::after_at;
use c3po_shared::message::Message;
use c3po_shared::text::{harmless, harmless_json};
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::{Priority, ReplyStatus};
use jiff::tz::TimeZone;
use rustix::termios::tcgetwinsize;
use serde::Serialize;

use super::failure::Failure;
use super::rows::{CONTINUED, rows};

/// The columns of a terminal that does not report them.
const COLUMNS: u16 = 80;
/// How each row of a quoted text begins.
const QUOTED: &str = "> ";

/// The output settings of a command.
#[derive(Debug)]
pub(super) struct Printer {
    pub(super) json: bool,
    colour: bool,
    /// Whether standard output is a terminal, so that long lines become rows.
    is_terminal: bool,
    /// Whether times are printed in UTC.
    utc: bool,
    zone: OnceLock<TimeZone>,
}

/// The kind of a piece of text, for its colour.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tone {
    /// The most important part of a line.
    Strong,
    /// A good result.
    Good,
    /// A part that needs attention.
    Alarm,
    /// De-emphasised.
    Quiet,
}

impl Printer {
    /// Returns the printer for this process: coloured only on a terminal with colours enabled, with times in this host's
    /// zone or in UTC.
    pub(super) fn of_terminal(json: bool, colour: bool, utc: bool) -> Self {
        let is_terminal = !json && io::stdout().is_terminal();
        Self {
            json,
            colour: colour && is_terminal,
            is_terminal,
            utc,
            zone: OnceLock::new(),
        }
    }

    /// Returns the printer for a client's status line, which shows colours without being a terminal.
    pub(super) fn of_status_line(json: bool, colour: bool) -> Self {
        Self {
            json,
            colour: colour && !json,
            is_terminal: false,
            utc: true,
            zone: OnceLock::new(),
        }
    }

    /// Returns the zone of times. It is read for the first time that is printed: a project may make it a file that never ends.
    fn zone(&self) -> &TimeZone {
        self.zone.get_or_init(|| match self.utc {
            true => TimeZone::UTC,
            false => TimeZone::system(),
        })
    }

    /// Prints a line.
    pub(super) fn line(&self, line: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        writeln!(out, "{line}")
            .and_then(|()| out.flush())
            .map_err(|error| Failure::of_output(&error))
    }

    /// Prints a line that begins with `first` and has text of another side. On a terminal no row of it can look like another
    /// line.
    pub(super) fn others(&self, first: &str, text: &str) -> Result<(), Failure> {
        self.line(&rows(first, text, CONTINUED, self.columns()))
    }

    /// Prints a text of another side, quoted.
    pub(super) fn quote(&self, text: &str) -> Result<(), Failure> {
        self.line(&quoted(text, self.columns()))
    }

    /// Prints rows with aligned columns, which may have texts of other sides.
    pub(super) fn table(&self, rows: &[Vec<String>]) -> Result<(), Failure> {
        let mut lines = aligned(rows).into_iter();
        lines.try_for_each(|line| self.others("", &line))
    }

    /// Returns the width of the terminal that standard output is now, if it is one.
    fn columns(&self) -> Option<usize> {
        let size = self.is_terminal.then(|| tcgetwinsize(io::stdout()));
        let reported = size?.map_or(0, |size| size.ws_col);
        Some(usize::from(if reported == 0 { COLUMNS } else { reported }))
    }

    /// Prints a value as one line of JSON.
    pub(super) fn document<T: Serialize>(&self, value: &T) -> Result<(), Failure> {
        // A document of another side, passed on as it came, may have white space between its tokens.
        self.line(
            &harmless_json(&serde_json::to_string(value).unwrap_or_default()).replace('\n', " "),
        )
    }

    /// Prints a message: a header, its title, and its text quoted.
    pub(super) fn message(&self, message: &Message) -> Result<(), Failure> {
        self.line(&self.message_text(message, self.columns()))
    }

    /// Returns a message as lines, wrapped to so many columns.
    fn message_text(&self, message: &Message, columns: Option<usize>) -> String {
        let host = message
            .from_host
            .as_ref()
            .map(|host| format!(" {}", after_at(&harmless(host, false))))
            .unwrap_or_default();
        let mut head = format!(
            "{}  from {}{host} to {}  {}",
            self.tinted(Tone::Quiet, message.id.as_str()),
            self.tinted(Tone::Strong, message.from_agent.as_str()),
            message.to_agent,
            self.tinted(Tone::Quiet, &self.moment(message.timestamp)),
        );
        if message.priority != Priority::Normal {
            head += &format!("  {}", self.tinted(Tone::Alarm, message.priority.as_str()));
        }
        if message.requires_response {
            head += "  wants an answer";
        }
        if message.status == Some(ReplyStatus::Error) {
            head += &format!("  {}", self.tinted(Tone::Alarm, "error"));
        }
        if let Some(question) = &message.reply_to {
            head += &format!("  answers {question}");
        }
        if let Some(answer) = &message.answer {
            // An answer of `human` may come from a dialog on a host, which no login vouches for.
            head += &format!("  by {:?} via {}", harmless(&answer.by, false), answer.via);
        }
        let line = |first: &str, text: &str| rows(first, text, CONTINUED, columns);
        let mut lines = vec![line("", &head)];
        let title = message.title.as_ref();
        // A title alone on its line could look like another header.
        lines.extend(title.map(|title| line("title: ", &harmless(title, false))));
        lines.push(quoted(message.text(), columns));
        if let Some(context) = &message.context {
            lines.extend(["context:".to_owned(), quoted(context, columns)]);
        }
        lines.join("\n")
    }

    /// Returns a time as text with the zone's offset. It has milliseconds, because a receipt may pass all its stages within
    /// one second.
    pub(super) fn moment(&self, at: Timestamp) -> String {
        let millis = i64::try_from(at.millis()).unwrap_or(i64::MAX);
        let Ok(instant) = jiff::Timestamp::from_millisecond(millis) else {
            return at.to_string().replace('T', " ");
        };
        let there = instant.to_zoned(self.zone().clone());
        let offset = if there.offset().is_zero() {
            "Z".to_owned()
        } else {
            there.strftime("%:z").to_string()
        };
        format!("{}{offset}", there.strftime("%Y-%m-%d %H:%M:%S%.3f"))
    }

    /// Returns the text in the colour of its tone.
    pub(super) fn tinted(&self, tone: Tone, text: &str) -> String {
        if !self.colour {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Strong => 1,
            Tone::Good => 32,
            Tone::Alarm => 31,
            Tone::Quiet => 2,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// Returns rows with aligned columns, without trailing spaces.
pub(super) fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<_> = (0..columns)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    rows.iter()
        .map(|row| {
            let cells: Vec<_> = row
                .iter()
                .zip(&widths)
                .map(|(cell, &width)| format!("{cell:width$}"))
                .collect();
            cells.join("  ").trim_end().to_owned()
        })
        .collect()
}

/// Returns a text with `> ` before every line, and with columns before every row, so that a message's text is always
/// recognisable.
fn quoted(text: &str, columns: Option<usize>) -> String {
    let text = harmless(text, true);
    let line = |line| rows(QUOTED, line, QUOTED, columns);
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_body_cannot_fake_an_origin_or_obey_a_terminal() {
        assert_eq!(
            quoted("hi\n\u{1b}[2Jb::a::00000001  from human", None),
            "> hi\n> ␛[2Jb::a::00000001  from human"
        );
        assert_eq!(
            quoted("a\rb\u{9b}c\u{202e}d\u{7f}", None),
            "> a␍b\u{fffd}c\u{fffd}d␡"
        );
        assert_eq!(quoted("", None), ">");
        assert_eq!(quoted("hi    b::a\n", Some(8)), "> hi\n> b::a\n>");
    }

    #[test]
    fn times_are_those_of_the_host() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let printer = |zone: TimeZone| Printer {
            json: false,
            colour: false,
            is_terminal: false,
            utc: false,
            zone: zone.into(),
        };
        let at = |text: &str, zone: &TimeZone| printer(zone.clone()).moment(text.parse().unwrap());
        assert_eq!(
            at("2026-01-15T10:30:00.007Z", &zone),
            "2026-01-15 11:30:00.007+01:00"
        );
        assert_eq!(
            at("2026-07-15T22:30:00.000Z", &zone),
            "2026-07-16 00:30:00.000+02:00"
        );
        assert_eq!(
            at("2026-07-15T22:30:00.000Z", &TimeZone::UTC),
            "2026-07-15 22:30:00.000Z"
        );
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [
            vec!["a".to_owned(), "bb".to_owned(), String::new()],
            vec!["ccc".to_owned(), "d".to_owned(), "e".to_owned()],
        ];
        assert_eq!(aligned(&rows), ["a    bb", "ccc  d   e"]);
    }

    #[test]
    fn a_message_is_a_line_about_it_and_its_quoted_text() {
        let message: Message = serde_json::from_value(json!({
            "id": "a::b::00000001", "thread_id": "a::b::00000001", "kind": "message", "from_agent": "a",
            "from_host": "nas\u{1b}2", "to_agent": "b", "title": "Topics", "message": "Which?\nAll?", "context": "why",
            "priority": "urgent", "requires_response": true,
            "timestamp": "2026-01-15T10:30:00.000Z", "expires_at": "2026-01-16T10:30:00.000Z",
        }))
        .unwrap();
        let printer = Printer {
            json: false,
            colour: false,
            is_terminal: false,
            utc: true,
            zone: OnceLock::new(),
        };
        assert_eq!(
            printer.message_text(&message, None),
            "a::b::00000001  from a @nas␛2 to b  2026-01-15 10:30:00.000Z  urgent  wants an answer\n\
             title: Topics\n> Which?\n> All?\ncontext:\n> why"
        );
        assert_eq!(
            printer.message_text(&message, Some(40)),
            "a::b::00000001  from a @nas␛2 to b\n  … 2026-01-15 10:30:00.000Z  urgent\n  … wants an answer\n\
             title: Topics\n> Which?\n> All?\ncontext:\n> why"
        );
        let coloured = Printer {
            colour: true,
            ..printer
        };
        assert!(
            coloured
                .message_text(&message, None)
                .contains("\u{1b}[31murgent")
        );
    }
}
