//! Reads the open questions to people. They stay in memory, because each description of an agent asks for them: Redis only
//! confirms that they are still the same.

use std::sync::{Arc, Mutex, PoisonError};

use c3po_shared::ids::AgentId;
use c3po_shared::time::Timestamp;

use super::RedisStore;
use super::inbox::STEP;
use super::records::{self, corrupt};
use crate::store::{OpenQuestion, Result};

/// The open questions at the last reading, with their mark.
#[derive(Debug, Default)]
pub(super) struct Questions(Mutex<Option<(String, Arc<[OpenQuestion]>)>>);

/// A part of the open questions.
struct Part {
    mark: String,
    questions: Vec<OpenQuestion>,
    /// The position to continue at. `None` at the end.
    next: Option<u64>,
}

impl Questions {
    /// Returns the open questions, oldest first.
    pub(super) async fn read(&self, store: &RedisStore) -> Result<Arc<[OpenQuestion]>> {
        let (known, questions) = self.known().unwrap_or_default();
        let first = part(store, 0, &known).await?;
        if first.mark == known {
            return Ok(questions);
        }
        let (mut all, mut next, mut same) = (first.questions, first.next, true);
        while let Some(after) = next {
            let part = part(store, after, "").await?;
            same &= part.mark == first.mark;
            all.extend(part.questions);
            next = part.next;
        }
        let all: Arc<[_]> = all.into();
        // A question that opened or closed between two parts may be in only one of them.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            same.then(|| (first.mark, Arc::clone(&all)));
        Ok(all)
    }

    fn known(&self) -> Option<(String, Arc<[OpenQuestion]>)> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Reads a part of the questions. It has none if their mark is the known one.
async fn part(store: &RedisStore, after: u64, known: &str) -> Result<Part> {
    let mut call = store.names.call_about("open_questions", &AgentId::human());
    call.arg(after).arg(STEP).arg(known);
    let answer: Vec<String> = store.connection.invoke(&call).await?;
    let [next, mark, found @ ..] = &answer[..] else {
        return Err(corrupt("open questions without their first words"));
    };
    let question = |facts: &[String]| {
        Ok(OpenQuestion {
            id: records::parse(&facts[0])?,
            asked_at: Timestamp::from_millis(records::parse(&facts[1])?),
        })
    };
    Ok(Part {
        mark: mark.clone(),
        questions: found.chunks_exact(2).map(question).collect::<Result<_>>()?,
        next: (!next.is_empty())
            .then(|| records::parse(next))
            .transpose()?,
    })
}
