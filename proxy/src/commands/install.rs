//! `c3po install`: configures Claude Code to load c3po in every session of this user.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use c3po_shared::refusal::{ErrorCode, Refusal};
use tokio::time::timeout;

use super::claude_code::bundle::{Bundle, Change};
use super::claude_code::client::{self, ClaudeCommand};
use super::claude_code::host_file::{self};
use super::claude_code::permissions;
use super::claude_code::settings::{self, Members, OURS, SettingsFile};
use super::claude_code::status_line::{self, STATUS_LINE, StatusLineOwner};
use super::claude_code::steps::{Outcome, Steps};
use super::claude_code::{MARKETPLACE, PLUGIN, stopped};
use super::failure::Failure;
use super::print::Printer;
use super::words;
use crate::config::Config;
use crate::link::{self, Trust, http};

/// How long a named coordinator may take to answer.
const TRY_MAX: Duration = Duration::from_secs(5);

/// The options of the installation.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Print the changes without making them
    #[arg(long)]
    dry_run: bool,
    /// Also show c3po in Claude Code's status line
    #[arg(long)]
    statusline: bool,
    /// With --statusline: replace another status line
    #[arg(long, requires = "statusline")]
    force: bool,
    /// Allow sessions to use c3po's tools without asking: send, reply, read, wait, acknowledge, list, ask and notify people
    #[arg(long, conflicts_with = "no_allow")]
    allow: bool,
    /// Do not ask about that; sessions keep asking [default without a terminal]
    #[arg(long)]
    no_allow: bool,
    /// The coordinator's URL, such as http://127.0.0.1:8420; it is tested, and written to this host's config.toml. For
    /// a coordinator on the network, use `c3po join`
    #[arg(long, value_name = "URL")]
    coordinator: Option<String>,
    /// A file with the coordinator's token, which is written to config.toml; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Let people decide elsewhere about requests of Claude Code: permissions, questions and plans. Written to config.toml
    #[arg(long)]
    relay_permissions: bool,
    /// Show a note on the desktop when a session asks for you, if the terminal can. Written to config.toml
    #[arg(long)]
    desktop_notes: bool,
    /// The claude command [default: the one in PATH]
    #[arg(long, value_name = "PATH")]
    claude: Option<PathBuf>,
}

impl Arguments {
    /// Returns the keys of config.toml that are turned on.
    fn switches(&self) -> Vec<&'static str> {
        let switches = [
            ("relay_permissions", self.relay_permissions),
            ("desktop_notes", self.desktop_notes),
        ];
        let on = switches.into_iter().filter(|(_, is_on)| *is_on);
        on.map(|(key, _)| key).collect()
    }
}

/// The state before the installation changes anything.
struct Situation {
    /// `None` if there is no `claude` command.
    claude: Option<ClaudeCommand>,
    bundle: Bundle,
    /// The path of this program.
    this: PathBuf,
    settings: SettingsFile,
    /// The members of the settings.
    before: Members,
}

/// The result for the status line.
enum StatusLine {
    NotAsked,
    There,
    Set,
    /// Another status line is kept.
    Kept,
}

pub(super) async fn run(
    config: &Config,
    printer: &Printer,
    arguments: Arguments,
) -> Result<(), Failure> {
    let mut steps = Steps::new(printer, arguments.dry_run);
    let situation = Situation::look(config, &arguments)?;
    let host_file = host_file::plan_for(
        config,
        arguments.coordinator.as_deref(),
        arguments.token_file.as_deref(),
        &arguments.switches(),
    )?;

    put_files(&situation, &mut steps)?;
    match &situation.claude {
        None => steps.tell(
            "plugin",
            Outcome::Left,
            "there is no claude command yet; run this again when Claude Code is installed",
        )?,
        Some(claude) if arguments.dry_run => tell_plan(claude, &situation, &arguments, &mut steps)?,
        Some(claude) => register(claude, &situation, &arguments, &mut steps).await?,
    }
    host_file::carry_out(config, host_file, &mut steps)?;
    if let Some(urls) = &arguments.coordinator {
        try_coordinators(config, urls, &mut steps).await?;
    }
    if situation.claude.is_none() {
        steps.end("Everything else is done.")?;
        return Err(client::missing(None));
    }
    steps.end(if arguments.dry_run {
        "Nothing was changed. Run this without --dry-run to make the changes."
    } else {
        "Start Claude Code, or type /reload-plugins in running sessions. `c3po status` shows whether the coordinator \
         answers."
    })
}

impl Situation {
    fn look(config: &Config, arguments: &Arguments) -> Result<Self, Failure> {
        if config.places.home.is_none() {
            return Err(Failure::Usage(
                "HOME is not set: there is nowhere to install to".to_owned(),
            ));
        }
        let named = arguments.claude.as_deref();
        let claude = ClaudeCommand::find(named, &config.places);
        if claude.is_none() && named.is_some() {
            return Err(client::missing(named));
        }
        let this = std::env::current_exe()
            .context("cannot find this program's own file")
            .map_err(stopped)?;
        let settings = SettingsFile::in_folder(&config.places.claude_dir);
        let before = settings.read().map_err(|error| Failure::Stopped {
            why: format!("{error:#}"),
            advice: "Fix that file first: Claude Code cannot read it either.".to_owned(),
        })?;
        let bundle = Bundle::in_data(&config.places.data_dir);
        if let Some(source) = settings::foreign_marketplace(&before, bundle.folder()) {
            return Err(Failure::Stopped {
                why: format!(
                    "Claude Code has another marketplace named {MARKETPLACE}, from {source}; it was not changed"
                ),
                advice: format!(
                    "If you do not need it, run `{}`, then run this again.",
                    client::typed(
                        claude.as_ref(),
                        &["plugin", "marketplace", "remove", MARKETPLACE]
                    )
                ),
            });
        }
        Ok(Self {
            claude,
            bundle,
            this,
            settings,
            before,
        })
    }

    /// The calls that register the plugin, in order.
    fn calls(&self) -> Result<Vec<Vec<&str>>, Failure> {
        let folder = self.bundle.folder().to_str().ok_or_else(|| {
            Failure::Usage(format!("{} is not UTF-8", self.bundle.folder().display()))
        })?;
        let mut calls = vec![
            vec!["plugin", "marketplace", "add", folder],
            vec!["plugin", "install", PLUGIN],
        ];
        if settings::enabled(&self.before) {
            calls.push(vec!["plugin", "update", PLUGIN]);
        }
        Ok(calls)
    }

    fn status_line(&self, arguments: &Arguments) -> StatusLine {
        if !arguments.statusline {
            return StatusLine::NotAsked;
        }
        match status_line::owner(&self.before, &self.bundle.program()) {
            StatusLineOwner::Us => StatusLine::There,
            StatusLineOwner::Another if !arguments.force => StatusLine::Kept,
            StatusLineOwner::Nobody | StatusLineOwner::Older | StatusLineOwner::Another => {
                StatusLine::Set
            }
        }
    }
}

/// Writes the plugin's files, or reports which it would write.
fn put_files(situation: &Situation, steps: &mut Steps<'_>) -> Result<(), Failure> {
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
        return changes.iter().try_for_each(|change| {
            steps.tell("files", Outcome::Would, change.words(bundle, this))
        });
    }
    changes
        .iter()
        .try_for_each(|change| bundle.make(change, this))
        .map_err(stopped)?;
    let removed = changes
        .iter()
        .filter(|change| matches!(change, Change::Remove(_)))
        .count();
    let mut text = format!(
        "{}: {} written",
        bundle.folder().display(),
        changes.len() - removed
    );
    if removed > 0 {
        text += &format!(", {removed} of another version removed");
    }
    steps.tell("files", Outcome::Done, text)
}

/// Reports the steps that `register` would take.
fn tell_plan(
    claude: &ClaudeCommand,
    situation: &Situation,
    arguments: &Arguments,
    steps: &mut Steps<'_>,
) -> Result<(), Failure> {
    for call in situation.calls()? {
        steps.tell(
            "plugin",
            Outcome::Would,
            format!("run {}", claude.typed(&call)),
        )?;
    }
    let path = situation.settings.path().display();
    if !settings::enabled(&situation.before) {
        let members: Vec<_> = OURS
            .iter()
            .map(|(group, member)| format!("{group}.{member}"))
            .collect();
        let text = format!(
            "claude rewrites {path} with {}; a backup is kept beside it",
            members.join(" and ")
        );
        steps.tell("settings", Outcome::Would, text)?;
    }
    if arguments.allow && permissions::allowed(&situation.before).is_some() {
        let text = format!("allow in {path}, without asking: {}", permissions::listed());
        steps.tell("permissions", Outcome::Would, text)?;
    }
    match situation.status_line(arguments) {
        StatusLine::NotAsked => Ok(()),
        StatusLine::There => steps.tell("status line", Outcome::Unchanged, path.to_string()),
        StatusLine::Set => {
            let value = status_line::value(&situation.bundle.program());
            steps.tell(
                "status line",
                Outcome::Would,
                format!("set \"statusLine\": {value} in {path}"),
            )
        }
        StatusLine::Kept => tell_kept_status_line(situation, steps),
    }
}

/// Registers the plugin with `claude`, which rewrites the settings. A backup is made before.
async fn register(
    claude: &ClaudeCommand,
    situation: &Situation,
    arguments: &Arguments,
    steps: &mut Steps<'_>,
) -> Result<(), Failure> {
    let file = &situation.settings;
    let backup = file.back_up().map_err(stopped)?;
    set_status_line(situation, arguments, steps)?;
    set_permissions(situation, arguments, steps)?;
    let registered = call_claude(claude, situation).await;
    let is_new = backup.is_none();
    let backup = file.without_needless(backup).map_err(stopped)?;
    registered?;
    let outcome = if settings::enabled(&situation.before) {
        Outcome::Unchanged
    } else {
        Outcome::Done
    };
    steps.tell(
        "plugin",
        outcome,
        format!("{PLUGIN} is enabled, by {}", claude.typed(&[]).trim_end()),
    )?;
    let path = file.path().display();
    match backup {
        Some(backup) => {
            let text = format!(
                "{path}: rewritten by claude, backup in {}",
                backup.display()
            );
            steps.tell("settings", Outcome::Done, text)
        }
        None if is_new => steps.tell("settings", Outcome::Done, path.to_string()),
        None => steps.tell("settings", Outcome::Unchanged, path.to_string()),
    }
}

async fn call_claude(claude: &ClaudeCommand, situation: &Situation) -> Result<(), Failure> {
    for call in situation.calls()? {
        claude.must(&call).await?;
    }
    let plugin = claude.plugin().await?.filter(|plugin| plugin.enabled);
    let Some(plugin) = plugin else {
        return Err(Failure::Stopped {
            why: format!(
                "claude reported that it installed {PLUGIN}, but does not list it as enabled"
            ),
            advice: format!(
                "Check the output of `{}`.",
                claude.typed(&["plugin", "list"])
            ),
        });
    };
    let Some(other) = situation.bundle.replaced_by(&plugin) else {
        return Ok(());
    };
    Err(Failure::Stopped {
        why: format!(
            "claude loads {PLUGIN} from {}, not from {}: another program may run in your sessions",
            other.display(),
            situation.bundle.folder().display()
        ),
        advice: format!(
            "Run `{}`, then run this again.",
            claude.typed(&["plugin", "marketplace", "remove", MARKETPLACE])
        ),
    })
}

/// Allows the tools if the user passes or answers yes: once, because the question came with the first installation.
fn set_permissions(
    situation: &Situation,
    arguments: &Arguments,
    steps: &mut Steps<'_>,
) -> Result<(), Failure> {
    let file = &situation.settings;
    let members = file.read().map_err(stopped)?;
    let Some(allowed) = permissions::allowed(&members) else {
        let path = file.path().display().to_string();
        return if arguments.allow {
            steps.tell("permissions", Outcome::Unchanged, path)
        } else {
            Ok(())
        };
    };
    let is_update = settings::enabled(&situation.before);
    let says_yes = arguments.allow
        || !(arguments.no_allow || is_update || steps.is_json()) && permissions::ask();
    if says_yes {
        file.write(&allowed).map_err(stopped)?;
        let text = format!(
            "sessions use these without asking: {}",
            permissions::listed()
        );
        return steps.tell("permissions", Outcome::Done, text);
    }
    let text = format!(
        "sessions ask before they use {}; `c3po install --allow` changes that",
        permissions::listed()
    );
    if is_update {
        Ok(())
    } else {
        steps.tell("permissions", Outcome::Left, text)
    }
}

/// Reports whether the given coordinators answer. The configuration stays: one may come later.
async fn try_coordinators(
    config: &Config,
    urls: &str,
    steps: &mut Steps<'_>,
) -> Result<(), Failure> {
    for url in urls.split(',').map(str::trim).filter(|url| !url.is_empty()) {
        let trust = Trust::new(config.coordinators.fingerprints.clone());
        let asked = timeout(TRY_MAX, http::get(url, &trust, "/api/health", &[])).await;
        let refusal = match asked {
            Ok(Ok((200, _))) => {
                steps.tell("reached", Outcome::Done, format!("{url} answers"))?;
                continue;
            }
            Ok(Ok((_, body))) => serde_json::from_str(&body)
                .unwrap_or_else(|_| Refusal::invalid("it is not healthy")),
            Ok(Err(refusal)) => link::for_host(refusal, &config.coordinators),
            Err(_) => Refusal::new(
                ErrorCode::CoordDown,
                format!("no coordinator at {url}: no answer"),
            ),
        };
        let refusal = refusal.detail("coordinator", url);
        let text = format!(
            "{url} was saved, but does not answer as expected: {}\n{}",
            refusal.error,
            words::suggestion(&refusal)
        );
        steps.tell("reached", Outcome::Left, text)?;
    }
    Ok(())
}

fn set_status_line(
    situation: &Situation,
    arguments: &Arguments,
    steps: &mut Steps<'_>,
) -> Result<(), Failure> {
    let (file, program) = (&situation.settings, situation.bundle.program());
    match situation.status_line(arguments) {
        StatusLine::NotAsked => return Ok(()),
        StatusLine::There => {
            return steps.tell(
                "status line",
                Outcome::Unchanged,
                file.path().display().to_string(),
            );
        }
        StatusLine::Kept => return tell_kept_status_line(situation, steps),
        StatusLine::Set => {}
    }
    let mut members = situation.before.clone();
    members.insert(STATUS_LINE.to_owned(), status_line::value(&program));
    file.write(&members).map_err(stopped)?;
    steps.tell(
        "status line",
        Outcome::Done,
        format!("{} statusline", program.display()),
    )
}

fn tell_kept_status_line(situation: &Situation, steps: &mut Steps<'_>) -> Result<(), Failure> {
    let value = status_line::value(&situation.bundle.program());
    let text = format!(
        "{} has another statusLine, which was kept. To replace it, pass --force, or write there:\n\"statusLine\": \
         {value}",
        situation.settings.path().display()
    );
    steps.tell("status line", Outcome::Left, text)
}
