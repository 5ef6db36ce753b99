//! What to do about a refusal, in words for a person at a terminal: commands, and no tools.

use c3po_shared::refusal::{Advice, Refusal};
use serde_json::Value;

/// Returns what a person is to do next.
pub(super) fn suggestion(refusal: &Refusal) -> String {
    let Some(advice) = refusal.advice else { return refusal.suggestion.clone() };
    let nearest: Vec<_> = refusal.details.get("nearest").and_then(Value::as_array).into_iter().flatten().collect();
    match advice {
        Advice::ListAgents if nearest.is_empty() => "Check the agent's spelling; `c3po agents` lists all of them.",
        Advice::ListAgents => {
            let names: Vec<_> = nearest.into_iter().filter_map(Value::as_str).collect();
            return format!("Did you mean {}? `c3po agents` lists all of them.", names.join(" or "));
        }
        Advice::NameRecipient => "Use an agent id, id@host, or @role; `c3po agents` lists them.",
        Advice::Broadcast => "`c3po broadcast` sends to all; @role is everybody with a role.",
        Advice::AskAnother => "Ask another agent (`c3po agents`), try later, or send it with --priority urgent.",
        Advice::UseWholeId => "Use the full id as `c3po send` or `c3po inbox` printed it.",
        Advice::ReadThread => {
            "Nothing to do: the sender has an answer. `c3po thread` shows it; `c3po send` adds to it."
        }
        Advice::AnswerIt => "Answer it with `c3po reply`.",
        Advice::JoinAgain => "Let this host in again (`c3po join`, with a line from `c3po-coordinator invite`).",
        Advice::WorkOn => "`c3po doctor` reports what is wrong; nothing was lost.",
        Advice::SendAgain => "Send it again in a moment.",
        Advice::ListTools => "`c3po --help` lists what there is.",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use c3po_shared::catalogue::listing;
    use c3po_shared::refusal::ErrorCode;

    #[test]
    fn no_suggestion_names_a_tool_to_a_person() {
        let mut refusals: Vec<_> = ErrorCode::ALL.iter().map(|code| Refusal::new(*code, "no")).collect();
        refusals.extend(Advice::ALL.iter().map(|advice| Refusal::invalid("no").advise(*advice)));
        for refusal in refusals {
            let said = suggestion(&refusal);
            for listed in listing() {
                let tool = listed.tool.name();
                assert!(!tool.contains('_') || !said.contains(tool), "{}: {said}", refusal.code);
            }
            assert!(!said.contains("session") && !said.contains("tools/list"), "{}: {said}", refusal.code);
        }
        let found = suggestion(&Refusal::agent_not_found("a", &["b".parse().unwrap()]));
        assert_eq!(found, "Did you mean b? `c3po agents` lists all of them.");
    }
}
