//! Without a transcript: the prompts by which the client brings the results that waited in it. Another hook may block such a
//! prompt, so a step of its turn is the proof.

use c3po_shared::ids::MessageId;
use c3po_shared::receipt::Via;

use super::{Awaits, Shown, Unproven};
use crate::local::protocol::Event;

/// The prompt that brings a result.
#[derive(Debug)]
pub(super) struct Notice {
    turn: Option<String>,
    /// Whether the next step was one of its turn; `None` before it.
    is_proven: Option<bool>,
}

impl Unproven {
    /// Returns whether the messages wait in the client.
    pub(super) fn is_queued(&self) -> bool {
        matches!(self.awaits, Awaits::Queue(_))
    }

    /// Returns whether their prompt led nowhere.
    pub(super) fn is_blocked(&self) -> bool {
        let notice = self.notice.as_ref().filter(|_| self.is_queued());
        notice.is_some_and(|notice| notice.is_proven == Some(false))
    }
}

impl Shown {
    /// A prompt is about to bring these messages.
    pub(in crate::deliver) fn noticed(&mut self, ids: &[MessageId], event: &Event) {
        let is_in_it = |unproven: &&mut Unproven| {
            unproven.is_queued() && unproven.ids.iter().all(|id| ids.contains(id))
        };
        for unproven in self.unproven.iter_mut().filter(is_in_it) {
            unproven.notice = Some(Notice {
                turn: event.prompt_id.clone(),
                is_proven: None,
            });
        }
    }

    /// The session's model went on.
    pub(super) fn step_follows_notices(&mut self, event: &Event) {
        for unproven in &mut self.unproven {
            if let Some(notice) = &mut unproven.notice {
                notice
                    .is_proven
                    .get_or_insert(notice.turn == event.prompt_id);
            }
        }
    }

    /// Takes the messages whose notice a step has proven out of those that wait in the client. Returns them, with their tools.
    pub(in crate::deliver) fn take_noticed(&mut self) -> Vec<(Vec<MessageId>, Via)> {
        let mut taken = Vec::new();
        self.unproven.retain(|unproven| {
            let notice = unproven.notice.as_ref();
            let is_proven = notice.is_some_and(|notice| notice.is_proven == Some(true));
            match unproven.awaits {
                Awaits::Queue(via) if is_proven => {
                    taken.push((unproven.ids.clone(), via));
                    false
                }
                _ => true,
            }
        });
        taken
    }
}
