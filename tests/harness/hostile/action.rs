//! The actions of a person, chosen at random.

use std::fmt;
use std::str::FromStr;

use crate::dice::Dice;

/// One action of a person in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Types a prompt.
    Type,
    /// Types a prompt whose answer takes long, and perhaps a second one meanwhile.
    Slow,
    /// Does nothing.
    Rest,
    /// Leaves a half-typed prompt on the input line.
    HalfType,
    /// Presses Esc, usually in the middle of a turn.
    Escape,
    /// Presses Esc twice.
    DoubleEscape,
    /// Goes back to an earlier prompt.
    Rewind,
    /// `/clear`.
    Clear,
    /// `/compact`, with a summary that takes a while.
    Compact,
    /// `/mcp`, Reconnect.
    Reconnect,
    /// Kills the proxy and reconnects it.
    KillProxy,
    /// Kills the client, and starts another one with a new, resumed or forked conversation.
    KillClaude,
    /// `/exit`; another client starts a new conversation or continues the old one.
    Leave,
    /// Delegates a task to a subagent.
    Delegate,
    /// The model's service fails for a few requests.
    Failures,
    /// The model asks a question or needs permission, and waits.
    Dialog,
    /// Leaves a screen such as `/config` open.
    Screen,
}

/// Every action with its name and its weight.
const ALL: [(Action, &str, usize); 17] = [
    (Action::Type, "type", 22),
    (Action::Slow, "slow", 6),
    (Action::Rest, "rest", 14),
    (Action::HalfType, "half-type", 4),
    (Action::Escape, "escape", 10),
    (Action::DoubleEscape, "double-escape", 3),
    (Action::Rewind, "rewind", 6),
    (Action::Clear, "clear", 5),
    (Action::Compact, "compact", 5),
    (Action::Reconnect, "reconnect", 3),
    (Action::KillProxy, "kill-proxy", 3),
    (Action::KillClaude, "kill-claude", 5),
    (Action::Leave, "leave", 2),
    (Action::Delegate, "delegate", 5),
    (Action::Failures, "failures", 6),
    (Action::Dialog, "dialog", 6),
    (Action::Screen, "screen", 6),
];

impl Action {
    /// Returns every action.
    pub fn all() -> Vec<Self> {
        ALL.iter().map(|(action, ..)| *action).collect()
    }

    /// Chooses one of the allowed actions.
    pub(super) fn choose(dice: &mut Dice, allowed: &[Self]) -> Self {
        let allowed = || ALL.iter().filter(|(action, ..)| allowed.contains(action));
        let mut left = dice.below(allowed().map(|(_, _, weight)| weight).sum::<usize>().max(1));
        for (action, _, weight) in allowed() {
            match left.checked_sub(*weight) {
                Some(rest) => left = rest,
                None => return *action,
            }
        }
        Self::Rest
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            ALL.iter()
                .find(|(action, ..)| action == self)
                .map_or("?", |(_, name, _)| name),
        )
    }
}

impl FromStr for Action {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || {
            ALL.iter()
                .map(|(_, name, _)| *name)
                .collect::<Vec<_>>()
                .join(", ")
        };
        let known = ALL
            .iter()
            .find(|(_, name, _)| *name == text)
            .map(|(action, ..)| *action);
        known.ok_or_else(|| format!("no action is called {text}; there are {}", names()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_allowed_action_is_chosen_and_no_other() {
        let chosen = |allowed: &[Action]| {
            let mut dice = Dice::new(7);
            (0..2_000)
                .map(|_| Action::choose(&mut dice, allowed))
                .collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(
            chosen(&Action::all()).into_iter().collect::<Vec<_>>(),
            Action::all()
        );
        let two = [Action::Type, Action::Clear];
        assert_eq!(chosen(&two).into_iter().collect::<Vec<_>>(), two);
        assert_eq!(chosen(&[]).into_iter().collect::<Vec<_>>(), [Action::Rest]);
    }

    #[test]
    fn every_action_is_read_by_its_name() {
        assert!(
            Action::all()
                .into_iter()
                .all(|action| action.to_string().parse() == Ok(action))
        );
        assert!(
            "nap"
                .parse::<Action>()
                .is_err_and(|error| error.contains("kill-proxy"))
        );
    }
}
