//! The coordinators' URLs and trusted certificates, and whether they get requests of the client: read again when the host
//! file has changed.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::trust::Trust;
use crate::config::{Config, Coordinators, Stamp, stamp};

/// How often the file is checked while there is no link. A check is one system call.
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
    now: Mutex<(Arc<Endpoints>, Stamp)>,
}

impl Directory {
    /// Starts with the endpoints of the configuration that was read.
    pub(super) fn new(config: &Config) -> Self {
        let now = (Endpoints::of(config.coordinators.clone()), config.read_at);
        Self {
            file: config.places.config_file.clone(),
            now: Mutex::new(now),
        }
    }

    /// Returns the current endpoints.
    pub(super) fn entry(&self) -> Arc<Endpoints> {
        Arc::clone(&self.now().0)
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

    /// Reads the file again if it has changed. An invalid one only turns the relay off, until it changes again. Without a
    /// coordinator the file is read in any case, because a new mode of it or of its folder is not seen as a change.
    pub(super) async fn refresh(&self, config: &Config) {
        let found = self.look().await;
        if found.is_none() && !self.entry().coordinators.urls.is_empty() {
            return;
        }
        let Some(read) = read(config).await else {
            return;
        };
        let mut now = self.now();
        let has_changed = found.is_some();
        now.1 = found.unwrap_or(now.1);
        match read {
            Ok(coordinators) if coordinators == now.0.coordinators => {}
            Ok(coordinators) => {
                tracing::info!("the configuration has changed and is in use");
                now.0 = Endpoints::of(coordinators);
            }
            Err(_) if !has_changed => {}
            Err(problems) => {
                tracing::warn!(
                    "the changed configuration is invalid and not used: {}",
                    problems.join("; ")
                );
                now.0 = Endpoints::of(config.without_file(now.0.coordinators.clone()));
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
        (found != self.now().1).then_some(found)
    }

    fn now(&self) -> MutexGuard<'_, (Arc<Endpoints>, Stamp)> {
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
    use super::*;

    #[tokio::test]
    async fn without_a_coordinator_the_file_is_read_again_in_any_case() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, "coordinator_url = \"https://nas:8420\"").unwrap();
        // It was refused for the mode of a folder, say.
        let mut config = Config::of_file("coordinator_url");
        config.places.config_file.clone_from(&path);
        let directory = Directory::new(&config);
        assert!(directory.entry().coordinators.urls.is_empty());
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
