//! The kinds of work for which a principal has places, and these places.

use std::sync::Arc;
use std::time::Duration;

use c3po_shared::limits::{
    CALLS_PER_KEY, CALLS_PER_SECOND, CALLS_WITHOUT_KEY, EVENT_READERS, EVENT_READERS_PER_KEY,
    LISTS_PER_KEY, LISTS_WITHOUT_KEY, LOG_PAGES_PER_KEY, LOG_PAGES_WITHOUT_KEY,
    QUESTION_PAGES_PER_KEY, QUESTION_PAGES_WITHOUT_KEY, READS_PER_KEY, READS_WITHOUT_KEY,
};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::pace::SharedPace;

/// The burst of calls, as time at their rate.
const BURST: Duration = Duration::from_secs(1);
/// The price of a call.
pub(super) const CALL: Duration = Duration::from_nanos(1_000_000_000 / CALLS_PER_SECOND as u64);

/// A kind of work in the store. The store does one operation after the other: with a limited number in its queue, no principal
/// keeps the others waiting.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    /// A short call.
    Call,
    /// A read of texts or of a long list, a change of many messages or a broadcast. There are few, because each takes long.
    Read,
    /// A page of the log, which is read in many parts, each with a place for a read.
    LogPage,
    /// A page of the open questions, which is read in parts, each with a place for a read.
    QuestionPage,
    /// A list without texts, beside a place for a read. There are few, so that a flood of lists leaves the other reads their
    /// turns.
    List,
}

impl Work {
    /// Returns how many places one host has, and how many clients have together that may be many hosts.
    pub(super) fn limits(self) -> (usize, usize) {
        match self {
            Self::Call => (CALLS_PER_KEY, CALLS_WITHOUT_KEY),
            Self::Read => (READS_PER_KEY, READS_WITHOUT_KEY),
            Self::LogPage => (LOG_PAGES_PER_KEY, LOG_PAGES_WITHOUT_KEY),
            Self::QuestionPage => (QUESTION_PAGES_PER_KEY, QUESTION_PAGES_WITHOUT_KEY),
            Self::List => (LISTS_PER_KEY, LISTS_WITHOUT_KEY),
        }
    }

    /// Returns its plural, for the refusal of a further place.
    pub(super) fn plural(self) -> &'static str {
        match self {
            Self::Call => "calls",
            Self::Read => "reads",
            Self::LogPage => "pages of the log",
            Self::QuestionPage => "pages of questions",
            Self::List => "lists",
        }
    }
}

/// The places of one principal.
#[derive(Debug)]
pub(super) struct Places {
    /// For requests by REST, until the head of the answer.
    pub(super) requests: Arc<Semaphore>,
    /// For upgrades to links, until the head of the answer.
    pub(super) upgrades: Arc<Semaphore>,
    /// For streams of events.
    pub(super) streams: Arc<Semaphore>,
    calls: Semaphore,
    reads: Semaphore,
    log_pages: Semaphore,
    question_pages: Semaphore,
    lists: Semaphore,
    /// Of calls; `None` for clients that may be many hosts.
    pace: Option<SharedPace>,
}

impl Places {
    /// Returns free places, for one host or for clients that may be many.
    pub(super) fn new(is_one_host: bool) -> Self {
        let limit = |(one, many): (usize, usize)| if is_one_host { one } else { many };
        let places = |work: Work| Semaphore::new(limit(work.limits()));
        let streams = limit((EVENT_READERS_PER_KEY, EVENT_READERS));
        Self {
            // Hosts that share a token share these, too: a flood of them costs others as much as one under a key.
            requests: Arc::new(Semaphore::new(CALLS_PER_KEY)),
            upgrades: Arc::new(Semaphore::new(CALLS_PER_KEY)),
            streams: Arc::new(Semaphore::new(streams)),
            calls: places(Work::Call),
            reads: places(Work::Read),
            log_pages: places(Work::LogPage),
            question_pages: places(Work::QuestionPage),
            lists: places(Work::List),
            pace: is_one_host.then(|| SharedPace::with_burst(BURST)),
        }
    }

    /// Takes a place for a kind of work, in order of arrival. Calls beyond their rate keep it until they are due, and reads while
    /// calls are.
    pub(super) async fn take(&self, work: Work) -> SemaphorePermit<'_> {
        let place = self.of(work).acquire().await.expect("it is never closed");
        match (&self.pace, work) {
            (Some(pace), Work::Call) => pace.pay(CALL).await,
            (Some(pace), Work::Read) => pace.rest().await,
            _ => {}
        }
        place
    }

    /// Returns the pace of its calls; `None` for clients that may be many hosts.
    pub(super) fn pace(&self) -> Option<&SharedPace> {
        self.pace.as_ref()
    }

    /// Returns those for a kind of work.
    pub(super) fn of(&self, work: Work) -> &Semaphore {
        match work {
            Work::Call => &self.calls,
            Work::Read => &self.reads,
            Work::LogPage => &self.log_pages,
            Work::QuestionPage => &self.question_pages,
            Work::List => &self.lists,
        }
    }
}
