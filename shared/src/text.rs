//! Texts that another side chose, before a terminal or a log shows them.

use std::fmt::Write;

use crate::refusal::Refusal;

/// Returns whether terminals obey the character or read the text around it in another direction: controls of both sets, line
/// separators, marks, overrides and isolates of direction, and the byte order mark.
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Returns a text without what terminals obey: ASCII controls are shown as their pictures, the others as a replacement.
/// Tabs stay, and with `lines` so do ends of lines.
pub fn harmless(text: &str, lines: bool) -> String {
    let shown = |c: char| match c {
        '\n' if lines => '\n',
        '\t' => '\t',
        '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or(char::REPLACEMENT_CHARACTER),
        '\u{7f}' => '\u{2421}',
        c if is_obeyed(c) => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(shown).collect()
}

/// Returns the same JSON with every such character escaped; those that JSON leaves as they are stand in strings alone.
pub fn harmless_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if is_obeyed(c) && !matches!(c, '\n' | '\t' | '\r') {
            // None of them is beyond the basic plane, so one unit is enough.
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Returns a text as one word of a command that people paste into a shell, quoted only if it has to be.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Checks a name or a label, which stands in the field of that name: lists and logs show it.
///
/// Errors: `INVALID_REQUEST` where a terminal would obey a part of it.
pub fn check_plain(field: &str, text: &str) -> Result<(), Refusal> {
    if text.chars().any(is_obeyed) {
        return Err(Refusal::invalid(format!("{field}: it has control characters")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// What terminals obey, each in the middle of a text: single characters, and sequences that they begin.
    fn hostile() -> Vec<String> {
        let single = (0..0xa0).chain([0x61c, 0x200e, 0x200f, 0xfeff]).chain(0x2028..0x202f).chain(0x2066..0x206a);
        let single = single.filter_map(char::from_u32).filter(|c| is_obeyed(*c)).map(String::from);
        let begins = ["\u{1b}[", "\u{9b}", "\u{1b}]", "\u{9d}", "\u{1b}P", "\u{90}", "\u{1b}_", "\u{1b}"];
        let goes_on = [
            "2J",
            "31m",
            "1;1H",
            "?1049h",
            "6n",
            "0;owned",
            "52;c;cHduZWQ=",
            "8;;http://evil.example",
            "10;?",
            "c",
            "q",
            "1337;File=:",
            "9;done",
            "!p",
            "?25l",
            "s",
            "u",
            "8m",
            "38;5;1m",
            "3J",
            "K",
            "T",
            "5i",
            "4i",
            "20t",
            "21t",
        ];
        let ends = ["\u{7}", "\u{1b}\\"];
        let sequences = begins.iter().flat_map(|begin| {
            goes_on.iter().enumerate().map(move |(at, rest)| format!("{begin}{rest}{}", ends[at % ends.len()]))
        });
        single.chain(sequences).map(|part| format!("a{part}b")).collect()
    }

    #[test]
    fn no_hostile_text_reaches_a_terminal() {
        let hostile = hostile();
        assert!(hostile.len() >= 280, "{}", hostile.len());
        for text in &hostile {
            let shown = harmless(text, false);
            assert!(!shown.chars().any(|c| is_obeyed(c) && c != '\t'), "{text:?}: {shown:?}");
            assert!(check_plain("host", text).is_err(), "{text:?}");
            let json = serde_json::to_string(text).expect("JSON");
            let escaped = harmless_json(&json);
            assert!(!escaped.chars().any(is_obeyed), "{text:?}: {escaped:?}");
            assert_eq!(serde_json::from_str::<Value>(&escaped).expect("JSON"), Value::from(text.as_str()));
        }
    }

    #[test]
    fn other_texts_stay_as_they_are() {
        for text in ["", "Küche & Bad", "日本語", "👩‍👩‍👧 家", "a\tb", "می‌خواهم"] {
            assert_eq!(harmless(text, false), text);
        }
        assert_eq!(harmless("one\ntwo", true), "one\ntwo");
        assert_eq!(harmless("one\ntwo", false), "one␊two");
        assert!(check_plain("host", "Küche & Bad").is_ok() && check_plain("host", "a\tb").is_err());
    }

    #[test]
    fn a_word_is_quoted_if_a_shell_would_read_more_in_it() {
        let check = |text: &str, expected: &str| assert_eq!(shell_word(text), expected);
        check("/var/lib/c3po", "/var/lib/c3po");
        check("/home/ann müller/c3po", "'/home/ann müller/c3po'");
        check("ann's; $(id)", r"'ann'\''s; $(id)'");
        check("box-*,web", "'box-*,web'");
        check("http://a'; x; '", r"'http://a'\''; x; '\'''");
        check("", "''");
    }
}
