//! `config.toml`, as an installation writes it: missing keys are added, nothing is overwritten.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Error, Result};

use super::steps::{Outcome, Steps};
use super::stopped;
use crate::commands::failure::Failure;
use crate::config::{self, Config, private, text_of};

/// The wanted values of the file.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::commands) struct WantedLines<'a> {
    pub(in crate::commands) coordinator_url: Option<&'a str>,
    pub(in crate::commands) token: Option<&'a str>,
    /// The keys of the settings to turn on; the lines of other settings stay as they are.
    pub(in crate::commands) switches: &'a [&'static str],
}

/// The change of the file.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::commands) enum Plan {
    /// All lines are there already.
    Nothing,
    /// These lines are added at the end.
    Add {
        /// The keys, for the report: values may be secret.
        keys: Vec<&'static str>,
        lines: String,
    },
    /// The file has another value for this key.
    Conflict {
        key: &'static str,
        /// The line to write by hand, unless it is secret.
        line: Option<String>,
    },
}

/// Returns the change of a file with that text; `None` is a missing file.
pub(in crate::commands) fn plan(text: Option<&str>, wanted: WantedLines<'_>) -> Result<Plan> {
    let found: toml::Table = text
        .unwrap_or_default()
        .parse()
        .context("it is not valid TOML")?;
    let (mut keys, mut lines) = (Vec::new(), String::new());
    let values = [
        (
            "coordinator_url",
            wanted.coordinator_url.map(toml::Value::from),
            false,
        ),
        ("token", wanted.token.map(toml::Value::from), true),
    ];
    let on = |key: &&'static str| (*key, Some(toml::Value::Boolean(true)), false);
    for (key, value, secret) in values.into_iter().chain(wanted.switches.iter().map(on)) {
        let Some(value) = value else { continue };
        let line = format!("{key} = {value}");
        match found.get(key) {
            Some(found) if *found == value => {}
            Some(_) => {
                return Ok(Plan::Conflict {
                    key,
                    line: (!secret).then_some(line),
                });
            }
            None => {
                keys.push(key);
                lines += &line;
                lines.push('\n');
            }
        }
    }
    if keys.is_empty() {
        return Ok(Plan::Nothing);
    }
    if text.is_some_and(|text| !text.is_empty() && !text.ends_with('\n')) {
        lines.insert(0, '\n');
    }
    Ok(Plan::Add { keys, lines })
}

/// Returns the text with these keys set to these values, and without those that have none; all else in it stays.
///
/// Errors: it is not TOML, or is written so that a key has no line of its own.
pub(in crate::commands) fn replace(
    text: &str,
    values: &[(&str, Option<toml::Value>)],
) -> Result<String> {
    let mut expected: toml::Table = text.parse().context("it is not valid TOML")?;
    let is_of = |line: &str, key: &str| {
        line.trim_start()
            .strip_prefix(key)
            .is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (key, value) in values {
        lines.retain(|line| !is_of(line, key));
        expected.remove(*key);
        if let Some(value) = value {
            lines.push(format!("{key} = {value}"));
            expected.insert((*key).to_owned(), value.clone());
        }
    }
    let replaced = lines.join("\n") + "\n";
    let found: toml::Table = replaced.parse().context("its lines cannot be edited")?;
    anyhow::ensure!(
        found == expected,
        "its lines cannot be edited safely; write one key per line"
    );
    Ok(replaced)
}

/// A text as long as any token.
pub(in crate::commands) const TOKEN_LIKE: &str =
    "c3po-login_0123456789_0123456789012345678901234567890123456789012345678901234567890123456789";

/// Appends lines. A new file is readable only by its owner from the start.
pub(in crate::commands) fn add(path: &Path, lines: &str) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    private::make_folder(path.parent().unwrap_or(path)).with_context(failed)?;
    let file = fs::OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path);
    let mut file = file.with_context(failed)?;
    // An existing file may be readable by all users, and may get a token now.
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .with_context(failed)?;
    file.write_all(lines.as_bytes())
        .and_then(|()| file.sync_all())
        .with_context(failed)
}

/// Returns the changes of `config.toml`, or a refusal before anything is changed, if it has another value.
pub(in crate::commands) fn plan_for(
    config: &Config,
    coordinator: Option<&str>,
    token_file: Option<&Path>,
    switches: &[&'static str],
) -> Result<Option<Plan>, Failure> {
    if let Some(problem) = coordinator.and_then(config::problem_of_urls) {
        return Err(Failure::Usage(
            problem.replace("C3PO_COORDINATOR_URL", "--coordinator"),
        ));
    }
    let token = token_file.map(token).transpose()?;
    let wanted = WantedLines {
        coordinator_url: coordinator,
        token: token.as_deref(),
        switches,
    };
    if wanted.coordinator_url.is_none() && wanted.token.is_none() && switches.is_empty() {
        return Ok(None);
    }
    let path = &config.places.config_file;
    // A file that other users may have written would be accepted once its mode is changed.
    let text = text_of(path).map_err(Error::msg).map_err(stopped)?;
    let change = plan(text.as_deref(), wanted)
        .with_context(|| path.display().to_string())
        .map_err(stopped)?;
    if let Plan::Conflict { key, line } = change {
        let why = format!("{} has another {key}, which was kept", path.display());
        let advice = match line {
            Some(line) => format!("Write there by hand: {line}"),
            None => format!("Change {key} there by hand."),
        };
        return Err(Failure::Stopped { why, advice });
    }
    Ok(Some(change))
}

fn token(file: &Path) -> Result<String, Failure> {
    let text = if file == Path::new("-") {
        io::read_to_string(io::stdin())
    } else {
        fs::read_to_string(file)
    };
    let text =
        text.map_err(|error| Failure::Usage(format!("cannot read {}: {error}", file.display())))?;
    let token = text.trim();
    if token.is_empty() || !token.chars().all(|c| c.is_ascii_graphic()) {
        return Err(Failure::Usage(format!(
            "{} has no token, which is one line of visible characters",
            file.display()
        )));
    }
    Ok(token.to_owned())
}

pub(in crate::commands) fn carry_out(
    config: &Config,
    plan: Option<Plan>,
    steps: &mut Steps<'_>,
) -> Result<(), Failure> {
    let path = &config.places.config_file;
    match plan {
        None | Some(Plan::Conflict { .. }) => Ok(()),
        Some(Plan::Nothing) => steps.tell(
            "coordinator",
            Outcome::Unchanged,
            path.display().to_string(),
        ),
        Some(Plan::Add { keys, lines }) => {
            let text = format!("{} in {}", keys.join(" and "), path.display());
            if steps.dry {
                return steps.tell("coordinator", Outcome::Would, format!("write {text}"));
            }
            add(path, &lines).map_err(stopped)?;
            steps.tell("coordinator", Outcome::Done, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: WantedLines<'_> = WantedLines {
        coordinator_url: Some("http://nas:8420"),
        token: Some("sec\"ret"),
        switches: &[],
    };

    #[test]
    fn missing_settings_are_added_and_none_is_overwritten() {
        let both = "coordinator_url = \"http://nas:8420\"\ntoken = 'sec\"ret'\n";
        let keys = vec!["coordinator_url", "token"];
        assert_eq!(
            plan(None, WANTED).unwrap(),
            Plan::Add {
                keys,
                lines: both.to_owned()
            }
        );
        assert_eq!(plan(Some(both), WANTED).unwrap(), Plan::Nothing);
        let lines = "\ntoken = 'sec\"ret'\n".to_owned();
        let half = "# mine\ncoordinator_url=\"http://nas:8420\"";
        assert_eq!(
            plan(Some(half), WANTED).unwrap(),
            Plan::Add {
                keys: vec!["token"],
                lines
            }
        );
        let line = Some("coordinator_url = \"http://nas:8420\"".to_owned());
        let other = Some("coordinator_url = \"http://b\"");
        assert_eq!(
            plan(other, WANTED).unwrap(),
            Plan::Conflict {
                key: "coordinator_url",
                line
            }
        );
        let other = Some("token = \"other\"");
        assert_eq!(
            plan(other, WANTED).unwrap(),
            Plan::Conflict {
                key: "token",
                line: None
            }
        );
        assert!(plan(Some("a = "), WANTED).is_err());
        let switches = WantedLines {
            switches: &["relay_permissions", "desktop_notes"],
            ..WantedLines::default()
        };
        assert_eq!(
            plan(Some("relay_permissions = true\n"), switches).unwrap(),
            Plan::Add {
                keys: vec!["desktop_notes"],
                lines: "desktop_notes = true\n".to_owned()
            }
        );
    }

    #[test]
    fn replacing_settings_keeps_all_others() {
        let text = "# mine\ntoken = 'old'\nagent_id = \"web\"\n  coordinator_url= 'http://a'\n";
        let replaced = replace(
            text,
            &[
                ("token", Some("new".into())),
                ("coordinator_url", Some("https://b".into())),
                ("fingerprint", None),
            ],
        );
        assert_eq!(
            replaced.unwrap(),
            "# mine\nagent_id = \"web\"\ntoken = \"new\"\ncoordinator_url = \"https://b\"\n"
        );
        assert_eq!(
            replace("", &[("token", Some("new".into()))]).unwrap(),
            "token = \"new\"\n"
        );
        assert!(replace("token = ", &[("token", Some("new".into()))]).is_err());
        assert!(
            replace(
                "agent_id = \"\"\"\ntoken = 1\n\"\"\"\n",
                &[("token", Some("new".into()))]
            )
            .is_err()
        );
    }

    #[test]
    fn the_file_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c3po/config.toml");
        add(&path, "a = 1\n").unwrap();
        add(&path, "b = 2\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a = 1\nb = 2\n");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
}
