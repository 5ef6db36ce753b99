//! The messages in the session that the receipt has claimed, and those that it claims later.

use std::collections::HashSet;

use c3po_shared::ids::MessageId;
use c3po_shared::receipt::Via;
use tokio::time::Instant;

use super::{Awaits, Printed, RESULT_LATE, Shown, UNPROVEN_MAX, Unproven};
use crate::deliver::transcript::Recorded;

impl Shown {
    /// Returns the messages in the context that the receipt has claimed and the session has not dealt with, oldest first.
    pub(in crate::deliver) fn claimed(&self) -> Vec<MessageId> {
        let is_open = |unproven: &&Unproven| {
            unproven.unclaimed.is_some() || matches!(unproven.awaits, Awaits::Queue(_))
        };
        let open = self.unproven.iter().filter(is_open);
        let open: HashSet<_> = open.flat_map(|unproven| &unproven.ids).collect();
        let is_claimed = |id: &&MessageId| {
            !open.contains(id) && !self.settled.contains(*id) && !self.is_unclaimed(id)
        };
        self.order.iter().filter(is_claimed).cloned().collect()
    }

    /// The receipt claims the latest messages only when the transcript was read: their result may wait in the client.
    pub(in crate::deliver) fn claim_later(&mut self, via: Via) {
        if let Some(latest) = self.unproven.back_mut() {
            latest.unclaimed = Some(via);
        }
    }

    /// Returns the messages that the receipt is to claim now, with their tools: those of results that the conversation names,
    /// and of steps that have ended. A use that has had another result before was moved to the background.
    pub(in crate::deliver) fn claim(
        &mut self,
        standing: Option<&Recorded>,
    ) -> Vec<(Vec<MessageId>, Via)> {
        let mut claimed = Vec::new();
        for unproven in &mut self.unproven {
            let Some(via) = unproven.unclaimed else {
                continue;
            };
            let is_named =
                |standing: &Recorded| unproven.ids.iter().any(|id| standing.named.contains(id));
            match &unproven.awaits {
                Awaits::NextInput => continue,
                Awaits::EndOf(Some(tool_use)) if !standing.is_some_and(is_named) => {
                    if standing.is_some_and(|standing| standing.over.contains(tool_use)) {
                        unproven.awaits = Awaits::Queue(via);
                        unproven.unclaimed = None;
                    }
                }
                _ => {
                    unproven.unclaimed = None;
                    claimed.push((unproven.ids.clone(), via));
                }
            }
        }
        claimed
    }

    /// Returns those that the receipt is to claim because the model knows their ids.
    pub(in crate::deliver) fn claim_known(
        &mut self,
        known: &HashSet<MessageId>,
    ) -> Vec<(Vec<MessageId>, Via)> {
        let is_known = |unproven: &&mut Unproven| unproven.ids.iter().any(|id| known.contains(id));
        let known = self.unproven.iter_mut().filter(is_known);
        known
            .filter_map(|unproven| Some((unproven.ids.clone(), unproven.unclaimed.take()?)))
            .collect()
    }

    /// The receipt claims messages of a hook only when the transcript names them.
    pub(in crate::deliver) fn claim_named(&mut self, ids: &[MessageId], via: Via, since: Instant) {
        let ids = ids.to_vec();
        self.printed.push_back(Printed { ids, via, since });
        if self.printed.len() > UNPROVEN_MAX {
            self.printed.pop_front();
        }
    }

    /// Takes such messages of hooks out of those that the receipt has not claimed. Returns them, with their hooks.
    pub(in crate::deliver) fn take_printed(
        &mut self,
        is_there: impl Fn(&MessageId) -> bool,
    ) -> Vec<(Vec<MessageId>, Via)> {
        let mut claimed = Vec::new();
        for text in &mut self.printed {
            let ids: Vec<_> = text.ids.extract_if(.., |id| is_there(id)).collect();
            if !ids.is_empty() {
                claimed.push((ids, text.via));
            }
        }
        self.printed.retain(|text| !text.ids.is_empty());
        claimed
    }

    /// Returns whether the receipt has not claimed a message of a hook.
    pub(in crate::deliver) fn is_unclaimed(&self, id: &MessageId) -> bool {
        self.printed.iter().any(|text| text.ids.contains(id))
    }

    /// Returns whether the transcript may yet name messages that the receipt has not claimed.
    pub(in crate::deliver) fn has_unclaimed(&self, now: Instant) -> bool {
        let texts = self.printed.back().map(|text| text.since);
        let is_open = |unproven: &&Unproven| {
            unproven.unclaimed.is_some() && matches!(unproven.awaits, Awaits::EndOf(_))
        };
        let results = self.unproven.iter().filter(is_open);
        let mut times = texts.into_iter().chain(results.map(|result| result.since));
        times.any(|since| now < since + RESULT_LATE)
    }

    /// Without a transcript, returns the messages of hooks that a step has proven, with their hooks.
    pub(in crate::deliver) fn claim_proven(&mut self) -> Vec<(Vec<MessageId>, Via)> {
        let is_open =
            |unproven: &&Unproven| matches!(unproven.awaits, Awaits::StepOf(None) | Awaits::Answer);
        let open = self.unproven.iter().filter(is_open);
        let open: HashSet<_> = open.flat_map(|unproven| unproven.ids.clone()).collect();
        self.take_printed(|id| !open.contains(id))
    }
}
