//! The people who get pushes, as `notify.toml` and the environment describe them.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use c3po_shared::join::check_person;
use c3po_shared::limits::{NOTIFY_BYTES_MAX, NOTIFY_PEOPLE_MAX, PUSH_GRACE, PUSH_GRACE_MAX};
use c3po_shared::time::Span;
use c3po_shared::vocabulary::Priority;
use serde::Deserialize;

use super::quiet::QuietHours;
use super::server::Server;
use crate::config::{NtfyFlags, Secret};
use crate::trusted;

/// The default server of the environment, as in the earlier program.
const PUBLIC_SERVER: &str = "https://ntfy.sh";
/// The name of the person of the environment.
const OWNER: &str = "owner";
/// The largest file with a token, in bytes.
const TOKEN_BYTES_MAX: u64 = 1_000;
/// The longest topic, in characters, as ntfy has it.
const TOPIC_MAX: usize = 64;

/// How much of a message a push contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Content {
    /// Only that something waits.
    None,
    /// The sender and the title.
    Title,
    /// The text.
    #[default]
    Full,
}

/// The least priority of each kind of message that is pushed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Least {
    pub(crate) question: Priority,
    pub(crate) permission: Priority,
    pub(crate) notice: Priority,
}

impl Default for Least {
    fn default() -> Self {
        Self {
            question: Priority::Low,
            permission: Priority::Low,
            notice: Priority::High,
        }
    }
}

/// The topic for answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplyTopic {
    pub(crate) topic: String,
    /// The token of buttons, which may only write to it. Without it pushes have no buttons.
    pub(crate) token: Option<Secret>,
}

/// A person and the phone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Person {
    /// The name under which answers are recorded.
    pub(crate) name: String,
    pub(crate) server: Server,
    pub(crate) topic: String,
    /// The coordinator's token for both topics.
    pub(crate) token: Option<Secret>,
    pub(crate) reply: Option<ReplyTopic>,
    pub(crate) least: Least,
    pub(crate) quiet: Option<QuietHours>,
    /// How old a message is before it is pushed.
    pub(crate) grace: Duration,
    pub(crate) content: Content,
    /// Whether requests of clients have buttons for verdicts.
    pub(crate) verdict_buttons: bool,
    /// Whether a topic that anyone can read is used.
    pub(crate) allow_public: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    #[serde(default)]
    person: Vec<Table>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    name: String,
    server: String,
    topic: String,
    token_file: Option<PathBuf>,
    reply_topic: Option<String>,
    reply_token_file: Option<PathBuf>,
    #[serde(default)]
    min_priority: Least,
    quiet: Option<String>,
    time_zone: Option<String>,
    grace: Option<String>,
    #[serde(default)]
    content: Content,
    #[serde(default)]
    verdict_buttons: bool,
    #[serde(default)]
    allow_public: bool,
}

/// Returns the people of the file, or of the environment if there is no file.
///
/// Errors: the reason why the settings are invalid, with the place.
pub(super) fn read(path: &Path, flags: &NtfyFlags) -> Result<Vec<Person>, String> {
    match trusted::read_trusted(path, NOTIFY_BYTES_MAX) {
        Ok(bytes) => {
            let people = parse(&bytes, path.parent().unwrap_or(Path::new(".")));
            people.map_err(|why| format!("{}: {why}", path.display()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => of_environment(flags),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

fn parse(bytes: &[u8], folder: &Path) -> Result<Vec<Person>, String> {
    if bytes.len() as u64 > NOTIFY_BYTES_MAX {
        return Err(format!("it has more than {NOTIFY_BYTES_MAX} bytes"));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| format!("not a text file: {error}"))?;
    if text.trim().is_empty() {
        return Err("it is empty; for no pushes, write a comment into it".to_owned());
    }
    let tables: Tables = toml::from_str(text).map_err(|error| error.to_string())?;
    if tables.person.len() > NOTIFY_PEOPLE_MAX {
        return Err(format!("it has more than {NOTIFY_PEOPLE_MAX} people"));
    }
    let mut people = Vec::with_capacity(tables.person.len());
    let (mut names, mut topics) = (HashSet::new(), HashSet::new());
    for table in tables.person {
        let person = table.person(folder)?;
        if !names.insert(person.name.clone()) {
            return Err(format!("{} is there twice", person.name));
        }
        let of_person =
            std::iter::once(&person.topic).chain(person.reply.iter().map(|reply| &reply.topic));
        for topic in of_person {
            if !topics.insert((person.server.url(), topic.clone())) {
                return Err(format!(
                    "the topic {topic} is there twice; each needs its own"
                ));
            }
        }
        people.push(person);
    }
    Ok(people)
}

impl Table {
    fn person(self, folder: &Path) -> Result<Person, String> {
        check_person("name", &self.name).map_err(|refusal| refusal.error)?;
        let of_person = |why: String| format!("{}: {why}", self.name);
        let secret = |file: &Option<PathBuf>| {
            let read = file.as_ref().map(|file| token(&folder.join(file)));
            read.transpose().map_err(of_person)
        };
        if self.reply_token_file.is_some() && self.reply_topic.is_none() {
            return Err(of_person("reply_token_file needs reply_topic".to_owned()));
        }
        let reply_token = secret(&self.reply_token_file)?;
        let reply = self.reply_topic.map(|topic| ReplyTopic {
            topic,
            token: reply_token,
        });
        let quiet = self.quiet.as_deref();
        let quiet = quiet.map(|hours| QuietHours::parse(hours, self.time_zone.as_deref()));
        let grace = self.grace.as_deref().map(grace).transpose();
        let person = Person {
            server: Server::parse(&self.server).map_err(of_person)?,
            topic: self.topic,
            token: secret(&self.token_file)?,
            reply,
            least: self.min_priority,
            quiet: quiet.transpose().map_err(of_person)?,
            grace: grace.map_err(of_person)?.unwrap_or(PUSH_GRACE),
            content: self.content,
            verdict_buttons: self.verdict_buttons,
            allow_public: self.allow_public,
            name: self.name.clone(),
        };
        person.checked().map_err(of_person)
    }
}

impl Person {
    fn checked(self) -> Result<Self, String> {
        let reply = self.reply.as_ref().map(|reply| &reply.topic);
        for topic in std::iter::once(&self.topic).chain(reply) {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            if topic.is_empty() || topic.len() > TOPIC_MAX || !topic.chars().all(is_plain) {
                return Err(format!(
                    "a topic has at most {TOPIC_MAX} letters, digits, hyphens and underscores"
                ));
            }
        }
        let reply_token = self.reply.as_ref().and_then(|reply| reply.token.as_ref());
        let is_token = |token: &Secret| token.reveal().chars().all(|c| c.is_ascii_graphic());
        if !self.token.iter().chain(reply_token).all(is_token) {
            return Err("a token has a character that tokens do not have".to_owned());
        }
        Ok(self)
    }
}

/// Returns the token in a file, without white space at its ends.
fn token(path: &Path) -> Result<Secret, String> {
    let bytes = trusted::read_trusted(path, TOKEN_BYTES_MAX)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let text = String::from_utf8(bytes).unwrap_or_default();
    let text = text.trim();
    if text.is_empty() || text.len() as u64 > TOKEN_BYTES_MAX {
        return Err(format!("{} contains no token", path.display()));
    }
    Ok(text
        .parse()
        .unwrap_or_else(|never: std::convert::Infallible| match never {}))
}

fn grace(text: &str) -> Result<Duration, String> {
    let grace = text
        .parse::<Span>()
        .map_err(|error| format!("grace: {error}"))?;
    let limit = PUSH_GRACE_MAX;
    match grace.duration() {
        grace if grace <= limit => Ok(grace),
        _ => Err(format!("grace is at most {} seconds", limit.as_secs())),
    }
}

fn of_environment(flags: &NtfyFlags) -> Result<Vec<Person>, String> {
    let topic = flags
        .ntfy_topic
        .as_ref()
        .or(flags.jean_claude_ntfy_topic.as_ref());
    let Some(topic) = topic else {
        return match flags.ntfy_url {
            Some(_) => Err("C3PO_NTFY_URL needs C3PO_NTFY_TOPIC".to_owned()),
            None => Ok(Vec::new()),
        };
    };
    let reply = flags.ntfy_reply_topic.as_ref();
    let reply = reply.or(flags.jean_claude_ntfy_response_topic.as_ref());
    let person = Person {
        name: OWNER.to_owned(),
        server: Server::parse(flags.ntfy_url.as_deref().unwrap_or(PUBLIC_SERVER))?,
        topic: topic.clone(),
        token: flags.ntfy_token.clone(),
        reply: reply.map(|topic| ReplyTopic {
            topic: topic.clone(),
            token: flags.ntfy_reply_token.clone(),
        }),
        least: Least::default(),
        quiet: None,
        grace: PUSH_GRACE,
        content: Content::Full,
        verdict_buttons: false,
        allow_public: flags.ntfy_allow_public,
    };
    person.checked().map(|person| vec![person])
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use super::*;

    /// A person with a private topic and a reply topic.
    pub(crate) fn person() -> Person {
        let secret = |text: &str| {
            text.parse()
                .unwrap_or_else(|never: std::convert::Infallible| match never {})
        };
        Person {
            name: "ann".to_owned(),
            server: Server::parse("https://ntfy.example").expect("a server"),
            topic: "ask".to_owned(),
            token: Some(secret("tk_coordinator")),
            reply: Some(ReplyTopic {
                topic: "answers".to_owned(),
                token: Some(secret("tk_phone")),
            }),
            least: Least::default(),
            quiet: None,
            grace: PUSH_GRACE,
            content: Content::Full,
            verdict_buttons: false,
            allow_public: false,
        }
    }

    #[test]
    fn a_file_describes_people_and_names_the_place_of_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify.toml");
        fs::write(folder.path().join("t"), "tk_coordinator\n").expect("a token");
        fs::write(folder.path().join("r"), "tk_phone\n").expect("a token");
        let head =
            "[[person]]\nname = \"ann\"\nserver = \"https://ntfy.example\"\ntopic = \"ask\"\n";
        let read = |text: &str| {
            fs::write(&path, text).expect("written");
            read(&path, &NtfyFlags::default())
        };
        let full = "token_file = \"t\"\nreply_topic = \"answers\"\nreply_token_file = \"r\"\n";
        assert_eq!(read(&format!("{head}{full}")), Ok(vec![person()]));
        assert_eq!(read("# none\n"), Ok(Vec::new()));
        for (text, why) in [
            ("\n", "it is empty"),
            ("[[person]]\nname = \"a\"\n", "missing field `server`"),
            (&format!("{head}topick = 1\n"), "unknown field"),
            (
                &format!("{head}token_file = \"none\"\n"),
                "none: No such file",
            ),
            (
                &format!("{head}reply_token_file = \"r\"\n"),
                "reply_token_file needs reply_topic",
            ),
            (
                &format!("{head}quiet = \"22\"\n"),
                "write it as 22:00-07:00",
            ),
            (
                &format!("{head}grace = \"1h\"\n"),
                "grace is at most 600 seconds",
            ),
            (
                &format!("{head}reply_topic = \"a b\"\n"),
                "a topic has at most 64 letters",
            ),
            (&format!("{head}{head}"), "ann is there twice"),
            (
                &format!("{head}{}", head.replace("ann", "bob")),
                "the topic ask is there twice",
            ),
        ] {
            let error = read(text).expect_err(text);
            assert!(
                error.contains(why) && error.contains("notify.toml"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn the_environment_describes_one_person() {
        let text = |text: &str| Some(text.to_owned());
        let read = |flags: &NtfyFlags| read(Path::new("/nowhere/notify.toml"), flags);
        assert_eq!(read(&NtfyFlags::default()), Ok(Vec::new()));
        let earlier = NtfyFlags {
            jean_claude_ntfy_topic: text("ask"),
            jean_claude_ntfy_response_topic: text("answers"),
            ..NtfyFlags::default()
        };
        let people = read(&earlier).expect("a person");
        assert_eq!(people[0].server.url(), "https://ntfy.sh");
        assert_eq!(
            (people[0].name.as_str(), people[0].topic.as_str()),
            ("owner", "ask")
        );
        assert_eq!(
            people[0].reply.as_ref().map(|reply| reply.topic.as_str()),
            Some("answers")
        );
        let newer = NtfyFlags {
            ntfy_url: text("http://nas:2586"),
            ntfy_topic: text("mine"),
            ..earlier
        };
        let people = read(&newer).expect("a person");
        assert_eq!(
            (people[0].server.url().as_str(), people[0].topic.as_str()),
            ("http://nas:2586", "mine")
        );
        let no_topic = NtfyFlags {
            ntfy_url: text("http://nas:2586"),
            ..NtfyFlags::default()
        };
        assert!(read(&no_topic).is_err());
    }
}
