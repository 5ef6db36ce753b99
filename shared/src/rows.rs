//! The rows in which a terminal or a phone shows a line that is too long for one. Pure.

/// The colours of a line begin with the first and end with the second of these, and have no width.
const COLOUR: (char, char) = ('\u{1b}', 'm');
/// The most columns of a tab.
const TAB: usize = 8;
/// About how many columns the widest characters have.
const WIDEST: usize = 12;
/// About how many columns the widest letters of Tamil have, such as its sign for a year.
const TAMIL: usize = 4;
/// About how many columns a character of three signs has, such as U+2031.
const THREE_SIGNS: usize = 3;

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
        '\u{b80}'..='\u{bff}' => TAMIL,
        // Signs of a thousandth and below, a reference mark, three stars, four primes, and "very much less" or "greater".
        '\u{2030}' | '\u{2031}' | '\u{203b}' | '\u{2042}' | '\u{2057}' | '\u{22d8}'
        | '\u{22d9}' => THREE_SIGNS,
        // Two or three letters as one: Latin, Cyrillic, and ligatures.
        '\u{1c4}'..='\u{1cc}'
        | '\u{1f1}'..='\u{1f3}'
        | '\u{478}'..='\u{479}'
        | '\u{fb00}'..='\u{fb06}' => THREE_SIGNS,
        // Arabic and Syriac.
        '\u{600}'..='\u{8ff}' => 2,
        // Letters with one column, dashes and quotation marks, arrows and operators, lines and blocks.
        '\0'..='\u{5ff}'
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
            ("\u{bf5}\u{bf5}e", 8, "\u{bf5}\u{bf5}"),
            ("\u{bf5}\u{bf5}e", 7, "\u{bf5}"),
            ("\u{2031}\u{2031}e", 6, "\u{2031}\u{2031}"),
            ("\u{203b}\u{2042}\u{2057}", 8, "\u{203b}\u{2042}"),
            ("\u{2030}\u{22d8}\u{22d9}", 8, "\u{2030}\u{22d8}"),
            ("\u{1c4}\u{1f1}\u{478}", 8, "\u{1c4}\u{1f1}"),
            ("\u{1cc}\u{1f3}\u{479}", 8, "\u{1cc}\u{1f3}"),
            ("\u{fb00}\u{fb06}e", 5, "\u{fb00}"),
            ("سسس", 4, "سس"),
            ("dźЖя", 3, "dźЖ"),
            ("äΩЖя", 4, "äΩЖя"),
        ] {
            assert_eq!(&line[..end_of_row(line, width)], row, "{line:?} {width}");
        }
    }
}
