//! Checks without any request: the program, its configuration, the folder of the sockets.

use std::path::Path;

use super::report::Report;
use crate::commands::failure::Failure;
use crate::config::{Config, Sockets};
use crate::link::{self, QueuedFor};
use crate::local::{self, Rendezvous};

pub(super) fn examine(config: &Config, report: &mut Report<'_>) -> Result<(), Failure> {
    program(config, report)?;
    configuration(config, report)?;
    folder(&config.sockets, report)?;
    journal(&link::kept(config), report)
}

fn journal(kept: &[QueuedFor], report: &mut Report<'_>) -> Result<(), Failure> {
    for kept in kept.iter().filter(|kept| kept.waiting > 0) {
        let found = format!("{} of {} wait on this host for the coordinator", kept.waiting, kept.agent);
        report.warn("journal", found, "They are sent by the next session on this host that reaches it.")?;
    }
    for kept in kept.iter().filter(|kept| kept.refused > 0) {
        let why = kept.why.as_deref().unwrap_or("nobody noted why");
        let found = format!("{} of {} were refused after they had waited here: {why}", kept.refused, kept.agent);
        let advice = format!("Read {}, send again what still matters, then remove it.", kept.file.display());
        report.warn("journal", found, &advice)?;
    }
    Ok(())
}

fn program(config: &Config, report: &mut Report<'_>) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let Ok(this) = std::env::current_exe() else {
        return report.warn("program", format!("c3po {version}, whose file is gone"), "Install c3po again.");
    };
    let first = config.places.path.iter().map(|folder| folder.join("c3po")).find(|path| path.is_file());
    let found = format!("c3po {version}, {}", this.display());
    match first.filter(|first| first.canonicalize().ok() != this.canonicalize().ok()) {
        Some(other) => report.warn(
            "program",
            format!("{found}; the first c3po in PATH is {}", other.display()),
            "If that one is older, remove it, or put this one's folder before it.",
        ),
        None => report.ok("program", found),
    }
}

fn configuration(config: &Config, report: &mut Report<'_>) -> Result<(), Failure> {
    let file = &config.places.config_file;
    for problem in &config.problems {
        let advice = format!(
            "Mend the variable, or {}. Until then commands refuse to run, and a session may be unconnected.",
            file.display()
        );
        report.fail("configuration", problem, &advice)?;
    }
    for warning in &config.warnings {
        report.warn("configuration", warning, "Mend what it names, or leave it: there is a way around it.")?;
    }
    if !config.problems.is_empty() {
        return Ok(());
    }
    let source = if file.exists() { file.display().to_string() } else { "no config.toml".to_owned() };
    let token = if config.coordinators.token.is_some() { "with a token" } else { "without a token" };
    report.ok("configuration", format!("{source}, {token}"))
}

fn folder(sockets: &Sockets, report: &mut Report<'_>) -> Result<(), Failure> {
    let place = match Rendezvous::beside(std::process::id(), sockets) {
        Ok(place) => place,
        Err(error) => {
            return report.fail("sockets", error.to_string(), "Until then hooks stay silent in every new session.");
        }
    };
    let taken = place.path().parent().unwrap_or(Path::new("/"));
    let preferred = local::folders(sockets).into_iter().next();
    match preferred.filter(|preferred| preferred != taken) {
        None => report.ok("sockets", taken.display().to_string()),
        Some(preferred) => {
            let why =
                local::safe(&preferred).err().map_or_else(|| "its path is too long".to_owned(), |e| e.to_string());
            let found = format!("{} instead of {}: {why}", taken.display(), preferred.display());
            report.warn("sockets", found, "It works as it is; mend XDG_RUNTIME_DIR if you mean that folder.")
        }
    }
}
