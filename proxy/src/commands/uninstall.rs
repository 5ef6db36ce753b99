//! `c3po uninstall`: reverts `c3po install`.

use std::fs;

use anyhow::Result;

use super::claude_code::bundle::Bundle;
use super::claude_code::client::ClaudeCommand;
use super::claude_code::permissions;
use super::claude_code::settings::{self, Members, SettingsFile};
use super::claude_code::status_line::{self, STATUS_LINE, StatusLineOwner};
use super::claude_code::steps::{Outcome, Steps};
use super::claude_code::{MARKETPLACE, PLUGIN, stopped};
use super::failure::Failure;
use super::print::Printer;
use crate::config::{Config, as_written, text_of};

/// The options of the removal.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Print the changes without making them
    #[arg(long)]
    dry_run: bool,
    /// The claude command [default: the one in PATH]
    #[arg(long, value_name = "PATH")]
    claude: Option<std::path::PathBuf>,
}

const CALLS: [&[&str]; 2] = [
    &["plugin", "uninstall", PLUGIN],
    &["plugin", "marketplace", "remove", MARKETPLACE],
];

/// The hooks of running sessions would look for a program that is gone.
const RELOAD: &str = "Type /reload-plugins in running sessions, or end them.";

pub(super) async fn run(
    config: &Config,
    printer: &Printer,
    arguments: Arguments,
) -> Result<(), Failure> {
    let mut steps = Steps::new(printer, arguments.dry_run);
    if config.places.home.is_none() {
        return Err(Failure::Usage(
            "HOME is not set: nothing can be found".to_owned(),
        ));
    }
    let bundle = Bundle::in_data(&config.places.data_dir);
    bundle.check().map_err(stopped)?;
    let file = SettingsFile::in_folder(&config.places.claude_dir);
    let before = file.read().map_err(stopped)?;
    let changed = without_ours(&before, &file, &bundle).map_err(stopped)? != before;
    let backup = if arguments.dry_run {
        None
    } else {
        file.back_up().map_err(stopped)?
    };
    match ClaudeCommand::find(arguments.claude.as_deref(), &config.places) {
        Some(claude) => unregister(&claude, &mut steps).await?,
        None => tell_missing(&mut steps)?,
    }
    if arguments.dry_run {
        return tell_plan(&file, &bundle, changed, steps);
    }
    take_out(&file, &bundle).map_err(stopped)?;
    file.without_needless(backup).map_err(stopped)?;
    tell_settings(&file, changed, &mut steps)?;
    remove_files(&bundle, &mut steps)?;
    for folder in [&config.places.data_dir, &config.state_dir] {
        // Only if it is empty: other programs may keep files there.
        let _ = fs::remove_dir(folder);
    }
    steps.end(&next_steps(config))
}

fn tell_settings(file: &SettingsFile, changed: bool, steps: &mut Steps<'_>) -> Result<(), Failure> {
    let (outcome, found) = if changed {
        (Outcome::Done, "has no c3po settings any more")
    } else {
        (Outcome::Unchanged, "has no c3po settings")
    };
    let mut text = format!("{} {found}", file.path().display());
    for backup in file.backups().map_err(stopped)? {
        text += &format!("\nbackup: {}", backup.display());
    }
    steps.tell("settings", outcome, text)
}

fn remove_files(bundle: &Bundle, steps: &mut Steps<'_>) -> Result<(), Failure> {
    let removed = bundle.remove().map_err(stopped)?;
    let outcome = if removed {
        Outcome::Done
    } else {
        Outcome::Unchanged
    };
    steps.tell(
        "files",
        outcome,
        format!("{} is gone", bundle.folder().display()),
    )
}

/// Returns the advice at the end: running sessions, the kept file, and what stays valid: the key of this host and the login
/// of its person.
fn next_steps(config: &Config) -> String {
    let config_file = &config.places.config_file;
    let mut next = RELOAD.to_owned();
    if config_file.exists() {
        next += &format!(
            " {} is kept, because the commands of c3po use it.",
            config_file.display()
        );
    }
    // The environment may have a key of another host.
    let written = text_of(config_file).ok().flatten();
    let written = written.map(|text| Config::of_file(&text).coordinators);
    if let Some(written) = &written
        && let Some(id) = written.key_id()
    {
        let urls: Vec<_> = written
            .urls
            .iter()
            .map(|target| as_written(target))
            .collect();
        next += &format!(
            "\nThis host's key {id} stays valid at {}. To revoke it, run `c3po-coordinator keys revoke {id}` on the \
             coordinator's machine.",
            urls.join(", ")
        );
    }
    if config.places.person_file.exists() {
        next += "\nThe login of this host's person stays valid. To revoke it, run `c3po logout`.";
    }
    next
}

fn tell_missing(steps: &mut Steps<'_>) -> Result<(), Failure> {
    let calls = CALLS.map(|call| format!("claude {}", call.join(" ")));
    let text = format!(
        "there is no claude command here; where there is one, run:\n{}",
        calls.join("\n")
    );
    steps.tell("plugin", Outcome::Left, text)
}

fn tell_plan(
    file: &SettingsFile,
    bundle: &Bundle,
    changed: bool,
    mut steps: Steps<'_>,
) -> Result<(), Failure> {
    if changed {
        let text = format!(
            "remove the settings of c3po from {}; a backup is kept beside it",
            file.path().display()
        );
        steps.tell("settings", Outcome::Would, text)?;
    }
    if bundle.folder().exists() {
        steps.tell(
            "files",
            Outcome::Would,
            format!("remove {}", bundle.folder().display()),
        )?;
    }
    steps.end("Nothing was changed. Run this without --dry-run to make the changes.")
}

/// Removes our entries that `claude` left in the file, and our status line.
fn take_out(file: &SettingsFile, bundle: &Bundle) -> Result<()> {
    let now = file.read()?;
    let wanted = without_ours(&now, file, bundle)?;
    if wanted == now {
        Ok(())
    } else {
        file.write(&wanted)
    }
}

/// Returns settings without our members. Our status line is replaced by that of the newest backup without ours, or
/// removed.
fn without_ours(settings: &Members, file: &SettingsFile, bundle: &Bundle) -> Result<Members> {
    let is_ours = |members: &Members| {
        matches!(
            status_line::owner(members, &bundle.program()),
            StatusLineOwner::Us | StatusLineOwner::Older
        )
    };
    let mut wanted = settings.clone();
    settings::remove_ours(&mut wanted);
    permissions::take_back(&mut wanted);
    if !is_ours(&wanted) {
        return Ok(wanted);
    }
    // An unreadable backup has nothing to restore.
    let backups = file
        .backups()?
        .into_iter()
        .rev()
        .filter_map(|backup| settings::members_of(&backup).ok());
    match backups
        .into_iter()
        .find(|members| !is_ours(members))
        .and_then(|mut members| members.remove(STATUS_LINE))
    {
        Some(theirs) => wanted.insert(STATUS_LINE.to_owned(), theirs),
        None => wanted.shift_remove(STATUS_LINE),
    };
    Ok(wanted)
}

/// Removes the plugin and the marketplace from Claude Code. It is not a failure if they are gone.
async fn unregister(claude: &ClaudeCommand, steps: &mut Steps<'_>) -> Result<(), Failure> {
    if steps.dry {
        return CALLS.iter().try_for_each(|call| {
            steps.tell(
                "plugin",
                Outcome::Would,
                format!("run {}", claude.typed(call)),
            )
        });
    }
    let plugin_gone = claude.call(CALLS[0]).await?;
    if !plugin_gone.done && claude.plugin().await?.is_some() {
        return Err(refused(claude, CALLS[0], &plugin_gone.text));
    }
    let marketplace_gone = claude.call(CALLS[1]).await?;
    if !marketplace_gone.done && claude.knows_marketplace(MARKETPLACE).await? {
        return Err(refused(claude, CALLS[1], &marketplace_gone.text));
    }
    let client = claude.typed(&[]);
    let client = client.trim_end();
    if plugin_gone.done || marketplace_gone.done {
        return steps.tell(
            "plugin",
            Outcome::Done,
            format!("{PLUGIN} is removed from {client}"),
        );
    }
    steps.tell(
        "plugin",
        Outcome::Unchanged,
        format!("{client} has no {PLUGIN}: there is nothing to remove"),
    )
}

fn refused(claude: &ClaudeCommand, call: &[&str], said: &str) -> Failure {
    let why = format!("`{}` failed:\n{said}", claude.typed(call));
    Failure::Stopped {
        why,
        advice: "Fix the problem that it names and run this again.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_status_line_of_a_moved_c3po_is_removed_and_the_one_that_it_replaced_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let (file, bundle) = (
            SettingsFile::in_folder(folder.path()),
            Bundle::in_data(folder.path()),
        );
        let line =
            |command: &str| json!({"a": 1, "statusLine": {"type": "command", "command": command}});
        let check = |command: &str, expected: &Value| {
            let left = without_ours(line(command).as_object().unwrap(), &file, &bundle).unwrap();
            assert_eq!(Value::Object(left), *expected, "{command}");
        };
        check("/moved/c3po statusline", &json!({"a": 1}));
        check("'/an older/bin/c3po' statusline", &json!({"a": 1}));
        check("~/line.sh", &line("~/line.sh"));
        for (time, command) in [
            (1, "~/oldest.sh"),
            (2, "~/mine.sh"),
            (3, "/moved/c3po statusline"),
        ] {
            let backup = folder
                .path()
                .join(format!("settings.json.before-c3po-{time}"));
            fs::write(backup, line(command).to_string()).unwrap();
        }
        check("/moved/c3po statusline", &line("~/mine.sh"));
    }
}
