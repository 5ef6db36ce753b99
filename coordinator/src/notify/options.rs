//! The list of the options of a push, and the numbers in it. Pure.

use c3po_shared::limits::{OPTION_LABEL_MAX, OPTIONS_MAX};
use c3po_shared::question::{Choice, Part};
use serde_json::json;

use super::mask::masked;

/// The length of the line of an option without its label, in bytes of JSON.
const MARKS: usize = r#""\n10. ""#.len();
/// The room for the list, in bytes of JSON: enough for every question with one part.
const ROOM: usize = OPTIONS_MAX * (OPTION_LABEL_MAX * char::MAX.len_utf8() + MARKS);

/// Returns whether the options have numbers: the push shows each of them whole, and none has a label with the number of another
/// one.
pub(super) fn is_numbered(parts: &[Part]) -> bool {
    let is_told_apart = |part: &Part| {
        let count = part.options.len();
        let mut options = part.options.iter().zip(1..);
        !options.any(|(option, number)| has_another(&option.label, number, count))
    };
    shown(parts) == all(parts).count() && parts.iter().all(is_told_apart)
}

/// Returns whether the label of the option with that number has another number up to `count`, or digits of which a reader may
/// think so.
fn has_another(label: &str, number: usize, count: usize) -> bool {
    let mut numbers = label
        .split(|c: char| !c.is_numeric())
        .filter(|digits| !digits.is_empty());
    let is_another = |found: usize| found != number && (1..=count).contains(&found);
    numbers.any(|digits| digits.parse().map_or(true, is_another))
}

/// Returns the place of the option with that number, which may be written as in a list: `2.` or `(2)`.
pub(super) fn place(words: &str) -> Option<usize> {
    let is_mark = |c: char| c.is_whitespace() || ".:#()".contains(c);
    let number = words.trim_matches(is_mark).parse::<usize>();
    number.ok()?.checked_sub(1)
}

/// Returns the lines of the options, each of them whole, and the count of those for which there is no room.
pub(super) fn listed(parts: &[Part]) -> String {
    let is_numbered = is_numbered(parts);
    let line = |(at, option): (usize, &Choice)| {
        let label = masked(&option.label);
        if is_numbered {
            format!("\n{}. {label}", at + 1)
        } else {
            format!("\n- {label}")
        }
    };
    let of = |part: &'_ Part| {
        part.options
            .iter()
            .enumerate()
            .map(line)
            .collect::<Vec<_>>()
    };
    let shown = shown(parts);
    let lines: String = parts.iter().flat_map(of).take(shown).collect();
    lines
        + &match all(parts).count() - shown {
            0 => String::new(),
            1 => "\n[1 more option]".to_owned(),
            left => format!("\n[{left} more options]"),
        }
}

/// Returns how many options have room.
fn shown(parts: &[Part]) -> usize {
    let mut left = ROOM;
    let fits = |option: &&Choice| {
        let line = json!(format!("\n10. {}", masked(&option.label)));
        let rest = left.checked_sub(line.to_string().len());
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    all(parts).take_while(fits).count()
}

/// Returns the options of all parts.
fn all(parts: &[Part]) -> impl Iterator<Item = &Choice> {
    parts.iter().flat_map(|part| &part.options)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a part whose options have these labels.
    pub(in crate::notify) fn part(labels: &[&str]) -> Part {
        let option = |label: &&str| Choice {
            id: format!("id of {label}"),
            label: (*label).to_owned(),
        };
        Part {
            id: "q".to_owned(),
            text: String::new(),
            options: labels.iter().map(option).collect(),
            multi: false,
            allow_text: true,
        }
    }

    #[test]
    fn every_list_of_one_part_has_room_and_numbers() {
        for character in ["a", "\"", "é", "字", "🗑", "token=a "] {
            let label: String = character.chars().cycle().take(OPTION_LABEL_MAX).collect();
            let parts = [part(&[label.as_str(); OPTIONS_MAX])];
            assert!(is_numbered(&parts), "{character}");
            let list = listed(&parts);
            let last = format!("\n10. {}", masked(&label));
            assert!(list.ends_with(&last), "{character}: {list}");
        }
    }

    #[test]
    fn a_list_without_room_ends_between_options_and_has_no_numbers() {
        let label = "🗑".repeat(OPTION_LABEL_MAX);
        let check = |counts: &[usize], end: Option<&str>| {
            let labels = |count: &usize| part(&vec![label.as_str(); *count]);
            let parts: Vec<_> = counts.iter().map(labels).collect();
            assert_eq!(is_numbered(&parts), end.is_none(), "{counts:?}");
            let list = listed(&parts);
            let mut lines: Vec<_> = list.lines().skip(1).collect();
            assert_eq!(end, end.and_then(|_| lines.pop()), "{counts:?}");
            assert_eq!(lines.len(), OPTIONS_MAX, "{counts:?}");
            assert!(lines.iter().all(|line| line.ends_with(&label)), "{list}");
        };
        check(&[OPTIONS_MAX], None);
        check(&[6, 4], None);
        check(&[OPTIONS_MAX + 1], Some("[1 more option]"));
        check(&[OPTIONS_MAX, 2], Some("[2 more options]"));
    }
}
