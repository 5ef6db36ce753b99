//! `c3po uninstall`: it leaves nothing of c3po behind, even if parts are missing or were changed meanwhile.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use harness::claude::ClaudeCode;
use harness::skip::skipped;
use serde_json::{Value, json};

use super::host::Host;
use super::settings::BY_HAND;

/// Returns whether Claude Code keeps the path for itself, whatever was installed and removed.
fn is_claudes_own(home: &Path, path: &Path) -> bool {
    let claude = home.join(".claude");
    let own = [
        home.join(".claude.json"),
        claude.join("backups"),
        claude.join("plugins"),
    ];
    own.iter().any(|own| path.starts_with(own))
}

/// Returns the settings without the objects that Claude Code leaves empty.
fn settings(host: &Host) -> Result<Value> {
    let mut settings = if host.settings().exists() {
        host.parsed_settings()?
    } else {
        json!({})
    };
    settings
        .as_object_mut()
        .context("no object")?
        .retain(|_, value| *value != json!({}));
    Ok(settings)
}

#[tokio::test]
async fn uninstalling_restores_the_home_except_for_the_layout_of_settings() -> Result<()> {
    let Ok(claude) = ClaudeCode::find() else {
        return skipped("uninstalling", "there is no Claude Code");
    };
    for text in [None, Some(BY_HAND), Some("{\"enabledPlugins\": { }}")] {
        let host = Host::new(Some(&claude))?;
        fs::create_dir_all(host.home().join(".local/share"))?;
        fs::create_dir_all(host.home().join(".local/state"))?;
        fs::create_dir_all(host.home().join(".claude"))?;
        if let Some(text) = text {
            host.write_settings(text)?;
        }
        let contents = |host: &Host| -> Result<Vec<_>> {
            let is_settings = |path: &Path| path.display().to_string().contains("settings.json");
            let left = |path: &Path| !is_claudes_own(&host.home(), path) && !is_settings(path);
            let tree = host.tree()?.into_iter().filter(|(path, _)| left(path));
            Ok(tree
                .map(|(path, (mode, _, _, text))| (path, mode, text))
                .collect())
        };
        let before = (contents(&host)?, settings(&host)?);
        host.c3po(&["install", "--statusline"]).await?.good()?;
        assert!(host.plugin().await?.is_some());
        host.c3po(&["uninstall"]).await?.good()?;
        assert_eq!((contents(&host)?, settings(&host)?), before, "{text:?}");
        assert!(host.plugin().await?.is_none());
        assert!(
            !host
                .claude(&["plugin", "marketplace", "list"])
                .await?
                .good()?
                .contains("c3po")
        );

        let again = host.c3po(&["uninstall", "--json"]).await?;
        assert_eq!(again.outcomes("plugin")?, ["unchanged"]);
        assert_eq!((contents(&host)?, settings(&host)?), before, "{text:?}");
    }
    Ok(())
}

#[tokio::test]
async fn changes_made_after_the_installation_stay() -> Result<()> {
    let Ok(claude) = ClaudeCode::find() else {
        return skipped("settings changed since", "there is no Claude Code");
    };
    let host = Host::new(Some(&claude))?;
    host.write_settings(BY_HAND)?;
    host.c3po(&["install", "--statusline"]).await?.good()?;
    let installed = fs::read_to_string(host.settings())?;
    host.write_settings(&installed.replacen("Bash(ls)", "Bash(cat)", 1))?;
    let said = host.c3po(&["uninstall"]).await?.good()?;
    assert_eq!(
        settings(&host)?,
        serde_json::from_str::<Value>(&BY_HAND.replacen("Bash(ls)", "Bash(cat)", 1))?
    );
    let backups = host.backups()?;
    assert_eq!(
        backups.len(),
        2,
        "one from before the installation, one from before its end"
    );
    for backup in backups {
        assert!(said.contains(&backup.display().to_string()), "{said}");
    }
    Ok(())
}

#[tokio::test]
async fn the_key_and_the_login_of_the_host_stay_valid_and_that_is_reported() -> Result<()> {
    let host = Host::new(None)?;
    fs::create_dir_all(host.home().join(".config/c3po"))?;
    let config = "coordinator_url = \"https://nas:8420\"\ntoken = \"c3po_0a1b2c3d_secret\"\n";
    fs::write(host.home().join(".config/c3po/config.toml"), config)?;
    let login = "coordinators = []\ntoken = \"c3po_login_0a1b2c3d_secret\"\n";
    fs::write(host.home().join(".config/c3po/person.toml"), login)?;
    let said = host.c3po(&["uninstall"]).await?.good()?;
    assert!(said.contains("run `c3po logout`"), "{said}");
    assert!(
        said.contains("key 0a1b2c3d stays valid at https://nas:8420"),
        "{said}"
    );
    assert!(
        said.contains("c3po-coordinator keys revoke 0a1b2c3d") && !said.contains("secret"),
        "{said}"
    );
    Ok(())
}

#[tokio::test]
async fn half_an_installation_is_taken_back_as_well() -> Result<()> {
    let Ok(claude) = ClaudeCode::find() else {
        return skipped("half an installation", "there is no Claude Code");
    };
    let host = Host::new(Some(&claude))?;
    host.write_settings(BY_HAND)?;
    host.c3po(&["install", "--statusline"]).await?.good()?;
    host.claude(&["plugin", "uninstall", "c3po@c3po"])
        .await?
        .good()?;
    fs::remove_dir_all(host.installed())?;
    host.c3po(&["uninstall"]).await?.good()?;
    assert_eq!(settings(&host)?, serde_json::from_str::<Value>(BY_HAND)?);

    // Without claude, our settings are removed, and the output names those that claude itself keeps.
    host.c3po(&["install"]).await?.good()?;
    fs::remove_file(host.bin().join("claude"))?;
    let said = host.c3po(&["uninstall"]).await?.good()?;
    assert!(
        said.contains("claude plugin marketplace remove c3po"),
        "{said}"
    );
    assert!(!fs::read_to_string(host.settings())?.contains("c3po"));
    assert!(!host.installed().exists());
    Ok(())
}
