//! `c3po join`: lets this host in at a coordinator, and writes down where that is, what it is known by, and the host's key.

use std::fs;

use c3po_shared::join::{self, JoinCode, JoinReply, JoinRequest};
use c3po_shared::refusal::{ErrorCode, Refusal};
use serde_json::json;

use super::claude_code::host_file;
use super::failure::Failure;
use super::print::Printer;
use super::session::Session;
use crate::config::{self, Config, Secret};
use crate::link::Trust;
use crate::link::http::post_json;

/// Where, and with what.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Where the coordinator is, such as https://nas:8420
    url: String,
    /// The code that `c3po-coordinator invite` printed; `-` reads standard input
    code: String,
    /// The name of this host in the coordinator's list of keys [default: its own]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
}

pub(super) async fn run(config: Config, printer: &Printer, arguments: Arguments) -> Result<(), Failure> {
    let code: JoinCode =
        super::text(arguments.code)?.parse().map_err(|error: join::JoinError| Failure::Usage(error.to_string()))?;
    if let Some(problem) = config::problem_of_urls(&arguments.url) {
        return Err(Failure::Usage(problem));
    }
    if code.fingerprint.is_some() && !arguments.url.starts_with("https://") {
        return Err(Failure::Usage("this code is for a coordinator at https://: copy the whole line".to_owned()));
    }
    // Before the code is spent: a key that cannot be written down is lost.
    let file = &config.places.config_file;
    let before = host_file::text(file).map_err(unwritable)?.unwrap_or_default();
    host_file::replace(&before, &values(&arguments.url, &code, "")).map_err(unwritable)?;
    fs::create_dir_all(file.parent().unwrap_or(file)).map_err(|error| unwritable(error.into()))?;
    host_file::write(file, &before).map_err(unwritable)?;

    // A token that somebody chose may be guessed by whoever gets a proof of it.
    let key = config.token.as_ref().map(Secret::expose).filter(|key| key.starts_with(join::KEY_PREFIX));
    let proof = key.map(|key| join::proof(key, &code.secret()));
    let host = arguments.host.unwrap_or_else(|| config.host.clone());
    let request = JoinRequest { code: code.secret(), host, proof };
    let joined = ask(&arguments.url, &code, &request).await?;
    let after = host_file::replace(&before, &values(&arguments.url, &code, &joined.key));
    after.and_then(|after| host_file::write(file, &after)).map_err(|error| lost(&error, &joined.key_id))?;
    tell(&config, printer, &arguments.url, &joined, &request.host)?;
    check().await
}

/// What is to stand in the file.
fn values<'a>(url: &'a str, code: &JoinCode, key: &'a str) -> [(&'static str, Option<String>); 3] {
    let fingerprint = code.fingerprint.map(|fingerprint| fingerprint.to_string());
    [("coordinator_url", Some(url.to_owned())), ("fingerprint", fingerprint), ("token", Some(key.to_owned()))]
}

async fn ask(url: &str, code: &JoinCode, request: &JoinRequest) -> Result<JoinReply, Failure> {
    let body = serde_json::to_string(request).expect("two texts are JSON");
    let asked = post_json(url, &Trust::new(code.fingerprint), join::PATH, &[], &body).await;
    let (status, answer) = asked.map_err(|refusal| match refusal.code {
        ErrorCode::CoordDown => {
            refusal.suggest("Check that the coordinator runs and is reached from here, then run the same line again.")
        }
        _ => refusal,
    })?;
    if status == 200 {
        return serde_json::from_str(&answer).map_err(|_| foreign(url, status).into());
    }
    Err(serde_json::from_str::<Refusal>(&answer).unwrap_or_else(|_| foreign(url, status)).into())
}

fn foreign(url: &str, status: u16) -> Refusal {
    let error = format!("{url} answers, but not as a coordinator that lets hosts in: HTTP {status}");
    Refusal::new(ErrorCode::NotSupported, error).suggest("Check the URL, and the version of the coordinator.")
}

/// Returns what to do where a key was made and cannot be kept.
fn lost(error: &anyhow::Error, key_id: &str) -> Failure {
    Failure::Stopped {
        why: format!("this host's file: {error:#}"),
        advice: format!(
            "Mend that and ask for another line: the code was used. The key {key_id} that it made is lost: \
             `c3po-coordinator keys revoke {key_id}`."
        ),
    }
}

fn unwritable(error: anyhow::Error) -> Failure {
    Failure::Stopped {
        why: format!("this host's file: {error:#}"),
        advice: "Mend that; the code was not used yet.".to_owned(),
    }
}

fn tell(config: &Config, printer: &Printer, url: &str, joined: &JoinReply, said: &str) -> Result<(), Failure> {
    let file = config.places.config_file.display().to_string();
    if printer.json {
        let agents = &joined.agents;
        let document = json!({"coordinator": url, "key_id": joined.key_id, "agents": agents, "file": file,
            "expires_at": joined.expires_at, "host": joined.host});
        return printer.document(&document);
    }
    let agents = joined.agents.join(", ");
    let until = joined.expires_at.as_deref().map(|end| format!(" until {end}")).unwrap_or_default();
    printer.line(&format!("This host is in at {url}{until}, as: {agents}. Its key {} is in {file}.", joined.key_id))?;
    match &joined.host {
        Some(host) if *host != said => printer.line(&format!(
            "It is called {host}: another key stands for {said}, and keeps its agents and their mail. If this is that machine, \
             join with a line of `c3po-coordinator invite --host {said}`."
        )),
        _ => Ok(()),
    }
}

/// Connects as a session of this host would, by what was written.
async fn check() -> Result<(), Failure> {
    let config = Config::read();
    if let Some(problem) = config.problems.first() {
        return Err(Failure::Usage(problem.clone()));
    }
    match Session::with(Config { agent: c3po_shared::ids::AgentId::human(), ..config }, false, async |_| Ok(())).await {
        // A key for some agents only knows no person; that it was told so shows that it is known.
        Err(Failure::Refused(refusal)) if refusal.code == ErrorCode::Forbidden => Ok(()),
        Err(Failure::NoCoordinator(refusal)) => {
            Err(Failure::NoCoordinator(refusal.suggest("This host is in; `c3po status` tries the connection again.")))
        }
        outcome => outcome,
    }
}
