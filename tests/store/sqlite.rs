//! Every promise, kept by SQLite, and the failures that only a file can have.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use c3po_coordinator::config::Fleet;
use c3po_coordinator::store::sqlite::{OpenError, SqliteStore};
use c3po_coordinator::store::{
    Actor, AnswerOutcome, AuditStore, Quota, Send, SendOutcome, Store, StoreError,
};
use c3po_shared::audit::{Entry, Event};
use c3po_shared::limits::AUDIT_ENTRIES_LEAST;
use futures_util::future::BoxFuture;
use harness::eventually::eventually;
use tempfile::tempdir;

use super::Fixture;
use super::fixture::{SOON, claim, id, message, news, reply, send};

every_promise!(start);

async fn start() -> Result<Fixture> {
    let folder = tempdir()?;
    let path = folder.path().join("c3po.db");
    let open = move || -> BoxFuture<'static, Result<Arc<dyn Store>>> {
        let path = path.clone();
        Box::pin(async move {
            Ok(Arc::new(SqliteStore::open(&path, &Fleet::default()).await?) as Arc<dyn Store>)
        })
    };
    Fixture::new(folder, Box::new(open)).await
}

/// Opens a file that must be refused, and returns the error. The file must not change by a single byte.
async fn refused(path: &Path) -> OpenError {
    let before = fs::read(path).ok();
    let error = SqliteStore::open(path, &Fleet::default())
        .await
        .expect_err("it must be refused");
    assert_eq!(fs::read(path).ok(), before);
    error
}

/// Creates a database with an agent and a message.
async fn make(path: &Path) -> Result<()> {
    let store = SqliteStore::open(path, &Fleet::default()).await?;
    store.introduce(&id("b"), None, &Quota::default()).await?;
    store.send(&send(message("a", "b", "hello"))).await?;
    store.close().await;
    Ok(())
}

#[tokio::test]
async fn a_store_of_its_size_refuses_messages_and_lets_everything_else_go_on() -> Result<()> {
    const MAX: u64 = 600_000;
    let folder = tempdir()?;
    let path = folder.path().join("c3po.db");
    let store = SqliteStore::open_within(&path, &Fleet::default(), Some(MAX)).await?;
    for name in ["a", "b"] {
        store.claim(&claim(name)).await?;
    }
    let question = message("a", "b", "question");
    store.send(&send(question.clone())).await?;
    let long = || Send {
        kept: Duration::ZERO,
        ..send(news("a", "b", &"x".repeat(20_000)))
    };
    let mut stored = Vec::new();
    let refused = loop {
        let next = long();
        match store.send(&next).await {
            Ok(SendOutcome::Stored) => stored.push(next),
            Err(StoreError::Full(why)) => break why,
            other => anyhow::bail!("{other:?}"),
        }
        anyhow::ensure!(stored.len() < 100, "there is no end");
    };
    assert!(
        refused.contains("--store-max") && stored.len() > 10,
        "{refused} after {}",
        stored.len()
    );
    let fill = store
        .fill()
        .await?
        .unwrap_or_else(|| panic!("it is a file"));
    assert!(
        (MAX..MAX + 100_000).contains(&fill.bytes) && fill.max == Some(MAX),
        "{fill:?}"
    );
    assert!(
        matches!(store.send(&stored[0]).await?, SendOutcome::Repeated(_)),
        "what was stored is said to be"
    );

    let outcome = store
        .answer(&send(reply(&question, "all the same")))
        .await?;
    assert_eq!(outcome, AnswerOutcome::Sent(SendOutcome::Stored));
    store.claim(&claim("c")).await?;
    let ids: Vec<_> = stored.iter().map(|send| send.message.id.clone()).collect();
    let (b, actor) = (id("b"), Actor::default());
    let settled = store.acknowledge(&b, &actor, &ids).await?;
    assert_eq!(settled.acked.len(), ids.len());
    let sent = async || {
        store.sweep().await.ok()?;
        (store.send(&long()).await.ok()? == SendOutcome::Stored).then_some(())
    };
    eventually("what was deleted makes room", SOON, sent).await?;
    store.close().await;
    Ok(())
}

#[tokio::test]
async fn a_log_that_fills_a_store_leaves_room_for_messages() -> Result<()> {
    const MAX: u64 = 1_500_000;
    const PLENTY: u64 = 100_000;
    let folder = tempdir()?;
    let path = folder.path().join("c3po.db");
    let store = SqliteStore::open_within(&path, &Fleet::default(), Some(MAX)).await?;
    store.claim(&claim("b")).await?;
    store.keep_log(Some(PLENTY)).await?;
    let entries = vec![Entry::new(Event::Accepted).by(&id("a")); 500];
    for _ in 0..100 {
        store.note(&entries).await?;
        let sent = store.send(&send(message("a", "b", "hello"))).await?;
        assert_eq!(sent, SendOutcome::Stored);
    }
    let kept = store.audit_end().await? - store.audit(0, 1).await?[0].position;
    assert!(
        (AUDIT_ENTRIES_LEAST - 1..30_000).contains(&kept),
        "{kept} entries are kept"
    );
    store.close().await;
    Ok(())
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() -> Result<()> {
    let folder = tempdir()?;
    let path = folder.path().join("c3po.db");
    for content in [b"x".to_vec(), b"shopping list\n".repeat(100), vec![0; 8192]] {
        fs::write(&path, content)?;
        assert!(matches!(refused(&path).await, OpenError::Unreadable { .. }));
    }
    assert_eq!(
        fs::read_dir(folder.path())?.count(),
        1,
        "nothing was put beside it"
    );
    Ok(())
}

#[tokio::test]
async fn a_damaged_database_is_refused() -> Result<()> {
    let folder = tempdir()?;
    let path = folder.path().join("c3po.db");
    make(&path).await?;
    let whole = fs::read(&path)?;
    fs::write(&path, &whole[..whole.len() / 2])?;
    assert!(matches!(refused(&path).await, OpenError::Unreadable { .. }));

    let mut scrambled = whole.clone();
    scrambled[4096..].fill(0x5a);
    fs::write(&path, scrambled)?;
    assert!(matches!(refused(&path).await, OpenError::Unreadable { .. }));

    fs::write(&path, whole)?;
    SqliteStore::open(&path, &Fleet::default()).await?;
    Ok(())
}

#[tokio::test]
async fn a_database_holds_one_fleet() -> Result<()> {
    let folder = tempdir()?;
    let path = folder.path().join("c3po.db");
    SqliteStore::open(&path, &"home-2".parse()?)
        .await?
        .close()
        .await;
    let error = refused(&path).await;
    assert!(
        matches!(error, OpenError::OtherFleet { .. })
            && error.to_string().contains("C3PO_FLEET=home-2"),
        "{error}"
    );
    SqliteStore::open(&path, &"home-2".parse()?)
        .await?
        .close()
        .await;
    Ok(())
}

#[tokio::test]
async fn a_newer_or_foreign_database_is_refused() -> Result<()> {
    let folder = tempdir()?;
    let path = folder.path().join("c3po.db");
    make(&path).await?;
    let whole = fs::read(&path)?;

    // The offsets in SQLite's header: the user version at 60, the application id at 68.
    let mut newer = whole.clone();
    newer[60..64].copy_from_slice(&99_u32.to_be_bytes());
    fs::write(&path, newer)?;
    let error = refused(&path).await;
    assert!(
        matches!(error, OpenError::Newer { found: 99, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("update c3po-coordinator"));

    let mut foreign = whole;
    foreign[68..72].copy_from_slice(b"them");
    fs::write(&path, foreign)?;
    let error = refused(&path).await;
    assert!(
        error.to_string().contains("belongs to another program"),
        "{error}"
    );
    Ok(())
}

#[tokio::test]
async fn a_path_that_cannot_be_a_file_is_refused() -> Result<()> {
    let folder = tempdir()?;
    let file = folder.path().join("file");
    fs::write(&file, "x")?;
    let below_a_file = refused(&file.join("c3po.db")).await;
    assert!(
        matches!(below_a_file, OpenError::NotWritable { .. }),
        "{below_a_file}"
    );

    let directory = folder.path().join("c3po.db");
    fs::create_dir(&directory)?;
    let error = refused(&directory).await;
    assert!(error.to_string().contains("c3po.db"), "{error}");
    assert!(directory.is_dir() && fs::read_dir(&directory)?.next().is_none());
    Ok(())
}

#[tokio::test]
async fn a_second_coordinator_is_refused_until_the_first_has_closed() -> Result<()> {
    let folder = tempdir()?;
    let path = folder.path().join("c3po.db");
    let first = SqliteStore::open(&path, &Fleet::default()).await?;
    assert!(matches!(refused(&path).await, OpenError::InUse { .. }));
    let other_name = folder.path().join("link.db");
    std::os::unix::fs::symlink(&path, &other_name)?;
    assert!(
        matches!(refused(&other_name).await, OpenError::InUse { .. }),
        "by another name it is the same file"
    );
    first.introduce(&id("b"), None, &Quota::default()).await?;
    first.close().await;
    let second = SqliteStore::open(&path, &Fleet::default()).await?;
    assert!(second.agent(&id("b")).await?.is_some());
    drop(second);
    SqliteStore::open(&path, &Fleet::default()).await?;
    Ok(())
}

#[tokio::test]
async fn a_database_that_was_deleted_takes_nothing_more_and_reads_on() -> Result<()> {
    let folder = tempdir()?;
    let (path, aside) = (folder.path().join("c3po.db"), folder.path().join("aside"));
    make(&path).await?;
    let store = SqliteStore::open(&path, &Fleet::default()).await?;
    fs::rename(&path, &aside)?;
    let refused = store
        .send(&send(message("a", "b", "into nothing")))
        .await
        .expect_err("the file is gone");
    assert!(
        matches!(&refused, StoreError::Unavailable(why) if why.contains("c3po.db was deleted")),
        "{refused}"
    );
    fs::write(&path, b"")?;
    assert!(
        store
            .send(&send(message("a", "b", "into another file")))
            .await
            .is_err()
    );
    assert_eq!(store.pending(&id("b")).await?.count, 1);
    fs::rename(&aside, &path)?;
    store.send(&send(message("a", "b", "it is back"))).await?;
    assert_eq!(store.pending(&id("b")).await?.count, 2);
    Ok(())
}

#[tokio::test]
async fn missing_folders_and_the_file_are_made_for_their_owner_alone() -> Result<()> {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempdir()?;
    let path = folder.path().join("share/c3po/c3po.db");
    let store = SqliteStore::open(&path, &Fleet::default()).await?;
    let mode =
        |path: &Path| -> Result<u32> { Ok(fs::metadata(path)?.permissions().mode() & 0o777) };
    assert_eq!(mode(&folder.path().join("share/c3po"))?, 0o700);
    store.introduce(&id("b"), None, &Quota::default()).await?;
    for file in fs::read_dir(folder.path().join("share/c3po"))? {
        assert_eq!(mode(&file?.path())?, 0o600);
    }
    Ok(())
}
