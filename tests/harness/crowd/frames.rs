//! Frames as text: written from templates, and read by searching for the relevant part. No JSON is built or parsed.

use std::fmt::Write;

use c3po_shared::ids::CallId;
use uuid::Uuid;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A result for the request with that id.
    Result(u64),
    /// An error for the request with that id.
    Error(u64),
    /// Messages for this host, to be answered with that id.
    Deliver(u64),
    /// Any other frame, mostly notifications.
    Other,
}

/// Returns the kind of a frame.
pub(super) fn kind(text: &str) -> Kind {
    let number = between(text, "\"id\":", ",").and_then(|id| id.parse().ok());
    // The members have a fixed order: the id of a response comes before its result or error.
    let rest = text.get(..80).unwrap_or(text);
    match number {
        Some(_) if rest.starts_with("{\"jsonrpc\":\"2.0\",\"method\":") => Kind::Other,
        Some(id) if rest.contains(",\"result\":") => Kind::Result(id),
        Some(id) if rest.contains(",\"error\":") => Kind::Error(id),
        Some(id) if rest.contains("\"method\":\"deliver\"") => Kind::Deliver(id),
        _ => Kind::Other,
    }
}

/// Returns the error code of a refusal.
pub(super) fn code(text: &str) -> Option<&str> {
    between(text, "\"code\":\"", "\"")
}

/// Returns the id of the message in a result.
pub(super) fn message_id(text: &str) -> Option<&str> {
    between(text, "\"result\":{\"id\":\"", "\"")
}

/// Returns the ids of the messages in a `deliver`. Bodies cannot match, because their quotes are escaped.
pub(super) fn delivered(text: &str) -> impl Iterator<Item = &str> {
    text.split("{\"id\":\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
}

/// Returns the stamp in a message: the send time, in microseconds of the crowd's clock.
pub(super) fn stamp(text: &str) -> Option<u64> {
    between(text, "\"message\":\"t=", ";").and_then(|stamp| stamp.parse().ok())
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let begin = text.find(before)? + before.len();
    let rest = &text[begin..];
    Some(&rest[..rest.find(after)?])
}

/// Writes `hello`, with the id 0.
pub(super) fn hello(name: &str, instance: Uuid) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"hello\",\"params\":{{\"protocol_version\":\"1.0\",\
         \"name\":\"{name}\",\"host\":\"crowd\",\"instance\":\"{instance}\",\
         \"client\":{{\"name\":\"crowd\",\"version\":\"0\"}}}}}}"
    )
}

/// Writes a call with a new call id.
pub(super) fn call(into: &mut String, id: u64, tool: &str, arguments: &str) {
    let call = CallId::fresh();
    write(
        into,
        format_args!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"call\",\"params\":{{\"call_id\":\"{call}\",\
             \"tool\":\"{tool}\",\"arguments\":{arguments}}}}}"
        ),
    );
}

/// Writes a receipt for one message.
pub(super) fn receipt(into: &mut String, id: u64, message: &str, stage: &str, via: &str) {
    write(
        into,
        format_args!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"receipt\",\"params\":{{\"message_ids\":[\"{message}\"],\
             \"stage\":\"{stage}\",\"via\":\"{via}\"}}}}"
        ),
    );
}

/// Writes a heartbeat. The coordinator only returns the timestamp, so it can be constant.
pub(super) fn heartbeat(into: &mut String, id: u64) {
    write(
        into,
        format_args!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"heartbeat\",\
             \"params\":{{\"timestamp\":\"2026-01-15T10:30:00.000Z\"}}}}"
        ),
    );
}

/// Writes the answer to `deliver`.
pub(super) fn accepted(into: &mut String, id: u64) {
    write(
        into,
        format_args!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}"),
    );
}

/// The frame that ends a link.
pub(super) const GOODBYE: &str = "{\"jsonrpc\":\"2.0\",\"method\":\"goodbye\",\"params\":{}}";

fn write(into: &mut String, text: std::fmt::Arguments<'_>) {
    into.clear();
    into.write_fmt(text).expect("a string takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;
    use c3po_shared::wire::{Frame, ToCoordinator};

    #[test]
    fn frames_are_distinguished_by_their_beginning() {
        let check = |text: &str, expected: Kind| assert_eq!(kind(text), expected, "{text}");
        check(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, Kind::Result(7));
        check(
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32050,"message":"no"}}"#,
            Kind::Error(7),
        );
        check(
            r#"{"jsonrpc":"2.0","id":3,"method":"deliver","params":{"messages":[]}}"#,
            Kind::Deliver(3),
        );
        check(
            r#"{"jsonrpc":"2.0","method":"draining","params":{}}"#,
            Kind::Other,
        );
        check(
            r#"{"jsonrpc":"2.0","method":"broadcast","params":{"id":1,"result":2}}"#,
            Kind::Other,
        );
    }

    #[test]
    fn the_coordinator_reads_the_frames_as_written() {
        let mut text = String::new();
        let mut check = |write: &dyn Fn(&mut String)| {
            write(&mut text);
            let Ok(Frame::Request { method, params, .. }) = Frame::parse(&text) else {
                panic!("no request: {text}")
            };
            ToCoordinator::parse(&method, params).expect("a frame of the protocol");
        };
        check(&|text| text.clone_from(&hello("a", Uuid::nil())));
        check(&|text| call(text, 1, "ping", "{}"));
        check(&|text| receipt(text, 2, "a::b::00000001", "in_session", "wait_for_message"));
        check(&|text| heartbeat(text, 3));
    }

    #[test]
    fn ids_and_stamps_are_found_and_no_body_is_taken_for_one() {
        let message = r#"{"id":"a::b::00000001","message":"t=17;{\"id\":\"x\"}"}"#;
        let result = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{message}}}"#);
        assert_eq!(
            (message_id(&result), stamp(&result)),
            (Some("a::b::00000001"), Some(17))
        );
        let deliver = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"deliver","params":{{"messages":[{message}]}}}}"#
        );
        assert_eq!(delivered(&deliver).collect::<Vec<_>>(), ["a::b::00000001"]);
        assert_eq!(
            code(r#"{"error":{"code":-32029,"data":{"code":"INBOX_FULL"}}}"#),
            Some("INBOX_FULL")
        );
    }
}
