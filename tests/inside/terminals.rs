//! Every stored field that another side chooses, through every command of `c3po-coordinator` on a terminal, and in the log.

use anyhow::{Context, Result, ensure};
use c3po_coordinator::config::{Fleet, StoreAddress};
use c3po_coordinator::store::{self, Invite, Key, Login, LoginCode, Store};
use c3po_shared::audit::{Entry, Event};
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::{LoginScope, Scope};
use harness::coordinator::Coordinator;
use harness::corpus::{check, commands_in, field, hostile};
use harness::link::{Link, Who};
use harness::process::{command, program};
use harness::pty;
use inside::gate::Gate;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

const KEY: &str = "0a1b2c3d";
/// The commands that print nothing of another side: they work on files of this machine.
const LOCAL: &[&str] = &["backup", "help", "restore"];

/// The commands in an order that works, with the stored fields that their text shows, as they are or as one word.
const COMMANDS: &[(&str, &[&str])] = &[
    ("keys list", &["name", "made_by", "globs"]),
    ("keys list --json", &["name", "host", "made_by", "globs"]),
    ("keys create fresh", &[]),
    ("keys rotate 0a1b2c3d", &["name", "host"]),
    ("keys revoke 0a1b2c3d", &["name"]),
    ("keys revoke 00000000", &[]),
    ("invite", &[]),
    ("invites list", &["made_by", "globs"]),
    ("invites list --json", &["made_by", "globs"]),
    ("invites revoke 0a1b2c3d", &[]),
    ("audit", &["verb", "key", "login", "why"]),
    ("audit --json", &["verb", "key", "login", "why"]),
    ("login ann", &[]),
    ("logins list", &["name", "made_by", "device"]),
    ("logins list --json", &["name", "made_by", "device"]),
    ("logins revoke 0a1b2c3d", &["name"]),
    ("logins revoke 00000000", &[]),
    (
        "logins revoke 0a1b2c3d --json",
        &["name", "made_by", "device"],
    ),
    ("agents rm nobody", &[]),
    ("hosts rename nobody nowhere", &[]),
    ("guard stop a b", &[]),
    ("guard list", &[]),
    ("guard list --json", &[]),
    ("guard allow a b", &[]),
    ("health", &[]),
    ("notify test", &["error"]),
];

/// Runs a command on a terminal, and returns its output.
async fn typed(gate: &Gate, words: &str) -> Result<String> {
    let mut asked = command(program("c3po-coordinator")?, gate.served.folder());
    asked
        .args(words.split(' '))
        .arg("--data-dir")
        .arg(gate.served.folder())
        .args(["--listen", &gate.served.address]);
    asked.env("NO_COLOR", "1");
    pty::output(asked, None)
        .await
        .with_context(|| words.to_owned())
}

/// Writes a login with hostile fields into the store.
async fn log_in(store: &dyn Store, later: Timestamp) -> Result<()> {
    let code = LoginCode {
        id: KEY.to_owned(),
        hash: "4".repeat(64),
        name: field("name"),
        scope: LoginScope::Person,
        made_by: field("made_by"),
        login: None,
        expires_at: later,
    };
    let login = Login {
        id: KEY.to_owned(),
        hash: "3".repeat(64),
        name: field("name"),
        scope: LoginScope::Person,
        created_at: Timestamp::now(),
        expires_at: later,
        revoked_at: None,
        made_by: field("made_by"),
        device: Some(field("device")),
        revision: 1,
    };
    ensure!(store.put_login_code(&code, 10, None).await?);
    ensure!(
        store
            .spend_login_code(&code.hash, &login, None, 10, None)
            .await?
    );
    Ok(())
}

/// Writes keys, an invite, a login and an entry of the audit with hostile fields into the store, as no request can.
async fn poison(store: &dyn Store) -> Result<()> {
    let later = Timestamp::from_millis(4_000_000_000_000);
    let key = Key {
        id: KEY.to_owned(),
        hash: "0".repeat(64),
        name: field("name"),
        host: Some(field("host")),
        scope: Scope::Agent,
        agents: vec!["*".to_owned()],
        created_at: Timestamp::now(),
        expires_at: None,
        revoked_at: None,
        made_by: field("made_by"),
        awaits_host: false,
        revision: 1,
    };
    let other = Key {
        id: field("id"),
        hash: "1".repeat(64),
        agents: vec![field("globs")],
        ..key.clone()
    };
    ensure!(
        store.put_key(&key, None, 10, None).await? && store.put_key(&other, None, 10, None).await?,
        "the keys are new"
    );
    let invite = Invite {
        id: KEY.to_owned(),
        made_by: Some(field("made_by")),
        key_hash: None,
        hash: "2".repeat(64),
        agents: vec![field("globs")],
        scope: Scope::Agent,
        host: Some(field("host")),
        uses: 1,
        expires_at: later,
        key_seconds: None,
    };
    store.put_invite(&invite, None).await?;
    log_in(store, later).await?;
    let entry = Entry::new(Event::Denied)
        .verb(field("verb"))
        .because(field("why"));
    store
        .note(&[Entry {
            key: Some(field("key")),
            login: Some(field("login")),
            ..entry
        }])
        .await?;
    Ok(())
}

/// Responds to every connection with a hostile refusal, as an ntfy server could.
async fn refuse(listener: TcpListener) -> Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        let mut request = [0; 4 << 10];
        ensure!(stream.read(&mut request).await? > 0);
        let text = field("error");
        let head = format!(
            "HTTP/1.1 507 Full\r\nContent-Length: {}\r\n\r\n",
            text.len()
        );
        stream.write_all(format!("{head}{text}").as_bytes()).await?;
    }
}

#[tokio::test]
async fn nothing_in_a_hostile_store_reaches_the_terminal() -> Result<()> {
    let gate = Gate::start().await?;
    poison(gate.served.store.as_ref()).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let settings = format!(
        "[[person]]\nname = \"ann\"\nserver = \"http://{}\"\ntopic = \"ask\"\n",
        listener.local_addr()?
    );
    std::fs::write(gate.served.folder().join("notify.toml"), settings)?;
    let refusing = TaskTracker::new();
    refusing.spawn(refuse(listener));
    for (words, fields) in COMMANDS {
        let shown = typed(&gate, words).await?;
        check(&shown).with_context(|| format!("c3po-coordinator {words}"))?;
        let is_shown = |name: &str| {
            [' ', '_']
                .iter()
                .any(|gap| shown.contains(&format!("{name}{gap}a")))
        };
        let missing = fields.iter().find(|name| !is_shown(name));
        ensure!(
            missing.is_none(),
            "c3po-coordinator {words} shows no {missing:?}:\n{shown}"
        );
        if words.ends_with("list --json") {
            serde_json::from_str::<Value>(&shown).with_context(|| format!("{words}: {shown}"))?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn nothing_in_a_hostile_store_or_hello_reaches_the_log() -> Result<()> {
    let work = TempDir::new()?;
    let file = StoreAddress::Sqlite(work.path().join("c3po.db"));
    poison(store::open(&file, &Fleet::default()).await?.as_ref()).await?;
    let coordinator = Coordinator::start(work.path()).await?;
    let address = coordinator.address().to_string();
    for hostile in hostile() {
        let more = json!({"host": hostile, "protocol_version": hostile});
        let mut link = Link::open(&address).await?;
        ensure!(
            link.hello(&Who {
                more,
                ..Who::new("web")
            })
            .await?
            .is_err(),
            "{hostile:?} was accepted"
        );
    }
    let log = std::fs::read_to_string(work.path().join("coordinator.log"))?;
    ensure!(
        log.contains("the key id a␀b") && log.matches("a hello was refused").count() >= 300,
        "{log}"
    );
    check(&log)
}

#[tokio::test]
async fn every_command_is_in_the_table() -> Result<()> {
    let gate = Gate::start().await?;
    let help = typed(&gate, "--help").await?;
    let names = commands_in(&help);
    ensure!(names.len() > 8, "{names:?}");
    for name in names {
        let is_there = COMMANDS
            .iter()
            .any(|(typed, _)| typed.split(' ').next() == Some(name))
            || LOCAL.contains(&name);
        ensure!(is_there, "add {name} to the table of commands and fields");
    }
    Ok(())
}
