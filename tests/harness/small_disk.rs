//! A disk of a few kilobytes that can be filled: a file system in memory. Only a privileged user can mount one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

/// A mounted folder. Dropping it unmounts the folder.
#[derive(Debug)]
pub struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// Creates a folder and mounts a disk of that many KiB on it. Returns `None` if that is not permitted.
    ///
    /// Errors: the folder cannot be created.
    pub fn mount(folder: &Path, kib: u32) -> Result<Option<Self>> {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let mut mount = Command::new("mount");
        mount
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={kib}k,mode=755"),
                "c3po-tests",
            ])
            .arg(folder);
        let mounted = mount.stdin(Stdio::null()).stderr(Stdio::null()).status();
        let is_mounted = mounted.is_ok_and(|status| status.success());
        Ok(is_mounted.then(|| Self {
            path: folder.to_owned(),
        }))
    }

    /// Returns the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fills the disk with one file until only `kib` are free, and returns the path of that file.
    ///
    /// Errors: the file cannot be written at all.
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
        // Processes with open files there keep the file system until they close them.
        let _ = Command::new("umount")
            .arg("-l")
            .arg(&self.path)
            .stderr(Stdio::null())
            .status();
    }
}
