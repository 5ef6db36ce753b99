//! The journal, on a disk.

use super::*;
use crate::link::lines::text;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use uuid::Uuid;

fn agent() -> AgentId {
    "web".parse().unwrap()
}

fn line(number: u32) -> Line {
    let arguments =
        serde_json::value::to_raw_value(&json!({"target": "b", "message": format!("m{number}")}))
            .unwrap();
    let (call_id, tool, at) = (CallId::fresh(), "send_message".to_owned(), Timestamp::now());
    Line {
        call_id,
        tool,
        arguments,
        at,
        coordinators: vec!["ws://a/acp".to_owned()],
    }
}

fn journal() -> (tempfile::TempDir, Journal) {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::new(folder.path().join("state/journal"));
    (folder, journal)
}

#[test]
fn a_line_of_garbage_holds_up_no_other() {
    let (_folder, journal) = journal();
    let agent: AgentId = "web".parse().unwrap();
    std::fs::create_dir_all(&journal.folder).unwrap();
    std::fs::write(journal.lines(&agent), b"\xff\xfe\n{}\n").unwrap();
    let sent = line(1);
    journal.append(&agent, &sent).unwrap();
    assert_eq!(
        journal.first(&agent).unwrap().map(|line| line.call_id),
        Some(sent.call_id)
    );
}

#[test]
fn lines_come_out_in_the_order_in_which_they_went_in() {
    let (_folder, journal) = journal();
    assert!(journal.is_empty(&agent()) && journal.first(&agent()).unwrap().is_none());
    let lines = [line(1), line(2), line(3)];
    lines
        .iter()
        .for_each(|line| journal.append(&agent(), line).unwrap());
    for expected in &lines {
        let first = journal.first(&agent()).unwrap().unwrap();
        assert_eq!(
            (first.call_id, first.arguments.get()),
            (expected.call_id, expected.arguments.get())
        );
        journal.remove(&agent(), first.call_id).unwrap();
    }
    assert!(journal.is_empty(&agent()));
}

#[test]
fn a_line_cut_off_by_a_crash_is_ignored_and_written_over() {
    let (_folder, journal) = journal();
    let (one, two) = (line(1), line(2));
    journal.append(&agent(), &one).unwrap();
    let path = journal.lines(&agent());
    let torn = std::fs::read_to_string(&path).unwrap() + &text(&line(9)).unwrap()[..40];
    std::fs::write(&path, torn).unwrap();
    assert_eq!(journal.read(&agent()).unwrap().len(), 1);
    journal.append(&agent(), &two).unwrap();
    let ids: Vec<_> = journal
        .read(&agent())
        .unwrap()
        .iter()
        .map(|(_, line)| line.call_id)
        .collect();
    assert_eq!(ids, [one.call_id, two.call_id]);
}

#[test]
fn a_torn_line_alone_is_no_line() {
    let (_folder, journal) = journal();
    journal.append(&agent(), &line(1)).unwrap();
    std::fs::write(journal.lines(&agent()), "{\"call_id\":").unwrap();
    assert!(journal.first(&agent()).unwrap().is_none());
}

#[test]
fn a_refused_line_is_kept_beside_the_journal() {
    let (_folder, journal) = journal();
    let (one, two) = (line(1), line(2));
    journal.append(&agent(), &one).unwrap();
    journal.append(&agent(), &two).unwrap();
    let refusal = Refusal::agent_not_found("nobody", &[]);
    journal
        .refuse(&agent(), one.clone(), refusal.clone())
        .unwrap();
    assert_eq!(
        journal.first(&agent()).unwrap().unwrap().call_id,
        two.call_id
    );
    let refused = std::fs::read_to_string(journal.folder.join("web~refused.jsonl")).unwrap();
    assert!(refused.contains(&one.call_id.to_string()) && refused.contains("m1"));
    let file = journal.refused(&agent());
    let kept = QueuedFor {
        agent: agent(),
        waiting: 1,
        refused: 1,
        why: Some(refusal.error),
        journal: journal.lines(&agent()),
        file,
    };
    assert_eq!(journal.kept(), [kept]);
}

#[test]
fn sent_entries_stay_out_of_the_journal_after_a_crash() {
    let (_folder, journal) = journal();
    let lines = [line(1), line(2), line(3)];
    lines
        .iter()
        .for_each(|line| journal.append(&agent(), line).unwrap());
    let length = std::fs::metadata(journal.lines(&agent())).unwrap().len();
    journal.remove(&agent(), lines[1].call_id).unwrap();
    assert_eq!(
        std::fs::metadata(journal.lines(&agent())).unwrap().len(),
        length,
        "nothing is written anew"
    );
    journal.remove(&agent(), lines[0].call_id).unwrap();
    assert_eq!(
        journal.first(&agent()).unwrap().unwrap().call_id,
        lines[2].call_id
    );
    journal.remove(&agent(), lines[2].call_id).unwrap();
    assert!(journal.is_empty(&agent()));
    // The state after a kill before the file was emptied, with a partial line at the end.
    std::fs::write(journal.lines(&agent()), "#struck out\n{\"call").unwrap();
    assert!(!journal.is_empty(&agent()));
    assert!(journal.first(&agent()).unwrap().is_none() && journal.is_empty(&agent()));
}

#[test]
fn a_process_that_keeps_its_turn_does_not_hang_other_writers() {
    let (_folder, journal) = journal();
    journal.append(&agent(), &line(1)).unwrap();
    let turn = journal.turn(&agent()).unwrap();
    let began = Instant::now();
    let refused = journal.append(&agent(), &line(2)).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
    assert!(began.elapsed() < 2 * TURN_MAX, "{:?}", began.elapsed());
    drop(turn);
    journal.append(&agent(), &line(3)).unwrap();
    assert_eq!(journal.read(&agent()).unwrap().len(), 2);
}

#[test]
fn the_agents_with_something_that_waits_are_known() {
    let (_folder, journal) = journal();
    assert!(journal.agents().is_empty());
    let (one, other): (AgentId, AgentId) = (agent(), "web-2".parse().unwrap());
    let sent = line(1);
    journal.append(&one, &sent).unwrap();
    journal.append(&other, &line(2)).unwrap();
    journal.refuse(&one, sent, Refusal::invalid("no")).unwrap();
    assert_eq!(journal.agents(), std::slice::from_ref(&other));
    let is_for = |target: &str| journal.is_for(&other, &[target.to_owned()]);
    assert!(is_for("ws://a/acp") && !is_for("ws://b/acp"));
}

#[test]
fn the_journal_is_readable_by_its_user_alone() {
    let (_folder, journal) = journal();
    journal.append(&agent(), &line(1)).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(&journal.lines(&agent())), mode(&journal.folder)),
        (0o600, 0o700)
    );
}

#[test]
fn writers_at_the_same_time_lose_nothing() {
    let (_folder, journal) = journal();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                (0..25).for_each(|number| journal.append(&agent(), &line(number)).unwrap())
            });
        }
    });
    assert_eq!(journal.read(&agent()).unwrap().len(), 100);
}

#[test]
fn the_calls_of_a_dead_process_without_a_name_are_those_of_the_name_it_wished_for() {
    let (_folder, journal) = journal();
    let unnamed = |number| Unnamed {
        wished: agent(),
        process: Uuid::from_u128(number),
    };
    let [dead, lives] = [1, 2].map(unnamed);
    let lines = [line(1), line(2), line(3)];
    for (of, line) in [&dead, &dead, &lives].into_iter().zip(&lines) {
        journal.append(of, line).unwrap();
    }
    let _held = journal.hold(&lives).unwrap().unwrap();
    assert_eq!(journal.kept()[0].waiting, 3, "all are reported");
    assert!(!journal.adopt(|_| false));
    assert!(journal.adopt(|dead| dead.wished == agent()));
    let moved = journal.read(&agent()).unwrap();
    let ids: Vec<_> = moved.iter().map(|(_, line)| line.call_id).collect();
    assert_eq!(ids, [lines[0].call_id, lines[1].call_id]);
    let left: Vec<_> = journal.unnamed().collect();
    assert!(left.iter().eq([&lives]));
    let other: AgentId = "web-2".parse().unwrap();
    assert_eq!(journal.hand_over(&lives, &other).unwrap(), 1);
    assert!(journal.is_empty(&lives) && !journal.is_empty(&other));
}
