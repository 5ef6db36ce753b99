//! The counts that bound pushes to a person and answers from a topic. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use c3po_shared::limits::{PUSHES_MAX, PUSHES_PER_HOST, PUSHES_WITHIN, WRONG_REPLIES_MAX};
use tokio::time::Instant;

/// The time in which wrong codes are counted, and for which a topic is then ignored, in seconds.
const WRONG_WITHIN: u64 = 60;

/// The recent pushes of this coordinator to a person, each with the host of its sender.
#[derive(Debug, Default)]
pub(super) struct Pace(VecDeque<(Instant, String)>);

impl Pace {
    /// Counts one more push. Returns the time until there is room for it if there were too many, in all or of the host.
    pub(super) fn take(&mut self, host: &str, now: Instant) -> Result<(), Duration> {
        let is_old = |(at, _): &mut (Instant, String)| now.duration_since(*at) >= PUSHES_WITHIN;
        while self.0.pop_front_if(is_old).is_some() {}
        let mut of_host = self.0.iter().filter(|(_, of)| of == host);
        let first = if self.0.len() >= PUSHES_MAX {
            self.0.front()
        } else if of_host.clone().count() >= PUSHES_PER_HOST {
            of_host.next()
        } else {
            None
        };
        if let Some((at, _)) = first {
            return Err(PUSHES_WITHIN - now.duration_since(*at));
        }
        self.0.push_back((now, host.to_owned()));
        Ok(())
    }

    /// Takes the latest count back: a push failed.
    pub(super) fn give_back(&mut self) {
        self.0.pop_back();
    }
}

/// The recent wrong codes in a reply topic, by the time of their messages, so that a second reading decides the same.
#[derive(Debug, Default)]
pub(super) struct WrongReplies {
    times: VecDeque<u64>,
    ignored_until: u64,
}

impl WrongReplies {
    /// Returns whether a message of that time is ignored.
    pub(super) fn ignores(&self, time: u64) -> bool {
        time < self.ignored_until
    }

    /// Counts a wrong code. Returns whether the topic is ignored from now on.
    pub(super) fn count(&mut self, time: u64) -> bool {
        self.times.retain(|at| at + WRONG_WITHIN > time);
        self.times.push_back(time);
        let is_enough = self.times.len() >= WRONG_REPLIES_MAX;
        if is_enough {
            self.times.clear();
            self.ignored_until = time + WRONG_WITHIN;
        }
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_pushes_in_five_minutes_and_eight_of_a_host() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for second in 0..8 {
            assert_eq!(pace.take("nas", at(second)), Ok(()));
        }
        assert_eq!(pace.take("nas", at(8)), Err(Duration::from_secs(292)));
        for second in 8..10 {
            assert_eq!(pace.take("desk", at(second)), Ok(()));
        }
        assert_eq!(pace.take("desk", at(10)), Err(Duration::from_secs(290)));
        assert_eq!(pace.take("nas", at(300)), Ok(()));
        assert_eq!(pace.take("nas", at(300)), Err(Duration::from_secs(1)));
        pace.give_back();
        assert_eq!(pace.take("nas", at(300)), Ok(()));
    }

    #[test]
    fn five_wrong_codes_within_a_minute_close_a_topic_for_a_minute() {
        let mut wrong = WrongReplies::default();
        for time in [100, 110, 120, 159, 160] {
            assert!(!wrong.count(time), "the first is a minute old");
        }
        assert!(!wrong.ignores(161));
        assert!(wrong.count(161));
        assert!(wrong.ignores(161) && wrong.ignores(220) && !wrong.ignores(221));
        assert!(!wrong.count(221));
    }
}
