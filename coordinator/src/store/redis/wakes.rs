//! Wakes: hints between this process's listeners and those of every other coordinator on the same Redis.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use futures_util::StreamExt;
use redis::aio::{PubSubSink, PubSubStream};
use redis::{Msg, RedisError};
use tokio::sync::broadcast;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TrackedFuture;
use uuid::Uuid;

use super::connection::Connection;
use super::keys::WAKE_CHANNEL;
use super::node::{CONNECT_DEADLINE, too_slow};
use crate::store::{WAKE_BACKLOG, Wake};

/// The pauses between attempts to subscribe again: from the first, doubling, up to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How often a quiet subscription is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(5);
/// How long it has to answer.
const PING_DEADLINE: Duration = Duration::from_secs(2);

/// For how long after a command without an answer this process listens to itself: a server that hung carries out what
/// lay before it when it goes on.
const DOUBTS: Duration = Duration::from_secs(300);

/// The wakes of this process, and the task that hears those of the others.
#[derive(Debug)]
pub(super) struct Wakes {
    origin: String,
    doubts: Arc<Doubts>,
    sender: broadcast::Sender<Wake>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// A subscription that stands.
struct Subscription {
    sink: PubSubSink,
    stream: PubSubStream,
    since: Instant,
}

impl Wakes {
    /// Subscribes, and hears from now on.
    pub(super) async fn start(connection: Arc<Connection>) -> Result<Self, RedisError> {
        let wakes = Self {
            origin: Uuid::new_v4().to_string(),
            doubts: Arc::default(),
            sender: broadcast::Sender::new(WAKE_BACKLOG),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        let first = subscribe(&connection).await?;
        let ear = Ear {
            connection,
            origin: wakes.origin.clone(),
            doubts: Arc::clone(&wakes.doubts),
            sender: wakes.sender.clone(),
        };
        wakes.tasks.spawn(ear.hear_until_stopped(first, wakes.stop.clone()));
        wakes.tasks.close();
        Ok(wakes)
    }

    /// Returns the wakes from now on.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<Wake> {
        self.sender.subscribe()
    }

    /// Returns the name under which this process's scripts publish, so that it does not hear itself.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// Nothing is known of what a script of this process did: it may still run, and nobody here was woken for it.
    pub(super) fn doubt(&self) {
        self.doubts.begin();
    }

    /// Wakes this process's listeners. The scripts have published to the others.
    pub(super) fn wake(&self, wake: Wake) {
        // Without listeners there is nobody to wake.
        let _ = self.sender.send(wake);
    }

    /// Counts the operation among what is under way, unless the end has begun.
    pub(super) fn unless_closed<T: Future>(&self, operation: T) -> Option<TrackedFuture<T>> {
        (!self.stop.is_cancelled()).then(|| self.tasks.track_future(operation))
    }

    /// Ends the subscription, and waits for it and for what is under way.
    pub(super) async fn close(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Since when what this process publishes may be news to itself.
#[derive(Debug, Default)]
struct Doubts(Mutex<Option<Instant>>);

impl Doubts {
    fn begin(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn stand(&self) -> bool {
        let since = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| since.elapsed() < DOUBTS)
    }
}

/// What the task needs that hears the others.
struct Ear {
    connection: Arc<Connection>,
    origin: String,
    doubts: Arc<Doubts>,
    sender: broadcast::Sender<Wake>,
}

impl Ear {
    async fn hear_until_stopped(self, first: Subscription, stop: CancellationToken) {
        // Either side may be cut at any point: a wake that is lost so is one that nobody waits for.
        stop.run_until_cancelled(self.hear(first)).await;
    }

    /// Hears, and subscribes again whenever it was cut, without end.
    async fn hear(self, mut subscription: Subscription) {
        let mut pauses = pauses();
        loop {
            // Whatever was published before this subscription stood was heard by nobody here.
            let _ = self.sender.send(Wake::Everyone);
            let since = subscription.since;
            let lost = self.pass_on(subscription).await;
            tracing::warn!("the subscription to wakes was lost and will be made again: {lost}");
            if since.elapsed() > PAUSES.1 {
                pauses = self::pauses();
            }
            subscription = self.subscribe_again(&mut pauses).await;
            tracing::info!("subscribed to wakes again");
        }
    }

    /// Passes wakes on until the subscription is lost, and returns why.
    async fn pass_on(&self, subscription: Subscription) -> String {
        let Subscription { mut sink, mut stream, .. } = subscription;
        let mut ticks = interval(PING_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = stream.next() => match message {
                    Some(message) => self.wake(&message),
                    None => return "the connection was closed".into(),
                },
                _ = ticks.tick() => match timeout(PING_DEADLINE, sink.ping::<redis::Value>()).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => return error.to_string(),
                    Err(_) => return "it does not answer".into(),
                },
            }
        }
    }

    fn wake(&self, message: &Msg) {
        let payload = String::from_utf8_lossy(message.get_payload_bytes());
        let mut words = payload.split(' ');
        let (origin, what, agent) = (words.next(), words.next(), words.next().and_then(|agent| agent.parse().ok()));
        if origin == Some(self.origin.as_str()) && !self.doubts.stand() {
            return;
        }
        let wake = match (what, agent) {
            (Some("inbox"), Some(agent)) => Wake::Inbox(agent, None),
            (Some("receipt"), Some(agent)) => Wake::Receipt(agent),
            // Another version may say what this one does not know: whoever waits looks again.
            _ => Wake::Everyone,
        };
        // Without listeners there is nobody to wake.
        let _ = self.sender.send(wake);
    }

    async fn subscribe_again(&self, pauses: &mut ExponentialBackoff) -> Subscription {
        loop {
            // The pauses have no end; the longest one stands in for the type's.
            tokio::time::sleep(pauses.next().unwrap_or(PAUSES.1)).await;
            match subscribe(&self.connection).await {
                Ok(subscription) => return subscription,
                Err(error) => tracing::debug!("cannot subscribe to wakes: {error}"),
            }
        }
    }
}

fn pauses() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(PAUSES.0)
        .with_max_delay(PAUSES.1)
        .without_max_times()
        .with_jitter()
        .build()
}

async fn subscribe(connection: &Connection) -> Result<Subscription, RedisError> {
    let (mut sink, stream) = connection.listen().await?.split();
    let subscribed = timeout(CONNECT_DEADLINE, sink.subscribe(WAKE_CHANNEL)).await;
    subscribed.unwrap_or_else(|_| Err(too_slow("subscribing")))?;
    Ok(Subscription { sink, stream, since: Instant::now() })
}
