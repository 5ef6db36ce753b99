//! The folders and files of this host, and the variables of hooks.

use std::path::{Path, PathBuf};

use super::folder::{CONFIG_FILE, PERSON_FILE, SettingsFolder};
use super::{Secret, variable};

/// The folders and files of this host.
#[derive(Debug, Clone)]
pub struct Places {
    /// The user's folder: `HOME`.
    pub home: Option<PathBuf>,
    /// The folder of c3po's own files: `$XDG_DATA_HOME/c3po`; default `~/.local/share/c3po`.
    pub data_dir: PathBuf,
    /// This host's configuration file: `$XDG_CONFIG_HOME/c3po/config.toml`; default in `~/.config`.
    pub config_file: PathBuf,
    /// The login of this host's person: `person.toml` beside that file.
    pub person_file: PathBuf,
    /// The folder of these two, as it was when the configuration was read.
    pub settings: SettingsFolder,
    /// The folder of Claude Code's user settings: `CLAUDE_CONFIG_DIR`; default `~/.claude`.
    pub claude_dir: PathBuf,
    /// The folders of programs: the absolute folders of `PATH`.
    pub path: Vec<PathBuf>,
}

/// The variables that name the folders of sockets, for a proxy and for the hooks of its session alike.
#[derive(Debug, Clone, Default)]
pub struct Sockets {
    /// The preferred folder: `XDG_RUNTIME_DIR`; default none, which means our own folder in `/tmp`.
    pub runtime_dir: Option<PathBuf>,
    /// The user's folder, used if another user created the one in `/tmp` first: `HOME`.
    pub home: Option<PathBuf>,
}

impl Sockets {
    pub(super) fn of(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let folder = |name| {
            variable(name)
                .map(PathBuf::from)
                .filter(|folder| folder.is_absolute())
        };
        Self {
            runtime_dir: folder("XDG_RUNTIME_DIR"),
            home: folder("HOME"),
        }
    }
}

/// The variables of a hook. No file is read for them: a hook has two milliseconds.
#[derive(Debug, Clone, Default)]
pub struct HookEnvironment {
    /// The client's claim about its process: `CLAUDE_PID`.
    pub client: Option<u32>,
    /// The folders of sockets.
    pub sockets: Sockets,
    /// The session's own inbox socket: `CLAUDE_CODE_MESSAGING_SOCKET`.
    pub messaging_socket: Option<String>,
    /// The token that opens that: `CLAUDE_CODE_MESSAGING_TOKEN`.
    pub messaging_token: Option<Secret>,
    /// Whether the client has no terminal, and so runs nothing beside the session: a waiting hook would block it.
    /// `CLAUDE_CODE_SESSION_ATTENDED` is `0`, or `CLAUDE_CODE_ENTRYPOINT` is set and not `cli`.
    pub headless: bool,
}

fn is_headless(variable: &dyn Fn(&str) -> Option<String>) -> bool {
    let attended = variable("CLAUDE_CODE_SESSION_ATTENDED");
    let is_attended = attended.as_deref() == Some("1");
    // Sessions of a program are not attended: one that is has inherited its entry point.
    let is_own = |entry: &String| !(is_attended && entry.starts_with("sdk-"));
    let entry = variable("CLAUDE_CODE_ENTRYPOINT").filter(is_own);
    attended.as_deref() == Some("0") || entry.is_some_and(|entry| entry != "cli")
}

/// Returns whether a hook of the client may wait for people: where a dialog is open beside it, or where
/// `C3PO_RELAY_PERMISSIONS` allows it.
pub fn may_wait_for_people() -> bool {
    relays(&variable).unwrap_or_else(|| !HookEnvironment::read().headless)
}

/// Returns the value of `C3PO_RELAY_PERMISSIONS`, if it is set.
pub(super) fn relays(variable: &dyn Fn(&str) -> Option<String>) -> Option<bool> {
    flag(variable, "C3PO_RELAY_PERMISSIONS")
}

/// Returns whether a variable is `true` or `1`, if it is set.
pub(super) fn flag(variable: &dyn Fn(&str) -> Option<String>, name: &str) -> Option<bool> {
    variable(name).map(|value| matches!(value.trim(), "true" | "1"))
}

impl HookEnvironment {
    /// Reads the environment of this process.
    pub fn read() -> Self {
        Self {
            client: variable("CLAUDE_PID").and_then(|pid| pid.parse().ok()),
            sockets: Sockets::of(&variable),
            messaging_socket: variable("CLAUDE_CODE_MESSAGING_SOCKET"),
            messaging_token: variable("CLAUDE_CODE_MESSAGING_TOKEN").map(Secret),
            headless: is_headless(&variable),
        }
    }
}

impl Places {
    /// Returns the configuration file of this process's user, whatever the environment names. `None` if the user is not in
    /// `/etc/passwd`, as those of a directory service.
    pub fn config_file_of_user() -> Option<PathBuf> {
        Some(Self::in_home(&home_of_user()?).config_file)
    }

    /// Returns the default places below a home folder.
    pub fn in_home(home: &Path) -> Self {
        Self::of(&|name| (name == "HOME").then(|| home.display().to_string()))
    }

    pub(super) fn of(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let path = variable("PATH").unwrap_or_default();
        let settings = base(variable, "XDG_CONFIG_HOME", ".config").join("c3po");
        Self {
            home: variable("HOME")
                .map(PathBuf::from)
                .filter(|home| home.is_absolute()),
            data_dir: base(variable, "XDG_DATA_HOME", ".local/share").join("c3po"),
            config_file: settings.join(CONFIG_FILE),
            person_file: settings.join(PERSON_FILE),
            settings: SettingsFolder::unopened(&settings),
            claude_dir: base(variable, "CLAUDE_CONFIG_DIR", ".claude"),
            path: std::env::split_paths(&path)
                .filter(|folder| folder.is_absolute())
                .collect(),
        }
    }
}

/// Returns the home of this process's user in `/etc/passwd`.
pub(super) fn home_of_user() -> Option<PathBuf> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    home_of(&users, rustix::process::geteuid().as_raw()).filter(|home| home.is_absolute())
}

/// Returns the home of a user in the text of `/etc/passwd`.
fn home_of(users: &str, user: u32) -> Option<PathBuf> {
    let mut lines = users
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    lines.find_map(|fields| match fields[..] {
        [_, _, uid, _, _, home, _] if uid.parse() == Ok(user) => Some(PathBuf::from(home)),
        _ => None,
    })
}

/// The home of a user who has none. A folder that others can write, such as `/tmp`, would give them the files.
const NO_HOME: &str = "/nonexistent";

/// Returns a base directory: the value of the variable, or a folder in the home.
pub(super) fn base(
    variable: &dyn Fn(&str) -> Option<String>,
    name: &str,
    in_home: &str,
) -> PathBuf {
    let home = || {
        variable("HOME")
            .map_or_else(|| NO_HOME.into(), PathBuf::from)
            .join(in_home)
    };
    variable(name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .unwrap_or_else(home)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_found_by_the_number_of_its_user() {
        let users =
            "root:x:0:0:root:/root:/bin/sh\nodd\nann:x:1000:1000:Ann,,,:/home/ann:/bin/bash\n";
        assert_eq!(home_of(users, 1000), Some("/home/ann".into()));
        assert_eq!(home_of(users, 1001), None);
    }

    #[test]
    fn a_hook_is_headless_by_its_own_session_and_not_by_one_above() {
        let check = |entry: Option<&str>, attended: Option<&str>, expected: bool| {
            let headless = is_headless(&|name| {
                let value = match name {
                    "CLAUDE_CODE_ENTRYPOINT" => entry,
                    "CLAUDE_CODE_SESSION_ATTENDED" => attended,
                    _ => None,
                };
                value.map(str::to_owned)
            });
            assert_eq!(headless, expected, "{entry:?} {attended:?}");
        };
        check(None, None, false);
        check(Some("cli"), None, false);
        check(Some("cli"), Some("1"), false);
        check(Some("sdk-cli"), None, true);
        check(Some("sdk-cli"), Some("0"), true);
        check(Some("sdk-ts"), Some("0"), true);
        check(Some("cli"), Some("0"), true);
        check(Some("sdk-cli"), Some("1"), false);
        check(Some("claude-vscode"), Some("1"), true);
    }

    #[test]
    fn folders_are_in_the_home_unless_variables_name_others() {
        let places = Places::in_home(Path::new("/home/x"));
        assert_eq!(places.data_dir, Path::new("/home/x/.local/share/c3po"));
        assert_eq!(
            places.config_file,
            Path::new("/home/x/.config/c3po/config.toml")
        );
        assert_eq!(places.claude_dir, Path::new("/home/x/.claude"));
        let variables = [
            ("XDG_DATA_HOME", "/d"),
            ("CLAUDE_CONFIG_DIR", "/c"),
            ("PATH", "/bin::./x:/usr/bin"),
        ];
        let places = Places::of(&|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        assert_eq!(
            (places.home, places.data_dir.as_path()),
            (None, Path::new("/d/c3po"))
        );
        assert_eq!(places.claude_dir, Path::new("/c"));
        assert_eq!(places.path, [Path::new("/bin"), Path::new("/usr/bin")]);
    }
}
