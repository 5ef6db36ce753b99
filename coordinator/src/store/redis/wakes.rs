//! Wakes: hints to the listeners of this process and of the fleet's other coordinators.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use c3po_shared::time::Timestamp;
use redis::aio::MultiplexedConnection;
use redis::{Msg, PushInfo, PushKind, RedisError};
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TrackedFuture;
use uuid::Uuid;

use super::connection::RedisConnection;
use super::key_names::KeyNames;
use super::library::Call;
use super::millis;
use super::node::{CONNECT_DEADLINE, too_slow};
use crate::clock;
use crate::store::{Result, WAKE_BACKLOG, Wake};

/// The first and the longest pause between attempts to subscribe again; pauses double.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How often a coordinator renews its listing and asks its subscription for the time.
const ATTEND_EVERY: Duration = Duration::from_secs(1);
/// How long an answer on the subscription may take.
const ANSWER_DEADLINE: Duration = Duration::from_secs(2);
/// How long a coordinator stays listed without renewal.
const LEASE: Duration = Duration::from_secs(30);
/// How many times everyone is woken after a command without a reply, once per [`ATTEND_EVERY`]. A server that hung may run
/// queued commands when it resumes, and no listener here was woken for them.
const DOUBTS: usize = 3;

/// The wakes of this process, and the task that receives the wakes of other coordinators.
#[derive(Debug)]
pub(super) struct Wakes {
    shared: Arc<WakeState>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// The state shared by the handle and the task.
#[derive(Debug)]
struct WakeState {
    connection: Arc<RedisConnection>,
    names: KeyNames,
    /// The name under which this process publishes, so that it ignores its own messages.
    origin: String,
    doubts: AtomicUsize,
    sender: broadcast::Sender<Wake>,
    log: watch::Sender<()>,
}

/// An established subscription.
struct Subscription {
    connection: MultiplexedConnection,
    lost: Arc<Notify>,
    since: Instant,
}

impl Wakes {
    /// Subscribes and starts to receive. Also loads the functions: startup fails here if the server rejects them.
    pub(super) async fn start(
        connection: Arc<RedisConnection>,
        names: KeyNames,
    ) -> Result<Self, RedisError> {
        let shared = Arc::new(WakeState {
            connection,
            names,
            origin: Uuid::new_v4().to_string(),
            doubts: AtomicUsize::new(0),
            sender: broadcast::Sender::new(WAKE_BACKLOG),
            log: watch::Sender::new(()),
        });
        let wakes = Self {
            shared,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        let _: bool = wakes
            .shared
            .connection
            .try_invoke(&wakes.shared.listing(millis(LEASE)))
            .await?;
        let first = wakes.shared.subscribe().await?;
        let (shared, stop) = (Arc::clone(&wakes.shared), wakes.stop.clone());
        wakes.tasks.spawn(async move {
            // A wake that is lost here would have no listener.
            stop.run_until_cancelled(Arc::clone(&shared).receive(first))
                .await;
            shared.leave().await;
        });
        wakes.tasks.close();
        Ok(wakes)
    }

    /// Subscribes to wakes from now on.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<Wake> {
        self.shared.sender.subscribe()
    }

    /// Returns the name under which the functions publish for this process.
    pub(super) fn origin(&self) -> &str {
        &self.shared.origin
    }

    /// Records that a command had no reply: it may have run, and no listener here was woken for it.
    pub(super) fn doubt(&self) {
        self.shared.doubt();
    }

    /// Wakes the listeners of this process. The functions have published to the other coordinators.
    pub(super) fn wake(&self, wake: Wake) {
        self.shared.wake(wake);
    }

    /// Subscribes to hints that the log may have grown.
    pub(super) fn log_grows(&self) -> watch::Receiver<()> {
        self.shared.log.subscribe()
    }

    /// Wakes the readers of the log in this process.
    pub(super) fn log_grew(&self) {
        self.shared.log.send_replace(());
    }

    /// Tracks the operation until it ends; returns `None` once closing has begun.
    pub(super) fn unless_closed<T: Future>(&self, operation: T) -> Option<TrackedFuture<T>> {
        (!self.stop.is_cancelled()).then(|| self.tasks.track_future(operation))
    }

    /// Ends the subscription, and waits for it and for the operations in progress.
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

impl WakeState {
    fn doubt(&self) {
        self.doubts.store(DOUBTS, Ordering::Relaxed);
    }

    fn wake(&self, wake: Wake) {
        if wake == Wake::Everyone {
            self.log.send_replace(());
        }
        // There may be no listeners.
        let _ = self.sender.send(wake);
    }

    /// Receives wakes, and subscribes again whenever the subscription is lost.
    async fn receive(self: Arc<Self>, mut subscription: Subscription) {
        let mut pauses = pauses();
        loop {
            // Messages published before this subscription was established did not arrive here.
            self.wake(Wake::Everyone);
            let since = subscription.since;
            let lost = self.attend(subscription).await;
            tracing::warn!("the subscription to wakes was lost and is being renewed: {lost}");
            if since.elapsed() > PAUSES.1 {
                pauses = self::pauses();
            }
            subscription = self.subscribe_again(&mut pauses).await;
            tracing::info!("subscribed to wakes again");
        }
    }

    /// Keeps this coordinator listed until the subscription is lost, and returns the reason.
    async fn attend(&self, subscription: Subscription) -> String {
        let Subscription {
            mut connection,
            lost,
            ..
        } = subscription;
        let mut ticks = interval(ATTEND_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = lost.notified() => return "the connection was closed".into(),
                _ = ticks.tick() => {
                    let sent = Timestamp::now();
                    let asking = async { redis::cmd("TIME").query_async::<(u64, u64)>(&mut connection).await };
                    match timeout(ANSWER_DEADLINE, asking).await {
                        Ok(Ok((seconds, micros))) => {
                            clock::follow(sent, Timestamp::from_millis(seconds * 1_000 + micros / 1_000));
                        }
                        Ok(Err(error)) => return error.to_string(),
                        Err(_) => return "it does not answer".into(),
                    }
                    self.note_presence().await;
                }
            }
        }
    }

    /// Renews the listing of this coordinator. Wakes everyone if the listing had lapsed, because the others then published
    /// nothing, and if commands had no reply.
    async fn note_presence(&self) {
        let had_doubts = self.doubts.load(Ordering::Relaxed) > 0;
        match timeout(ANSWER_DEADLINE, self.list(millis(LEASE))).await {
            Ok(Ok(was_listed)) if had_doubts || !was_listed => {
                if had_doubts {
                    self.doubts.fetch_sub(1, Ordering::Relaxed);
                }
                self.wake(Wake::Everyone);
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                self.doubt();
                tracing::debug!("cannot renew the presence of this coordinator: {error}");
            }
            Err(_) => {
                self.doubt();
                tracing::debug!("renewing the presence of this coordinator took too long");
            }
        }
    }

    async fn list(&self, lease: u64) -> Result<bool> {
        self.connection.invoke(&self.listing(lease)).await
    }

    fn listing(&self, lease: u64) -> Call {
        let mut call = self.names.call(
            "attend",
            [self.names.key("coordinators"), self.names.key("peers")],
        );
        call.arg(&self.origin).arg(lease);
        call
    }

    /// Removes this coordinator from the list, best effort: the listing would lapse anyway.
    async fn leave(&self) {
        let _ = timeout(ANSWER_DEADLINE, self.list(0)).await;
    }

    /// Wakes the listeners that another coordinator's message concerns.
    fn pass_on(&self, message: &Msg) {
        let payload = String::from_utf8_lossy(message.get_payload_bytes());
        let mut words = payload.split(' ');
        if words.next() == Some(self.origin.as_str()) {
            return;
        }
        while let Some(kind) = words.next() {
            match (kind, words.next()) {
                ("inbox", Some(agent)) => {
                    self.pass(agent.parse().map(|agent| Wake::Inbox(agent, None)));
                }
                ("receipt", Some(message)) => self.pass(message.parse().map(Wake::Receipt)),
                ("log", _) => {
                    self.log.send_replace(());
                }
                _ => self.wake(Wake::Everyone),
            }
        }
    }

    /// Wakes the listeners that this concerns, or all if it cannot be read: another version may publish something else.
    fn pass<E>(&self, wake: std::result::Result<Wake, E>) {
        self.wake(wake.unwrap_or(Wake::Everyone));
    }

    async fn subscribe_again(self: &Arc<Self>, pauses: &mut ExponentialBackoff) -> Subscription {
        loop {
            // The iterator never ends; the longest pause satisfies its type.
            tokio::time::sleep(pauses.next().unwrap_or(PAUSES.1)).await;
            match self.subscribe().await {
                Ok(subscription) => return subscription,
                Err(error) => tracing::debug!("cannot subscribe to wakes: {error}"),
            }
        }
    }

    /// Lists this coordinator, so that the others publish to it, and subscribes.
    async fn subscribe(self: &Arc<Self>) -> Result<Subscription, RedisError> {
        let (shared, lost) = (Arc::clone(self), Arc::new(Notify::new()));
        let ended = Arc::clone(&lost);
        let pushes = move |push: PushInfo| -> Result<(), ()> {
            match push.kind {
                PushKind::Disconnection | PushKind::SUnsubscribe => ended.notify_one(),
                _ => {
                    if let Some(message) = Msg::from_push_info(push) {
                        shared.pass_on(&message);
                    }
                }
            }
            Ok(())
        };
        self.note_presence().await;
        let mut connection = self.connection.listen(pushes).await?;
        let mut subscribe = redis::cmd("SSUBSCRIBE");
        let subscribed = subscribe
            .arg(self.names.key("wake"))
            .query_async::<redis::Value>(&mut connection);
        timeout(CONNECT_DEADLINE, subscribed)
            .await
            .unwrap_or_else(|_| Err(too_slow("subscribing")))?;
        Ok(Subscription {
            connection,
            lost,
            since: Instant::now(),
        })
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
