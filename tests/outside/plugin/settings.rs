//! Installation and the user's settings: a backup is made first, invalid JSON is not changed, another status line is kept.

use std::fs;

use anyhow::{Context, Result};
use harness::claude::{ClaudeCode, OLDER};
use harness::skip::skipped;
use serde_json::{Value, json};

use super::host::Host;

/// Settings with a person's formatting.
pub(super) const BY_HAND: &str = "{ \"zeta\" : true,\n\t\"permissions\":{\"allow\":[\"Bash(ls)\",  \"Read\"],\"deny\":[ ] }, \"env\": {\"A\":\"é\"} }\n\n";

#[tokio::test]
async fn claude_rewrites_the_settings_and_a_backup_stays() -> Result<()> {
    let Ok(claude) = ClaudeCode::find() else {
        return skipped("settings by hand", "there is no Claude Code");
    };
    let host = Host::new(Some(&claude))?;
    host.write_settings(BY_HAND)?;
    let said = host.c3po(&["install", "--statusline"]).await?.good()?;

    let now = host.parsed_settings()?;
    let before: Value = serde_json::from_str(BY_HAND)?;
    for (name, value) in before.as_object().context("no object")? {
        assert_eq!(&now[name], value, "{name}");
    }
    assert_eq!(now["enabledPlugins"], json!({"c3po@c3po": true}));
    let backups = host.backups()?;
    assert_eq!(backups.len(), 1);
    assert_eq!(fs::read_to_string(&backups[0])?, BY_HAND);
    assert!(said.contains(&backups[0].display().to_string()), "{said}");

    let again = host.c3po(&["install", "--statusline", "--json"]).await?;
    assert_eq!(
        (again.outcomes("settings")?, host.backups()?),
        (vec!["unchanged".to_owned()], backups)
    );
    Ok(())
}

#[tokio::test]
async fn settings_that_claude_refuses_are_refused_before_anything_is_changed() -> Result<()> {
    let Ok(claude) = ClaudeCode::find() else {
        return skipped("settings with comments", "there is no Claude Code");
    };
    let host = Host::new(Some(&claude))?;
    host.write_settings("{\n  // mine\n  \"model\": \"opus\",\n}\n")?;
    let before = host.tree()?;
    for (arguments, advice) in [
        (&["install", "--statusline"][..], "try: Fix"),
        (&["uninstall"], "try: Fix"),
    ] {
        let said = host.c3po(arguments).await?;
        assert_eq!(said.status.code(), Some(1));
        assert!(
            said.err.contains("settings.json")
                && said.err.contains("line 2")
                && said.err.contains(advice),
            "{}",
            said.err
        );
        assert_eq!(host.tree()?, before);
    }
    Ok(())
}

#[tokio::test]
async fn another_status_line_stays_unless_its_place_is_forced() -> Result<()> {
    let Ok(claude) = ClaudeCode::find() else {
        return skipped("the status line", "there is no Claude Code");
    };
    let host = Host::new(Some(&claude))?;
    let mine = json!({"command": "~/mine", "type": "command"});
    host.write_settings(&json!({"statusLine": mine}).to_string())?;
    let said = host.c3po(&["install", "--statusline"]).await?.good()?;
    assert!(
        said.contains("has another statusLine") && said.contains("--force"),
        "{said}"
    );
    assert_eq!(host.parsed_settings()?["statusLine"], mine);

    host.c3po(&["install", "--statusline", "--force"])
        .await?
        .good()?;
    let now = host.parsed_settings()?;
    let command = now["statusLine"]["command"]
        .as_str()
        .context("no command")?;
    assert_eq!(
        command,
        format!(
            "'{}' statusline",
            host.installed().join("plugin/bin/c3po").display()
        )
    );
    // As Claude Code runs it: in a shell, with the session on standard input. Here there is no session.
    let drawn = host.run("/bin/sh".as_ref(), &["-c", command]).await?;
    assert!(drawn.status.success(), "{}", drawn.err);
    assert_eq!(
        host.c3po(&["install", "--statusline", "--json"])
            .await?
            .outcomes("status line")?,
        ["unchanged"]
    );

    host.c3po(&["uninstall"]).await?.good()?;
    assert_eq!(host.parsed_settings()?["statusLine"], mine);
    Ok(())
}

#[tokio::test]
async fn an_older_claude_code_takes_the_plugin() -> Result<()> {
    let claude = match ClaudeCode::find_version(OLDER) {
        Ok(claude) => claude,
        Err(reason) => {
            return skipped(
                "installing into an older Claude Code",
                &format!("{reason:#}"),
            );
        }
    };
    let host = Host::new(Some(&claude))?;
    host.write_settings(BY_HAND)?;
    host.c3po(&["install"]).await?.good()?;
    assert_eq!(host.plugin().await?.context("not listed")?["enabled"], true);
    host.c3po(&["uninstall"]).await?.good()?;
    assert!(host.plugin().await?.is_none());
    assert!(!fs::read_to_string(host.settings())?.contains("c3po"));
    Ok(())
}
