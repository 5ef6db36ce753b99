//! The file of rules: read at the start, and again whenever it changes. A file that cannot be used changes nothing.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use c3po_shared::limits::POLICY_BYTES_MAX;
use tokio_util::sync::CancellationToken;

use super::Policy;
use crate::files;

/// The rules in force, and their file.
#[derive(Debug)]
pub(crate) struct Policies {
    path: PathBuf,
    current: RwLock<Arc<Policy>>,
}

/// The content of the file; `None` if there is none. An error is the reason why it cannot be read.
type Found = Result<Option<Vec<u8>>, String>;

impl Policies {
    /// Reads the file. One that was named must exist; the usual one need not.
    ///
    /// Errors: it cannot be used. A coordinator never starts with other rules than those that were written.
    pub(crate) fn open(named: Option<&Path>, usual: &Path) -> anyhow::Result<Self> {
        let path = named.unwrap_or(usual).to_owned();
        let found = read(&path).and_then(|found| found.map(|bytes| parse(&path, &bytes)).transpose());
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

    /// Returns the rules in force.
    pub(crate) fn current(&self) -> Arc<Policy> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts the rules of the file in force. Returns a sentence about the change, if there is one.
    fn take(&self, found: &Found) -> Result<Option<String>, String> {
        let before = self.current();
        let policy = match found {
            Ok(Some(bytes)) => parse(&self.path, bytes)?,
            Ok(None) if before.is_empty() => return Ok(None),
            Ok(None) => return Err(format!("{} is gone", self.path.display())),
            Err(why) => return Err(why.clone()),
        };
        if *before == policy {
            return Ok(None);
        }
        let change = format!("{} rules in force (previously {})", policy.len(), before.len());
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
        Ok(Some(change))
    }
}

/// Keeps the rules as the file has them until `stop` is cancelled. `note` gets each change, and each state of the file that
/// cannot be used.
pub(crate) async fn keep(policies: Arc<Policies>, note: impl Fn(String), stop: CancellationToken) {
    let take = |found: &Found| {
        if let Some(change) = policies.take(found)? {
            tracing::info!("the policy has changed: {change}");
            note(change);
        }
        Ok(())
    };
    let report = |why: &str| {
        let failure = format!("not read again, the previous rules stay in force: {why}");
        tracing::warn!("the policy was {failure}");
        note(failure);
    };
    let path = policies.path.clone();
    files::follow(move || read(&path), take, report, stop).await;
}

fn read(path: &Path) -> Found {
    match files::read(path, POLICY_BYTES_MAX) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Reads the rules of a file. An empty file is an error: it is more likely lost, or about to be written, than meant to
/// allow everything.
fn parse(path: &Path, bytes: &[u8]) -> Result<Policy, String> {
    let place = path.display();
    if bytes.len() as u64 > POLICY_BYTES_MAX {
        return Err(format!("{place} has more than {POLICY_BYTES_MAX} bytes"));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| format!("{place} is not a text: {error}"))?;
    if text.trim().is_empty() {
        return Err(format!("{place} is empty; for no rules, write a comment into it"));
    }
    Policy::parse(text).map_err(|why| format!("{place}, {why}"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_emptied_file_is_never_taken_for_a_file_without_rules() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("policy.toml");
        let rule = "[[rule]]\nfrom = \"a\"\nto = \"b\"\nverb = \"message\"\neffect = \"deny\"\n";
        fs::write(&path, rule).expect("written");
        let policies = Policies::open(None, &path).expect("rules");
        let look = || policies.take(&read(&path)).map(|_| policies.current().len());
        assert_eq!(look(), Ok(1));
        fs::write(&path, "\n").expect("emptied");
        let why = look().expect_err("nothing is in it");
        assert!(why.ends_with("policy.toml is empty; for no rules, write a comment into it"), "{why}");
        assert!(Policies::open(None, &path).is_err(), "nor at the start");
        fs::remove_file(&path).expect("removed");
        assert!(look().expect_err("nothing is there").ends_with("policy.toml is gone"));
        assert_eq!(policies.current().len(), 1);
        fs::write(&path, "# none\n").expect("written");
        assert_eq!(look(), Ok(0));
        fs::remove_file(&path).expect("removed");
        assert_eq!(look(), Ok(0), "there are no rules to be missed");
    }
}
