//! `c3po uninstall`: everything is as it was before, also where half is missing or something was changed since.

use std::fs;
use std::path::Path;

use anyhow::Result;
use harness::claude::ClaudeCode;
use harness::skip::skipped;

use super::host::Host;
use super::settings::ODD;

/// What Claude Code keeps for itself, whatever was installed and removed.
fn is_claudes_own(home: &Path, path: &Path) -> bool {
    let claude = home.join(".claude");
    let own = [home.join(".claude.json"), claude.join("backups"), claude.join("plugins")];
    own.iter().any(|own| path.starts_with(own))
}

#[tokio::test]
async fn after_it_the_home_is_as_before() -> Result<()> {
    let Ok(claude) = ClaudeCode::find() else { return skipped("uninstalling", "there is no Claude Code") };
    for settings in [None, Some(ODD), Some("{\"enabledPlugins\": { }}")] {
        let host = Host::new(Some(&claude))?;
        fs::create_dir_all(host.home().join(".local/share"))?;
        fs::create_dir_all(host.home().join(".local/state"))?;
        fs::create_dir_all(host.home().join(".claude"))?;
        if let Some(settings) = settings {
            host.write_settings(settings)?;
        }
        let contents = |host: &Host| -> Result<Vec<_>> {
            let tree = host.tree()?.into_iter().filter(|(path, _)| !is_claudes_own(&host.home(), path));
            Ok(tree.map(|(path, (mode, _, _, text))| (path, mode, text)).collect())
        };
        let before = contents(&host)?;
        host.c3po(&["install", "--statusline"]).await?.good()?;
        assert!(host.plugin().await?.is_some());
        host.c3po(&["uninstall"]).await?.good()?;
        assert_eq!(contents(&host)?, before, "{settings:?}");
        assert!(host.plugin().await?.is_none());
        assert!(!host.claude(&["plugin", "marketplace", "list"]).await?.good()?.contains("c3po"));

        let again = host.c3po(&["uninstall", "--json"]).await?;
        assert_eq!(again.outcomes("plugin")?, ["unchanged"]);
        assert_eq!(contents(&host)?, before, "{settings:?}");
    }
    Ok(())
}

#[tokio::test]
async fn what_was_changed_since_the_installation_stays() -> Result<()> {
    let Ok(claude) = ClaudeCode::find() else { return skipped("settings changed since", "there is no Claude Code") };
    let host = Host::new(Some(&claude))?;
    host.write_settings(ODD)?;
    host.c3po(&["install", "--statusline"]).await?.good()?;
    let installed = fs::read_to_string(host.settings())?;
    host.write_settings(&installed.replacen("1.00", "2.00", 1))?;
    let said = host.c3po(&["uninstall"]).await?.good()?;
    assert_eq!(fs::read_to_string(host.settings())?, ODD.replacen("1.00", "2.00", 1));
    let backups = host.backups()?;
    assert_eq!(backups.len(), 1, "what was before stays");
    assert!(said.contains(&backups[0].display().to_string()), "{said}");
    Ok(())
}

#[tokio::test]
async fn half_an_installation_is_taken_back_as_well() -> Result<()> {
    let Ok(claude) = ClaudeCode::find() else { return skipped("half an installation", "there is no Claude Code") };
    let host = Host::new(Some(&claude))?;
    host.write_settings(ODD)?;
    host.c3po(&["install", "--statusline"]).await?.good()?;
    host.claude(&["plugin", "uninstall", "c3po@c3po"]).await?.good()?;
    fs::remove_dir_all(host.installed())?;
    fs::remove_dir_all(host.home().join(".local/state"))?;
    host.c3po(&["uninstall"]).await?.good()?;
    let settings: serde_json::Value = serde_json::from_str(&fs::read_to_string(host.settings())?)?;
    for name in ["extraKnownMarketplaces", "statusLine"] {
        assert!(settings.get(name).is_none(), "{settings}");
    }
    assert_eq!(settings["permissions"]["allow"][1], "Read");

    // And where claude is gone: ours is taken out, and what claude itself remembers is named.
    host.c3po(&["install"]).await?.good()?;
    fs::remove_file(host.bin().join("claude"))?;
    let said = host.c3po(&["uninstall"]).await?.good()?;
    assert!(said.contains("claude plugin marketplace remove c3po"), "{said}");
    assert!(!fs::read_to_string(host.settings())?.contains("c3po"));
    assert!(!host.installed().exists());
    Ok(())
}
