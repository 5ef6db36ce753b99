//! Asks a person a question with yes or no on the terminal.

use std::io::{self, BufRead as _, Write as _};

/// Prints the question, and returns whether the person answers yes. No answer means no.
pub(super) fn confirmed(question: &str) -> bool {
    let mut answer = String::new();
    let asked = io::stderr()
        .write_all(question.as_bytes())
        .and_then(|()| io::stderr().flush());
    let read = asked.and_then(|()| io::stdin().lock().read_line(&mut answer));
    read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}
