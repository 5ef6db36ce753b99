//! How comments and documents are written: budgets that only go down.

use std::collections::BTreeMap;

use super::tree::File;

/// Words that hide a noun or make software speak, and their most uses in 1,000 comment lines. A change that removes some
/// lowers the number; the goals are 15, 8 and 4.
const BUDGETS: [(&str, &[&str], f64); 3] = [
    ("what", &["what"], 5.0),
    (
        "says",
        &[
            "say", "says", "said", "tell", "tells", "told", "hear", "hears", "heard",
        ],
        2.0,
    ),
    ("nobody", &["nobody", "somebody", "whoever", "whom"], 1.0),
];
/// The most comments with a sentence that begins with a word for an unnamed thing. The goal is none.
const UNNAMED_SUBJECTS: usize = 11;
/// How many words a sentence of a document has, and how many longer ones there are at most in all.
const SENTENCE_MAX: usize = 40;
const LONG_SENTENCES: usize = 12;

/// Returns the comments of a file of code, line by line, with the numbers of the lines.
fn comments(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let mark = match file.path.rsplit_once('.') {
        Some((_, "rs")) => Some("//"),
        Some((_, "lua" | "sql")) => Some("--"),
        _ => None,
    };
    let text = mark.map_or("", |_| &file.text);
    text.lines().enumerate().filter_map(move |(number, line)| {
        let comment = line.trim_start().strip_prefix(mark?)?;
        Some((number + 1, comment))
    })
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

/// Returns the budgets that the comments of all files exceed, each with the files that use the most.
pub(super) fn over_budget(files: &[File]) -> Vec<String> {
    let total = files.iter().flat_map(comments).count();
    let mut over = Vec::new();
    for (name, listed, per_thousand) in BUDGETS {
        let is_listed = |word: &&str| {
            listed
                .iter()
                .any(|listed| word.eq_ignore_ascii_case(listed))
        };
        let mut by_file = BTreeMap::new();
        for file in files {
            let uses = comments(file)
                .flat_map(|(_, line)| words(line))
                .filter(is_listed)
                .count();
            by_file.insert(&file.path, uses);
        }
        let uses: usize = by_file.values().sum();
        let rate = uses as f64 * 1_000.0 / total.max(1) as f64;
        if rate > per_thousand {
            let mut most: Vec<_> = by_file.into_iter().collect();
            most.sort_by_key(|(_, uses)| std::cmp::Reverse(*uses));
            over.push(format!(
                "{name:?}: {rate:.1} in 1,000 comment lines, at most {per_thousand}; most in {:?}",
                &most[..5.min(most.len())]
            ));
        }
    }
    over
}

/// Returns the functions whose names begin with a word for an unnamed thing. A test's name states its behaviour.
pub(super) fn unnamed_functions(files: &[File]) -> Vec<String> {
    let begins = |name: &&str| {
        let word = name.split('_').next().unwrap_or_default();
        ["what", "who", "whose", "whom", "whoever", "those", "nobody"].contains(&word)
            && name.contains('_')
    };
    let names = |file: &File| -> Vec<String> {
        let declared = file.text.lines().filter_map(|line| line.split_once("fn "));
        let declared = declared.filter(|(before, _)| file.is_rust() && !before.contains('"'));
        let names = declared.filter_map(|(_, rest)| words(rest).next());
        names
            .filter(begins)
            .map(|name| format!("{}: {name}", file.path))
            .collect()
    };
    files.iter().flat_map(names).collect()
}

/// Returns the sentences of the documents that are too long, if there are more than the budget.
pub(super) fn long_sentences(files: &[File]) -> Vec<String> {
    let is_document = |file: &&File| {
        file.path.ends_with(".md") && (!file.path.contains('/') || file.path.starts_with("docs/"))
    };
    let long: Vec<_> = files
        .iter()
        .filter(is_document)
        .flat_map(|file| {
            let long = sentences(&file.text)
                .into_iter()
                .filter(|sentence| sentence.split_whitespace().count() > SENTENCE_MAX);
            long.map(|sentence| {
                format!(
                    "{}: {}",
                    file.path,
                    sentence.chars().take(90).collect::<String>()
                )
            })
            .collect::<Vec<_>>()
        })
        .collect();
    if long.len() > LONG_SENTENCES {
        long
    } else {
        Vec::new()
    }
}

/// Returns the sentences of a document: of its paragraphs, list items and table cells, without blocks of code.
fn sentences(text: &str) -> Vec<String> {
    let prose: String = text.split("```").step_by(2).collect();
    let mut parts = vec![String::new()];
    for line in prose.lines().map(str::trim) {
        if line.starts_with('|') {
            parts.extend(line.split('|').map(str::to_owned));
            parts.push(String::new());
            continue;
        }
        let begins =
            line.is_empty() || line.starts_with("- ") || line.starts_with('#') || is_numbered(line);
        if begins {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut() {
            part.push_str(line);
            part.push(' ');
        }
    }
    let ends = |part: &String| {
        part.replace(": ", ". ")
            .replace("; ", ". ")
            .split(". ")
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    parts.iter().flat_map(ends).collect()
}

fn is_numbered(line: &str) -> bool {
    line.split_once(". ")
        .is_some_and(|(number, _)| number.chars().all(|c| c.is_ascii_digit()))
}

/// Returns the sentences of comments that begin with a word for an unnamed thing, if there are more than the budget.
pub(super) fn unnamed_subjects(files: &[File]) -> Vec<String> {
    let found: Vec<_> = files.iter().flat_map(unnamed).collect();
    if found.len() > UNNAMED_SUBJECTS {
        found
    } else {
        Vec::new()
    }
}

fn unnamed(file: &File) -> Vec<String> {
    let is_unnamed = |sentence: &str| {
        ["What ", "Who ", "Whoever ", "Those "]
            .iter()
            .any(|word| sentence.starts_with(word))
    };
    let begins = |line: &str| {
        line.trim_start_matches(['/', '!', ' '])
            .split(". ")
            .any(is_unnamed)
    };
    let found = comments(file).filter(|(_, line)| begins(line));
    found
        .map(|(number, line)| format!("{}:{number}: name the subject:{line}", file.path))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_beyond_a_budget_are_caught() {
        let file = |text: &str| vec![File::new("shared/src/a.rs", text)];
        assert_eq!(
            over_budget(&file("// What it holds, and who said so.\n")).len(),
            2,
            "one of one line is 1,000 of 1,000"
        );
        assert_eq!(
            over_budget(&file("// The messages of an inbox.\nlet what = said;\n")).len(),
            0
        );
        let script = File::new(
            "coordinator/src/a.lua",
            "-- What it holds, and who said so.\n",
        );
        assert_eq!(over_budget(&[script]).len(), 2);
    }

    #[test]
    fn a_function_without_a_subject_is_caught() {
        let found = |text: &str| unnamed_functions(&[File::new("shared/src/a.rs", text)]).len();
        assert_eq!(
            (
                found("    fn what_is_sent_arrives() {"),
                found("    async fn whole() {"),
                found("fn who() {")
            ),
            (1, 0, 0)
        );
    }

    #[test]
    fn a_subject_without_a_name_is_caught() {
        let found = |text: &str| unnamed(&File::new("shared/src/a.rs", text)).len();
        assert_eq!(
            (
                found("/// What waits.\n"),
                found("/// It ends. Whoever asks waits.\n"),
                found("/// Somewhat. What?\n")
            ),
            (1, 1, 0)
        );
    }

    #[test]
    fn sentences_end_in_lists_and_tables() {
        let long = "word ".repeat(SENTENCE_MAX + 1);
        assert_eq!(
            sentences("one two. three\n\n- four\n| five | six |")
                .iter()
                .filter(|s| !s.trim().is_empty())
                .count(),
            5
        );
        let documents: Vec<_> = (0..=LONG_SENTENCES)
            .map(|_| File::new("docs/A.md", &long))
            .collect();
        assert_eq!(long_sentences(&documents).len(), LONG_SENTENCES + 1);
        assert_eq!(long_sentences(&documents[1..]).len(), 0);
    }
}
