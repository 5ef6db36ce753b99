//! The policy file: loaded at startup and reloaded when it changes. An invalid file changes nothing.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use c3po_shared::limits::POLICY_BYTES_MAX;
use c3po_shared::policy::PolicyInForce;
use tokio_util::sync::CancellationToken;

use super::Policy;
use crate::{files, trusted};

/// The rules in force and their file.
#[derive(Debug)]
pub(crate) struct Policies {
    path: PathBuf,
    /// Whether clients without a key are admitted, so that no name is bound to a host.
    is_open: bool,
    current: RwLock<CurrentRules>,
}

#[derive(Debug, Clone, Default)]
struct CurrentRules {
    policy: Arc<Policy>,
    text: Arc<str>,
    /// Why the present file is not in force.
    outdated: Option<String>,
}

/// The content of the file; `None` if there is none. An error is the reason why it cannot be read.
type FoundRules = Result<Option<Vec<u8>>, String>;

impl Policies {
    /// Reads the file, for a coordinator that is open to clients without keys, or not. A configured file must exist; the
    /// default one is optional.
    ///
    /// Errors: it is invalid. A coordinator never starts with other rules than the written ones.
    pub(crate) fn open(named: Option<&Path>, usual: &Path, is_open: bool) -> anyhow::Result<Self> {
        let path = named.unwrap_or(usual).to_owned();
        let parse = |bytes: Vec<u8>| parse(&path, &bytes, is_open);
        let found = read(&path).and_then(|found| found.map(parse).transpose());
        let current =
            match found.map_err(|why| anyhow::anyhow!("the policy cannot be used: {why}"))? {
                Some(current) => current,
                None if named.is_some() => {
                    anyhow::bail!("the policy cannot be used: there is no {}", path.display())
                }
                None => CurrentRules::default(),
            };
        if !current.policy.is_empty() {
            tracing::info!(
                "{} rules are in force, from {}",
                current.policy.len(),
                path.display()
            );
        }
        Ok(Self {
            path,
            is_open,
            current: RwLock::new(current),
        })
    }

    /// Returns the rules in force.
    pub(crate) fn current(&self) -> Arc<Policy> {
        self.now().policy
    }

    /// Returns the rules in force for display.
    pub(crate) fn in_force(&self) -> PolicyInForce {
        let CurrentRules {
            policy,
            text,
            outdated,
        } = self.now();
        PolicyInForce {
            rules: policy.len(),
            path: self.path.display().to_string(),
            text: text.to_string(),
            outdated,
        }
    }

    /// Returns why the present file is not in force; `None` if it is.
    pub(crate) fn outdated(&self) -> Option<String> {
        self.now().outdated
    }

    fn now(&self) -> CurrentRules {
        self.current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Puts the rules of the file in force. Returns a sentence about the change, if there is one.
    ///
    /// Errors: the file is invalid. The previous rules stay in force, and the reason is kept.
    fn take(&self, found: &FoundRules) -> Result<Option<String>, String> {
        let before = self.now();
        let usable = match found {
            Ok(Some(bytes)) => parse(&self.path, bytes, self.is_open),
            Ok(None) if before.policy.is_empty() => Ok(CurrentRules::default()),
            Ok(None) => Err(format!("{} does not exist any more", self.path.display())),
            Err(why) => Err(why.clone()),
        };
        let (now, taken) = match usable {
            Ok(now) if *before.policy == *now.policy => (now, Ok(None)),
            Ok(now) => {
                let change = format!(
                    "{} rules in force (previously {})",
                    now.policy.len(),
                    before.policy.len()
                );
                (now, Ok(Some(change)))
            }
            Err(why) => (
                CurrentRules {
                    outdated: Some(why.clone()),
                    ..before
                },
                Err(why),
            ),
        };
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = now;
        taken
    }
}

/// Reloads the rules when the file changes until `stop` is cancelled. `note` gets each change, and each reason why the file
/// is invalid.
pub(crate) async fn keep(policies: Arc<Policies>, note: impl Fn(String), stop: CancellationToken) {
    let take = |found: &FoundRules| {
        if let Some(change) = policies.take(found)? {
            tracing::info!("the policy has changed: {change}");
            note(change);
        }
        Ok(())
    };
    let report = |why: &str| {
        let failure = format!("rejected, the previous rules stay in force: {why}");
        tracing::warn!("the policy was {failure}");
        note(failure);
    };
    let path = policies.path.clone();
    files::follow(move || read(&path), take, report, stop).await;
}

fn read(path: &Path) -> FoundRules {
    match trusted::read_trusted(path, POLICY_BYTES_MAX) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Parses the rules of a file for a coordinator that is open or not. An empty file is an error, because it is more likely lost
/// or incomplete than meant to allow everything.
fn parse(path: &Path, bytes: &[u8], is_open: bool) -> Result<CurrentRules, String> {
    let place = path.display();
    if bytes.len() as u64 > POLICY_BYTES_MAX {
        return Err(format!("{place} has more than {POLICY_BYTES_MAX} bytes"));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| format!("{place} is not a text file: {error}"))?;
    if text.trim().is_empty() {
        return Err(format!(
            "{place} is empty; for no rules, write a comment into it"
        ));
    }
    let mut policy = Policy::parse(text).map_err(|why| format!("{place}, {why}"))?;
    if !is_open {
        for agent in policy.bind_triage() {
            tracing::warn!(
                "{place}: the triage agent {agent} gets no questions. Write its host, as {agent}@HOST: a name that becomes free goes to any host"
            );
        }
    }
    Ok(CurrentRules {
        policy: Arc::new(policy),
        text: text.into(),
        outdated: None,
    })
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
        let policies = Policies::open(None, &path, true).expect("rules");
        let look = || {
            policies
                .take(&read(&path))
                .map(|_| policies.current().len())
        };
        assert_eq!(look(), Ok(1));
        fs::write(&path, "\n").expect("emptied");
        let why = look().expect_err("nothing is in it");
        assert!(
            why.ends_with("policy.toml is empty; for no rules, write a comment into it"),
            "{why}"
        );
        assert!(
            Policies::open(None, &path, true).is_err(),
            "nor at the start"
        );
        assert_eq!(
            (policies.in_force().text.as_str(), policies.outdated()),
            (rule, Some(why))
        );
        fs::remove_file(&path).expect("removed");
        assert!(
            look()
                .expect_err("nothing is there")
                .ends_with("policy.toml does not exist any more")
        );
        assert_eq!(policies.current().len(), 1);
        fs::write(&path, "# none\n").expect("written");
        assert_eq!(look(), Ok(0));
        assert_eq!(
            (policies.in_force().text.as_str(), policies.outdated()),
            ("# none\n", None)
        );
        fs::remove_file(&path).expect("removed");
        assert_eq!(look(), Ok(0), "there are no rules to be missed");
    }

    #[test]
    fn a_triage_agent_without_its_host_has_no_right_unless_the_coordinator_is_open() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("policy.toml");
        let write = |agent: &str| {
            let text = format!("[triage]\nagents = [\"{agent}\"]\n");
            fs::write(&path, text).expect("written");
        };
        let agents = |is_open| {
            let policies = Policies::open(None, &path, is_open).expect("rules");
            policies.current().triage().agents().len()
        };
        write("helper@vic");
        assert_eq!((agents(false), agents(true)), (1, 1));
        write("helper");
        assert_eq!((agents(false), agents(true)), (0, 1));
    }
}
