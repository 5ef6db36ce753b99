//! `c3po install` with an empty home: its effect, its idempotence, and its messages when it cannot install.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use harness::claude::ClaudeCode;
use harness::skip::skipped;
use serde_json::Value;

use super::host::{CALL, Host};

fn real() -> Result<ClaudeCode, String> {
    ClaudeCode::find().map_err(|reason| format!("{reason:#}"))
}

#[tokio::test]
async fn one_command_installs_and_a_second_one_finds_everything_there() -> Result<()> {
    let claude = match real() {
        Ok(claude) => claude,
        Err(reason) => return skipped("installing the plugin", &reason),
    };
    let host = Host::new(Some(&claude))?;
    let said = host
        .c3po(&["install", "--coordinator", "http://nas:8420"])
        .await?
        .good()?;
    assert!(
        said.contains("c3po@c3po is enabled") && said.contains("/reload-plugins"),
        "{said}"
    );
    let plugin = host.plugin().await?.context("the plugin is not listed")?;
    assert_eq!(
        (&plugin["enabled"], &plugin["scope"]),
        (&true.into(), &"user".into())
    );
    assert_eq!(plugin["version"], env!("CARGO_PKG_VERSION"));
    let config = host.home().join(".config/c3po/config.toml");
    assert_eq!(
        fs::read_to_string(&config)?,
        "coordinator_url = \"http://nas:8420\"\n"
    );

    let (settings, files) = (
        host.parsed_settings()?,
        fs::metadata(host.installed().join("plugin/bin/c3po"))?,
    );
    let again = host
        .c3po(&["install", "--coordinator", "http://nas:8420", "--json"])
        .await?;
    for step in ["files", "plugin", "settings", "coordinator"] {
        assert_eq!(again.outcomes(step)?, ["unchanged"], "{step}");
    }
    assert_eq!(host.parsed_settings()?, settings);
    assert_eq!(
        fs::metadata(host.installed().join("plugin/bin/c3po"))?.modified()?,
        files.modified()?
    );
    assert!(host.backups()?.is_empty(), "nothing was there to be kept");
    let folder = host.installed().display().to_string();
    host.claude(&["plugin", "validate", "--strict", &folder])
        .await?
        .good()?;
    Ok(())
}

#[tokio::test]
async fn the_plugin_needs_no_other_binary_once_it_is_installed() -> Result<()> {
    let claude = match real() {
        Ok(claude) => claude,
        Err(reason) => return skipped("a plugin with its own binary", &reason),
    };
    let host = Host::new(Some(&claude))?;
    host.c3po(&["install"]).await?.good()?;
    fs::remove_file(host.bin().join("c3po"))?;

    let servers = host.claude(&["mcp", "list"]).await?.good()?;
    let line = servers
        .lines()
        .find(|line| line.contains("plugin:c3po:c3po"))
        .context("no server of the plugin")?;
    assert!(line.contains("Connected"), "{line}");
    let hook = host
        .run(&host.installed().join("plugin/bin/c3po"), &["hook", "stop"])
        .await?;
    assert_eq!(
        (hook.status.code(), hook.out.as_str(), hook.err.as_str()),
        (Some(0), "", "")
    );
    Ok(())
}

#[tokio::test]
async fn another_version_is_brought_up_to_date() -> Result<()> {
    let claude = match real() {
        Ok(claude) => claude,
        Err(reason) => return skipped("updating the plugin", &reason),
    };
    let host = Host::new(Some(&claude))?;
    host.c3po(&["install"]).await?.good()?;
    let manifest = host.installed().join("plugin/.claude-plugin/plugin.json");
    fs::write(
        &manifest,
        fs::read_to_string(&manifest)?.replace(env!("CARGO_PKG_VERSION"), "0.0.1"),
    )?;
    fs::write(host.installed().join("plugin/hooks/of-old.json"), "{}")?;
    host.claude(&["plugin", "update", "c3po@c3po"])
        .await?
        .good()?;
    assert_eq!(
        host.plugin().await?.context("not listed")?["version"],
        "0.0.1"
    );

    assert_eq!(
        host.c3po(&["install", "--json"]).await?.outcomes("files")?,
        ["done"]
    );
    assert_eq!(
        host.plugin().await?.context("not listed")?["version"],
        env!("CARGO_PKG_VERSION")
    );
    assert!(!host.installed().join("plugin/hooks/of-old.json").exists());
    Ok(())
}

#[tokio::test]
async fn a_foreign_marketplace_of_the_same_name_is_left_alone() -> Result<()> {
    let claude = match real() {
        Ok(claude) => claude,
        Err(reason) => return skipped("a foreign marketplace", &reason),
    };
    let host = Host::new(Some(&claude))?;
    host.write_settings(
        r#"{"extraKnownMarketplaces": {"c3po": {"source": {"source": "github", "repo": "droids/c3po"}}}}"#,
    )?;
    let before = host.tree()?;
    let ended = host.c3po(&["install"]).await?;
    let said = ended.good().expect_err("it is another's").to_string();
    assert!(
        said.contains("droids/c3po") && said.contains("marketplace remove c3po"),
        "{said}"
    );
    assert_eq!(host.tree()?, before);

    // If Claude Code has already read the other one, the printed command removes it.
    let host = Host::new(Some(&claude))?;
    let other = host.folder().join("other/.claude-plugin");
    fs::create_dir_all(&other)?;
    fs::write(
        other.join("marketplace.json"),
        r#"{"name": "c3po", "owner": {"name": "droids"}, "plugins": []}"#,
    )?;
    host.claude(&["plugin", "marketplace", "add", "./other"])
        .await?
        .good()?;
    let refused = host.c3po(&["install"]).await?;
    assert_eq!(refused.status.code(), Some(1), "{}", refused.err);
    let pasted = refused.err.split('`').nth(1).context("a command")?;
    host.run(Path::new("/bin/sh"), &["-c", pasted])
        .await?
        .good()?;
    host.c3po(&["install"]).await?.good()?;
    Ok(())
}

/// Returns the verdict of `c3po doctor` about the plugin, and its words.
async fn examined(host: &Host) -> Result<(String, String)> {
    let said = host.c3po(&["doctor", "--json"]).await?;
    let report: Value = serde_json::from_str(&said.out)?;
    let mut findings = report["findings"].as_array().context("findings")?.iter();
    let plugin = findings.find(|finding| finding["check"] == "plugin");
    let plugin = plugin.context("the plugin is not examined")?;
    let verdict = plugin["verdict"].as_str().context("a verdict")?;
    Ok((verdict.to_owned(), plugin.to_string()))
}

#[tokio::test]
async fn a_plugin_that_the_client_loads_from_elsewhere_is_reported() -> Result<()> {
    let claude = match real() {
        Ok(claude) => claude,
        Err(reason) => return skipped("a plugin from elsewhere", &reason),
    };
    let host = Host::new(Some(&claude))?;
    host.c3po(&["install"]).await?.good()?;
    ensure!(examined(&host).await?.0 == "ok");
    // Only the client's own list of marketplaces names the other folder.
    let other = host.home().join(".claude/plugins/marketplaces/other");
    fs::create_dir_all(other.parent().context("a folder")?)?;
    fs::rename(host.installed(), &other)?;
    host.c3po(&["install"]).await?.good()?;
    let list = host.home().join(".claude/plugins/known_marketplaces.json");
    let mut known: Value = serde_json::from_str(&fs::read_to_string(&list)?)?;
    known["c3po"]["installLocation"] = other.display().to_string().into();
    fs::write(&list, known.to_string())?;

    let (verdict, said) = examined(&host).await?;
    ensure!(verdict == "fail", "{said}");
    ensure!(said.contains(&other.display().to_string()), "{said}");
    let refused = host.c3po(&["install"]).await?;
    ensure!(refused.status.code() == Some(1), "{}", refused.out);
    let pasted = refused.err.split('`').nth(1).context("a command")?;
    host.run(Path::new("/bin/sh"), &["-c", pasted])
        .await?
        .good()?;
    host.c3po(&["install"]).await?.good()?;
    let (verdict, said) = examined(&host).await?;
    ensure!(verdict == "ok", "{said}");
    // As after a move of the home folder.
    let mut settings = host.parsed_settings()?;
    settings["extraKnownMarketplaces"]["c3po"]["source"]["path"] = "/gone/claude-code".into();
    host.write_settings(&settings.to_string())?;
    let (verdict, said) = examined(&host).await?;
    ensure!(verdict == "fail" && said.contains("/gone"), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_dry_run_lists_the_changes_and_makes_none() -> Result<()> {
    let claude = match real() {
        Ok(claude) => claude,
        Err(reason) => return skipped("a dry run", &reason),
    };
    let host = Host::new(Some(&claude))?;
    host.write_settings("{ \"model\": \"opus\" }")?;
    let options = [
        "--dry-run",
        "--statusline",
        "--coordinator",
        "http://nas:8420",
    ];
    let install = [&["install"][..], &options].concat();

    let empty = host.tree()?;
    let said = host.c3po(&install).await?.good()?;
    assert_eq!(host.tree()?, empty);
    let folder = host.installed().display().to_string();
    for part in [
        &format!("write {folder}/plugin/hooks/hooks.json"),
        &format!("link {folder}/plugin/bin/c3po to "),
        &format!("claude plugin marketplace add '{folder}'"),
        "claude plugin install c3po@c3po",
        "extraKnownMarketplaces.c3po and enabledPlugins.c3po@c3po",
        "set \"statusLine\"",
        "write coordinator_url in ",
    ] {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }
    let document: Value = serde_json::from_str(
        &host
            .c3po(&[&install[..], &["--json"]].concat())
            .await?
            .good()?,
    )?;
    assert_eq!(document["dry_run"], true);

    host.c3po(&["install"]).await?.good()?;
    let full = host.tree()?;
    let said = host.c3po(&["uninstall", "--dry-run"]).await?.good()?;
    assert_eq!(host.tree()?, full);
    assert!(
        said.contains("plugin uninstall c3po@c3po") && said.contains(&format!("remove {folder}")),
        "{said}"
    );
    Ok(())
}

#[tokio::test]
async fn without_claude_all_else_is_done_and_reported_and_the_advice_is_clear() -> Result<()> {
    let host = Host::new(None)?;
    let empty = host.tree()?;
    for (arguments, part) in [
        (&["install", "--dry-run"][..], "neither in PATH"),
        (
            &["install", "--claude", "/nowhere/claude"],
            "/nowhere/claude",
        ),
    ] {
        let said = host.c3po(arguments).await?;
        assert_eq!(said.status.code(), Some(1), "{arguments:?}");
        assert!(
            said.err.contains(part) && said.err.contains("try: Install Claude Code"),
            "{}",
            said.err
        );
    }
    assert_eq!(host.tree()?, empty);

    let said = host
        .c3po(&["install", "--coordinator", "http://127.0.0.1:9"])
        .await?;
    assert_eq!(said.status.code(), Some(1));
    assert!(
        said.err.contains("neither in PATH") && said.err.contains("try: Install Claude Code"),
        "{}",
        said.err
    );
    for part in [
        "written",
        "coordinator_url in",
        "there is no claude command",
        "Connection refused",
        "make up",
    ] {
        assert!(
            said.out.contains(part),
            "{part} is missing in:\n{}",
            said.out
        );
    }
    assert!(host.installed().join("plugin/bin/c3po").exists());
    let config = fs::read_to_string(host.home().join(".config/c3po/config.toml"))?;
    assert_eq!(config, "coordinator_url = \"http://127.0.0.1:9\"\n");
    Ok(())
}

#[tokio::test]
async fn tools_are_allowed_one_by_one_on_request_and_disallowed_by_uninstall() -> Result<()> {
    let Ok(claude) = real() else {
        return skipped("permissions of an installation", "there is no Claude Code");
    };
    let host = Host::new(Some(&claude))?;
    host.write_settings(r#"{"permissions": {"allow": ["Bash(ls)"]}}"#)?;
    let allow = |host: &Host| anyhow::Ok(host.parsed_settings()?["permissions"]["allow"].clone());
    // There is no terminal for a question.
    let said = host.c3po(&["install"]).await?.good()?;
    assert!(
        said.contains("send_message, reply") && said.contains("c3po install --allow"),
        "{said}"
    );
    assert_eq!(allow(&host)?, serde_json::json!(["Bash(ls)"]));
    assert_eq!(
        host.c3po(&["install", "--allow", "--json"])
            .await?
            .outcomes("permissions")?,
        ["done"]
    );
    let tools = [
        "send_message",
        "reply",
        "get_messages",
        "wait_for_message",
        "ack_messages",
        "list_agents",
        "ask_user",
        "notify_user",
    ];
    let named = tools.map(|tool| format!("mcp__plugin_c3po_c3po__{tool}"));
    let expected = ["Bash(ls)".to_owned()]
        .into_iter()
        .chain(named)
        .collect::<Vec<_>>();
    assert_eq!(allow(&host)?, serde_json::json!(expected));
    assert_eq!(
        host.c3po(&["install", "--allow", "--json"])
            .await?
            .outcomes("permissions")?,
        ["unchanged"]
    );
    host.c3po(&["uninstall"]).await?.good()?;
    assert_eq!(allow(&host)?, serde_json::json!(["Bash(ls)"]));
    Ok(())
}

#[tokio::test]
async fn a_person_at_a_terminal_is_asked_once_whether_the_tools_may_be_used() -> Result<()> {
    let Ok(claude) = real() else {
        return skipped("the question of an installation", "there is no Claude Code");
    };
    for (answer, expected) in [("yes", 8), ("no", 0)] {
        let host = Host::new(Some(&claude))?;
        let allowed = |host: &Host| -> Result<usize> {
            let allow = host.parsed_settings()?["permissions"]["allow"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            Ok(allow
                .iter()
                .filter(|entry| entry.to_string().contains("mcp__plugin_c3po_c3po__"))
                .count())
        };
        let terminal = host.terminal(&["install"]).await?;
        terminal
            .wait_for("the question", CALL, |screen| screen.contains("[y/N]"))
            .await?;
        terminal.type_line(answer).await?;
        assert_eq!(terminal.end(CALL).await?, Some(0), "{answer}");
        assert_eq!(allowed(&host)?, expected, "{answer}");
        drop(terminal);

        let again = host.terminal(&["install"]).await?;
        assert_eq!(
            again.end(CALL).await?,
            Some(0),
            "nobody is asked again: {answer}"
        );
        assert!(!again.screen().await?.contains("[y/N]"), "{answer}");
        assert_eq!(allowed(&host)?, expected, "{answer}");
    }
    Ok(())
}

#[tokio::test]
async fn the_settings_of_the_host_file_are_not_overwritten() -> Result<()> {
    let Ok(claude) = real() else {
        return skipped("config.toml of an installation", "there is no Claude Code");
    };
    let host = Host::new(Some(&claude))?;
    let config = host.home().join(".config/c3po/config.toml");
    fs::create_dir_all(host.home().join(".config/c3po"))?;
    fs::write(&config, "coordinator_url = \"http://mine:1\"")?;
    let before = host.tree()?;
    let said = host
        .c3po(&["install", "--coordinator", "http://nas:8420"])
        .await?;
    assert_eq!(said.status.code(), Some(1));
    assert!(
        said.err.contains("has another coordinator_url") && said.err.contains("http://nas:8420"),
        "{}",
        said.err
    );
    let said = host
        .c3po(&["install", "--coordinator", "ftp://nas"])
        .await?;
    assert_eq!(said.status.code(), Some(2));
    assert!(
        said.err.contains("--coordinator: 'ftp://nas' is neither"),
        "{}",
        said.err
    );
    assert_eq!(host.tree()?, before, "refused before anything is changed");

    let token = host.home().join("token");
    fs::write(&token, "0123456789abcdef\n")?;
    let said = host
        .c3po(&["install", "--token-file", &token.display().to_string()])
        .await?
        .good()?;
    assert!(!said.contains("0123456789abcdef"), "{said}");
    assert_eq!(
        fs::read_to_string(&config)?,
        "coordinator_url = \"http://mine:1\"\ntoken = \"0123456789abcdef\"\n"
    );
    assert_eq!(
        std::os::unix::fs::MetadataExt::mode(&fs::metadata(&config)?) & 0o777,
        0o600
    );
    Ok(())
}
