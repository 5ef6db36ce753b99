//! The push with the number of open questions, in place of more pushes than a person gets in a short time.
//!
//! One task for each person keeps it. Duties only report changes, so a flood of questions and ends costs a server few requests.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use c3po_shared::refusal::Refusal;
use tokio::time::sleep;

use super::client::ClientError;
use super::config::Person;
use super::render::WAITING;
use super::requests::{delete, is_there, publish};
use super::{Notifier, PUSHES};
use crate::request::open_after;

/// The pause after each update. A server limits the requests of a coordinator, and pushes need most of them.
const EVERY: Duration = Duration::from_secs(20);

/// The number in the push, as far as this process knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Summary {
    /// There may be such a push of an earlier process.
    #[default]
    Unknown,
    /// There is none.
    Gone,
    /// It shows this number; the server can or cannot change it.
    Shows { count: usize, can_change: bool },
}

/// Keeps the push of a person up to date, for ever.
pub(super) async fn keep(notifier: &Notifier, person: &Person) {
    let changed = notifier.with(&person.name, |known| Arc::clone(&known.waiting_changed));
    // There may be a push of an earlier process.
    changed.notify_one();
    loop {
        changed.notified().await;
        let is_wanted = notifier.with(&person.name, |known| take(&mut known.wants_summary));
        if notifier.update_summary(person, is_wanted).await.is_err() {
            notifier.with(&person.name, |known| known.wants_summary |= is_wanted);
            changed.notify_one();
        }
        sleep(EVERY).await;
    }
}

impl Notifier {
    /// Reports that the number of questions that wait may have changed.
    pub(super) fn waiting_changed(&self, person: &Person) {
        self.with(&person.name, |known| known.waiting_changed.notify_one());
    }

    /// Reports that a push was held back, so that the push with the number is wanted.
    pub(super) fn want_summary(&self, person: &Person) {
        self.with(&person.name, |known| known.wants_summary = true);
        self.waiting_changed(person);
    }

    /// Brings the push up to date.
    async fn update_summary(&self, person: &Person, is_wanted: bool) -> anyhow::Result<()> {
        let summary = self.with(&person.name, |known| known.summary);
        if summary == Summary::Gone && !is_wanted && !self.is_shared {
            return Ok(());
        }
        let count = self.count().await?;
        let is_shown = matches!(summary, Summary::Shows { .. });
        let updated = if count == 0 {
            self.take_back(person, is_shown).await
        } else if is_wanted || is_shown {
            self.show(person, summary, count).await
        } else {
            return Ok(());
        };
        self.record(person, PUSHES, &updated);
        let next = updated?;
        self.with(&person.name, |known| known.summary = next);
        Ok(())
    }

    /// Deletes the push if there is one, also one of another process.
    async fn take_back(&self, person: &Person, is_shown: bool) -> Result<Summary, ClientError> {
        let push = self
            .frame(person, self.standing(person).await?, None)
            .summary(0);
        if is_shown || is_there(person, &push).await? {
            delete(person, WAITING).await?;
        }
        Ok(Summary::Gone)
    }

    /// Shows the number, if that is news. A server that cannot change a push gets no second one.
    async fn show(
        &self,
        person: &Person,
        summary: Summary,
        count: usize,
    ) -> Result<Summary, ClientError> {
        let standing = self.standing(person).await?;
        if standing.refuses(person) {
            return Ok(summary);
        }
        let push = self.frame(person, standing, None).summary(count);
        if let Summary::Shows {
            count: shown,
            can_change,
        } = summary
            && (!can_change
                || shown == count && (!self.is_shared || is_there(person, &push).await?))
        {
            return Ok(summary);
        }
        let response = publish(person, &push).await?;
        let can_change = response.contains("\"sequence_id\"");
        Ok(Summary::Shows { count, can_change })
    }

    /// Returns how many questions wait for people.
    async fn count(&self) -> Result<usize, Refusal> {
        let (mut count, mut next) = (0, Some(0));
        while let Some(after) = next {
            let page = open_after(&self.services, after).await?;
            count += page.questions.len();
            next = page.next;
        }
        Ok(count)
    }
}
