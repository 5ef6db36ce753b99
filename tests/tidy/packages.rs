//! Rules about packages: which of ours may know which, and what the lock file may hold.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use toml::{Table, Value};

use super::tree::File;

/// The packages of ours that each may depend on. What is not listed may depend on all of them.
const ARROWS: &[(&str, &[&str])] = &[
    ("shared/Cargo.toml", &[]),
    ("proxy/Cargo.toml", &["c3po-shared"]),
    ("coordinator/Cargo.toml", &["c3po-shared"]),
    ("tests/harness/Cargo.toml", &["c3po-shared"]),
    ("lab/Cargo.toml", &["c3po-harness", "c3po-shared"]),
    ("tests/outside/Cargo.toml", &["c3po-harness", "c3po-shared"]),
    ("tests/store/Cargo.toml", &["c3po-harness", "c3po-shared", "c3po-coordinator"]),
    ("tests/tidy/Cargo.toml", &["c3po-harness", "c3po-shared"]),
];

/// Returns the dependencies of a manifest, of every kind, by name.
fn dependencies(file: &File) -> Table {
    let Ok(manifest) = file.text.parse::<Table>() else { return Table::new() };
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    let tables = kinds.iter().filter_map(|kind| manifest.get(*kind)?.as_table());
    tables.flat_map(Table::clone).collect()
}

pub(super) fn forbidden_arrows(file: &File) -> Vec<String> {
    let Some((_, allowed)) = ARROWS.iter().find(|(path, _)| *path == file.path) else { return Vec::new() };
    let ours = dependencies(file).into_iter().map(|(name, _)| name).filter(|name| name.starts_with("c3po"));
    let forbidden = ours.filter(|name| !allowed.contains(&name.as_str()));
    forbidden.map(|name| format!("{}: must not know {name}", file.path)).collect()
}

pub(super) fn runtime_in_shared(file: &File) -> Vec<String> {
    if file.path != "shared/Cargo.toml" {
        return Vec::new();
    }
    let runtimes = dependencies(file).into_iter().map(|(name, _)| name).filter(|name| name.starts_with("tokio"));
    runtimes.map(|name| format!("{}: shared does no I/O, so it needs no {name}", file.path)).collect()
}

pub(super) fn version_outside_root(file: &File) -> Vec<String> {
    // The fuzz targets are a workspace of their own.
    if !file.path.ends_with("/Cargo.toml") || file.path.starts_with("fuzz/") {
        return Vec::new();
    }
    let own = dependencies(file).into_iter().filter(|(_, value)| value.get("workspace") != Some(&Value::Boolean(true)));
    own.map(|(name, _)| format!("{}: the version of {name} belongs into the root's Cargo.toml", file.path)).collect()
}

/// Returns what in a lock file breaks the bans of deny.toml: the same rules as those of cargo-deny, without it.
pub(super) fn locked(lock: &Path, deny: &Path) -> Result<Vec<String>> {
    let read = |path: &Path| fs::read_to_string(path).with_context(|| path.display().to_string());
    banned_and_duplicate(&read(lock)?, &read(deny)?)
}

fn banned_and_duplicate(lock: &str, deny: &str) -> Result<Vec<String>> {
    let bans = deny.parse::<Table>().context("reading deny.toml")?;
    let bans = bans.get("bans").context("deny.toml has no [bans]")?;
    let (denied, skipped) = (crates(bans, "deny"), crates(bans, "skip"));
    let mut breaches = Vec::new();
    for (name, _) in [&denied, &skipped].into_iter().flatten().filter(|(_, reason)| reason.is_empty()) {
        breaches.push(format!("deny.toml: {name} stands there without a reason"));
    }
    let versions = versions(lock)?;
    for (name, versions) in &versions {
        if denied.iter().any(|(banned, _)| banned == name) {
            breaches.push(format!("Cargo.lock: {name} is banned, see deny.toml"));
        }
        let unexplained = versions.iter().filter(|version| !skipped.iter().any(|(skip, _)| names(skip, name, version)));
        if unexplained.count() > 1 {
            breaches
                .push(format!("Cargo.lock: {name} is there as {}, see `skip` in deny.toml", versions.join(" and ")));
        }
    }
    for (skip, _) in &skipped {
        let used = |(name, versions): (&String, &Vec<String>)| {
            versions.len() > 1 && versions.iter().any(|version| names(skip, name, version))
        };
        if !versions.iter().any(used) {
            breaches.push(format!("deny.toml: {skip} is no duplicate any more"));
        }
    }
    Ok(breaches)
}

/// Returns the crates of a list in `[bans]`, each with its reason.
fn crates(bans: &Value, list: &str) -> Vec<(String, String)> {
    let text = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let entries = bans.get(list).and_then(Value::as_array).into_iter().flatten();
    entries.map(|entry| (text(entry, "crate"), text(entry, "reason"))).collect()
}

/// Returns whether `name@1.2` names this version of this crate.
fn names(spec: &str, name: &str, version: &str) -> bool {
    let Some((spec_name, spec_version)) = spec.split_once('@') else { return spec == name };
    spec_name == name && (version == spec_version || version.starts_with(&format!("{spec_version}.")))
}

fn versions(lock: &str) -> Result<BTreeMap<String, Vec<String>>> {
    let lock = lock.parse::<Table>().context("reading Cargo.lock")?;
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in lock.get("package").and_then(Value::as_array).context("Cargo.lock has no packages")? {
        let text = |key: &str| package.get(key).and_then(Value::as_str).map(str::to_owned);
        let name = text("name").context("a package without a name")?;
        versions.entry(name).or_default().push(text("version").context("a package without a version")?);
    }
    Ok(versions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_between_packages_are_caught() {
        let proxy = "[dependencies]\nc3po-shared.workspace = true\nserde.workspace = true\n";
        assert!(forbidden_arrows(&File::new("proxy/Cargo.toml", proxy)).is_empty());
        assert_eq!(forbidden_arrows(&File::new("shared/Cargo.toml", proxy)).len(), 1);
        let dev = "[dev-dependencies]\nc3po-coordinator = { workspace = true }\n";
        assert_eq!(forbidden_arrows(&File::new("proxy/Cargo.toml", dev)).len(), 1);
        assert_eq!(forbidden_arrows(&File::new("tests/harness/Cargo.toml", dev)).len(), 1);
        assert!(forbidden_arrows(&File::new("tests/inside/Cargo.toml", dev)).is_empty());
    }

    #[test]
    fn a_runtime_in_shared_and_versions_outside_the_root_are_caught() {
        let manifest = "[dependencies]\ntokio-util.workspace = true\nserde = \"1\"\n";
        assert_eq!(runtime_in_shared(&File::new("shared/Cargo.toml", manifest)).len(), 1);
        assert!(runtime_in_shared(&File::new("proxy/Cargo.toml", manifest)).is_empty());
        assert_eq!(version_outside_root(&File::new("proxy/Cargo.toml", manifest)).len(), 1);
        assert!(version_outside_root(&File::new("Cargo.toml", manifest)).is_empty());
    }

    #[test]
    fn banned_crates_and_unexplained_duplicates_are_caught() -> Result<()> {
        let package = |name: &str, version: &str| format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n");
        let twice = package("rand", "0.9.1") + &package("rand", "0.10.2");
        let check = |lock: &str, bans: &str, expected: &[&str]| -> Result<()> {
            let breaches = banned_and_duplicate(lock, &format!("[bans]\n{bans}"))?;
            assert_eq!(breaches.len(), expected.len(), "{breaches:?}");
            assert!(breaches.iter().zip(expected).all(|(breach, part)| breach.contains(part)), "{breaches:?}");
            Ok(())
        };
        check(&twice, "", &["rand is there as 0.9.1 and 0.10.2"])?;
        check(&twice, "skip = [{ crate = \"rand@0.9\", reason = \"tungstenite\" }]", &[])?;
        check(&twice, "skip = [{ crate = \"rand@0.9\" }]", &["without a reason"])?;
        let one = package("rand", "0.10.2");
        check(&one, "skip = [{ crate = \"rand@0.10\", reason = \"x\" }]", &["no duplicate any more"])?;
        check(&one, "deny = [{ crate = \"rand\", reason = \"x\" }]", &["banned"])
    }
}
