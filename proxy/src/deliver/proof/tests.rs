//! The proofs that messages were seen, by each kind of evidence.

use super::*;
use crate::deliver::testing::{id, note};
use crate::local::protocol::{Event, Name};

fn batch(tool_use_ids: &[&str]) -> Event {
    let tool_use_ids = tool_use_ids.iter().map(|id| (*id).to_owned()).collect();
    Event {
        tool_use_ids,
        ..Event::new(Name::PostToolBatch)
    }
}

fn of_subagent(event: Event) -> Event {
    Event {
        agent_id: Some("sub".into()),
        ..event
    }
}

/// Returns the messages that an event proves to be seen, of whichever turn.
fn seen_by(shown: &mut Shown, event: &Event) -> Vec<MessageId> {
    let Proven {
        of_turn,
        of_earlier,
    } = shown.proven_by(event);
    [of_turn, of_earlier].concat()
}

#[test]
fn a_result_is_seen_when_a_step_follows_the_one_it_belongs_to() {
    let mut shown = Shown::default();
    shown.by_tool(&[id(1)], Some("t1".into()), Instant::now());
    assert!(shown.holds(&id(1)));
    assert!(
        seen_by(&mut shown, &Event::new(Name::PreToolUse)).is_empty(),
        "another call of the same step"
    );
    assert!(seen_by(&mut shown, &batch(&["t1", "t2"])).is_empty());
    assert!(
        seen_by(&mut shown, &Event::new(Name::UserPromptSubmit)).is_empty(),
        "a prompt is a person's"
    );
    assert_eq!(seen_by(&mut shown, &batch(&["t3"])), [id(1)]);
    assert!(
        seen_by(&mut shown, &Event::new(Name::Stop)).is_empty(),
        "once"
    );
}

#[test]
fn the_end_of_a_turn_is_a_step() {
    let mut shown = Shown::default();
    shown.by_hook(&[id(1), id(2)], Instant::now());
    assert_eq!(seen_by(&mut shown, &Event::new(Name::Stop)), [id(1), id(2)]);
}

#[test]
fn a_message_shown_to_a_subagent_is_seen_by_a_subagent_alone() {
    let mut shown = Shown::default();
    shown.by_tool(&[id(1)], Some("t1".into()), Instant::now());
    shown.by_hook(&[id(2)], Instant::now());
    assert!(seen_by(&mut shown, &of_subagent(batch(&["t1"]))).is_empty());
    assert_eq!(seen_by(&mut shown, &batch(&["t9"])), [id(2)]);
    assert_eq!(
        seen_by(&mut shown, &of_subagent(Event::new(Name::SubagentStop))),
        [id(1)]
    );
}

#[test]
fn a_result_that_came_after_its_step_waits_for_the_next_input() {
    let mut shown = Shown::default();
    seen_by(&mut shown, &batch(&["t1"]));
    shown.by_tool(&[id(1)], Some("t1".into()), Instant::now());
    assert!(seen_by(&mut shown, &Event::new(Name::Stop)).is_empty());
    assert!(seen_by(&mut shown, &Event::new(Name::UserPromptSubmit)).is_empty());
    assert_eq!(seen_by(&mut shown, &Event::new(Name::Stop)), [id(1)]);
}

#[test]
fn memory_is_bounded() {
    let mut shown = Shown::default();
    for number in 0..10_000 {
        shown.by_hook(&[id(number)], Instant::now());
    }
    assert_eq!(
        (shown.order.len(), shown.ids.len(), shown.unproven.len()),
        (SHOWN_MAX, SHOWN_MAX, UNPROVEN_MAX)
    );
    assert!(shown.holds(&id(9_999)) && !shown.holds(&id(0)));
}

#[test]
fn a_tool_that_runs_in_the_background_is_over_in_the_next_context_too() {
    let mut shown = Shown::default();
    seen_by(&mut shown, &batch(&["t1"]));
    shown.forget();
    assert!(shown.has_ended(Some(&"t1".to_owned())));
}

#[test]
fn the_prompt_after_a_rewind_pushes_out_no_text_that_the_rewind_removed() {
    let mut shown = Shown::default();
    for numbers in [1..=200, 201..=350] {
        shown.keep(numbers.map(|number| note(number, "news")).collect());
    }
    assert!(shown.notes.iter().any(|note| note.id == id(1)));
}
