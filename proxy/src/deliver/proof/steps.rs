//! The steps of a model as proofs: what it was given before it went on, it has seen.

use std::collections::HashSet;
use std::time::Duration;

use c3po_shared::ids::MessageId;
use tokio::time::Instant;

use super::{Awaits, ENDED_MAX, Proven, Shown, Unproven};
use crate::deliver::turn::is_step;
use crate::local::protocol::{Event, Name};

impl Shown {
    /// Returns the messages that an event proves to be seen: those that came in the turn of the step, and those of any earlier
    /// turn.
    pub(in crate::deliver) fn proven_by(&mut self, event: &Event) -> Proven {
        let who = &event.agent_id;
        let mut seen = Proven::default();
        if is_step(event) {
            let is_of_it = |awaits: &Awaits| matches!(awaits, Awaits::StepOf(of) if of == who);
            seen.of_turn = self.take(is_of_it, |_| true);
            if who.is_none() {
                self.step_follows_notices(event);
                seen.of_earlier = self.take(|awaits| *awaits == Awaits::AnyStep, |_| true);
            }
        }
        match event.name {
            Name::PostToolBatch => self.step_ends(event),
            Name::UserPromptSubmit => self.model_is_given_more(),
            _ => {}
        }
        if who.is_none() && (is_step(event) || event.name == Name::UserPromptSubmit) {
            self.has_only_results = event.name == Name::PostToolBatch
                || (self.has_only_results && event.name == Name::Stop && !event.answered);
        }
        seen
    }

    /// Takes messages that the end of a turn proves to be seen out of the list, if the turn may have ended with the results of
    /// its tools: the client gives them to the model with the next prompt then. Returns whether the transcript, where
    /// there is one, is to decide.
    pub(in crate::deliver) fn may_be_left(
        &mut self,
        seen: &mut Vec<MessageId>,
        has_transcript: bool,
        now: Instant,
    ) -> bool {
        if !std::mem::take(&mut self.has_only_results) || seen.is_empty() {
            return false;
        }
        // Unlike a result, the text of a hook is not given to the model later.
        let texts: Vec<_> = seen.extract_if(.., |id| self.is_unclaimed(id)).collect();
        if !texts.is_empty() {
            self.add(&texts, Awaits::Answer, now);
        }
        let awaits = if has_transcript {
            Awaits::LateAnswer
        } else {
            Awaits::NextInput
        };
        self.add(&std::mem::take(seen), awaits, now);
        has_transcript
    }

    /// Takes messages that hooks prove to be seen out of the list while the transcript has not named them. Returns
    /// whether there are any.
    pub(in crate::deliver) fn unrecorded(
        &mut self,
        seen: &mut Vec<MessageId>,
        now: Instant,
    ) -> bool {
        let open: Vec<_> = seen
            .extract_if(.., |id| !self.standing.contains(id))
            .collect();
        if !open.is_empty() {
            self.add(&open, Awaits::Record, now);
        }
        !open.is_empty()
    }

    /// Messages of earlier turns, which hooks prove to be seen, await an answer in the transcript.
    pub(in crate::deliver) fn await_record(&mut self, ids: &[MessageId], now: Instant) {
        self.add(ids, Awaits::LaterRecord, now);
    }

    /// Returns the messages that hooks have proven to be seen and the transcript names; all of them without a transcript.
    pub(in crate::deliver) fn recorded(
        &mut self,
        named: Option<&HashSet<MessageId>>,
    ) -> Vec<MessageId> {
        let is_named = |id: &MessageId| named.is_none_or(|named| named.contains(id));
        let waits = |awaits: &Awaits| {
            *awaits == Awaits::Record || (named.is_none() && *awaits == Awaits::LaterRecord)
        };
        self.take(waits, is_named)
    }

    /// A turn was interrupted: a person may have taken back messages of this age that no step followed, and a client that
    /// was interrupted at the end of a turn drops the text of a hook. Returns whether there are any.
    pub(in crate::deliver) fn broke_off(&mut self, age: Duration, now: Instant) -> bool {
        let may_be_gone = |unproven: &&mut Unproven| {
            unproven.since + age <= now
                && matches!(unproven.awaits, Awaits::StepOf(None) | Awaits::EndOf(None))
        };
        let mut found = false;
        for unproven in self.unproven.iter_mut().filter(may_be_gone) {
            unproven.awaits = Awaits::Answer;
            found = true;
        }
        found
    }

    /// Returns which of these are proven to have been seen because the model knows their ids.
    pub(in crate::deliver) fn proven_by_knowing(
        &mut self,
        known: &HashSet<MessageId>,
    ) -> Vec<MessageId> {
        self.take(
            |awaits| !matches!(awaits, Awaits::Queue(_)),
            |id| known.contains(id),
        )
    }

    /// Takes such messages out of those that wait for such a proof.
    pub(super) fn take(
        &mut self,
        waits: impl Fn(&Awaits) -> bool,
        which: impl Fn(&MessageId) -> bool,
    ) -> Vec<MessageId> {
        let mut taken = Vec::new();
        for unproven in self
            .unproven
            .iter_mut()
            .filter(|unproven| waits(&unproven.awaits))
        {
            taken.extend(unproven.ids.extract_if(.., |id| which(id)));
        }
        self.unproven.retain(|unproven| !unproven.ids.is_empty());
        taken
    }

    /// Returns the messages of results that the client gave up, as after its own time for a tool.
    pub(in crate::deliver) fn given_up(&self, uses: &[String]) -> Vec<MessageId> {
        let is_given_up =
            |unproven: &&Unproven| uses.iter().any(|used| unproven.is_result_of(used));
        let given_up = self.unproven.iter().filter(is_given_up);
        given_up.flat_map(|unproven| unproven.ids.clone()).collect()
    }

    /// The client cancelled the use of a tool after its result.
    pub(in crate::deliver) fn cancelled(&mut self, tool_use: &str) {
        for unproven in &mut self.unproven {
            unproven.is_cancelled |= unproven.is_result_of(tool_use);
        }
    }

    /// The turn of results of that age is over, and no hook has reported the end of their steps: the client may have dropped
    /// them, as where a person broke the turn off while another hook looked at a result. Returns whether there are any.
    pub(in crate::deliver) fn results_broke_off(&mut self, age: Duration, now: Instant) -> bool {
        let may_be_dropped = |unproven: &&mut Unproven| {
            unproven.since + age <= now && matches!(unproven.awaits, Awaits::EndOf(Some(_)))
        };
        let mut found = false;
        for unproven in self.unproven.iter_mut().filter(may_be_dropped) {
            unproven.is_cancelled = true;
            found = true;
        }
        found
    }

    fn step_ends(&mut self, event: &Event) {
        for unproven in &mut self.unproven {
            let is_of_it = match &unproven.awaits {
                Awaits::EndOf(Some(tool_use)) => event.tool_use_ids.contains(tool_use),
                Awaits::EndOf(None) | Awaits::NextInput => event.agent_id.is_none(),
                Awaits::StepOf(_)
                | Awaits::AnyStep
                | Awaits::Queue(_)
                | Awaits::Answer
                | Awaits::LateAnswer
                | Awaits::Record
                | Awaits::LaterRecord => false,
            };
            if is_of_it {
                unproven.awaits = Awaits::StepOf(event.agent_id.clone());
                unproven.is_cancelled = false;
                // The client replaces a result if all results of the step are too large together.
                for id in &unproven.ids {
                    self.standing.remove(id);
                }
            }
        }
        self.ended.extend(event.tool_use_ids.iter().cloned());
        let excess = self.ended.len().saturating_sub(ENDED_MAX);
        self.ended.drain(..excess);
    }

    fn model_is_given_more(&mut self) {
        for unproven in &mut self.unproven {
            if matches!(unproven.awaits, Awaits::NextInput | Awaits::LateAnswer) {
                unproven.awaits = Awaits::AnyStep;
            }
        }
    }
}

impl Unproven {
    /// Returns whether these came in the result of that use of a tool, and no hook has shown that the model has it.
    fn is_result_of(&self, tool_use: &str) -> bool {
        let is_open = matches!(
            self.awaits,
            Awaits::EndOf(_) | Awaits::Queue(_) | Awaits::NextInput | Awaits::AnyStep
        );
        is_open && self.tool_use.as_deref() == Some(tool_use)
    }
}
