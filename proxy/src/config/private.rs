//! Private folders and files of one user: created for that user alone whatever the umask, and not trusted if others can write.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use c3po_shared::text::shell_word;
use rustix::fs::OFlags;

/// The permission bits of others.
const OTHERS: u32 = 0o077;
/// The permission bits that let others read a file, or use the files in a folder.
const OTHERS_READ: u32 = 0o044;
const OTHERS_ENTER: u32 = 0o011;
/// The permission bit that lets everyone write.
const EVERYBODY: u32 = 0o002;
/// The bit that lets only owners replace files in a folder.
const STICKY: u32 = 0o1000;

/// Creates a folder with its parents, if missing.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Creates a folder of c3po's state, if missing. If every user may write in it, or in the folder above it, that folder is
/// closed to others: the next session would send what they put there.
///
/// Errors: one of the two belongs to another user, or cannot be made.
pub fn make_state_folder(folder: &Path) -> io::Result<()> {
    make_folder(folder)?;
    for folder in folder.parent().into_iter().chain([folder]) {
        let found = fs::metadata(folder)?;
        check_owner(&found).map_err(|error| at(folder, &error))?;
        let is_open = found.mode() & (EVERYBODY | STICKY) == EVERYBODY;
        if is_open && found.uid() == own_uid() {
            fs::set_permissions(folder, Permissions::from_mode(0o700))?;
        }
    }
    Ok(())
}

/// Opens a file for appending, and creates it if missing. Does not follow a symbolic link.
///
/// Errors: it belongs to another user, or cannot be written.
pub fn append(path: &Path) -> io::Result<File> {
    // A pipe that another user made there would keep us.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)?;
    let found = file.metadata()?;
    check_owner(&found)?;
    if found.is_file() && found.uid() == own_uid() && found.mode() & OTHERS != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Checks that a file or folder belongs to this user or to root.
///
/// Errors: it belongs to another user, who wrote what is in it.
pub fn check_owner(found: &Metadata) -> io::Result<()> {
    if is_foreign(found.uid()) {
        let error = format!("it belongs to the user {}", found.uid());
        return Err(io::Error::new(ErrorKind::PermissionDenied, error));
    }
    Ok(())
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Returns why other users could have written an existing file; `None` if they could not.
pub fn exposed(path: &Path) -> Option<String> {
    let parts = [Some(path), path.parent()].into_iter().flatten();
    parts.filter_map(|part| Some((part, fs::metadata(part).ok()?))).find_map(|(part, found)| {
        let shown = part.display();
        let is_open = found.mode() & EVERYBODY != 0 && (found.is_file() || found.mode() & STICKY == 0);
        match (is_foreign(found.uid()), is_open) {
            (true, _) => Some(format!(
                "{shown} belongs to the user {}, who can redirect this host to another coordinator",
                found.uid()
            )),
            (false, true) => {
                let (mode, word) = (found.mode() & 0o777, shell_word(&shown.to_string()));
                // Others may have a file open, and go on writing to it.
                let next = if found.is_dir() {
                    format!("`chmod go-w {word}`")
                } else {
                    format!("`cp {word} {word}.new && chmod 600 {word}.new && mv {word}.new {word}`")
                };
                Some(format!(
                    "{shown} is writable by other users (mode {mode:03o}): check its content, then run {next}"
                ))
            }
            (false, false) => None,
        }
    })
}

/// Returns why other users can read an existing file of this user that holds a secret; `None` if they cannot.
pub(super) fn readable(path: &Path) -> Option<String> {
    let found = fs::metadata(path).ok()?;
    let is_open = found.mode() & OTHERS_READ != 0 && is_reachable(path.parent()?);
    (is_open && found.uid() == own_uid()).then(|| {
        let shown = path.display().to_string();
        format!(
            "{shown} is readable by other users (mode {:03o}): run `chmod 600 {}`",
            found.mode() & 0o777,
            shell_word(&shown)
        )
    })
}

/// Returns whether other users can use the files in a folder.
fn is_reachable(folder: &Path) -> bool {
    let enters = |folder: &Path| Some(fs::metadata(folder).ok()?.mode() & OTHERS_ENTER != 0);
    folder
        .ancestors()
        .all(|folder| enters(folder) == Some(true))
}

/// Returns whether the owner is another user: neither this one nor root, which may do anything in any case.
fn is_foreign(owner: u32) -> bool {
    let own = own_uid();
    owner != own && owner != 0 && own != 0
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_log_is_for_its_owner_alone_and_no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (log, link, other) = (
            folder.path().join("log"),
            folder.path().join("link"),
            folder.path().join("other"),
        );
        append(&log).unwrap();
        assert_eq!(mode(&log), 0o600);
        fs::set_permissions(&log, Permissions::from_mode(0o666)).unwrap();
        append(&log).unwrap();
        assert_eq!(mode(&log), 0o600);
        std::os::unix::fs::symlink(&other, &link).unwrap();
        assert!(append(&link).is_err() && !other.exists());
    }

    #[test]
    fn a_folder_of_the_state_in_which_every_user_may_write_is_closed() {
        let home = tempfile::tempdir().unwrap();
        let (state, folder) = (home.path().join("c3po"), home.path().join("c3po/journal"));
        make_state_folder(&folder).unwrap();
        for (is, becomes) in [(0o777, 0o700), (0o1777, 0o777), (0o755, 0o755)] {
            for folder in [&state, &folder] {
                fs::set_permissions(folder, Permissions::from_mode(is)).unwrap();
            }
            make_state_folder(&folder).unwrap();
            assert_eq!((mode(&state), mode(&folder)), (becomes, becomes), "{is:o}");
        }
    }

    #[test]
    fn a_secret_that_other_users_can_read_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        fs::write(&file, "").unwrap();
        let check = |of_file: u32, of_folder: u32, expected: bool| {
            fs::set_permissions(&file, Permissions::from_mode(of_file)).unwrap();
            fs::set_permissions(folder.path(), Permissions::from_mode(of_folder)).unwrap();
            let found = readable(&file);
            assert_eq!(
                found.is_some(),
                expected && is_reachable(folder.path()),
                "{of_file:o} {of_folder:o}"
            );
            let advice = format!("run `chmod 600 {}`", file.display());
            assert!(found.is_none_or(|found| found.contains(&advice)));
        };
        check(0o600, 0o755, false);
        check(0o644, 0o755, true);
        check(0o640, 0o750, true);
        check(0o644, 0o700, false);
        fs::remove_file(&file).unwrap();
        assert_eq!(readable(&file), None);
    }

    #[test]
    fn a_file_that_every_user_may_write_or_replace_is_not_trusted() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("a/c3po");
        make_folder(&folder).unwrap();
        assert_eq!(
            (mode(&folder), mode(&home.path().join("a"))),
            (0o700, 0o700)
        );
        let file = folder.join("config.toml");
        fs::write(&file, "").unwrap();
        let check = |of_file: u32, of_folder: u32, expected: Option<&str>| {
            fs::set_permissions(&file, Permissions::from_mode(of_file)).unwrap();
            fs::set_permissions(&folder, Permissions::from_mode(of_folder)).unwrap();
            let found = exposed(&file);
            assert_eq!(found.is_some(), expected.is_some(), "{found:?}");
            assert!(found.is_none_or(|found| found.contains(expected.unwrap())));
        };
        check(0o600, 0o700, None);
        check(0o644, 0o755, None);
        check(0o664, 0o775, None);
        check(
            0o666,
            0o700,
            Some("config.toml is writable by other users (mode 666)"),
        );
        check(
            0o600,
            0o777,
            Some("c3po is writable by other users (mode 777)"),
        );
        check(0o600, 0o1777, None);
    }
}
