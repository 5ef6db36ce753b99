//! The name of a fleet: one namespace of agents, messages and credentials.

use std::fmt;
use std::str::FromStr;

/// The longest name, in characters.
const NAME_MAX: usize = 32;

/// The name of a fleet: 1 to 32 of `a-z`, `0-9` and `-`. A fleet cannot be renamed, because stored data has its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet(String);

/// The text is not the name of a fleet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not the name of a fleet, which has 1 to {NAME_MAX} characters of a-z, 0-9 and '-'"
)]
pub struct FleetError(String);

impl Default for Fleet {
    fn default() -> Self {
        Self("c3po".to_owned())
    }
}

impl FromStr for Fleet {
    type Err = FleetError;

    fn from_str(text: &str) -> Result<Self, FleetError> {
        let is_allowed =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if text.is_empty() || text.len() > NAME_MAX || !text.bytes().all(is_allowed) {
            return Err(FleetError(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_plain() {
        let check =
            |text: &str, good: bool| assert_eq!(text.parse::<Fleet>().is_ok(), good, "{text}");
        for text in ["c3po", "a", "home-2", &"x".repeat(32)] {
            check(text, true);
        }
        for text in ["", "Home", "a b", "a:b", "{a}", "é", &"x".repeat(33)] {
            check(text, false);
        }
    }
}
