//! Keeps the text of messages out of logs, because some libraries log whole payloads, and escapes every field of a log line.

use std::fmt::Debug;

use crate::text::harmless;

/// The libraries that log payloads, and the most verbose level at which they do not.
const TALKATIVE: [(&str, &str); 3] = [
    ("rmcp", "error"),
    ("tungstenite", "warn"),
    ("tokio_tungstenite", "warn"),
];

/// Returns a `tracing` filter that quiets these libraries, unless the given filter names them. Spaces and empty parts are left
/// out: the parser takes a space for a part of a name, and an empty part for a level.
pub fn quieted(filter: &str) -> String {
    let parts = filter.split(',').map(str::trim);
    let mut parts: Vec<_> = parts
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect();
    for (library, level) in TALKATIVE {
        if !parts.iter().any(|part| part.starts_with(library)) {
            parts.push(format!("{library}={level}"));
        }
    }
    parts.join(",")
}

/// Returns a field of a log line, as one line in which terminals interpret nothing. The field `message` has no name.
pub fn field(name: &str, value: &dyn Debug) -> String {
    let value = harmless(&format!("{value:?}"), false);
    if name == "message" {
        value
    } else {
        format!("{name}={value}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_that_log_payloads_are_quiet_unless_they_are_named() {
        assert_eq!(
            quieted("trace"),
            "trace,rmcp=error,tungstenite=warn,tokio_tungstenite=warn"
        );
        assert_eq!(
            quieted("warn, rmcp=debug,,"),
            "warn,rmcp=debug,tungstenite=warn,tokio_tungstenite=warn"
        );
        let one = quieted("info,tokio_tungstenite=trace");
        assert_eq!(
            one,
            "info,tokio_tungstenite=trace,rmcp=error,tungstenite=warn"
        );
    }

    #[test]
    fn a_field_is_one_line_in_which_terminals_interpret_nothing() {
        assert_eq!(
            field("message", &format_args!("refused:\r\n\u{1b}[2J\u{202e}")),
            "refused:␍␊␛[2J\u{fffd}"
        );
        assert_eq!(field("agent.id", &format_args!("web")), "agent.id=web");
    }
}
