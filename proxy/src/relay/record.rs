//! The client's transcript as evidence of a decision: the tool that was asked about, the decision, and the result.

use c3po_shared::vocabulary::Decision;
use serde_json::Value;

/// The lines of the transcript about one use of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fate {
    /// The decision of a hook that the client has used.
    pub(super) by_hook: Option<Decision>,
    /// The result of the tool.
    pub(super) result: Option<ToolResult>,
}

/// The result of a tool, or of its refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ToolResult {
    /// The text.
    pub(super) text: String,
    /// Whether the tool was refused.
    pub(super) is_refused: bool,
}

/// Returns the use of a tool with that input in the transcript, whose first `before` bytes were written before the request: the
/// first one without a result, or else the last one that got its result since.
pub(super) fn tool_use(
    transcript: &str,
    before: usize,
    tool: &str,
    input: &Value,
) -> Option<String> {
    let uses = Uses::of(transcript, tool, input);
    let earlier = &transcript[..transcript.floor_char_boundary(before)];
    let over = Uses::of(earlier, tool, input).over;
    let open_or_last = |list: &[String]| {
        let open = list.iter().find(|id| uses.is_open(id));
        open.or_else(|| list.iter().rfind(|id| !over.contains(id)))
            .cloned()
    };
    open_or_last(&uses.same).or_else(|| open_or_last(&uses.others))
}

/// Returns the use of a tool with that input that has no result yet.
pub(super) fn open_tool_use(transcript: &str, tool: &str, input: &Value) -> Option<String> {
    let uses = Uses::of(transcript, tool, input);
    let mut all = uses.same.iter().chain(&uses.others);
    all.find(|id| uses.is_open(id)).cloned()
}

/// The uses of a tool in a transcript, by their ids.
#[derive(Debug, Default)]
struct Uses {
    same: Vec<String>,
    /// Those with another input. A hook of some tools gets another input than the model gave; then any use of the tool without
    /// a result is meant.
    others: Vec<String>,
    /// Those of any tool that have a result.
    over: Vec<String>,
}

impl Uses {
    fn of(transcript: &str, tool: &str, input: &Value) -> Self {
        let mut uses = Self::default();
        for line in lines(transcript) {
            for block in blocks(&line) {
                match block["type"].as_str() {
                    Some("tool_use") if block["name"] == tool => {
                        let list = if is_same(&block["input"], input) {
                            &mut uses.same
                        } else {
                            &mut uses.others
                        };
                        list.extend(block["id"].as_str().map(str::to_owned));
                    }
                    Some("tool_result") => {
                        uses.over
                            .extend(block["tool_use_id"].as_str().map(str::to_owned));
                    }
                    _ => {}
                }
            }
        }
        uses
    }

    fn is_open(&self, id: &String) -> bool {
        !self.over.contains(id)
    }
}

/// Returns the decision and the result of one use of a tool, as far as the transcript has them.
pub(super) fn fate(transcript: &str, tool_use: &str) -> Fate {
    let mut fate = Fate::default();
    for line in lines(transcript) {
        let attached = &line["attachment"];
        if attached["type"] == "hook_permission_decision" && attached["toolUseID"] == tool_use {
            fate.by_hook = attached["decision"]
                .as_str()
                .and_then(|word| word.parse().ok());
        }
        for block in blocks(&line) {
            if block["type"] == "tool_result" && block["tool_use_id"] == tool_use {
                fate.result = Some(ToolResult {
                    text: text_of(&block["content"]),
                    is_refused: line.get("toolDenialKind").is_some(),
                });
            }
        }
    }
    fate
}

/// Returns the lines that can be parsed. The last one may be half written.
fn lines(transcript: &str) -> impl Iterator<Item = Value> {
    let is_of_tools = |line: &&str| line.contains("tool_use") || line.contains("toolUseID");
    transcript
        .lines()
        .filter(is_of_tools)
        .filter_map(|line| serde_json::from_str(line).ok())
}

/// Returns the blocks of a message.
fn blocks(line: &Value) -> impl Iterator<Item = &Value> {
    let content = line["message"]["content"].as_array();
    content.into_iter().flatten()
}

/// Compares inputs of tools, whose members may be in another order. A hook gets absolute paths where the model named others.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(name, value)| other.get(name).is_some_and(|of| is_same(value, of)))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|(one, other)| is_same(one, other))
        }
        (Value::String(one), Value::String(other)) => one == other || is_path_of(one, other),
        _ => one == other,
    }
}

/// Returns whether the second path is the first one from the root on.
fn is_path_of(path: &str, absolute: &str) -> bool {
    let path = path.strip_prefix("./").unwrap_or(path);
    absolute.starts_with('/')
        && absolute
            .strip_suffix(path)
            .is_some_and(|folder| !path.is_empty() && folder.ends_with('/'))
}

fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks
            .iter()
            .filter_map(|block| block["text"].as_str())
            .collect::<Vec<_>>()
            .join("\n"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn used(id: &str, command: &str) -> String {
        let block = json!({"type": "tool_use", "id": id, "name": "Bash", "input": {"command": command, "n": 1}});
        json!({"type": "assistant", "message": {"content": [block]}}).to_string()
    }

    fn decided(id: &str, decision: &str) -> String {
        json!({"type": "attachment", "attachment": {"type": "hook_permission_decision",
            "decision": decision, "toolUseID": id, "hookEvent": "PermissionRequest"}})
        .to_string()
    }

    fn ended(id: &str, text: &str, denial: Option<&str>) -> String {
        let block = json!({"type": "tool_result", "tool_use_id": id, "content": text});
        let mut line = json!({"type": "user", "message": {"content": [block]}});
        if let Some(kind) = denial {
            line["toolDenialKind"] = json!(kind);
        }
        line.to_string()
    }

    #[test]
    fn of_equal_uses_the_first_without_a_result_is_meant() {
        let input = json!({"n": 1, "command": "touch a"});
        let find = |lines: &[String]| tool_use(&lines.join("\n"), 0, "Bash", &input);
        let (one, two) = (used("t1", "touch a"), used("t2", "touch a"));
        assert_eq!(find(&[used("t0", "touch b")]).as_deref(), Some("t0"));
        assert_eq!(find(&[one.clone(), two.clone()]).as_deref(), Some("t1"));
        let over = ended("t1", "", None);
        assert_eq!(
            open_tool_use(&[one.clone(), over.clone()].join("\n"), "Bash", &input),
            None
        );
        assert_eq!(find(&[one, over, two]).as_deref(), Some("t2"));
        assert_eq!(find(&[]), None);
        assert_eq!(tool_use(&used("t1", "touch a"), 0, "Write", &input), None);
        let absolute = json!({"n": 1, "command": "/srv/note.txt"});
        let found = |command| tool_use(&used("t1", command), 0, "Bash", &absolute);
        assert_eq!(found("note.txt").as_deref(), Some("t1"));
        assert_eq!(found("./note.txt").as_deref(), Some("t1"));
        let both = [used("t1", "ote.txt"), used("t2", "note.txt")].join("\n");
        assert_eq!(tool_use(&both, 0, "Bash", &absolute).as_deref(), Some("t2"));
    }

    #[test]
    fn a_use_that_was_over_before_the_request_is_not_meant() {
        for command in ["touch a", "of a hook"] {
            let input = json!({"n": 1, "command": command});
            let over = |id| [used(id, "touch a"), ended(id, "", None)].join("\n");
            let (earlier, both) = (over("t1"), [over("t1"), over("t2")].join("\n"));
            let find = |lines: &str| tool_use(lines, earlier.len(), "Bash", &input);
            assert_eq!(find(&earlier), None, "{command}");
            assert_eq!(find(&both).as_deref(), Some("t2"), "{command}");
        }
    }

    #[test]
    fn a_decision_and_its_result_belong_to_their_tool_use() {
        let lines = [
            used("t1", "a"),
            decided("t2", "allow"),
            "{\"half".to_owned(),
        ];
        assert_eq!(fate(&lines.join("\n"), "t1"), Fate::default());
        let lines = [
            used("t1", "a"),
            decided("t1", "deny"),
            ended("t1", "[c3po] ann denied this", Some("permission-rule")),
        ];
        let expected = Fate {
            by_hook: Some(Decision::Deny),
            result: Some(ToolResult {
                text: "[c3po] ann denied this".to_owned(),
                is_refused: true,
            }),
        };
        assert_eq!(fate(&lines.join("\n"), "t1"), expected);
    }
}
