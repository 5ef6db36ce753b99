//! The coordinator's own folder: made where it is missing, refused with its owner where it cannot be written.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use anyhow::bail;
use rustix::fs::{Access, access};
use rustix::process::geteuid;

/// Makes the folder if it is missing.
///
/// Errors: it cannot be made or written. The error names the owner of the folder and the user of this process, which
/// differ when a folder of the host is mounted into a container.
pub(crate) fn prepare(folder: &Path) -> anyhow::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    let writable = made.and_then(|()| Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?));
    let Err(error) = writable else { return Ok(()) };
    let Some(found) = folder.ancestors().find(|part| part.is_dir()) else { bail!("{}: {error}", folder.display()) };
    let (owner, user) = (fs::metadata(found)?.uid(), geteuid().as_raw());
    let (folder, found) = (folder.display(), found.display());
    bail!(
        "the data folder {folder} cannot be written ({error}): {found} belongs to uid {owner}, and this coordinator runs \
         as uid {user}; make that its owner, such as by `chown {user} FOLDER` on the host of a container, or name \
         another folder with --data-dir"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // Not even root makes a folder there.
        let error = prepare(Path::new("/proc/1/none")).expect_err("it cannot be made").to_string();
        let owner = format!("/proc/1 belongs to uid {}", fs::metadata("/proc/1")?.uid());
        let user = format!("runs as uid {}", geteuid().as_raw());
        for part in ["data folder /proc/1/none cannot be written", &owner, &user] {
            assert!(error.contains(part), "{part:?} is not in {error:?}");
        }
        Ok(())
    }
}
