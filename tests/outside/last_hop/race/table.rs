//! The table of the race: the decisions, the requests that they are about, and how often each pair is tried.

use harness::dice::Dice;
use harness::fake_api::{Asked, Block, Script};
use serde_json::{Value, json};

/// How often a cell of the columns that people meet most is tried on the embedded store, and every other cell.
const TRIALS: [usize; 2] = [20, 3];

/// A decision, or an event in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    Yes,
    No,
    Escape,
    Allow,
    Deny,
    Always,
    KillSession,
    KillProxy,
    KillCoordinator,
    Clear,
    TimeOut,
}

impl Deed {
    const ALL: [Self; 11] = [
        Self::Yes,
        Self::No,
        Self::Escape,
        Self::Allow,
        Self::Deny,
        Self::Always,
        Self::KillSession,
        Self::KillProxy,
        Self::KillCoordinator,
        Self::Clear,
        Self::TimeOut,
    ];
    const KEYS: [Self; 3] = [Self::Yes, Self::No, Self::Escape];
    const VERDICTS: [Self; 3] = [Self::Allow, Self::Deny, Self::Always];

    pub(super) fn is_verdict(self) -> bool {
        Self::VERDICTS.contains(&self)
    }

    /// Returns whether a person does it at the terminal.
    pub(super) fn is_at_the_terminal(self) -> bool {
        Self::KEYS.contains(&self) || self == Self::Clear
    }

    /// Returns whether it ends the session or its proxy.
    pub(super) fn kills(self) -> bool {
        matches!(self, Self::KillSession | Self::KillProxy)
    }

    /// Returns a decision of another way than this one.
    pub(super) fn rival(self, dice: &mut Dice) -> Self {
        let others = if self.is_verdict() {
            Self::KEYS
        } else {
            Self::VERDICTS
        };
        others[dice.below(others.len())]
    }
}

/// A request of the client, or two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Bash,
    Mcp,
    Subagent,
    Choice,
    Plan,
    /// Two calls of one step.
    Two,
    /// A call beside that of a subagent in the background.
    Background,
    /// A dialog that has been open for 30 s.
    Old,
}

impl Column {
    pub(super) const ALL: [Self; 8] = [
        Self::Bash,
        Self::Mcp,
        Self::Subagent,
        Self::Choice,
        Self::Plan,
        Self::Two,
        Self::Background,
        Self::Old,
    ];

    /// Returns the word of a prompt that has the model make the request.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Bash | Self::Old => "bash",
            Self::Mcp => "mcp",
            Self::Subagent => "subagent",
            Self::Choice => "choice",
            Self::Plan => "plan",
            Self::Two => "two",
            Self::Background => "background",
        }
    }

    /// Returns the texts by which people find its questions.
    pub(super) fn questions(self, number: u64) -> Vec<String> {
        match self {
            Self::Bash | Self::Old | Self::Subagent => vec![mark(number, 1)],
            Self::Mcp => vec![format!("note {number}\"")],
            Self::Choice => vec![choice(number)],
            // The client puts the plan into a file, so its input has no number.
            Self::Plan => vec!["ExitPlanMode".to_owned()],
            Self::Two | Self::Background => vec![mark(number, 1), mark(number, 2)],
        }
    }

    /// Returns whether a request of it may have no dialog while its hook waits. The client puts every subagent into the background
    /// after some time.
    pub(super) fn may_lack_a_dialog(self) -> bool {
        matches!(self, Self::Background | Self::Subagent)
    }

    /// Returns whether its effect is a line in a file, by the program of [`mark`].
    pub(super) fn marks(self) -> bool {
        !matches!(self, Self::Mcp | Self::Choice | Self::Plan)
    }
}

/// Returns the cells, each as often as it is tried, in an order by the seed.
pub(super) fn trials(dice: &mut Dice, is_embedded: bool) -> Vec<(Deed, Column)> {
    let mut trials = Vec::new();
    for column in Column::ALL {
        let is_often = is_embedded && matches!(column, Column::Bash | Column::Choice);
        let count = TRIALS[usize::from(!is_often)];
        for deed in Deed::ALL {
            trials.extend(std::iter::repeat_n((deed, column), count));
        }
    }
    dice.shuffle(&mut trials);
    trials
}

/// Returns the name of the program that a call runs, once at most.
pub(super) fn mark(number: u64, part: u32) -> String {
    format!("mark-{number}-{part}")
}

/// Returns the question of the client's model.
pub(super) fn choice(number: u64) -> String {
    format!("Which database for {number}?")
}

/// Returns the tools that the model calls for a trial of that number.
type Calls = fn(u64) -> Vec<Block>;

/// Returns the model that makes the requests.
pub(super) fn script() -> Script {
    let asks = |word: &'static str, calls: Calls| {
        let sign = format!("race {word} ");
        (sign.clone(), move |asked: &Asked| {
            number_after(&asked.last_user_text(), &sign).map_or_else(Vec::new, calls)
        })
    };
    let columns: [(&str, Calls); 8] = [
        ("bash", |number| vec![bash(number, 1)]),
        ("second", |number| vec![bash(number, 2)]),
        ("mcp", |number| vec![note(number)]),
        ("subagent", |number| vec![agent("bash", number, false)]),
        ("choice", |number| vec![ask(number)]),
        ("plan", |number| {
            let plan = json!({"plan": format!("Do {number}.")});
            vec![Block::call("ExitPlanMode", plan)]
        }),
        ("two", |number| vec![bash(number, 1), bash(number, 2)]),
        ("background", |number| {
            vec![agent("second", number, true), bash(number, 1)]
        }),
    ];
    columns
        .into_iter()
        .fold(Script::new(), |script, (word, calls)| {
            let (sign, step) = asks(word, calls);
            script.when(sign, step)
        })
}

fn number_after(text: &str, sign: &str) -> Option<u64> {
    let rest = text.rsplit(sign).next()?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn bash(number: u64, part: u32) -> Block {
    let command = format!("./{}", mark(number, part));
    Block::call("Bash", json!({"command": command, "description": "marks"}))
}

fn note(number: u64) -> Block {
    let note = json!({"target": "homeassistant", "message": format!("note {number}"), "requires_response": false});
    Block::call("send_message", note)
}

fn agent(word: &str, number: u64, in_background: bool) -> Block {
    let prompt = format!("race {word} {number} now");
    let task = json!({"description": "a mark", "prompt": prompt, "subagent_type": "general-purpose",
        "run_in_background": in_background});
    Block::call("Agent", task)
}

fn ask(number: u64) -> Block {
    let option = |label: &str| json!({"label": label, "description": "a store"});
    let question: Value = json!({"question": choice(number), "header": "DB", "multiSelect": false,
        "options": [option("SQLite"), option("Redis"), option("Files")]});
    Block::call("AskUserQuestion", json!({"questions": [question]}))
}
