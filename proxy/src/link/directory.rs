//! The coordinators' URLs and trusted certificates, and whether they get requests of the client: read again when the host
//! file has changed.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use c3po_shared::join::Fingerprint;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::trust::Trust;
use crate::config::{Config, Coordinators, Stamp, stamp};

/// How often the file is checked while there is no link. A check is two system calls.
const LOOK: Duration = Duration::from_secs(1);
/// How long the disk may take for that.
const DISK_MAX: Duration = Duration::from_secs(1);

/// The coordinators and the certificates that are trusted now.
#[derive(Debug)]
pub(super) struct Endpoints {
    pub(super) coordinators: Coordinators,
    pub(super) trust: Trust,
}

impl Endpoints {
    fn of(coordinators: Coordinators) -> Arc<Self> {
        let trust = Trust::new(coordinators.fingerprints.clone());
        Arc::new(Self {
            coordinators,
            trust,
        })
    }
}

/// The URLs of the coordinators, and the file from which they come.
#[derive(Debug)]
pub(super) struct Directory {
    file: PathBuf,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    endpoints: Arc<Endpoints>,
    /// The stamp of the file at the last reading.
    read_at: Stamp,
    /// The one coordinator of the present or last link, if it is among these.
    linked: Option<Coordinators>,
}

impl Now {
    fn changes_to(&mut self, coordinators: Coordinators) {
        self.linked.take_if(|linked| !coordinators.cover(linked));
        self.endpoints = Endpoints::of(coordinators);
    }
}

impl Directory {
    /// Starts with the endpoints of the configuration that was read.
    pub(super) fn new(config: &Config) -> Self {
        let now = Now {
            endpoints: Endpoints::of(config.coordinators.clone()),
            read_at: config.read_at,
            linked: None,
        };
        Self {
            file: config.places.config_file.clone(),
            now: Mutex::new(now),
        }
    }

    /// Returns the current endpoints.
    pub(super) fn entry(&self) -> Arc<Endpoints> {
        Arc::clone(&self.now().endpoints)
    }

    /// Records that there is a link to the coordinator of that URL, which was identified by that pinned certificate, if any.
    pub(super) fn links_to(&self, target: &str, pinned: Option<Fingerprint>) {
        self.now().linked = Some(Coordinators {
            urls: vec![target.to_owned()],
            fingerprints: pinned.into_iter().collect(),
            ..Coordinators::default()
        });
    }

    /// Returns whether the present or last link is to one of those coordinators, if there was any.
    pub(super) fn links_to_any_of(&self, coordinators: &Coordinators) -> bool {
        let now = self.now();
        now.linked
            .as_ref()
            .is_none_or(|linked| coordinators.cover(linked))
    }

    /// Returns when the file differs from the last reading. Cancel-safe.
    pub(super) async fn changes(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            if self.look().await.is_some() {
                return;
            }
        }
    }

    /// Reads the file again if it has changed. An invalid one only turns the relay off, until it changes again.
    pub(super) async fn refresh(&self, config: &Config) {
        let Some(found) = self.look().await else {
            return;
        };
        let Some(read) = read(config).await else {
            return;
        };
        let mut now = self.now();
        now.read_at = found;
        match read {
            Ok(coordinators) if coordinators == now.endpoints.coordinators => {}
            Ok(coordinators) => {
                tracing::info!("the configuration has changed and is in use");
                now.changes_to(coordinators);
            }
            Err(problems) => {
                tracing::warn!(
                    "the changed configuration is invalid and not used: {}",
                    problems.join("; ")
                );
                let before = now.endpoints.coordinators.clone();
                now.changes_to(config.without_file(before));
            }
        }
    }

    /// Returns the coordinators to which requests are relayed by the file as it is now. If it names others than those of the link,
    /// it counts from the next link on: requests go to the present ones.
    pub(super) async fn relays(&self, config: &Config) -> Option<Coordinators> {
        let current = self.entry().coordinators.clone();
        let relays = match self.look().await {
            None => current.relays,
            Some(_) => match read(config).await {
                Some(Ok(read)) => read.relays && read.cover(&current),
                Some(Err(_)) | None => config.without_file(current.clone()).relays,
            },
        };
        relays.then_some(current)
    }

    /// Returns the stamp of the file if it differs from that of the last reading.
    async fn look(&self) -> Option<Stamp> {
        let file = self.file.clone();
        let looking = spawn_blocking(move || stamp(&file));
        let found = timeout(DISK_MAX, looking).await.ok()?.ok()?;
        (found != self.now().read_at).then_some(found)
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the coordinators again. `None` if the disk takes too long.
async fn read(config: &Config) -> Option<Result<Coordinators, Vec<String>>> {
    let config = config.clone();
    let reading = spawn_blocking(move || config.read_coordinators());
    timeout(DISK_MAX, reading).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    #[tokio::test]
    async fn a_new_mode_of_the_file_or_of_its_folder_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        let on = "coordinator_url = \"https://nas:8420\"\nrelay_permissions = true\n";
        std::fs::write(&path, on).unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        mode(&path, 0o600);
        let mut config = Config::of_file(on);
        config.places.config_file.clone_from(&path);
        config.read_at = stamp(&path);
        let directory = Directory::new(&config);
        for (part, open, closed) in [(&*path, 0o666, 0o600), (folder.path(), 0o777, 0o700)] {
            mode(part, open);
            assert!(directory.relays(&config).await.is_none(), "{open:o}");
            directory.refresh(&config).await;
            assert!(directory.relays(&config).await.is_none(), "{open:o}");
            assert_eq!(directory.entry().coordinators.urls.len(), 1, "{open:o}");
            mode(part, closed);
            directory.refresh(&config).await;
            assert!(directory.relays(&config).await.is_some(), "{closed:o}");
        }
    }

    #[tokio::test]
    async fn a_file_that_was_refused_is_read_when_it_is_closed_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, "coordinator_url = \"https://nas:8420\"").unwrap();
        let open = Permissions::from_mode(0o666);
        std::fs::set_permissions(&path, open).unwrap();
        let mut config = Config::of_file("coordinator_url");
        config.places.config_file.clone_from(&path);
        config.read_at = stamp(&path);
        let directory = Directory::new(&config);
        directory.refresh(&config).await;
        assert!(directory.entry().coordinators.urls.is_empty());
        let closed = Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, closed).unwrap();
        directory.refresh(&config).await;
        assert_eq!(directory.entry().coordinators.urls.len(), 1);
    }

    #[tokio::test]
    async fn the_relay_follows_the_file_and_other_coordinators_with_the_next_link() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        let (on, elsewhere) = (
            "relay_permissions = true\n",
            "coordinator_url = \"https://nas:8420\"\n",
        );
        write(on);
        let mut config = Config::of_file(on);
        config.places.config_file.clone_from(&path);
        config.read_at = stamp(&path);
        let directory = Directory::new(&config);
        assert!(directory.relays(&config).await.is_some());
        for off in ["", "relay_permissions = maybe\n"] {
            write(off);
            assert!(directory.relays(&config).await.is_none(), "{off}");
            directory.refresh(&config).await;
            assert!(directory.relays(&config).await.is_none(), "{off}");
            write(on);
            assert!(directory.relays(&config).await.is_some(), "after {off}");
        }
        write(&format!("{elsewhere}{on}"));
        assert!(
            directory.relays(&config).await.is_none(),
            "to those of the link"
        );
        directory.refresh(&config).await;
        assert!(directory.relays(&config).await.is_some());
        std::fs::remove_file(&path).unwrap();
        assert!(directory.relays(&config).await.is_none());
        directory.refresh(&config).await;
        assert!(directory.relays(&config).await.is_none());
    }

    #[tokio::test]
    async fn a_link_is_to_one_of_the_coordinators_by_its_url_and_certificate() {
        let print = |digit: u8| Fingerprint::of([digit; 32]);
        let of = |urls: &[&str], prints: &[u8]| Coordinators {
            urls: urls.iter().map(|url| (*url).to_owned()).collect(),
            fingerprints: prints.iter().copied().map(print).collect(),
            ..Coordinators::default()
        };
        let directory = Directory::new(&Config::of_file(""));
        let (one, both) = (of(&["a"], &[1]), of(&["b", "a"], &[2, 1]));
        assert!(directory.links_to_any_of(&one), "there was no link yet");
        for (url, digit, is_one) in [("a", 1, true), ("b", 2, false), ("a", 2, false)] {
            directory.links_to(url, Some(print(digit)));
            assert_eq!(directory.links_to_any_of(&one), is_one, "{url} {digit}");
            assert!(directory.links_to_any_of(&both), "{url} {digit}");
        }
        directory.links_to("a", None);
        assert!(!directory.links_to_any_of(&one), "without its certificate");
        assert!(directory.links_to_any_of(&of(&["a"], &[])));
        directory.now().changes_to(of(&["c"], &[]));
        let later = of(&["c"], &[]);
        assert!(
            directory.links_to_any_of(&later),
            "the former link is none of these"
        );
    }

    #[tokio::test]
    async fn a_change_right_after_the_file_was_read_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        let on = "relay_permissions = true\n";
        std::fs::write(&path, on).unwrap();
        let mut config = Config::of_file(on);
        config.places.config_file.clone_from(&path);
        config.read_at = stamp(&path);
        std::fs::write(&path, "").unwrap();
        assert!(Directory::new(&config).relays(&config).await.is_none());
    }
}
