//! The login of this host's person after a join.

use super::known::KnownCoordinators;
use crate::commands::claude_code::host_file;
use crate::config::{Config, PERSON_FILE, PersonLogin};

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
    let Some(text) = folder.own_text(PERSON_FILE).map_err(anyhow::Error::msg)? else {
        return Ok(());
    };
    let was_for_them = |login: PersonLogin| login.is_for(&before.targets(), &before.fingerprints);
    if before == now || !PersonLogin::of(&text).is_ok_and(was_for_them) {
        return Ok(());
    }
    let text = host_file::replace(&text, &now.values())?;
    Ok(folder.write(PERSON_FILE, &text)?)
}
