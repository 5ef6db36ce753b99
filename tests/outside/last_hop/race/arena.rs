//! The place of the race: a session, two people elsewhere, and one at the terminal.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use harness::claude::Interactive;
use harness::dice::Dice;
use harness::eventually::eventually;
use harness::fake_api::Asked;
use harness::person::Person;
use harness::redis::Redis;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::sleep;

use super::super::relay::Relayed;
use super::super::scene::SOON;
use super::check::TERMINAL;
use super::table::{Column, Deed, choice, mark, script};

/// The signs of the dialogs.
const DIALOGS: [&str; 3] = [
    "Do you want to proceed?",
    "Enter to select",
    "Exit plan mode?",
];
/// A letter that follows Esc sooner is taken for Alt and that letter; a menu of commands needs as long to open.
const BETWEEN_KEYS: Duration = Duration::from_millis(300);
/// How many modes the client may have.
const MODES_MAX: usize = 10;

pub(super) struct Arena {
    pub(super) relayed: Relayed,
    pub(super) bob: Person,
    /// Kept as long as the coordinator that uses it.
    _redis: Option<Redis>,
}

impl Arena {
    /// Opens one on the embedded store, or on a Redis of its own; `None` if the client is not installed.
    pub(super) async fn open(is_embedded: bool) -> Result<Option<Self>> {
        let redis = if is_embedded {
            None
        } else {
            Some(Redis::start().await?)
        };
        let store = redis.as_ref().map(Redis::url);
        let relayed = Relayed::start_asking("the race for a decision", script(), store).await?;
        let Some(relayed) = relayed else {
            return Ok(None);
        };
        relayed.scene.offers_tools(&relayed.session).await?;
        let work = relayed.scene.work();
        let bob = Person::log_in(work, &relayed.scene.coordinator, "bob", "person").await?;
        Ok(Some(Self {
            relayed,
            bob,
            _redis: redis,
        }))
    }

    /// Ends the session and starts another one under the same name.
    pub(super) async fn restart(&mut self) -> Result<()> {
        // It may have ended already.
        let _ = self.relayed.session.kill("KILL").await;
        self.relayed.session = self.relayed.scene.start().await?;
        let relayed = &self.relayed;
        relayed.scene.offers_tools(&relayed.session).await
    }

    /// Starts a session whose client gives each hook 3 s.
    pub(super) async fn lose_patience(&mut self) -> Result<()> {
        self.relayed.lose_patience()?;
        self.restart().await
    }

    /// Has the model make the requests of a column. Returns the questions that are open at once.
    pub(super) async fn ask(&self, column: Column, number: u64) -> Result<Vec<Value>> {
        if column == Column::Plan {
            self.set_mode("plan mode on").await?;
        }
        for part in 1..=2 {
            let program = self.relayed.file(&mark(number, part));
            let text = format!("#!/bin/sh\necho x >> {}.ran\n", mark(number, part));
            fs::write(&program, text)?;
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        }
        let session = &self.relayed.session;
        session.key("C-u").await?;
        let line = format!("race {} {number} now", column.word());
        session.type_line(&line).await?;
        let mut texts = column.questions(number);
        if column == Column::Two {
            texts.truncate(1);
        }
        let mut found = Vec::new();
        for text in texts {
            let question = self.relayed.ann.question(&text).await;
            found.push(question.with_context(|| session.log())?);
        }
        Ok(found)
    }

    /// Presses the key for modes until the client shows that one.
    pub(super) async fn set_mode(&self, sign: &str) -> Result<()> {
        let session = &self.relayed.session;
        for _ in 0..MODES_MAX {
            let before = mode(&session.screen().await?);
            if before.as_deref().is_some_and(|mode| mode.contains(sign)) {
                return Ok(());
            }
            session.key("BTab").await?;
            eventually("another mode", SOON, async || {
                let now = mode(&session.screen().await.ok()?);
                (now.is_some() && now != before).then_some(())
            })
            .await?;
        }
        anyhow::bail!("no {sign}:\n{}", session.screen().await?)
    }

    pub(super) async fn is_asking(&self) -> Result<bool> {
        let screen = self.relayed.session.screen().await?;
        Ok(DIALOGS.iter().any(|sign| screen.contains(sign)))
    }

    /// Returns how often the tool had its effect.
    pub(super) async fn effects(
        &self,
        column: Column,
        number: u64,
        part: u32,
        from: usize,
    ) -> Result<usize> {
        if column.marks() {
            let ran = self.relayed.file(&format!("{}.ran", mark(number, part)));
            return Ok(fs::read_to_string(ran).unwrap_or_default().lines().count());
        }
        if column == Column::Mcp {
            return self.notes(number).await;
        }
        let signs = match column {
            Column::Choice => [choice(number), "answered".to_owned()],
            _ => ["User has approved".to_owned(), "plan".to_owned()],
        };
        Ok(self.told(from, &signs).len())
    }

    /// Returns whether the model read the answer that a person gives at the terminal; `None` without an answer.
    pub(super) fn has_chosen(&self, number: u64, from: usize) -> Option<bool> {
        let told = self
            .told(from, &[choice(number), "answered".to_owned()])
            .pop()?;
        Some(told.contains(&format!("\"{TERMINAL}\"")))
    }

    /// Returns the new texts with those signs that the model got, since its request with that number.
    fn told(&self, from: usize, signs: &[String; 2]) -> Vec<String> {
        let asked = self.relayed.scene.model.asked();
        let new = asked.iter().skip(from).filter(|asked| asked.offers_tools());
        new.map(Asked::new_text)
            .filter(|text| signs.iter().all(|sign| text.contains(sign)))
            .collect()
    }

    /// Counts the messages with that number, and empties the inbox.
    async fn notes(&self, number: u64) -> Result<usize> {
        let sender = &self.relayed.scene.sender;
        let page = eventually("the inbox", SOON, async || {
            let page = sender.reply("get_messages", json!({"limit": 100})).await;
            page.ok()
        })
        .await?;
        let messages = page["messages"].as_array().cloned().unwrap_or_default();
        let text = format!("note {number}");
        Ok(messages
            .iter()
            .filter(|one| one["message"] == text.as_str())
            .count())
    }
}

/// Does a deed of a person at the terminal, or to a process. Verdicts and coordinators are not of its kind.
pub(super) async fn act(session: &Interactive, deed: Deed) -> Result<()> {
    match deed {
        Deed::Yes => session.key("Enter").await,
        Deed::No => match no_option(&session.screen().await?) {
            Some(digit) => session.write(&digit.to_string()).await,
            None => session.key("Escape").await,
        },
        Deed::Escape => {
            session.key("Escape").await?;
            sleep(BETWEEN_KEYS).await;
            Ok(())
        }
        Deed::Clear => {
            // A dialog that opens meanwhile takes the keys, and would take Enter for a yes.
            for _ in 0..3 {
                session.key("Escape").await?;
                sleep(BETWEEN_KEYS).await;
                session.write("/clear").await?;
                sleep(BETWEEN_KEYS).await;
                let screen = session.screen().await?;
                let prompt = screen.lines().rev().find(|line| line.contains('❯'));
                if prompt.is_some_and(|line| line.contains("/clear")) {
                    return session.key("Enter").await;
                }
            }
            Ok(())
        }
        Deed::KillSession => session.kill("KILL").await,
        Deed::KillProxy => {
            let proxy = session.proxy_pid()?.to_string();
            let killed = Command::new("kill").args(["-s", "KILL", &proxy]).status();
            ensure!(killed.await?.success());
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Returns the mode of the client, as the line below the prompt shows it.
fn mode(screen: &str) -> Option<String> {
    let words = screen
        .lines()
        .rev()
        .find_map(|line| line.split_once(" on"))?;
    Some(words.0.trim().to_owned() + " on")
}

/// Returns the number of the option that refuses.
fn no_option(screen: &str) -> Option<char> {
    let line = screen.lines().find(|line| line.contains(". No"))?;
    let before = line.split(". No").next()?;
    before.chars().last().filter(char::is_ascii_digit)
}

/// Gives a verdict. Returns the status of the response; `None` if the connection broke.
pub(super) async fn give(
    person: &Person,
    question: &Value,
    deed: Deed,
    dice: &mut Dice,
) -> Option<u16> {
    let is_choice = question["question"]["kind"] == "choice";
    let suggestions = &question["question"]["request"]["suggestions"];
    let mut more = json!({});
    if is_choice && deed != Deed::Deny {
        let chosen = [
            json!({"options": ["2"]}),
            json!({"text": format!("no {TERMINAL}")}),
        ];
        more["parts"] = json!([chosen[dice.below(2)]]);
    }
    if deed == Deed::Always && suggestions.as_array().is_some_and(|all| !all.is_empty()) {
        more["suggestion"] = json!(0);
    }
    let word = if deed == Deed::Deny { "deny" } else { "allow" };
    let (status, _) = person.decide(question, word, &more).await.ok()?;
    Some(status)
}

/// Waits until a time has passed since `began`.
pub(super) async fn until(began: Instant, time: Duration) {
    sleep(time.saturating_sub(began.elapsed())).await;
}
