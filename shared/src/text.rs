//! Makes text from other parties safe for terminals and logs.

use std::fmt::Write;

use crate::refusal::Refusal;

/// Returns whether terminals interpret the character or change the direction of the text around it. These are C0 and C1
/// controls, line separators, direction marks, overrides and isolates, and the byte order mark.
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Returns a text in which terminals interpret nothing: ASCII controls become their pictures, the others the replacement
/// character. Tabs are kept, and with `lines` also line ends.
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

/// Returns the same JSON with every such character escaped. Characters that JSON does not escape can occur only inside
/// strings.
pub fn harmless_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if is_obeyed(c) && !matches!(c, '\n' | '\t' | '\r') {
            // All of them are in the basic plane, so one UTF-16 unit is enough.
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Returns a text as one word of a shell command that people can paste, quoted only if necessary.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Checks a name or a label that lists and logs will show; `field` is used in the error.
///
/// Errors: `INVALID_REQUEST` if it contains a character that terminals interpret.
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

    /// Texts with terminal controls in the middle: single characters, and the sequences that they begin.
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
