//! Lines with text of other sides as rows of a terminal. Pure.
//!
//! A terminal continues a line that is too long at its left edge, where such a text could imitate a line of c3po. So each row
//! after the first begins with a mark.

/// How each further row of a line begins, unless it is a quoted one.
pub(super) const CONTINUED: &str = "  … ";
/// The colours of a line begin with the first and end with the second of these, and have no width.
const COLOUR: (char, char) = ('\u{1b}', 'm');
/// The most columns of a tab.
const TAB: usize = 8;

/// Returns the line as rows of at most so many columns, of which each after the first begins with `mark`; as one row if there
/// are no columns. Rows end between words if possible.
pub(super) fn rows(first: &str, line: &str, mark: &str, columns: Option<usize>) -> String {
    let (mut begin, mut rest, mut rows) = (first, line, Vec::new());
    loop {
        let width = columns.map(|columns| columns.saturating_sub(begin.chars().count()));
        let (row, further) = rest.split_at(width.map_or(rest.len(), |width| end(rest, width)));
        rows.push(format!("{begin}{row}").trim_end().to_owned());
        if further.is_empty() {
            return rows.join("\n");
        }
        (begin, rest) = (mark, further);
    }
}

/// Returns the end of the first row of a line, which has at least one character.
fn end(line: &str, width: usize) -> usize {
    let (mut used, mut between, mut is_colour) = (0, None, false);
    for (at, c) in line.char_indices() {
        if is_colour || c == COLOUR.0 {
            is_colour = c != COLOUR.1;
            continue;
        }
        used += columns_of(c);
        if c == ' ' {
            between = Some(at + 1);
        }
        if used > width && at > 0 {
            return between.unwrap_or(at);
        }
    }
    line.len()
}

/// Returns how many columns a character has at most: rather too many, because a row that is too short does no harm.
fn columns_of(c: char) -> usize {
    match c {
        '\t' => TAB,
        // Letters with one column, dashes and quotation marks, arrows and operators, lines and blocks.
        '\0'..='\u{10ff}'
        | '\u{1e00}'..='\u{1fff}'
        | '\u{2010}'..='\u{205e}'
        | '\u{2190}'..='\u{22ff}'
        | '\u{2400}'..='\u{2426}'
        | '\u{2500}'..='\u{259f}'
        | '\u{fffd}' => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(text: &str, columns: usize) -> String {
        rows("> ", text, "> ", Some(columns))
    }

    #[test]
    fn each_row_of_a_line_has_its_mark() {
        let gap = " ".repeat(78 + 80 * 2);
        let imitated = "b::human::00000001  from b @nas to human  2026-11-26 21:14:13.120Z  high";
        let shown = quoted(&format!("Go on?{gap}{imitated}"), 80);
        let is_row = |row: &str| row.starts_with('>') && row.len() <= 80;
        assert!(
            shown.lines().all(is_row) && shown.ends_with("high"),
            "{shown}"
        );
        assert_eq!(
            rows("  1  ", "Yes, and all of it", CONTINUED, Some(14)),
            "  1  Yes, and\n  … all of it"
        );
        assert_eq!(rows("> ", &gap, "> ", None), ">");
        assert_eq!(rows("", "a b", CONTINUED, Some(80)), "a b");
    }

    #[test]
    fn rows_end_between_words_and_none_is_too_wide() {
        for (text, expected) in [
            ("", ">"),
            ("abcdefgh", "> abcdefgh"),
            ("abcdefgh i", "> abcdefgh\n> i"),
            ("abcdefghi", "> abcdefgh\n> i"),
            ("abc def ghi", "> abc def\n> ghi"),
            ("äöüß éèêñ", "> äöüß\n> éèêñ"),
            ("日本語日本", "> 日本語日\n> 本"),
            ("👩👩👩👩👩", "> 👩👩👩👩\n> 👩"),
            ("a\tb", "> a\n>\n> b"),
            ("a      b      c", "> a      b\n>      c"),
            (
                "\u{1b}[31mabcdefgh\u{1b}[0m",
                "> \u{1b}[31mabcdefgh\u{1b}[0m",
            ),
        ] {
            assert_eq!(quoted(text, 10), expected, "{text:?}");
        }
    }

    #[test]
    fn a_terminal_without_room_gets_all_of_the_text() {
        for columns in 0..4 {
            let shown = quoted("日本x", columns);
            let text: String = shown.chars().filter(|c| !" >\n".contains(*c)).collect();
            assert_eq!(text, "日本x", "{shown}");
        }
    }
}
