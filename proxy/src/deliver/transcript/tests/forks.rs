//! Conversations that a person continued as a fork.

use super::*;

#[test]
fn an_answer_of_the_copied_turns_answers_no_prompt_after_them() {
    let copied = [
        prompt(1, 0, 1, "first"),
        answer(2, 1, "m1", "fake"),
        prompt(3, 2, 2, &named(1)),
    ];
    // The client gives the copied lines one name, and the first turn after them has it too.
    let lines = copied.map(|mut line| {
        line["promptId"] = json!("prompt 1");
        line
    });
    let found = standing(&lines);
    assert_eq!((found.named, found.open), (ids(&[1]), ids(&[1])));
    assert_eq!(found.answered, ids(&[]));
    let found = standing(&[&lines[..], &[answer(4, 3, "m2", "fake")]].concat());
    assert_eq!(found.answered, ids(&[1]));
}
