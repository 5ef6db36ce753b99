//! Private folders and files of one user: created for that user alone whatever the umask, and not trusted if others can write.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use c3po_shared::text::{chown_command, copy_command, shell_word};
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

/// Returns why other users could have written an existing file, with the advice; `None` if they could not.
pub fn exposed(path: &Path) -> Option<String> {
    // The folder first: if others can write there, they can replace a new file too.
    let parts = [path.parent(), Some(path)].into_iter().flatten();
    parts
        .filter_map(|part| Some((part, fs::metadata(part).ok()?)))
        .find_map(|(part, found)| exposed_part(part, &found))
}

/// Returns that for a file, or for the folder of one.
pub(super) fn exposed_part(part: &Path, found: &Metadata) -> Option<String> {
    let (owner, mode) = (found.uid(), found.mode());
    let is_open = mode & EVERYBODY != 0 && (found.is_file() || mode & STICKY == 0);
    let why = match (is_foreign(owner), is_open) {
        (true, _) => format!(
            "belongs to the user {owner}, who can redirect this host to another coordinator"
        ),
        (false, true) => format!("is writable by other users (mode {:03o})", mode & 0o777),
        (false, false) => return None,
    };
    let next = if found.is_dir() {
        folder_advice(part, owner, own_uid())
    } else {
        file_advice(part, mode, own_uid())
    };
    Some(format!("{} {why}: {next}", part.display()))
}

/// Returns the advice for a file of that mode that others could have written.
fn file_advice(file: &Path, mode: u32, user: u32) -> String {
    let command = copy_command(&file.display().to_string(), user);
    let renewal = if mode & OTHERS_READ == 0 {
        ""
    } else {
        ". Others may also have read its key or login: join or log in again"
    };
    format!("run `{command}`, because they may still have it open, then check its content{renewal}")
}

/// Returns the advice for a folder of that owner in which others could have put files.
fn folder_advice(folder: &Path, owner: u32, user: u32) -> String {
    // The command changes no link, so it names the folder itself.
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let shown = folder.display().to_string();
    let command = match owner {
        _ if owner == user => format!("`chmod go-w {}`", shell_word(&shown)),
        0 => format!("`chmod go-w {}` as root", shell_word(&shown)),
        _ => format!("`{}` as root", chown_command(&shown, user)),
    };
    format!("run {command}, then check its content")
}

/// Returns why other users can read an existing file of this user that holds a secret, with the advice, which ends with how to
/// replace the secret; `None` if they cannot.
pub(super) fn readable(path: &Path, renewal: &str) -> Option<String> {
    let found = fs::metadata(path).ok()?;
    let is_open = found.mode() & OTHERS_READ != 0 && is_reachable(path.parent()?);
    (is_open && found.uid() == own_uid()).then(|| {
        let shown = path.display().to_string();
        format!(
            "{shown} is readable by other users (mode {:03o}), who may have its secret: run `chmod 600 {}`, then {renewal}",
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

/// Returns the user of this process.
pub(super) fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::chown;
    use std::process::Command;

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

    /// Runs the command of an advice, as it is pasted, in a shell whose new files are for everyone. Checks that the advice
    /// about the content comes after it.
    fn paste(advice: &str) {
        let parts: Vec<&str> = advice.split('`').collect();
        let &[before, command, after] = parts.as_slice() else {
            panic!("{advice}");
        };
        assert!(
            !before.contains("check") && after.contains("then check"),
            "{advice}"
        );
        let mut shell = Command::new("sh");
        let status = shell
            .args(["-c", &format!("umask 000; {command}")])
            .status();
        assert!(status.unwrap().success(), "{command}");
    }

    #[test]
    fn after_the_printed_command_no_one_else_writes_to_the_file() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("ann's own $(folder)");
        let file = folder.join("config.toml");
        make_folder(&folder).unwrap();
        fs::write(&file, "ours").unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        // The folder comes first: until then the new file could be replaced, too.
        set(&folder, 0o777);
        set(&file, 0o666);
        let mut open = append_as_it_is(&file);
        paste(&exposed(&file).unwrap());
        assert_eq!((mode(&folder), mode(&file)), (0o755, 0o666));
        paste(&exposed(&file).unwrap());
        open.write_all(b"theirs").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "ours");
        assert_eq!(
            (mode(&file), fs::read_dir(&folder).unwrap().count()),
            (0o600, 1)
        );
        assert_eq!(exposed(&file), None);
        // Only root can give something away, and for root nothing is foreign.
        if chown(&file, Some(12_345), None).is_ok() {
            paste(&file_advice(&file, 0o644, own_uid()));
            chown(&folder, Some(12_345), None).unwrap();
            set(&folder, 0o777);
            paste(&folder_advice(&folder, 12_345, own_uid()));
            let uid = |path: &Path| fs::metadata(path).unwrap().uid();
            assert_eq!(
                (uid(&file), uid(&folder), mode(&folder)),
                (own_uid(), own_uid(), 0o755)
            );
        }
    }

    fn append_as_it_is(file: &Path) -> File {
        OpenOptions::new().append(true).open(file).unwrap()
    }

    #[test]
    fn the_advice_for_a_file_that_others_could_read_replaces_its_secret() {
        let advice = |mode| file_advice(Path::new("/a/config.toml"), mode, 7);
        assert!(advice(0o666).ends_with("join or log in again"));
        assert!(advice(0o602).ends_with("then check its content"));
    }

    #[test]
    fn a_secret_that_other_users_can_read_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        fs::write(&file, "").unwrap();
        let check = |of_file: u32, of_folder: u32, expected: bool| {
            fs::set_permissions(&file, Permissions::from_mode(of_file)).unwrap();
            fs::set_permissions(folder.path(), Permissions::from_mode(of_folder)).unwrap();
            let found = readable(&file, "join again");
            assert_eq!(
                found.is_some(),
                expected && is_reachable(folder.path()),
                "{of_file:o} {of_folder:o}"
            );
            let advice = format!("run `chmod 600 {}`, then join again", file.display());
            assert!(found.is_none_or(|found| found.contains(&advice)));
        };
        check(0o600, 0o755, false);
        check(0o644, 0o755, true);
        check(0o640, 0o750, true);
        check(0o644, 0o700, false);
        fs::remove_file(&file).unwrap();
        assert_eq!(readable(&file, ""), None);
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
