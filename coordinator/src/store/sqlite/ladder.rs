//! The formats of the database, and the migrations between them.

use rusqlite::Connection;

/// "c3po": distinguishes our databases from those of other programs.
pub(super) const APPLICATION: u32 = 0x6333_706f;

/// The number of the latest schema. A database with a higher one was written by a newer program.
pub(super) const VERSION: u32 = 22;

/// The migrations: each one upgrades a database from the version of its index to the next. Only the comments of one that was in
/// use may change: a database with other definitions is refused.
const LADDER: [&str; VERSION as usize] = [
    include_str!("schema.sql"),
    include_str!("contexts.sql"),
    include_str!("links.sql"),
    include_str!("keys.sql"),
    include_str!("audit.sql"),
    include_str!("threads.sql"),
    include_str!("fleet.sql"),
    include_str!("guard.sql"),
    include_str!("one_shot.sql"),
    include_str!("owners.sql"),
    include_str!("kept.sql"),
    include_str!("quotas.sql"),
    include_str!("makers.sql"),
    include_str!("alike.sql"),
    include_str!("former.sql"),
    include_str!("former_case.sql"),
    include_str!("duties.sql"),
    include_str!("logins.sql"),
    include_str!("writes.sql"),
    include_str!("dismissed.sql"),
    include_str!("hosts.sql"),
    include_str!("since.sql"),
];

pub(super) fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Migrates the schema in one transaction. An empty file is migrated before the write-ahead log is on, so its header is
/// correct. A later migration may exist only in the log, which [`check_content`] reads.
pub(super) fn climb(connection: &Connection) -> rusqlite::Result<()> {
    let found = version(connection)?;
    if found == VERSION {
        return Ok(());
    }
    let steps = LADDER[found as usize..].concat();
    connection.execute_batch(&format!(
        "BEGIN IMMEDIATE; {steps} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT"
    ))
}

/// Returns a database in memory with the schema of that format, as this program makes it.
pub(super) fn made(format: u32) -> rusqlite::Result<Connection> {
    let database = Connection::open_in_memory()?;
    let steps: String = LADDER.into_iter().take(format as usize).collect();
    database.execute_batch(&steps)?;
    Ok(database)
}

#[cfg(test)]
pub(super) mod tests {
    use std::ops::Range;
    use std::path::Path;
    use std::time::Duration;

    use c3po_shared::ids::{AgentId, CallId, MessageId};
    use c3po_shared::message::Message;
    use c3po_shared::time::Timestamp;

    use super::*;
    use crate::config::Fleet;
    use crate::store::sqlite::SqliteStore;
    use crate::store::{Actor, DutyStore, Quota, Selection, Send, Store};

    /// Rows as the released program of format 1 left them: an agent in its first session with three kinds of messages.
    const RELEASED: &str = r#"
        INSERT INTO agents (id, uid, capabilities, state, reach, generation, instance, suffixed, held_until,
            registered_at, last_seen, open_count)
            VALUES ('b', zeroblob(16), '[]', 'ready', '["get_messages"]', 1, zeroblob(16), 0, 0, 1, 1, 3);
        WITH mail (number, shown, steps) AS (VALUES
            (1, 0, ''),
            (2, 0, ',{"stage":"in_session","at":"2026-01-15T10:30:00.000Z","via":"get_messages","session":"1"}'),
            (3, 1, ',{"stage":"in_session","at":"2026-01-15T10:30:00.000Z","via":"get_messages","session":"1"}'))
        INSERT INTO messages (id, thread_id, from_agent, to_agent, call, is_reply, wants_answer, timestamp, expires_at,
            shown, envelope, history)
            SELECT 'a::b::0000000' || number, 'a::b::0000000' || number, 'a', 'b', randomblob(16), 0, 1, 1,
                4000000000000, shown,
                '{"id":"a::b::0000000' || number || '","thread_id":"a::b::0000000' || number || '","kind":"message",
                  "from_agent":"a","to_agent":"b","message":"hello","priority":"normal","requires_response":true,
                  "timestamp":"2026-01-15T10:30:00.000Z","expires_at":"2096-10-02T07:06:40.000Z"}',
                '[{"stage":"stored","at":"2026-01-15T10:30:00.000Z"}' || steps || ']' FROM mail;
    "#;

    /// Returns the formats that this program can upgrade.
    pub(in crate::store::sqlite) fn earlier_formats() -> Range<u32> {
        1..VERSION
    }

    /// Makes a database of an earlier format with the rows of the released program.
    pub(in crate::store::sqlite) fn make(path: &Path, format: u32) {
        let steps = LADDER[1..format as usize].concat();
        let marks =
            format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {format};");
        let old = Connection::open(path).expect("a database");
        let script = format!(
            "{}; {RELEASED} {steps} {marks} PRAGMA journal_mode = wal",
            LADDER[0]
        );
        old.execute_batch(&script).expect("that format");
    }

    #[tokio::test]
    async fn a_database_of_the_released_format_climbs_with_everything_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c3po.db");
        let old = Connection::open(&path).expect("a database");
        let format = format!(
            "PRAGMA application_id = {APPLICATION}; PRAGMA user_version = 1; PRAGMA journal_mode = wal"
        );
        old.execute_batch(&format!("{}; {RELEASED} {format}", LADDER[0]))
            .expect("format 1");
        drop(old);

        let store = SqliteStore::open(&path, &Fleet::default())
            .await
            .expect("it climbs");
        let b: AgentId = "b".parse().expect("an id");
        let agent = store
            .agent(&b)
            .await
            .expect("readable")
            .expect("it is there");
        assert_eq!((agent.generation, agent.context), (1, 0));
        let everything = Selection {
            limit: 10,
            ..Selection::default()
        };
        let mail = store.inbox(&b, everything).await.expect("readable");
        let repeated: Vec<_> = mail.iter().map(|placed| placed.message.repeated).collect();
        assert_eq!(
            repeated,
            [false, true, false],
            "only what an older session had and the present one has not"
        );
        assert_eq!(
            store.unshown(&b, everything).await.expect("readable").len(),
            2
        );
        store.close().await;
        SqliteStore::open(&path, &Fleet::default())
            .await
            .expect("it has climbed")
            .close()
            .await;
    }

    #[tokio::test]
    async fn agents_of_every_format_before_get_the_host_that_had_them_last() {
        for format in 1..=9 {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("c3po.db");
            let old = Connection::open(&path).expect("a database");
            old.execute_batch(&LADDER[..format].concat())
                .expect("the schema");
            let mut add = old
                .prepare(
                    "INSERT INTO agents (id, uid, host, capabilities, state, reach, generation, instance, suffixed,
                        held_until, registered_at, last_seen)
                        VALUES (?, zeroblob(16), ?, '[]', 'ready', '[]', ?, zeroblob(16), ?, 0, 1, 1)",
                )
                .expect("an insert");
            for (id, host, generation, suffixed) in [
                ("ha", Some("laptop"), 3, false),
                ("ha-2", Some("nas"), 1, true),
                ("ha-3", Some("laptop"), 1, true),
                ("ha-10", Some("laptop"), 1, true),
                ("solo-2", Some("nas"), 1, false),
                ("human", Some("nas"), 0, false),
                ("cron", None, 0, false),
            ] {
                add.execute((id, host, generation, suffixed))
                    .expect("a row");
            }
            drop(add);
            old.pragma_update(None, "application_id", APPLICATION)
                .expect("ours");
            old.pragma_update(None, "user_version", format as u32)
                .expect("its format");
            drop(old);

            let store = SqliteStore::open(&path, &Fleet::default())
                .await
                .expect("it climbs");
            let found = store.agents(None, 10).await.expect("readable");
            let owners: Vec<_> = found
                .iter()
                .map(|agent| {
                    let owner = agent.owner.as_ref();
                    (
                        agent.id.as_str(),
                        owner.map(|owner| (owner.base.as_str(), owner.host.as_str(), owner.slot)),
                    )
                })
                .collect();
            assert_eq!(
                owners,
                [
                    ("cron", None),
                    ("ha", Some(("ha", "laptop", 1))),
                    ("ha-10", Some(("ha", "laptop", 3))),
                    ("ha-2", Some(("ha", "nas", 1))),
                    ("ha-3", Some(("ha", "laptop", 2))),
                    ("human", None),
                    ("solo-2", Some(("solo-2", "nas", 1))),
                ],
                "format {format}"
            );
            store.close().await;
        }
    }

    #[tokio::test]
    async fn messages_of_every_format_before_are_kept_as_long_as_they_were_or_as_new_ones_are() {
        const DAY: i64 = 24 * 60 * 60 * 1_000;
        for format in 1..=10 {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("c3po.db");
            make(&path, format);
            let old = Connection::open(&path).expect("a database");
            let changes = "UPDATE messages SET open = 0 WHERE position = 1;
                UPDATE messages SET wants_answer = 0 WHERE position = 2;
                UPDATE messages SET wants_answer = 0, is_reply = 1 WHERE position = 3";
            old.execute_batch(changes)
                .expect("one settled, a news and a reply");
            drop(old);
            SqliteStore::open(&path, &Fleet::default())
                .await
                .expect("it climbs")
                .close()
                .await;
            let new = Connection::open(&path).expect("a database");
            let mut query = new
                .prepare("SELECT kept_until FROM messages ORDER BY position")
                .expect("a query");
            let kept: Vec<i64> = query
                .query_map([], |row| row.get(0))
                .expect("rows")
                .map(|row| row.expect("a number"))
                .collect();
            let end = 4_000_000_000_000;
            assert_eq!(
                kept,
                [1 + 7 * DAY, end + DAY, end + 7 * DAY],
                "format {format}"
            );
        }
    }

    #[tokio::test]
    async fn long_messages_of_every_format_before_are_read_and_swept_beside_new_ones() {
        let long = "x".repeat(10_000);
        for format in earlier_formats().filter(|format| *format < 19) {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("c3po.db");
            make(&path, format);
            let file = Connection::open(&path).expect("a database");
            let lengthen =
                "UPDATE messages SET envelope = replace(envelope, 'hello', ?) WHERE position = 1";
            file.execute(lengthen, [&long]).expect("a long message");
            let store = SqliteStore::open(&path, &Fleet::default())
                .await
                .expect("it climbs");
            let (b, actor): (AgentId, _) = ("b".parse().expect("an id"), Actor::default());
            let everything = Selection {
                limit: 10,
                ..Selection::default()
            };
            let inbox = store.inbox(&b, everything).await.expect("readable");
            let new = Send {
                message: Message {
                    id: MessageId::new(&b, &b, 9),
                    ..inbox[0].message.clone()
                },
                call: CallId::fresh(),
                bound: 10,
                kept: Duration::ZERO,
                spares_away: false,
                one_shot: false,
                quota: Quota::default(),
                key: None,
                login: None,
                speaker: None,
            };
            store.send(&new).await.expect("stored");
            let inbox = store.inbox(&b, everything).await.expect("readable");
            let lengths: Vec<_> = inbox
                .iter()
                .map(|placed| placed.message.text().len())
                .collect();
            assert_eq!(lengths, [10_000, 5, 5, 10_000], "format {format}");
            let beside = || {
                let sql = "SELECT position FROM long_messages";
                let mut query = file.prepare(sql).expect("a query");
                let rows = query
                    .query_map([], |row| row.get(0).map(i64::cast_unsigned))
                    .expect("rows");
                rows.map(|row| row.expect("a position")).collect::<Vec<_>>()
            };
            assert_eq!(beside(), [inbox[3].position], "format {format}");
            let all: Vec<_> = inbox
                .iter()
                .map(|placed| placed.message.id.clone())
                .collect();
            store.acknowledge(&b, &actor, &all).await.expect("settled");
            file.execute("UPDATE messages SET kept_until = 0", [])
                .expect("they are old");
            store.sweep().await.expect("swept");
            assert!(beside().is_empty(), "format {format}");
            store.close().await;
        }
    }

    #[tokio::test]
    async fn a_host_keeps_a_name_for_30_days_and_no_longer() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c3po.db");
        let store = SqliteStore::open(&path, &Fleet::default())
            .await
            .expect("a store");
        let seen = Connection::open(&path).expect("the same database");
        let days_ago = |days: u64| Timestamp::now().millis() - days * 24 * 60 * 60 * 1_000;
        let add = "INSERT INTO agents (id, base, host, slot, uid, capabilities, state, reach, generation, instance,
                fleeting, held_until, registered_at, last_seen, open_count)
            VALUES (?1, ?1, 'nas', ?2, zeroblob(16), '[]', 'ready', '[]', 1, zeroblob(16), 0, ?3, 1, ?3, ?4)";
        for (id, slot, days, mail) in [
            ("gone", 1, 31, 0),
            ("late", 1, 29, 0),
            ("mail", 1, 31, 1),
            ("human", 0, 31, 0),
            ("held", 1, 31, 0),
        ] {
            let seen_at = i64::try_from(days_ago(days)).expect("a time");
            seen.execute(add, (id, slot, seen_at, mail)).expect("a row");
        }
        seen.execute(
            "UPDATE agents SET held_until = 4000000000000 WHERE id = 'held'",
            [],
        )
        .expect("held");
        for id in ["gone", "late", "mail", "human", "held"] {
            let id = id.parse().expect("an id");
            store.withdraw(&id).await.expect("it is checked");
        }
        let kept = store.agents(None, 10).await.expect("readable");
        let kept: Vec<_> = kept.iter().map(|agent| agent.id.as_str()).collect();
        assert_eq!(kept, ["held", "human", "late", "mail"]);
        store.close().await;
    }
}
