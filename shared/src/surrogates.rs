//! Half characters in JSON. JavaScript cuts texts between the two halves of a character and writes the rest as an escape,
//! which JSON parsers of other languages refuse.

use serde::de::DeserializeOwned;

/// The number of bytes of an escape such as `\ud83d`.
const ESCAPE: usize = 6;

/// Parses JSON of a client in which half characters count as U+FFFD.
///
/// Errors: it is malformed, or not of this type.
pub fn parse<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(json).or_else(|error| match mend_halves(json) {
        Some(mended) => serde_json::from_slice(&mended),
        None => Err(error),
    })
}

/// Replaces every escape of half a character with the escape of U+FFFD. Returns `None` if there is none.
fn mend_halves(json: &[u8]) -> Option<Vec<u8>> {
    let (mut mended, mut at) = (None, 0);
    while let Some(found) = json[at..].iter().position(|byte| *byte == b'\\') {
        at += found;
        match [unit(&json[at..]), json.get(at + ESCAPE..).and_then(unit)] {
            [Some(0xD800..0xDC00), Some(0xDC00..0xE000)] => at += 2 * ESCAPE,
            [Some(0xD800..0xE000), _] => {
                mended.get_or_insert_with(|| json.to_vec())[at + 2..at + ESCAPE]
                    .copy_from_slice(b"fffd");
                at += ESCAPE;
            }
            // Another escape; the second byte of it may be a backslash.
            _ => at = json.len().min(at + 2),
        }
    }
    mended
}

/// Returns the UTF-16 code unit whose escape the text begins with.
fn unit(json: &[u8]) -> Option<u16> {
    let digits = json.strip_prefix(b"\\u")?.get(..4)?;
    let digits = str::from_utf8(digits)
        .ok()
        .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_was_cut_within_a_character_is_parsed() {
        let parsed: Vec<String> = parse(br#"["a \ud83d", "\ud83d\ude00"]"#).expect("JSON");
        assert_eq!(parsed, ["a \u{fffd}", "\u{1f600}"]);
        assert!(parse::<Vec<String>>(br#"["a \ud83d"#).is_err());
    }

    #[test]
    fn only_half_characters_are_replaced() {
        let check = |json: &str, expected: Option<&str>| {
            let mended = mend_halves(json.as_bytes())
                .map(|mended| String::from_utf8(mended).expect("UTF-8"));
            assert_eq!(mended.as_deref(), expected, "{json}");
        };
        check(r#"{"a": "text \u00e4 \ud83d\ude00 \\ud83d \n"}"#, None);
        check(r#""half \ud83d""#, Some(r#""half \ufffd""#));
        check(
            r#""\uDE00 and \uD83D\uD83D\uDE00""#,
            Some(r#""\ufffd and \ufffd\uD83D\uDE00""#),
        );
        check(r#""\\\ud83dx""#, Some(r#""\\\ufffdx""#));
        check(r#""\ud8"#, None);
        check("\"\\", None);
    }
}
