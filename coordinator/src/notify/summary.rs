//! The push with the number of open questions, in place of more pushes than a person gets in a short time.

use super::Notifier;
use super::client::ClientError;
use super::config::Person;
use super::render::{Frame, WAITING};
use super::requests::{delete, is_there, publish};
use crate::request::open_after;

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

impl Notifier {
    /// Shows the number of questions that wait, if that is news. A server that cannot change a push gets no second one.
    pub(super) async fn summarize(
        &self,
        person: &Person,
        frame: &Frame<'_>,
        summary: &mut Summary,
    ) -> Result<(), ClientError> {
        let count = self.count().await?;
        let push = frame.summary(count);
        if let Summary::Shows {
            count: shown,
            can_change,
        } = *summary
            && (!can_change
                || shown == count && (!self.is_shared || is_there(person, &push).await?))
        {
            return Ok(());
        }
        let response = publish(person, &push).await?;
        let can_change = response.contains("\"sequence_id\"");
        *summary = Summary::Shows { count, can_change };
        Ok(())
    }

    /// Brings the push up to date after a message has ended, if there is one.
    pub(super) async fn update_summary(
        &self,
        person: &Person,
        summary: &mut Summary,
    ) -> Result<(), ClientError> {
        if *summary == Summary::Gone && !self.is_shared {
            return Ok(());
        }
        if self.count().await? == 0 {
            delete(person, WAITING).await?;
            *summary = Summary::Gone;
        } else if let Summary::Shows { .. } = *summary {
            let standing = self.standing(person).await?;
            let frame = self.frame(person, standing, None);
            self.summarize(person, &frame, summary).await?;
        }
        Ok(())
    }

    /// Returns how many questions wait for people.
    async fn count(&self) -> Result<usize, ClientError> {
        let (mut count, mut next) = (0, Some(0));
        while let Some(after) = next {
            let page = open_after(&self.services, after).await;
            let page = page.map_err(|error| ClientError::Unreachable(error.to_string()))?;
            count += page.questions.len();
            next = page.next;
        }
        Ok(count)
    }
}
