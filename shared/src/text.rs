//! Makes text from other parties safe for terminals and logs.

use std::fmt::Write;

use crate::refusal::Refusal;

/// Returns whether terminals interpret the character or change the direction of the text around it. These are C0 and C1
/// controls, line separators, direction marks, overrides and isolates, and the byte order mark; and tags, which a person who copies
/// a text for a model does not see.
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns a text in which terminals interpret nothing: ASCII controls become their pictures, the others the replacement
/// character. Tabs are kept, and with `lines` also line ends.
pub fn harmless(text: &str, lines: bool) -> String {
    let shown = |c: char| match c {
        '\n' if lines => '\n',
        '\t' => '\t',
        '\u{0}'..='\u{1f}' => {
            char::from_u32(0x2400 + u32::from(c)).unwrap_or(char::REPLACEMENT_CHARACTER)
        }
        '\u{7f}' => '\u{2421}',
        c if is_obeyed(c) => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(shown).collect()
}

/// Returns the same JSON with every such character escaped. Characters that JSON does not escape can occur only inside
/// strings, except white space: carriage returns become spaces, tabs and line ends are kept.
pub fn harmless_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\r' => escaped.push(' '),
            c if is_obeyed(c) && !matches!(c, '\n' | '\t') => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(escaped, "\\u{unit:04x}");
                }
            }
            c => escaped.push(c),
        }
    }
    escaped
}

/// Returns a text as one word of a shell command that people can paste, quoted only if necessary. Backslashes and quotes are
/// outside the quoted parts: `fish`, unlike other shells, reads `\'` inside them as a quote.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    let mut word = String::from("'");
    for c in text.chars() {
        match c {
            '\'' => word.push_str(r"'\''"),
            '\\' => word.push_str(r"'\\'"),
            c => word.push(c),
        }
    }
    word + "'"
}

/// Returns the command that puts a copy of a file, for that user alone, in its place. Others may still have the old file open, so
/// its content is checked after that. The copy has its mode from the beginning.
pub fn copy_command(file: &str, user: u32) -> String {
    let (old, new) = (shell_word(file), shell_word(&format!("{file}.new")));
    format!("install -m 600 -o {user} {old} {new} && mv -f {new} {old}")
}

/// Returns the command after which that user owns a folder, and no other one can write to it. Its content is checked after that.
pub fn chown_command(folder: &str, user: u32) -> String {
    let word = shell_word(folder);
    format!("chown -h {user} {word} && chmod go-w {word}")
}

/// Checks a name or a label that lists and logs will show; `field` is used in the error.
///
/// Errors: `INVALID_REQUEST` if it contains a character that terminals interpret.
pub fn check_plain(field: &str, text: &str) -> Result<(), Refusal> {
    if text.chars().any(is_obeyed) {
        return Err(Refusal::invalid(format!(
            "{field} contains control characters"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_its_layout_but_for_carriage_returns() {
        assert_eq!(
            harmless_json("{\r\n\t\"a\":\r\"\u{9b}\"}"),
            "{ \n\t\"a\": \"\\u009b\"}"
        );
    }

    #[test]
    fn hidden_tags_are_shown() {
        assert_eq!(harmless("a\u{e0041}b", false), "a\u{fffd}b");
        assert_eq!(harmless_json("\"\u{e0041}\""), "\"\\udb40\\udc41\"");
    }

    #[test]
    fn other_texts_stay_as_they_are() {
        for text in ["", "Küche & Bad", "日本語", "👩‍👩‍👧 家", "a\tb", "می‌خواهم"]
        {
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
        check(r"a\'; x; '", r"'a'\\''\''; x; '\'''");
        check(r"C:\ann", r"'C:'\\'ann'");
        check("", "''");
    }
}
