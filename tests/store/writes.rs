//! The pages that common changes write with SQLite. Each page costs the disk, and each index is one more.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use c3po_coordinator::config::Fleet;
use c3po_coordinator::store::sqlite::SqliteStore;
use c3po_coordinator::store::{AuditStore, Store};
use c3po_shared::receipt::{Stage, Via};
use tempfile::tempdir;

use super::fixture::{by, claim, id, message, news, progress, send};

/// The size of a page in the write-ahead log, with its header.
const FRAME: u64 = 4_096 + 24;
/// How often a change is repeated, because a page is split now and then.
const REPEATED: u64 = 20;

/// Returns how many pages one change writes on average, rounded down. The first changes are not counted.
async fn pages(path: &Path, mut change: impl AsyncFnMut() -> Result<()>) -> Result<u64> {
    let log = path.with_extension("db-wal");
    change().await?;
    let before = fs::metadata(&log)?.len();
    for _ in 0..REPEATED {
        change().await?;
    }
    Ok((fs::metadata(&log)?.len() - before) / FRAME / REPEATED)
}

#[tokio::test]
async fn a_send_with_its_log_entry_writes_few_pages() -> Result<()> {
    let folder = tempdir()?;
    let path = folder.path().join("c3po.db");
    let store = SqliteStore::open(&path, &Fleet::default()).await?;
    store.keep_log(Some(1_000)).await?;
    for name in ["a", "b"] {
        store.claim(&claim(name)).await?;
    }
    let written = pages(&path, async || {
        store.send(&send(news("a", "b", "hello"))).await?;
        Ok(())
    });
    // The message, its id, its call, the inbox, the agent, the log, and the positions of messages and log.
    assert_eq!(written.await?, 7);
    store.close().await;
    Ok(())
}

#[tokio::test]
async fn a_claim_by_the_same_process_writes_one_page() -> Result<()> {
    let folder = tempdir()?;
    let path = folder.path().join("c3po.db");
    let store = SqliteStore::open(&path, &Fleet::default()).await?;
    let claim = claim("a");
    let written = pages(&path, async || {
        store.claim(&claim).await?;
        Ok(())
    });
    assert_eq!(written.await?, 1);
    store.close().await;
    Ok(())
}

#[tokio::test]
async fn a_receipt_of_a_long_message_writes_as_little_as_of_a_short_one() -> Result<()> {
    let folder = tempdir()?;
    let path = folder.path().join("c3po.db");
    let store = SqliteStore::open(&path, &Fleet::default()).await?;
    store.claim(&claim("a")).await?;
    let tenure = store.claim(&claim("b")).await?.context("a free name")?;
    for length in [10, 5_000, 200_000] {
        let text = "x".repeat(length);
        let mut sent = Vec::new();
        for _ in 0..=REPEATED {
            let message = message("a", "b", &text);
            sent.push(message.id.clone());
            store.send(&send(message)).await?;
        }
        for (stage, via) in [
            (Stage::OnHost, Via::Deliver),
            (Stage::InSession, Via::Hook),
            (Stage::Seen, Via::ToolCall),
        ] {
            let mut next = sent.iter();
            let written = pages(&path, async || {
                let ids: Vec<_> = next.next().cloned().into_iter().collect();
                let receipt = progress(&ids, stage, via);
                let recorded = store.advance(&id("b"), &by(&tenure), &receipt).await?;
                ensure!(recorded.len() == 1, "{stage:?} was not recorded");
                Ok(())
            });
            let written = written.await?;
            assert!(written <= 2, "{stage:?} of {length} bytes: {written}");
        }
    }
    store.close().await;
    Ok(())
}
