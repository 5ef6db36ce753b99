//! Files that only this user or root can have written: every folder above them is looked at.

use std::ffi::OsString;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use c3po_shared::text::{chown_command, copy_command, shell_word};
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
            return Err(foreign(&next, &found));
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

/// Returns the user from whose view a part of that owner is judged: the holder if the holder owns it, otherwise this user.
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
    match standing(owner, mode & !harmless, judge) {
        Exposure::Private | Exposure::Readable => Ok(()),
        Exposure::Writable => Err(writable(part, found, user)),
        Exposure::Foreign => Err(foreign(part, found)),
    }
}

/// The advice where others may create files, and so replace a new file too.
const ELSEWHERE: &str =
    "move the file to a folder that only its owner can write, then check its content";

/// Returns the error for a folder or a file that others can write to, from the view of that user.
fn writable(part: &Path, found: &Metadata, user: u32) -> io::Error {
    let (shown, mode) = (part.display().to_string(), found.mode() & 0o7777);
    let (kind, next) = match () {
        () if found.is_dir() && (found.uid() != user || mode & 0o1000 != 0) => {
            ("the folder ", ELSEWHERE.to_owned())
        }
        () if found.is_dir() => (
            "",
            format!(
                "run `chmod go-w {}`, then check its content",
                shell_word(&shown)
            ),
        ),
        () => ("", replacing(part)),
    };
    refused(&format!(
        "{kind}{shown} is writable by other users (mode {mode:03o}): {next}"
    ))
}

/// Returns the error for something that another user owns.
fn foreign(part: &Path, found: &Metadata) -> io::Error {
    let (shown, user) = (part.display().to_string(), geteuid().as_raw());
    let next = match () {
        () if is_in_shared(part) => ELSEWHERE.to_owned(),
        () if found.is_symlink() => format!(
            "run `chown -h {user} {}` as root, then check the file to which it leads",
            shell_word(&shown)
        ),
        () if found.is_dir() => format!(
            "run `{}` as root, then check its content",
            chown_command(&shown, user)
        ),
        () => replacing(part),
    };
    refused(&format!(
        "{shown} belongs to uid {}, and this coordinator runs as uid {user}: {next}, or mount it read-only into the container",
        found.uid()
    ))
}

/// Returns the advice for a file that others could have written. They may still have it open, so a new one replaces it.
fn replacing(file: &Path) -> String {
    if is_in_shared(file) {
        return ELSEWHERE.to_owned();
    }
    let command = copy_command(&file.display().to_string(), geteuid().as_raw());
    format!("run `{command}`, because they may still have it open, then check its content")
}

#[cfg(test)]
mod tests;
