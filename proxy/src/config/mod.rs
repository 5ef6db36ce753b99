//! The configuration of a host: a file, overridden by the environment, read once in `main`. The only place with `env::var`.

mod coordinators;
mod folder;
mod names;
mod person;
mod places;
pub mod private;
mod target;

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use c3po_shared::ids::AgentId;
use c3po_shared::join::CODE_VARIABLE;
use c3po_shared::limits::{WAIT_DEFAULT, WAIT_MAX};
use c3po_shared::names::steering;
use serde::Deserialize;

use crate::client::{self, Client, Reader};

pub use coordinators::{Coordinators, Source};
use coordinators::{Fingerprints, Written};
pub use folder::{CONFIG_FILE, PERSON_FILE, SettingsFolder};
use names::{agent, host_name};
pub use person::{Person, PersonLogin};
pub use places::{HookEnvironment, Places, Sockets, may_wait_for_people};
use places::{base, flag};
pub(crate) use target::targets;
pub use target::{DEFAULT_URL, as_written, problem_of_urls};

/// The advice for a key that others could read.
const NEW_KEY: &str = "join again, and revoke this key";

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Returns the text, for the one header that carries it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The configuration of this host.
#[derive(Debug, Clone)]
pub struct Config {
    /// The coordinators' URLs and certificates, this host's key, and whether they get requests of the client.
    pub coordinators: Coordinators,
    /// The person of this host.
    pub person: Person,
    /// The wished name of the agent: `C3PO_AGENT_ID`, `agent_id`; default the project folder's name.
    pub agent: AgentId,
    /// The machine's name: `C3PO_HOST`; default its hostname. A coordinator uses the name of the host's key instead, if any.
    pub host: String,
    /// The join code, for `c3po join`: `C3PO_JOIN_CODE`.
    pub join_code: Option<Secret>,
    /// The pid of the client that started this process.
    pub client: u32,
    /// The client's session id in the environment, `CLAUDE_CODE_SESSION_ID`: not reliable, for information only.
    pub session_id: Option<String>,
    /// The default timeout of a wait, in seconds: `C3PO_TIMEOUT`, `timeout`; default 60.
    pub timeout: u64,
    /// The folder for files that must survive a restart: `$XDG_STATE_HOME/c3po`; default `~/.local/state/c3po`.
    pub state_dir: PathBuf,
    /// The folders and files of this host.
    pub places: Places,
    /// The stamp of `config.toml` right before it was read.
    pub read_at: Stamp,
    /// The folders in which the socket for hooks may be.
    pub sockets: Sockets,
    /// The log filter, in the form of `tracing`: `C3PO_LOG`; default `warn,rmcp=error`.
    pub log: String,
    /// The log file: `C3PO_LOG_FILE`; default standard error.
    pub log_file: Option<PathBuf>,
    /// Whether output may have colours: unless `NO_COLOR` is set to any value.
    pub colour: bool,
    /// The session's own inbox socket, if the client names it: `CLAUDE_CODE_MESSAGING_SOCKET`.
    pub messaging_socket: Option<String>,
    /// The token that opens it: `CLAUDE_CODE_MESSAGING_TOKEN`.
    pub messaging_token: Option<Secret>,
    /// Whether channel notifications are enabled: `C3PO_CHANNEL`, `true` or `1`; default no.
    pub channel: bool,
    /// Whether a plugin with hooks started us: whether `CLAUDE_PLUGIN_ROOT` is set.
    pub is_plugin: bool,
    /// Whether the session answers one prompt and ends: a client without a terminal, without a stream of prompts and without
    /// an explicit name. Its agent has the project's name and `-run`.
    pub one_shot: bool,
    /// Whether a program reads the session's answers, and takes each for the answer to its own prompt.
    pub headless: bool,
    /// Whether the desktop shows a note when the session asks for a person: `C3PO_DESKTOP_NOTES` or `desktop_notes`, with a
    /// terminal.
    pub desktop_notes: bool,
    /// Errors. Commands refuse to run; a proxy runs, reports them, and connects if it still can.
    pub problems: Vec<String>,
    /// Errors with a fall-back.
    pub warnings: Vec<String>,
}

/// Returns a variable that is not empty: clients pass "${VAR:-}", which turns an unset variable into an empty one. Without
/// `HOME`, the home of the user in `/etc/passwd` counts, as in shells.
fn variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok();
    let value = value.filter(|value| !value.trim().is_empty());
    if name == "HOME" {
        return value.or_else(|| Some(places::home_of_user()?.display().to_string()));
    }
    value
}

/// Returns the variable that leads the resolver of this process to other names, which a project's environment may do; `None` if
/// there is none.
pub fn resolver_steering() -> Option<&'static str> {
    // Other systems look names up in another process.
    let is_linux = cfg!(target_os = "linux");
    steering(|name| std::env::var_os(name).filter(|_| is_linux))
}

/// The file `config.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    coordinator_url: Option<String>,
    agent_id: Option<String>,
    timeout: Option<u64>,
    token: Option<Secret>,
    fingerprint: Option<Fingerprints>,
    #[serde(default)]
    relay_permissions: bool,
    #[serde(default)]
    desktop_notes: bool,
    /// Whether there is a file that cannot be used.
    #[serde(skip)]
    is_refused: bool,
}

impl File {
    /// Parses the file, or reports why it cannot be read or is invalid. Then it has none of the settings.
    fn of(text: Result<Option<&str>, &str>, name: &Path, problems: &mut Vec<String>) -> Self {
        let parsed = text.map_err(str::to_owned).and_then(|text| {
            let parsed = text.map_or_else(|| Ok(Self::default()), toml::from_str);
            parsed.map_err(|error| format!("{}: {}", name.display(), error.to_string().trim_end()))
        });
        parsed.unwrap_or_else(|problem| {
            problems.push(problem);
            Self {
                is_refused: true,
                ..Self::default()
            }
        })
    }

    /// Returns its settings of coordinators, for a process with or without a person at its terminal.
    fn coordinators(&self, is_of_person: bool) -> Written {
        let (urls, token) = (self.coordinator_url.clone(), self.token.clone());
        Written {
            urls,
            token,
            fingerprints: self.fingerprint.clone(),
            relay_is_on: self.relay_permissions,
            relays: self.relay_permissions && is_of_person,
            is_refused: self.is_refused,
        }
    }
}

/// The sources of settings, as parameters for tests.
struct Sources<'a> {
    variable: &'a dyn Fn(&str) -> Option<String>,
    file: Result<Option<&'a str>, &'a str>,
    file_name: &'a Path,
    cwd: Option<&'a Path>,
    host: String,
    client: Client,
}

impl Config {
    /// Reads the file and the environment of this process.
    pub fn read() -> Self {
        let path = Places::of(&variable).config_file;
        let cwd = std::env::current_dir().ok();
        let read_at = stamp(&path);
        let settings = settings_of(&path);
        let file = settings.text(CONFIG_FILE);
        let mut config = Self::from_sources(&Sources {
            variable: &variable,
            file: file.as_ref().map(Option::as_deref).map_err(String::as_str),
            file_name: &path,
            cwd: cwd.as_deref(),
            host: host_name(),
            client: Client::look(),
        });
        config.person.login = PersonLogin::read(&settings, &mut config.warnings);
        let unused = |login: &PersonLogin| login.unused_at(&config.coordinators);
        let unused = config.person.login.as_ref().and_then(unused);
        config.warnings.extend(unused);
        config.places.settings = settings;
        config.read_at = read_at;
        config
    }

    /// Returns the configuration of a command that acts as the person: with the login of this host, if it has one for these
    /// coordinators.
    #[must_use]
    pub fn of_person(mut self) -> Self {
        self.person.speaks = true;
        let coordinators = std::mem::take(&mut self.coordinators);
        self.coordinators = self.person.at(coordinators);
        self
    }

    /// Returns the folder of queued calls. The calls of a person with a login are beside it: a project may name a state
    /// folder in which there are any calls.
    pub fn journal_dir(&self) -> PathBuf {
        if self.person.speaks && self.person.login.is_some() {
            return self.person_journal_dir();
        }
        self.state_dir.join("journal")
    }

    /// Returns the folder of the calls that a login sends: the one beside that login.
    pub fn person_journal_dir(&self) -> PathBuf {
        self.places.settings.path_of("journal")
    }

    /// Reads the login of this host's person again: none if the `config.toml` beside it does not name those coordinators.
    pub fn read_person(&self, coordinators: &Coordinators) -> Person {
        let settings = settings_of(&self.places.config_file);
        let beside = self.coordinators_in(settings.text(CONFIG_FILE));
        let is_theirs = beside.is_ok_and(|beside| beside.cover(coordinators));
        let login = is_theirs.then(|| PersonLogin::read(&settings, &mut Vec::new()));
        Person {
            login: login.flatten(),
            ..self.person
        }
    }

    /// Returns this with the login of this host's person as its file has it now.
    #[must_use]
    pub fn with_present_login(&self) -> Self {
        let login = PersonLogin::read(&self.places.settings, &mut Vec::new());
        let person = Person {
            login,
            ..self.person
        };
        Self {
            person,
            ..self.clone()
        }
    }

    /// Reads the coordinators again: the file may have changed, the environment has not.
    ///
    /// Errors: all problems of the settings.
    pub fn read_coordinators(&self) -> Result<Coordinators, Vec<String>> {
        let path = &self.places.config_file;
        // A login is for the coordinators of its own folder.
        let settings = match self.person.login {
            Some(_) if self.person.speaks => self.places.settings.clone(),
            _ => settings_of(path),
        };
        self.coordinators_in(settings.text(CONFIG_FILE).and_then(|text| {
            // Without its file, this host would have the default coordinator, which any user of the machine may run.
            text.map(Some)
                .ok_or_else(|| format!("{} is gone", path.display()))
        }))
    }

    /// Returns the coordinators of a `config.toml` and of the environment.
    fn coordinators_in(
        &self,
        text: Result<Option<String>, String>,
    ) -> Result<Coordinators, Vec<String>> {
        let path = &self.places.config_file;
        let text = text.as_ref().map(Option::as_deref).map_err(String::as_str);
        let mut problems = Vec::new();
        let file = File::of(text, path, &mut problems);
        let names_none =
            file.coordinator_url.is_none() && variable("C3PO_COORDINATOR_URL").is_none();
        if names_none && problems.is_empty() && !self.coordinators.are_default() {
            problems.push(format!("{} names no coordinator now", path.display()));
        }
        let of_file = file.coordinators(!self.headless);
        let read = Coordinators::read(&variable, of_file, &mut problems);
        if problems.is_empty() {
            Ok(self.person.at(read))
        } else {
            Err(problems)
        }
    }

    /// Returns the coordinators that were read before, for a file that is gone or invalid since: it turns no relay on.
    pub fn without_file(&self, before: Coordinators) -> Coordinators {
        before.without_file(&variable)
    }

    /// Returns the configuration of that file alone.
    pub fn of_file(text: &str) -> Self {
        let nothing = |_: &str| None;
        let name = Path::new("config.toml");
        Self::from_sources(&Sources {
            variable: &nothing,
            file: Ok(Some(text)),
            file_name: name,
            cwd: None,
            host: String::new(),
            client: Client::default(),
        })
    }

    fn from_sources(sources: &Sources<'_>) -> Self {
        let variable = sources.variable;
        let (mut problems, mut warnings) = (Vec::new(), Vec::new());
        let file = File::of(sources.file, sources.file_name, &mut problems);
        let client = &sources.client;
        let reader = client::reader(variable("CLAUDE_CODE_ENTRYPOINT").as_deref(), client);
        let is_of_person = reader == Reader::Person;
        let of_file = file.coordinators(is_of_person);
        let coordinators = Coordinators::read(variable, of_file, &mut problems);
        warnings.extend(coordinators.problem_of_relay(variable));
        if file.token.is_some() {
            warnings.extend(private::readable(sources.file_name, NEW_KEY));
            warnings.extend(unsent(sources.file_name, &coordinators));
        }
        let wished = variable("C3PO_AGENT_ID").or(file.agent_id);
        let project = variable("CLAUDE_PROJECT_DIR").map(PathBuf::from);
        let agent = agent(
            wished.as_deref(),
            project.as_deref(),
            sources.cwd,
            &mut warnings,
        );
        // Every program below a session inherits its variables. Without those a hook of the own client names its socket.
        let socket = variable("CLAUDE_CODE_MESSAGING_SOCKET");
        let inherits = |socket: &String| client::of_socket(socket) != Some(client.pid);
        let inherits = socket.as_ref().is_some_and(inherits);
        let own = |name| variable(name).filter(|_| !inherits);
        let one_shot = wished.is_none() && reader == Reader::OfOneAnswer;
        let agent = if one_shot {
            agent.with_suffix("run")
        } else {
            agent
        };
        let timeout = timeout(variable, file.timeout, &mut problems);
        let notes = flag(variable, "C3PO_DESKTOP_NOTES").unwrap_or(file.desktop_notes);
        Self {
            coordinators,
            person: Person::default(),
            agent,
            host: host(sources),
            join_code: variable(CODE_VARIABLE).map(Secret),
            client: client.pid,
            session_id: own("CLAUDE_CODE_SESSION_ID"),
            timeout,
            state_dir: base(variable, "XDG_STATE_HOME", ".local/state").join("c3po"),
            read_at: Stamp::default(),
            places: Places::of(variable),
            sockets: Sockets::of(variable),
            log: variable("C3PO_LOG").unwrap_or_else(|| "warn,rmcp=error".to_owned()),
            log_file: variable("C3PO_LOG_FILE").map(PathBuf::from),
            colour: variable("NO_COLOR").is_none(),
            messaging_socket: own("CLAUDE_CODE_MESSAGING_SOCKET"),
            messaging_token: own("CLAUDE_CODE_MESSAGING_TOKEN").map(Secret),
            channel: flag(variable, "C3PO_CHANNEL") == Some(true),
            is_plugin: variable("CLAUDE_PLUGIN_ROOT").is_some(),
            one_shot,
            headless: !is_of_person,
            desktop_notes: notes && is_of_person,
            problems,
            warnings,
        }
    }
}

/// Returns why the token in that file is not sent to these coordinators, if it is not.
fn unsent(file: &Path, coordinators: &Coordinators) -> Option<String> {
    let file = file.display();
    coordinators.token.is_none().then(|| {
        format!(
            "the environment sets another coordinator or certificate than {file}, so the token in that file is not \
             sent: set C3PO_TOKEN, or unset C3PO_COORDINATOR_URL and C3PO_FINGERPRINT"
        )
    })
}

/// Returns the timeout of a wait in seconds: the default if that of the variable or the file is a problem.
fn timeout(
    variable: &dyn Fn(&str) -> Option<String>,
    file: Option<u64>,
    problems: &mut Vec<String>,
) -> u64 {
    let written = variable("C3PO_TIMEOUT").or(file.map(|seconds| seconds.to_string()));
    let read = written.map_or(Ok(WAIT_DEFAULT), |text| seconds(&text));
    read.unwrap_or_else(|problem| {
        problems.push(problem);
        WAIT_DEFAULT
    })
}

fn host(sources: &Sources<'_>) -> String {
    let named = (sources.variable)("C3PO_HOST");
    named.map_or_else(|| sources.host.clone(), |host| host.trim().to_owned())
}

/// The signs of a changed file, and of the folder in which it is read: a file that others may write is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// The time of its last change, of its mode and owner too, its length, and its identity. `None` if there is no file.
    file: Option<(i64, i64, u64, u64)>,
    /// The mode and the owner.
    folder: Option<(u32, u32)>,
}

/// Returns the stamp of a file.
pub(crate) fn stamp(path: &Path) -> Stamp {
    let file = std::fs::metadata(path).ok();
    let folder = path.parent().and_then(|folder| folder.metadata().ok());
    Stamp {
        file: file.map(|file| (file.ctime(), file.ctime_nsec(), file.len(), file.ino())),
        folder: folder.map(|folder| (folder.mode(), folder.uid())),
    }
}

/// Opens the folder of a file.
fn settings_of(file: &Path) -> SettingsFolder {
    SettingsFolder::open(file.parent().unwrap_or(file))
}

/// Returns the text of the file, if it exists.
pub(crate) fn text_of(path: &Path) -> Result<Option<String>, String> {
    settings_of(path).text(path.file_name().unwrap_or_default())
}

/// Parses a timeout in seconds; zero is invalid.
fn seconds(text: &str) -> Result<u64, String> {
    let seconds = text
        .trim()
        .parse()
        .ok()
        .filter(|seconds| (1..=WAIT_MAX).contains(seconds));
    seconds.ok_or_else(|| {
        format!("C3PO_TIMEOUT is '{text}'; it must be a number of seconds from 1 to {WAIT_MAX}")
    })
}

#[cfg(test)]
mod tests;
