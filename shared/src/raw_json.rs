//! JSON that is passed on as it came.

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Error as _, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// A JSON value, kept as its text: parsed it could take a hundred times as many bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonText(Box<str>);

impl JsonText {
    /// Returns the text, without white space between its tokens.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns how many arrays and objects are nested.
    pub fn depth(&self) -> usize {
        let (mut depth, mut most, mut in_text, mut is_escaped) = (0_usize, 0, false, false);
        for byte in self.0.bytes() {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' if in_text => is_escaped = true,
                b'"' => in_text = !in_text,
                b'[' | b'{' if !in_text => depth += 1,
                b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
                _ => {}
            }
            most = most.max(depth);
        }
        most
    }
}

impl From<&Value> for JsonText {
    fn from(value: &Value) -> Self {
        Self(value.to_string().into())
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(S::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JsonText {
    // Not by a `RawValue`, which no buffered value can be read as, such as a part of a flattened one.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut text = Vec::new();
        serde_transcode::transcode(deserializer, &mut serde_json::Serializer::new(&mut text))
            .map_err(D::Error::custom)?;
        let text = String::from_utf8(text).map_err(D::Error::custom)?;
        Ok(Self(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Outer {
        #[serde(flatten)]
        inner: Inner,
    }

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Inner {
        rules: Vec<JsonText>,
    }

    #[test]
    fn the_depth_counts_no_brackets_of_texts() {
        for (value, depth) in [
            (json!(1), 0),
            (json!([]), 1),
            (json!({"a": [[1]], "b": {}}), 3),
            (json!(["[[[", "\\\"[{", [0]]), 2),
        ] {
            assert_eq!(JsonText::from(&value).depth(), depth, "{value}");
        }
    }

    #[test]
    fn a_value_is_read_from_anything_and_written_as_it_was() {
        let rule = json!({"type": "addRules", "rules": [{"toolName": "Bash", "n": 1.5}], "deep": [[null, true]], "text": "ä\"\n"});
        let text = JsonText::from(&rule);
        assert_eq!(text.as_str(), rule.to_string());
        let outer = json!({"rules": [rule]});
        for read in [
            serde_json::from_value::<Outer>(outer.clone()),
            serde_json::from_str(&outer.to_string()),
        ] {
            let read = read.expect("read");
            assert_eq!(read.inner.rules, std::slice::from_ref(&text));
            assert_eq!(serde_json::to_value(&read).expect("a value"), outer);
            assert_eq!(
                serde_json::to_string(&read).expect("a text"),
                outer.to_string()
            );
        }
    }
}
