//! Rust code without comments and strings, so that a comment about a rule cannot break it.

/// Returns `source` without comments and with empty strings. Line numbers do not change.
pub(super) fn without_comments_and_strings(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(next) = rest.chars().next() {
        let skipped = match next {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '"' => string_end(rest),
            'r' if !ends_a_word(&code) => raw_string_end(rest),
            '\'' => character_end(rest),
            _ => 0,
        };
        let (dropped, after) = rest.split_at(skipped.max(next.len_utf8()));
        match skipped {
            0 => code.push(next),
            _ => code.extend(dropped.chars().filter(|c| *c == '\n')),
        }
        rest = after;
    }
    code
}

fn ends_a_word(code: &str) -> bool {
    code.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Returns the length of the string at the start.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of the raw string at the start, or 0 if there is none.
fn raw_string_end(text: &str) -> usize {
    let marks: String = text[1..].chars().take_while(|c| *c == '#').collect();
    let open = format!("r{marks}\"");
    if !text.starts_with(&open) {
        return 0;
    }
    let close = format!("\"{marks}");
    text[open.len()..]
        .find(&close)
        .map_or(text.len(), |at| open.len() + at + close.len())
}

/// Returns the length of the character literal at the start, or 0 for a lifetime.
fn character_end(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1);
    match (characters.next(), characters.next()) {
        (Some((_, '\\')), Some((escaped, _))) => text[escaped + 1..]
            .find('\'')
            .map_or(0, |at| escaped + at + 2),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

#[test]
fn only_code_is_left() {
    let check =
        |source: &str, expected: &str| assert_eq!(without_comments_and_strings(source), expected);
    check("a // b\nc", "a \nc");
    check("a /* b\n */ c", "a \n c");
    check(r#"f("b \" // c", d)"#, "f(, d)");
    check(r##"f(r#"b " c"#, d)"##, "f(, d)");
    check("('\"', '\\'', '\\\\', 'a') x", "(, , , ) x");
    check("&'a str", "&'a str");
    check("for r in b", "for r in b");
}
