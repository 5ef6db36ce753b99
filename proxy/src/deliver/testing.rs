//! Messages for the tests of this folder.

use std::time::Duration;

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::vocabulary::{Kind, Priority};

use tokio::time::Instant;

use super::note::Note;
use super::transcript::Recorded;

pub(super) fn agent(name: &str) -> AgentId {
    name.parse().unwrap()
}

pub(super) fn id(number: u32) -> MessageId {
    MessageId::new(&agent("meshtastic"), &agent("homeassistant"), number)
}

/// Returns news from `meshtastic` to `homeassistant` that wants no answer.
pub(super) fn note(number: u32, body: &str) -> Note {
    Note {
        id: id(number),
        from: agent("meshtastic"),
        host: None,
        kind: Kind::Message,
        title: None,
        body: body.to_owned(),
        context: None,
        length: body.chars().count(),
        priority: Priority::Normal,
        wants_answer: false,
        awaited: false,
        reply_to: None,
        failed: false,
        repeated: false,
        points: false,
        expires_at: Instant::now() + Duration::from_secs(86_400),
    }
}

/// Returns a conversation in which these messages stand, the latter of them above an answer of the model.
pub(super) fn standing(named: &[u32], answered: &[u32]) -> Recorded {
    let ids = |numbers: &[u32]| numbers.iter().map(|number| id(*number)).collect();
    Recorded {
        named: ids(named),
        answered: ids(answered),
        ..Recorded::default()
    }
}
