//! A disk at its floor: whatever one host does with what it has stored, the room for control stays.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use c3po_coordinator::config::Fleet;
use c3po_coordinator::store::sqlite::SqliteStore;
use c3po_coordinator::store::{
    Actor, Amendment, Claim, Ending, Key, Send, SendOutcome, Store, StoreError, Tenure,
};
use c3po_shared::limits::{CALLS_PER_KEY, KEYS_MAX};
use c3po_shared::receipt::{Progress, Stage, Via};
use c3po_shared::time::Timestamp;
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use harness::eventually::eventually;
use harness::skip::skipped;
use harness::small_disk::SmallDisk;
use tempfile::tempdir;

use super::fixture::{SOON, by, claim, everything, id, message, news, progress, send};
use super::keys::key;

/// The size of the disk in KiB; a quarter of it is its floor.
const DISK: u32 = 20_480;
/// The one-shot sessions that end together.
const SESSIONS: usize = 200;
/// The contexts in which receipts are sent: each one makes histories and the log longer.
const CONTEXTS: u64 = 12;

/// Starts the one-shot sessions.
async fn begin(store: &dyn Store) -> Result<Vec<Tenure>> {
    let mut sessions = Vec::new();
    for number in 0..SESSIONS {
        let name = format!("run-{number}");
        let wish = Claim {
            fleeting: true,
            one_shot: true,
            ..claim(&name)
        };
        sessions.push(store.claim(&wish).await?.context("a free name")?);
    }
    Ok(sessions)
}

/// Sends messages to every session in turn, until the disk is at its floor.
async fn fill(store: &dyn Store) -> Result<usize> {
    let text = "x".repeat(500);
    for round in 1..1_000 {
        let calls: Vec<Send> = (0..SESSIONS)
            .map(|number| send(news("a", &format!("run-{number}"), &text)))
            .collect();
        for outcome in join_all(calls.iter().map(|call| store.send(call))).await {
            match outcome {
                Ok(SendOutcome::Stored) => {}
                Err(StoreError::Full(_)) => return Ok(round),
                other => anyhow::bail!("{other:?}"),
            }
        }
    }
    anyhow::bail!("the disk has no floor")
}

/// Does what needs the room for control: a session of another host, an acknowledgement and a revocation.
async fn control(store: &dyn Store, round: u64) -> Result<()> {
    let b = store.claim(&claim(&format!("b-{round}"))).await?;
    b.context("a session of another host")?;
    let sent = store.inbox(&id("b"), everything()).await?;
    let first = sent.first().context("a message")?.message.id.clone();
    let settled = store
        .acknowledge(&id("b"), &Actor::default(), &[first])
        .await?;
    anyhow::ensure!(settled.acked.len() == 1, "{settled:?}");
    let one = key(&format!("{round:08}"));
    anyhow::ensure!(store.put_key(&one, None, KEYS_MAX, None).await?, "a key");
    let revoked = Key {
        revoked_at: Some(Timestamp::now()),
        revision: 2,
        ..one
    };
    anyhow::ensure!(
        store.put_key(&revoked, None, KEYS_MAX, None).await?,
        "its end"
    );
    Ok(())
}

/// A store at the floor of its disk, with the messages of one-shot sessions.
struct AtFloor {
    disk: SmallDisk,
    store: Arc<dyn Store>,
    sessions: Vec<Tenure>,
}

impl AtFloor {
    /// Returns `None` if mounting a small disk is not allowed.
    async fn start(work: &Path) -> Result<Option<Self>> {
        let Some(disk) = SmallDisk::mount(&work.join("store"), DISK)? else {
            return Ok(None);
        };
        let store = open(&disk).await?;
        store.keep_log(Some(100_000)).await?;
        for name in ["a", "b"] {
            store.claim(&claim(name)).await?;
        }
        for _ in 0..3 {
            store.send(&send(message("a", "b", "hello"))).await?;
        }
        let sessions = begin(&*store).await?;
        let rounds = fill(&*store).await?;
        assert!(rounds > 20, "{rounds}");
        Ok(Some(Self {
            disk,
            store,
            sessions,
        }))
    }

    /// Checks that there is room for control, also after a restart.
    async fn check(self) -> Result<()> {
        control(&*self.store, 2).await?;
        let fill = self.store.fill().await?.context("a local store")?;
        assert!(fill.free > fill.floor / 8, "{fill:?}");
        let log = fs::metadata(self.disk.path().join("c3po.db-wal"))?.len();
        assert!(log < fill.floor / 2, "{log} of {fill:?}");
        self.store.close().await;
        let store = open(&self.disk).await?;
        control(&*store, 3).await?;
        store.close().await;
        Ok(())
    }
}

async fn open(disk: &SmallDisk) -> Result<Arc<dyn Store>> {
    let path = disk.path().join("c3po.db");
    Ok(Arc::new(SqliteStore::open(&path, &Fleet::default()).await?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_end_together_leave_the_room_for_control() -> Result<()> {
    const NAME: &str = "floor::sessions_that_end_together_leave_the_room_for_control";
    let work = tempdir()?;
    let Some(full) = AtFloor::start(work.path()).await? else {
        return skipped(NAME, "mounting a small disk is not allowed");
    };
    let (store, sessions) = (&full.store, &full.sessions);
    // All at once, as no key may: an operation may be over late, but nothing is lost.
    let ends = sessions
        .iter()
        .map(|session| store.release(session, Ending::Goodbye));
    join_all(ends).await;
    control(&**store, 1).await?;
    let ending = stream::iter(sessions).map(async |session| {
        let over = async || store.release(session, Ending::Goodbye).await.ok();
        eventually("the session is over", SOON, over).await?;
        let left = store.agent(&session.agent).await?;
        anyhow::ensure!(left.is_none(), "{left:?}");
        Ok(())
    });
    let ended: Vec<Result<()>> = ending.buffer_unordered(CALLS_PER_KEY).collect().await;
    ended.into_iter().collect::<Result<()>>()?;
    full.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipts_without_end_leave_the_room_for_control() -> Result<()> {
    const NAME: &str = "floor::receipts_without_end_leave_the_room_for_control";
    let work = tempdir()?;
    let Some(full) = AtFloor::start(work.path()).await? else {
        return skipped(NAME, "mounting a small disk is not allowed");
    };
    let store = &full.store;
    let mut refused = false;
    for context in 1..CONTEXTS {
        let receipts = full.sessions.iter().map(async |session| {
            let inbox = store.inbox(&session.agent, everything()).await?;
            let ids: Vec<_> = inbox
                .iter()
                .map(|placed| placed.message.id.clone())
                .collect();
            let receipt = Progress {
                context,
                ..progress(&ids, Stage::InSession, Via::GetMessages)
            };
            store.advance(&session.agent, &by(session), &receipt).await
        });
        for outcome in stream::iter(receipts)
            .buffer_unordered(CALLS_PER_KEY)
            .collect::<Vec<_>>()
            .await
        {
            refused |= matches!(outcome, Err(StoreError::Full(_)));
        }
    }
    assert!(refused, "they end before the room does");
    let texts = Amendment {
        description: Some("long".into()),
        ..Amendment::default()
    };
    let amended = store.amend(&id("a"), None, &texts).await;
    assert!(matches!(amended, Err(StoreError::Full(_))), "{amended:?}");
    full.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_to_another_disk_leaves_the_room_for_control() -> Result<()> {
    const NAME: &str = "floor::a_backup_to_another_disk_leaves_the_room_for_control";
    let work = tempdir()?;
    let Some(full) = AtFloor::start(work.path()).await? else {
        return skipped(NAME, "mounting a small disk is not allowed");
    };
    let (folder, target) = (full.disk.path(), work.path().join("backup"));
    let refused = SqliteStore::back_up(&folder.join("c3po.db"), folder, &target);
    let refused = refused.expect_err("there is no room").to_string();
    anyhow::ensure!(refused.contains("make room first"), "{refused}");
    anyhow::ensure!(!target.exists(), "nothing is left of it");
    full.check().await
}
