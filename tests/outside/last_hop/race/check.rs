//! The judgement of a race: one decision takes effect, and every receipt agrees with the session.

use super::table::{Column, Deed};

/// Everything that was observed about one question of a race.
#[derive(Debug, Clone, Default)]
pub(super) struct Story {
    /// The verdicts that people gave, each with the status of its response; `None` if the connection broke.
    pub(super) verdicts: Vec<(Deed, Option<u16>)>,
    /// The stages of the receipt, each as `stage` or `stage via`.
    pub(super) stages: Vec<String>,
    /// The verdict that the coordinator stored.
    pub(super) stored: Option<bool>,
    /// How often the effect of the tool was seen.
    pub(super) effects: usize,
    /// For a choice: whether the model read the answer of the terminal.
    pub(super) is_of_terminal: Option<bool>,
    /// The status of an answer that came after all of it.
    pub(super) late: Option<u16>,
}

/// Everything that was done at the terminal and to the processes.
#[derive(Debug, Clone, Default)]
pub(super) struct Scenery {
    pub(super) deeds: Vec<Deed>,
}

/// Whether a rule is broken, and the rule.
type Check = (bool, &'static str);

fn is_time_out(deed: Deed) -> bool {
    deed == Deed::TimeOut
}

impl Scenery {
    fn has(&self, wanted: impl Fn(Deed) -> bool) -> bool {
        self.deeds.iter().any(|deed| wanted(*deed))
    }
}

impl Story {
    fn reached(&self, stage: &str) -> bool {
        self.stages.iter().any(|step| step.starts_with(stage))
    }

    /// Returns whether the answer that the model read is not that of the receipt.
    fn reads_another_answer(&self, killed: bool) -> bool {
        // A proxy that was killed may have passed the verdict on, and cannot record it.
        let may_be_unrecorded = killed && self.reached("answered");
        match self.is_of_terminal {
            Some(true) => self.reached("taken"),
            Some(false) => !self.reached("taken") && !may_be_unrecorded,
            None => false,
        }
    }

    /// Returns everything that must not be.
    pub(super) fn violations(&self, column: Column, scenery: &Scenery) -> Vec<&'static str> {
        let checks = self.of_answers(scenery).into_iter();
        let checks = checks.chain(self.of_effects(column, scenery));
        let broken = checks.filter(|(is_broken, _)| *is_broken);
        broken.map(|(_, rule)| rule).collect()
    }

    /// Checks the answers, and the outcome of the question.
    fn of_answers(&self, scenery: &Scenery) -> Vec<Check> {
        let accepted = self
            .verdicts
            .iter()
            .filter(|(_, status)| *status == Some(201));
        let is_unknown = self.verdicts.iter().any(|(_, status)| status.is_none());
        let (answered, withdrawn) = (self.reached("answered"), self.reached("withdrawn"));
        let (killed, timed) = (scenery.has(Deed::kills), scenery.has(is_time_out));
        let keyed = scenery.has(Deed::is_at_the_terminal);
        vec![
            (accepted.clone().count() > 1, "two verdicts were accepted"),
            (
                accepted.count() == 1 && !answered,
                "an accepted verdict is not stored",
            ),
            (
                answered && !is_unknown && self.verdicts.is_empty(),
                "answered without a verdict",
            ),
            (
                answered != self.stored.is_some(),
                "the receipt and the reply differ",
            ),
            (answered && withdrawn, "answered and withdrawn"),
            (!answered && !withdrawn, "it has no outcome"),
            (
                self.reached("withdrawn terminal") && !keyed && !killed,
                "nobody was at the terminal",
            ),
            (
                self.reached("withdrawn session_end") && !killed,
                "the session has not ended",
            ),
            (
                self.reached("withdrawn time_out") && !timed && !killed,
                "its time was not over",
            ),
            (
                self.late
                    != Some(if answered || self.reached("withdrawn time_out") {
                        409
                    } else {
                        410
                    }),
                "a late answer was not refused with the right status",
            ),
            (
                self.reads_another_answer(killed),
                "the model read another answer",
            ),
        ]
    }

    /// Checks the evidence, and the effects of the tool.
    fn of_effects(&self, column: Column, scenery: &Scenery) -> Vec<Check> {
        let (taken, applied) = (self.reached("taken"), self.reached("applied"));
        let answered = self.reached("answered");
        let (killed, timed) = (scenery.has(Deed::kills), scenery.has(is_time_out));
        let keyed = scenery.has(Deed::is_at_the_terminal);
        // A message needs a coordinator, and an answer is seen only if the turn goes on.
        let is_unseen = match column {
            Column::Mcp => killed || scenery.has(|deed| deed == Deed::KillCoordinator),
            Column::Choice | Column::Plan => keyed || killed,
            _ => false,
        };
        let allowed = scenery.has(|deed| deed == Deed::Yes) || self.stored == Some(true);
        vec![
            (self.effects > 1, "the tool ran twice"),
            (
                self.effects > 0 && !allowed,
                "the tool ran without permission",
            ),
            ((taken || applied) && !answered, "taken without an answer"),
            (applied && !taken, "applied but not taken"),
            (
                answered && !taken && !keyed && !killed && !timed,
                "nothing but the verdict decided, and it was not taken",
            ),
            (
                taken && !applied && !killed && !scenery.has(|deed| deed == Deed::Clear),
                "taken and never applied",
            ),
            (
                taken && self.stored == Some(false) && self.effects > 0,
                "the tool ran although a refusal was taken",
            ),
            (
                applied && self.stored == Some(true) && self.effects == 0 && !is_unseen,
                "applied, but the tool did not run",
            ),
        ]
    }
}

/// The choice that a person makes at the terminal. Those who decide elsewhere choose others.
pub(super) const TERMINAL: &str = "SQLite";
