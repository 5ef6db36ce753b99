//! `c3po install`: makes Claude Code load c3po in every session of this user.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::claude_code::bundle::{Bundle, Change};
use super::claude_code::client::{self, Client};
use super::claude_code::host_file::{self, Plan, Wanted};
use super::claude_code::record::Record;
use super::claude_code::settings::{self, Kept, OURS, STATUS_LINE, Settings};
use super::claude_code::status_line::{self, Owner};
use super::claude_code::steps::{Outcome, Steps};
use super::claude_code::{PLUGIN, stopped};
use super::print::Printer;
use super::session::Failure;
use crate::config::{self, Config};

/// What is to be installed, and how.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Print what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Also show c3po in Claude Code's status line
    #[arg(long)]
    statusline: bool,
    /// With --statusline: take the place of another status line
    #[arg(long, requires = "statusline")]
    force: bool,
    /// Where the coordinator is, such as http://nas:8420; written to this host's config.toml
    #[arg(long, value_name = "URL")]
    coordinator: Option<String>,
    /// A file that holds the coordinator's token, which is written to config.toml; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The claude command [default: the one in PATH]
    #[arg(long, value_name = "PATH")]
    claude: Option<PathBuf>,
}

/// Everything that is known before anything is changed.
struct Situation<'a> {
    config: &'a Config,
    claude: Client,
    bundle: Bundle,
    /// This very program.
    this: PathBuf,
    settings: Settings,
    /// The settings' text, where there is one.
    before: Option<String>,
}

/// How a status line gets in.
enum StatusLine {
    NotAsked,
    There,
    Set,
    /// Another one keeps its place.
    Kept,
}

pub(super) async fn run(config: &Config, printer: &Printer, arguments: Arguments) -> Result<(), Failure> {
    let mut steps = Steps::new(printer, arguments.dry_run);
    let situation = Situation::look(config, &arguments)?;
    let host_file = plan_host_file(config, &arguments)?;

    put_files(&situation, &mut steps)?;
    if arguments.dry_run {
        tell_plan(&situation, &arguments, &mut steps)?;
    } else {
        register(&situation, &arguments, &mut steps).await?;
    }
    write_host_file(config, host_file, &mut steps)?;
    steps.end(if arguments.dry_run {
        "Nothing was changed. The same without --dry-run does it."
    } else {
        "Start Claude Code, or type /reload-plugins in sessions that run. `c3po status` shows whether the coordinator \
         answers."
    })
}

impl<'a> Situation<'a> {
    fn look(config: &'a Config, arguments: &Arguments) -> Result<Self, Failure> {
        if config.places.home.is_none() {
            return Err(Failure::Usage("HOME is not set: there is nowhere to install to".to_owned()));
        }
        let named = arguments.claude.as_deref();
        let claude = Client::find(named, &config.places).ok_or_else(|| client::missing(named))?;
        let this = std::env::current_exe().context("cannot find this program's own file").map_err(stopped)?;
        let settings = Settings::in_folder(&config.places.claude_dir);
        let before = settings.text().map_err(|error| Failure::Stopped {
            why: format!("{error:#}"),
            advice: "Mend that file first: Claude Code does not take it either.".to_owned(),
        })?;
        let before = match (Record::read(&config.state_dir).map_err(stopped)?, before) {
            (Some(record), Some(now)) => Some(record.in_form_before(&now).map_err(stopped)?.unwrap_or(now)),
            (_, before) => before,
        };
        Ok(Self { config, claude, bundle: Bundle::in_data(&config.places.data_dir), this, settings, before })
    }

    /// The calls that register the plugin, in order.
    fn calls(&self) -> Result<Vec<Vec<&str>>, Failure> {
        let folder = self
            .bundle
            .folder()
            .to_str()
            .ok_or_else(|| Failure::Usage(format!("{} is not UTF-8", self.bundle.folder().display())))?;
        let mut calls = vec![vec!["plugin", "marketplace", "add", folder], vec!["plugin", "install", PLUGIN]];
        if self.was_there()? {
            calls.push(vec!["plugin", "update", PLUGIN]);
        }
        Ok(calls)
    }

    fn was_there(&self) -> Result<bool, Failure> {
        settings::enabled(self.before.as_deref().unwrap_or_default()).map_err(stopped)
    }

    fn status_line(&self, arguments: &Arguments) -> Result<StatusLine, Failure> {
        if !arguments.statusline {
            return Ok(StatusLine::NotAsked);
        }
        let before = self.before.as_deref().unwrap_or_default();
        Ok(match status_line::owner(before, &self.bundle.program()).map_err(stopped)? {
            Owner::Us => StatusLine::There,
            Owner::Another if !arguments.force => StatusLine::Kept,
            Owner::Nobody | Owner::Older | Owner::Another => StatusLine::Set,
        })
    }
}

/// Writes the plugin's files, or says which.
fn put_files(situation: &Situation<'_>, steps: &mut Steps<'_>) -> Result<(), Failure> {
    let (bundle, this) = (&situation.bundle, &situation.this);
    let changes = bundle.changes(this).map_err(stopped)?;
    if changes.is_empty() {
        return steps.tell(
            "files",
            Outcome::Unchanged,
            format!("{} ({} files)", bundle.folder().display(), Bundle::size()),
        );
    }
    if steps.dry {
        return changes.iter().try_for_each(|change| steps.tell("files", Outcome::Would, change.words(bundle, this)));
    }
    changes.iter().try_for_each(|change| bundle.make(change, this)).map_err(stopped)?;
    let removed = changes.iter().filter(|change| matches!(change, Change::Remove(_))).count();
    let mut text = format!("{}: {} written", bundle.folder().display(), changes.len() - removed);
    if removed > 0 {
        text += &format!(", {removed} of another version removed");
    }
    steps.tell("files", Outcome::Done, text)
}

/// Says what `register` would do.
fn tell_plan(situation: &Situation<'_>, arguments: &Arguments, steps: &mut Steps<'_>) -> Result<(), Failure> {
    for call in situation.calls()? {
        steps.tell("plugin", Outcome::Would, format!("run {}", situation.claude.typed(&call)))?;
    }
    let path = situation.settings.path().display();
    if !situation.was_there()? {
        let members: Vec<_> = OURS.iter().map(|path| path.join(".")).collect();
        let backup = if situation.before.is_some() { ", with a backup beside it" } else { "" };
        let text = format!("claude adds {} to {path}; the rest stays as it is{backup}", members.join(" and "));
        steps.tell("settings", Outcome::Would, text)?;
    }
    match situation.status_line(arguments)? {
        StatusLine::NotAsked => Ok(()),
        StatusLine::There => steps.tell("status line", Outcome::Unchanged, path.to_string()),
        StatusLine::Set => {
            let value = status_line::value(&situation.bundle.program());
            steps.tell("status line", Outcome::Would, format!("set \"statusLine\": {value} in {path}"))
        }
        StatusLine::Kept => tell_kept_status_line(situation, steps),
    }
}

/// Has Claude Code take the plugin, and puts the rest of its settings back as it was.
async fn register(situation: &Situation<'_>, arguments: &Arguments, steps: &mut Steps<'_>) -> Result<(), Failure> {
    let (claude, file) = (&situation.claude, &situation.settings);
    let before = situation.before.as_deref();
    let backup = file.back_up().map_err(stopped)?;
    remember(situation, backup.as_deref()).map_err(stopped)?;
    let registered = call_claude(situation).await;
    // Also where a call has failed: an earlier one may have written the file.
    let kept = match before {
        Some(before) => file.put_back(before).map_err(stopped)?,
        None => Kept::AllBut(Vec::new()),
    };
    finish(&situation.config.state_dir).map_err(stopped)?;
    registered?;
    let outcome = if situation.was_there()? { Outcome::Unchanged } else { Outcome::Done };
    steps.tell("plugin", outcome, format!("{PLUGIN} is enabled, by {}", claude.typed(&[]).trim_end()))?;
    set_status_line(situation, arguments, steps)?;
    let backup = file.without_needless(backup).map_err(stopped)?;
    let saved = backup.map_or_else(String::new, |backup| format!("; before: {}", backup.display()));
    let path = file.path().display();
    match kept {
        Kept::AllBut(others) if others.is_empty() && saved.is_empty() && before.is_some() => {
            steps.tell("settings", Outcome::Unchanged, path.to_string())
        }
        Kept::AllBut(others) => {
            let others =
                others.iter().fold(String::new(), |text, other| format!("{text}\nclaude itself changed {other}"));
            let text = format!("{path}: every byte that is not ours is as it was{saved}{others}");
            steps.tell("settings", Outcome::Done, text)
        }
        Kept::Rewritten => {
            let text = format!("{path}: says the same, in the form in which claude wrote it{saved}");
            steps.tell("settings", Outcome::Left, text)
        }
    }
}

async fn call_claude(situation: &Situation<'_>) -> Result<(), Failure> {
    let claude = &situation.claude;
    for call in situation.calls()? {
        claude.must(&call).await?;
    }
    if claude.plugin().await?.is_some_and(|plugin| plugin.enabled) {
        return Ok(());
    }
    let why = format!("claude says it has installed {PLUGIN}, but does not list it as enabled");
    Err(Failure::Stopped { why, advice: format!("Look at `{}`.", claude.typed(&["plugin", "list"])) })
}

/// Remembers how the settings were before the first installation, which a second one must not forget.
fn remember(situation: &Situation<'_>, backup: Option<&Path>) -> Result<()> {
    let state = &situation.config.state_dir;
    let program = situation.bundle.program();
    let before = situation.before.as_deref().unwrap_or_default();
    let untouched = settings::without_ours(before)? == before && status_line::owner(before, &program)? != Owner::Us;
    let fresh = || Record { backup: backup.map(Path::to_owned), status_line: None, unfinished: true };
    match Record::read(state)? {
        Some(record) if !untouched || record.unfinished => Record { unfinished: true, ..record }.write(state),
        _ => fresh().write(state),
    }
}

/// Notes that the settings have their form again.
fn finish(state: &Path) -> Result<()> {
    Record::read(state)?.map_or(Ok(()), |record| Record { unfinished: false, ..record }.write(state))
}

fn set_status_line(situation: &Situation<'_>, arguments: &Arguments, steps: &mut Steps<'_>) -> Result<(), Failure> {
    let (file, program) = (&situation.settings, situation.bundle.program());
    match situation.status_line(arguments)? {
        StatusLine::NotAsked => return Ok(()),
        StatusLine::There => return steps.tell("status line", Outcome::Unchanged, file.path().display().to_string()),
        StatusLine::Kept => return tell_kept_status_line(situation, steps),
        StatusLine::Set => {}
    }
    let set = || -> Result<()> {
        let now = file.text()?.unwrap_or_default();
        if status_line::owner(&now, &program)? == Owner::Another
            && let Some(raw) = settings::raw_member(&now, STATUS_LINE)?
            && let Some(mut record) = Record::read(&situation.config.state_dir)?
        {
            record.status_line = Some(raw.to_owned());
            record.write(&situation.config.state_dir)?;
        }
        file.write(&settings::with(&now, STATUS_LINE, &status_line::value(&program))?)
    };
    set().map_err(stopped)?;
    steps.tell("status line", Outcome::Done, format!("{} statusline", program.display()))
}

fn tell_kept_status_line(situation: &Situation<'_>, steps: &mut Steps<'_>) -> Result<(), Failure> {
    let value = status_line::value(&situation.bundle.program());
    let text = format!(
        "{} has another statusLine, which stays. To replace it say --force, or write there:\n\"statusLine\": {value}",
        situation.settings.path().display()
    );
    steps.tell("status line", Outcome::Left, text)
}

/// Returns what has to be done to `config.toml`: refused before anything is changed, if it says something else.
fn plan_host_file(config: &Config, arguments: &Arguments) -> Result<Option<Plan>, Failure> {
    if let Some(problem) = arguments.coordinator.as_deref().and_then(config::problem_of_urls) {
        return Err(Failure::Usage(problem.replace("C3PO_COORDINATOR_URL", "--coordinator")));
    }
    let token = arguments.token_file.as_deref().map(token).transpose()?;
    let wanted = Wanted { coordinator_url: arguments.coordinator.as_deref(), token: token.as_deref() };
    if wanted.coordinator_url.is_none() && wanted.token.is_none() {
        return Ok(None);
    }
    let path = &config.places.config_file;
    let plan = host_file::text(path)
        .and_then(|text| host_file::plan(text.as_deref(), wanted))
        .with_context(|| path.display().to_string())
        .map_err(stopped)?;
    if let Plan::Conflict { key, line } = plan {
        let why = format!("{} has another {key}, which stays", path.display());
        let advice = match line {
            Some(line) => format!("Write there by hand: {line}"),
            None => format!("Change {key} there by hand."),
        };
        return Err(Failure::Stopped { why, advice });
    }
    Ok(Some(plan))
}

fn token(file: &Path) -> Result<String, Failure> {
    let text =
        if file == Path::new("-") { std::io::read_to_string(std::io::stdin()) } else { fs::read_to_string(file) };
    let text = text.map_err(|error| Failure::Usage(format!("cannot read {}: {error}", file.display())))?;
    let token = text.trim();
    if token.is_empty() || !token.chars().all(|c| c.is_ascii_graphic()) {
        return Err(Failure::Usage(format!("{} holds no token: one line of visible characters", file.display())));
    }
    Ok(token.to_owned())
}

fn write_host_file(config: &Config, plan: Option<Plan>, steps: &mut Steps<'_>) -> Result<(), Failure> {
    let path = &config.places.config_file;
    match plan {
        None | Some(Plan::Conflict { .. }) => Ok(()),
        Some(Plan::Nothing) => steps.tell("coordinator", Outcome::Unchanged, path.display().to_string()),
        Some(Plan::Add { keys, lines }) => {
            let text = format!("{} in {}", keys.join(" and "), path.display());
            if steps.dry {
                return steps.tell("coordinator", Outcome::Would, format!("write {text}"));
            }
            host_file::add(path, &lines).map_err(stopped)?;
            steps.tell("coordinator", Outcome::Done, text)
        }
    }
}
