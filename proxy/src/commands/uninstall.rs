//! `c3po uninstall`: takes back what `c3po install` did.

use std::fs;

use anyhow::{Context, Result};

use super::claude_code::bundle::Bundle;
use super::claude_code::client::Client;
use super::claude_code::record::Record;
use super::claude_code::settings::{self, STATUS_LINE, Settings};
use super::claude_code::status_line::{self, Owner};
use super::claude_code::steps::{Outcome, Steps};
use super::claude_code::{MARKETPLACE, PLUGIN, stopped};
use super::print::Printer;
use super::session::Failure;
use crate::config::Config;

/// How it is taken back.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Print what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// The claude command [default: the one in PATH]
    #[arg(long, value_name = "PATH")]
    claude: Option<std::path::PathBuf>,
}

const CALLS: [&[&str]; 2] = [&["plugin", "uninstall", PLUGIN], &["plugin", "marketplace", "remove", MARKETPLACE]];

/// Their hooks would look for a program that is gone.
const RELOAD: &str = "Type /reload-plugins in sessions that run, or end them.";

pub(super) async fn run(config: &Config, printer: &Printer, arguments: Arguments) -> Result<(), Failure> {
    let mut steps = Steps::new(printer, arguments.dry_run);
    if config.places.home.is_none() {
        return Err(Failure::Usage("HOME is not set: nothing can be found".to_owned()));
    }
    let bundle = Bundle::in_data(&config.places.data_dir);
    let file = Settings::in_folder(&config.places.claude_dir);
    let before = file.text().map_err(stopped)?;
    let record = Record::read(&config.state_dir).map_err(stopped)?;
    let before = match (&record, before) {
        (Some(record), Some(now)) => Some(record.in_form_before(&now).map_err(stopped)?.unwrap_or(now)),
        (_, before) => before,
    };
    let wanted = before.as_deref().map(|before| as_it_was(before, record.as_ref(), &bundle)).transpose();
    let wanted = wanted.map_err(stopped)?;

    let changed = before != wanted;
    let backup = if arguments.dry_run { None } else { file.back_up().map_err(stopped)? };

    if let (Some(record), false) = (&record, arguments.dry_run) {
        // From here on claude may have written the settings in its own form.
        Record { unfinished: true, ..record.clone() }.write(&config.state_dir).map_err(stopped)?;
    }
    match Client::find(arguments.claude.as_deref(), &config.places) {
        Some(claude) => unregister(&claude, &mut steps).await?,
        None => tell_missing(&mut steps)?,
    }
    if arguments.dry_run {
        return tell_plan(&file, &bundle, changed, steps);
    }
    let path = file.path().display();
    match wanted {
        None => steps.tell("settings", Outcome::Unchanged, format!("there is no {path}"))?,
        Some(wanted) => {
            let exactly = restore(&file, &wanted, record.as_ref(), &bundle).map_err(stopped)?;
            if let (true, Some(backup)) = (exactly, backup) {
                fs::remove_file(&backup).with_context(|| backup.display().to_string()).map_err(stopped)?;
            }
            file.without_needless(record.and_then(|record| record.backup)).map_err(stopped)?;
            let outcome = if changed { Outcome::Done } else { Outcome::Unchanged };
            let mut text = format!("{path} has nothing of c3po");
            for backup in file.backups().map_err(stopped)? {
                text += &format!("\nbackup: {}", backup.display());
            }
            steps.tell("settings", outcome, text)?;
        }
    }
    let removed = bundle.remove().map_err(stopped)?;
    let outcome = if removed { Outcome::Done } else { Outcome::Unchanged };
    steps.tell("files", outcome, format!("{} is gone", bundle.folder().display()))?;
    Record::remove(&config.state_dir).map_err(stopped)?;
    for folder in [&config.places.data_dir, &config.state_dir] {
        // Only if it is empty: others keep things there.
        let _ = fs::remove_dir(folder);
    }
    let config_file = &config.places.config_file;
    steps.end(&if config_file.exists() {
        format!("{RELOAD} {} stays: the commands of c3po use it.", config_file.display())
    } else {
        RELOAD.to_owned()
    })
}

fn tell_missing(steps: &mut Steps<'_>) -> Result<(), Failure> {
    let calls = CALLS.map(|call| format!("claude {}", call.join(" ")));
    let text = format!("there is no claude command to ask; where there is one, run:\n{}", calls.join("\n"));
    steps.tell("plugin", Outcome::Left, text)
}

fn tell_plan(file: &Settings, bundle: &Bundle, changed: bool, mut steps: Steps<'_>) -> Result<(), Failure> {
    if changed {
        let text = format!("take ours out of {}; the rest stays as it is", file.path().display());
        steps.tell("settings", Outcome::Would, text)?;
    }
    if bundle.folder().exists() {
        steps.tell("files", Outcome::Would, format!("remove {}", bundle.folder().display()))?;
    }
    steps.end("Nothing was changed. The same without --dry-run does it.")
}

/// Returns the settings without ours: byte for byte those before the installation, if nothing else was changed since.
fn as_it_was(now: &str, record: Option<&Record>, bundle: &Bundle) -> Result<String> {
    if let Some(backup) = record.and_then(|record| record.backup.as_ref())
        && let Ok(original) = fs::read_to_string(backup)
    {
        let mut installed = settings::with_ours_of(&original, now)?;
        if status_line::owner(now, &bundle.program())? == Owner::Us {
            installed = settings::with(&installed, STATUS_LINE, &status_line::value(&bundle.program()))?;
        }
        if installed == now {
            return Ok(original);
        }
    }
    stripped(now, record, bundle)
}

/// Returns a text without our members, and with the status line that ours took the place of.
fn stripped(now: &str, record: Option<&Record>, bundle: &Bundle) -> Result<String> {
    let text = if settings::has_ours(now)? { settings::without_ours(now)? } else { now.to_owned() };
    if !matches!(status_line::owner(&text, &bundle.program())?, Owner::Us | Owner::Older) {
        return Ok(text);
    }
    match record.and_then(|record| record.status_line.as_deref()) {
        Some(raw) => settings::with_raw(&text, STATUS_LINE, raw),
        None => settings::without(&text, STATUS_LINE),
    }
}

/// Has Claude Code forget the plugin and the marketplace. What it does not know any more is no failure.
async fn unregister(claude: &Client, steps: &mut Steps<'_>) -> Result<(), Failure> {
    if steps.dry {
        return CALLS
            .iter()
            .try_for_each(|call| steps.tell("plugin", Outcome::Would, format!("run {}", claude.typed(call))));
    }
    let plugin_gone = claude.call(CALLS[0]).await?;
    if !plugin_gone.done && claude.plugin().await?.is_some() {
        return Err(refused(claude, CALLS[0], &plugin_gone.text));
    }
    let marketplace_gone = claude.call(CALLS[1]).await?;
    if !marketplace_gone.done && claude.knows_marketplace(MARKETPLACE).await? {
        return Err(refused(claude, CALLS[1], &marketplace_gone.text));
    }
    let outcome = if plugin_gone.done || marketplace_gone.done { Outcome::Done } else { Outcome::Unchanged };
    steps.tell("plugin", outcome, format!("{} does not know {PLUGIN}", claude.typed(&[]).trim_end()))
}

fn refused(claude: &Client, call: &[&str], said: &str) -> Failure {
    let why = format!("`{}` failed:\n{said}", claude.typed(call));
    Failure::Stopped { why, advice: "Mend what it names and run this again.".to_owned() }
}

/// Writes the settings as they are wanted. Returns whether that could be done to the byte.
fn restore(file: &Settings, wanted: &str, record: Option<&Record>, bundle: &Bundle) -> Result<bool> {
    let now = file.text()?.unwrap_or_default();
    // Since it was read, claude has written the same in its own form, or something else was changed as well.
    let left = stripped(&now, record, bundle)?;
    let exactly = settings::same(&left, wanted)?;
    let text =
        if exactly { wanted.to_owned() } else { settings::in_form_of(wanted, &left)?.map_or(left, |(text, _)| text) };
    if text != now {
        file.write(&text)?;
    }
    if record.is_some_and(|record| record.backup.is_none()) {
        file.remove_if_empty()?;
    }
    Ok(exactly)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_status_line_of_a_moved_c3po_is_taken_back_as_well() {
        let bundle = Bundle::in_data(Path::new("/data"));
        let line =
            |command: &str| format!(r#"{{"a": 1, "statusLine": {{"type": "command", "command": "{command}"}}}}"#);
        let check = |command: &str, record: Option<&Record>, expected: &str| {
            assert_eq!(as_it_was(&line(command), record, &bundle).unwrap(), expected, "{command}");
        };
        check("/moved/c3po statusline", None, r#"{"a": 1}"#);
        check("'/an older/bin/c3po' statusline", None, r#"{"a": 1}"#);
        let theirs = Record { backup: None, status_line: Some(r#"{"command": "mine"}"#.to_owned()), unfinished: false };
        check("/moved/c3po statusline", Some(&theirs), r#"{"a": 1, "statusLine": {"command": "mine"}}"#);
        check("~/line.sh", None, &line("~/line.sh"));
    }
}
