//! Pushes to the phones of people, by ntfy: questions and urgent news out, answers in.
//!
//! The store has the truth: a push is the work of a duty, and the receipt `on_host` with `via: ntfy` records that a server
//! accepted it. Answers come back by a topic that every coordinator reads; the first one counts.

mod bounds;
mod client;
mod codes;
mod config;
mod mask;
mod options;
mod push;
mod quiet;
mod render;
mod replies;
mod reply;
mod requests;
mod server;
mod standing;
mod summary;
mod trial;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use c3po_shared::ids::AgentId;
use futures_util::future::join_all;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::bounds::{Outage, Pace, RefusedPushes};
use self::client::ClientError;
use self::codes::Codes;
use self::config::Person;
pub(crate) use self::push::do_push;
use self::standing::Standing;
use self::summary::Summary;
pub(crate) use self::trial::test;
use crate::config::{Config, NtfyFlags, StoreAddress};
use crate::files;
use crate::request::Services;
use crate::store;

/// The name of the file, beside that of the policy.
const FILE: &str = "notify.toml";

/// The kinds of requests, for the log.
const PUSHES: &str = "pushes";
const ANSWERS: &str = "answers";

/// The people of one state of the settings.
type People = Arc<Vec<Arc<Person>>>;

/// Everything about pushes in this process.
#[derive(Debug)]
pub(crate) struct Notifier {
    services: Arc<Services>,
    path: PathBuf,
    flags: NtfyFlags,
    public_url: Option<String>,
    /// Whether other coordinators may push to the same people.
    is_shared: bool,
    people: watch::Sender<People>,
    /// By the name of the person.
    known: Mutex<HashMap<String, Known>>,
    /// Why the present file is not in force.
    outdated: Mutex<Option<String>>,
}

/// The state of this process about a person.
#[derive(Debug, Default)]
struct Known {
    standing: Option<Standing>,
    pace: Pace,
    summary: Summary,
    /// Whether a push was held back since the last update of the number.
    wants_summary: bool,
    /// Woken when the number of questions that wait may have changed.
    waiting_changed: Arc<Notify>,
    /// The kinds of requests of which the latest one failed.
    troubles: BTreeSet<&'static str>,
    outage: Outage,
    refused: RefusedPushes,
}

impl Notifier {
    /// Reads the settings.
    ///
    /// Errors: they are invalid.
    pub(crate) fn open(config: &Config, services: Arc<Services>) -> anyhow::Result<Arc<Self>> {
        let path = path(config.policy.as_deref(), &config.data_dir);
        let people = config::read(&path, &config.ntfy)
            .map_err(|why| anyhow::anyhow!("the settings of pushes cannot be used: {why}"))?;
        Ok(Arc::new(Self {
            services,
            path,
            flags: config.ntfy.clone(),
            public_url: config.public_url.clone(),
            is_shared: matches!(config.store, StoreAddress::Redis(_)),
            people: watch::Sender::new(shared(people)),
            known: Mutex::default(),
            outdated: Mutex::default(),
        }))
    }

    /// Returns the dependencies of every call.
    pub(crate) fn services(&self) -> &Services {
        &self.services
    }

    /// Returns the same, shared.
    pub(crate) fn shared_services(&self) -> Arc<Services> {
        Arc::clone(&self.services)
    }

    /// Returns whether pushes to somebody fail, or the present settings are invalid.
    pub(crate) fn fails(&self) -> bool {
        let is_invalid = self
            .outdated
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some();
        let people = self.people();
        let fails = |known: &mut Known| !known.troubles.is_empty();
        is_invalid || people.iter().any(|person| self.with(&person.name, fails))
    }

    /// Returns the present people.
    fn people(&self) -> People {
        Arc::clone(&self.people.borrow())
    }

    /// Returns the codes of a person, or `None` without a token or before the first question. The record of people has a random
    /// id, so each fleet has codes of its own.
    async fn codes(&self, person: &Person) -> store::Result<Option<Codes>> {
        let human = self.services.store.agent(&AgentId::human()).await?;
        Ok(human.and_then(|human| Codes::of(person, human.uid)))
    }

    /// Changes or reads the state about a person.
    fn with<T>(&self, name: &str, read: impl FnOnce(&mut Known) -> T) -> T {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        read(known.entry(name.to_owned()).or_default())
    }

    /// Returns the time until a push may be tried.
    fn may_try(&self, person: &Person) -> Result<(), Duration> {
        self.with(&person.name, |known| known.outage.may_try(Instant::now()))
    }

    /// As [`Self::may_try`], for a request that may not wait: its duty stays claimed.
    fn must_try(&self, person: &Person) -> anyhow::Result<()> {
        let may_try = self.may_try(person);
        may_try.map_err(|_| anyhow::anyhow!("the server of {} failed a moment ago", person.name))
    }

    /// Records how a request for a person ended. The first failure of several is logged.
    fn record<T>(&self, person: &Person, kind: &'static str, outcome: &Result<T, ClientError>) {
        let (name, server) = (&person.name, &person.server);
        if kind == PUSHES {
            let fails = outcome
                .as_ref()
                .err()
                .is_some_and(ClientError::is_of_server);
            self.with(name, |known| known.outage.tried(fails, Instant::now()));
        }
        match outcome {
            Err(why) if self.with(name, |known| known.troubles.insert(kind)) => {
                tracing::warn!("{kind} of {name} by {server} fail: {why}");
            }
            Ok(_) if self.with(name, |known| known.troubles.remove(kind)) => {
                tracing::info!("{kind} of {name} by {server} work again");
            }
            _ => {}
        }
    }

    /// Takes changed settings.
    fn take(&self, found: &Result<Vec<Person>, String>) -> Result<(), String> {
        let mut outdated = self.outdated.lock().unwrap_or_else(PoisonError::into_inner);
        *outdated = found.as_ref().err().cloned();
        let people = shared(found.clone()?);
        drop(outdated);
        let is_new = self.people.send_if_modified(|known| {
            let is_new = *known != people;
            *known = people;
            is_new
        });
        if is_new {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            for known in known.values_mut() {
                (known.standing, known.outage) = (None, Outage::default());
            }
            tracing::info!(
                "questions are pushed to {} people",
                self.people.borrow().len()
            );
        }
        Ok(())
    }
}

/// Returns the path of the settings: beside the policy, or in the data folder.
fn path(policy: Option<&Path>, data_dir: &Path) -> PathBuf {
    let folder = policy.and_then(Path::parent);
    folder.unwrap_or(data_dir).join(FILE)
}

fn shared(people: Vec<Person>) -> People {
    Arc::new(people.into_iter().map(Arc::new).collect())
}

/// Follows the settings, reads the reply topics of all people and keeps their numbers of questions, until `stop` is cancelled.
pub(crate) async fn keep(notifier: Arc<Notifier>, stop: CancellationToken) {
    let (path, flags) = (notifier.path.clone(), notifier.flags.clone());
    let take = |found: &Result<Vec<Person>, String>| notifier.take(found);
    let report = |why: &str| {
        tracing::warn!(
            "the settings of pushes were rejected, the previous ones stay in force: {why}"
        );
    };
    let read = move || config::read(&path, &flags);
    tokio::join!(
        files::follow(read, take, report, stop.clone()),
        follow_people(&notifier, &stop)
    );
}

async fn follow_people(notifier: &Notifier, stop: &CancellationToken) {
    let mut changes = notifier.people.subscribe();
    loop {
        let people = Arc::clone(&changes.borrow_and_update());
        let following = people.iter().map(|person| async {
            tokio::join!(
                replies::follow(notifier, person),
                summary::keep(notifier, person)
            )
        });
        tokio::select! {
            _ = join_all(following), if !people.is_empty() => {}
            _ = changes.changed() => {}
            () = stop.cancelled() => return,
        }
    }
}
