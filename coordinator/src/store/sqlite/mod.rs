//! The embedded store: one SQLite file with one writer thread and one reader thread.

use std::ops::ControlFlow::{self, Break};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use c3po_shared::audit::Entry;
use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::receipt::{Progress, Stage};
use rusqlite::Connection;
use tokio::sync::{broadcast, watch};

mod agents;
mod audit;
mod backup;
mod claims;
mod credentials;
mod duties;
mod endings;
mod group;
mod guard;
mod inbox;
mod keys;
mod ladder;
mod logins;
mod messages;
mod namesakes;
mod open;
mod page_use;
mod parts;
mod people;
mod progress;
mod quota;
mod restore;
mod room;
mod rows;
mod threads;
mod upgrade;
mod waiting;
mod worker;

pub use open::OpenError;

use self::group::{Announcements, Bounds, Fullness, Work};
use self::inbox::Part;
use self::room::DiskRoom;
use self::worker::Worker;
use super::page_use::PageUses;
use super::waiting::Waits;
use super::{
    Actor, Agent, Amendment, AnswerOutcome, AuditStore, Backlog, Claim, Conclusion, Ending,
    Excerpt, Fill, Holder, Namesake, OpenQuestion, PersonReached, Placed, Quota, Removal, Result,
    Selection, Send, SendOutcome, SentStages, Settled, Speaker, Store, StoreError, StoredMessage,
    Stretch, Tenure, WAKE_BACKLOG, Wake,
};
use crate::config::Fleet;

/// A store in one local file. Its calls return after the change is on disk.
#[derive(Debug)]
pub struct SqliteStore {
    // The reader is dropped first: the last connection to close checkpoints the file.
    reader: Worker,
    writer: Worker,
    room: DiskRoom,
    announcements: Announcements,
    waits: Mutex<Waits>,
    page_uses: Mutex<PageUses>,
}

impl SqliteStore {
    /// Opens the database of that fleet, creating it and its folder if they are missing.
    pub async fn open(path: &Path, fleet: &Fleet) -> Result<Self, OpenError> {
        Self::open_within(path, fleet, None).await
    }

    /// Opens it as [`Self::open`] does, with a limit of `max` bytes for new messages. Some of the disk is also left free.
    pub async fn open_within(
        path: &Path,
        fleet: &Fleet,
        max: Option<u64>,
    ) -> Result<Self, OpenError> {
        let room = DiskRoom {
            path: path.to_owned(),
            max,
        };
        let (path, fleet) = (path.to_owned(), fleet.clone());
        let opened = tokio::task::spawn_blocking(move || open::open(&path, &fleet)).await;
        let opened = opened.map_err(|error| OpenError::Threads(std::io::Error::other(error)))??;
        let announcements = Announcements {
            wakes: broadcast::Sender::new(WAKE_BACKLOG),
            keeps_log: Arc::default(),
            log: watch::Sender::new(()),
        };
        let (place, measured) = (opened.place, room.clone());
        let check = move |connection: &Connection| {
            place.check()?;
            room::bound_log(connection);
            let fill = measured.measure(connection)?;
            let full = fill.refuses().map(|why| Fullness {
                error: StoreError::Full(why),
                is_spent: fill.is_spent(),
                is_scarce: fill.is_scarce(),
            });
            Ok(Bounds {
                full,
                is_tight: fill.is_tight(),
                free: fill.free,
            })
        };
        let writer = Worker::writer(opened.writer, announcements.clone(), check)?;
        let reader = Worker::reader(opened.reader)?;
        Ok(Self {
            reader,
            writer,
            room,
            announcements,
            waits: Mutex::default(),
            page_uses: Mutex::default(),
        })
    }

    /// Copies the database and the certificate of the data folder into a new file. Blocks.
    ///
    /// Errors: there is no database, the file already exists, or it cannot be written.
    pub fn back_up(database: &Path, data_dir: &Path, target: &Path) -> anyhow::Result<()> {
        backup::back_up(database, data_dir, target)
    }

    /// Replaces the database and the certificate with a backup. Returns the new paths of the replaced files. Blocks.
    ///
    /// Errors: a coordinator is running on that database, the file is not a backup or comes from a newer program, or a folder
    /// cannot be written.
    pub fn restore(
        source: &Path,
        database: &Path,
        data_dir: &Path,
    ) -> anyhow::Result<Vec<PathBuf>> {
        restore::restore(source, database, data_dir)
    }

    /// Makes a change, and appends its entry to the log in the same transaction if `happened` accepts the outcome.
    async fn logged<T: std::marker::Send + 'static>(
        &self,
        entry: Option<&Entry>,
        happened: impl FnOnce(&T) -> bool + std::marker::Send + 'static,
        change: impl FnOnce(&mut Work<'_>) -> Result<T> + std::marker::Send + 'static,
    ) -> Result<T> {
        let entry = entry.cloned();
        let logged = move |work: &mut Work<'_>| {
            let outcome = change(work)?;
            audit::append_if(work, happened(&outcome), entry.as_ref())?;
            Ok(outcome)
        };
        self.writer.run(logged).await
    }

    /// Makes a change in steps, each with its own place in a group, so that others wait only for one step. The last one
    /// returns the outcome. If the others are not followed by it, the duty of the agent goes on.
    async fn in_steps<T: std::marker::Send + 'static>(
        &self,
        step: impl Fn(&mut Work<'_>) -> Result<ControlFlow<T>> + std::marker::Send + Sync + 'static,
    ) -> Result<T> {
        let step = Arc::new(step);
        loop {
            let step = Arc::clone(&step);
            if let Break(outcome) = self.writer.run(move |work| step(work)).await? {
                return Ok(outcome);
            }
        }
    }

    async fn read(
        &self,
        part: Part,
        agent: &AgentId,
        selection: Selection<'_>,
    ) -> Result<Vec<Placed>> {
        let (agent, thread) = (agent.clone(), selection.thread.cloned());
        let Selection {
            kind,
            after,
            limit,
            bytes,
            ..
        } = selection;
        let read = self.reader.run(move |work| {
            inbox::read(
                work,
                part,
                &agent,
                Selection {
                    kind,
                    thread: thread.as_ref(),
                    after,
                    limit,
                    bytes,
                },
            )
        });
        read.await
    }
}

#[async_trait]
impl AuditStore for SqliteStore {
    async fn keep_log(&self, bound: Option<u64>) -> Result<()> {
        let keeps_log = &self.announcements.keeps_log;
        keeps_log.store(bound.is_some(), Ordering::Relaxed);
        if let Some(most) = bound {
            let bound = self.writer.run(move |work| Ok(audit::bound(work, most)));
            let bound = bound.await?;
            self.in_steps(move |work| audit::trim(work, bound)).await?;
        }
        Ok(())
    }

    async fn note(&self, entries: &[Entry]) -> Result<()> {
        let entries = entries.to_vec();
        self.writer
            .run(move |work| {
                entries
                    .iter()
                    .try_for_each(|entry| audit::append(work, entry))
            })
            .await
    }

    fn log_grows(&self) -> watch::Receiver<()> {
        self.announcements.log.subscribe()
    }

    async fn audit(&self, after: u64, limit: usize) -> Result<Vec<Entry>> {
        self.reader
            .run(move |work| audit::read(work, after, limit))
            .await
    }

    async fn audit_end(&self) -> Result<u64> {
        self.reader.run(|work| audit::end(work)).await
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn claim(&self, claim: &Claim) -> Result<Option<Tenure>> {
        let claim = claim.clone();
        self.in_steps(move |work| claims::claim(work, &claim)).await
    }

    async fn renew(&self, tenure: &Tenure, lease: Duration) -> Result<bool> {
        let tenure = tenure.clone();
        self.writer
            .run(move |work| agents::renew(work, &tenure, lease))
            .await
    }

    async fn release(&self, tenure: &Tenure, ending: Ending) -> Result<()> {
        let tenure = tenure.clone();
        self.in_steps(move |work| endings::release(work, &tenure, &ending))
            .await
    }

    async fn agent(&self, id: &AgentId) -> Result<Option<Agent>> {
        let id = id.clone();
        self.reader.run(move |work| agents::find(work, &id)).await
    }

    async fn namesakes(&self, base: &AgentId) -> Result<Vec<Namesake>> {
        namesakes::namesakes(&self.reader, base).await
    }

    async fn move_host(&self, base: &AgentId, from: &str, to: &str) -> Result<usize> {
        let (base, from, to) = (base.clone(), from.to_owned(), to.to_owned());
        self.writer
            .run(move |work| agents::move_host(work, &base, &from, &to))
            .await
    }

    async fn move_reservations(&self, key: &str, from: &str, to: &str) -> Result<()> {
        let (key, from, to) = (key.to_owned(), from.to_owned(), to.to_owned());
        self.writer
            .run(move |work| agents::move_reservations(work, &key, &from, &to))
            .await
    }

    async fn agents(&self, after: Option<&AgentId>, limit: usize) -> Result<Vec<Agent>> {
        let after = after.cloned();
        self.reader
            .run(move |work| agents::page(work, after.as_ref(), limit))
            .await
    }

    async fn introduce(&self, id: &AgentId, host: Option<&str>, quota: &Quota) -> Result<Agent> {
        let (id, host, quota) = (id.clone(), host.map(str::to_owned), quota.clone());
        self.writer
            .run(move |work| agents::introduce(work, &id, host.as_deref(), &quota))
            .await
    }

    async fn amend(
        &self,
        id: &AgentId,
        speaker: Option<&Speaker>,
        amendment: &Amendment,
    ) -> Result<Option<Agent>> {
        let (id, speaker, amendment) = (id.clone(), speaker.cloned(), amendment.clone());
        self.writer
            .run(move |work| agents::amend(work, &id, speaker.as_ref(), &amendment))
            .await
    }

    async fn unregister(
        &self,
        id: &AgentId,
        host: Option<&str>,
        entry: Option<&Entry>,
    ) -> Result<bool> {
        let (id, host, entry) = (id.clone(), host.map(str::to_owned), entry.cloned());
        self.in_steps(move |work| {
            agents::check_host(work, &id, host.as_deref())?;
            let step = endings::unregister(work, &id)?;
            audit::append_if(work, step == Break(true), entry.as_ref())?;
            Ok(step)
        })
        .await
    }

    async fn remove(
        &self,
        id: &AgentId,
        host: Option<&str>,
        frees: bool,
        entry: Option<&Entry>,
    ) -> Result<Removal> {
        let (id, host, entry) = (id.clone(), host.map(str::to_owned), entry.cloned());
        self.in_steps(move |work| {
            agents::check_host(work, &id, host.as_deref())?;
            let step = endings::remove(work, &id, frees)?;
            audit::append_if(work, step == Break(Removal::Removed), entry.as_ref())?;
            Ok(step)
        })
        .await
    }

    async fn holder(&self, id: &AgentId) -> Result<Option<Holder>> {
        let id = id.clone();
        self.reader.run(move |work| agents::holder(work, &id)).await
    }

    async fn send(&self, send: &Send) -> Result<SendOutcome> {
        let send = send.clone();
        self.writer
            .run(move |work| messages::send(work, &send))
            .await
    }

    async fn announce(&self, _: &AgentId, _: Option<&Speaker>, _: &str) -> Result<()> {
        Ok(())
    }

    async fn answer(&self, answer: &Send) -> Result<AnswerOutcome> {
        let call = answer.clone();
        let outcome = self
            .writer
            .run(move |work| messages::answer(work, &call))
            .await?;
        if let (AnswerOutcome::Sent(SendOutcome::Stored), Some(question)) =
            (&outcome, &answer.message.reply_to)
        {
            self.waits().end(question);
        }
        Ok(outcome)
    }

    async fn inbox(&self, agent: &AgentId, selection: Selection<'_>) -> Result<Vec<Placed>> {
        self.read(Part::Everything, agent, selection).await
    }

    async fn unshown(&self, agent: &AgentId, selection: Selection<'_>) -> Result<Vec<Placed>> {
        self.read(Part::Unshown, agent, selection).await
    }

    async fn pending(&self, agent: &AgentId) -> Result<Backlog> {
        let agent = agent.clone();
        self.reader
            .run(move |work| inbox::pending(work, &agent))
            .await
    }

    async fn open_questions(&self) -> Result<Arc<[OpenQuestion]>> {
        self.reader.run(|work| people::open_questions(work)).await
    }

    async fn acknowledge(
        &self,
        agent: &AgentId,
        actor: &Actor,
        messages: &[MessageId],
    ) -> Result<Settled> {
        let (agent, actor, messages) = (agent.clone(), actor.clone(), messages.to_vec());
        self.writer
            .run(move |work| progress::acknowledge(work, &agent, &actor, &messages))
            .await
    }

    async fn reach_person(&self, reached: &PersonReached) -> Result<bool> {
        let reached = reached.clone();
        self.writer
            .run(move |work| progress::reach_person(work, &reached))
            .await
    }

    async fn conclude(&self, conclusion: &Conclusion) -> Result<Option<bool>> {
        let report = conclusion.clone();
        let recorded = self
            .writer
            .run(move |work| progress::conclude(work, &report))
            .await?;
        if recorded == Some(true) && conclusion.stage == Stage::Withdrawn {
            self.waits().end(&conclusion.question);
        }
        Ok(recorded)
    }

    async fn advance(
        &self,
        recipient: &AgentId,
        actor: &Actor,
        progress: &Progress,
    ) -> Result<Vec<(MessageId, Stage)>> {
        let (recipient, actor, progress) = (recipient.clone(), actor.clone(), progress.clone());
        self.writer
            .run(move |work| progress::advance(work, &recipient, &actor, &progress))
            .await
    }

    async fn message(&self, id: &MessageId) -> Result<Option<StoredMessage>> {
        let id = id.clone();
        self.reader.run(move |work| inbox::message(work, &id)).await
    }

    async fn thread(&self, thread: &MessageId, stretch: Stretch<'_>) -> Result<Excerpt> {
        let thread = thread.clone();
        let (reader, after) = (stretch.reader.clone(), stretch.after.cloned());
        let (limit, bytes) = (stretch.limit, stretch.bytes);
        let read = move |work: &mut Work<'_>| {
            let stretch = Stretch {
                reader: &reader,
                after: after.as_ref(),
                limit,
                bytes,
            };
            threads::read(work, &thread, stretch)
        };
        self.reader.run(read).await
    }

    async fn sent(&self, thread: &MessageId, stretch: Stretch<'_>) -> Result<SentStages> {
        let thread = thread.clone();
        let (sender, after) = (stretch.reader.clone(), stretch.after.cloned());
        let limit = stretch.limit;
        let read =
            move |work: &mut Work<'_>| threads::sent(work, &thread, &sender, after.as_ref(), limit);
        self.reader.run(read).await
    }

    async fn sweep(&self) -> Result<()> {
        // The sweep is split into small operations, so that a send never waits for more than one of them.
        while self.writer.run(progress::sweep_archive).await? {}
        self.writer.run(agents::sweep_former).await?;
        self.writer.run(quota::sweep).await?;
        Ok(())
    }

    async fn check(&self) -> Result<()> {
        self.writer.run(|_| Ok(())).await?;
        self.reader.run(|_| Ok(())).await
    }

    async fn fill(&self) -> Result<Option<Fill>> {
        let room = self.room.clone();
        self.reader
            .run(move |work| room.measure(work.connection).map(Some))
            .await
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.announcements.wakes.subscribe()
    }

    async fn close(&self) {
        self.reader.close().await;
        self.writer.close().await;
    }
}
