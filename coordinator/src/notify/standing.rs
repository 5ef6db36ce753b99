//! The checks of a person's topics: a topic that anyone can read is refused, and buttons need a token that can only write.

use std::time::Duration;

use tokio::time::Instant;

use super::Notifier;
use super::client::{Ask, ClientError, send_once};
use super::codes::Codes;
use super::config::{Content, Person};
use super::render::Frame;
use crate::config::Secret;

/// How long the result of a check counts.
const VALID_FOR: Duration = Duration::from_secs(600);

/// The result of a check.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    at: Instant,
    /// Whether anyone can read the topic.
    pub(super) is_public: bool,
    /// Whether pushes may have buttons.
    pub(super) buttons: bool,
}

impl Standing {
    /// Returns how much a push may show.
    fn content(self, person: &Person) -> Content {
        if self.is_public {
            person.content.min(Content::Title)
        } else {
            person.content
        }
    }

    /// Returns whether nothing may be pushed.
    pub(super) fn refuses(self, person: &Person) -> bool {
        self.is_public && !person.allow_public
    }
}

impl Notifier {
    /// Returns the result of the latest check, or checks again.
    ///
    /// Errors: the server does not respond as ntfy does.
    pub(super) async fn standing(&self, person: &Person) -> Result<Standing, ClientError> {
        let known = self.with(&person.name, |known| known.standing);
        if let Some(standing) = known.filter(|known| known.at.elapsed() < VALID_FOR) {
            return Ok(standing);
        }
        let standing = check(person).await?;
        self.with(&person.name, |known| known.standing = Some(standing));
        let name = &person.name;
        if standing.refuses(person) {
            tracing::warn!(
                "nothing is pushed to {name}: anyone can read the topic {} of {}; protect it, or set allow_public",
                person.topic,
                person.server
            );
        } else if !standing.buttons
            && person
                .reply
                .as_ref()
                .is_some_and(|reply| reply.token.is_some())
        {
            tracing::warn!(
                "pushes to {name} have no buttons: the reply token can read a topic, or anyone can"
            );
        }
        Ok(standing)
    }

    /// Returns the circumstances of pushes to a person.
    pub(super) fn frame<'a>(
        &'a self,
        person: &'a Person,
        standing: Standing,
        codes: Option<&'a Codes>,
    ) -> Frame<'a> {
        Frame {
            person,
            codes: codes.filter(|_| !standing.is_public && person.reply.is_some()),
            buttons: standing.buttons,
            content: standing.content(person),
            public_url: self.public_url.as_deref(),
        }
    }
}

/// Checks the topics and the tokens.
pub(super) async fn check(person: &Person) -> Result<Standing, ClientError> {
    let is_public = can_read(person, &person.topic, None).await?;
    let reply = person.reply.as_ref();
    let buttons = match reply.and_then(|reply| Some((&reply.topic, reply.token.as_ref()?))) {
        Some((topic, token)) if !is_public => {
            let (answers, questions) = tokio::try_join!(
                can_read(person, topic, Some(token)),
                can_read(person, &person.topic, Some(token)),
            )?;
            !answers && !questions
        }
        _ => false,
    };
    Ok(Standing {
        at: Instant::now(),
        is_public,
        buttons,
    })
}

/// Returns whether a token, or anyone, can read a topic. Two responses must agree: ntfy confuses the users of one address whose
/// requests come at the same time.
async fn can_read(
    person: &Person,
    topic: &str,
    token: Option<&Secret>,
) -> Result<bool, ClientError> {
    let path = format!("/{topic}/json?poll=1&since=1s");
    let ask = async || match send_once(&person.server, Ask::get(&path, token)).await {
        Ok(_) => Ok(true),
        Err(ClientError::Refused { status: 403, .. }) => Ok(false),
        Err(ClientError::Refused { status: 401, .. }) if token.is_none() => Ok(false),
        Err(error) => Err(error),
    };
    let (first, second) = (ask().await?, ask().await?);
    if first == second {
        Ok(first)
    } else {
        ask().await
    }
}
