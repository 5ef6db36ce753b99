//! The plugin's files: they match the code, and Claude Code validates them without errors.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use c3po_shared::catalogue::Tool;
use harness::claude::ClaudeCode;
use harness::skip::skipped;
use serde_json::Value;

use super::host::Host;
use super::{project, text};

/// The prefix that Claude Code gives to the tools of the plugin's server.
const TOOLS: &str = "mcp__plugin_c3po_c3po";

fn json(path: &str) -> Result<Value> {
    serde_json::from_str(&text(path)?).with_context(|| path.to_owned())
}

#[test]
fn the_plugin_has_the_version_of_the_workspace() -> Result<()> {
    let workspace: toml::Table = text("Cargo.toml")?.parse()?;
    let version = workspace["workspace"]["package"]["version"]
        .as_str()
        .context("no version")?;
    assert_eq!(
        json("plugin/.claude-plugin/plugin.json")?["version"],
        version,
        "plugin/.claude-plugin/plugin.json"
    );
    Ok(())
}

#[test]
fn the_server_gets_every_variable_that_the_proxy_reads() -> Result<()> {
    let source = text("proxy/src/config/mod.rs")?;
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let quoted = code.split('"').skip(1).step_by(2);
    let is_name = |text: &&str| {
        text.starts_with("C3PO_")
            && text
                .chars()
                .all(|c| c == '_' || c.is_ascii_digit() || c.is_ascii_uppercase())
    };
    let read: BTreeSet<_> = quoted.filter(is_name).collect();
    assert!(read.len() > 4, "where are the variables? {read:?}");
    let servers = json("plugin/.mcp.json")?;
    let passed = servers["mcpServers"]["c3po"]["env"]
        .as_object()
        .context("no env")?;
    for name in read
        .into_iter()
        .chain(["XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"])
    {
        let value = passed
            .get(name)
            .with_context(|| format!("plugin/.mcp.json does not pass {name}"))?;
        assert_eq!(value, &format!("${{{name}:-}}"), "{name}");
    }
    Ok(())
}

#[test]
fn every_hook_runs_the_program_without_a_shell_and_only_waits_may_last() -> Result<()> {
    let hooks = json("plugin/hooks/hooks.json")?;
    let mut asked = Vec::new();
    for (event, groups) in hooks["hooks"].as_object().context("no hooks")? {
        let groups = groups.as_array().context("no groups")?;
        for hook in groups
            .iter()
            .flat_map(|group| group["hooks"].as_array().into_iter().flatten())
        {
            assert_eq!(hook["command"], "${CLAUDE_PLUGIN_ROOT}/bin/c3po", "{event}");
            assert_eq!(hook["args"][0], "hook", "{event}");
            let word = hook["args"][1].as_str().context("no event")?;
            let waits = word == "wait";
            assert_eq!(
                hook["asyncRewake"].as_bool().unwrap_or_default(),
                waits,
                "{event}"
            );
            // The client's dialog is open beside a permission request, which people may decide elsewhere.
            assert_eq!(
                hook["timeout"].as_u64().context("no timeout")? > 5,
                waits || word == "permission-request",
                "{event}"
            );
            if !waits {
                assert_eq!(kebab(event), word, "the hook says which event it is");
                asked.push(event.as_str());
            }
        }
    }
    assert_eq!(asked.len(), 10, "{asked:?}");
    let before = hooks["hooks"]["PreToolUse"][0]["matcher"]
        .as_str()
        .context("a hook before every tool")?;
    let few = before
        .split('|')
        .all(|tool| tool == "AskUserQuestion" || tool.starts_with(&format!("{TOOLS}__")));
    assert!(
        few,
        "only where something is to be known before a tool runs: {before}"
    );
    Ok(())
}

fn kebab(event: &str) -> String {
    let dashed = event.chars().map(|c| {
        if c.is_uppercase() {
            format!("-{}", c.to_lowercase())
        } else {
            c.to_string()
        }
    });
    dashed
        .collect::<String>()
        .trim_start_matches('-')
        .to_owned()
}

#[test]
fn skills_cost_nothing_until_they_are_used_and_name_tools_that_exist() -> Result<()> {
    for name in ["coordinate", "mailbox", "triage"] {
        let skill = text(&format!("plugin/skills/{name}/SKILL.md"))?;
        let head = skill.split("---\n").nth(1).context("no head")?;
        let field = |field: &str| {
            head.lines()
                .find_map(|line| line.strip_prefix(&format!("{field}: ")))
        };
        assert_eq!(field("name"), Some(name));
        assert_eq!(
            field("disable-model-invocation"),
            Some("true"),
            "{name}: a description costs every session"
        );
        let allowed = field("allowed-tools").context("no tools")?;
        for tool in allowed.split(' ') {
            let tool = tool
                .strip_prefix(TOOLS)
                .with_context(|| format!("{name} allows {tool}"))?;
            let known = tool.is_empty()
                || Tool::ALL
                    .iter()
                    .any(|known| tool == format!("__{}", known.name()));
            assert!(known, "{name} allows {tool}");
        }
        assert!(skill.len() < 2_500, "{name} is {} bytes long", skill.len());
    }
    Ok(())
}

#[tokio::test]
async fn claude_finds_nothing_wrong_with_the_plugin_and_the_marketplace() -> Result<()> {
    let claude = match ClaudeCode::find() {
        Ok(claude) => claude,
        Err(reason) => return skipped("claude plugin validate", &format!("{reason:#}")),
    };
    let host = Host::new(Some(&claude))?;
    for folder in [project("plugin"), project("")] {
        let folder = folder.display().to_string();
        let said = host
            .claude(&["plugin", "validate", "--strict", &folder])
            .await?
            .good()?;
        assert!(said.contains("Validation passed"), "{folder}: {said}");
    }
    Ok(())
}
