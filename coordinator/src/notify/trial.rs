//! `notify test`: pushes to a person and waits for the tap, without a running coordinator.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::client::{Ask, ClientError, Lines, open};
use super::config::{self, Person, ReplyTopic};
use super::render::Push;
use super::reply::TEST;
use super::requests::{delete, publish};
use super::standing::check;
use crate::config::{NtfyFlags, ServeFlags};

/// How long the tap is waited for.
const TAP: Duration = Duration::from_secs(120);
/// The sequence id of the push.
const SEQUENCE: &str = "c3po-test";

/// Pushes to the person of that name, or to the only one, and waits for a tap. `report` prints the progress. Returns
/// the result for the person.
///
/// Errors: the settings are invalid, the server rejects the push, or there is no tap.
pub(crate) async fn test(
    settings: &ServeFlags,
    name: Option<&str>,
    report: impl Fn(&str),
) -> Result<String> {
    let path = super::path(settings.policy.as_deref(), &settings.data_dir()?);
    let person = person(&path, &settings.ntfy, name)?;
    let server = &person.server;
    let standing = check(&person)
        .await
        .with_context(|| format!("asking {server}"))?;
    if standing.is_public {
        report(&format!(
            "Anyone can read the topic {} of {server}.",
            person.topic
        ));
    }
    if standing.refuses(&person) {
        bail!("nothing is pushed: protect the topic, or set allow_public");
    }
    let nonce = Uuid::new_v4().simple().to_string();
    let reply = person.reply.as_ref().filter(|_| standing.buttons);
    let button = reply.and_then(|reply| button(&person, reply, &nonce));
    let text = if button.is_some() {
        "Tap the button."
    } else {
        "It has no button."
    };
    // Opened first, so that no tap is missed.
    let stream = match reply.filter(|_| button.is_some()) {
        Some(reply) => Some(open_replies(&person, reply).await?),
        None => None,
    };
    let push = Push::test(&person, SEQUENCE, text, button);
    publish(&person, &push)
        .await
        .context("the server rejected the push")?;
    let Some(stream) = stream else {
        let why = why_no_button(&person);
        return Ok(format!(
            "{server} accepted the push. It has no button: {why}."
        ));
    };
    report(&format!(
        "{server} accepted the push to {}. Tap its button.",
        person.name
    ));
    let since = Instant::now();
    let tapped = timeout(TAP, tap(stream, &nonce)).await;
    // The notification may have been removed by the tap.
    let _ = delete(&person, SEQUENCE).await;
    let seconds = TAP.as_secs();
    tapped
        .with_context(|| format!("no tap came back within {seconds} seconds"))?
        .context("reading the reply topic")?;
    Ok(format!(
        "The tap came back after {:.1} s. Everyone who reads the topic {} can answer as {}.",
        since.elapsed().as_secs_f64(),
        person.topic,
        person.name
    ))
}

/// Returns the button, or `None` without a token for it.
fn button(person: &Person, reply: &ReplyTopic, nonce: &str) -> Option<Value> {
    let token = reply.token.as_ref()?.reveal();
    Some(json!({
        "action": "http", "label": "Tap", "method": "POST", "clear": true,
        "url": format!("{}/{}", person.server, reply.topic),
        "headers": {"Authorization": format!("Bearer {token}")}, "body": format!("{TEST} {nonce}"),
    }))
}

fn why_no_button(person: &Person) -> &'static str {
    match &person.reply {
        None => "there is no reply_topic",
        Some(reply) if reply.token.is_none() => "there is no reply_token_file",
        Some(_) => "the reply token can read a topic, and must only write to the reply topic",
    }
}

async fn open_replies(person: &Person, reply: &ReplyTopic) -> Result<Lines> {
    let path = format!("/{}/json", reply.topic);
    let stream = open(&person.server, Ask::get(&path, person.token.as_ref())).await;
    stream.context("reading the reply topic")
}

/// Waits for the tap.
async fn tap(mut stream: Lines, nonce: &str) -> Result<(), ClientError> {
    while let Some(line) = stream.next().await? {
        if line.contains(nonce) {
            return Ok(());
        }
    }
    Err(ClientError::Unreachable("the stream ended".to_owned()))
}

fn person(path: &Path, flags: &NtfyFlags, name: Option<&str>) -> Result<Person> {
    let people = config::read(path, flags).map_err(anyhow::Error::msg)?;
    let names: Vec<String> = people.iter().map(|person| person.name.clone()).collect();
    let mut wanted = people
        .into_iter()
        .filter(|person| name.is_none_or(|name| person.name == name));
    match (wanted.next(), wanted.next()) {
        (Some(person), None) => Ok(person),
        (Some(_), Some(_)) => bail!("name one of {}", names.join(", ")),
        (None, _) if names.is_empty() => {
            bail!(
                "there is nobody to push to: write {}, as docs/PEOPLE.md describes",
                path.display()
            )
        }
        (None, _) => bail!("{} has only {}", path.display(), names.join(", ")),
    }
}
