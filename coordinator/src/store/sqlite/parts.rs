//! The tables, indexes and triggers of a database. It may contain only those that this program makes: SQLite runs a trigger
//! that somebody added with each write.

use std::fmt;

use rusqlite::{Connection, Row};

use super::ladder::{VERSION, made};

/// The definitions of the tables with SQLite's statistics about indexes. They change how it searches, and not what it finds.
const STATISTICS: [&str; 2] = [
    "CREATE TABLE sqlite_stat1(tbl,idx,stat)",
    "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)",
];
/// The hash of the parts of a database of the present format ([`hash`]): to make one for each start takes milliseconds.
const PRESENT: &str = "a657740f5664694a57b0675439d15db2c1d4a04b3648d70853811c129f2e8af6";
/// The most characters of a name that an error shows.
const SHOWN_MAX: usize = 60;

/// A table, an index, a trigger or a view.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    name: String,
    kind: String,
    table: String,
    /// Its definition in the form of [`plain`]; `None` for the index of a constraint.
    sql: Option<String>,
}

impl Part {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            name: row.get(1)?,
            kind: row.get(0)?,
            table: row.get(2)?,
            sql: row.get::<_, Option<String>>(3)?.as_deref().map(plain),
        })
    }

    fn is_statistics(&self) -> bool {
        let defined = self.sql.as_deref();
        self.kind == "table" && defined.is_some_and(|sql| STATISTICS.contains(&sql))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name: String = self.name.chars().take(SHOWN_MAX).collect();
        let kind = ["table", "index", "trigger", "view"];
        let kind = kind.into_iter().find(|kind| *kind == self.kind);
        write!(to, "the {} {name:?}", kind.unwrap_or("entry"))
    }
}

/// Returns the first difference between a database and one of that format that this program makes with the further statements
/// in `more`; `None` if there is none.
pub(super) fn difference(
    database: &Connection,
    format: u32,
    more: &str,
) -> rusqlite::Result<Option<String>> {
    let mut found = parts(database)?;
    found.retain(|part| !part.is_statistics());
    if format == VERSION && more.is_empty() && hash(&mut found) == PRESENT {
        return Ok(None);
    }
    let model = made(format)?;
    model.execute_batch(more)?;
    Ok(compared(&parts(&model)?, found))
}

/// Sorts the parts, and returns the hash of all their fields.
fn hash(parts: &mut [Part]) -> String {
    parts.sort();
    let fields: Vec<_> = parts
        .iter()
        .map(
            |Part {
                 name,
                 kind,
                 table,
                 sql,
             }| (name, kind, table, sql),
        )
        .collect();
    let fields = serde_json::json!(fields).to_string();
    blake3::hash(fields.as_bytes()).to_hex().to_string()
}

fn parts(database: &Connection) -> rusqlite::Result<Vec<Part>> {
    let mut query = database.prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema")?;
    let rows = query.query_map([], Part::of)?;
    rows.collect()
}

/// Returns the first difference. A part that is there twice counts as one that was added.
fn compared(expected: &[Part], mut found: Vec<Part>) -> Option<String> {
    let mut absent = Vec::new();
    for part in expected {
        match found.iter().position(|found| found == part) {
            Some(at) => drop(found.swap_remove(at)),
            None => absent.push(part),
        }
    }
    let Some(added) = found.iter().min() else {
        return absent
            .first()
            .map(|part| format!("it does not have {part}"));
    };
    let is_named = |part: &&Part| (&part.kind, &part.name) == (&added.kind, &added.name);
    Some(if absent.iter().any(is_named) {
        format!("{added} has another definition")
    } else {
        format!("it has {added}")
    })
}

/// Returns a definition without its comments and with one space between two words, as SQLite reads it. Earlier versions of this
/// program had other comments in the same definitions. A definition with a zero byte, at which SQLite ends, stays as it is.
fn plain(sql: &str) -> String {
    if sql.contains('\0') {
        return sql.to_owned();
    }
    let (mut plain, mut rest, mut is_apart) = (String::with_capacity(sql.len()), sql, false);
    while !rest.is_empty() {
        let gap = gap(rest);
        if gap == 0 {
            if is_apart && !plain.is_empty() {
                plain.push(' ');
            }
            plain.push_str(&rest[..word(rest)]);
        }
        rest = &rest[if gap == 0 { word(rest) } else { gap }..];
        is_apart = gap > 0;
    }
    plain
}

/// Returns the length of the blank or the comment at the start of a text; 0 if there is none.
fn gap(sql: &str) -> usize {
    match sql.as_bytes() {
        [b' ' | b'\t' | b'\n' | b'\x0c' | b'\r', ..] => 1,
        [b'-', b'-', ..] => sql.find('\n').unwrap_or(sql.len()),
        [b'/', b'*', ..] => end(sql, 2, "*/"),
        _ => 0,
    }
}

/// Returns the length of the quoted text at the start of a text, or else of its first character. A doubled quotation mark ends
/// a quoted text and begins the next.
fn word(sql: &str) -> usize {
    match sql.chars().next() {
        Some('[') => end(sql, 1, "]"),
        Some(mark @ ('\'' | '"' | '`')) => end(sql, 1, mark.encode_utf8(&mut [0; 4])),
        Some(other) => other.len_utf8(),
        None => 0,
    }
}

/// Returns where a mark ends that begins at `from` or later; the length of the text if there is none.
fn end(sql: &str, from: usize, mark: &str) -> usize {
    let found = sql[from..].find(mark);
    found.map_or(sql.len(), |at| from + at + mark.len())
}

#[cfg(test)]
mod tests {
    use super::super::SqliteStore;
    use super::super::ladder::tests::make;
    use super::*;
    use crate::config::Fleet;
    use crate::store::Store as _;

    #[test]
    fn a_definition_is_compared_without_its_comments_and_blanks() {
        let check = |sql: &str, expected: &str| assert_eq!(plain(sql), expected, "{sql:?}");
        check(
            "CREATE  TABLE a (\n    b\tTEXT\r\n)",
            "CREATE TABLE a ( b TEXT )",
        );
        check("a -- it's b\n, c", "a , c");
        check("a/* it's - */b /* the end", "a b");
        check("a - 1 / 2 * 3", "a - 1 / 2 * 3");
        check(
            "'--  a' \"/*  b\" `  c` [  d]",
            "'--  a' \"/*  b\" `  c` [  d]",
        );
        check("'it''s  -- a'  é  'é", "'it''s  -- a' é 'é");
        check("a\u{b}\u{a0}  b", "a\u{b}\u{a0} b");
        check("a --\0\nb", "a --\0\nb");
        check("  ", "");
        assert_ne!(plain("ab"), plain("a b"));
        assert_ne!(plain("'a  b'"), plain("'a b'"));
    }

    #[test]
    fn the_hash_is_that_of_the_present_format() -> rusqlite::Result<()> {
        assert_eq!(hash(&mut parts(&made(VERSION)?)?), PRESENT);
        Ok(())
    }

    #[test]
    fn only_what_this_program_makes_may_be_in_a_database() -> rusqlite::Result<()> {
        let check = |change: &str, expected: Option<&str>| -> rusqlite::Result<()> {
            let database = made(VERSION)?;
            database.execute_batch(change)?;
            let found = difference(&database, VERSION, "")?;
            assert_eq!(found.as_deref(), expected, "{change}");
            Ok(())
        };
        check("ANALYZE", None)?;
        check("INSERT INTO audit (entry) VALUES ('a')", None)?;
        check(
            "CREATE TRIGGER t AFTER INSERT ON audit BEGIN DELETE FROM keys; END",
            Some("it has the trigger \"t\""),
        )?;
        check("CREATE VIEW v AS SELECT 1", Some("it has the view \"v\""))?;
        check(
            "CREATE TABLE \"a\nb\" (c)",
            Some("it has the table \"a\\nb\""),
        )?;
        check(
            "CREATE INDEX more ON audit (entry)",
            Some("it has the index \"more\""),
        )?;
        check(
            "DROP TABLE logins",
            Some("it does not have the table \"logins\""),
        )?;
        check(
            "DROP TRIGGER reserve",
            Some("it does not have the trigger \"reserve\""),
        )?;
        check(
            "DROP TRIGGER dismiss; CREATE TRIGGER dismiss AFTER DELETE ON agents BEGIN DELETE FROM keys; END",
            Some("the trigger \"dismiss\" has another definition"),
        )?;
        check(
            "ALTER TABLE keys ADD COLUMN more TEXT DEFAULT 'a'",
            Some("the table \"keys\" has another definition"),
        )?;
        let named = "PRAGMA writable_schema = on; CREATE TRIGGER t AFTER INSERT ON audit BEGIN DELETE FROM keys; END;
            UPDATE sqlite_schema SET type = 'table', name = 'sqlite_stat1', tbl_name = 'sqlite_stat1' WHERE name = 't'";
        check(named, Some("it has the table \"sqlite_stat1\""))
    }

    #[test]
    fn a_database_of_each_format_has_the_parts_of_that_format_alone() -> rusqlite::Result<()> {
        for format in 0..=VERSION {
            assert_eq!(difference(&made(format)?, format, "")?, None, "{format}");
            let trigger = "CREATE TABLE IF NOT EXISTS agents (id TEXT);
                CREATE TRIGGER t AFTER INSERT ON agents BEGIN DELETE FROM agents; END";
            let changed = made(format)?;
            changed.execute_batch(trigger)?;
            assert!(difference(&changed, format, "")?.is_some(), "{format}");
        }
        let more = "CREATE TABLE more (a TEXT PRIMARY KEY -- b\n)";
        let database = made(VERSION)?;
        let missing = difference(&database, VERSION, more)?;
        assert_eq!(
            missing.as_deref(),
            Some("it does not have the table \"more\"")
        );
        database.execute_batch("CREATE TABLE more (a  TEXT PRIMARY KEY )")?;
        assert_eq!(difference(&database, VERSION, more)?, None);
        Ok(())
    }

    #[tokio::test]
    async fn a_database_to_which_others_added_a_trigger_is_refused_and_stays_as_it_is() {
        for format in [1, 6, 21, VERSION] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("c3po.db");
            make(&path, format);
            let trigger = "CREATE TRIGGER t AFTER INSERT ON agents BEGIN DELETE FROM messages; END";
            let file = Connection::open(&path).expect("a database");
            file.execute_batch(trigger).expect("added");
            let refused = SqliteStore::open(&path, &Fleet::default()).await;
            let refused = refused.expect_err("it is refused").to_string();
            let expected = "not as c3po makes it (it has the trigger \"t\")";
            assert!(
                refused.contains(expected) && refused.contains("restore a backup"),
                "{refused}"
            );
            let found = file.pragma_query_value(None, "user_version", |row| row.get(0));
            assert_eq!(found, Ok(format));
        }
    }

    #[tokio::test]
    async fn a_database_with_other_comments_in_its_definitions_opens() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c3po.db");
        make(&path, 6);
        let file = Connection::open(&path).expect("a database");
        let comment = "PRAGMA writable_schema = on;
            UPDATE sqlite_schema SET sql = replace(sql, '-- 1 until', '-- It is 1 until') WHERE name = 'messages'";
        file.execute_batch(comment).expect("commented");
        let changed = file.query_row(
            "SELECT count(*) FROM sqlite_schema WHERE sql LIKE '%It is 1%'",
            [],
            |row| row.get(0),
        );
        assert_eq!(changed, Ok(1));
        drop(file);
        for _ in 0..2 {
            let store = SqliteStore::open(&path, &Fleet::default()).await;
            store.expect("it opens").close().await;
        }
    }
}
