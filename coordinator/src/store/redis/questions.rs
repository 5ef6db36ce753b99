//! Reads the open questions to people. They stay in memory, because each description of an agent asks for them: Redis confirms
//! that they are still the same, or returns their ids, of which few are new.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::time::Timestamp;

use super::RedisStore;
use super::inbox::STEP;
use super::records::{self, corrupt};
use crate::store::{OpenQuestion, Result};

/// The open questions at the last reading, with their mark.
#[derive(Debug, Default)]
pub(super) struct Questions(Mutex<(String, Arc<[OpenQuestion]>)>);

impl Questions {
    /// Returns the open questions, oldest first.
    pub(super) async fn read(&self, store: &RedisStore) -> Result<Arc<[OpenQuestion]>> {
        let (known, questions) = self.known();
        let mut call = store.names.call_about("open_questions", &AgentId::human());
        let answer: Vec<String> = store.connection.invoke(call.arg(&known)).await?;
        let [mark, ids @ ..] = &answer[..] else {
            return Err(corrupt("open questions without their mark"));
        };
        if *mark == known {
            return Ok(questions);
        }
        let ids: Vec<MessageId> = ids
            .iter()
            .map(|id| records::parse(id))
            .collect::<Result<_>>()?;
        let mut times: HashMap<&MessageId, Timestamp> = HashMap::with_capacity(ids.len());
        times.extend(
            questions
                .iter()
                .map(|question| (&question.id, question.asked_at)),
        );
        let new: Vec<_> = ids.iter().filter(|id| !times.contains_key(id)).collect();
        for part in new.chunks(STEP) {
            times.extend(times_of(store, part).await?);
        }
        let question = |id: &MessageId| {
            let asked_at = *times.get(id)?;
            Some(OpenQuestion {
                id: id.clone(),
                asked_at,
            })
        };
        let open: Arc<[_]> = ids.iter().filter_map(question).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (mark.clone(), Arc::clone(&open));
        Ok(open)
    }

    fn known(&self) -> (String, Arc<[OpenQuestion]>) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Returns the times of acceptance of those of the messages that are stored.
async fn times_of<'a>(
    store: &RedisStore,
    ids: &[&'a MessageId],
) -> Result<Vec<(&'a MessageId, Timestamp)>> {
    let mut call = store.names.call("times", []);
    ids.iter().for_each(|id| {
        call.arg(id.as_str());
    });
    let times: Vec<String> = store.connection.invoke(&call).await?;
    let stored = ids.iter().zip(&times).filter(|(_, at)| !at.is_empty());
    stored
        .map(|(id, at)| Ok((*id, Timestamp::from_millis(records::parse(at)?))))
        .collect()
}
