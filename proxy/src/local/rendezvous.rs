//! The place where hooks find the proxy of their session: a socket named after the process that started both.
//!
//! The folder is `$XDG_RUNTIME_DIR/c3po`, else `/tmp/c3po-<uid>`, else `~/.local/state/c3po/run`, because another user may
//! make the one in `/tmp` first. It is not in `TMPDIR`, because sandboxes give each process another one. Hooks look in all
//! of them, because a client may start its servers with fewer variables than its hooks.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};

use crate::client::{Identity, Process, upward};
use crate::config::Sockets;

/// The longest path of a socket: 104 bytes on macOS and 108 on Linux, including a zero at the end.
const PATH_MAX: usize = 103;

/// The folder inside a home: the only one whose parents are created too.
const IN_HOME: &str = ".local/state/c3po/run";

/// The socket at which a proxy listens for one client process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendezvous {
    path: PathBuf,
    client: Identity,
}

impl Rendezvous {
    /// Returns the place beside the client with that pid. Creates its folder if missing.
    ///
    /// Errors: there is no safe folder, or no such process.
    pub fn beside(pid: u32, sockets: &Sockets) -> io::Result<Self> {
        let gone = || io::Error::new(ErrorKind::NotFound, format!("no process {pid}"));
        let client = Process::look(pid).ok_or_else(gone)?.id;
        Self::in_one_of(&folders(sockets), client)
    }

    /// Returns the place in the next folder; the first one follows the last. Creates it if missing.
    ///
    /// Errors: there is no safe folder.
    pub fn next(&self, sockets: &Sockets) -> io::Result<Self> {
        let mut folders = folders(sockets);
        let own = self.path.parent();
        let own = folders
            .iter()
            .position(|folder| own == Some(folder.as_path()));
        folders.rotate_left(own.map_or(0, |own| own + 1));
        Self::in_one_of(&folders, self.client)
    }

    fn in_one_of(folders: &[PathBuf], client: Identity) -> io::Result<Self> {
        let mut problems = Vec::new();
        for folder in folders {
            match made_safe(folder).and_then(|()| Self::in_folder(folder, client)) {
                Ok(place) => return Ok(place),
                Err(error) => problems.push(error.to_string()),
            }
        }
        Err(io::Error::other(problems.join("; ")))
    }

    fn in_folder(folder: &Path, client: Identity) -> io::Result<Self> {
        let path = folder.join(socket_name(client));
        let length = path.as_os_str().as_bytes().len();
        if length > PATH_MAX {
            let why = format!(
                "{} has {length} bytes, and a socket's path at most {PATH_MAX}",
                path.display()
            );
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        Ok(Self { path, client })
    }

    /// Returns the socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the client's pid.
    pub fn client(&self) -> u32 {
        self.client.pid
    }

    /// Returns the sockets beside the same client in all folders.
    pub(super) fn everywhere(&self, sockets: &Sockets) -> Vec<PathBuf> {
        sockets_of(&safe_folders(sockets), self.client)
    }

    /// Returns whether the client is gone, even if its pid is in use again.
    pub fn is_orphaned(&self) -> bool {
        Process::look(self.client.pid).is_none_or(|process| process.id != self.client)
    }
}

/// Returns the sockets of the session that this process belongs to, the preferred one first; `named` is the client's claim about
/// its pid. One without a listener may be left in a folder that was away for a while.
///
/// The nearest process above this one that has a socket decides. The claim ends the search: above it are the sessions in
/// which it was started. It decides alone only if it is not above, as for a detached hook.
pub fn find(named: Option<u32>, sockets: &Sockets) -> Vec<PathBuf> {
    find_in(&safe_folders(sockets), named)
}

/// Returns the same, but only beside a process above this one, which waits for its end.
pub fn find_above(named: Option<u32>, sockets: &Sockets) -> Vec<PathBuf> {
    let found = above(&safe_folders(sockets), named).break_value();
    found.unwrap_or_default()
}

fn find_in(folders: &[PathBuf], named: Option<u32>) -> Vec<PathBuf> {
    match above(folders, named) {
        ControlFlow::Break(found) => found,
        ControlFlow::Continue(()) => named
            .and_then(Process::look)
            .map_or_else(Vec::new, |process| sockets_of(folders, process.id)),
    }
}

/// Searches the ancestors of this process, up to the named one. Continues if none decides.
fn above(folders: &[PathBuf], named: Option<u32>) -> ControlFlow<Vec<PathBuf>> {
    if folders.is_empty() {
        return ControlFlow::Break(Vec::new());
    }
    for process in upward(parent_id()) {
        let paths = sockets_of(folders, process.id);
        if !paths.is_empty() || named == Some(process.id.pid) {
            return ControlFlow::Break(paths);
        }
    }
    ControlFlow::Continue(())
}

fn sockets_of(folders: &[PathBuf], client: Identity) -> Vec<PathBuf> {
    let name = socket_name(client);
    folders
        .iter()
        .map(|folder| folder.join(&name))
        .filter(|path| fs::symlink_metadata(path).is_ok())
        .collect()
}

/// Returns the sockets of each session of this user on this host, with or without a listener.
pub fn places(sockets: &Sockets) -> Vec<Vec<Rendezvous>> {
    let mut places: Vec<Vec<Rendezvous>> = Vec::new();
    for place in safe_folders(sockets)
        .iter()
        .flat_map(|folder| places_in(folder))
    {
        let same = places.iter_mut().find(|of| of[0].client == place.client);
        match same {
            Some(same) => same.push(place),
            None => places.push(vec![place]),
        }
    }
    places
}

fn safe_folders(sockets: &Sockets) -> Vec<PathBuf> {
    folders(sockets)
        .into_iter()
        .filter(|folder| safe(folder).is_ok())
        .collect()
}

/// Returns the folders in which sockets may be, the preferred one first.
pub fn folders(sockets: &Sockets) -> Vec<PathBuf> {
    let runtime = sockets.runtime_dir.iter().map(|folder| folder.join("c3po"));
    let home = sockets.home.iter().map(|home| home.join(IN_HOME));
    runtime
        .chain([PathBuf::from(format!("/tmp/c3po-{}", own_uid()))])
        .chain(home)
        .collect()
}

/// Returns the sockets in a folder under our names.
pub(super) fn places_in(folder: &Path) -> Vec<Rendezvous> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let place = |entry: fs::DirEntry| {
        Some(Rendezvous {
            client: client(entry.file_name().to_str()?)?,
            path: entry.path(),
        })
    };
    entries.filter_map(|entry| place(entry.ok()?)).collect()
}

/// Returns the effective user id of this process.
pub(super) fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Checks that no other user can put files into a folder.
///
/// Errors: it is not a folder, belongs to another user, or is open to others.
pub fn safe(folder: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(folder)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", folder.display())))?;
    let refused = |why: &str| {
        Err(io::Error::new(
            ErrorKind::PermissionDenied,
            format!("{} {why}", folder.display()),
        ))
    };
    match (found.uid() == own_uid(), found.mode() & 0o077) {
        _ if found.is_symlink() => refused("is a symbolic link, and must be a folder: remove it"),
        _ if !found.is_dir() => refused("is not a folder: remove it"),
        (false, _) => refused(&format!("belongs to the user with the id {}", found.uid())),
        (true, 0) => Ok(()),
        (true, mode) => refused(&format!(
            "is accessible to other users (mode {mode:03o} of 077): chmod it to 700"
        )),
    }
}

fn made_safe(folder: &Path) -> io::Result<()> {
    match DirBuilder::new()
        .mode(0o700)
        .recursive(folder.ends_with(IN_HOME))
        .create(folder)
    {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(io::Error::new(
            error.kind(),
            format!("creating {}: {error}", folder.display()),
        )),
        _ => safe(folder),
    }
}

fn socket_name(client: Identity) -> String {
    format!("{}-{}.sock", client.pid, client.started)
}

fn client(socket_name: &str) -> Option<Identity> {
    let (pid, started) = socket_name.strip_suffix(".sock")?.split_once('-')?;
    let client = Identity {
        pid: pid.parse().ok()?,
        started: started.parse().ok()?,
    };
    // A number has several spellings; only ours is accepted.
    (self::socket_name(client) == socket_name).then_some(client)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::{Command, id};
    use tempfile::tempdir;

    fn at(runtime_dir: &Path) -> Sockets {
        Sockets {
            runtime_dir: Some(runtime_dir.to_owned()),
            home: None,
        }
    }

    #[test]
    fn a_folder_in_the_home_is_made_with_those_above_it() {
        let home = tempdir().unwrap();
        let folder = home.path().join(IN_HOME);
        made_safe(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        assert!(
            made_safe(&home.path().join("none/c3po")).is_err(),
            "no other folder is made above ours"
        );
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        let check = |name: &str, expected: Option<(u32, u64)>| {
            assert_eq!(
                client(name).map(|client| (client.pid, client.started)),
                expected,
                "{name}"
            );
        };
        check(
            &socket_name(Identity {
                pid: 7,
                started: 108_750,
            }),
            Some((7, 108_750)),
        );
        for name in [
            "7.sock",
            "7-1",
            "-7-1.sock",
            "+7-1.sock",
            "07-1.sock",
            "7-1.sock.lock",
            "7-1-2.sock",
            "a-b.sock",
        ] {
            check(name, None);
        }
    }

    #[test]
    fn the_runtime_folder_comes_first_then_tmp_then_the_home() {
        let own = PathBuf::from(format!("/tmp/c3po-{}", own_uid()));
        let home = PathBuf::from("/home/x/.local/state/c3po/run");
        let sockets = Sockets {
            runtime_dir: Some("/run/user/7".into()),
            home: Some("/home/x".into()),
        };
        assert_eq!(
            folders(&sockets),
            [PathBuf::from("/run/user/7/c3po"), own.clone(), home]
        );
        assert_eq!(folders(&Sockets::default()), [own]);
    }

    #[test]
    fn a_folder_that_others_could_use_is_refused() {
        let runtime = tempdir().unwrap();
        let folder = runtime.path().join("c3po");
        made_safe(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        made_safe(&folder).unwrap();

        let refused = |part: &str| {
            let error = made_safe(&folder).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("c3po"), "{error}");
        };
        fs::set_permissions(&folder, PermissionsExt::from_mode(0o750)).unwrap();
        refused("mode 050");
        fs::remove_dir(&folder).unwrap();
        fs::write(&folder, "").unwrap();
        refused("not a folder");
        fs::remove_file(&folder).unwrap();
        symlink("/tmp", &folder).unwrap();
        refused("symbolic link");
        let error = safe(Path::new("/proc/1/nothing")).unwrap_err().to_string();
        assert!(error.contains("/proc/1/nothing"), "{error}");
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        // Everything under /proc/sys belongs to root. A test that runs as root creates a folder of another user instead.
        let foreign = if own_uid() == 0 {
            another_users_folder()
        } else {
            Some(PathBuf::from("/proc/sys"))
        };
        let Some(foreign) = foreign else { return };
        let error = safe(&foreign).unwrap_err().to_string();
        assert!(error.contains("belongs to the user"), "{error}");
        if own_uid() == 0 {
            fs::remove_dir(foreign).unwrap();
        }
    }

    fn another_users_folder() -> Option<PathBuf> {
        let folder = tempdir().ok()?.keep();
        std::os::unix::fs::chown(&folder, Some(65_534), None)
            .ok()
            .map(|()| folder)
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused_and_another_folder_used() {
        let runtime = tempdir().unwrap();
        let long = runtime.path().join("x".repeat(90));
        fs::create_dir(&long).unwrap();
        let client = Process::look(id()).unwrap().id;
        let error = Rendezvous::in_folder(&long, client)
            .unwrap_err()
            .to_string();
        assert!(error.contains("103"), "{error}");
        let place = Rendezvous::beside(id(), &at(&long)).unwrap();
        assert!(
            place.path().starts_with(&folders(&Sockets::default())[0]),
            "{}",
            place.path().display()
        );
    }

    #[test]
    fn a_pid_that_came_again_is_another_client() {
        let runtime = tempdir().unwrap();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let place = Rendezvous::beside(child.id(), &at(runtime.path())).unwrap();
        assert!(!place.is_orphaned());
        let before = Identity {
            started: place.client.started - 1,
            ..place.client
        };
        assert!(
            Rendezvous {
                client: before,
                ..place.clone()
            }
            .is_orphaned()
        );
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(place.is_orphaned());
        assert!(Rendezvous::beside(child.id(), &at(runtime.path())).is_err());
    }

    #[test]
    fn the_session_is_the_nearest_above_and_the_named_one_ends_the_search() {
        let runtime = tempdir().unwrap();
        let parent = parent_id();
        let grandparent = upward(parent).nth(1).unwrap().id.pid;
        let folders = [runtime.path().join("c3po")];
        let found = |named| {
            let found = find_in(&folders, named);
            found.first().map(|path| path.display().to_string())
        };
        let socket = |pid| {
            let place = Rendezvous::beside(pid, &at(runtime.path())).unwrap();
            fs::write(place.path(), "").unwrap();
            Some(place.path().display().to_string())
        };
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let detached = socket(child.id());
        assert_eq!((found(Some(child.id())), found(None)), (detached, None));
        assert_eq!(
            above(&folders, Some(child.id())),
            ControlFlow::Continue(()),
            "nobody waits for a detached one"
        );
        let outer = socket(grandparent);
        assert_eq!(
            (found(None), found(Some(parent)), found(Some(grandparent))),
            (outer.clone(), None, outer)
        );
        let own = socket(parent);
        assert_eq!(
            (found(None), found(Some(parent)), found(Some(grandparent))),
            (own.clone(), own.clone(), own)
        );
        assert_eq!(places_in(&folders[0]).len(), 3);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
