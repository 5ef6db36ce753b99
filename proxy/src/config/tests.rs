//! Tests of the settings of a host, from variables and a file.

use std::os::unix::fs::PermissionsExt;

use super::*;

fn read(variables: &[(&str, &str)], file: Option<&str>) -> Config {
    read_below(Client::default(), variables, file)
}

fn read_below(client: Client, variables: &[(&str, &str)], file: Option<&str>) -> Config {
    let variables: Vec<_> = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let variable = move |name: &str| {
        let found = variables
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.clone());
        found.filter(|value| !value.trim().is_empty())
    };
    Config::from_sources(&Sources {
        variable: &variable,
        file: Ok(file),
        file_name: Path::new("config.toml"),
        cwd: Some(Path::new("/home/ann/Home Assistant")),
        host: "nas2".to_owned(),
        client,
    })
}

fn without_terminal(command: &[&str]) -> Client {
    Client {
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        ..Client::default()
    }
}

#[test]
fn a_client_that_answers_one_prompt_gets_a_name_of_its_own() {
    let check = |variables: &[(&str, &str)], client: &[&str], expected: (&str, bool)| {
        let variable = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let config = Config::from_sources(&Sources {
            variable: &variable,
            file: Ok(None),
            file_name: Path::new("config.toml"),
            cwd: Some(Path::new("/home/ann/web")),
            host: "nas2".to_owned(),
            client: without_terminal(client),
        });
        assert_eq!(
            (config.agent.as_str(), config.one_shot),
            expected,
            "{variables:?} {client:?}"
        );
    };
    let (entry, print) = (
        ("CLAUDE_CODE_ENTRYPOINT", "sdk-cli"),
        ["claude", "-p", "go"],
    );
    check(&[entry], &print, ("web-run", true));
    check(&[entry], &[], ("web-run", true));
    check(
        &[entry],
        &["claude", "-p", "--output-format", "stream-json"],
        ("web-run", true),
    );
    check(
        &[entry, ("C3PO_AGENT_ID", "night")],
        &print,
        ("night", false),
    );
    check(
        &[entry],
        &["claude", "-p", "--input-format", "stream-json"],
        ("web", false),
    );
    check(
        &[entry],
        &["claude", "-p", "--input-format=stream-json"],
        ("web", false),
    );
    check(
        &[("CLAUDE_CODE_ENTRYPOINT", "cli")],
        &["claude"],
        ("web", false),
    );
    check(
        &[("CLAUDE_CODE_ENTRYPOINT", "sdk-py")],
        &["claude", "-p"],
        ("web-run", true),
    );
    check(
        &[("CLAUDE_CODE_ENTRYPOINT", "sdk-py")],
        &["claude"],
        ("web", false),
    );
}

#[test]
fn empty_settings_mean_the_defaults() {
    let config = read(
        &[
            ("HOME", "/home/x"),
            ("C3PO_TOKEN", ""),
            ("C3PO_AGENT_ID", " "),
        ],
        None,
    );
    assert_eq!(config.coordinators.urls, ["ws://127.0.0.1:8420/acp"]);
    assert_eq!(
        (
            config.agent.as_str(),
            config.timeout,
            config.coordinators.token
        ),
        ("Home-Assistant", 60, None)
    );
    assert_eq!(config.state_dir, Path::new("/home/x/.local/state/c3po"));
    assert!(config.problems.is_empty() && config.warnings.is_empty());
}

#[test]
fn the_environment_overrides_the_file() {
    let file =
        "coordinator_url = \"http://nas:8420\"\nagent_id = \"a\"\ntimeout = 5\ntoken = \"t\"\n";
    let config = read(&[], Some(file));
    let url = config.coordinators.urls[0].as_str();
    assert_eq!(
        (url, config.agent.as_str(), config.timeout),
        ("ws://nas:8420/acp", "a", 5)
    );
    let config = read(&[("C3PO_AGENT_ID", "b"), ("C3PO_TIMEOUT", "7")], Some(file));
    assert_eq!((config.agent.as_str(), config.timeout), ("b", 7));
    let config = read(&[("C3PO_COORDINATOR_URL", "http://evil:8420")], Some(file));
    assert_eq!(config.coordinators.token, None);
    assert!(
        config.warnings[0].contains("the token in that file is not sent"),
        "{:?}",
        config.warnings
    );
}

#[test]
fn a_wait_is_from_a_second_to_an_hour_or_a_problem() {
    for good in ["1", " 3600 "] {
        assert!(
            read(&[("C3PO_TIMEOUT", good)], None).problems.is_empty(),
            "{good}"
        );
    }
    for wrong in ["0", "3601", "-1", "1.5", "soon"] {
        let config = read(&[("C3PO_TIMEOUT", wrong)], None);
        assert!(
            config.problems[0].contains("from 1 to 3600"),
            "{wrong}: {:?}",
            config.problems
        );
        assert_eq!(config.timeout, 60);
    }
    assert_eq!(read(&[], Some("timeout = 0\n")).problems.len(), 1);
}

#[test]
fn the_name_is_the_setting_else_the_project_else_the_folder() {
    let check = |variables: &[(&str, &str)], expected: &str| {
        assert_eq!(read(variables, None).agent.as_str(), expected);
    };
    check(
        &[("C3PO_AGENT_ID", "x"), ("CLAUDE_PROJECT_DIR", "/p/web")],
        "x",
    );
    check(&[("CLAUDE_PROJECT_DIR", "/p/web")], "web");
    check(&[("CLAUDE_PROJECT_DIR", "/")], "Home-Assistant");
    check(&[], "Home-Assistant");
    assert_eq!(agent(None, None, None, &mut Vec::new()).as_str(), "agent");
}

#[test]
fn a_name_that_is_none_is_made_one_with_a_warning() {
    let config = read(&[("C3PO_AGENT_ID", "web front end!")], None);
    assert_eq!(config.agent.as_str(), "web-front-end");
    assert_eq!(config.warnings.len(), 1);
    assert!(config.problems.is_empty());
}

#[test]
fn notes_on_the_desktop_are_off_until_they_are_turned_on() {
    let on = "desktop_notes = true\n";
    let person = ("CLAUDE_CODE_ENTRYPOINT", "cli");
    let check = |variables: &[(&str, &str)], file: Option<&str>, expected: bool| {
        let config = read(variables, file);
        assert_eq!(config.desktop_notes, expected, "{variables:?} {file:?}");
    };
    check(&[person], None, false);
    check(&[person], Some(on), true);
    check(&[person, ("C3PO_DESKTOP_NOTES", "true")], None, true);
    check(&[person, ("C3PO_DESKTOP_NOTES", "false")], Some(on), false);
    check(&[("CLAUDE_CODE_ENTRYPOINT", "sdk-cli")], Some(on), false);
}

#[test]
fn unknown_keys_are_problems_and_secrets_are_not_printed() {
    let config = read(&[], Some("coordinator = \"x\"\n"));
    assert!(
        config.problems[0].contains("coordinator"),
        "{:?}",
        config.problems
    );
    let config = read(&[("C3PO_TOKEN", "hush")], None);
    assert!(!format!("{config:?}").contains("hush"));
    assert_eq!(
        config.coordinators.token.as_ref().map(Secret::expose),
        Some("hush")
    );
}

#[test]
fn a_file_that_cannot_be_used_leaves_a_host_without_a_coordinator() {
    let named =
        |name: &str| (name == "C3PO_COORDINATOR_URL").then(|| "https://nas:8420".to_owned());
    let of = |variable: &dyn Fn(&str) -> Option<String>, file: Result<Option<&str>, &str>| {
        let config = Config::from_sources(&Sources {
            variable,
            file,
            file_name: Path::new("config.toml"),
            cwd: None,
            host: "nas2".to_owned(),
            client: Client::default(),
        });
        (config.coordinators.urls.len(), config.problems.len())
    };
    assert_eq!(of(&|_| None, Ok(None)), (1, 0), "the default one");
    let unknown = "coordinator_url = 'https://nas:8420'\nrelay = true";
    for refused in [Ok(Some(unknown)), Err("cannot read it")] {
        assert_eq!(of(&|_| None, refused), (0, 1), "{refused:?}");
        assert_eq!(of(&named, refused), (0, 1), "{refused:?}");
    }
}

#[test]
fn a_file_that_is_gone_leads_no_session_to_the_default_coordinator() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let path = folder.path().join("c3po/config.toml");
    let mut config = Config::of_file("");
    config.places.config_file.clone_from(&path);
    assert!(
        config.read_coordinators().is_err(),
        "it was there when the session started"
    );
    assert_eq!(text_of(&path), Ok(None), "a host without a file");

    std::os::unix::fs::symlink(folder.path().join("away"), folder.path().join("c3po")).unwrap();
    assert!(text_of(&path).is_err(), "its place is away");
    std::fs::create_dir(folder.path().join("away")).unwrap();
    assert_eq!(text_of(&path), Ok(None));
    std::os::unix::fs::symlink("elsewhere.toml", &path).unwrap();
    assert!(text_of(&path).is_err());
    std::fs::write(
        folder.path().join("away/elsewhere.toml"),
        "coordinator_url = \"nas:8420\"",
    )
    .unwrap();
    let read = config.read_coordinators().unwrap();
    assert_eq!(read.urls, ["ws://nas:8420/acp"]);

    std::fs::write(folder.path().join("away/elsewhere.toml"), "").unwrap();
    assert!(
        config.read_coordinators().is_ok(),
        "it was the default one before"
    );
    config.coordinators = read;
    assert!(config.read_coordinators().is_err());
}

#[test]
fn requests_are_relayed_to_the_coordinators_of_the_host_alone() {
    let file = "coordinator_url = \"https://nas:8420\"\nrelay_permissions = true\n";
    let check = |variables: &[(&str, &str)], file: &str, expected: bool| {
        let on = [&[("C3PO_RELAY_PERMISSIONS", "true")], variables].concat();
        assert_eq!(
            read(&on, Some(file)).coordinators.relays,
            expected,
            "{variables:?}"
        );
    };
    check(&[], file, true);
    let url = "C3PO_COORDINATOR_URL";
    check(&[(url, "https://nas:8420")], file, true);
    check(&[(url, "https://nas:8420")], "", true);
    check(&[(url, "https://box:8420")], file, false);
    let by_file = |variables: &[(&str, &str)]| {
        let variables = [&[("CLAUDE_CODE_ENTRYPOINT", "cli")], variables].concat();
        read(&variables, Some("relay_permissions = true\n"))
            .coordinators
            .relays
    };
    assert!(by_file(&[]), "to the coordinator of this machine");
    assert!(!by_file(&[(url, "https://box:8420")]), "another one");
}

#[test]
fn the_inbox_of_a_client_above_the_own_one_is_not_its_own() {
    let client = |pid| Client {
        pid,
        ..Client::default()
    };
    let check = |socket: &str, expected: bool| {
        let variables = [
            ("CLAUDE_CODE_MESSAGING_SOCKET", socket),
            ("CLAUDE_CODE_MESSAGING_TOKEN", "t"),
            ("CLAUDE_CODE_SESSION_ID", "s"),
        ];
        let config = read_below(client(71), &variables, None);
        let known = [
            config.messaging_socket.is_some(),
            config.messaging_token.is_some(),
            config.session_id.is_some(),
        ];
        assert_eq!(known, [expected; 3], "{socket}");
    };
    check("/run/user/7/cc-socks/71.sock", true);
    check("/tmp/cc-socks-0/71-0badcafe.sock", true);
    check("/run/user/7/cc-socks/7.sock", false);
    check("/run/user/7/cc-socks/711.sock", false);
    check("/srv/inbox.sock", false);
    let older = read_below(client(71), &[("CLAUDE_CODE_SESSION_ID", "s")], None);
    assert!(older.session_id.is_some());
}

#[test]
fn a_token_that_other_users_can_read_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let path = folder.path().join(CONFIG_FILE);
    let check = |text: &str, expected: usize| {
        for path in [&path, &folder.path().join(PERSON_FILE)] {
            std::fs::write(path, text).unwrap();
            open(path, 0o644);
        }
        open(folder.path(), 0o755);
        let config = Config::from_sources(&Sources {
            variable: &|_| None,
            file: Ok(Some(text)),
            file_name: &path,
            cwd: None,
            host: "nas2".to_owned(),
            client: Client::default(),
        });
        let warned = |warnings: &[String]| {
            let readable = |warning: &&String| warning.contains("readable by other users");
            warnings.iter().filter(readable).count()
        };
        let mut warnings = Vec::new();
        PersonLogin::read(&SettingsFolder::open(folder.path()), &mut warnings);
        assert_eq!(
            (warned(&config.warnings), warned(&warnings)),
            (expected, expected),
            "{text}"
        );
    };
    let url = "coordinator_url = \"http://nas:8420\"\n";
    check(url, 0);
    let is_reachable = usize::from(private::readable(&path, "").is_some());
    check(&format!("{url}token = \"c3po-login_a_b\"\n"), is_reachable);
}

#[test]
fn a_login_is_read_again_only_beside_the_coordinators_for_which_it_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(CONFIG_FILE);
    let url = "coordinator_url = \"https://nas:8420\"\n";
    let login = format!("{url}token = \"c3po-login_a_b\"\n");
    std::fs::write(folder.path().join(PERSON_FILE), login).unwrap();
    let mut config = Config::of_file(url);
    config.places.config_file.clone_from(&path);
    let asked = config.coordinators.clone();
    let check = |text: &str, expected: bool| {
        std::fs::write(&path, text).unwrap();
        let is_read = config.read_person(&asked).login.is_some();
        assert_eq!(is_read, expected, "{text}");
    };
    check(url, true);
    let pinned = format!("{url}fingerprint = \"sha256:{}\"\n", "ab".repeat(32));
    check(&pinned, false);
    check("coordinator_url = \"https://box:8420\"\n", false);
}
