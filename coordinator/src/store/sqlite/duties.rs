//! The rows of duties in SQLite. Their work is in [`endings`](super::endings).

use std::time::Duration;

use c3po_shared::time::Timestamp;
use rusqlite::{Row, named_params};
use uuid::Uuid;

use super::group::Work;
use super::rows::{integer, moment, stamp, time_until};
use crate::store::{CLAIMED_MAX, Claimed, Due, Duty, DutyKind, Result, StoreError};

/// Plans a duty. It writes nothing if the duty is already planned for an earlier time, as with most sends.
pub(super) fn plan(work: &Work<'_>, duty: &Duty, due: Timestamp) -> Result<()> {
    let sql = "INSERT INTO duties (kind, id, due) VALUES (?, ?, ?)
        ON CONFLICT (kind, id) DO UPDATE SET due = iif(claim IS NULL, excluded.due, due),
            again = iif(claim IS NULL, NULL, excluded.due)
        WHERE excluded.due < CASE WHEN claim IS NULL THEN due ELSE coalesce(again, excluded.due + 1) END";
    work.connection
        .prepare_cached(sql)?
        .execute((duty.kind.as_str(), &duty.id, stamp(due)))?;
    Ok(())
}

/// Makes a planned duty due now. A claimed one is due again when its claim ends.
pub(super) fn hasten(work: &Work<'_>, duty: &Duty) -> Result<()> {
    let row =
        named_params! { ":now": stamp(work.now), ":kind": duty.kind.as_str(), ":id": duty.id };
    let sql = "UPDATE duties SET due = iif(claim IS NULL, min(due, :now), due), again = iif(claim IS NULL, NULL, :now)
        WHERE kind = :kind AND id = :id";
    work.connection.prepare_cached(sql)?.execute(row)?;
    Ok(())
}

/// Claims at most `limit` duties that are due, for this time.
pub(super) fn claim_due(work: &mut Work<'_>, limit: usize, hold: Duration) -> Result<Due> {
    let claim = Uuid::new_v4();
    let now = stamp(work.now);
    let mut query = work.connection.prepare_cached(
        "SELECT kind, id, due, claim IS NOT NULL AS taken_over FROM duties WHERE coalesce(until, due) <= ?
            ORDER BY coalesce(until, due), kind, id LIMIT ?",
    )?;
    let limit = integer(limit.min(CLAIMED_MAX));
    let rows = query.query_map((now, limit), |row| Ok(claimed(row, claim, work.now)))?;
    let claimed: Vec<Claimed> = rows.map(|row| row?).collect::<Result<_>>()?;
    let sql = "UPDATE duties SET claim = ?, until = ? WHERE kind = ? AND id = ?";
    let mut update = work.connection.prepare_cached(sql)?;
    for Claimed { duty, .. } in &claimed {
        let until = stamp(work.now + hold);
        update.execute((claim.as_bytes(), until, duty.kind.as_str(), &duty.id))?;
    }
    let sql = "SELECT min(coalesce(until, due)) AS next FROM duties WHERE coalesce(until, due) > ?";
    let next: Option<i64> = work
        .connection
        .prepare_cached(sql)?
        .query_row([now], |row| row.get("next"))?;
    Ok(Due {
        claimed,
        next: next.map(|next| time_until(work.now, next)),
    })
}

fn claimed(row: &Row<'_>, claim: Uuid, now: Timestamp) -> Result<Claimed> {
    let kind: String = row.get("kind")?;
    let known = DutyKind::named(&kind);
    Ok(Claimed {
        duty: Duty {
            kind: known.ok_or_else(|| StoreError::Corrupt(format!("no kind of duty '{kind}'")))?,
            id: row.get("id")?,
        },
        claim,
        late: now.since(moment(row, "due")?),
        taken_over: row.get("taken_over")?,
    })
}

/// Ends the claim. The duty is due again at the earlier of the given time and that for which it was planned meanwhile; without
/// either it is deleted. Returns whether the claim was not over.
pub(super) fn end_claim(
    work: &Work<'_>,
    claimed: &Claimed,
    again: Option<Timestamp>,
) -> Result<bool> {
    let Claimed { duty, claim, .. } = claimed;
    let row = named_params! {
        ":kind": duty.kind.as_str(), ":id": duty.id, ":claim": claim.as_bytes(), ":again": again.map(stamp),
    };
    let sql = "UPDATE duties SET claim = NULL, until = NULL, again = NULL,
            due = min(coalesce(again, :again), coalesce(:again, again))
        WHERE kind = :kind AND id = :id AND claim = :claim AND coalesce(again, :again) IS NOT NULL";
    if work.connection.prepare_cached(sql)?.execute(row)? == 1 {
        return Ok(true);
    }
    let sql = "DELETE FROM duties WHERE kind = ? AND id = ? AND claim = ?";
    let row = (duty.kind.as_str(), &duty.id, claim.as_bytes());
    Ok(work.connection.prepare_cached(sql)?.execute(row)? == 1)
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::config::Fleet;
    use crate::store::sqlite::SqliteStore;
    use crate::store::sqlite::ladder::tests::{earlier_formats, make};
    use crate::store::{DutyStore, Store};

    #[tokio::test]
    async fn a_database_of_every_earlier_format_gets_its_duties() {
        // From format 17 on, a database has them already.
        for format in earlier_formats().filter(|format| *format < 17) {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("c3po.db");
            make(&path, format);
            let old = Connection::open(&path).expect("a database");
            // Without a session its name stays for good.
            old.execute("UPDATE agents SET host = 'nas', last_seen = 1", [])
                .expect("its host");
            if format >= 10 {
                old.execute("UPDATE agents SET slot = 1", [])
                    .expect("its slot");
            }
            drop(old);
            let store = SqliteStore::open(&path, &Fleet::default())
                .await
                .expect("it climbs");
            let due = store
                .claim_due(10, Duration::from_secs(60))
                .await
                .expect("claimed");
            let duties: Vec<_> = due
                .claimed
                .iter()
                .map(|claimed| claimed.duty.to_string())
                .collect();
            assert_eq!(duties, ["withdraw b"], "format {format}");
            store.finish(&due.claimed[0]).await.expect("finished");
            let next = store
                .claim_due(10, Duration::ZERO)
                .await
                .expect("claimed")
                .next;
            let end = Timestamp::from_millis(4_000_000_000_000).since(Timestamp::now());
            let apart = next.expect("its messages expire").abs_diff(end);
            assert!(
                apart < Duration::from_secs(60),
                "format {format}: {apart:?}"
            );
            store.close().await;
        }
    }
}
