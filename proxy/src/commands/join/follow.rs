//! The login of this host's person after a join.

use super::known::KnownCoordinators;
use crate::commands::claude_code::host_file;
use crate::config::{Config, PERSON_FILE};

/// Makes the stored login count for the coordinators that the host has now, if it counted for those that it had before: one of
/// these has proved that it is of the same fleet.
///
/// Errors: the file cannot be edited.
pub(super) fn follow(
    config: &Config,
    before: &KnownCoordinators,
    now: &KnownCoordinators,
) -> anyhow::Result<()> {
    let folder = &config.places.settings;
    let login = config.person.login.as_ref();
    let is_stale = login.is_some_and(|login| login.is_for(&before.targets(), &before.fingerprints));
    if before == now || !is_stale {
        return Ok(());
    }
    let Some(text) = folder.own_text(PERSON_FILE).map_err(anyhow::Error::msg)? else {
        return Ok(());
    };
    let text = host_file::replace(&text, &now.values())?;
    Ok(folder.write(PERSON_FILE, &text)?)
}
