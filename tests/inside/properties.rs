//! Every input is accepted or refused without a panic: generated texts, and damaged valid ones.

use std::fs::DirEntry;

use anyhow::Result;
use harness::http;
use harness::project::root;
use inside::entries::{self, Rest};
use inside::served::Served;
use proptest::prelude::{Strategy, any, prop};
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};

/// The number of texts for each entry point: a few seconds for all of them.
const CASES: u32 = 4_000;

/// Generates texts of any characters, or one of these with a few changes.
fn texts(good: Vec<String>) -> impl Strategy<Value = String> {
    let changes = prop::collection::vec(
        (
            any::<prop::sample::Index>(),
            any::<Option<char>>(),
            any::<bool>(),
        ),
        0..4,
    );
    let damaged = (prop::sample::select(good), changes).prop_map(|(text, changes)| {
        let mut text: Vec<char> = text.chars().collect();
        for (at, with, cuts) in changes {
            if text.is_empty() {
                break;
            }
            let at = at.index(text.len());
            match with {
                _ if cuts && at % 7 == 0 => text.truncate(at),
                Some(c) if cuts => text.insert(at, c),
                Some(c) => text[at] = c,
                None => drop(text.remove(at)),
            }
        }
        text.into_iter().collect()
    });
    proptest::prop_oneof![1 => any::<String>(), 3 => damaged]
}

/// Runs the entry point with the usual number of texts.
fn check<T: std::fmt::Debug>(strategy: &impl Strategy<Value = T>, entry: impl Fn(&T)) {
    check_cases(CASES, strategy, entry);
}

/// Runs the entry point with that many texts. A failing text is shrunk to a short one.
fn check_cases<T: std::fmt::Debug>(
    cases: u32,
    strategy: &impl Strategy<Value = T>,
    entry: impl Fn(&T),
) {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(strategy, |text| {
        entry(&text);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

/// Returns the seeds of a fuzz target: valid texts, and texts that once broke an entry point.
fn seeds(target: &str) -> Vec<String> {
    let folder = root().join("fuzz/seeds").join(target);
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let read =
        |entry: std::io::Result<DirEntry>| std::fs::read_to_string(entry.expect("an entry").path());
    let mut seeds: Vec<_> = entries
        .map(read)
        .collect::<Result<_, _>>()
        .expect("a seed is text");
    seeds.sort();
    seeds
}

/// Runs an entry point with every seed of its fuzz target, unchanged and damaged.
fn check_target(target: &str, entry: impl Fn(&str)) {
    let seeds = seeds(target);
    seeds.iter().for_each(|seed| entry(seed));
    check(&texts(seeds), |text| entry(text));
}

/// Does the same for texts whose first line is a separate word: combines any word with any rest.
fn check_target_of_words(target: &str, entry: impl Fn(&str, &str)) {
    let seeds = seeds(target);
    let parts: Vec<_> = seeds
        .iter()
        .filter_map(|seed| seed.split_once('\n'))
        .collect();
    parts.iter().for_each(|(word, rest)| entry(word, rest));
    let words: Vec<_> = parts.iter().map(|(word, _)| (*word).to_owned()).collect();
    let rests = parts.iter().map(|(_, rest)| (*rest).to_owned()).collect();
    check(
        &(prop::sample::select(words), texts(rests)),
        |(word, rest)| entry(word, rest),
    );
}

#[test]
fn any_frame_is_refused_or_read_and_written_back_unchanged() {
    check_target("acp_frame", entries::acp_frame);
}

#[test]
fn any_arguments_make_a_call_or_a_refusal() {
    check_target_of_words("tool_arguments", entries::tool_arguments);
}

#[test]
fn any_input_of_a_hook_is_an_event_or_none() {
    check_target_of_words("hook_input", |word, input| {
        entries::hook_input(word, input.as_bytes())
    });
    let bytes = prop::collection::vec(any::<u8>(), 0..200);
    check(&bytes, |input| entries::hook_input("stop", input));
}

#[test]
fn any_join_code_is_one_or_refused_and_is_written_the_same() {
    check_target("join_code", entries::join_code);
    let codes = (any::<[u8; 16]>(), any::<Option<[u8; 32]>>());
    check(&codes, |(secret, fingerprint)| {
        let fingerprint = fingerprint.map(c3po_shared::join::Fingerprint::of);
        let code = c3po_shared::join::JoinCode::new(*secret, fingerprint);
        let again: c3po_shared::join::JoinCode =
            code.reveal().parse().expect("a code that was made");
        assert_eq!(
            (again.secret(), again.fingerprint),
            (code.secret(), fingerprint)
        );
        entries::join_code(&code.reveal());
    });
}

#[test]
fn any_host_file_is_read_or_refused_with_the_error() {
    check_target("host_file", entries::host_file);
}

#[test]
fn any_policy_file_is_read_or_refused_with_the_error() {
    check_target("policy_file", entries::policy_file);
}

#[test]
fn any_query_and_any_name_is_read_or_refused() {
    check_target("rest_query", entries::rest_query);
}

#[test]
fn any_address_of_a_store_is_one_or_refused() {
    check_target("store_address", entries::store_address);
}

/// Fewer, because each one is a connection.
const REQUESTS: u32 = 500;

#[test]
fn any_request_is_answered_and_panics_nothing() -> Result<()> {
    let rest = Rest::start()?;
    let seeds = seeds("rest_request");
    seeds.iter().for_each(|seed| rest.ask(seed));
    check_cases(REQUESTS, &texts(seeds), |text| rest.ask(text));
    rest.stop()
}

/// Removes line ends, so that a text fits into one line of a request.
fn line(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect()
}

#[tokio::test]
async fn any_query_and_any_header_is_answered_and_the_coordinator_goes_on() -> Result<()> {
    let served = Served::start().await?;
    let address = served.address.parse()?;
    let mut runner = TestRunner::deterministic();
    let texts = texts(seeds("rest_query"));
    for number in 0..200 {
        let mut draw = || {
            texts
                .new_tree(&mut runner)
                .map(|tree| line(&tree.current()))
                .unwrap_or_default()
        };
        let (query, agent, session) = (draw(), draw(), draw());
        let path = [
            "/api/audit",
            "/api/policy/check",
            "/api/pending",
            "/api/agents",
        ][number % 4];
        // A space would end the path. Other characters are invalid in a path or a header, which is the purpose of the test.
        let request = format!(
            "GET {path}?{} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nX-Agent-ID: {agent}\r\nX-Session-ID: {session}\r\n\r\n",
            query.replace(' ', "+")
        );
        let answer = http::request(address, &request).await?;
        assert!(
            (200..500).contains(&answer.status),
            "{request}: {} {}",
            answer.status,
            answer.body
        );
    }
    assert_eq!(http::get(address, "/api/health").await?.status, 200);
    Ok(())
}
