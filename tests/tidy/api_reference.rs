//! docs/API.md matches the code: tools with their arguments, older names, error codes, limits, receipt stages.

use std::time::Duration;

use anyhow::{Context, Result};
use c3po_shared::catalogue::{Tool, listing};
use c3po_shared::limits;
use c3po_shared::receipt::{Stage, Via};
use c3po_shared::refusal::ErrorCode;
use harness::project::root;
use serde_json::{Map, Value};

/// A row of a table: its cells, without surrounding spaces.
type Row = Vec<String>;

fn file(path: &str) -> Result<String> {
    std::fs::read_to_string(root().join(path)).with_context(|| path.to_owned())
}

/// Returns the text below a heading, up to the next heading of the same or a higher level.
fn section<'a>(text: &'a str, heading: &str) -> Option<&'a str> {
    let rank = heading.chars().take_while(|c| *c == '#').count();
    let start = text.find(&format!("\n{heading}\n"))? + heading.len() + 2;
    let is_end = |line: &str| {
        let own = line.chars().take_while(|c| *c == '#').count();
        (1..=rank).contains(&own) && line[own..].starts_with(' ')
    };
    let mut end = start;
    for line in text[start..].split_inclusive('\n') {
        if is_end(line) {
            break;
        }
        end += line.len();
    }
    Some(&text[start..end])
}

/// Returns the rows of the first table in a section, without the header.
fn table(section: &str) -> Vec<Row> {
    let rows = section
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'));
    rows.skip(2)
        .map(|line| {
            line.trim_matches('|')
                .split('|')
                .map(|cell| cell.trim().to_owned())
                .collect()
        })
        .collect()
}

/// Returns the changes that would make the first cells of a table's rows match the expected ones.
fn changes(place: &str, found: &[Row], expected: &[Row]) -> Vec<String> {
    let width = expected.first().map_or(0, Vec::len);
    let found: Vec<Row> = found
        .iter()
        .map(|row| row.iter().take(width).cloned().collect())
        .collect();
    let shown = |row: &Row| format!("| {} | …", row.join(" | "));
    let missing = expected.iter().filter(|row| !found.contains(row));
    let foreign = found.iter().filter(|row| !expected.contains(row));
    let mut changes: Vec<String> = foreign
        .map(|row| format!("{place}: take out  {}", shown(row)))
        .collect();
    changes.extend(missing.map(|row| format!("{place}: write     {}", shown(row))));
    if changes.is_empty() && found != expected {
        let order: Vec<_> = expected.iter().map(|row| row[0].as_str()).collect();
        changes.push(format!(
            "{place}: each row once, in this order: {}",
            order.join(", ")
        ));
    }
    changes
}

/// Compares tables with the code, and reports all differences together with the correct text.
fn check(tables: impl IntoIterator<Item = (String, Vec<Row>)>) -> Result<()> {
    let text = file("docs/API.md")?;
    let mut wrong = Vec::new();
    for (heading, expected) in tables {
        match section(&text, &heading) {
            Some(section) => wrong.extend(changes(&heading, &table(section), &expected)),
            None => wrong.push(format!("{heading}: the section is missing")),
        }
    }
    assert!(
        wrong.is_empty(),
        "\ndocs/API.md differs from the code:\n{}\n",
        wrong.join("\n")
    );
    Ok(())
}

fn row<const N: usize>(cells: [&str; N]) -> Row {
    cells.map(str::to_owned).to_vec()
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

/// Returns the type of an argument in the notation of the reference.
fn type_of(schema: &Value) -> String {
    match (schema["type"].as_str(), schema["enum"].as_array()) {
        (_, Some(words)) => words
            .iter()
            .filter_map(Value::as_str)
            .map(code)
            .collect::<Vec<_>>()
            .join(" "),
        (Some("array"), None) => format!("{}[]", type_of(&schema["items"])),
        (Some(name), None) => name.to_owned(),
        (None, None) => format!("unknown: {schema}"),
    }
}

fn arguments(schema: &Map<String, Value>) -> Vec<Row> {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map_or_else(Vec::new, |names| {
            names.iter().filter_map(Value::as_str).collect()
        });
    let properties = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    properties
        .map(|(name, schema)| {
            let needed = if required.contains(&name.as_str()) {
                "yes"
            } else {
                "no"
            };
            row([&code(name), &type_of(schema), needed])
        })
        .collect()
}

#[test]
fn every_tool_stands_there_with_its_arguments() -> Result<()> {
    check(
        listing()
            .iter()
            .map(|one| (format!("### `{}`", one.tool.name()), arguments(&one.schema))),
    )
}

#[test]
fn no_other_tool_stands_there() -> Result<()> {
    let text = file("docs/API.md")?;
    let tools = section(&text, "## Tools").context("the section Tools is missing")?;
    let headings: Vec<_> = tools
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .collect();
    let names: Vec<_> = listing().iter().map(|one| code(one.tool.name())).collect();
    assert_eq!(
        headings, names,
        "docs/API.md: the headings below Tools, in the order of tools/list"
    );
    Ok(())
}

#[test]
fn older_names_have_their_documented_meanings() -> Result<()> {
    let text = file("docs/API.md")?;
    let rows =
        table(section(&text, "## Older names").context("the section Older names is missing")?);
    assert_eq!(rows.len(), 5, "docs/API.md: the older names");
    for row in rows {
        let [older, means] = [0, 1].map(|cell| row[cell].trim_matches('`').to_owned());
        let (found, expected) = (Tool::named(&older), Tool::named(&means));
        assert!(
            found.is_some() && found == expected,
            "docs/API.md: {older} does not mean {means}"
        );
    }
    Ok(())
}

#[test]
fn every_error_code_stands_there_with_its_numbers_and_its_suggestion() -> Result<()> {
    let expected = ErrorCode::ALL.iter().map(|one| {
        row([
            &code(one.as_str()),
            &one.json_rpc().to_string(),
            &one.http_status().to_string(),
            one.suggestion(),
        ])
    });
    check([("## Errors".to_owned(), expected.collect())])
}

#[test]
fn every_stage_of_a_receipt_stands_there_and_every_evidence() -> Result<()> {
    let expected = Stage::ALL
        .iter()
        .map(|stage| row([&code(stage.as_str())]))
        .collect();
    check([("## Receipts".to_owned(), expected)])?;
    let text = file("docs/API.md")?;
    let receipts = section(&text, "## Receipts").unwrap_or_default();
    for via in Via::ALL {
        assert!(
            receipts.contains(&code(via.as_str())),
            "docs/API.md, Receipts: the evidence {via} is missing"
        );
    }
    Ok(())
}

/// Formats the value of a limit of time.
fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

/// Returns the limits of messages, agents and links, in the order of their file.
fn limits_of_messages() -> Vec<(&'static str, String)> {
    vec![
        ("TEXT_MAX", limits::TEXT_MAX.to_string()),
        ("TITLE_MAX", limits::TITLE_MAX.to_string()),
        ("LABEL_MAX", limits::LABEL_MAX.to_string()),
        ("CONTEXT_MAX", limits::CONTEXT_MAX.to_string()),
        ("CAPABILITIES_MAX", limits::CAPABILITIES_MAX.to_string()),
        (
            "CAPABILITIES_TEXT_MAX",
            limits::CAPABILITIES_TEXT_MAX.to_string(),
        ),
        ("FRAME_MAX", limits::FRAME_MAX.to_string()),
        ("HELLO_MAX", limits::HELLO_MAX.to_string()),
        ("UNFINISHED_MAX", limits::UNFINISHED_MAX.to_string()),
        ("UNFINISHED_PER_KEY", limits::UNFINISHED_PER_KEY.to_string()),
        (
            "LONG_INPUT_PER_SECOND",
            limits::LONG_INPUT_PER_SECOND.to_string(),
        ),
        ("INBOX_MAX", limits::INBOX_MAX.to_string()),
        ("MESSAGE_LIFE", seconds(limits::MESSAGE_LIFE)),
        ("MESSAGE_LIFE_MIN", seconds(limits::MESSAGE_LIFE_MIN)),
        ("MESSAGE_LIFE_MAX", seconds(limits::MESSAGE_LIFE_MAX)),
        ("ARCHIVE_LIFE", seconds(limits::ARCHIVE_LIFE)),
        ("NEWS_LIFE", seconds(limits::NEWS_LIFE)),
        ("SENDS_PER_MINUTE", limits::SENDS_PER_MINUTE.to_string()),
        ("LOOP_MESSAGES", limits::LOOP_MESSAGES.to_string()),
        ("LOOP_WINDOW", seconds(limits::LOOP_WINDOW)),
        ("NAME_LIFE", seconds(limits::NAME_LIFE)),
        ("SUCCEEDS_MAX", limits::SUCCEEDS_MAX.to_string()),
        ("WAIT_MAX", limits::WAIT_MAX.to_string()),
        ("WAIT_DEFAULT", limits::WAIT_DEFAULT.to_string()),
        ("ASK_MAX", limits::ASK_MAX.to_string()),
        ("ASK_DEFAULT", limits::ASK_DEFAULT.to_string()),
        ("PAGE_DEFAULT", limits::PAGE_DEFAULT.to_string()),
        ("PAGE_MAX", limits::PAGE_MAX.to_string()),
        ("PAGE_BYTES", limits::PAGE_BYTES.to_string()),
        ("SHORT_REPLY_BYTES", limits::SHORT_REPLY_BYTES.to_string()),
        ("IDS_MAX", limits::IDS_MAX.to_string()),
        ("HEARTBEAT", seconds(limits::HEARTBEAT)),
        ("SILENCE_MAX", seconds(limits::SILENCE_MAX)),
        ("CLOCK_SKEW", seconds(limits::CLOCK_SKEW)),
        ("HTTP_PRESENCE", seconds(limits::HTTP_PRESENCE)),
        ("CALLS_IN_FLIGHT", limits::CALLS_IN_FLIGHT.to_string()),
    ]
}

/// Returns the limits of questions to people and of pushes.
fn limits_of_people() -> Vec<(&'static str, String)> {
    vec![
        ("PARTS_MAX", limits::PARTS_MAX.to_string()),
        ("OPTIONS_MAX", limits::OPTIONS_MAX.to_string()),
        ("OPTION_LABEL_MAX", limits::OPTION_LABEL_MAX.to_string()),
        ("REQUEST_MAX", limits::REQUEST_MAX.to_string()),
        ("QUESTIONS_MAX", limits::QUESTIONS_MAX.to_string()),
        (
            "QUESTIONS_PER_AGENT",
            limits::QUESTIONS_PER_AGENT.to_string(),
        ),
        ("QUESTIONS_PER_HOST", limits::QUESTIONS_PER_HOST.to_string()),
        ("NOTICES_MAX", limits::NOTICES_MAX.to_string()),
        ("NOTICES_PER_HOST", limits::NOTICES_PER_HOST.to_string()),
        ("SAVED_NAME_MAX", limits::SAVED_NAME_MAX.to_string()),
        ("PUSH_GRACE", seconds(limits::PUSH_GRACE)),
        ("PUSH_GRACE_MAX", seconds(limits::PUSH_GRACE_MAX)),
        ("PAGE_USED_WITHIN", seconds(limits::PAGE_USED_WITHIN)),
        ("PUSH_BYTES_MAX", limits::PUSH_BYTES_MAX.to_string()),
        ("PUSHES_MAX", limits::PUSHES_MAX.to_string()),
        ("PUSHES_PER_HOST", limits::PUSHES_PER_HOST.to_string()),
        ("PUSHES_WITHIN", seconds(limits::PUSHES_WITHIN)),
        ("WRONG_REPLIES_MAX", limits::WRONG_REPLIES_MAX.to_string()),
        ("NOTIFY_PEOPLE_MAX", limits::NOTIFY_PEOPLE_MAX.to_string()),
        ("NOTIFY_BYTES_MAX", limits::NOTIFY_BYTES_MAX.to_string()),
        ("TRIAGE_WITHIN", seconds(limits::TRIAGE_WITHIN)),
        ("TRIAGE_CLAIM", seconds(limits::TRIAGE_CLAIM)),
        ("CORRECTED_WITHIN", seconds(limits::CORRECTED_WITHIN)),
        ("TRIAGE_AGENTS_MAX", limits::TRIAGE_AGENTS_MAX.to_string()),
        ("TRIAGE_WORDS_MAX", limits::TRIAGE_WORDS_MAX.to_string()),
    ]
}

/// Returns the limits of invites, keys and logins.
fn limits_of_access() -> Vec<(&'static str, String)> {
    vec![
        ("INVITE_LIFE", seconds(limits::INVITE_LIFE)),
        ("INVITE_LIFE_MAX", seconds(limits::INVITE_LIFE_MAX)),
        ("INVITE_USES_MAX", limits::INVITE_USES_MAX.to_string()),
        ("INVITES_MAX", limits::INVITES_MAX.to_string()),
        ("STORE_QUOTA", limits::STORE_QUOTA.to_string()),
        ("QUOTA_HOURS", limits::QUOTA_HOURS.to_string()),
        ("AGENTS_PER_KEY", limits::AGENTS_PER_KEY.to_string()),
        ("AGENTS_WITHOUT_KEY", limits::AGENTS_WITHOUT_KEY.to_string()),
        ("KEYS_MAX", limits::KEYS_MAX.to_string()),
        ("KEY_LIFE_MAX", seconds(limits::KEY_LIFE_MAX)),
        ("GLOBS_MAX", limits::GLOBS_MAX.to_string()),
        (
            "WRONG_CODES_PER_MINUTE",
            limits::WRONG_CODES_PER_MINUTE.to_string(),
        ),
        ("LOGIN_LIFE", seconds(limits::LOGIN_LIFE)),
        (
            "LOGIN_EXTENDED_EVERY",
            seconds(limits::LOGIN_EXTENDED_EVERY),
        ),
        ("LOGIN_CODE_LIFE", seconds(limits::LOGIN_CODE_LIFE)),
        ("LOGINS_MAX", limits::LOGINS_MAX.to_string()),
        ("LOGIN_CODES_MAX", limits::LOGIN_CODES_MAX.to_string()),
        ("AT_ONCE_PER_KEY", limits::AT_ONCE_PER_KEY.to_string()),
        ("CALLS_PER_KEY", limits::CALLS_PER_KEY.to_string()),
        ("CALLS_WITHOUT_KEY", limits::CALLS_WITHOUT_KEY.to_string()),
        ("CALLS_PER_SECOND", limits::CALLS_PER_SECOND.to_string()),
        ("READS_PER_KEY", limits::READS_PER_KEY.to_string()),
        ("READS_WITHOUT_KEY", limits::READS_WITHOUT_KEY.to_string()),
        ("LOG_PAGES_PER_KEY", limits::LOG_PAGES_PER_KEY.to_string()),
        (
            "LOG_PAGES_WITHOUT_KEY",
            limits::LOG_PAGES_WITHOUT_KEY.to_string(),
        ),
        (
            "QUESTION_PAGES_PER_KEY",
            limits::QUESTION_PAGES_PER_KEY.to_string(),
        ),
        (
            "QUESTION_PAGES_WITHOUT_KEY",
            limits::QUESTION_PAGES_WITHOUT_KEY.to_string(),
        ),
        ("LISTS_PER_KEY", limits::LISTS_PER_KEY.to_string()),
        ("LISTS_WITHOUT_KEY", limits::LISTS_WITHOUT_KEY.to_string()),
        ("WAITS_PER_KEY", limits::WAITS_PER_KEY.to_string()),
        ("WAITS_WITHOUT_KEY", limits::WAITS_WITHOUT_KEY.to_string()),
    ]
}

/// Returns the limits of the policy and of the log.
fn limits_of_the_log() -> Vec<(&'static str, String)> {
    vec![
        ("POLICY_RULES_MAX", limits::POLICY_RULES_MAX.to_string()),
        ("POLICY_BYTES_MAX", limits::POLICY_BYTES_MAX.to_string()),
        ("AUDIT_ENTRIES", limits::AUDIT_ENTRIES.to_string()),
        (
            "AUDIT_ENTRIES_LEAST",
            limits::AUDIT_ENTRIES_LEAST.to_string(),
        ),
        ("AUDIT_PAGE_MAX", limits::AUDIT_PAGE_MAX.to_string()),
        ("EVENT_READERS", limits::EVENT_READERS.to_string()),
        (
            "EVENT_READERS_PER_KEY",
            limits::EVENT_READERS_PER_KEY.to_string(),
        ),
    ]
}

#[test]
fn every_limit_stands_there_with_its_value() -> Result<()> {
    let known = [
        limits_of_messages(),
        limits_of_access(),
        limits_of_people(),
        limits_of_the_log(),
    ]
    .concat();
    let source = file("shared/src/limits.rs")?;
    let names: Vec<_> = source
        .lines()
        .filter_map(|line| line.strip_prefix("pub const ")?.split(':').next())
        .collect();
    let listed: Vec<_> = known.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        listed, names,
        "a limit was added to shared/src/limits.rs: name it here and in docs/API.md"
    );
    check([(
        "## Limits".to_owned(),
        known
            .iter()
            .map(|(name, value)| row([&code(name), value]))
            .collect(),
    )])
}

#[test]
fn differences_are_found_and_described() {
    let rows = |cells: &[&str]| {
        cells
            .iter()
            .map(|cell| row([cell, "1"]))
            .collect::<Vec<Row>>()
    };
    let long = [row(["a", "1", "prose"]), row(["b", "1", "prose"])];
    assert!(changes("t", &long, &rows(&["a", "b"])).is_empty());
    assert_eq!(
        changes("t", &rows(&["a"]), &rows(&["a", "b"])),
        ["t: write     | b | 1 | …"]
    );
    assert_eq!(
        changes("t", &rows(&["a", "c"]), &rows(&["a"])),
        ["t: take out  | c | 1 | …"]
    );
    assert_eq!(
        changes("t", &rows(&["b", "a"]), &rows(&["a", "b"])),
        ["t: each row once, in this order: a, b"]
    );
    assert_eq!(
        changes("t", &rows(&["a", "a"]), &rows(&["a"])),
        ["t: each row once, in this order: a"]
    );
}

#[test]
fn sections_end_at_the_next_heading_and_tables_at_the_first_other_line() {
    let text = "# x\n\n## a\n\nwords\n\n| h | i |\n| --- | --- |\n| 1 | 2 |\n\n| other |\n\n### b\n\n## c\n";
    assert_eq!(
        section(text, "## a").map(table),
        Some(vec![row(["1", "2"])])
    );
    assert_eq!(section(text, "## b"), None);
    assert_eq!(section(text, "### b").map(table), Some(Vec::new()));
}
