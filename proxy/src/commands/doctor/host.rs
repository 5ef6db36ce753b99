//! Checks without any request: the program, its configuration, the folder of the sockets.

use std::path::Path;

use super::report::Report;
use crate::commands::failure::Failure;
use crate::config::{Config, Sockets};
use crate::link;
use crate::local::{self, Rendezvous};

pub(super) fn examine(config: &Config, report: &mut Report<'_>) -> Result<(), Failure> {
    program(config, report)?;
    configuration(config, report)?;
    relay(config, report)?;
    folder(&config.sockets, report)?;
    journal(config, report)
}

fn journal(config: &Config, report: &mut Report<'_>) -> Result<(), Failure> {
    let kept = link::kept(config);
    for kept in kept.iter().filter(|kept| kept.waiting > 0) {
        let found = format!(
            "messages that {} queued on this host: {}",
            kept.agent, kept.waiting
        );
        let file = kept.journal.display().to_string();
        let next = if kept.journal.starts_with(config.person_journal_dir()) {
            "The next `c3po send` with the login of this host sends them.".to_owned()
        } else if kept.agent.is_human() {
            format!(
                "Only `c3po send` without a login sends them. Read {file}, send again what still matters, then remove it."
            )
        } else if config.coordinators.replaces_key {
            "A session without C3PO_TOKEN sends them: that variable has another key than config.toml.".to_owned()
        } else {
            "The next session on this host that reaches the coordinator sends them.".to_owned()
        };
        report.warn("journal", found, &next)?;
    }
    for kept in kept.iter().filter(|kept| kept.refused > 0) {
        let why = kept.why.as_deref().unwrap_or("the reason was not recorded");
        let found = format!(
            "queued messages of {} that were refused: {}; {why}",
            kept.agent, kept.refused
        );
        let advice = format!(
            "Read {}, send again what still matters, then remove it.",
            kept.file.display()
        );
        report.warn("journal", found, &advice)?;
    }
    Ok(())
}

fn program(config: &Config, report: &mut Report<'_>) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let Ok(this) = std::env::current_exe() else {
        return report.warn(
            "program",
            format!("c3po {version}, but its file was deleted"),
            "Install c3po again.",
        );
    };
    let first = config
        .places
        .path
        .iter()
        .map(|folder| folder.join("c3po"))
        .find(|path| path.is_file());
    let found = format!("c3po {version}, {}", this.display());
    match first.filter(|first| first.canonicalize().ok() != this.canonicalize().ok()) {
        Some(other) => report.warn(
            "program",
            format!("{found}; the first c3po in PATH is {}", other.display()),
            "If that one is older, remove it, or put this one's folder first in PATH.",
        ),
        None => report.ok("program", found),
    }
}

fn configuration(config: &Config, report: &mut Report<'_>) -> Result<(), Failure> {
    let file = &config.places.config_file;
    for problem in &config.problems {
        let advice = format!(
            "Fix the variable, or {}. Until then, commands refuse to run, and sessions may not connect.",
            file.display()
        );
        report.fail("configuration", problem, &advice)?;
    }
    for warning in &config.warnings {
        report.warn(
            "configuration",
            warning,
            "Fix it; until then, c3po works all the same.",
        )?;
    }
    if !config.problems.is_empty() {
        return Ok(());
    }
    let source = if file.exists() {
        file.display().to_string()
    } else {
        "no config.toml".to_owned()
    };
    let token = if config.coordinators.token.is_some() {
        "with a token"
    } else {
        "without a token"
    };
    report.ok("configuration", format!("{source}, {token}"))
}

fn relay(config: &Config, report: &mut Report<'_>) -> Result<(), Failure> {
    let found = if config.coordinators.relays {
        "on: people also decide on the permission requests of sessions from elsewhere"
    } else {
        "off: permission requests are decided in the terminal; c3po install --relay-permissions turns it on"
    };
    report.ok("relay", found.to_owned())
}

fn folder(sockets: &Sockets, report: &mut Report<'_>) -> Result<(), Failure> {
    let place = match Rendezvous::beside(std::process::id(), sockets) {
        Ok(place) => place,
        Err(error) => {
            return report.fail(
                "sockets",
                error.to_string(),
                "Fix that; until then, hooks print nothing in new sessions.",
            );
        }
    };
    let taken = place.path().parent().unwrap_or(Path::new("/"));
    let preferred = local::folders(sockets).into_iter().next();
    match preferred.filter(|preferred| preferred != taken) {
        None => report.ok("sockets", taken.display().to_string()),
        Some(preferred) => {
            let why = local::safe(&preferred)
                .err()
                .map_or_else(|| "its path is too long".to_owned(), |e| e.to_string());
            let found = format!(
                "{} instead of {}: {why}",
                taken.display(),
                preferred.display()
            );
            report.warn(
                "sockets",
                found,
                "This folder works; fix XDG_RUNTIME_DIR if you want the other one.",
            )
        }
    }
}
