//! Reads the open questions to people. They stay in memory, because each description of an agent asks for them: Redis confirms
//! that they are still the same, or returns their places, of which few are new.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use c3po_shared::ids::AgentId;
use c3po_shared::time::Timestamp;

use super::RedisStore;
use super::inbox::STEP;
use super::records::{self, corrupt};
use crate::store::{OpenQuestion, Result};

/// The open questions at the last reading.
#[derive(Debug, Default)]
pub(super) struct Questions(Mutex<Known>);

#[derive(Debug, Default, Clone)]
struct Known {
    mark: String,
    /// When they were accepted, by their places in the inbox: the id and the time of expiry.
    asked: Arc<HashMap<String, Timestamp>>,
    /// In order, oldest first.
    questions: Arc<[OpenQuestion]>,
}

impl Questions {
    /// Returns the open questions, oldest first.
    pub(super) async fn read(&self, store: &RedisStore) -> Result<Arc<[OpenQuestion]>> {
        let known = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut call = store.names.call_about("open_questions", &AgentId::human());
        let answer: Vec<String> = store.connection.invoke(call.arg(&known.mark)).await?;
        let [mark, places @ ..] = &answer[..] else {
            return Err(corrupt("open questions without their mark"));
        };
        if *mark == known.mark {
            return Ok(known.questions);
        }
        let mut asked = HashMap::with_capacity(places.len());
        let mut new = Vec::new();
        for place in places {
            match known.asked.get(place) {
                Some(at) => drop(asked.insert(place.clone(), *at)),
                None => new.push(place),
            }
        }
        for part in new.chunks(STEP) {
            asked.extend(acceptance_times(store, part).await?);
        }
        let question = |place: &String| {
            let asked_at = *asked.get(place)?;
            Some(records::parse(id_of(place)).map(|id| OpenQuestion { id, asked_at }))
        };
        let questions: Arc<[_]> = places.iter().filter_map(question).collect::<Result<_>>()?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Known {
            mark: mark.clone(),
            asked: Arc::new(asked),
            questions: Arc::clone(&questions),
        };
        Ok(questions)
    }
}

/// Returns the id of the message at a place.
fn id_of(place: &str) -> &str {
    place.split(' ').next().unwrap_or_default()
}

/// Returns the times of acceptance of those messages that are stored, by their places.
async fn acceptance_times(
    store: &RedisStore,
    places: &[&String],
) -> Result<Vec<(String, Timestamp)>> {
    let mut call = store.names.call("times", []);
    places.iter().for_each(|place| {
        call.arg(id_of(place));
    });
    let times: Vec<String> = store.connection.invoke(&call).await?;
    let stored = places.iter().zip(&times).filter(|(_, at)| !at.is_empty());
    stored
        .map(|(place, at)| {
            Ok((
                (*place).clone(),
                Timestamp::from_millis(records::parse(at)?),
            ))
        })
        .collect()
}
