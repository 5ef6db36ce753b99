//! The file of rules: read at the start and whenever it changes. What cannot be read leaves the rules as they are.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use c3po_shared::limits::POLICY_BYTES_MAX;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::Policy;

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The rules that hold now, and the file they are in. A cheap handle is an `Arc` of it.
#[derive(Debug)]
pub(crate) struct Policies {
    path: PathBuf,
    current: RwLock<Arc<Policy>>,
}

/// What tells one state of a file from the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
}

/// What a look at a file found.
enum Looked {
    Absent,
    AsBefore,
    Read(Stamp, Policy),
}

impl Policies {
    /// Reads the file. One that was asked for by name has to be there; the usual one need not.
    ///
    /// Errors: it is wrong, or cannot be read. Nobody serves with other rules than those that were written.
    pub(crate) fn open(named: Option<&Path>, usual: &Path) -> anyhow::Result<Self> {
        let path = named.unwrap_or(usual).to_owned();
        let read = look(&path, None).map_err(|why| anyhow::anyhow!("the policy cannot be used: {why}"))?;
        let policy = match read {
            Looked::Read(_, policy) => policy,
            Looked::Absent if named.is_some() => {
                anyhow::bail!("the policy cannot be used: there is no {}", path.display());
            }
            Looked::Absent | Looked::AsBefore => Policy::default(),
        };
        if !policy.is_empty() {
            tracing::info!("{} rules are in force, from {}", policy.len(), path.display());
        }
        Ok(Self { path, current: RwLock::new(Arc::new(policy)) })
    }

    /// Returns the rules that hold now.
    pub(crate) fn current(&self) -> Arc<Policy> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes what was found in the file. Returns a sentence about what changed by that.
    fn take(&self, policy: Policy) -> Option<String> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if **current == policy {
            return None;
        }
        let said = format!("{} rules are in force, before there were {}", policy.len(), current.len());
        *current = Arc::new(policy);
        Some(said)
    }
}

/// Keeps the rules as the file has them until `stop` is cancelled. `tell` hears of every change, and of every state of
/// the file that cannot be used, once.
pub(crate) async fn keep(policies: Arc<Policies>, tell: impl Fn(String), stop: CancellationToken) {
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // What was read at the start may have changed since, so that the first look reads it again.
    let mut seen: Option<Stamp> = None;
    let mut complaint: Option<String> = None;
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let (path, before) = (policies.path.clone(), seen);
        let looked = tokio::task::spawn_blocking(move || look(&path, before)).await;
        let looked = looked.unwrap_or_else(|error| Err(format!("looking at it ended: {error}")));
        let wrong = match looked {
            Ok(Looked::AsBefore) => continue,
            Ok(Looked::Absent) if policies.current().is_empty() => continue,
            Ok(Looked::Absent) => format!("{} is gone", policies.path.display()),
            Ok(Looked::Read(stamp, policy)) => {
                (seen, complaint) = (Some(stamp), None);
                if let Some(said) = policies.take(policy) {
                    tracing::info!("the policy has changed: {said}");
                    tell(said);
                }
                continue;
            }
            Err(wrong) => wrong,
        };
        seen = None;
        if complaint.as_ref() != Some(&wrong) {
            tracing::warn!("the policy was not read again, and the rules before it stay in force: {wrong}");
            tell(format!("not read again, and the rules before it stay in force: {wrong}"));
            complaint = Some(wrong);
        }
    }
}

/// Reads the file, unless it is as it was. Errors say what is wrong with it, and where.
fn look(path: &Path, before: Option<Stamp>) -> Result<Looked, String> {
    let place = path.display();
    let unreadable = |error: std::io::Error| format!("{place}: {error}");
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Looked::Absent),
        Err(error) => return Err(unreadable(error)),
    };
    // Before it is read: what is written meanwhile makes it another the next time.
    let found = file.metadata().map_err(unreadable)?;
    let stamp = Stamp { modified: found.modified().ok(), bytes: found.len() };
    if before == Some(stamp) {
        return Ok(Looked::AsBefore);
    }
    let mut bytes = Vec::new();
    file.take(POLICY_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > POLICY_BYTES_MAX {
        return Err(format!("{place} has more than {POLICY_BYTES_MAX} bytes"));
    }
    let text = String::from_utf8(bytes).map_err(|error| format!("{place} is not a text: {error}"))?;
    let policy = Policy::parse(&text).map_err(|why| format!("{place}, {why}"))?;
    Ok(Looked::Read(stamp, policy))
}
