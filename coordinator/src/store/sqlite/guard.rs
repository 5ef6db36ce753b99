//! Rulings of the loop guard in SQLite.

use async_trait::async_trait;
use c3po_shared::audit::Entry;
use c3po_shared::limits::LOOP_WINDOW;
use c3po_shared::time::Timestamp;

use super::SqliteStore;
use super::group::Work;
use super::rows::{moment, parsed, stamp};
use crate::store::{GuardStore, Pair, Result, Ruling};

#[async_trait]
impl GuardStore for SqliteStore {
    async fn rulings(&self) -> Result<Vec<Ruling>> {
        self.reader.run(all).await
    }

    async fn rule(
        &self,
        pair: &Pair,
        is_stopped: bool,
        entry: Option<&Entry>,
    ) -> Result<Timestamp> {
        let pair = pair.to_string();
        self.logged(entry, |_| true, move |work| rule(work, &pair, is_stopped))
            .await
    }
}

fn all(work: &mut Work<'_>) -> Result<Vec<Ruling>> {
    let mut query = work
        .connection
        .prepare_cached("SELECT pair, stopped, at FROM guard")?;
    let rulings = query.query_map([], |row| {
        let is_stopped = row.get("stopped")?;
        Ok(parsed(row, "pair").and_then(|pair| {
            Ok(Ruling {
                pair,
                is_stopped,
                at: moment(row, "at")?,
            })
        }))
    })?;
    rulings.map(|ruling| ruling?).collect()
}

fn rule(work: &mut Work<'_>, pair: &str, is_stopped: bool) -> Result<Timestamp> {
    let window = u64::try_from(LOOP_WINDOW.as_millis()).unwrap_or(u64::MAX);
    let over = stamp(Timestamp::from_millis(
        work.now.millis().saturating_sub(window),
    ));
    work.connection
        .prepare_cached("DELETE FROM guard WHERE stopped = 0 AND at <= ?")?
        .execute([over])?;
    let sql = "INSERT INTO guard (pair, stopped, at) VALUES (?, ?, ?)
        ON CONFLICT (pair) DO UPDATE SET stopped = excluded.stopped, at = excluded.at";
    work.connection
        .prepare_cached(sql)?
        .execute((pair, is_stopped, stamp(work.now)))?;
    Ok(work.now)
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::config::Fleet;
    use crate::store::Store;

    #[tokio::test]
    async fn an_allowance_is_forgotten_when_every_count_is_younger() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c3po.db");
        let store = SqliteStore::open(&path, &Fleet::default())
            .await
            .expect("a store");
        let other = Connection::open(&path).expect("the same file");
        other
            .execute(
                "INSERT INTO guard VALUES ('a b', 0, 1000), ('a c', 1, 1000)",
                [],
            )
            .expect("rows");
        store
            .rule(&"a d".parse().expect("a pair"), false, None)
            .await
            .expect("it is kept");
        let rulings = store.rulings().await.expect("readable");
        assert_eq!(
            rulings
                .iter()
                .map(|ruling| ruling.pair.to_string())
                .collect::<Vec<_>>(),
            ["a c", "a d"]
        );
        store.close().await;
    }
}
