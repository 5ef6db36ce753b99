//! `c3po join`: joins a coordinator with a code, and stores its URL, its fingerprint and the host's key.

pub(super) mod code;
mod follow;
mod known;
mod left;

use anyhow::anyhow;
use c3po_shared::ids::AgentId;
use c3po_shared::join::{self, CODE_VARIABLE, JoinCode, JoinReply, JoinRequest};
use c3po_shared::proof::ProofOf;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::text::{harmless, shell_word};
use serde_json::json;

use self::follow::follow;
use self::known::{KnownCoordinators, Relation};
use self::left::LeftBehind;
use super::claude_code::host_file;
use super::failure::Failure;
use super::print::Printer;
use super::session::CommandSession;
use crate::config::{self, CONFIG_FILE, Config, Secret};
use crate::link::Trust;
use crate::link::http::post_json;

/// The coordinator and the options.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The coordinator's URL, such as https://nas:8420
    url: String,
    /// Every user of a machine sees arguments, so a code among them is refused; `-` reads standard input.
    #[arg(hide = true)]
    code: Option<String>,
    /// The name of this host in the coordinator's list of keys [default: its host name]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
}

/// The host's earlier configuration, and the coordinator that it joins.
struct Joining {
    url: String,
    code: JoinCode,
    /// The text of its file.
    before: String,
    known: KnownCoordinators,
    older_key: Option<String>,
    /// The proof that the host has a key of this fleet already.
    proof: Option<String>,
    /// The proof of a coordinator of this fleet that it knows that key.
    of_fleet: Option<String>,
    /// Its own name for itself.
    host: String,
}

pub(super) async fn run(
    config: Config,
    printer: &Printer,
    arguments: Arguments,
) -> Result<(), Failure> {
    let joining = look(&config, &arguments)?;
    // Before the code is used up: a key that cannot be stored would be lost.
    let before = &joining.before;
    let longest = values(&joining.after(Relation::Added), host_file::TOKEN_LIKE);
    let longest = host_file::replace(before, &longest).map_err(unwritable)?;
    let folder = config.places.settings.made();
    let folder = folder.map_err(|error| unwritable(error.into()))?;
    folder
        .try_beside(CONFIG_FILE, &longest)
        .and_then(|()| folder.write(CONFIG_FILE, before))
        .map_err(|error| unwritable(error.into()))?;

    let mut joined = ask(&joining).await?;
    let same_fleet = joining.is_same_fleet(&joined);
    let relation = joining.relation(same_fleet);
    if !same_fleet && !joining.is_identified() {
        joined.older_key = None;
    }
    let known = joining.after(relation);
    // The file may have changed since.
    let current = folder.text(CONFIG_FILE);
    let written = current
        .map_err(|problem| anyhow!(problem))
        .and_then(|text| {
            let text = text.unwrap_or_default();
            folder.write(
                CONFIG_FILE,
                &host_file::replace(&text, &values(&known, &joined.key))?,
            )?;
            Ok(text)
        });
    let current = written.map_err(|error| lost(&error, &joined.key_id))?;
    if same_fleet {
        follow(&config, &joining.known, &known).map_err(unfollowed)?;
    }
    let left = LeftBehind::of(
        &joining,
        relation,
        (joined.older_key.is_some(), same_fleet),
        Config::of_file(&current).coordinators.key_id(),
        config.person.login.as_ref(),
    );
    let config = Config::read();
    tell(&config, printer, &joining, relation, (&joined, &left))?;
    check(config, &joined).await
}

fn look(config: &Config, arguments: &Arguments) -> Result<Joining, Failure> {
    let code: JoinCode = code::read(
        arguments.code.as_deref(),
        config.join_code.as_ref(),
        &format!("join {}", arguments.url),
        Some(CODE_VARIABLE),
    )?
    .parse()
    .map_err(|error: join::JoinError| Failure::Usage(error.to_string()))?;
    let url = known::completed(&arguments.url, code.fingerprint.is_some());
    if let Some(problem) = config::problem_of_urls(&url) {
        return Err(Failure::Usage(
            problem.replace("C3PO_COORDINATOR_URL: ", ""),
        ));
    }
    if let (Some(_), Some(place)) = (code.fingerprint, url.strip_prefix("http://")) {
        let why = format!(
            "the coordinator of this code uses TLS: write https://{place} instead of {url}"
        );
        return Err(Failure::Usage(why));
    }
    // A file that other users may have written would be accepted once it is rewritten.
    let before = config.places.settings.text(CONFIG_FILE);
    let before = before
        .map_err(|problem| unwritable(anyhow!(problem)))?
        .unwrap_or_default();
    let written = Config::of_file(&before).coordinators;
    let older_key = written.key_id().map(str::to_owned);
    // The key of the file alone: with one of the environment, which a project may set, this machine would become another host.
    // A token that a person chose could be guessed from a proof of it.
    let key = written
        .token
        .as_ref()
        .map(Secret::expose)
        .filter(|key| key.starts_with(join::KEY_PREFIX));
    // Without a certificate of its own, another coordinator could show the proof to the one that knows the key.
    let known = KnownCoordinators::of(&before, &written);
    let is_bound = code.fingerprint.is_some() || known.urls.contains(&url);
    let of = |of: ProofOf| {
        let key = key.filter(|_| is_bound)?;
        Some(of.with_key(key, &code.secret(), code.fingerprint))
    };
    let (proof, of_fleet) = (of(ProofOf::Host), of(ProofOf::Fleet));
    let host = arguments
        .host
        .clone()
        .unwrap_or_else(|| config.host.clone());
    Ok(Joining {
        url,
        code,
        known,
        before,
        older_key,
        proof,
        of_fleet,
        host,
    })
}

impl Joining {
    /// Returns whether the coordinator has proved that it knows the key that this host has already.
    fn is_same_fleet(&self, joined: &JoinReply) -> bool {
        let proof = joined.older_key.as_ref().and_then(|key| key.proof.as_ref());
        proof.is_some() && proof == self.of_fleet.as_ref()
    }

    /// Returns whether a certificate that this host knows identifies the coordinator.
    fn is_identified(&self) -> bool {
        let fingerprint = self.code.fingerprint;
        fingerprint.is_some_and(|fingerprint| self.known.fingerprints.contains(&fingerprint))
    }

    fn relation(&self, same_fleet: bool) -> Relation {
        self.known
            .relation(&self.url, self.code.fingerprint, same_fleet)
    }

    fn after(&self, relation: Relation) -> KnownCoordinators {
        self.known.after(&self.url, self.code.fingerprint, relation)
    }
}

/// The values for the file.
fn values(known: &KnownCoordinators, key: &str) -> [(&'static str, Option<toml::Value>); 3] {
    let [urls, fingerprints] = known.values();
    [urls, fingerprints, ("token", Some(key.into()))]
}

async fn ask(joining: &Joining) -> Result<JoinReply, Failure> {
    let Joining {
        url,
        code,
        older_key,
        proof,
        host,
        ..
    } = joining;
    let request = JoinRequest {
        code: code.secret(),
        host: host.clone(),
        proof: proof.clone(),
        older_key: older_key.clone(),
    };
    let body = serde_json::to_string(&request).expect("texts are JSON");
    let trust = Trust::new(code.fingerprint.into_iter().collect());
    let asked = post_json(url, &trust, join::PATH, &[], &body).await;
    let (status, answer) = asked.map_err(|refusal| match refusal.code {
        ErrorCode::CoordDown => refusal.suggest(
            "Check that the coordinator runs and is reachable from this host, then run the same command again.",
        ),
        _ => refusal,
    })?;
    if status == 200 {
        return serde_json::from_str(&answer).map_err(|_| foreign(url, status).into());
    }
    Err(serde_json::from_str::<Refusal>(&answer)
        .unwrap_or_else(|_| foreign(url, status))
        .into())
}

fn foreign(url: &str, status: u16) -> Refusal {
    let error =
        format!("{url} answers, but not as a coordinator that hosts can join: HTTP {status}");
    Refusal::new(ErrorCode::NotSupported, error)
        .suggest("Check the URL and the version of the coordinator.")
}

/// Returns the failure of a key that was made and cannot be stored.
fn lost(error: &anyhow::Error, key_id: &str) -> Failure {
    Failure::Stopped {
        why: format!("this host's file: {error:#}"),
        advice: format!(
            "Fix that and get a new join command, because the code was used. Its key {key_id} is lost; revoke it: \
             `c3po-coordinator keys revoke {key_id}`."
        ),
    }
}

/// Returns the failure of a login that cannot follow the new certificate of its coordinator.
fn unfollowed(error: anyhow::Error) -> Failure {
    Failure::Stopped {
        why: format!(
            "this host has joined, but its login is still for the coordinators before: {error:#}"
        ),
        advice: "Log in again: `c3po login`.".to_owned(),
    }
}

fn unwritable(error: anyhow::Error) -> Failure {
    Failure::Stopped {
        why: format!("this host's file: {error:#}"),
        advice: "Fix that and run this again; the code was not used yet.".to_owned(),
    }
}

fn tell(
    config: &Config,
    printer: &Printer,
    joining: &Joining,
    relation: Relation,
    (joined, left): (&JoinReply, &LeftBehind),
) -> Result<(), Failure> {
    let said = &joining.host;
    let (file, url) = (
        config.places.config_file.display().to_string(),
        &joining.url,
    );
    if printer.json {
        let agents = &joined.agents;
        let coordinators = joining.after(relation).urls;
        let document = json!({"coordinator": url, "coordinators": coordinators, "key_id": joined.key_id, "agents": agents,
            "file": file, "expires_at": joined.expires_at, "host": joined.host, "older_key": joined.older_key,
            "left_behind": left.commands(), "relays_to_new_people": relays_to_new_people(config, joining)});
        return printer.document(&document);
    }
    let agents = joined.agents.join(", ");
    let until = joined
        .expires_at
        .as_deref()
        .map(|end| format!(" until {end}"))
        .unwrap_or_default();
    // The coordinator chose parts of each line.
    let line = |text: &str| printer.line(&harmless(text, false));
    line(&format!(
        "This host has joined {url}{until} as {}, for these agents: {agents}. Its key {} is in {file}.",
        joined.host.as_deref().unwrap_or(said),
        joined.key_id
    ))?;
    if let Some(host) = joined.host.as_ref().filter(|host| *host != said) {
        line(&called(said, host))?;
    }
    let others = others(joining, relation, left, &file);
    for sentence in others.into_iter().chain(left.meanwhile()) {
        line(&sentence)?;
    }
    if relays_to_new_people(config, joining) {
        line(&format!(
            "The people of {url} decide about requests of Claude Code now: remove relay_permissions from {file}, and unset \
             C3PO_RELAY_PERMISSIONS, if you do not want that."
        ))?;
    }
    let older = joined.older_key.as_ref().filter(|older| older.valid);
    if let Some(older) = older {
        line(&format!(
            "The older key {} of this host stays valid. To revoke it, run on the coordinator's machine: `{}`.",
            older.id, older.revoke
        ))?;
    }
    printer
        .line("Next: `c3po install` makes Claude Code load c3po; `c3po doctor` tests everything.")
}

/// Returns the sentences about the other coordinators of this host, and the one that was at this URL before, if there are any.
fn others(joining: &Joining, relation: Relation, left: &LeftBehind, file: &str) -> Option<String> {
    let known = joining.known.urls.iter();
    let others: Vec<_> = known
        .filter(|known| **known != joining.url)
        .map(String::as_str)
        .collect();
    let (others, there) = (others.join(", "), left.there());
    match relation {
        Relation::Added => Some(format!(
            "It serves the same fleet as {others}: this host uses whichever of them answers."
        )),
        Relation::Instead if others.is_empty() => Some(format!(
            "Its certificate is not the one before, and it does not know this host: it counts as another fleet.{there}"
        )),
        Relation::Instead => Some(format!("This host no longer uses {others}.{there}")),
        Relation::Again if !others.is_empty() => Some(format!(
            "It also uses {others}, as {file} named before, and sends its key there. If you do not know that \
             coordinator, revoke this key, delete that file, and join again with a new code.{there}"
        )),
        Relation::Again if !there.is_empty() => Some(format!(
            "It does not know this host's key of before, so another coordinator may have been there.{there}"
        )),
        Relation::First | Relation::Again => None,
    }
}

/// Returns whether requests of the client are relayed, by the file or the environment, and other people may decide from now on:
/// those of a coordinator whose URL or certificate this host did not know.
fn relays_to_new_people(config: &Config, joining: &Joining) -> bool {
    let before = joining.before.parse::<toml::Table>().unwrap_or_default();
    let is_on = before.get("relay_permissions") == Some(&toml::Value::Boolean(true));
    let is_new = joining.known.is_new(&joining.url, joining.code.fingerprint);
    (is_on || config.coordinators.relays) && is_new
}

/// Returns the report for a host whose own name differs from its known one.
fn called(said: &str, host: &str) -> String {
    let number = host
        .strip_prefix(said)
        .and_then(|rest| rest.strip_prefix('-'));
    if number.is_none_or(|number| number.parse::<u32>().is_err()) {
        return format!("Its name there is {host}, from its older key or the invite.");
    }
    format!(
        "Its name there is {host}: another key belongs to {said}, and keeps its agents and messages. If this is that \
         machine, join with the command that `c3po-coordinator invite --host {}` prints.",
        shell_word(said)
    )
}

/// Connects as a session of this host would, with the new configuration.
async fn check(config: Config, joined: &JoinReply) -> Result<(), Failure> {
    let JoinReply { key, key_id, .. } = joined;
    if let Some(problem) = config.problems.first() {
        return Err(Failure::Usage(problem.clone()));
    }
    let written = config.places.settings.text(CONFIG_FILE).ok().flatten();
    let written = Config::of_file(&written.unwrap_or_default()).coordinators;
    if written.token.as_ref().map(Secret::expose) != Some(key.as_str()) {
        return Err(Failure::Stopped {
            why: format!("another command has replaced the key {key_id} of this join"),
            advice: format!(
                "Run this again with a new code if you need it, and revoke that key on the coordinator's machine: `c3po-coordinator keys revoke {key_id}`."
            ),
        });
    }
    if config.coordinators.token.as_ref().map(Secret::expose) != Some(key.as_str()) {
        return Err(Failure::Stopped {
            why: "this host has joined, but C3PO_TOKEN or C3PO_COORDINATOR_URL in the environment prevents the use of \
                  its new key"
                .to_owned(),
            advice: "Remove these variables here and in the environment of your sessions.".to_owned(),
        });
    }
    match CommandSession::with(
        Config {
            agent: AgentId::human(),
            ..config
        },
        false,
        async |_| Ok(()),
    )
    .await
    {
        // A key for some agents covers no person; this refusal shows that the key is known.
        Err(Failure::Refused(refusal)) if refusal.code == ErrorCode::Forbidden => Ok(()),
        Err(Failure::NoCoordinator(refusal)) => Err(Failure::NoCoordinator(
            refusal.suggest("This host has joined; `c3po status` tests the connection again."),
        )),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_host_whose_name_is_taken_is_led_to_an_invite_for_that_name() {
        let taken = called("ann's box", "ann's box-2");
        assert!(
            taken.contains(r"`c3po-coordinator invite --host 'ann'\''s box'`"),
            "{taken}"
        );
        for host in ["media", "0123456789ab-x", "0123456789abc"] {
            let named = called("0123456789ab", host);
            assert_eq!(
                named,
                format!("Its name there is {host}, from its older key or the invite.")
            );
        }
    }
}
