//! The data folder: created if missing, and refused if it is not writable or if other users could have written to it.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use anyhow::{Context as _, bail};
use rustix::fs::{Access, access};
use rustix::process::geteuid;

use crate::files::{Exposure, close_folder, closing, is_reachable, standing};

/// Creates the folder if it is missing, and makes a folder private that others can read.
///
/// Errors: it cannot be created or written, or others may have put a certificate, a policy, a database or a program for hosts
/// there. The error names the owner of the folder and the user of this process. They differ if a folder of the host is mounted
/// into a container.
pub(crate) fn prepare(folder: &Path) -> anyhow::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    let writable = made.and_then(|()| Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?));
    let Err(error) = writable else {
        return check(folder);
    };
    let Some(found) = folder.ancestors().find(|part| part.is_dir()) else {
        bail!("{}: {error}", folder.display())
    };
    let (owner, user) = (fs::metadata(found)?.uid(), geteuid().as_raw());
    let (folder, found) = (folder.display(), found.display());
    bail!(
        "the data folder {folder} cannot be written ({error}): {found} belongs to uid {owner}, and this coordinator \
         runs as uid {user}; change its owner, for a container with `chown {user} FOLDER` on its host, or pass another \
         folder with --data-dir"
    )
}

fn check(folder: &Path) -> anyhow::Result<()> {
    let (found, user, shown) = (fs::metadata(folder)?, geteuid().as_raw(), folder.display());
    let mode = found.mode() & 0o777;
    match standing(found.uid(), mode, user) {
        Exposure::Private => Ok(()),
        Exposure::Readable => {
            let outcome = close_folder(folder).with_context(|| {
                format!("removing the permissions of other users from the data folder {shown}")
            })?;
            if is_reachable(folder) {
                tracing::info!(
                    "other users could enter or read the data folder {shown} (mode {mode:03o}): {outcome}. If they could \
                     read its database too, they may have its messages and open codes"
                );
            }
            Ok(())
        }
        Exposure::Writable => bail!(
            "the data folder {shown} is writable by other users (mode {mode:03o}), who may have put a certificate, a \
             policy, a database or programs for new hosts (`downloads`) there: {}, then delete what you cannot check",
            closing(folder, found.uid(), found.mode(), user)
        ),
        Exposure::Foreign => bail!(
            "the data folder {shown} belongs to uid {}, who can read and replace its files, and this coordinator runs \
             as uid {user}: {}, then delete what you cannot check, or pass another folder with --data-dir",
            found.uid(),
            closing(folder, found.uid(), found.mode(), user)
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::process::Command;

    use super::*;

    #[test]
    fn a_folder_that_others_may_write_or_own_is_refused_and_one_that_they_read_is_closed()
    -> anyhow::Result<()> {
        let check = |owner: u32, mode: u32, user: u32, expected: Exposure| {
            assert_eq!(
                standing(owner, mode, user),
                expected,
                "{owner} {mode:o} {user}"
            );
        };
        check(7, 0o700, 7, Exposure::Private);
        check(7, 0o755, 7, Exposure::Readable);
        check(7, 0o775, 7, Exposure::Writable);
        check(7, 0o777, 7, Exposure::Writable);
        check(8, 0o700, 7, Exposure::Foreign);
        check(8, 0o700, 0, Exposure::Foreign);
        check(0, 0o2770, 7, Exposure::Private);
        check(0, 0o777, 7, Exposure::Writable);
        check(0, 0o755, 0, Exposure::Readable);

        let folder = tempfile::tempdir()?;
        let set = |mode| fs::set_permissions(folder.path(), Permissions::from_mode(mode));
        set(0o755)?;
        prepare(folder.path())?;
        assert_eq!(fs::metadata(folder.path())?.mode() & 0o777, 0o700);
        set(0o777)?;
        let error = prepare(folder.path())
            .expect_err("others write it")
            .to_string();
        assert!(
            error.contains("(mode 777)") && error.contains("chmod 700"),
            "{error}"
        );
        Ok(())
    }

    #[test]
    fn after_the_printed_command_the_folder_is_this_users_alone() -> anyhow::Result<()> {
        let place = tempfile::tempdir()?;
        let folder = place.path().join("ann's data $(folder)");
        fs::create_dir(&folder)?;
        let paste = || -> anyhow::Result<()> {
            let error = prepare(&folder).expect_err("of others").to_string();
            let (before, rest) = error.split_once("run `").context("a command")?;
            let (command, after) = rest.split_once('`').context("its end")?;
            assert!(
                !before.contains("check") && after.contains("then delete what you cannot check"),
                "{error}"
            );
            let shell = Command::new("sh").args(["-c", command]).status()?;
            assert!(shell.success(), "{command}");
            prepare(&folder)
        };
        fs::set_permissions(&folder, Permissions::from_mode(0o777))?;
        paste()?;
        // Only root can give a folder away.
        match chown(&folder, Some(12_345), None) {
            Ok(()) => paste(),
            Err(_) => Ok(()),
        }
    }

    #[test]
    fn a_missing_folder_is_made_for_its_owner_alone() -> anyhow::Result<()> {
        let parent = tempfile::tempdir()?;
        let folder = parent.path().join("a/b");
        prepare(&folder)?;
        assert_eq!(fs::metadata(&folder)?.mode() & 0o777, 0o700);
        prepare(&folder)
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_refused_with_owner_and_user() -> anyhow::Result<()> {
        // Not even root can create a folder there.
        let error = prepare(Path::new("/proc/1/none"))
            .expect_err("it cannot be made")
            .to_string();
        let owner = format!("/proc/1 belongs to uid {}", fs::metadata("/proc/1")?.uid());
        let user = format!("runs as uid {}", geteuid().as_raw());
        for part in ["data folder /proc/1/none cannot be written", &owner, &user] {
            assert!(error.contains(part), "{part:?} is not in {error:?}");
        }
        Ok(())
    }
}
