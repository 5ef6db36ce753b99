//! Globs for names: `*` matches any run of characters, `?` matches one, and all others match themselves.

/// A glob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Glob(Box<str>);

impl Glob {
    /// Makes the glob; any text is valid.
    pub(super) fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// Returns whether the whole name matches.
    pub(super) fn matches(&self, name: &str) -> bool {
        fits(&self.0, name)
    }
}

/// Returns whether the whole name matches the glob. Case matters.
///
/// Only the last star is retried, so that the cost is at most the length of the glob times that of the name.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    (p, n) = (at + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_are_any_run_and_question_marks_one() {
        let check = |pattern: &str, name: &str, expected: bool| {
            assert_eq!(
                Glob::new(pattern).matches(name),
                expected,
                "{pattern} {name}"
            );
        };
        check("*", "", true);
        check("*", "anything", true);
        check("", "", true);
        check("", "a", false);
        check("kitchen", "kitchen", true);
        check("kitchen", "Kitchen", false);
        check("kitchen", "kitchen-2", false);
        check("kitchen*", "kitchen-2", true);
        check("*-2", "kitchen-2", true);
        check("k*n*2", "kitchen-2", true);
        check("a*b*c", "abcbd", false);
        check("?", "a", true);
        check("?", "ä", true);
        check("?", "", false);
        check("a?c", "abc", true);
        check("**a**", "a", true);
        check(
            "a*a*a*a*a*a*a*b",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            false,
        );
    }
}
