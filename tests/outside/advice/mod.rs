//! The advice to people and models when something is wrong: each cause is real, and has its own sentence, advice and exit
//! code.

mod host;

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use harness::coordinator::{Coordinator, free_address};
use harness::process::{command, program};
use harness::proxy::session;
use harness::redis::Redis;
use harness::skip::skipped;
use harness::small_disk::SmallDisk;
use serde_json::json;
use tempfile::TempDir;

use crate::pasted::Terminals;
use host::Host;

fn port(address: SocketAddr) -> String {
    address.port().to_string()
}

#[tokio::test]
async fn nothing_listens() -> Result<()> {
    let address = free_address()?;
    let (url, port) = (format!("http://{address}"), port(address));
    let mut own = Host::knowing(&url)?;
    own.types(&["status", "send b hi"]).await?;
    own.calls("web", "ping").await?;
    insta::assert_snapshot!("nothing_listens", own.told(&[(&port, "PORT")]));
    own.pastes(own.terminals()).await?;
    let mut joined = Host::knowing(&url)?.with("C3PO_TOKEN", "c3po_0a1b2c3d_secret");
    joined.types(&["status", "send b hi"]).await?;
    joined.asks_the_doctor().await?;
    ensure!(!joined.told.contains("make up"), "{}", joined.told);
    insta::assert_snapshot!("nothing_listens_joined", joined.told(&[(&port, "PORT")]));
    joined.pastes(joined.terminals()).await?;
    Ok(())
}

#[tokio::test]
async fn the_network_is_in_the_way() -> Result<()> {
    const NAME: &str = "advice::the_network_is_in_the_way";
    let mut host =
        Host::knowing("https://10.77.0.9:8420")?.with("C3PO_TOKEN", "c3po_0a1b2c3d_secret");
    // Packets to that address are delivered but not answered, as with a firewall that drops them.
    let dropped = "ip link add dev near type veth peer name far && ip addr add 10.77.0.2/24 dev near && \
                   ip link set near up && ip link set far up && \
                   ip neigh add 10.77.0.9 lladdr 02:00:00:00:00:09 dev near";
    for setup in [dropped, "true"] {
        for line in ["status", "send b hi"] {
            if !host.types_apart(setup, line).await? {
                return skipped(NAME, "a network namespace is not allowed");
            }
        }
    }
    insta::assert_snapshot!("the_network_is_in_the_way", host.told(&[]));
    host.pastes(host.terminals().apart()).await?;
    let mut named =
        Host::knowing("https://nas.invalid:8420")?.with("C3PO_TOKEN", "c3po_0a1b2c3d_secret");
    named.types_apart("true", "status").await?;
    named.types_apart("true", "send b hi").await?;
    insta::assert_snapshot!("a_name_that_nobody_knows", named.told(&[]));
    named.pastes(named.terminals().apart()).await
}

/// Answers every connection with a text, like another program on the port.
fn answering(text: &'static str) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            // The client may have disconnected.
            let _ = stream.write_all(text.as_bytes());
            let _ = std::io::Read::read(&mut stream, &mut [0; 1_024]);
        }
    });
    Ok(address)
}

#[tokio::test]
async fn another_program_is_on_the_port() -> Result<()> {
    let ssh = answering("SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")?;
    let web = answering(
        "HTTP/1.1 404 Not Found\r\nServer: nginx/1.24.0\r\nContent-Length: 6\r\n\r\n<html>",
    )?;
    let mut told = String::new();
    for (scheme, address) in [("http", ssh), ("http", web), ("https", ssh)] {
        let mut host = Host::knowing(&format!("{scheme}://{address}"))?;
        host.types(&["status", "send b hi"]).await?;
        host.pastes(host.terminals()).await?;
        told += &format!("{}\n\n", host.told(&[(&port(address), "PORT")]));
    }
    insta::assert_snapshot!("another_program_is_on_the_port", told.trim_end());
    Ok(())
}

#[tokio::test]
async fn tls_on_one_side_alone() -> Result<()> {
    let (work, folder) = (TempDir::new()?, TempDir::new()?);
    let store = format!("sqlite:{}", work.path().join("c3po.db").display());
    let mut with = Coordinator::absent(work.path(), &store)?.over_tls("auto");
    with.restart().await?;
    let without = Coordinator::start(folder.path()).await?;
    let (with_port, without_port) = (port(with.address()), port(without.address()));
    let hidden = [
        (with_port.as_str(), "PORT"),
        (without_port.as_str(), "PORT"),
    ];
    let lines = ["status", "send b hi"];

    let mut plain = Host::knowing(&format!("http://{}", with.address()))?;
    plain.types(&lines).await?;
    plain.calls("web", "ping").await?;
    insta::assert_snapshot!("plain_to_tls", plain.told(&hidden));
    plain.pastes(plain.terminals()).await?;
    let mut secure = Host::knowing(&format!("https://{}", without.address()))?;
    secure.types(&lines).await?;
    secure.calls("web", "ping").await?;
    insta::assert_snapshot!("tls_to_plain", secure.told(&hidden));
    secure
        .pastes(secure.terminals().beside(folder.path(), &without))
        .await
}

#[tokio::test]
async fn certificates_that_this_host_does_not_trust() -> Result<()> {
    let work = TempDir::new()?;
    let store = format!("sqlite:{}", work.path().join("c3po.db").display());
    let mut coordinator = Coordinator::absent(work.path(), &store)?.over_tls("auto");
    coordinator.restart().await?;
    let (port, shown, url) = (
        port(coordinator.address()),
        coordinator.fingerprint()?,
        coordinator.url(),
    );
    let hidden = [(port.as_str(), "PORT"), (shown.as_str(), "sha256:SHOWN")];
    let lines = ["status", "send b hi"];

    let other = format!("sha256:{}", "ab".repeat(32));
    let mut wrong = Host::configured(&format!(
        "coordinator_url = \"{url}\"\nfingerprint = \"{other}\"\n"
    ))?;
    wrong.types(&lines).await?;
    wrong.calls("web", "ping").await?;
    wrong.asks_the_doctor().await?;
    insta::assert_snapshot!("another_certificate", wrong.told(&hidden));
    wrong
        .pastes(wrong.terminals().beside(work.path(), &coordinator))
        .await?;
    wrong.is_well().await?;
    let mut unknown = Host::configured(&format!("coordinator_url = \"{url}\"\n"))?;
    unknown.types(&lines).await?;
    insta::assert_snapshot!("an_unknown_certificate", unknown.told(&hidden));
    unknown
        .pastes(unknown.terminals().beside(work.path(), &coordinator))
        .await?;
    unknown.is_well().await
}

/// Runs an admin command on the coordinator's machine, and returns the first line of its output.
async fn admin(work: &Path, coordinator: &Coordinator, words: &[&str]) -> Result<String> {
    let mut admin = command(program("c3po-coordinator")?, work);
    let said = admin
        .args(words)
        .args(["--listen", &coordinator.address().to_string()])
        .output()
        .await?;
    ensure!(said.status.success(), "{said:?}");
    Ok(String::from_utf8(said.stdout)?
        .lines()
        .next()
        .context("a line")?
        .to_owned())
}

#[tokio::test]
async fn keys_and_what_they_cover() -> Result<()> {
    let work = TempDir::new()?;
    let store = format!("sqlite:{}", work.path().join("c3po.db").display());
    let mut coordinator = Coordinator::absent(work.path(), &store)?
        .with("C3PO_CLOSED", Path::new("true"))
        .with("C3PO_TLS", Path::new("off"));
    coordinator.restart().await?;
    let mut none = Host::knowing(&coordinator.url())?;
    none.types(&["status", "send b hi"]).await?;
    none.calls("web", "ping").await?;
    none.asks_the_doctor().await?;
    let port = port(coordinator.address());
    insta::assert_snapshot!("no_key", none.told(&[(&port, "PORT")]));
    none.pastes(none.terminals().beside(work.path(), &coordinator))
        .await?;
    none.is_well().await?;
    let key = admin(
        work.path(),
        &coordinator,
        &["keys", "create", "box", "--agents", "box-*,web"],
    )
    .await?;
    let id = key.split('_').nth(1).context("its id")?.to_owned();
    let mut narrow = Host::knowing(&coordinator.url())?.with("C3PO_TOKEN", key);
    narrow
        .types(&["send b hi", "send b hi --as web-front"])
        .await?;
    narrow.calls("meshtastic", "ping").await?;
    narrow.calls("web-front", "ping").await?;
    insta::assert_snapshot!("a_key_for_other_names", narrow.told(&[(&id, "KEY")]));
    narrow
        .pastes(narrow.terminals().beside(work.path(), &coordinator))
        .await?;
    admin(work.path(), &coordinator, &["keys", "revoke", &id]).await?;
    let mut ended = Host {
        told: String::new(),
        ..narrow
    };
    ended.types(&["status"]).await?;
    ended.calls("web", "ping").await?;
    insta::assert_snapshot!("a_key_that_has_ended", ended.told(&[(&port, "PORT")]));
    let terminals = ended.terminals().beside(work.path(), &coordinator);
    let kept = terminals
        .paste(&format!("c3po join {}", coordinator.url()))
        .await
        .expect_err("the old key is used");
    ensure!(
        kept.to_string()
            .contains("C3PO_TOKEN or C3PO_COORDINATOR_URL in the environment"),
        "{kept}"
    );
    ended.pastes(terminals).await
}

#[tokio::test]
async fn the_store_is_away_or_full() -> Result<()> {
    let (work, mut redis) = (TempDir::new()?, Redis::start().await?);
    let coordinator = Coordinator::start_on(work.path(), &redis.url()).await?;
    let (port, lines) = (
        port(coordinator.address()),
        ["status", "send b hi", "inbox"],
    );
    let mut host = Host::knowing(&coordinator.url())?;
    redis.pause()?;
    host.types(&lines).await?;
    redis.resume()?;
    insta::assert_snapshot!("the_store_hangs", host.told(&[(&port, "PORT")]));

    let session = session(work.path(), "b", &coordinator.url()).await?;
    session.reply("ping", json!({})).await?;
    redis.tell(&["CONFIG", "SET", "maxmemory", "1mb"]).await?;
    let mut host = Host::knowing(&coordinator.url())?;
    host.types(&["send b hi"]).await?;
    host.calls("web", "send_message").await?;
    insta::assert_snapshot!("the_store_is_full", host.told(&[(&port, "PORT")]));

    redis.kill()?;
    let mut host = Host::knowing(&coordinator.url())?;
    host.types(&lines).await?;
    host.calls("web", "ping").await?;
    host.asks_the_doctor().await?;
    insta::assert_snapshot!("the_store_is_away", host.told(&[(&port, "PORT")]));
    host.pastes(host.terminals()).await
}

#[tokio::test]
async fn the_coordinator_hangs() -> Result<()> {
    let work = TempDir::new()?;
    let mut coordinator = Coordinator::start(work.path()).await?;
    let port = port(coordinator.address());
    let mut host = Host::knowing(&coordinator.url())?;
    coordinator.process()?.signal("STOP").await?;
    let outcome = host.types(&["status", "send b hi"]).await;
    coordinator.process()?.signal("CONT").await?;
    outcome?;
    insta::assert_snapshot!("the_coordinator_hangs", host.told(&[(&port, "PORT")]));
    host.pastes(host.terminals()).await
}

#[tokio::test]
async fn the_disk_is_full() -> Result<()> {
    let work = TempDir::new()?;
    let Some(disk) = SmallDisk::mount(&work.path().join("store"), 2_048)? else {
        return skipped(
            "advice::the_disk_is_full",
            "mounting a small disk is not allowed",
        );
    };
    let store = format!("sqlite:{}", disk.path().join("c3po.db").display());
    let mut coordinator = Coordinator::absent(work.path(), &store)?.unlimited();
    coordinator.restart().await?;
    let port = port(coordinator.address());
    let mut host = Host::knowing(&coordinator.url())?;
    let sender = session(work.path(), "sender", &coordinator.url()).await?;
    sender
        .reply(
            "send_message",
            json!({"target": "human", "message": "before"}),
        )
        .await?;
    disk.fill(0)?;
    let text = "x".repeat(3_000);
    for number in 0..1_000 {
        let sent = sender
            .call("send_message", json!({"target": "human", "message": text}))
            .await?;
        if sent.is_error {
            break;
        }
        ensure!(number < 999, "the disk was never full");
    }
    host.types(&["send sender hi"]).await?;
    host.calls("sender", "send_message").await?;
    insta::assert_snapshot!("the_disk_is_full", host.told(&[(&port, "PORT")]));
    host.pastes(host.terminals()).await?;
    for line in ["status", "agents", "inbox"] {
        let mut reader = Host::knowing(&coordinator.url())?;
        reader.types(&[line]).await?;
        ensure!(
            reader.told.contains("[exit 0]"),
            "reading goes on: {}",
            reader.told
        );
    }
    Ok(())
}

#[tokio::test]
async fn too_many_sends_and_a_taken_port() -> Result<()> {
    let work = TempDir::new()?;
    let store = format!("sqlite:{}", work.path().join("c3po.db").display());
    let mut coordinator =
        Coordinator::absent(work.path(), &store)?.with("C3PO_RATE_LIMIT", Path::new("1"));
    coordinator.restart().await?;
    let port = port(coordinator.address());
    let session = session(work.path(), "b", &coordinator.url()).await?;
    session.reply("ping", json!({})).await?;
    let mut host = Host::knowing(&coordinator.url())?;
    host.types(&["send b one", "send b two"]).await?;
    let refused = host
        .told
        .split("$ ")
        .last()
        .context("the second one")?
        .to_owned();
    insta::assert_snapshot!("too_many_sends", without_seconds(&refused)?.trim_end());
    session
        .reply("send_message", json!({"target": "human", "message": "one"}))
        .await?;
    let told = session
        .call("send_message", json!({"target": "human", "message": "two"}))
        .await?;
    ensure!(told.is_error, "{told:?}");
    let told = told.json()?;
    let told = format!(
        "{}\n{}",
        told["error"].as_str().unwrap_or("-"),
        told["suggestion"].as_str().unwrap_or("-")
    );
    insta::assert_snapshot!("too_many_sends_of_a_session", without_seconds(&told)?);
    let mut host = Host::knowing(&coordinator.url())?;
    host.asks_the_doctor().await?;
    insta::assert_snapshot!("too_many_sends_and_the_doctor", host.told(&[]));
    host.pastes(host.terminals()).await?;

    let mut second = command(program("c3po-coordinator")?, work.path());
    second
        .args([
            "--listen",
            &coordinator.address().to_string(),
            "--store",
            "sqlite:other.db",
        ])
        .stdin(Stdio::null());
    let said = second.current_dir(work.path()).output().await?;
    let taken = String::from_utf8(said.stderr)?;
    let shown = format!(
        "{}[exit {}]",
        taken.replace(&port, "PORT"),
        said.status.code().unwrap_or(-1)
    );
    insta::assert_snapshot!("a_taken_port", shown);
    ensure!(
        Terminals::of(work.path()).paste_all(&taken).await? == 1,
        "{taken}"
    );
    Ok(())
}

/// Returns a text without the number of seconds to wait, which varies.
fn without_seconds(text: &str) -> Result<String> {
    let seconds = text
        .split("Wait ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .context("seconds")?;
    Ok(text.replace(&format!("Wait {seconds} s"), "Wait N s"))
}
