//! The counts that bound pushes to a person and answers from a topic. Pure.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use c3po_shared::ids::MessageId;
use c3po_shared::limits::{
    PUSHES_MAX, PUSHES_PER_HOST, PUSHES_WITHIN, QUESTIONS_MAX, WRONG_REPLIES_MAX,
};
use tokio::time::Instant;

use super::codes;

/// The time in which wrong codes are counted, and for which answers in words are then ignored, in seconds.
const WRONG_WITHIN: u64 = 60;

/// The recent pushes of this coordinator to a person, each with the host of its sender.
#[derive(Debug, Default)]
pub(super) struct Pace(VecDeque<(Instant, String)>);

impl Pace {
    /// Counts one more push. Returns the time until there is room for it if there were too many, in all or of the host. The
    /// first of a host also has room beside as many others again, so that the other hosts do not keep it back.
    pub(super) fn take(&mut self, host: &str, now: Instant) -> Result<(), Duration> {
        let is_old = |(at, _): &mut (Instant, String)| now.duration_since(*at) >= PUSHES_WITHIN;
        while self.0.pop_front_if(is_old).is_some() {}
        let mut of_host = self.0.iter().filter(|(_, of)| of == host);
        let count = of_host.clone().count();
        let most = if count == 0 {
            2 * PUSHES_MAX
        } else {
            PUSHES_MAX
        };
        let first = if self.0.len() >= most {
            self.0.front()
        } else if count >= PUSHES_PER_HOST {
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

    /// Takes the latest count of the host back: a push failed.
    pub(super) fn give_back(&mut self, host: &str) {
        if let Some(at) = self.0.iter().rposition(|(_, of)| of == host) {
            self.0.remove(at);
        }
    }
}

/// The pushes that the server of a person refused for their content: none of them is sent again for a time.
#[derive(Debug, Default)]
pub(super) struct RefusedPushes(HashMap<MessageId, Instant>);

impl RefusedPushes {
    pub(super) fn add(&mut self, id: &MessageId, until: Instant) {
        if self.0.len() < QUESTIONS_MAX {
            self.0.insert(id.clone(), until);
        }
    }

    /// Returns whether the push is not to be sent now. Forgets those whose time is over.
    pub(super) fn has(&mut self, id: &MessageId, now: Instant) -> bool {
        self.0.retain(|_, until| *until > now);
        self.0.contains_key(id)
    }
}

/// How long no push to a person is tried after one failed.
pub(super) const RETRY: Duration = Duration::from_secs(10);

/// The pause of pushes to a person after one failed. During it none is tried, whatever waits: a server that refuses too many
/// requests would refuse all of them for ever.
#[derive(Debug, Default)]
pub(super) struct Outage {
    retry_at: Option<Instant>,
}

impl Outage {
    /// Returns the time until a push may be tried. After the pause one is, and the others after its success.
    pub(super) fn may_try(&mut self, now: Instant) -> Result<(), Duration> {
        match self.retry_at {
            Some(at) if now < at => Err(at - now),
            Some(_) => {
                self.retry_at = Some(now + RETRY);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Records that a push was tried.
    pub(super) fn tried(&mut self, fails: bool, now: Instant) {
        self.retry_at = fails.then(|| now + RETRY);
    }
}

/// The wrong codes within a minute that close a topic for replies from before the coordinator began. It may have applied
/// them before it was started again, and then the codes of answered questions count as wrong. No person types so many.
const WRONG_BEFORE_MAX: usize = 20;

/// How many codes are known to have been used. They are right ones: a person may write to a question once more.
const USED_MAX: usize = 100;

/// The recent wrong codes in a reply topic, by the time of their messages.
#[derive(Debug)]
pub(super) struct WrongReplies {
    /// When the coordinator began to read the topic.
    began: u64,
    times: VecDeque<u64>,
    /// The latest right codes.
    used: VecDeque<String>,
    ignored_until: u64,
}

impl WrongReplies {
    /// Counts those of a topic that is read from this time on, in seconds since 1970.
    pub(super) fn since(began: u64) -> Self {
        Self {
            began,
            times: VecDeque::new(),
            used: VecDeque::new(),
            ignored_until: 0,
        }
    }

    /// Remembers a right code.
    pub(super) fn note_used(&mut self, code: String) {
        self.used.push_front(code);
        self.used.truncate(USED_MAX);
    }

    /// Returns whether the code was a right one.
    pub(super) fn was_used(&self, code: &str) -> bool {
        self.used.iter().any(|used| codes::same(used, code))
    }

    /// Returns whether a message of that time is ignored.
    pub(super) fn ignores(&self, time: u64) -> bool {
        time < self.ignored_until
    }

    /// Counts a wrong code. Returns whether the topic is ignored from now on.
    pub(super) fn count(&mut self, time: u64) -> bool {
        let began = self.began;
        let is_before = |at: u64| at < began;
        self.times
            .retain(|at| at + WRONG_WITHIN > time && is_before(*at) == is_before(time));
        self.times.push_back(time);
        let most = if is_before(time) {
            WRONG_BEFORE_MAX
        } else {
            WRONG_REPLIES_MAX
        };
        let is_enough = self.times.len() >= most;
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
        assert_eq!(pace.take("tablet", at(11)), Ok(()), "its first");
        assert!(pace.take("tablet", at(12)).is_err());
        pace.give_back("tablet");
        for further in 0..PUSHES_MAX {
            assert_eq!(pace.take(&format!("h{further}"), at(13)), Ok(()));
        }
        assert!(pace.take("tablet", at(14)).is_err(), "twice as many in all");
        (0..PUSHES_MAX).for_each(|further| pace.give_back(&format!("h{further}")));
        assert_eq!(pace.take("nas", at(300)), Ok(()));
        assert_eq!(pace.take("nas", at(300)), Err(Duration::from_secs(1)));
        pace.give_back("nas");
        assert_eq!(pace.take("nas", at(300)), Ok(()));
    }

    #[test]
    fn a_push_that_was_refused_rests() {
        let (mut refused, now) = (RefusedPushes::default(), Instant::now());
        let id: MessageId = "ha::human::0a1b2c3d".parse().expect("an id");
        assert!(!refused.has(&id, now));
        refused.add(&id, now + RETRY);
        assert!(refused.has(&id, now) && !refused.has(&id, now + RETRY));
    }

    #[test]
    fn five_wrong_codes_within_a_minute_close_a_topic_for_a_minute() {
        let mut wrong = WrongReplies::since(100);
        for time in [100, 110, 120, 159, 160] {
            assert!(!wrong.count(time), "the first is a minute old");
        }
        assert!(!wrong.ignores(161));
        assert!(wrong.count(161));
        assert!(wrong.ignores(161) && wrong.ignores(220) && !wrong.ignores(221));
        assert!(!wrong.count(221));
    }

    #[test]
    fn the_code_of_an_answered_question_is_not_a_wrong_one() {
        let mut wrong = WrongReplies::since(100);
        assert!(!wrong.was_used("a1b2c3"));
        wrong.note_used("a1b2c3".to_owned());
        for number in 1..USED_MAX {
            wrong.note_used(number.to_string());
        }
        assert!(wrong.was_used("a1b2c3"));
        wrong.note_used("d4e5f6".to_owned());
        assert!(!wrong.was_used("a1b2c3") && wrong.was_used("d4e5f6"));
    }

    #[test]
    fn after_a_failure_one_push_is_tried_every_ten_seconds() {
        let (mut outage, start) = (Outage::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(
            (outage.may_try(at(0)), outage.may_try(at(0))),
            (Ok(()), Ok(()))
        );
        outage.tried(true, at(0));
        assert_eq!(outage.may_try(at(4)), Err(Duration::from_secs(6)));
        assert_eq!(outage.may_try(at(10)), Ok(()));
        assert_eq!(outage.may_try(at(10)), Err(RETRY), "one is enough");
        outage.tried(false, at(11));
        assert_eq!(outage.may_try(at(11)), Ok(()));
    }

    #[test]
    fn answers_from_before_a_restart_do_not_close_the_topic() {
        let mut wrong = WrongReplies::since(1000);
        let mut count = |time, times: usize| (0..times).filter(|_| wrong.count(time)).count();
        assert_eq!(count(990, 19), 0, "applied before the restart");
        assert_eq!(count(1000, 4), 0, "these are counted on their own");
        assert_eq!(count(1001, 1), 1);
        let mut guessed = WrongReplies::since(1000);
        assert!((0..20).any(|_| guessed.count(990)) && guessed.ignores(991));
    }
}
