//! The messages that results show to the model, by request.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::RequestId;

use c3po_shared::ids::MessageId;

use crate::deliver::Presented;

/// How many written results are remembered: a client cancels a call at once.
const WRITTEN_MAX: usize = 32;

/// Results that were made but not yet written, and the latest ones that were. The server adds them, the transport reports
/// what becomes of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Presenting {
    results: Arc<Mutex<Results>>,
}

#[derive(Debug, Default)]
struct Results {
    by_request: HashMap<RequestId, Presented>,
    /// The client's names for the uses of their tools, oldest first.
    written: VecDeque<(RequestId, String)>,
}

impl Presenting {
    /// Records the messages in the result of a request. Returns those that results of other requests hold too.
    pub(super) fn add(&self, request: RequestId, presented: Presented) -> Vec<MessageId> {
        let by_request = &mut self.results().by_request;
        let held: Vec<_> = by_request
            .values()
            .flat_map(|other| &other.ids)
            .cloned()
            .collect();
        let beside = presented
            .ids
            .iter()
            .filter(|id| held.contains(id))
            .cloned()
            .collect();
        by_request.insert(request, presented);
        beside
    }

    /// Returns the messages in the result of a request, if there are any.
    pub(super) fn of(&self, request: &RequestId) -> Option<Presented> {
        self.results().by_request.get(request).cloned()
    }

    /// The result of a request was written. Returns whether the client still wants it: it may have cancelled the call while
    /// the result was on its way.
    pub(super) fn written(&self, request: RequestId) -> bool {
        let mut results = self.results();
        let Some(presented) = results.by_request.remove(&request) else {
            return false;
        };
        if let Some(tool_use) = presented.tool_use {
            results.written.push_back((request, tool_use));
            if results.written.len() > WRITTEN_MAX {
                results.written.pop_front();
            }
        }
        true
    }

    /// The client cancelled a request. Returns the use of the tool whose result was written before, if that held messages.
    pub(super) fn cancelled(&self, request: &RequestId) -> Option<String> {
        let mut results = self.results();
        results.by_request.remove(request);
        let mut written = results.written.iter();
        let found = written.find(|(written, _)| written == request)?;
        Some(found.1.clone())
    }

    fn results(&self) -> MutexGuard<'_, Results> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use c3po_shared::receipt::Via;
    use rmcp::model::NumberOrString::Number;

    #[test]
    fn only_a_cancellation_after_the_result_names_the_use_of_its_tool() {
        let presenting = Presenting::default();
        let uses = |tool_use: &str| Presented {
            ids: Vec::new(),
            via: Via::WaitForMessage,
            tool_use: Some(tool_use.into()),
            waited: None,
        };
        presenting.add(Number(1), uses("t1"));
        presenting.add(Number(2), uses("t2"));
        presenting.written(Number(2));
        assert_eq!(presenting.cancelled(&Number(1)), None);
        assert_eq!(presenting.cancelled(&Number(2)).as_deref(), Some("t2"));
        assert_eq!(presenting.of(&Number(1)), None);
    }

    #[test]
    fn a_cancellation_while_a_result_is_written_is_known_afterwards() {
        let presenting = Presenting::default();
        let presented = Presented {
            ids: Vec::new(),
            via: Via::WaitForMessage,
            tool_use: Some("t1".into()),
            waited: None,
        };
        presenting.add(Number(1), presented.clone());
        presenting.add(Number(2), presented);
        assert_eq!(presenting.cancelled(&Number(1)), None);
        assert!(!presenting.written(Number(1)));
        assert!(presenting.written(Number(2)));
    }
}
