//! Bytes stored per key within the last day, in SQLite.

use c3po_shared::limits::QUOTA_HOURS;

use super::group::Work;
use crate::store::quota::{self, Exceeded, Quota};
use crate::store::{Result, StoreError};

/// Charges bytes to a quota.
///
/// Errors: the bytes exceed the quota.
pub(super) fn charge(work: &Work<'_>, quota: &Quota, bytes: u64) -> Result<()> {
    let Some(limit) = quota.bytes else {
        return Ok(());
    };
    let (hour, since) = (quota::hour(work.now), oldest(work));
    let sql = "SELECT coalesce(sum(bytes), 0) FROM quotas WHERE key = ? AND hour >= ?";
    let count = work
        .connection
        .prepare_cached(sql)?
        .query_row((&quota.key, since), |row| row.get::<_, i64>(0))?;
    let count = count.cast_unsigned();
    let excess = count.saturating_add(bytes).saturating_sub(limit);
    if excess > 0 {
        let sql = "SELECT hour, bytes FROM quotas WHERE key = ? AND hour >= ? ORDER BY hour";
        let mut query = work.connection.prepare_cached(sql)?;
        let hours = query.query_map((&quota.key, since), |row| {
            Ok((
                row.get::<_, i64>(0)?.cast_unsigned(),
                row.get::<_, i64>(1)?.cast_unsigned(),
            ))
        })?;
        let until = quota::freed_at(&hours.collect::<rusqlite::Result<Vec<_>>>()?, excess);
        return Err(StoreError::OverQuota(Exceeded {
            key: quota.key.clone(),
            count,
            limit,
            until,
        }));
    }
    let sql = "INSERT INTO quotas (key, hour, bytes) VALUES (?, ?, ?)
        ON CONFLICT (key, hour) DO UPDATE SET bytes = bytes + excluded.bytes";
    work.connection.prepare_cached(sql)?.execute((
        &quota.key,
        hour.cast_signed(),
        bytes.cast_signed(),
    ))?;
    Ok(())
}

/// Deletes hours that no longer count.
pub(super) fn sweep(work: &mut Work<'_>) -> Result<()> {
    work.connection
        .prepare_cached("DELETE FROM quotas WHERE hour < ?")?
        .execute([oldest(work)])?;
    Ok(())
}

/// Returns the first hour that counts.
fn oldest(work: &Work<'_>) -> i64 {
    (quota::hour(work.now) + 1)
        .saturating_sub(QUOTA_HOURS)
        .cast_signed()
}

#[cfg(test)]
mod tests {
    use c3po_shared::time::Timestamp;
    use rusqlite::Connection;

    use super::*;
    use crate::config::Fleet;
    use crate::store::Store;
    use crate::store::sqlite::SqliteStore;

    #[tokio::test]
    async fn a_day_goes_by_hour_by_hour() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c3po.db");
        let store = SqliteStore::open(&path, &Fleet::default())
            .await
            .expect("a store");
        let other = Connection::open(&path).expect("the same file");
        let hour = quota::hour(Timestamp::now());
        for (ago, bytes) in [(24, 1_000), (23, 30), (1, 60)] {
            let row = ("k1", (hour - ago).cast_signed(), bytes);
            other
                .execute("INSERT INTO quotas VALUES (?, ?, ?)", row)
                .expect("a row");
        }
        let quota = Quota {
            is_of_key: true,
            key: "k1".into(),
            bytes: Some(100),
            agents: None,
        };
        let charged = async |bytes: u64| {
            let quota = quota.clone();
            match store
                .writer
                .run(move |work| charge(work, &quota, bytes))
                .await
            {
                Err(StoreError::OverQuota(exceeded)) => {
                    Some((exceeded.count, quota::hour(exceeded.until) - hour))
                }
                other => other.map(|()| None).expect("no other refusal"),
            }
        };
        assert_eq!(
            charged(11).await,
            Some((90, 1)),
            "those of 23 hours ago count, those before do not"
        );
        assert_eq!(charged(10).await, None);
        assert_eq!(charged(31).await, Some((100, 23)));
        assert_eq!(charged(91).await, Some((100, 24)));
        store.sweep().await.expect("it sweeps");
        let rows: i64 = other
            .query_row("SELECT count(*) FROM quotas", [], |row| row.get(0))
            .expect("a number");
        assert_eq!(rows, 3);
        store.close().await;
    }
}
