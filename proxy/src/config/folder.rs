//! The folder of this host's settings, opened once: all files are those of one folder, wherever its path leads later. A project
//! may name a link there, and turn it between a folder of its own and that of the user.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use c3po_shared::text::copy_command;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, renameat, statat, unlinkat,
};

use super::private;

/// The name of the configuration.
pub const CONFIG_FILE: &str = "config.toml";
/// The name of the login of this host's person.
pub const PERSON_FILE: &str = "person.toml";
/// How often a file is read that another process exchanges meanwhile.
const TRIES: usize = 3;

/// The folder of this host's settings, as it was when it was opened.
#[derive(Debug, Clone)]
pub struct SettingsFolder {
    /// As the environment names it: for texts only.
    shown: PathBuf,
    opened: Arc<io::Result<Opened>>,
}

#[derive(Debug)]
struct Opened {
    folder: File,
    /// Its own path. If this is a folder of the user, no project can put a link there.
    path: PathBuf,
}

/// Returns the path of an open folder that was opened as `shown`.
#[cfg(target_os = "linux")]
fn path_of(folder: &File, shown: &Path) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd as _;
    std::fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd()))
        .or_else(|_| path_without_links(folder, shown))
}

/// Returns the path of an open folder without links, for a process that has no `/proc`.
///
/// Errors: another folder is there by now.
#[cfg(target_os = "linux")]
fn path_without_links(folder: &File, shown: &Path) -> io::Result<PathBuf> {
    let path = shown.canonicalize()?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut reached = rustix::fs::open("/", flags, Mode::empty())?;
    for part in path.components().skip(1) {
        reached = openat(&reached, part.as_os_str(), flags, Mode::empty())?;
    }
    if identity(&fstat(&reached)?) == identity(&fstat(folder)?) {
        Ok(path)
    } else {
        Err(io::Error::other("it changes all the time"))
    }
}

/// Returns the path of an open folder.
#[cfg(target_os = "macos")]
fn path_of(folder: &File, _: &Path) -> io::Result<PathBuf> {
    use std::os::unix::ffi::OsStringExt as _;
    let path = rustix::fs::getpath(folder)?.into_bytes();
    Ok(std::ffi::OsString::from_vec(path).into())
}

impl SettingsFolder {
    /// Opens a folder. One that is missing or cannot be opened is like that in each answer.
    pub fn open(shown: &Path) -> Self {
        let flags = OFlags::DIRECTORY.bits().cast_signed();
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(shown);
        let opened = opened.and_then(|folder| {
            let path = path_of(&folder, shown)?;
            Ok(Opened { folder, path })
        });
        let (shown, opened) = (shown.to_owned(), Arc::new(opened));
        Self { shown, opened }
    }

    /// Returns one that was not opened, which has no files.
    pub(super) fn unopened(shown: &Path) -> Self {
        let (shown, opened) = (shown.to_owned(), Arc::new(Err(ErrorKind::NotFound.into())));
        Self { shown, opened }
    }

    /// Returns this folder; one that is missing is made and opened.
    ///
    /// Errors: it cannot be made or opened.
    pub fn made(&self) -> io::Result<Self> {
        if self.opened().is_ok() {
            return Ok(self.clone());
        }
        private::make_folder(&self.shown)?;
        let made = Self::open(&self.shown);
        made.opened().map(drop)?;
        Ok(made)
    }

    fn opened(&self) -> io::Result<&Opened> {
        let again = |error: &io::Error| {
            let os = error.raw_os_error().map(io::Error::from_raw_os_error);
            os.unwrap_or_else(|| error.kind().into())
        };
        self.opened.as_ref().as_ref().map_err(again)
    }

    /// Returns the path of a folder or file in it, to which no link that a project turns leads.
    pub fn path_of(&self, name: &str) -> PathBuf {
        let folder = self.opened().map_or(&self.shown, |opened| &opened.path);
        folder.join(name)
    }

    /// Returns whether the folder at that path is this one.
    pub fn is_at(&self, path: &Path) -> bool {
        let place = |of: &Self| Some(identity(&fstat(&of.opened().ok()?.folder).ok()?));
        self.shown == path || place(self).is_some_and(|own| place(&Self::open(path)) == Some(own))
    }

    /// Returns the text of a file, if it exists.
    ///
    /// Errors: it cannot be read, or others could have written it.
    pub fn text(&self, name: impl AsRef<Path>) -> Result<Option<String>, String> {
        let name = name.as_ref();
        self.checked(name, self.read(name, OFlags::empty()))
    }

    /// Returns the text of a file that has no other name, if it exists. A file of another folder is not accepted: a project may
    /// have made a link to it.
    ///
    /// Errors: as for [`Self::text`]; or it is a link.
    pub fn own_text(&self, name: &str) -> Result<Option<String>, String> {
        self.problem_of_link(name).map_or(Ok(()), Err)?;
        self.checked(name.as_ref(), self.own(name))
    }

    /// Returns the content of such a file, also if others could have written it.
    ///
    /// Errors: it cannot be read, or is a link.
    pub fn own_content(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match self.own(name) {
            Ok((content, _)) => Ok(Some(content)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns why a file is not that of this folder, if it is a link: a project may have made that, beside a `config.toml` and
    /// queued calls of its own.
    pub fn problem_of_link(&self, name: &str) -> Option<String> {
        let found = self.entry(name).ok()?;
        let path = self.shown.join(name);
        let command = copy_command(&path.display().to_string(), private::own_uid());
        let path = path.display();
        if FileType::from_raw_mode(found.st_mode) == FileType::Symlink {
            return Some(format!(
                "{path} is a link, which a project may have made: remove it, or put the file itself there"
            ));
        }
        (found.st_nlink > 1).then(|| {
            format!(
                "{path} is a link: the file has another name too, as a project or a backup makes it. If it is yours, copy it: \
                 `{command}`"
            )
        })
    }

    /// Writes a whole file atomically, readable by its owner alone. Replaces a link.
    pub fn write(&self, name: impl AsRef<Path>, text: &str) -> io::Result<()> {
        let name = name.as_ref();
        self.replace(name, text).map_err(|error| {
            let shown = self.shown.join(name);
            let why = format!("cannot write {}: {error}", shown.display());
            io::Error::new(error.kind(), why)
        })
    }

    fn replace(&self, name: &Path, text: &str) -> io::Result<()> {
        let folder = &self.opened()?.folder;
        let mut beside = name.as_os_str().to_owned();
        beside.push(format!(".{}", std::process::id()));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut file = File::from(openat(folder, &beside, flags, Mode::RUSR | Mode::WUSR)?);
        let written = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(renameat(folder, &beside, folder, name)?))
            .and_then(|()| folder.sync_all());
        if written.is_err() {
            // A temporary file of ours that is not needed any more.
            let _ = unlinkat(folder, &beside, AtFlags::empty());
        }
        written
    }

    /// Writes a text beside a file and removes it again: the folder and its disk have room for it.
    pub fn try_beside(&self, name: impl AsRef<Path>, text: &str) -> io::Result<()> {
        let beside = name.as_ref();
        let beside = beside.with_extension(format!("room-{}", std::process::id()));
        self.write(&beside, text)?;
        self.remove(&beside)
    }

    /// Removes a file.
    pub fn remove(&self, name: impl AsRef<Path>) -> io::Result<()> {
        Ok(unlinkat(
            &self.opened()?.folder,
            name.as_ref(),
            AtFlags::empty(),
        )?)
    }

    /// Returns the content and the file itself.
    fn read(&self, name: &Path, flags: OFlags) -> io::Result<(Vec<u8>, File)> {
        let folder = &self.opened()?.folder;
        let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
        let (mut file, mut content) = (
            File::from(openat(folder, name, flags, Mode::empty())?),
            Vec::new(),
        );
        file.read_to_end(&mut content)?;
        Ok((content, file))
    }

    /// Reads a file that is not a link. Another process may exchange the file at any time.
    fn own(&self, name: &str) -> io::Result<(Vec<u8>, File)> {
        for _ in 0..TRIES {
            let (content, file) = self.read(name.as_ref(), OFlags::NOFOLLOW)?;
            let (read, entry) = (fstat(&file)?, self.entry(name)?);
            if identity(&read) == identity(&entry) && entry.st_nlink <= 1 {
                return Ok((content, file));
            }
        }
        Err(io::Error::other("it is a link, or it changes all the time"))
    }

    fn entry(&self, name: &str) -> io::Result<Stat> {
        Ok(statat(
            &self.opened()?.folder,
            name,
            AtFlags::SYMLINK_NOFOLLOW,
        )?)
    }

    /// Returns the text of a file that was read, if it exists and no one else could have written it.
    fn checked(
        &self,
        name: &Path,
        read: io::Result<(Vec<u8>, File)>,
    ) -> Result<Option<String>, String> {
        let path = self.shown.join(name);
        let text = read.and_then(|(content, file)| {
            let folder = self.opened()?.folder.metadata()?;
            let exposed = private::exposed_part(&self.shown, &folder);
            let exposed = exposed.or(private::exposed_part(&path, &file.metadata()?));
            let text = String::from_utf8(content);
            let text = text.map_err(|error| io::Error::new(ErrorKind::InvalidData, error));
            Ok(exposed.map_or(Ok(text?), Err))
        });
        match text {
            Ok(text) => text.map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound && !leads_away(&path) => Ok(None),
            Err(error) => Err(format!("cannot read {}: {error}", path.display())),
        }
    }
}

/// Returns the device and the number of a file.
fn identity(of: &Stat) -> (impl PartialEq + use<>, impl PartialEq + use<>) {
    (of.st_dev, of.st_ino)
}

/// Returns whether the path of a missing file has a link to a place that is not there now.
fn leads_away(path: &Path) -> bool {
    path.ancestors()
        .any(|part| part.is_symlink() && !part.exists())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::thread;

    use super::*;

    #[test]
    fn all_files_are_those_of_the_folder_that_was_opened() {
        let work = tempfile::tempdir().unwrap();
        let (own, other) = (work.path().join("own"), work.path().join("other"));
        for folder in [&own, &other] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(own.join(CONFIG_FILE), "own").unwrap();
        fs::write(other.join(CONFIG_FILE), "other").unwrap();
        let link = work.path().join("link");
        symlink(&own, &link).unwrap();
        let opened = SettingsFolder::open(&link);
        assert!(opened.is_at(&own) && !opened.is_at(&other));
        fs::remove_file(&link).unwrap();
        symlink(&other, &link).unwrap();
        assert_eq!(opened.text(CONFIG_FILE).unwrap().as_deref(), Some("own"));
        assert_eq!(opened.text(PERSON_FILE), Ok(None));
        opened.try_beside(PERSON_FILE, "login").unwrap();
        opened.write(PERSON_FILE, "login").unwrap();
        assert_eq!(fs::read_to_string(own.join(PERSON_FILE)).unwrap(), "login");
        let journal = opened.path_of("journal");
        assert_eq!(journal, own.canonicalize().unwrap().join("journal"));
        opened.remove(PERSON_FILE).unwrap();
        let files = |folder: &Path| fs::read_dir(folder).unwrap().count();
        assert_eq!((files(&own), files(&other)), (1, 1));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn without_proc_the_path_is_that_of_the_opened_folder_or_none() {
        let work = tempfile::tempdir().unwrap();
        let (own, other) = (work.path().join("own"), work.path().join("other"));
        for folder in [&own, &other] {
            fs::create_dir(folder).unwrap();
        }
        let link = work.path().join("link");
        symlink(&own, &link).unwrap();
        let folder = File::open(&link).unwrap();
        let path = path_without_links(&folder, &link).unwrap();
        assert_eq!(path, own.canonicalize().unwrap());
        fs::remove_file(&link).unwrap();
        symlink(&other, &link).unwrap();
        assert!(path_without_links(&folder, &link).is_err());
    }

    #[test]
    fn a_file_that_becomes_a_link_is_never_read_as_the_own_one() {
        let work = tempfile::tempdir().unwrap();
        let (folder, theirs) = (work.path().join("c3po"), work.path().join("theirs"));
        fs::create_dir(&folder).unwrap();
        fs::write(&theirs, "theirs").unwrap();
        let (opened, beside) = (SettingsFolder::open(&folder), folder.join("beside"));
        let turning = thread::spawn(move || {
            for _ in 0..2_000 {
                fs::write(&beside, "own").unwrap();
                fs::rename(&beside, folder.join(PERSON_FILE)).unwrap();
                symlink(&theirs, &beside).unwrap();
                fs::rename(&beside, folder.join(PERSON_FILE)).unwrap();
            }
        });
        while !turning.is_finished() {
            let read = opened.own_text(PERSON_FILE);
            assert_ne!(read.ok().flatten().as_deref(), Some("theirs"));
        }
        turning.join().unwrap();
    }

    #[test]
    fn a_missing_folder_has_no_files_until_it_is_made() {
        let work = tempfile::tempdir().unwrap();
        let missing = SettingsFolder::open(&work.path().join("a/c3po"));
        assert_eq!(missing.text(CONFIG_FILE), Ok(None));
        assert!(missing.write(CONFIG_FILE, "x").is_err());
        let made = missing.made().unwrap();
        made.write(CONFIG_FILE, "x").unwrap();
        assert_eq!(missing.text(CONFIG_FILE), Ok(None));
        assert_eq!(made.text(CONFIG_FILE).unwrap().as_deref(), Some("x"));
    }
}
