//! `backup` and `restore`: the content of the embedded store in one file.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use c3po_shared::text::shell_word;

use crate::config::{Config, ServeFlags, StoreAddress};
use crate::server::{PrintedCommand, this_program};
use crate::store::sqlite::SqliteStore;

/// Copies the store into a new file. Returns the output.
///
/// Errors: the store is in Redis, or it cannot be copied.
pub fn back_up(settings: ServeFlags, file: &Path) -> Result<String> {
    let command = settings.command.clone().unwrap_or_else(this_program);
    let (database, data_dir) = embedded(settings)?;
    SqliteStore::back_up(&database, &data_dir, file)?;
    let word = |path: &Path| shell_word(&path.display().to_string());
    Ok(format!(
        "{} contains every message, every key and the certificate: keep it as secret as a password.\n\
         To restore it, stop the coordinator and run:\n\n  \
         {command} --data-dir {} --store {} restore {}\n",
        file.display(),
        word(&data_dir),
        shell_word(&format!("sqlite:{}", database.display())),
        word(file),
    ))
}

/// Replaces the store with a backup. Returns the output.
///
/// Errors: the store is in Redis, a coordinator is running, or the file is not a backup.
pub fn restore(settings: ServeFlags, file: &Path) -> Result<String> {
    let (command, listen) = (settings.command.clone(), settings.listen);
    let (database, data_dir) = embedded(settings)?;
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
