//! Exchanging members of a JSON object in its text: every other byte stays as a person has written it.
//!
//! The scanner is only for text that `serde_json` has taken before: it need not find mistakes.

use std::ops::Range;

use serde_json::Value;
use thiserror::Error;

/// Why a text cannot be edited.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum Unsafe {
    #[error("it is not valid JSON: {0}")]
    NotJson(String),
    #[error("{0} is no JSON object")]
    NoObject(String),
    #[error("{0} stands in it more than once")]
    Twice(String),
}

/// A member of an object.
struct Member {
    /// Where what is between the last comma, or the brace, and this member begins.
    from: usize,
    key: Range<usize>,
    value: Range<usize>,
}

/// An object, whose braces are at both ends of the range.
struct Object {
    range: Range<usize>,
    members: Vec<Member>,
}

/// How members are set apart in an object.
struct Layout {
    /// What stands before a member.
    before: String,
    /// What stands before the closing brace.
    end: String,
    /// The step from one depth to the next, where members have lines of their own.
    step: Option<String>,
}

/// Returns what a text says.
pub(super) fn parsed(text: &str) -> Result<Value, Unsafe> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    serde_json::from_str(text).map_err(|error| Unsafe::NotJson(error.to_string()))
}

/// Returns the text of the value at the path, if there is one.
pub(super) fn raw<'a>(text: &'a str, path: &[&str]) -> Result<Option<&'a str>, Unsafe> {
    Ok(find(text, path)?.map(|range| &text[range]))
}

/// Returns the text with that value at the path. Objects on the way there are made where they are missing.
pub(super) fn with(text: &str, path: &[&str], value: &Value) -> Result<String, Unsafe> {
    let root = root(text)?;
    let mut layout = root.layout(text, None);
    let mut object = root;
    for (depth, name) in path.iter().enumerate() {
        let rest = &path[depth + 1..];
        match object.member(text, name)? {
            None => return Ok(object.inserted(text, &layout, name, &nested(rest, value))),
            Some(member) if rest.is_empty() => {
                if serde_json::from_str::<Value>(&text[member.value.clone()]).ok().as_ref() == Some(value) {
                    return Ok(text.to_owned());
                }
                return Ok(replaced(text, member.value.clone(), &layout.written(value)));
            }
            Some(member) => {
                let inner = Object::at(text, member.value.start).ok_or_else(|| Unsafe::NoObject((*name).to_owned()))?;
                layout = inner.layout(text, Some(&layout));
                object = inner;
            }
        }
    }
    Ok(text.to_owned())
}

/// Returns the text with the value at the path written as `raw`, which is JSON.
pub(super) fn with_raw(text: &str, path: &[&str], raw: &str) -> Result<String, Unsafe> {
    match find(text, path)? {
        Some(range) => Ok(replaced(text, range, raw)),
        None => with(text, path, &parsed(raw)?),
    }
}

/// Returns the text without the member at the path, and without the objects that are empty by that.
pub(super) fn without(text: &str, path: &[&str]) -> Result<String, Unsafe> {
    let Some((last, parents)) = path.split_last() else { return Ok(text.to_owned()) };
    let object = if parents.is_empty() {
        Some(root(text)?)
    } else {
        find(text, parents)?.and_then(|range| Object::at(text, range.start))
    };
    let Some(object) = object else { return Ok(text.to_owned()) };
    if object.member(text, last)?.is_none() {
        return Ok(text.to_owned());
    }
    if object.members.len() == 1 && !parents.is_empty() {
        return without(text, parents);
    }
    let at = object.members.iter().position(|member| member.is(text, last)).unwrap_or_default();
    let gone = match (at.checked_sub(1).map(|before| &object.members[before]), object.members.get(at + 1)) {
        (_, Some(next)) => object.members[at].from..next.from,
        (Some(before), None) => before.value.end..object.members[at].value.end,
        (None, None) => object.range.start + 1..object.range.end - 1,
    };
    Ok(replaced(text, gone, ""))
}

fn find(text: &str, path: &[&str]) -> Result<Option<Range<usize>>, Unsafe> {
    let mut object = root(text)?;
    for (depth, name) in path.iter().enumerate() {
        let Some(value) = object.member(text, name)?.map(|member| member.value.clone()) else { return Ok(None) };
        if depth + 1 == path.len() {
            return Ok(Some(value));
        }
        let Some(inner) = Object::at(text, value.start) else { return Ok(None) };
        object = inner;
    }
    Ok(None)
}

fn root(text: &str) -> Result<Object, Unsafe> {
    parsed(text)?;
    let start = text.find(|c: char| !c.is_whitespace() && c != '\u{feff}').unwrap_or_default();
    Object::at(text, start).ok_or_else(|| Unsafe::NoObject("the whole of it".to_owned()))
}

fn nested(path: &[&str], value: &Value) -> Value {
    path.iter()
        .rev()
        .fold(value.clone(), |value, name| Value::Object([((*name).to_owned(), value)].into_iter().collect()))
}

fn replaced(text: &str, range: Range<usize>, by: &str) -> String {
    [&text[..range.start], by, &text[range.end..]].concat()
}

impl Member {
    fn is(&self, text: &str, name: &str) -> bool {
        serde_json::from_str::<String>(&text[self.key.clone()]).is_ok_and(|key| key == name)
    }
}

impl Object {
    /// Returns the object that begins at `start`, if one does.
    fn at(text: &str, start: usize) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.get(start) != Some(&b'{') {
            return None;
        }
        let mut members = Vec::new();
        let mut from = start + 1;
        loop {
            let key = blank_end(bytes, from);
            if bytes.get(key) != Some(&b'"') {
                return Some(Self { range: start..key + 1, members });
            }
            let key = key..value_end(bytes, key);
            let value = blank_end(bytes, blank_end(bytes, key.end) + 1);
            let value = value..value_end(bytes, value);
            let after = blank_end(bytes, value.end);
            members.push(Member { from, key, value });
            if bytes.get(after) != Some(&b',') {
                return Some(Self { range: start..after + 1, members });
            }
            from = after + 1;
        }
    }

    fn member(&self, text: &str, name: &str) -> Result<Option<&Member>, Unsafe> {
        let mut named = self.members.iter().filter(|member| member.is(text, name));
        let first = named.next();
        if named.next().is_some() { Err(Unsafe::Twice(name.to_owned())) } else { Ok(first) }
    }

    /// Returns how its members are set apart; where it has none, as its parent's are, one step further in.
    fn layout(&self, text: &str, parent: Option<&Layout>) -> Layout {
        let Some(last) = self.members.last() else {
            return parent.map_or_else(Layout::of_empty_root, Layout::deeper);
        };
        let before = text[last.from..last.key.start].to_owned();
        let end = text[last.value.end..self.range.end - 1].to_owned();
        let outer = parent.map_or("", |parent| indent(&parent.before));
        let step = before.contains('\n').then(|| {
            let step = indent(&before).strip_prefix(outer).unwrap_or_default();
            if step.is_empty() { "  ".to_owned() } else { step.to_owned() }
        });
        Layout { before, end, step }
    }

    fn inserted(&self, text: &str, layout: &Layout, name: &str, value: &Value) -> String {
        let member = format!("{}{}: {}", layout.before, Value::from(name), layout.written(value));
        match self.members.last() {
            Some(last) => replaced(text, last.value.end..last.value.end, &format!(",{member}")),
            None => replaced(text, self.range.start + 1..self.range.end - 1, &format!("{member}{}", layout.end)),
        }
    }
}

impl Layout {
    fn of_empty_root() -> Self {
        Self { before: "\n  ".to_owned(), end: "\n".to_owned(), step: Some("  ".to_owned()) }
    }

    fn deeper(&self) -> Self {
        match &self.step {
            Some(step) => {
                Self { before: format!("{}{step}", self.before), end: self.before.clone(), step: self.step.clone() }
            }
            None => Self { before: String::new(), end: String::new(), step: None },
        }
    }

    /// Returns a value as it stands behind a key.
    fn written(&self, value: &Value) -> String {
        let Some(step) = &self.step else { return value.to_string() };
        let new_line = if self.before.contains("\r\n") { "\r\n" } else { "\n" };
        let pretty = serde_json::to_string_pretty(value).unwrap_or_default();
        let lines = pretty.lines().enumerate().map(|(number, line)| {
            let inner = line.trim_start();
            let depth = (line.len() - inner.len()) / 2;
            let indent = if number == 0 { "" } else { indent(&self.before) };
            format!("{indent}{}{inner}", step.repeat(depth))
        });
        lines.collect::<Vec<_>>().join(new_line)
    }
}

/// Returns what stands before a member in its own line.
fn indent(before: &str) -> &str {
    before.rsplit_once('\n').map_or("", |(_, indent)| indent)
}

fn blank_end(bytes: &[u8], from: usize) -> usize {
    from + bytes[from..].iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}

/// Returns where the value that begins at `start` ends.
fn value_end(bytes: &[u8], start: usize) -> usize {
    let (mut depth, mut at) = (0_usize, start);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at = string_end(bytes, at);
                if depth == 0 {
                    return at;
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return at,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            b',' if depth == 0 => return at,
            byte if depth == 0 && byte.is_ascii_whitespace() => return at,
            _ => {}
        }
        at += 1;
    }
    at
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ODD: &str = "\u{feff}{\r\n\t\"a\" :1.00 , \"\\u0062\":{ \"x\":[1,\n{\"y\":\"}\\\"\"}] },\r\n\
                       \t\"big\": 12345678901234567890123,\"//\": \"/* , */\"\r\n  }\n\n";

    #[test]
    fn a_member_is_added_in_the_manner_of_its_neighbours() {
        let check = |text: &str, path: &[&str], expected: &str| {
            assert_eq!(with(text, path, &json!({"k": [true]})).unwrap(), expected, "{text}");
        };
        check("{}", &["a"], "{\n  \"a\": {\n    \"k\": [\n      true\n    ]\n  }\n}");
        check("{\"x\":1}", &["a"], "{\"x\":1,\"a\": {\"k\":[true]}}");
        check("{\"x\": {}, \"y\": 1}", &["x", "a"], "{\"x\": {\"a\": {\"k\":[true]}}, \"y\": 1}");
        check(
            "{\n\t\"x\": {}\n}\n",
            &["x", "a"],
            "{\n\t\"x\": {\n\t\t\"a\": {\n\t\t\t\"k\": [\n\t\t\t\ttrue\n\t\t\t]\n\t\t}\n\t}\n}\n",
        );
        check(
            "{\r\n \"x\": 1\r\n}",
            &["y", "a"],
            "{\r\n \"x\": 1,\r\n \"y\": {\r\n  \"a\": {\r\n   \"k\": [\r\n    true\r\n   ]\r\n  }\r\n }\r\n}",
        );
    }

    #[test]
    fn a_value_is_exchanged_and_the_same_value_is_left_as_it_is_written() {
        let text = "{ \"a\" : [ 1,2 ] , \"b\": null}";
        assert_eq!(with(text, &["a"], &json!([1, 2])).unwrap(), text);
        assert_eq!(with(text, &["b"], &json!(true)).unwrap(), "{ \"a\" : [ 1,2 ] , \"b\": true}");
        assert_eq!(with_raw(text, &["a"], "[ 3 ]").unwrap(), "{ \"a\" : [ 3 ] , \"b\": null}");
        assert_eq!(raw(text, &["a"]).unwrap(), Some("[ 1,2 ]"));
        assert_eq!(raw(text, &["c"]).unwrap(), None);
        assert_eq!(raw(text, &["a", "c"]).unwrap(), None);
    }

    #[test]
    fn what_was_added_is_taken_out_to_the_byte() {
        for text in ["{}", "{\"x\":1}", "{ \"x\" : 1 }", "{\n    \"x\": {\"y\": 1}\n}\n", ODD] {
            for path in [&["new"][..], &["new", "deep"], &["x", "deep"], &["b", "deep"]] {
                let Ok(added) = with(text, path, &json!({"k": 1})) else { continue };
                assert_ne!(added, text);
                let without_mark = added.strip_prefix('\u{feff}').unwrap_or(&added);
                let said: Value = serde_json::from_str(without_mark).unwrap();
                assert_eq!(path.iter().fold(&said, |value, name| &value[name]), &json!({"k": 1}), "{added}");
                assert_eq!(without(&added, path).unwrap(), text);
            }
        }
    }

    #[test]
    fn a_member_is_taken_out_wherever_it_stands() {
        let check = |text: &str, path: &[&str], expected: &str| assert_eq!(without(text, path).unwrap(), expected);
        check("{ \"a\": 1, \"b\" : 2 ,\"c\":3 }", &["a"], "{ \"b\" : 2 ,\"c\":3 }");
        check("{ \"a\": 1, \"b\" : 2 ,\"c\":3 }", &["b"], "{ \"a\": 1,\"c\":3 }");
        check("{ \"a\": 1, \"b\" : 2 ,\"c\":3 }", &["c"], "{ \"a\": 1, \"b\" : 2 }");
        check("{\"a\": {\"b\": {\"c\": 1}}, \"d\": 1}", &["a", "b", "c"], "{ \"d\": 1}");
        check("{\"a\": {\"b\": 1}}", &["a", "b"], "{}");
        check("{\"a\": 1}", &["b"], "{\"a\": 1}");
        check("{\"a\": 1}", &["a", "b"], "{\"a\": 1}");
    }

    #[test]
    fn what_cannot_be_edited_safely_is_refused() {
        let check = |text: &str, path: &[&str], expected: &str| {
            let refused = with(text, path, &json!(1)).unwrap_err().to_string();
            assert!(refused.contains(expected), "{text}: {refused}");
        };
        check("{ // comment\n}", &["a"], "not valid JSON");
        check("{\"a\": 1,}", &["a"], "not valid JSON");
        check("", &["a"], "not valid JSON");
        check("[]", &["a"], "no JSON object");
        check("{\"a\": [1]}", &["a", "b"], "a is no JSON object");
        check("{\"a\": 1, \"\\u0061\": 2}", &["a"], "a stands in it more than once");
    }
}
