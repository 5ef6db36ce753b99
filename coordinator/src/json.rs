//! The values of a JSON text, counted before it is parsed.

/// The most values of a frame: the longest list has a tenth of that. A parsed value may take a hundred times as many bytes as
/// its text.
pub(crate) const FRAME_VALUES_MAX: usize = 10_000;
/// The most values of the body of a request by REST: the longest list has half of that.
pub(crate) const BODY_VALUES_MAX: usize = 2_000;
/// An object takes as much memory as so many other values.
const VALUES_OF_AN_OBJECT: usize = 5;

/// Returns how many values a JSON text has, or a few more: each but the first follows a comma, a colon or a bracket. An object
/// counts as several.
pub(crate) fn values_in(json: &[u8]) -> usize {
    let (mut values, mut in_text, mut at) = (1, false, 0);
    while let Some(byte) = json.get(at) {
        at += 1;
        match byte {
            b'\\' if in_text => at += escaped(&json[at..]),
            b'"' => in_text = !in_text,
            b'{' if !in_text => values += VALUES_OF_AN_OBJECT,
            b',' | b':' | b'[' if !in_text => values += 1,
            _ => {}
        }
    }
    values
}

/// Returns how many bytes belong to a backslash before them. They are skipped together, because a text may have nothing else.
/// A parser reads nothing behind an escape that is malformed.
fn escaped(rest: &[u8]) -> usize {
    if rest.starts_with(b"u") { 5 } else { 1 }
}

/// Checks that a text has not too many values to be parsed. Errors: the text of a refusal.
pub(crate) fn check_values(json: &[u8], most: usize) -> Result<(), String> {
    let values = if json.len() > most / VALUES_OF_AN_OBJECT {
        values_in(json)
    } else {
        0
    };
    if values > most {
        return Err(format!(
            "the JSON text has {values} values; at most {most} are allowed"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_and_texts_with_too_many_refused() {
        for (json, values) in [
            ("7", 1),
            (r#"{"a": [1, 2], "b": "c, [d], \"{e: f}"}"#, 11),
            (r#"["\u0022,", "\\", "\\u", 1, "\u005c"]"#, 6),
            ("[[[]]]", 4),
        ] {
            assert_eq!(values_in(json.as_bytes()), values, "{json}");
        }
        let list = |length: usize| format!("[{}0]", "0,".repeat(length - 1));
        let check = |json: &str| check_values(json.as_bytes(), FRAME_VALUES_MAX);
        assert_eq!(check(&list(9_999)), Ok(()));
        assert!(check(&list(10_001)).is_err());
        assert!(check(&"{\"\":".repeat(2_000)).is_err());
        assert_eq!(check(&format!("\"{}\"", ",".repeat(20_000))), Ok(()));
    }
}
