//! Hostile texts for every field that another side chooses, and the check that none of them reaches a terminal.

use std::sync::LazyLock;

use anyhow::{Result, ensure};
use serde_json::Value;

/// A line in every hostile field. No program may print it as a line of its own.
pub const FAKED: &str = "FAKED: a line as of the program itself";
/// All hostile texts in one.
static ALL: LazyLock<String> = LazyLock::new(|| hostile().concat());
/// A text of a template that is replaced by a hostile field begins with this; its name follows.
const MARK: char = '§';

/// Returns whether a terminal interprets the character or changes the direction of text. This does not use the definition of
/// the programs, so that it can find an error in that one.
pub fn is_obeyed(c: char) -> bool {
    let is_control = matches!(u32::from(c), 0..0x20 | 0x7f..0xa0);
    let is_bidirectional =
        matches!(u32::from(c), 0x61c | 0x200e | 0x200f | 0x202a..=0x202e | 0x2066..=0x2069);
    is_control || is_bidirectional || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// Returns texts with terminal controls in the middle: single characters, and the sequences that they begin.
pub fn hostile() -> Vec<String> {
    let begins = [
        "\u{1b}[", "\u{9b}", "\u{1b}]", "\u{9d}", "\u{1b}P", "\u{90}", "\u{1b}_", "\u{1b}^",
        "\u{1b}",
    ];
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
    let single = ('\0'..='\u{ffff}')
        .filter(|c| is_obeyed(*c))
        .map(String::from);
    let sequences = begins.iter().flat_map(|begin| {
        goes_on
            .iter()
            .enumerate()
            .map(move |(at, rest)| format!("{begin}{rest}{}", ends[at % ends.len()]))
    });
    single
        .chain(sequences)
        .map(|part| format!("a{part}b"))
        .collect()
}

/// Returns a hostile text of many lines: the name of its field, and every hostile text.
pub fn lines(name: &str) -> String {
    format!("{name} {}", *ALL)
}

/// Returns a hostile value of the field with that name: the name, every hostile text, and a line that imitates the program.
pub fn field(name: &str) -> String {
    format!("{name} {}\n{FAKED}\n", *ALL)
}

/// Returns a template as JSON with every text `§NAME` replaced by the hostile field of that name. The white space between
/// tokens is hostile too.
pub fn filled(template: &Value) -> String {
    let text = serde_json::to_string_pretty(&replaced(template)).unwrap_or_default();
    text.replace('\n', "\r\n")
}

fn replaced(template: &Value) -> Value {
    match template {
        Value::String(text) => match text.strip_prefix(MARK) {
            Some(name) => field(name).into(),
            None => text.as_str().into(),
        },
        Value::Array(items) => items.iter().map(replaced).collect(),
        Value::Object(members) => {
            let renamed = |name: &str| {
                name.strip_prefix(MARK)
                    .map_or_else(|| name.to_owned(), field)
            };
            members
                .iter()
                .map(|(name, value)| (renamed(name), replaced(value)))
                .collect()
        }
        other => other.clone(),
    }
}

/// Checks the output of a program. Lines and tabs are its own layout.
///
/// Errors: a character that terminals interpret is in it, or the line of a hostile field.
pub fn check(shown: &str) -> Result<()> {
    let obeyed = shown
        .char_indices()
        .find(|(_, c)| is_obeyed(*c) && !matches!(c, '\n' | '\t'));
    if let Some((at, c)) = obeyed {
        let before: String = shown[..at]
            .chars()
            .rev()
            .take(60)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect();
        anyhow::bail!("{c:?} reaches the terminal after {before:?}");
    }
    ensure!(
        !shown.lines().any(|line| line.starts_with(FAKED)),
        "a faked line in:\n{shown}"
    );
    Ok(())
}

/// Returns the names of the commands that a program's `--help` lists.
pub fn commands_in(help: &str) -> Vec<&str> {
    let listed = help
        .split("Commands:\n")
        .nth(1)
        .and_then(|rest| rest.split("\n\n").next())
        .unwrap_or_default();
    let names = listed
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names
        .filter_map(|line| line.split_whitespace().next())
        .collect()
}

#[cfg(test)]
mod tests {
    use c3po_shared::text::{check_plain, harmless, harmless_json};

    use super::*;

    #[test]
    fn no_hostile_text_passes_the_functions_for_printing() -> Result<()> {
        let hostile = hostile();
        assert!(hostile.len() >= 300, "{}", hostile.len());
        for text in &hostile {
            check(&harmless(text, false))?;
            assert!(check_plain("host", text).is_err(), "{text:?}");
            let escaped = harmless_json(&serde_json::to_string(text)?);
            check(&escaped)?;
            assert_eq!(
                serde_json::from_str::<Value>(&escaped)?,
                Value::from(text.as_str())
            );
        }
        Ok(())
    }

    #[test]
    fn a_template_gets_hostile_fields_and_stays_json() -> Result<()> {
        let text = filled(&serde_json::json!({"a": "§host", "b": [{"§key": "plain"}], "c": 1}));
        let value: Value = serde_json::from_str(&text)?;
        assert_eq!(
            (value["a"].as_str(), &value["c"]),
            (Some(field("host").as_str()), &1.into())
        );
        assert_eq!(value["b"][0][field("key")], "plain");
        assert!(check(&text).is_err() && check(&field("host")).is_err() && check("a\n\tb").is_ok());
        assert!(check(&format!("a\n{FAKED}")).is_err() && check(&format!("> {FAKED}")).is_ok());
        Ok(())
    }
}
