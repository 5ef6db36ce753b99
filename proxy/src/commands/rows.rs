//! Lines with text of other sides as rows of a terminal. Pure.
//!
//! A terminal continues a line that is too long at its left edge, where such a text could imitate a line of c3po. So each row
//! after the first begins with a mark.

use c3po_shared::rows::end_of_row;

/// How each further row of a line begins, unless it is a quoted one.
pub(super) const CONTINUED: &str = "  … ";

/// Returns the line as rows of at most so many columns, of which each after the first begins with `mark`; as one row if there
/// are no columns. Rows end between words if possible.
pub(super) fn rows(first: &str, line: &str, mark: &str, columns: Option<usize>) -> String {
    let (mut begin, mut rest, mut rows) = (first, line, Vec::new());
    loop {
        let width = columns.map(|columns| columns.saturating_sub(begin.chars().count()));
        let (row, further) =
            rest.split_at(width.map_or(rest.len(), |width| end_of_row(rest, width)));
        rows.push(format!("{begin}{row}").trim_end().to_owned());
        if further.is_empty() {
            return rows.join("\n");
        }
        (begin, rest) = (mark, further);
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
