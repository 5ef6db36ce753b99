//! Files that only this user or root can have written: every folder above them is looked at.

use std::ffi::OsString;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use c3po_shared::text::shell_word;
use rustix::fs::{OFlags, StatVfsMountFlags, fstatvfs, statvfs};
use rustix::process::geteuid;

use crate::files::{Exposure, is_own_group, refused, standing};

/// The most symbolic links on the way to a file, as Linux has it.
const LINKS_MAX: usize = 40;

/// Reads a file as [`files::read`](crate::files::read) does, if only its owner, who is this user or root, could have written or replaced it.
///
/// Errors: the reason with the command that helps, or that it cannot be read.
pub(crate) fn read_trusted(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    // A missing file is only that, wherever its folders are.
    fs::metadata(path)?;
    read_in(trusted_place(path, Demand::Optional)?, max)
}

/// Reads a file that has to be there, as [`read_trusted`] does. It may also belong to `holder`, a user who has the secret that
/// is kept there, such as one that renews certificates. A folder such as `/tmp` may contain it, but then not as that user's.
///
/// Errors: the reason with the command that helps, or that it cannot be read.
pub(crate) fn read_required(path: &Path, max: u64, holder: u32) -> io::Result<Vec<u8>> {
    read_in(trusted_place(path, Demand::Required { holder })?, max)
}

/// Reads the regular file of a place, if others cannot write to it.
fn read_in(Trusted { place, holder }: Trusted, max: u64) -> io::Result<Vec<u8>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(&place)?;
    let (found, volume) = (file.metadata()?, fstatvfs(&file)?);
    check(&place, &found, volume.f_flag, Place::Last, holder)?;
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Checks that no other user can put a file at that path, or replace the one that is there.
///
/// Errors: the reason with the command that helps.
pub(crate) fn check_place(path: &Path) -> io::Result<()> {
    match trusted_place(path, Demand::Optional) {
        // Each folder that is there was checked before.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        placed => placed.map(drop),
    }
}

/// The files that are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Demand {
    /// One of this user or root. It may be missing: then no other user may be able to create it.
    Optional,
    /// One of this user, of root or of that user, which has to be there.
    Required { holder: u32 },
}

/// The path of a file without links.
struct Trusted {
    place: PathBuf,
    /// The further user who may own it.
    holder: Option<u32>,
}

/// Where a file or a folder is on the way to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A folder in which the next folder or link is.
    Above,
    /// The folder of the file or of its link, or the file itself.
    Last,
}

/// Returns the path of a regular file without links. It begins at the root and checks each folder before it looks into it, so
/// that no other user can put something else there meanwhile.
fn trusted_place(path: &Path, demand: Demand) -> io::Result<Trusted> {
    let mut left = parts_reversed(&std::path::absolute(path)?);
    let holder = match demand {
        Demand::Optional => None,
        Demand::Required { holder } => Some(holder),
    };
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    while let Some(part) = left.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        let place = if left.is_empty() && demand == Demand::Optional {
            Place::Last
        } else {
            Place::Above
        };
        let owner = holder.filter(|_| !is_in_shared(&at));
        check(&at, &fs::metadata(&at)?, statvfs(&at)?.f_flag, place, owner)?;
        let next = at.join(part);
        let found = fs::symlink_metadata(&next)?;
        if !found.is_symlink() {
            at = next;
            continue;
        }
        // A link has no mode: its owner could put another one into a folder such as `/tmp`.
        let owner = holder.filter(|_| !is_in_shared(&next));
        if found.uid() != judge_of(found.uid(), owner) && found.uid() != 0 {
            return Err(foreign(&next, found.uid()));
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(io::Error::other("there are too many symbolic links"));
        }
        let target = fs::read_link(&next)?;
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        left.extend(parts_reversed(&target));
    }
    if fs::symlink_metadata(&at)?.is_file() {
        let holder = holder.filter(|_| !is_in_shared(&at));
        Ok(Trusted { place: at, holder })
    } else {
        Err(io::Error::other("this is not a regular file"))
    }
}

/// Returns the parts of a path below the root, the first one last.
fn parts_reversed(path: &Path) -> Vec<OsString> {
    let parts = path.components().rev();
    let named = parts.filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    named.map(|part| part.as_os_str().to_owned()).collect()
}

/// Returns whether others can create files in the folder of that part, so that its owner may be anyone.
fn is_in_shared(part: &Path) -> bool {
    let is_shared = |folder: Metadata| {
        let of_own_group = is_own_group(folder.uid(), folder.gid(), folder.uid());
        let others = if of_own_group { 0o002 } else { 0o022 };
        folder.mode() & others != 0
    };
    let folder = part.parent();
    folder.is_some_and(|folder| fs::metadata(folder).map_or(true, is_shared))
}

/// Returns the user for whom a part of that owner is judged: the holder if it belongs to the holder, otherwise this user.
fn judge_of(owner: u32, holder: Option<u32>) -> u32 {
    let holder = holder.filter(|holder| *holder == owner);
    holder.unwrap_or_else(|| geteuid().as_raw())
}

/// Checks a folder or a file of that volume.
///
/// Errors: others can change what is there.
fn check(
    part: &Path,
    found: &Metadata,
    flags: StatVfsMountFlags,
    place: Place,
    holder: Option<u32>,
) -> io::Result<()> {
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    let user = judge_of(owner, holder);
    // Root chose the owner of what it mounted read-only, as a file of the host in a container.
    let is_fixed = flags.contains(StatVfsMountFlags::RDONLY);
    let judge = if is_fixed || (owner == 0 && found.is_file()) {
        owner
    } else {
        user
    };
    // In a folder such as `/tmp`, others cannot replace what is not theirs.
    let is_shared = place == Place::Above && mode & 0o1000 != 0;
    let harmless = match () {
        () if is_shared => 0o022,
        () if is_own_group(owner, found.gid(), user) => 0o020,
        () => 0,
    };
    let (shown, word) = (part.display(), shell_word(&part.display().to_string()));
    let why = match standing(owner, mode & !harmless, judge) {
        Exposure::Private | Exposure::Readable => return Ok(()),
        Exposure::Writable if found.is_dir() && (owner != user || mode & 0o1000 != 0) => format!(
            "the folder {shown} is writable by other users (mode {mode:03o}): check the file, then move it to a folder \
             that only its owner can write"
        ),
        Exposure::Writable if found.is_dir() => format!(
            "{shown} is writable by other users (mode {mode:03o}): check its content, then run `chmod go-w {word}`"
        ),
        // Others may have it open, and go on writing to it.
        Exposure::Writable => format!(
            "{shown} is writable by other users (mode {mode:03o}): check its content, then run `cp {word} {word}.new && \
             chmod go-w {word}.new && mv {word}.new {word}`, because they may still have it open"
        ),
        Exposure::Foreign => return Err(foreign(part, owner)),
    };
    Err(refused(&why))
}

fn foreign(part: &Path, owner: u32) -> io::Error {
    let (shown, user) = (part.display(), geteuid().as_raw());
    refused(&format!(
        "{shown} belongs to uid {owner}, and this coordinator runs as uid {user}: check its content, then run \
         `chown -h {user} {}`, or mount it read-only into the container",
        shell_word(&shown.to_string())
    ))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_file_that_others_can_write_or_replace_is_not_trusted() -> io::Result<()> {
        let place = tempfile::tempdir()?;
        let own = place.path().join("own");
        let file = own.join("policy.toml");
        fs::create_dir(&own)?;
        fs::write(&file, "rules")?;
        let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
        let check = |of_file: u32, of_folder: u32, expected: &[&str]| {
            set(&file, of_file).expect("ours");
            set(&own, of_folder).expect("ours");
            match read_trusted(&file, 10) {
                Ok(bytes) => assert!(
                    bytes == b"rules" && expected.is_empty(),
                    "{of_file:o} {of_folder:o}"
                ),
                Err(error) => {
                    let error = error.to_string();
                    let is_named = |part: &&str| error.contains(part);
                    assert!(
                        !expected.is_empty() && expected.iter().all(is_named),
                        "{error}"
                    );
                }
            }
        };
        check(0o600, 0o700, &[]);
        check(0o644, 0o755, &[]);
        check(
            0o664,
            0o700,
            &[
                "policy.toml is writable by other users (mode 664)",
                ".new && chmod go-w",
            ],
        );
        check(0o666, 0o755, &["policy.toml is writable", ".new && mv"]);
        check(
            0o600,
            0o775,
            &["own is writable by other users (mode 775)", "chmod go-w"],
        );
        check(0o600, 0o777, &["own is writable", "chmod go-w"]);
        check(
            0o600,
            0o1777,
            &["the folder", "(mode 1777)", "move it to a folder"],
        );
        set(&own, 0o755)?;
        // Only root can give a file away.
        if std::os::unix::fs::chown(&file, Some(12_345), None).is_ok() {
            let error = read_trusted(&file, 10).expect_err("foreign").to_string();
            assert!(
                error.contains("belongs to uid 12345") && error.contains("`chown"),
                "{error}"
            );
        }
        Ok(())
    }

    #[test]
    fn a_link_is_trusted_if_others_can_replace_neither_it_nor_its_file() -> io::Result<()> {
        let place = tempfile::tempdir()?;
        let (own, shared) = (place.path().join("own"), place.path().join("shared"));
        for folder in [&own, &shared] {
            fs::create_dir(folder)?;
            fs::write(folder.join("file"), "rules")?;
        }
        fs::set_permissions(&shared, Permissions::from_mode(0o777))?;
        let check = |link: &Path, file: &Path, is_trusted: bool| {
            symlink(file, link).expect("made");
            let found = read_trusted(link, 10);
            assert_eq!(found.is_ok(), is_trusted, "{found:?}");
        };
        check(&place.path().join("link"), &own.join("file"), true);
        check(&shared.join("link"), &own.join("file"), false);
        check(&own.join("link"), &shared.join("file"), false);
        let missing = read_trusted(&own.join("none"), 10).expect_err("missing");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        Ok(())
    }

    /// Reads `live/key.pem`, a link to `archive/key.pem`, for that holder and with the modes of `archive` and its file. Checks
    /// that the error contains a part, or that there is none.
    fn check_required(
        place: &Path,
        (of_folder, of_file): (u32, u32),
        holder: u32,
        expected: Option<&str>,
    ) {
        let set = |path: &str, mode| {
            fs::set_permissions(place.join(path), Permissions::from_mode(mode)).expect("ours");
        };
        set("archive", of_folder);
        set("archive/key.pem", of_file);
        let found = read_required(&place.join("live/key.pem"), 10, holder);
        let found = found.map_err(|error| error.to_string());
        let context = format!("{of_folder:o} {of_file:o} {holder}: {found:?}");
        match expected {
            None => assert_eq!(found.as_deref(), Ok(&b"key"[..]), "{context}"),
            Some(part) => assert!(found.is_err_and(|error| error.contains(part)), "{context}"),
        }
    }

    /// Makes the files that `check_required` reads.
    fn required() -> io::Result<tempfile::TempDir> {
        let place = tempfile::tempdir()?;
        for folder in ["archive", "live"] {
            fs::create_dir(place.path().join(folder))?;
        }
        fs::write(place.path().join("archive/key.pem"), "key")?;
        symlink("../archive/key.pem", place.path().join("live/key.pem"))?;
        Ok(place)
    }

    #[test]
    fn a_required_file_is_one_that_others_can_neither_write_nor_replace() -> io::Result<()> {
        let place = required()?;
        let check = |modes, expected| {
            check_required(place.path(), modes, geteuid().as_raw(), expected);
        };
        check((0o700, 0o600), None);
        check((0o755, 0o644), None);
        check((0o710, 0o640), None);
        check((0o1777, 0o600), None);
        let writable = "archive is writable by other users";
        check((0o777, 0o600), Some(writable));
        check((0o775, 0o600), Some(writable));
        check((0o755, 0o666), Some("key.pem is writable by other users"));
        Ok(())
    }

    #[test]
    fn a_required_file_may_be_its_holders_but_no_one_elses() -> io::Result<()> {
        let (place, user) = (required()?, geteuid().as_raw());
        let check = |modes, holder, expected| {
            check_required(place.path(), modes, holder, expected);
        };
        let [archive, file, link] =
            ["archive", "archive/key.pem", "live/key.pem"].map(|path| place.path().join(path));
        // Only root can give a file away.
        if std::os::unix::fs::chown(&file, Some(12_345), None).is_err() {
            return Ok(());
        }
        let foreign = Some("key.pem belongs to uid 12345");
        check((0o755, 0o600), user, foreign);
        check((0o755, 0o640), 12_345, None);
        check((0o755, 0o660), 12_345, Some("key.pem is writable"));
        check((0o1777, 0o600), 12_345, foreign);
        std::os::unix::fs::chown(&archive, Some(12_345), Some(12_345))?;
        std::os::unix::fs::lchown(&link, Some(12_345), None)?;
        check((0o775, 0o600), 12_345, None);
        check((0o777, 0o600), 12_345, Some("archive is writable"));
        std::os::unix::fs::chown(&file, Some(user), None)?;
        let linked = Some("live/key.pem belongs to uid 12345");
        check((0o755, 0o600), user, linked);
        std::os::unix::fs::lchown(&link, Some(user), None)?;
        check((0o755, 0o600), user, Some("archive belongs to uid 12345"));
        Ok(())
    }

    #[test]
    fn every_folder_above_a_file_is_checked() -> io::Result<()> {
        let place = tempfile::tempdir()?;
        let (above, own) = (place.path().join("above"), place.path().join("above/own"));
        let file = own.join("policy.toml");
        fs::create_dir_all(&own)?;
        fs::write(&file, "rules")?;
        let check = |mode: u32, expected: Option<&str>| {
            fs::set_permissions(&above, Permissions::from_mode(mode)).expect("ours");
            let error = read_trusted(&file, 10).err().map(|error| error.to_string());
            let is_so = error.as_deref().map(|error| error.contains("above"));
            assert_eq!(is_so, expected.map(|_| true), "{mode:o}: {error:?}");
            assert!(error.unwrap_or_default().contains(expected.unwrap_or("")));
        };
        check(0o755, None);
        check(0o777, Some("above is writable by other users (mode 777)"));
        check(0o2775, Some("above is writable by other users (mode 2775)"));
        check(0o1777, None);
        let none = read_trusted(&above.join("own/none"), 10).expect_err("missing");
        assert_eq!(none.kind(), ErrorKind::NotFound);
        // Only root can give something away.
        let link = above.join("link");
        symlink(&own, &link)?;
        let linked = link.join("policy.toml");
        assert!(read_trusted(&linked, 10).is_ok());
        if std::os::unix::fs::lchown(&link, Some(12_345), None).is_ok() {
            let error = read_trusted(&linked, 10).expect_err("foreign").to_string();
            assert!(
                error.contains("link belongs to uid 12345") && error.contains("`chown -h"),
                "{error}"
            );
            std::os::unix::fs::chown(&own, Some(12_345), None)?;
            let error = read_trusted(&file, 10).expect_err("foreign").to_string();
            assert!(error.contains("own belongs to uid 12345"), "{error}");
        }
        Ok(())
    }

    #[test]
    fn a_file_that_others_could_make_or_replace_has_a_bad_place() -> io::Result<()> {
        let place = tempfile::tempdir()?;
        let folder = place.path().join("folder");
        fs::create_dir(&folder)?;
        for path in [folder.join("c3po.db"), folder.join("none/c3po.db")] {
            for (mode, is_good) in [(0o755, true), (0o777, false), (0o2775, false)] {
                fs::set_permissions(&folder, Permissions::from_mode(mode))?;
                assert_eq!(check_place(&path).is_ok(), is_good, "{path:?} {mode:o}");
            }
        }
        fs::set_permissions(&folder, Permissions::from_mode(0o1777))?;
        assert!(check_place(&folder.join("c3po.db")).is_err());
        Ok(())
    }

    #[test]
    fn a_trusted_file_is_a_regular_one() -> io::Result<()> {
        let place = tempfile::tempdir()?;
        let (round, folder) = (place.path().join("round"), place.path().join("folder"));
        symlink(&round, &round)?;
        assert!(read_trusted(&round, 10).is_err(), "a link to itself");
        fs::create_dir(&folder)?;
        let error = read_trusted(&folder, 10).expect_err("a folder");
        assert_eq!(error.to_string(), "this is not a regular file");
        Ok(())
    }
}
