//! Rules about packages: the allowed dependencies between ours, and the place of versions.

use toml::{Table, Value};

use super::tree::File;

/// The packages of ours that each may depend on. A package that is not listed may depend on all.
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

/// Returns all kinds of dependencies in a manifest, by name.
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
    // The fuzz targets are a separate workspace.
    if !file.path.ends_with("/Cargo.toml") || file.path.starts_with("fuzz/") {
        return Vec::new();
    }
    let own = dependencies(file).into_iter().filter(|(_, value)| value.get("workspace") != Some(&Value::Boolean(true)));
    own.map(|(name, _)| format!("{}: the version of {name} belongs into the root's Cargo.toml", file.path)).collect()
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
}
