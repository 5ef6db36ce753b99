//! The c3po coordinator: the server that keeps every message and serves agents over WebSocket, MCP and REST.
//!
//! `main -> lib -> cli -> server -> {session, duties} -> notify -> request -> audit ->
//! {store, presence, policy, limit, guard, auth, metrics, data_folder, unfinished} -> config -> {address, bytes, files, fleet, listen, memory, pace} -> names`

mod address;
mod audit;
mod auth;
mod bytes;
pub mod cli;
mod clock;
pub mod config;
mod data_folder;
mod duties;
mod files;
mod fleet;
mod guard;
mod json;
mod limit;
mod listen;
pub mod log;
mod memory;
mod metrics;
mod names;
mod notify;
mod ntfy_flags;
mod pace;
pub mod policy;
mod presence;
mod request;
mod server;
mod session;
pub mod store;
mod trusted;
mod unfinished;
mod values;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use c3po_shared::audit::{Entry, Event};
use c3po_shared::limits::EVENT_READERS;
use tokio::net::TcpListener;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::Audit;
use crate::auth::Auth;
use crate::config::{Config, StoreAddress};
use crate::guard::Guard;
use crate::limit::RateLimit;
use crate::metrics::Metrics;
use crate::notify::Notifier;
use crate::policy::Policies;
use crate::presence::{Presence, Subject};
use crate::request::{Persons, Services};
use crate::store::{AGENTS_STEP, Store, StoreError, Wake};
use crate::unfinished::Budget;

/// The default policy file, in the data folder.
const POLICY: &str = "policy.toml";
/// The deadline for writing the last audit entries.
const FLUSH: Duration = Duration::from_secs(3);
/// The interval of sweeps, which delete data that is stored no longer.
const SWEEP: Duration = Duration::from_secs(15);
/// The interval of returning free memory to the system, and the size of this process from which on it does so, in bytes.
const RELEASE: Duration = Duration::from_secs(15);
const RELEASED_ABOVE: u64 = 48 << 20;
/// The interval of counting online agents, for the replies to heartbeats.
const COUNT: Duration = Duration::from_secs(10);

/// Serves on the listener until `stop` is cancelled. The caller binds, opens the store and stops; this function closes the
/// store.
pub async fn run(
    listener: TcpListener,
    config: Config,
    store: Arc<dyn Store>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let policies = Arc::new(Policies::open(
        config.policy.as_deref(),
        &config.data_dir.join(POLICY),
        config.is_open,
    )?);
    let metrics = Metrics::new();
    let (audit, writer) = Audit::new(config.audit_entries.is_some(), &metrics);
    let services = services(&config, &store, &policies, &audit, metrics);
    let notifier = Notifier::open(&config, Arc::clone(&services))?;
    let address = listener.local_addr()?;
    let auth = Arc::new(Auth::new(&config, address.ip()));
    // If the store is unavailable, hosts with keys are admitted once the keys can be read.
    if let Err(error) = auth::watch::load(&auth, store.as_ref()).await {
        tracing::warn!("the keys cannot be read yet: {error}");
    }
    let (tasks, auditing, done) = (
        TaskTracker::new(),
        TaskTracker::new(),
        CancellationToken::new(),
    );
    if let Some(writer) = writer {
        auditing.spawn(writer.run(Arc::clone(&store), done.clone()));
    }
    let tell = move |what| audit.note(Entry::new(Event::PolicyChanged).because(what));
    tasks.spawn(policy::keep(policies, tell, stop.clone()));
    tasks.spawn(follow_keys(
        Arc::clone(&auth),
        Arc::clone(&store),
        stop.clone(),
    ));
    tasks.spawn(follow_rulings(Arc::clone(&services), stop.clone()));
    tasks.spawn(spread_wakes(Arc::clone(&services), stop.clone()));
    tasks.spawn(release_memory(stop.clone()));
    keep_log(store.as_ref(), config.audit_entries).await;
    tasks.spawn(sweep(
        Arc::clone(&store),
        config.audit_entries,
        stop.clone(),
    ));
    tasks.spawn(request::watch_triage(Arc::clone(&services), stop.clone()));
    tasks.spawn(duties::keep(Arc::clone(&notifier), stop.clone()));
    tasks.spawn(notify::keep(Arc::clone(&notifier), stop.clone()));
    tasks.spawn(count_online(Arc::clone(&services), stop.clone()));
    let outcome = server::serve(listener, &config, notifier, auth, tasks, stop).await;
    // All tasks that write to the audit have ended by now.
    done.cancel();
    auditing.close();
    if tokio::time::timeout(FLUSH, auditing.wait()).await.is_err() {
        tracing::error!("the last audit entries were not written within {FLUSH:?}");
    }
    store.close().await;
    outcome
}

/// Returns the dependencies of every call.
fn services(
    config: &Config,
    store: &Arc<dyn Store>,
    policies: &Arc<Policies>,
    audit: &Audit,
    metrics: Metrics,
) -> Arc<Services> {
    Arc::new(Services {
        store: Arc::clone(store),
        persons: Persons::default(),
        presence: Presence::default(),
        policies: Arc::clone(policies),
        audit: audit.clone(),
        limit: RateLimit::new(config.rate_limit),
        guard: Guard::new(config.loop_messages),
        message_life: config.message_life,
        store_quota: config.store_quota,
        unfinished: Budget::within(memory::limit()),
        event_readers: Arc::new(Semaphore::new(EVENT_READERS)),
        duties_due: Notify::new(),
        metrics,
    })
}

/// Creates the data folder if it is missing, and refuses one that is not writable. Refuses a database elsewhere whose files
/// other users could replace, too.
pub fn prepare_data_folder(config: &Config) -> anyhow::Result<()> {
    data_folder::prepare(&config.data_dir)?;
    match &config.store {
        StoreAddress::Sqlite(path) if path.parent() != Some(&config.data_dir) => {
            trusted::check_place(path).with_context(|| format!("the database {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Binds the port on which [`run`] serves.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    server::listen(address)
}

/// Raises the limit of open descriptors as far as the system permits. Returns the new limit.
pub fn raise_descriptor_limit() -> usize {
    server::raise_descriptor_limit()
}

/// Forwards wakes from all processes to the listeners of this process.
async fn spread_wakes(services: Arc<Services>, stop: CancellationToken) {
    let (presence, mut wakes) = (&services.presence, services.store.wakes());
    loop {
        let Some(wake) = stop.run_until_cancelled(wakes.recv()).await else {
            return;
        };
        match wake {
            Ok(Wake::Inbox(agent, arrival)) => {
                let news = arrival.as_slice();
                // A wait for the reply need not read it.
                if let [reply] = news
                    && let Some(asked) = &reply.message.reply_to
                {
                    presence.wake(&Subject::Message(asked.clone()), news);
                }
                presence.wake(&Subject::Inbox(agent), news);
            }
            Ok(Wake::Receipt(message)) => presence.wake(&Subject::Message(message), &[]),
            Ok(Wake::Everyone) | Err(RecvError::Lagged(_)) => presence.wake_everyone(),
            Err(RecvError::Closed) => return,
        }
    }
}

async fn follow_keys(auth: Arc<Auth>, store: Arc<dyn Store>, stop: CancellationToken) {
    let noting = auth::watch::note_uses(&auth, store.as_ref(), &stop);
    tokio::join!(
        auth::watch::follow(&auth, store.as_ref(), &stop),
        auth::watch::expire(&auth, &stop),
        noting
    );
}

async fn follow_rulings(services: Arc<Services>, stop: CancellationToken) {
    guard::keep(&services.guard, services.store.as_ref(), &stop).await;
}

/// Returns free memory to the system while this process has much: the connections of a burst leave free blocks everywhere.
async fn release_memory(stop: CancellationToken) {
    let mut ticks = interval(RELEASE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        if memory::resident().is_some_and(|resident| resident > RELEASED_ABOVE) {
            // It blocks for some milliseconds.
            let _ = tokio::task::spawn_blocking(c3po_allocator::release_free_memory).await;
        }
    }
}

/// Begins or shortens the log. After an error, the next sweep tries again.
async fn keep_log(store: &dyn Store, entries: Option<u64>) {
    if let Err(error) = store.keep_log(entries).await {
        tracing::warn!("the log of changes was not begun or shortened: {error}");
    }
}

async fn sweep(store: Arc<dyn Store>, log: Option<u64>, stop: CancellationToken) {
    let mut ticks = interval(SWEEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if stop.run_until_cancelled(ticks.tick()).await.is_none() {
            return;
        }
        keep_log(store.as_ref(), log).await;
        if let Err(error) = store.sweep().await {
            tracing::warn!("the sweep did not finish: {error}");
        }
    }
}

/// Counts the online agents once for all links of this process, if it has any.
async fn count_online(services: Arc<Services>, stop: CancellationToken) {
    let mut ticks = interval(COUNT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        if services.presence.connected() > 0 {
            services
                .presence
                .counted(online(services.store.as_ref()).await.ok());
        }
    }
}

async fn online(store: &dyn Store) -> Result<usize, StoreError> {
    let (mut count, mut after) = (0, None);
    loop {
        let (page, now) = (
            store.agents(after.as_ref(), AGENTS_STEP).await?,
            clock::now(),
        );
        count += page.iter().filter(|agent| agent.is_online(now)).count();
        after = page.last().map(|agent| agent.id.clone());
        if page.len() < AGENTS_STEP {
            return Ok(count);
        }
    }
}
