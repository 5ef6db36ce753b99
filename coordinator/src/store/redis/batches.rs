//! Calls that are made while others are in flight go to Redis in batches.
//!
//! A call costs Redis as much for itself as for its commands: reading it, the look at the clock, an entry of the log's stream
//! and its transaction in the file. The calls of a batch share that. A call that is alone goes at once and as it is, and so does
//! one about many messages: in the queue, others would wait for it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use c3po_shared::time::Timestamp;
use futures_util::future::join_all;
use redis::{ErrorKind, RedisError, RedisResult, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::task::TaskTracker;

use super::library::{self, Call};
use super::servers::Servers;
use crate::store::CHANGED_BY_CALL;

/// The most messages that the calls of a batch change, so that no batch has more than 500 commands.
const BATCH_MAX: usize = 4 * CHANGED_BY_CALL;
/// How many batches are in flight at once: the fewer, the larger they are.
const IN_FLIGHT: usize = 2;
/// How many are in flight while calls about so many messages are queued, so that a distant Redis does not limit them.
const CROWDED_IN_FLIGHT: usize = 16;
const CROWDED: usize = 4 * BATCH_MAX;
/// The error code of a call that needs memory, when Redis is full.
const OUT_OF_MEMORY: &str = "OOM";

/// A call that waits for a batch. Its caller has a deadline, so the queue is as long as there are callers.
struct Queued {
    call: Arc<Call>,
    /// How many messages it changes, or 1.
    messages: usize,
    latest: Timestamp,
    answer: oneshot::Sender<RedisResult<Value>>,
}

impl Queued {
    /// Returns the result to the caller, unless it has given up.
    fn answer(self, result: RedisResult<Value>) {
        let _ = self.answer.send(result);
    }
}

/// Puts calls into batches.
pub(super) struct Batcher {
    servers: Arc<Servers>,
    queue: Mutex<VecDeque<Queued>>,
    permits: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl Batcher {
    pub(super) fn new(servers: Arc<Servers>) -> Self {
        Self {
            servers,
            queue: Mutex::default(),
            permits: Arc::new(Semaphore::new(CROWDED_IN_FLIGHT)),
            tasks: TaskTracker::new(),
        }
    }

    /// Makes a call, in a batch if others are made meanwhile.
    pub(super) async fn call(
        self: &Arc<Self>,
        call: Arc<Call>,
        messages: usize,
        latest: Timestamp,
    ) -> RedisResult<Value> {
        if messages > CHANGED_BY_CALL {
            return Box::pin(self.servers.run(&call.command(latest))).await;
        }
        let (answer, answered) = oneshot::channel();
        let queued = Queued {
            call,
            messages: messages.max(1),
            latest,
            answer,
        };
        self.lock().push_back(queued);
        if let Some(permit) = self.permit() {
            self.tasks.spawn(Arc::clone(self).run(permit));
        }
        answered.await.unwrap_or_else(|_| Err(no_result()))
    }

    /// Returns a permit for batches, unless enough are in flight.
    fn permit(&self) -> Option<OwnedSemaphorePermit> {
        let queue = self.lock();
        // Each counts, so the first ones decide whether it is crowded.
        let queued: usize = queue.iter().take(CROWDED).map(|call| call.messages).sum();
        drop(queue);
        let in_flight = CROWDED_IN_FLIGHT - self.permits.available_permits();
        let is_due = queued > 0 && (in_flight < IN_FLIGHT || queued >= CROWDED);
        is_due
            .then(|| Arc::clone(&self.permits).try_acquire_owned().ok())
            .flatten()
    }

    /// Runs batches, each with a permit, while one is due.
    async fn run(self: Arc<Self>, first: OwnedSemaphorePermit) {
        let mut permit = Some(first);
        while let Some(held) = permit.take() {
            if let Some(batch) = self.next() {
                self.run_batch(batch).await;
            }
            drop(held);
            permit = self.permit();
        }
    }

    /// Takes the next batch from the queue, without the calls whose callers have given up.
    fn next(&self) -> Option<Vec<Queued>> {
        let mut queue = self.lock();
        queue.retain(|queued| !queued.answer.is_closed());
        let mut messages = 0;
        let fits = |queued: &&Queued| {
            messages += queued.messages;
            messages <= BATCH_MAX
        };
        let count = queue.iter().take_while(fits).count().max(1);
        (!queue.is_empty()).then(|| queue.drain(..count).collect())
    }

    async fn run_batch(&self, mut batch: Vec<Queued>) {
        if batch.len() == 1 {
            return self.run_alone(batch.remove(0)).await;
        }
        let calls: Vec<_> = batch.iter().map(|queued| &*queued.call).collect();
        // A call that is late only because an earlier one is, is repeated by its caller.
        let latest = batch.iter().map(|queued| queued.latest).min();
        let command = library::batch(&calls, latest.unwrap_or_default());
        match self.servers.run::<Vec<Value>>(&command).await {
            Ok(results) => self.distribute(batch, results),
            // Some of them may need no memory.
            Err(error) if error.code() == Some(OUT_OF_MEMORY) => {
                join_all(batch.into_iter().map(|queued| self.run_alone(queued))).await;
            }
            Err(error) => {
                for queued in batch {
                    queued.answer(Err(error.clone()));
                }
            }
        }
    }

    async fn run_alone(&self, queued: Queued) {
        let result = self.servers.run(&queued.call.command(queued.latest)).await;
        queued.answer(result);
    }

    /// Returns each result to its caller. The calls without one were not begun, and are the next ones.
    fn distribute(&self, batch: Vec<Queued>, results: Vec<Value>) {
        let mut batch = VecDeque::from(batch);
        for result in results {
            if let Some(queued) = batch.pop_front() {
                queued.answer(one_result(result));
            }
        }
        if !batch.is_empty() {
            let mut queue = self.lock();
            batch.append(&mut queue);
            *queue = batch;
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Queued>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the result of one call of a batch.
fn one_result(result: Value) -> RedisResult<Value> {
    match result {
        Value::Array(mut result) if result.len() == 1 => Ok(result.remove(0)),
        Value::BulkString(error) => {
            let line = [b"-", &error[..], b"\r\n"].concat();
            redis::parse_redis_value(&line)?.extract_error()
        }
        _ => Err(no_result()),
    }
}

fn no_result() -> RedisError {
    (ErrorKind::Client, "a call of a batch has no result").into()
}
