//! The file of rules: read at the start and whenever it changes. What cannot be read leaves the rules as they are.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use c3po_shared::limits::POLICY_BYTES_MAX;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::Policy;

/// How often the file is looked at. What changed is read at the second look that finds it the same.
const LOOK: Duration = Duration::from_millis(500);

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
    /// Somebody may be writing it.
    Changing(Stamp),
    Read(Stamp, Policy),
}

impl Policies {
    /// Reads the file. One that was asked for by name has to be there; the usual one need not.
    ///
    /// Errors: it is wrong, or cannot be read. Nobody serves with other rules than those that were written.
    pub(crate) fn open(named: Option<&Path>, usual: &Path) -> anyhow::Result<Self> {
        let path = named.unwrap_or(usual).to_owned();
        let found = find(&path).and_then(|found| found.map(|(file, _)| read(&path, file)).transpose());
        let policy = match found.map_err(|why| anyhow::anyhow!("the policy cannot be used: {why}"))? {
            Some(policy) => policy,
            None if named.is_some() => anyhow::bail!("the policy cannot be used: there is no {}", path.display()),
            None => Policy::default(),
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
    let mut last: Option<Stamp> = None;
    let mut complaint: Option<String> = None;
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let path = policies.path.clone();
        let looked = tokio::task::spawn_blocking(move || look(&path, seen, last)).await;
        let looked = looked.unwrap_or_else(|error| Err(format!("looking at it ended: {error}")));
        let wrong = match looked {
            Ok(Looked::AsBefore) => continue,
            Ok(Looked::Changing(stamp)) => {
                last = Some(stamp);
                continue;
            }
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

/// Reads the file, unless it is as it was, or not yet as it was at the last look: whoever writes it may have emptied it
/// only. Errors say what is wrong with it, and where.
fn look(path: &Path, seen: Option<Stamp>, last: Option<Stamp>) -> Result<Looked, String> {
    let Some((file, stamp)) = find(path)? else { return Ok(Looked::Absent) };
    if seen == Some(stamp) {
        return Ok(Looked::AsBefore);
    }
    if last != Some(stamp) {
        return Ok(Looked::Changing(stamp));
    }
    Ok(Looked::Read(stamp, read(path, file)?))
}

/// Opens the file, if there is one. Its stamp is from before it is read: what is written meanwhile makes it another.
fn find(path: &Path) -> Result<Option<(File, Stamp)>, String> {
    let unreadable = |error: io::Error| format!("{}: {error}", path.display());
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let found = file.metadata().map_err(unreadable)?;
    Ok(Some((file, Stamp { modified: found.modified().ok(), bytes: found.len() })))
}

fn read(path: &Path, file: File) -> Result<Policy, String> {
    let place = path.display();
    let mut bytes = Vec::new();
    file.take(POLICY_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| format!("{place}: {error}"))?;
    if bytes.len() as u64 > POLICY_BYTES_MAX {
        return Err(format!("{place} has more than {POLICY_BYTES_MAX} bytes"));
    }
    let text = String::from_utf8(bytes).map_err(|error| format!("{place} is not a text: {error}"))?;
    Policy::parse(&text).map_err(|why| format!("{place}, {why}"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_is_being_written_is_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("policy.toml");
        let (mut seen, mut last) = (None, None);
        let mut rules = || match look(&path, seen, last).expect("it can be looked at") {
            Looked::Read(stamp, policy) => {
                seen = Some(stamp);
                Some(policy.len())
            }
            Looked::Changing(stamp) => {
                last = Some(stamp);
                None
            }
            Looked::Absent | Looked::AsBefore => None,
        };
        let rule = "[[rule]]\nfrom = \"a\"\nto = \"b\"\nverb = \"message\"\neffect = \"deny\"\n";
        fs::write(&path, rule).expect("written");
        assert_eq!([rules(), rules(), rules()], [None, Some(1), None]);
        fs::write(&path, "").expect("emptied, as a writer does first");
        assert_eq!(rules(), None);
        fs::write(&path, [rule, rule].concat()).expect("written");
        assert_eq!([rules(), rules(), rules()], [None, Some(2), None]);
    }
}
