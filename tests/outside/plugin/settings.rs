//! What the installation does to the user's settings: every byte that is not ours stays, also where claude writes anew.

use std::fs;

use anyhow::{Context, Result};
use harness::claude::{ClaudeCode, OLDER};
use harness::skip::skipped;
use serde_json::Value;

use super::host::Host;

/// Everything that a program which reads and writes JSON would change: order, indentation, line ends, escapes, numbers.
pub(super) const ODD: &str = "{\r\n\t\"//\": \"a // comment, \\/* and *\\/ another\",\n\n   \"zeta\" :1.00 ,\
    \"env\": { \"B\":\"\\u00e9\\/\",\"A\" : \"é\" },\r\n  \"big\": 12345678901234567890123, \"permissions\":{\"allow\":[\
    \"Bash(ls)\",  \"Read\" ],\"deny\":[ ] },\n\t\"twice\": {\"b\": 1, \"b\": 2}\r\n}\n\n";

fn statusline(settings: &str) -> Result<Value> {
    Ok(serde_json::from_str::<Value>(settings)?["statusLine"].clone())
}

#[tokio::test]
async fn every_byte_of_odd_settings_stays() -> Result<()> {
    let Ok(claude) = ClaudeCode::find() else { return skipped("odd settings", "there is no Claude Code") };
    let host = Host::new(Some(&claude))?;
    host.write_settings(ODD)?;
    host.c3po(&["install", "--statusline"]).await?.good()?;

    let now = fs::read_to_string(host.settings())?;
    let kept = ODD.trim_end().trim_end_matches("\r\n}");
    let added = now.strip_prefix(kept).and_then(|rest| rest.strip_suffix("\r\n}\n\n"));
    let added = added.with_context(|| format!("something else changed:\n{now}"))?;
    for name in ["extraKnownMarketplaces", "enabledPlugins", "statusLine"] {
        assert_eq!(
            added.matches(&format!("\n\t\"{name}\": ")).count(),
            1,
            "{name} stands as its neighbours do: {added}"
        );
    }
    let backups = host.backups()?;
    assert_eq!(backups.len(), 1);
    assert_eq!(fs::read_to_string(&backups[0])?, ODD);
    Ok(())
}

#[tokio::test]
async fn settings_that_claude_refuses_are_refused_before_anything_is_changed() -> Result<()> {
    let Ok(claude) = ClaudeCode::find() else { return skipped("settings with comments", "there is no Claude Code") };
    let host = Host::new(Some(&claude))?;
    host.write_settings("{\n  // mine\n  \"model\": \"opus\",\n}\n")?;
    let before = host.tree()?;
    let said = host.c3po(&["install", "--statusline"]).await?;
    assert_eq!(said.status.code(), Some(1));
    assert!(
        said.err.contains("settings.json") && said.err.contains("line 2") && said.err.contains("try: Mend"),
        "{}",
        said.err
    );
    assert_eq!(host.tree()?, before);
    Ok(())
}

#[tokio::test]
async fn another_status_line_stays_unless_its_place_is_forced() -> Result<()> {
    let Ok(claude) = ClaudeCode::find() else { return skipped("the status line", "there is no Claude Code") };
    let host = Host::new(Some(&claude))?;
    let mine = "{ \"statusLine\" : {\"command\":  \"~/mine\", \"type\": \"command\"} }\n";
    host.write_settings(mine)?;
    let said = host.c3po(&["install", "--statusline"]).await?.good()?;
    assert!(said.contains("has another statusLine") && said.contains("--force"), "{said}");
    assert!(fs::read_to_string(host.settings())?.contains("{\"command\":  \"~/mine\", \"type\": \"command\"}"));

    host.c3po(&["install", "--statusline", "--force"]).await?.good()?;
    let now = fs::read_to_string(host.settings())?;
    let command = statusline(&now)?["command"].as_str().context("no command")?.to_owned();
    assert_eq!(command, format!("'{}' statusline", host.installed().join("plugin/bin/c3po").display()));
    // As Claude Code runs it: by a shell, with the session on standard input. There is no session here.
    let drawn = host.run("/bin/sh".as_ref(), &["-c", &command]).await?;
    assert!(drawn.status.success(), "{}", drawn.err);
    assert_eq!(host.c3po(&["install", "--statusline", "--json"]).await?.outcomes("status line")?, ["unchanged"]);

    host.c3po(&["uninstall"]).await?.good()?;
    assert_eq!(fs::read_to_string(host.settings())?, mine);
    Ok(())
}

#[tokio::test]
async fn an_older_claude_code_takes_the_plugin_and_keeps_what_it_changes_itself() -> Result<()> {
    let claude = match ClaudeCode::find_version(OLDER) {
        Ok(claude) => claude,
        Err(reason) => return skipped("installing into an older Claude Code", &format!("{reason:#}")),
    };
    let host = Host::new(Some(&claude))?;
    // That version knows this model under another name, and says so in the settings at its first start.
    host.write_settings("{ \"f\" :1.00,\n\"model\":   \"opus\" }\n")?;
    let said = host.c3po(&["install"]).await?.good()?;
    assert!(said.contains("claude itself changed model\n"), "{said}");
    assert_eq!(host.plugin().await?.context("not listed")?["enabled"], true);
    let now = fs::read_to_string(host.settings())?;
    assert!(now.starts_with("{ \"f\" :1.00,\n\"model\":   \"opus[1m]\",\n\"extraKnownMarketplaces\""), "{now}");
    assert_eq!(host.c3po(&["install", "--json"]).await?.outcomes("settings")?, ["unchanged"]);
    host.c3po(&["uninstall"]).await?.good()?;
    assert_eq!(fs::read_to_string(host.settings())?, "{ \"f\" :1.00,\n\"model\":   \"opus[1m]\" }\n");
    Ok(())
}
