//! `c3po answers`: the answers that the person of this host has saved, in `answers.toml` beside the login.

use c3po_shared::limits::{SAVED_NAME_MAX, TEXT_MAX};
use c3po_shared::text::{check_plain, harmless};
use clap::Subcommand;
use serde_json::json;

use super::failure::Failure;
use super::print::Printer;
use super::questions::no_login;
use crate::config::Config;

/// The actions on saved answers.
#[derive(Debug, Subcommand)]
pub(super) enum SavedAnswers {
    /// List the saved answers
    List,
    /// Save an answer, or replace the one of that name
    Add {
        /// Its name
        #[arg(value_name = "NAME")]
        answer: String,
        /// Its text; - reads it from standard input
        text: String,
    },
    /// Delete a saved answer
    Remove {
        /// Its name
        #[arg(value_name = "NAME")]
        answer: String,
    },
}

pub(super) fn run(config: &Config, printer: &Printer, action: SavedAnswers) -> Result<(), Failure> {
    let mut answers = read(config)?;
    match action {
        SavedAnswers::List if printer.json => printer.document(&json!({"answers": answers})),
        SavedAnswers::List if answers.is_empty() => printer.line("No answer is saved."),
        SavedAnswers::List => answers.iter().try_for_each(|(name, text)| {
            let text = text.as_str().unwrap_or_default();
            printer.line(&format!(
                "{}  {}",
                harmless(name, false),
                harmless(text, false)
            ))
        }),
        SavedAnswers::Add { answer: name, text } => {
            let text = super::text(text)?;
            check("the name", &name, SAVED_NAME_MAX)?;
            check("the text", &text, TEXT_MAX)?;
            check_plain("the name", &name)?;
            answers.insert(name.clone(), text.into());
            write(config, &answers)?;
            printer.line(&format!(
                "Saved {name}. Send it with `c3po answer ID --saved {name}`."
            ))
        }
        SavedAnswers::Remove { answer: name } => {
            if answers.remove(&name).is_none() {
                return Err(unknown(&name));
            }
            write(config, &answers)?;
            printer.line(&format!("Deleted {}.", harmless(&name, false)))
        }
    }
}

/// Returns the text of the saved answer of that name.
pub(super) fn find(config: &Config, name: &str) -> Result<String, Failure> {
    let answers = read(config)?;
    let text = answers.get(name).and_then(toml::Value::as_str);
    text.map(str::to_owned).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Failure {
    let name = harmless(name, false);
    Failure::Usage(format!(
        "no answer named {name} is saved; see `c3po answers list`"
    ))
}

/// The name of the file.
const FILE: &str = "answers.toml";

/// Reads the file. Errors: this host has no login, or the file is not readable or is not one of texts.
fn read(config: &Config) -> Result<toml::Table, Failure> {
    if config.person.login.is_none() {
        return Err(no_login(
            "this host has no login; saved answers are those of a person",
        ));
    }
    let folder = &config.places.settings;
    let unreadable =
        |why: &str| Failure::Usage(format!("{}: {why}", folder.path_of(FILE).display()));
    let text = folder.text(FILE).map_err(Failure::Usage)?;
    let text = text.unwrap_or_default();
    let answers: toml::Table =
        toml::from_str(&text).map_err(|error| unreadable(error.message()))?;
    if answers.values().all(toml::Value::is_str) {
        return Ok(answers);
    }
    Err(unreadable("it has a value that is not a text"))
}

fn write(config: &Config, answers: &toml::Table) -> Result<(), Failure> {
    let written = config.places.settings.write(FILE, &answers.to_string());
    written.map_err(|error| Failure::Stopped {
        why: error.to_string(),
        advice: "Check the permissions of that folder.".to_owned(),
    })
}

/// Checks that a text is there and not too long.
fn check(field: &str, text: &str, most: usize) -> Result<(), Failure> {
    let count = text.chars().count();
    if text.trim().is_empty() || count > most {
        return Err(Failure::Usage(format!(
            "{field} has {count} characters; 1 to {most} are possible"
        )));
    }
    Ok(())
}
