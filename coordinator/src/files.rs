//! Files that are reloaded at runtime, such as rules and certificates, and files that are private to the coordinator.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use c3po_shared::text::shell_word;
use rustix::fs::OFlags;
use rustix::process::geteuid;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// How often files are checked for changes.
const LOOK: Duration = Duration::from_secs(1);

/// Reads a regular file, at most one byte more than `max`. Pipes and devices are not opened, because that could block.
pub(crate) fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("this is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The access that other users have to a file or a folder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Exposure {
    Private,
    /// Others can read it.
    Readable,
    /// Others can write to it.
    Writable,
    /// It belongs to another user.
    Foreign,
}

/// Returns the access of others to a file or a folder of that owner and mode, for a process of that user.
///
/// A folder of root is trusted, even if a group can write to it: volumes of containers are like that.
pub(crate) fn standing(owner: u32, mode: u32, user: u32) -> Exposure {
    match () {
        () if owner != user && owner != 0 => Exposure::Foreign,
        () if mode & 0o002 != 0 || (owner == user && mode & 0o020 != 0) => Exposure::Writable,
        () if owner == user && mode & 0o077 != 0 => Exposure::Readable,
        () => Exposure::Private,
    }
}

/// Returns whether a group has that user as its only member, by the convention that it has the number of its user: such systems
/// make everything writable for the group.
pub(crate) fn is_own_group(owner: u32, group: u32, user: u32) -> bool {
    user != 0 && owner == user && group == user
}

/// The permission bits with which others write to a file.
pub(crate) const WRITE: u32 = 0o022;
/// The permission bits with which others read or write a file.
pub(crate) const READ_OR_WRITE: u32 = 0o066;

/// The folders that this process has closed: until then, others could use the files below them.
static CLOSED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Returns whether other users can use what is at a path, or could when this process started: whether every folder above it
/// lets them in. A path that is not found counts as such a one.
pub(crate) fn is_reachable(path: &Path) -> bool {
    let Ok(path) = fs::canonicalize(path) else {
        return true;
    };
    let user = geteuid().as_raw();
    path.ancestors().skip(1).all(|folder| {
        let was_open = || {
            let closed = CLOSED.lock().unwrap_or_else(PoisonError::into_inner);
            closed.iter().any(|closed| closed == folder)
        };
        let lets_others_in = |found: Metadata| {
            let enter = match is_own_group(found.uid(), found.gid(), user) {
                true => 0o001,
                false => 0o011,
            };
            found.mode() & enter != 0
        };
        fs::metadata(folder).map_or(true, lets_others_in) || was_open()
    })
}

/// Makes a folder private. Returns what became of it, as [`outcome`] does.
pub(crate) fn close_folder(folder: &Path) -> io::Result<String> {
    let place = fs::canonicalize(folder)?;
    fs::set_permissions(&place, Permissions::from_mode(0o700))?;
    let now = fs::metadata(&place)?;
    CLOSED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(place);
    Ok(outcome(folder, &now))
}

/// Returns what became of a file or a folder that others could use, after an attempt to make it private: that it is private
/// now, or what to do.
pub(crate) fn outcome(path: &Path, now: &Metadata) -> String {
    outcome_for(path, now.uid(), now.mode(), geteuid().as_raw())
}

fn outcome_for(path: &Path, owner: u32, mode: u32, user: u32) -> String {
    match () {
        () if mode & 0o077 == 0 => "it is private now".to_owned(),
        () if owner != user && user != 0 => format!(
            "it belongs to uid {owner}, and this coordinator runs as uid {user}; {}",
            closing(path, owner, mode, user)
        ),
        () => format!(
            "its file system keeps the mode {:03o}; move it to one that stores permissions",
            mode & 0o777
        ),
    }
}

/// Returns the advice to run the command that makes a file or a folder private to that user. Only root can do so with another
/// user's.
pub(crate) fn closing(path: &Path, owner: u32, mode: u32, user: u32) -> String {
    let word = shell_word(&path.display().to_string());
    let is_folder = rustix::fs::FileType::from_raw_mode(mode).is_dir();
    let private = if is_folder { "700" } else { "600" };
    if owner == user {
        format!("run `chmod {private} {word}`")
    } else {
        format!(
            "run `chown {user} {word} && chmod {private} {word}` as root, for a container on its host"
        )
    }
}

/// Returns the warning about a file that gave others one of these permissions, with the advice; `None` if it did not, or if
/// others cannot enter its folder.
pub(crate) fn warning(
    path: &Path,
    found: &Metadata,
    permissions: u32,
    advice: &str,
) -> Option<String> {
    let of_own_group = match is_own_group(found.uid(), found.gid(), geteuid().as_raw()) {
        true => 0o070,
        false => 0,
    };
    let could = match found.mode() & permissions & !of_own_group {
        0 => return None,
        _ if !is_reachable(path) => return None,
        given if given & WRITE != 0 => "change",
        _ => "read",
    };
    let (path, mode) = (path.display(), found.mode() & 0o777);
    Some(format!(
        "other users could {could} {path} (mode {mode:03o}): {advice}"
    ))
}

/// Opens a file for writing, creating it if it is missing, and makes it private if this user may: a file of root stays as it
/// is. A symbolic link is not followed. Also returns the owner and the mode that the file had before.
///
/// Errors: it is not a regular file, or it belongs to another user.
pub(crate) fn private(path: &Path) -> io::Result<(File, Metadata)> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let options = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .to_owned();
    let file = options
        .open(path)
        .map_err(|error| match fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => {
                refused("it is a symbolic link, and must be a file: remove it")
            }
            _ => error,
        })?;
    let (found, user) = (file.metadata()?, geteuid().as_raw());
    if !found.is_file() {
        return Err(refused("it is not a file: remove it"));
    }
    // Root is exempt: it may act for a service's user, as in a restore, and could do anything to the service anyway.
    if found.uid() != user && found.uid() != 0 && user != 0 {
        return Err(refused(&format!(
            "it belongs to uid {}, and this process runs as uid {user}",
            found.uid()
        )));
    }
    if found.mode() & 0o077 != 0 && (found.uid() == user || user == 0) {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok((file, found))
}

pub(crate) fn refused(why: &str) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, why)
}

/// Reads a value every second until `stop` is cancelled. `take` gets the first value and each changed one.
///
/// An error of `take` goes to `report` if the next read returns the same value: the file may still be being written.
pub(crate) async fn follow<T: PartialEq + Send + 'static>(
    read: impl Fn() -> T + Clone + Send + 'static,
    take: impl Fn(&T) -> Result<(), String>,
    report: impl Fn(&str),
    stop: CancellationToken,
) {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut known, mut is_settled) = (None, false);
    while stop.run_until_cancelled(looks.tick()).await.is_some() {
        // In a blocking task, because a disk may be slow; only this loop waits for it. A failed read is repeated.
        let Ok(found) = tokio::task::spawn_blocking(read.clone()).await else {
            continue;
        };
        let is_same = known.as_ref() == Some(&found);
        if is_same && is_settled {
            continue;
        }
        let taken = take(&found);
        is_settled = taken.is_ok() || is_same;
        if let Err(why) = taken
            && is_same
        {
            report(&why);
        }
        known = Some(found);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_file_of_ours_is_closed_to_others_and_no_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, link, other) = (
            folder.path().join("file"),
            folder.path().join("link"),
            folder.path().join("other"),
        );
        let mode = || fs::metadata(&file).expect("it is there").mode() & 0o777;
        private(&file).expect("made");
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("opened to others");
        private(&file).expect("closed");
        assert_eq!(mode(), 0o600);
        symlink(&other, &link).expect("a link");
        let error = private(&link).expect_err("a link").to_string();
        assert!(
            error.contains("symbolic link") && !other.exists(),
            "{error}"
        );
        assert!(private(folder.path()).is_err(), "a folder");
    }

    #[test]
    fn the_group_of_a_user_has_its_number() {
        assert!(is_own_group(1000, 1000, 1000));
        for (owner, group, user) in [(1000, 100, 1000), (1001, 1000, 1000), (0, 0, 0)] {
            assert!(!is_own_group(owner, group, user), "{owner} {group} {user}");
        }
    }

    #[test]
    fn a_file_that_others_could_use_has_a_warning_with_its_mode() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("c3po.db");
        fs::write(&file, "").expect("written");
        let set = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
        };
        set(folder.path(), 0o755);
        // The folder of temporary files may be closed itself.
        let is_open = is_reachable(&file);
        let check = |mode: u32, permissions: u32, expected: Option<&str>| {
            set(&file, mode);
            let found = fs::metadata(&file).expect("it is there");
            let text = expected.filter(|_| is_open).map(|could| {
                let path = file.display();
                format!("other users could {could} {path} (mode {mode:03o}): restore a backup")
            });
            assert_eq!(
                warning(&file, &found, permissions, "restore a backup"),
                text,
                "{mode:o}"
            );
        };
        check(0o600, READ_OR_WRITE, None);
        check(0o644, WRITE, None);
        check(0o604, READ_OR_WRITE, Some("read"));
        check(0o602, READ_OR_WRITE, Some("change"));
        check(0o666, WRITE, Some("change"));
        set(folder.path(), 0o700);
        let found = fs::metadata(&file).expect("it is there");
        assert_eq!(warning(&file, &found, READ_OR_WRITE, ""), None, "closed");
    }

    #[test]
    fn others_reach_a_file_below_folders_that_let_them_in_or_did_so_at_the_start() {
        let place = tempfile::tempdir().expect("a folder");
        let (above, file) = (
            place.path().join("above"),
            place.path().join("above/own/file"),
        );
        fs::create_dir_all(above.join("own")).expect("made");
        fs::write(&file, "").expect("written");
        let set = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
        };
        set(place.path(), 0o755);
        set(&above.join("own"), 0o755);
        // The folder of temporary files may be closed itself.
        let is_open = is_reachable(place.path());
        for (mode, lets_in) in [(0o755, true), (0o711, true), (0o700, false), (0o744, false)] {
            set(&above, mode);
            assert_eq!(is_reachable(&file), lets_in && is_open, "{mode:o}");
        }
        let link = place.path().join("link");
        symlink(&file, &link).expect("a link");
        assert!(!is_reachable(&link), "the file of the link counts");
        set(&above, 0o755);
        let outcome = close_folder(&above).expect("closed");
        assert_eq!(outcome, "it is private now");
        let mode = fs::metadata(&above).expect("it is there").mode() & 0o777;
        assert_eq!((mode, is_reachable(&file)), (0o700, is_open));
        assert!(is_reachable(&place.path().join("none")));
    }

    #[test]
    fn a_file_is_private_only_if_its_mode_is_and_otherwise_the_text_has_what_to_do() {
        let (file, folder) = (Path::new("/srv/a b"), 0o040_777);
        let check = |owner: u32, mode: u32, user: u32, expected: &str| {
            let found = outcome_for(file, owner, mode, user);
            assert!(found.contains(expected), "{owner} {mode:o} {user}: {found}");
        };
        check(7, 0o100_600, 7, "it is private now");
        check(0, 0o100_600, 7, "it is private now");
        check(7, 0o100_666, 7, "its file system keeps the mode 666");
        check(7, 0o100_666, 0, "its file system keeps the mode 666");
        check(
            0,
            0o100_666,
            7,
            "it belongs to uid 0, and this coordinator runs as uid 7; run `chown 7 ",
        );
        assert_eq!(closing(file, 7, 0o100_666, 7), "run `chmod 600 '/srv/a b'`");
        assert_eq!(closing(file, 7, folder, 7), "run `chmod 700 '/srv/a b'`");
        assert_eq!(
            closing(file, 0, folder, 7),
            "run `chown 7 '/srv/a b' && chmod 700 '/srv/a b'` as root, for a container on its host"
        );
    }

    /// Returns the calls of `take` and `report`, in order, if successive reads return the values of `found`.
    async fn followed(found: &[&'static str]) -> Vec<String> {
        let (said, stop) = (Mutex::new(Vec::new()), CancellationToken::new());
        let left = Arc::new(Mutex::new(found.iter().rev().copied().collect::<Vec<_>>()));
        let (looking, end) = (Arc::clone(&left), stop.clone());
        let read = move || {
            let mut left = looking.lock().expect("unbroken");
            if left.len() == 1 {
                end.cancel();
            }
            left.pop().unwrap_or_default()
        };
        let say = |what: String| said.lock().expect("unbroken").push(what);
        let take = |text: &&str| match text.strip_prefix("broken") {
            Some(_) => Err((*text).to_owned()),
            None => {
                say(format!("took {text}"));
                Ok(())
            }
        };
        follow(read, take, |why| say(format!("reported {why}")), stop).await;
        said.into_inner().expect("unbroken")
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_taken_once_and_an_error_is_reported_once_it_stands() {
        assert_eq!(
            followed(&["first", "first", "second", "first"]).await,
            ["took first", "took second", "took first"]
        );
        assert_eq!(
            followed(&["broken", "second"]).await,
            ["took second"],
            "it was being written"
        );
        assert_eq!(
            followed(&["broken", "broken", "broken", "first"]).await,
            ["reported broken", "took first"]
        );
        assert_eq!(
            followed(&["a", "b", "c"]).await,
            ["took a", "took b", "took c"],
            "it changes all the time"
        );
    }

    #[test]
    fn only_regular_files_are_read_and_no_more_of_them_than_allowed() {
        let folder = tempfile::tempdir().expect("a folder");
        for path in [folder.path(), Path::new("/dev/zero")] {
            let error = read(path, 10).expect_err("nothing to read").to_string();
            assert_eq!(error, "this is not a regular file", "{}", path.display());
        }
        let file = folder.path().join("file");
        fs::write(&file, "0123456789ab").expect("written");
        assert_eq!(read(&file, 10).expect("readable").len(), 11);
    }
}
