//! What is said to models, said to people: the command in the place of the tool.

use c3po_shared::refusal::{ErrorCode, Refusal};

/// Each tool that a suggestion may name, and what a person types for it.
const COMMANDS: &[(&str, &str)] = &[
    ("send_message", "`c3po send`"),
    ("get_messages", "`c3po inbox`"),
    ("wait_for_message", "`c3po tail`"),
    ("ack_messages", "`c3po ack`"),
    ("get_thread", "`c3po thread`"),
    ("message_status", "`c3po receipt`"),
    ("get_agent_status", "`c3po agents`"),
    ("list_agents", "`c3po agents`"),
    ("tools/list", "`c3po --help`"),
];

/// Returns what a person is to do next.
pub(super) fn suggestion(refusal: &Refusal) -> String {
    if refusal.suggestion == ErrorCode::CoordDown.suggestion() {
        return "`c3po doctor` says what is wrong; nothing was lost.".to_owned();
    }
    let said = refusal.suggestion.replace(", then start the session again", "");
    COMMANDS.iter().fold(said, |said, (tool, command)| said.replace(tool, command))
}

#[cfg(test)]
mod tests {
    use super::*;
    use c3po_shared::catalogue::listing;

    #[test]
    fn no_suggestion_names_a_tool_to_a_person() {
        let mut refusals: Vec<_> = ErrorCode::ALL.iter().map(|code| Refusal::new(*code, "no")).collect();
        refusals.push(Refusal::agent_not_found("a", &["b".parse().unwrap()]));
        for refusal in refusals {
            let said = suggestion(&refusal);
            for listed in listing() {
                let tool = listed.tool.name();
                assert!(!tool.contains('_') || !said.contains(tool), "{}: {said}", refusal.code);
            }
            assert!(!said.contains("session") && !said.contains("tools/list"), "{}: {said}", refusal.code);
        }
        let found = suggestion(&Refusal::agent_not_found("a", &["b".parse().unwrap()]));
        assert_eq!(found, "Did you mean b? `c3po agents` shows who there is.");
    }
}
