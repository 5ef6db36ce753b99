//! `backup` and `restore`: the content of the embedded store in one file.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use c3po_shared::text::shell_word;
use rustix::process::geteuid;

use crate::config::{Config, ServeFlags, StoreAddress};
use crate::server::{PrintedCommand, this_program};
use crate::store::sqlite::SqliteStore;
use crate::trusted;

/// Copies the store into a new file. Returns the output.
///
/// Errors: the store is in Redis, or it cannot be copied.
pub fn back_up(settings: ServeFlags, file: &Path) -> Result<String> {
    let command = settings.command.clone().unwrap_or_else(this_program);
    let (database, data_dir) = embedded(settings)?;
    SqliteStore::back_up(&database, &data_dir, file)?;
    let exposed = check_writers(file, &data_dir).err().map(|reason| {
        format!("Others can replace it, so move it to a folder of your own now: {reason:#}.\n")
    });
    let word = |path: &Path| shell_word(&path.display().to_string());
    Ok(format!(
        "{} contains every message, every key and the certificate: keep it as secret as a password.\n{}\
         To restore it, stop the coordinator and run:\n\n  \
         {command} --data-dir {} --store {} restore {}\n",
        file.display(),
        exposed.unwrap_or_default(),
        word(&data_dir),
        shell_word(&format!("sqlite:{}", database.display())),
        word(file),
    ))
}

/// The backups that `restore` accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// One that only this user, root or the owner of the data folder can have written or replaced.
    Own,
    /// Any: the person trusts those who could have written it.
    Any,
}

/// Replaces the store with a backup. Returns the output.
///
/// Errors: the store is in Redis, a coordinator is running, or the file is not a backup or not of that origin.
pub fn restore(settings: ServeFlags, file: &Path, origin: Origin) -> Result<String> {
    let (command, listen) = (settings.command.clone(), settings.listen);
    let (database, data_dir) = embedded(settings)?;
    if origin == Origin::Own {
        check_own(file, &data_dir)?;
    }
    let typed = PrintedCommand::new(command.as_deref(), &data_dir, listen);
    let moved = SqliteStore::restore(file, &database, &data_dir)?;
    let mut lines = vec![format!(
        "{} was restored from {}",
        database.display(),
        file.display()
    )];
    lines.extend(
        moved
            .iter()
            .map(|path| format!("the previous files are kept: {}", path.display())),
    );
    lines.push(format!(
        "\nLogins and keys that were revoked after the backup are valid again. Start the coordinator, and revoke them once \
         more. Rotate again each key that was rotated after it. Open invites and codes of logins were deleted:\n\n  {}\n  {}\n",
        typed.line("logins list"),
        typed.line("keys list")
    ));
    Ok(lines.join("\n"))
}

/// Checks that no other users can have written or replaced a backup. The owner of the data folder may: the database is theirs.
fn check_writers(file: &Path, data_dir: &Path) -> io::Result<()> {
    let holder = fs::metadata(data_dir).map_or_else(|_| geteuid().as_raw(), |found| found.uid());
    trusted::read_required(file, 0, holder).map(drop)
}

/// Checks that a backup may be restored.
fn check_own(file: &Path, data_dir: &Path) -> Result<()> {
    fs::File::open(file).with_context(|| format!("{} cannot be read", file.display()))?;
    check_writers(file, data_dir).with_context(|| {
        format!(
            "{} may contain logins, keys and messages that others put there. If you trust everyone who could write it, add \
             `--trust-file`",
            file.display()
        )
    })
}

/// Returns the path of the database and the data folder.
fn embedded(settings: ServeFlags) -> Result<(PathBuf, PathBuf)> {
    match settings.into_config()? {
        Config {
            store: StoreAddress::Sqlite(path),
            data_dir,
            ..
        } => Ok((path, data_dir)),
        Config { store, .. } => bail!(
            "the messages are in {store}: copy its files as Redis documents it (`redis-cli --rdb FILE`), and the folder \
             tls of the data folder beside them"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn a_backup_that_others_could_have_written_needs_the_option() -> Result<()> {
        let place = tempfile::tempdir()?;
        let (data, share) = (place.path().join("data"), place.path().join("share"));
        let file = share.join("c3po.backup");
        fs::create_dir(&data)?;
        fs::create_dir(&share)?;
        fs::write(&file, "a backup")?;
        let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
        let check = |of_file: u32, of_share: u32, reason: Option<&str>| -> Result<()> {
            set(&file, of_file)?;
            set(&share, of_share)?;
            let refused = check_own(&file, &data).err();
            let refused = refused.map(|error| format!("{error:#}"));
            let is_expected = match (&refused, reason) {
                (None, None) => true,
                (Some(refused), Some(reason)) => {
                    refused.contains(reason) && refused.contains("`--trust-file`")
                }
                _ => false,
            };
            assert!(is_expected, "{of_file:o} {of_share:o}: {refused:?}");
            Ok(())
        };
        check(0o600, 0o700, None)?;
        check(0o644, 0o755, None)?;
        check(0o600, 0o1777, None)?;
        check(0o666, 0o755, Some("c3po.backup is writable by other users"))?;
        check(0o777, 0o777, Some("share is writable by other users"))?;
        // Only root can give a file away.
        if chown(&file, Some(12_345), None).is_ok() {
            check(0o600, 0o755, Some("c3po.backup belongs to uid 12345"))?;
            chown(&data, Some(12_345), None)?;
            check(0o600, 0o755, None)?;
        }
        Ok(())
    }
}
