//! The file of rules: read at the start and whenever it changes. What cannot be read leaves the rules as they are.

use std::fs::{FileType, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use blake3::Hash;
use c3po_shared::limits::POLICY_BYTES_MAX;
use rustix::fs::OFlags;
use rustix::io::Errno;
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

/// What is known of the file. One state of it is told from the next by what stands in it: times alone do not tell what was
/// written within one tick of the clock, or put in its place with the time of an older file.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// What was in it when its rules were read.
    read: Option<Hash>,
    /// What the look before this one found that was not read: somebody may have been writing it.
    unread: Option<State>,
}

/// What stands in the file, and since when: one that was emptied twice is empty twice, and still being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    hash: Hash,
    /// Which file it is, and when it was last changed, as the system counts that.
    inode: u64,
    changed: [(i64, i64); 2],
}

/// What a look at a file found.
enum Looked {
    Absent,
    AsBefore,
    /// Somebody may be writing it.
    Changing,
    Read(Policy),
}

impl Policies {
    /// Reads the file. One that was asked for by name has to be there; the usual one need not.
    ///
    /// Errors: it is wrong, or cannot be read. Nobody serves with other rules than those that were written.
    pub(crate) fn open(named: Option<&Path>, usual: &Path) -> anyhow::Result<Self> {
        let path = named.unwrap_or(usual).to_owned();
        let found = read(&path).and_then(|found| found.map(|(bytes, _)| parse(&path, bytes)).transpose());
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
    // What was read at the start may have changed since, so that the first looks read it again.
    let mut known = Known::default();
    let mut complaint: Option<String> = None;
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let path = policies.path.clone();
        let look = move || {
            let mut known = known;
            (look(&path, &mut known), known)
        };
        let looked = match tokio::task::spawn_blocking(look).await {
            Ok((looked, after)) => {
                known = after;
                looked
            }
            Err(error) => Err(format!("looking at it ended: {error}")),
        };
        let wrong = match looked {
            Ok(Looked::AsBefore | Looked::Changing) => continue,
            Ok(Looked::Absent) if policies.current().is_empty() => continue,
            Ok(Looked::Absent) => format!("{} is gone", policies.path.display()),
            Ok(Looked::Read(policy)) => {
                complaint = None;
                if let Some(said) = policies.take(policy) {
                    tracing::info!("the policy has changed: {said}");
                    tell(said);
                }
                continue;
            }
            Err(wrong) => wrong,
        };
        if complaint.as_ref() != Some(&wrong) {
            tracing::warn!("the policy was not read again, and the rules before it stay in force: {wrong}");
            tell(format!("not read again, and the rules before it stay in force: {wrong}"));
            complaint = Some(wrong);
        }
    }
}

/// Reads the rules, unless the file is as it was, or not yet as it was at the last look: whoever writes it may have emptied
/// it only. Errors say what is wrong with it, and where.
fn look(path: &Path, known: &mut Known) -> Result<Looked, String> {
    let before = std::mem::take(known);
    let Some((bytes, found)) = read(path)? else { return Ok(Looked::Absent) };
    if before.read == Some(found.hash) {
        known.read = before.read;
        return Ok(Looked::AsBefore);
    }
    if before.unread != Some(found) {
        *known = Known { unread: Some(found), ..before };
        return Ok(Looked::Changing);
    }
    let policy = parse(path, bytes)?;
    known.read = Some(found.hash);
    Ok(Looked::Read(policy))
}

/// Returns what stands in the file, one byte more than is allowed at the most; `None` where there is none. Whatever lies
/// there is opened without waiting for anybody, and looked at by the very handle that is read: a pipe or a device in that
/// place would have us wait for ever.
fn read(path: &Path) -> Result<Option<(Vec<u8>, State)>, String> {
    let unreadable = |error: io::Error| format!("{}: {error}", path.display());
    let careful = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let opened = OpenOptions::new().read(true).custom_flags(careful.cast_signed()).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        // No device answers behind it: that is what the system says of opening a socket.
        Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
            return Err(no_file(path, "a socket"));
        }
        Err(error) => return Err(unreadable(error)),
    };
    let facts = file.metadata().map_err(unreadable)?;
    if !facts.is_file() {
        return Err(no_file(path, other_than_a_file(facts.file_type())));
    }
    let mut bytes = Vec::new();
    file.take(POLICY_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let changed = [(facts.mtime(), facts.mtime_nsec()), (facts.ctime(), facts.ctime_nsec())];
    let state = State { hash: blake3::hash(&bytes), inode: facts.ino(), changed };
    Ok(Some((bytes, state)))
}

fn no_file(path: &Path, what: &str) -> String {
    format!("{} is {what}; it has to be a file with rules", path.display())
}

fn other_than_a_file(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a pipe",
        _ => "a device",
    }
}

fn parse(path: &Path, bytes: Vec<u8>) -> Result<Policy, String> {
    let place = path.display();
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
        let mut known = Known::default();
        let mut rules = || match look(&path, &mut known).expect("it can be looked at") {
            Looked::Read(policy) => Some(policy.len()),
            Looked::Absent | Looked::AsBefore | Looked::Changing => None,
        };
        let rule = "[[rule]]\nfrom = \"a\"\nto = \"b\"\nverb = \"message\"\neffect = \"deny\"\n";
        fs::write(&path, rule).expect("written");
        assert_eq!([rules(), rules(), rules()], [None, Some(1), None]);
        for _ in 0..3 {
            fs::write(&path, "").expect("emptied, as a writer does first");
            assert_eq!(rules(), None);
            fs::write(&path, rule).expect("written, as it was before");
            assert_eq!(rules(), None);
        }
        for _ in 0..3 {
            fs::write(&path, "").expect("emptied");
            assert_eq!(rules(), None, "whoever empties it again and again is at it still");
            fs::write(&path, rule).expect("written while nobody looked");
        }
        fs::write(&path, "").expect("emptied");
        assert_eq!(rules(), None);
        fs::write(&path, [rule, rule].concat()).expect("written");
        assert_eq!([rules(), rules(), rules()], [None, Some(2), None]);

        // Another file of the same length and time, in its place.
        let times = fs::metadata(&path).and_then(|file| file.modified()).expect("its time");
        let other = folder.path().join("other.toml");
        fs::write(&other, [rule, &" ".repeat(rule.len())].concat()).expect("written");
        fs::File::options().write(true).open(&other).and_then(|file| file.set_modified(times)).expect("set back");
        fs::rename(&other, &path).expect("moved");
        assert_eq!([rules(), rules(), rules()], [None, Some(1), None]);
    }

    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let refused = |path: &Path| {
            let error = Policies::open(None, path).expect_err("there are no rules in it").to_string();
            assert_eq!(
                look(path, &mut Known::default()).err().map(|why| format!("the policy cannot be used: {why}")),
                Some(error.clone())
            );
            error
        };
        let said = refused(folder.path());
        assert!(said.ends_with(" is a folder; it has to be a file with rules"), "{said}");
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        assert!(refused(&socket).ends_with("socket is a socket; it has to be a file with rules"));
        let said = refused(Path::new("/dev/zero"));
        assert_eq!(said, "the policy cannot be used: /dev/zero is a device; it has to be a file with rules");
        let pipe = folder.path().join("policy.toml");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there");
        assert!(made.success());
        let said = refused(&pipe);
        assert!(said.ends_with("policy.toml is a pipe; it has to be a file with rules"), "{said}");
    }
}
