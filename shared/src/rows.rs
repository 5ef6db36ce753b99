//! The rows in which a terminal or a phone shows a line that is too long for one. Pure.

/// The colours of a line begin with the first and end with the second of these, and have no width.
const COLOUR: (char, char) = ('\u{1b}', 'm');
/// The most columns of a tab.
const TAB: usize = 8;
/// About how many columns the widest characters have.
const WIDEST: usize = 12;

/// Returns where the first row of a line ends, in bytes. A row has at most so many columns and at least one character, and ends
/// between words if possible.
pub fn end_of_row(line: &str, width: usize) -> usize {
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
        // Words and phrases as one character, and cuneiform.
        '\u{fdfa}'..='\u{fdfd}' | '\u{12000}'..='\u{1254f}' | '\u{2e3a}'..='\u{2e3b}' => WIDEST,
        // Letters with one column, dashes and quotation marks, arrows and operators, lines and blocks.
        '\0'..='\u{8ff}'
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

    #[test]
    fn a_row_ends_between_words_and_counts_wide_characters() {
        for (line, width, row) in [
            ("one two three", 9, "one two "),
            ("one two three", 13, "one two three"),
            ("onetwothree", 4, "onet"),
            ("字字字", 4, "字字"),
            ("a\tb", 8, "a"),
            ("\u{fdfd}\u{fdfd}", 20, "\u{fdfd}"),
            ("\u{1b}[1mabc\u{1b}[0md", 3, "\u{1b}[1mabc\u{1b}[0m"),
            ("字", 1, "字"),
            ("\u{bf5}\u{bf5}e", 4, "\u{bf5}\u{bf5}"),
        ] {
            assert_eq!(&line[..end_of_row(line, width)], row, "{line:?} {width}");
        }
    }
}
