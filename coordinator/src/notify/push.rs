//! The duty of one message to people: pushes it to each person when it is time, and takes the pushes back at its end.

use std::time::Duration;

use anyhow::{Context, Result};
use c3po_shared::ids::MessageId;
use c3po_shared::message::Message;
use c3po_shared::receipt::{Stage, Step, Via, furthest};
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::Priority;
use futures_util::future::join_all;
use tokio::time::Instant;

use super::bounds::RETRY;
use super::client::ClientError;
use super::codes::Codes;
use super::config::Person;
use super::render::sequence;
use super::requests::{delete, is_there, publish};
use super::{Notifier, PUSHES};
use crate::clock;
use crate::metrics::PushOutcome;
use crate::request::{end_triage, hold_for_triage, page_use_left, with_parts};
use crate::store::{Claimed, PersonReached, StoreError, StoredMessage};

/// After this time a message is looked at again, whatever was planned: its end may have planned nothing.
const LOOK: Duration = Duration::from_secs(60);

/// After this time a push is sent again that its server refused for its content: that seldom helps, and servers count requests.
const REFUSED: Duration = Duration::from_secs(60 * 60);

/// Returns the time after which a push that failed is sent again, if its server certainly did not accept it.
fn repeated_after(error: &ClientError) -> Option<Duration> {
    match error {
        ClientError::Refused { status: 429, .. } => Some(RETRY),
        ClientError::Refused {
            status: 401 | 403, ..
        } => Some(LOOK),
        ClientError::Refused {
            status: 400..=499, ..
        } => Some(REFUSED),
        ClientError::Refused { .. } | ClientError::Unreachable(_) => None,
    }
}

/// The next step for one person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The push is due.
    Push,
    /// It is due after this time.
    Wait(Duration),
    /// There is nothing to do until the end of the message.
    Nothing,
}

/// Does the duty. Returns the time after which it is due again, or `None` if it is done for good.
///
/// Errors: a server or the store failed. The claim of the duty must then run out, so that the next claim asks the
/// server whether it accepted the push.
pub(crate) async fn do_push(notifier: &Notifier, claimed: &Claimed) -> Result<Option<Duration>> {
    let id: MessageId = claimed.duty.id.parse().context("the id of the message")?;
    let kept = notifier.services.store.message(&id).await?;
    let people = notifier.people();
    let Some(kept) = kept.filter(|kept| !is_over(kept)) else {
        return notifier.end(&id, claimed.taken_over).await;
    };
    if let Some(wait) = hold_for_triage(notifier.services(), &kept).await? {
        return Ok(Some(wait));
    }
    let (now, message) = (clock::now(), &kept.message);
    let mut steps = Vec::new();
    for person in people.iter() {
        let next = next(person, message, &kept.history, now);
        let next = notifier
            .unless_at_a_page(person, claimed, message, next)
            .await?;
        steps.push((person, next));
    }
    let left = message.expires_at.since(now);
    let is_quiet = steps.iter().all(|(_, next)| *next == Next::Nothing);
    let look = if is_quiet && !message.requires_response && !kept.history.iter().any(is_push) {
        // News that is pushed to no person. There may be thousands.
        left
    } else {
        LOOK.min(left)
    };
    let mut pushes = false;
    let work = steps.into_iter().map(|(person, next)| async move {
        match next {
            Next::Push => notifier.push(person, message, claimed.taken_over).await,
            Next::Wait(time) => Ok(Some(time)),
            Next::Nothing => Ok(Some(look)),
        }
    });
    let mut wait = look;
    for outcome in join_all(work).await {
        match outcome? {
            Some(time) => wait = wait.min(time),
            None => pushes = true,
        }
    }
    if !pushes {
        return Ok(Some(wait));
    }
    // It may have ended while it was pushed: then nothing else takes the push back.
    let kept = notifier.services.store.message(&id).await?;
    if kept.is_none_or(|kept| is_over(&kept)) {
        // The receipt of a message that is over does not record a push.
        return notifier.end(&id, true).await;
    }
    Ok(Some(wait))
}

fn is_over(kept: &StoredMessage) -> bool {
    let is_read = !kept.message.requires_response && furthest(&kept.history) >= Stage::Seen;
    is_read || furthest(&kept.history).is_final() || kept.message.expires_at <= clock::now()
}

/// Decides about a message and a person.
fn next(person: &Person, message: &Message, history: &[Step], now: Timestamp) -> Next {
    if has_reached(history, &person.name) {
        return Next::Nothing;
    }
    let question = message.question.as_deref();
    let least = match question {
        _ if !message.requires_response => person.least.notice,
        Some(question) if question.needs_verdict() => person.least.permission,
        _ => person.least.question,
    };
    if message.priority < least {
        return Next::Nothing;
    }
    let age = now.since(message.timestamp);
    if let Some(left) = person.grace.checked_sub(age).filter(|left| !left.is_zero()) {
        return Next::Wait(left);
    }
    let quiet = person.quiet.as_ref().and_then(|quiet| quiet.left(now));
    match quiet {
        Some(left) if message.priority < Priority::Urgent => Next::Wait(left),
        _ => Next::Push,
    }
}

/// Returns whether a server accepted the push to this person.
fn has_reached(history: &[Step], name: &str) -> bool {
    let mut pushes = history.iter().filter(|step| is_push(step));
    pushes.any(|push| push.by.as_deref() == Some(name))
}

/// Returns whether a server accepted a push.
fn is_push(step: &Step) -> bool {
    step.stage == Stage::OnHost && step.via == Some(Via::Ntfy)
}

impl Notifier {
    /// Lets a question wait whose person uses a page. Pages show no news, so these do not wait, nor does a push that was begun.
    async fn unless_at_a_page(
        &self,
        person: &Person,
        claimed: &Claimed,
        message: &Message,
        next: Next,
    ) -> Result<Next, StoreError> {
        if next != Next::Push || claimed.taken_over || !message.requires_response {
            return Ok(next);
        }
        let left = page_use_left(&self.services, &person.name).await?;
        let wait = Some(left).filter(|left| !left.is_zero());
        Ok(wait.map_or(next, Next::Wait))
    }

    /// Pushes a message to a person. Returns `None` if the server accepted it, or the time after which it is due.
    async fn push(
        &self,
        person: &Person,
        message: &Message,
        taken_over: bool,
    ) -> Result<Option<Duration>> {
        if taken_over {
            // The server must be asked whether it accepted the push.
            self.must_try(person)?;
        }
        let codes = self.codes(person).await?;
        let pushed = self.try_push(person, message, codes, taken_over).await;
        // A push that has to wait proves nothing about the server.
        if !matches!(pushed, Ok(Some(_))) {
            self.record(person, PUSHES, &pushed);
        }
        let metrics = &self.services.metrics;
        match pushed.with_context(|| format!("the push to {}", person.name))? {
            Some(wait) => return Ok(Some(wait)),
            None => metrics.pushed(PushOutcome::Accepted),
        }
        let reached = PersonReached {
            message: message.id.clone(),
            by: person.name.clone(),
            stage: Stage::OnHost,
            via: Via::Ntfy,
        };
        self.services.store.reach_person(&reached).await?;
        Ok(None)
    }

    /// Returns `None` if the server accepted the push, or the time after which it is due. During a pause after a failure the
    /// server gets no request.
    async fn try_push(
        &self,
        person: &Person,
        message: &Message,
        codes: Option<Codes>,
        taken_over: bool,
    ) -> Result<Option<Duration>, ClientError> {
        if taken_over {
            let standing = self.standing(person).await?;
            let frame = self.frame(person, standing, codes.as_ref());
            if is_there(person, &frame.push(&with_parts(message.clone()))).await? {
                return Ok(None);
            }
        }
        let host = message.from_host.as_deref().unwrap_or_default();
        let now = Instant::now();
        if self.with(&person.name, |known| known.refused.has(&message.id, now)) {
            return Ok(Some(LOOK));
        }
        if let Err(wait) = self.with(&person.name, |known| known.pace.take(host, now)) {
            self.want_summary(person);
            return Ok(Some(wait.min(LOOK)));
        }
        // One that was taken over has the turn of this pause already.
        let may_try = if taken_over {
            Ok(())
        } else {
            self.may_try(person)
        };
        let pushed = match may_try {
            Ok(()) => self.push_now(person, message, codes).await,
            Err(left) => Ok(Some(left)),
        };
        if !matches!(pushed, Ok(None)) {
            self.with(&person.name, |known| known.pace.give_back(host));
        }
        pushed
    }

    /// Pushes the message now. Returns as [`Self::try_push`] does.
    async fn push_now(
        &self,
        person: &Person,
        message: &Message,
        codes: Option<Codes>,
    ) -> Result<Option<Duration>, ClientError> {
        let standing = match self.standing(person).await {
            Ok(standing) => standing,
            Err(error) => {
                let wait = repeated_after(&error).unwrap_or(RETRY);
                self.record(person, PUSHES, &Err::<(), _>(error));
                return Ok(Some(wait));
            }
        };
        if standing.refuses(person) {
            self.services.metrics.pushed(PushOutcome::Refused);
            return Ok(Some(LOOK));
        }
        let frame = self.frame(person, standing, codes.as_ref());
        let published = publish(person, &frame.push(&with_parts(message.clone()))).await;
        if published.is_err() {
            self.services.metrics.pushed(PushOutcome::Failed);
        }
        match published {
            Err(error) if let Some(wait) = repeated_after(&error) => {
                self.record(person, PUSHES, &Err::<(), _>(error));
                if wait == REFUSED {
                    let until = Instant::now() + REFUSED;
                    self.with(&person.name, |known| known.refused.add(&message.id, until));
                }
                Ok(Some(wait))
            }
            published => published.map(|_| None),
        }
    }

    /// Takes back the pushes of a message that is settled, expired or gone.
    async fn end(&self, id: &MessageId, taken_over: bool) -> Result<Option<Duration>> {
        end_triage(&self.services, id).await?;
        let kept = self.services.store.message(id).await?;
        let was_counted = kept
            .as_ref()
            .is_none_or(|kept| kept.message.requires_response);
        // A coordinator that ended while it pushed recorded nothing. A message that is gone has no push either.
        let may_stand = taken_over && kept.is_some();
        let history = kept.map(|kept| kept.history).unwrap_or_default();
        let (people, sequence) = (self.people(), sequence(id));
        let ending = people.iter().map(|person| async {
            if was_counted {
                self.waiting_changed(person);
            }
            if may_stand || has_reached(&history, &person.name) {
                self.must_try(person)?;
                let deleted = delete(person, &sequence).await;
                self.record(person, PUSHES, &deleted);
                deleted.with_context(|| format!("the end of the push to {}", person.name))?;
            }
            anyhow::Ok(())
        });
        for outcome in join_all(ending).await {
            outcome?;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::notify::config::tests::person;
    use crate::notify::quiet::QuietHours;

    /// Midnight of 2026-01-15 in UTC.
    const MIDNIGHT: u64 = 1_768_435_200_000;

    fn message(priority: &str, requires_response: bool) -> Message {
        serde_json::from_value(json!({
            "id": "ha::human::0a1b2c3d", "thread_id": "ha::human::0a1b2c3d", "kind": "message", "from_agent": "ha",
            "to_agent": "human", "message": "?", "priority": priority, "requires_response": requires_response,
            "timestamp": "2026-01-15T00:00:00.000Z", "expires_at": "2026-01-22T00:00:00.000Z",
        }))
        .expect("a message")
    }

    fn step(by: &str, via: Via) -> Step {
        Step {
            stage: Stage::OnHost,
            at: Timestamp::from_millis(MIDNIGHT),
            via: Some(via),
            session: None,
            by: Some(by.to_owned()),
            reply_id: None,
        }
    }

    #[test]
    fn a_push_is_due_after_the_grace_and_once() {
        let (person, message) = (person(), message("normal", true));
        let at = |seconds: u64| Timestamp::from_millis(MIDNIGHT + seconds * 1_000);
        let next = |history: &[Step], seconds| next(&person, &message, history, at(seconds));
        assert_eq!(next(&[], 3), Next::Wait(Duration::from_secs(7)));
        assert_eq!(next(&[], 10), Next::Push);
        assert_eq!(
            next(&[step("bob", Via::Ntfy), step("ann", Via::Page)], 10),
            Next::Push
        );
        assert_eq!(next(&[step("ann", Via::Ntfy)], 10), Next::Nothing);
    }

    #[test]
    fn only_a_push_that_a_server_may_have_accepted_is_in_doubt() {
        let refused = |status| ClientError::Refused {
            status,
            text: String::new(),
        };
        for (status, expected) in [
            (429, Some(RETRY)),
            (403, Some(LOOK)),
            (413, Some(REFUSED)),
            (502, None),
        ] {
            assert_eq!(repeated_after(&refused(status)), expected, "{status}");
        }
        assert_eq!(
            repeated_after(&ClientError::Unreachable(String::new())),
            None
        );
    }

    #[test]
    fn priorities_and_quiet_hours_hold_pushes() {
        let mut person = person();
        let now = Timestamp::from_millis(MIDNIGHT + 10_000);
        let next = |person: &Person, message: &Message| next(person, message, &[], now);
        assert_eq!(next(&person, &message("normal", false)), Next::Nothing);
        assert_eq!(next(&person, &message("high", false)), Next::Push);
        person.quiet = Some(QuietHours::parse("22:00-07:00", Some("UTC")).expect("hours"));
        let left = Duration::from_secs(7 * 3600 - 10);
        assert_eq!(next(&person, &message("high", true)), Next::Wait(left));
        assert_eq!(next(&person, &message("urgent", true)), Next::Push);
    }
}
