//! A disk of a few kilobytes, to be filled: a file system in memory. Only a privileged user can make one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

/// A mounted folder; unmounted with this.
#[derive(Debug)]
pub struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// Mounts a disk of that many KiB on a folder, which is made. Returns `None` where that is not allowed.
    ///
    /// Errors: the folder cannot be made.
    pub fn mount(folder: &Path, kib: u32) -> Result<Option<Self>> {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "c3po-tests"]).arg(folder);
        let mounted = mount.stdin(Stdio::null()).stderr(Stdio::null()).status();
        let is_mounted = mounted.is_ok_and(|status| status.success());
        Ok(is_mounted.then(|| Self { path: folder.to_owned() }))
    }

    /// Returns the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fills what is left of it with one file, but for `kib`, and returns that file.
    ///
    /// Errors: it cannot be written at all.
    pub fn fill(&self, kib: u32) -> Result<PathBuf> {
        let (filler, room) = (self.path.join("filler"), self.path.join("room"));
        std::fs::write(&room, vec![0; kib as usize * 1024]).context("keeping room")?;
        let mut written = std::fs::File::create(&filler).context("filling a disk")?;
        while std::io::Write::write_all(&mut written, &[0; 4096]).is_ok() {}
        std::fs::remove_file(room).context("giving room back")?;
        Ok(filler)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Whoever still has a file open there keeps it until they end.
        let _ = Command::new("umount").arg("-l").arg(&self.path).stderr(Stdio::null()).status();
    }
}
