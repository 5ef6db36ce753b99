//! The ways into an idle session, tried in order, and the record of each in this session.

use std::time::Duration;

use c3po_shared::receipt::Via;
use tokio::time::Instant;

/// How long a way that failed is left alone, the first time; each further failure doubles it. On a busy machine a push may
/// seem to fail, and no idle session is to wait for half a minute then.
const REST: Duration = Duration::from_secs(15);
/// The longest rest.
const REST_MAX: Duration = Duration::from_secs(30 * 60);

/// A way by which an idle session can be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The session's own inbox socket.
    Inbox,
    /// The hook that waits beside the session.
    Rewake,
    /// A channel notification.
    Channel,
}

impl Way {
    /// In the order in which they are tried.
    const ALL: [Self; 3] = [Self::Inbox, Self::Rewake, Self::Channel];

    /// Returns the way of that name in receipts, if it is one.
    pub(super) fn named(via: Via) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.via() == via)
    }

    /// Returns its name in receipts.
    pub(super) fn via(self) -> Via {
        match self {
            Self::Inbox => Via::InboxSocket,
            Self::Rewake => Via::AsyncRewake,
            Self::Channel => Via::Channel,
        }
    }
}

/// The record of one way.
#[derive(Debug, Clone, Copy, Default)]
struct Trial {
    works: bool,
    failures: u32,
    rests_until: Option<Instant>,
}

/// The record of every way.
#[derive(Debug, Default)]
pub(super) struct Ways {
    trials: [Trial; 3],
    /// Whether any hook of this session has reported.
    pub(super) hooks: bool,
}

impl Ways {
    /// Returns the first way that is there and not at rest.
    pub(super) fn next(&self, is_there: impl Fn(Way) -> bool, now: Instant) -> Option<Way> {
        Way::ALL.into_iter().find(|way| {
            is_there(*way)
                && self
                    .trial(*way)
                    .rests_until
                    .is_none_or(|until| until <= now)
        })
    }

    /// Returns when the next way that is there has rested.
    pub(super) fn next_at(&self, is_there: impl Fn(Way) -> bool) -> Option<Instant> {
        Way::ALL
            .into_iter()
            .filter(|way| is_there(*way))
            .filter_map(|way| self.trial(way).rests_until)
            .min()
    }

    /// A push by that way was confirmed.
    pub(super) fn worked(&mut self, way: Way) {
        *self.trial_mut(way) = Trial {
            works: true,
            failures: 0,
            rests_until: None,
        };
    }

    /// A push by that way was not confirmed.
    pub(super) fn failed(&mut self, way: Way, now: Instant) {
        let trial = self.trial_mut(way);
        let rest = REST
            .saturating_mul(1 << trial.failures.min(10))
            .min(REST_MAX);
        *trial = Trial {
            works: false,
            failures: trial.failures + 1,
            rests_until: Some(now + rest),
        };
    }

    /// Returns whether the latest push by that way was not confirmed.
    pub(super) fn has_failed(&self, way: Way) -> bool {
        self.trial(way).failures > 0
    }

    /// Returns whether the way was seen to work, and did not fail since.
    pub(super) fn works(&self, way: Way) -> bool {
        self.trial(way).works
    }

    /// Returns the available ways into the session: those of hooks once any hook has reported, a push once one by that
    /// way was confirmed.
    pub(super) fn reach(&self) -> Vec<Via> {
        let mut reach = vec![Via::WaitForMessage, Via::GetMessages];
        if self.hooks {
            reach.extend([Via::UserPromptSubmit, Via::PostToolBatch, Via::Stop]);
        }
        reach.extend(
            Way::ALL
                .into_iter()
                .filter(|way| self.works(*way))
                .map(Way::via),
        );
        reach
    }

    fn trial(&self, way: Way) -> Trial {
        self.trials[way as usize]
    }

    fn trial_mut(&mut self, way: Way) -> &mut Trial {
        &mut self.trials[way as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_that_failed_rests_and_the_next_one_is_tried() {
        let (mut ways, now) = (Ways::default(), Instant::now());
        let both = |way| way != Way::Channel;
        assert_eq!(ways.next(both, now), Some(Way::Inbox));
        ways.failed(Way::Inbox, now);
        assert_eq!(ways.next(both, now), Some(Way::Rewake));
        ways.failed(Way::Rewake, now);
        assert_eq!(
            (ways.next(both, now), ways.next_at(both)),
            (None, Some(now + REST))
        );
        assert_eq!(ways.next(both, now + REST), Some(Way::Inbox));
        ways.failed(Way::Inbox, now + REST);
        assert_eq!(ways.next(both, now + REST + REST), Some(Way::Rewake));
        assert_eq!(
            ways.next(|way| way == Way::Inbox, now + REST * 3),
            Some(Way::Inbox)
        );
    }

    #[test]
    fn reach_lists_the_available_ways_and_only_confirmed_pushes() {
        let (mut ways, now) = (Ways::default(), Instant::now());
        assert_eq!(ways.reach(), [Via::WaitForMessage, Via::GetMessages]);
        ways.hooks = true;
        ways.worked(Way::Inbox);
        assert_eq!(
            ways.reach()[2..],
            [
                Via::UserPromptSubmit,
                Via::PostToolBatch,
                Via::Stop,
                Via::InboxSocket
            ]
        );
        ways.failed(Way::Inbox, now);
        assert!(!ways.reach().contains(&Via::InboxSocket) && !ways.works(Way::Inbox));
    }
}
