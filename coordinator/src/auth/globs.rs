//! Globs for agent names, which define the agents that a key covers.

use c3po_shared::ids::{AGENT_ID_MAX, AgentId};
use c3po_shared::limits::GLOBS_MAX;

use crate::policy;

/// A list of globs. `*` matches any run of characters, `?` matches one, and all others match themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentGlobs(Vec<String>);

/// Why a list of globs is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GlobError {
    /// The list is empty.
    #[error("no agents are given: name them, such as web-*, or * for all")]
    Empty,
    /// The list is too long.
    #[error("a key can have at most {GLOBS_MAX} globs, not {0}")]
    Many(usize),
    /// No agent name can match this glob.
    #[error(
        "'{0}' is not a glob of agent names, which has at most {AGENT_ID_MAX} letters, digits, '_', '.', '-', '*' and \
         '?'"
    )]
    Characters(String),
}

impl AgentGlobs {
    /// Checks a list of globs.
    pub(crate) fn new(globs: Vec<String>) -> Result<Self, GlobError> {
        if globs.is_empty() {
            return Err(GlobError::Empty);
        }
        if globs.len() > GLOBS_MAX {
            return Err(GlobError::Many(globs.len()));
        }
        let may_stand = |c: char| c.is_ascii_alphanumeric() || "_.-*?".contains(c);
        let is_glob =
            |glob: &String| (1..=AGENT_ID_MAX).contains(&glob.len()) && glob.chars().all(may_stand);
        match globs.iter().find(|glob| !is_glob(glob)) {
            Some(wrong) => Err(GlobError::Characters(
                wrong.chars().take(AGENT_ID_MAX).collect(),
            )),
            None => Ok(Self(globs)),
        }
    }

    /// Returns whether a glob matches the name, with or without a number at its end: a key for `web` also covers `web-2`.
    pub(crate) fn cover(&self, agent: &AgentId) -> bool {
        let fits = |name: &str| self.0.iter().any(|glob| policy::fits(glob, name));
        fits(agent.as_str()) || agent.unnumbered().is_some_and(fits)
    }

    /// Returns the globs as given.
    pub(crate) fn as_slice(&self) -> &[String] {
        &self.0
    }
}

/// Returns the regular expression that a glob must match.
pub(super) fn pattern() -> String {
    format!("^[A-Za-z0-9_.*?-]{{1,{AGENT_ID_MAX}}}$")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_cover_the_names_that_match_them_and_their_numbered_forms() {
        let check = |globs: &[&str], name: &str, expected: bool| {
            let globs = AgentGlobs::new(globs.iter().map(|glob| (*glob).to_owned()).collect())
                .expect("globs");
            assert_eq!(
                globs.cover(&name.parse().expect("an id")),
                expected,
                "{globs:?} {name}"
            );
        };
        check(&["*"], "anything", true);
        check(&["web"], "web", true);
        check(&["web"], "web-2", true);
        check(&["web"], "web-2-3", false);
        check(&["web"], "web-x", false);
        check(&["web"], "web2", false);
        check(&["web"], "Web", false);
        check(&["web-*", "api"], "api", true);
        check(&["web-*"], "web-", true);
        check(&["*-web-?"], "nas-web-2", true);
        check(&["*-web-?"], "nas-web-22", false);
        check(&["a*a*a*b"], &"a".repeat(64), false);
        check(&["a*b*c"], "aXXbYYbZc", true);
    }

    #[test]
    fn a_glob_that_matches_no_agent_id_is_refused() {
        let check =
            |globs: &[&str]| AgentGlobs::new(globs.iter().map(|glob| (*glob).to_owned()).collect());
        assert_eq!(check(&[]), Err(GlobError::Empty));
        for wrong in ["", "a b", "ä", "a,b", &"*".repeat(65)] {
            assert!(
                matches!(check(&[wrong]), Err(GlobError::Characters(_))),
                "{wrong}"
            );
        }
        assert_eq!(check(&["*"; 33]), Err(GlobError::Many(33)));
    }
}
