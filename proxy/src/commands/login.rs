//! `c3po login` and `c3po logout`: a login of this host's person, which answers and sends as `human`, and nothing more.

use std::io::{self, IsTerminal as _};
use std::path::Path;

use c3po_shared::event::Envelope;
use c3po_shared::login::{self, LoginReply, LoginRequest};
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::text::harmless;
use c3po_shared::vocabulary::LoginScope;
use serde_json::json;

use super::claude_code::host_file;
use super::confirm::confirmed;
use super::failure::Failure;
use super::join::code;
use super::print::Printer;
use super::stored_login::{Ended, LISTED, are_all, by_hand, changed, end, refusal, stored};
use crate::config::{Config, PERSON_FILE, PersonLogin, Places, Source, as_written};
use crate::link::http::post_json;
use crate::link::{self, QueuedFor, Trust};

/// The coordinator and the options.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The coordinator's URL, one of those that this host uses
    url: String,
    /// Every user of a machine sees arguments, so a code among them is refused; `-` reads standard input.
    #[arg(hide = true)]
    code: Option<String>,
    /// Store the login without asking; needed if standard input is not a terminal
    #[arg(long)]
    yes: bool,
}

/// The end of a line about a login that no coordinator knows any more: after a restored backup it may be an older one.
const HAD_ENDED: &str = "the login before had ended already. `c3po-coordinator logins list` shows any newer one of this host.";
/// The state before the code is sent.
const UNUSED: &str = "the code was not used yet";

pub(super) async fn run(
    mut config: Config,
    printer: &Printer,
    arguments: Arguments,
) -> Result<(), Failure> {
    let url = known(&config, &arguments.url)?;
    let own = Places::config_file_of_user();
    let own = own.as_deref().and_then(Path::parent);
    let is_moved = own.is_some_and(|own| !config.places.settings.is_at(own));
    let receiver = identified(&config, &url, is_moved);
    eprintln!("{}", harmless(&receiver, false));
    if !arguments.yes {
        consent(&config, is_moved)?;
    }
    check_link(&config, UNUSED)?;
    // Before the code is spent: a token that cannot be stored would be lost.
    let made = config.places.settings.made();
    config.places.settings = made.map_err(|error| unwritable(error.into(), UNUSED))?;
    // Another command may have stored a login while the consent was asked for.
    let config = config.with_present_login();
    let folder = &config.places.settings;
    let before = folder.own_content(PERSON_FILE).and_then(|before| {
        folder.try_beside(PERSON_FILE, &written(&config, host_file::TOKEN_LIKE))?;
        Ok(before.unwrap_or_default())
    });
    let before = before.map_err(|error| unwritable(error.into(), UNUSED))?;
    let typed = code::read(
        arguments.code.as_deref(),
        None,
        &format!("login {}", arguments.url),
        None,
    );
    let made = ask(&config, &url, typed?).await?;
    let lost = |error: io::Error| {
        let lost = format!(
            "the code was used; revoke the login {} and get a new code",
            made.login.id
        );
        unwritable(error.into(), &lost)
    };
    // Another command may have stored a login while the code was typed.
    let meanwhile = changed(&config, &before).map_err(lost)?;
    let own = written(&config, &made.token);
    folder.write(PERSON_FILE, &own).map_err(lost)?;
    end_older(&config, &before).await;
    if let Some((config, meanwhile)) = meanwhile {
        end_older(&config, &meanwhile).await;
    }
    check_kept(&config, &own).await?;
    tell(printer, &config.places.person_file, &made)?;
    if printer.json {
        return Ok(());
    }
    tell_queued(&config, printer)
}

/// Ends the login before: copies of its token would stay valid. Reports it if that failed.
async fn end_older(config: &Config, content: &[u8]) {
    let text = String::from_utf8_lossy(content);
    let older = stored(config, &text);
    let mut is_left = !are_all(&older, &text);
    for login in &older {
        let ended = end(login).await;
        is_left |= !ended.is_over(config);
        if matches!(ended, Ended::Before) && ended.is_over(config) {
            eprintln!("The host logged in again, and {HAD_ENDED}");
        }
    }
    if is_left {
        let next = harmless(&by_hand(&older), false);
        eprintln!("The login before may still be valid: {next}");
    }
}

/// Ends the new login if another command has stored another one since or deleted the file. One that looked at the file before this
/// login was in it, and writes only after this check, is not noticed; that takes a millisecond.
///
/// Errors: it did, or the file cannot be read.
async fn check_kept(config: &Config, own: &str) -> Result<(), Failure> {
    let kept = config.places.settings.own_content(PERSON_FILE);
    let kept = kept.map_err(|error| unwritable(error.into(), "the login may be in it"))?;
    let login = PersonLogin::of(own).map_err(|why| unwritable(anyhow::anyhow!(why), LISTED))?;
    // A join that adds a coordinator writes its URL beside the same token.
    let kept = kept.unwrap_or_default();
    if String::from_utf8_lossy(&kept).contains(login.token.expose()) {
        return Ok(());
    }
    let advice = match end(&login).await {
        Ended::Not(_) => format!("This one may still be valid: {}", by_hand(&[login])),
        _ if kept.is_empty() => "This one is revoked, and the file has none.".to_owned(),
        Ended::Now | Ended::Before => "This one is revoked; the file has the other one.".to_owned(),
    };
    Err(Failure::Stopped {
        why: "another command changed the file of the login at the same time".to_owned(),
        advice,
    })
}

/// Returns the URL as this host uses it.
///
/// Errors: the environment names another coordinator or certificate than the file of the host. A project may have set it, and
/// the server there would get the code.
fn known(config: &Config, url: &str) -> Result<String, Failure> {
    if config.coordinators.source == Source::Overridden {
        let file = config.places.config_file.display();
        return Err(Failure::Usage(format!(
            "the environment names another coordinator or certificate than {file}: unset C3PO_COORDINATOR_URL and \
             C3PO_FINGERPRINT, then log in"
        )));
    }
    let plain = |url: &str| url.trim_end_matches('/').to_ascii_lowercase();
    let urls: Vec<String> = config
        .coordinators
        .urls
        .iter()
        .map(|target| as_written(target))
        .collect();
    let found = urls.iter().find(|known| plain(known) == plain(url));
    found.cloned().ok_or_else(|| {
        Failure::Usage(format!(
            "this host uses {}, not {url}: log in there, or join that coordinator first",
            urls.join(", ")
        ))
    })
}

/// Returns the line about the receiver of the code: how it is identified, and by which file.
fn identified(config: &Config, url: &str, is_moved: bool) -> String {
    let (coordinators, file) = (&config.coordinators, config.places.config_file.display());
    let prints = coordinators.fingerprints.iter().map(ToString::to_string);
    let prints: Vec<_> = prints.collect();
    let proof = match () {
        () if url.starts_with("http://") => "nothing identifies it without TLS".to_owned(),
        () if prints.is_empty() => "an authority of the system identifies it".to_owned(),
        () => format!("its certificate is {}", prints.join(" or ")),
    };
    let place = match coordinators.source {
        Source::Environment => "the environment".to_owned(),
        _ if !config.places.config_file.exists() => "the defaults".to_owned(),
        _ => file.to_string(),
    };
    let moved = format!(". The environment (XDG_CONFIG_HOME or HOME) moved that to {file}");
    let moved = if is_moved { &moved } else { "" };
    format!("The code goes to {url}: {proof}, by {place}{moved}.")
}

/// Asks whether to store a login, because every program of this user can read it.
///
/// Errors: the person does not want that, or the environment moved the configuration, which a project may have done.
fn consent(config: &Config, is_moved: bool) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        let why = "storing a login needs your consent: run this on a terminal, or pass --yes";
        return Err(Failure::Usage(why.to_owned()));
    }
    if is_moved {
        let why = "the environment moved the configuration of this host, and a project may have done that: unset \
                   XDG_CONFIG_HOME and HOME, or pass --yes if you set them";
        return Err(Failure::Usage(why.to_owned()));
    }
    let asked = format!(
        "Store a login in {}? Every program of your user can then answer and send as you. [y/N] ",
        config.places.person_file.display()
    );
    if confirmed(&asked) {
        Ok(())
    } else {
        Err(Failure::Usage("no login was stored".to_owned()))
    }
}

async fn ask(config: &Config, url: &str, code: String) -> Result<LoginReply, Failure> {
    let request = LoginRequest {
        code,
        device: Some(format!("c3po on {}", config.host)),
        // Never more, whatever the code allows: a file is easier to read than a browser's storage.
        scope: Some(LoginScope::Answer),
    };
    let body = serde_json::to_string(&request).expect("texts are JSON");
    let trust = Trust::new(config.coordinators.fingerprints.clone());
    let (status, answer) = post_json(url, &trust, login::PATH, &[], &body).await?;
    if status != 200 {
        return Err(refusal(url, status, &answer).into());
    }
    let made: Envelope<LoginReply> =
        serde_json::from_str(&answer).map_err(|_| refusal(url, status, &answer))?;
    let made = made.data;
    if made.login.scope != LoginScope::Answer {
        let error = format!("{url} made a login of the scope '{}'", made.login.scope);
        return Err(Refusal::new(ErrorCode::VersionMismatch, error)
            .suggest("Revoke that login: `c3po-coordinator logins list` shows it.")
            .into());
    }
    Ok(made)
}

/// Returns the text of the file. The token is for the coordinators that this host uses now, with their certificates.
fn written(config: &Config, token: &str) -> String {
    let coordinators = &config.coordinators;
    let urls: Vec<_> = coordinators
        .urls
        .iter()
        .map(|url| as_written(url))
        .collect();
    let prints = coordinators.fingerprints.iter().map(ToString::to_string);
    let prints: Vec<_> = prints.collect();
    let of = |text: String| toml::Value::from(text);
    let pinned = (!prints.is_empty()).then(|| format!("fingerprint = {}\n", of(prints.join(","))));
    format!(
        "# A login of this host's person, made by `c3po login`; `c3po logout` ends it.\ncoordinator_url = {}\n{}token = {}\n",
        of(urls.join(",")),
        pinned.unwrap_or_default(),
        of(token.to_owned())
    )
}

fn unwritable(error: anyhow::Error, state: &str) -> Failure {
    Failure::Stopped {
        why: format!("the file of the login: {error:#}"),
        advice: format!("Fix that and run this again; {state}."),
    }
}

fn tell(printer: &Printer, file: &Path, made: &LoginReply) -> Result<(), Failure> {
    let (file, login) = (file.display().to_string(), &made.login);
    if printer.json {
        return printer.document(&json!({"login": login, "file": file}));
    }
    // The coordinator chose parts of the line.
    let line = format!(
        "Logged in as {} until {}, or longer with use: this host's commands act as human. The login {} is in {file}.",
        login.name, login.expires_at, login.id
    );
    printer.line(&harmless(&line, false))
}

/// `c3po logout`
pub(super) async fn log_out(config: Config, printer: &Printer) -> Result<(), Failure> {
    let (file, folder) = (&config.places.person_file, &config.places.settings);
    let unrevoked = "no login was revoked";
    check_link(&config, unrevoked)?;
    let content = folder.own_content(PERSON_FILE);
    let Some(content) = content.map_err(|error| unwritable(error.into(), unrevoked))? else {
        return printer.line("This host has no login.");
    };
    let mut ends = Ends::default();
    ends.of(&config, &content).await;
    // A login that another command stored meanwhile would stay valid without its file.
    let meanwhile = changed(&config, &content);
    if let Ok(Some((config, meanwhile))) = &meanwhile {
        ends.of(config, meanwhile).await;
    }
    let is_deleted = meanwhile.and_then(|_| match folder.remove(PERSON_FILE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    });
    ends.tell(printer)?;
    is_deleted.map_err(|error| unwritable(error.into(), "the file is still there"))?;
    tell_queued(&config, printer)?;
    match (ends.logins.is_empty(), ends.is_left) {
        (true, _) => without_token(printer, file, &String::from_utf8_lossy(&content)),
        (false, true) => Err(ends.why.unwrap_or(Failure::No)),
        (false, false) => Ok(()),
    }
}

/// How the ends of the logins went that a file had.
#[derive(Debug, Default)]
struct Ends {
    logins: Vec<PersonLogin>,
    lines: Vec<String>,
    /// Whether one of them may still be valid.
    is_left: bool,
    /// Why the first of those has not ended, if that is known.
    why: Option<Failure>,
}

impl Ends {
    /// Ends the logins in that content of the file.
    async fn of(&mut self, config: &Config, content: &[u8]) {
        let text = String::from_utf8_lossy(content);
        let logins = stored(config, &text);
        self.is_left |= !are_all(&logins, &text);
        for login in &logins {
            let ended = end(login).await;
            match ended {
                _ if !ended.is_over(config) => {
                    self.is_left = true;
                    self.why = self.why.take().or(ended.failure());
                }
                Ended::Now => self
                    .lines
                    .push("Logged out: the login is revoked.".to_owned()),
                _ => self.lines.push(format!("Logged out: {HAD_ENDED}")),
            }
        }
        self.logins.extend(logins);
    }

    fn tell(&self, printer: &Printer) -> Result<(), Failure> {
        self.lines.iter().try_for_each(|line| printer.line(line))?;
        if !self.is_left || self.logins.is_empty() {
            return Ok(());
        }
        let what = match self.logins.as_slice() {
            [_] => "No coordinator could revoke the login",
            _ => "Not every login in the file is revoked",
        };
        printer.line(&format!("{what}: {}", by_hand(&self.logins)))
    }
}

/// Reports messages that wait for a login on this host.
fn tell_queued(config: &Config, printer: &Printer) -> Result<(), Failure> {
    let folder = config.person_journal_dir();
    let waiting = |queued: &QueuedFor| queued.waiting > 0 && queued.journal.starts_with(&folder);
    let queued = link::kept(config).into_iter().filter(waiting);
    for QueuedFor {
        waiting, journal, ..
    } in queued
    {
        printer.line(&format!(
            "Messages queued on this host by a person: {waiting}. The next `c3po send` with a login sends them as that person, \
             unless you delete {}.",
            journal.display()
        ))?;
    }
    Ok(())
}

/// Checks that the login is that of the folder in which its file is.
fn check_link(config: &Config, state: &str) -> Result<(), Failure> {
    let problem = config.places.settings.problem_of_link(PERSON_FILE);
    let problem = problem.map(anyhow::Error::msg);
    problem.map_or(Ok(()), |problem| Err(unwritable(problem, state)))
}

/// Reports that a file is deleted in which there was no token.
fn without_token(printer: &Printer, file: &Path, text: &str) -> Result<(), Failure> {
    let file = file.display();
    if text.trim().is_empty() {
        return printer.line(&format!(
            "{file} is deleted; it had no login. If it was emptied, a login may still be valid: {LISTED}"
        ));
    }
    Err(Failure::Stopped {
        why: format!(
            "{file} is deleted, but no token could be read in it, so no login was revoked"
        ),
        advice: LISTED.to_owned(),
    })
}
