//! Rules about packages: the allowed dependencies between ours, and the place of versions.

use toml::{Table, Value};

use super::tree::File;

/// The packages of ours that each may depend on. A package that is not listed may depend on all.
const ARROWS: &[(&str, &[&str])] = &[
    ("allocator/Cargo.toml", &[]),
    ("shared/Cargo.toml", &[]),
    ("proxy/Cargo.toml", &["c3po-shared"]),
    ("coordinator/Cargo.toml", &["c3po-allocator", "c3po-shared"]),
    ("tests/harness/Cargo.toml", &["c3po-shared"]),
    ("lab/Cargo.toml", &["c3po-harness", "c3po-shared"]),
    ("tests/outside/Cargo.toml", &["c3po-harness", "c3po-shared"]),
    (
        "tests/store/Cargo.toml",
        &["c3po-harness", "c3po-shared", "c3po-coordinator"],
    ),
    ("tests/tidy/Cargo.toml", &["c3po-harness", "c3po-shared"]),
];

/// Returns all kinds of dependencies in a manifest, by name.
fn dependencies(file: &File) -> Table {
    let Ok(manifest) = file.text.parse::<Table>() else {
        return Table::new();
    };
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    let tables = kinds
        .iter()
        .filter_map(|kind| manifest.get(*kind)?.as_table());
    tables.flat_map(Table::clone).collect()
}

pub(super) fn forbidden_arrows(file: &File) -> Vec<String> {
    let Some((_, allowed)) = ARROWS.iter().find(|(path, _)| *path == file.path) else {
        return Vec::new();
    };
    let ours = dependencies(file)
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("c3po"));
    let forbidden = ours.filter(|name| !allowed.contains(&name.as_str()));
    forbidden
        .map(|name| format!("{}: must not know {name}", file.path))
        .collect()
}

pub(super) fn runtime_in_shared(file: &File) -> Vec<String> {
    if file.path != "shared/Cargo.toml" {
        return Vec::new();
    }
    let runtimes = dependencies(file)
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("tokio"));
    runtimes
        .map(|name| format!("{}: shared does no I/O, so it needs no {name}", file.path))
        .collect()
}

pub(super) fn version_outside_root(file: &File) -> Vec<String> {
    // The fuzz targets are a separate workspace.
    if !file.path.ends_with("/Cargo.toml") || file.path.starts_with("fuzz/") {
        return Vec::new();
    }
    let own = dependencies(file)
        .into_iter()
        .filter(|(_, value)| value.get("workspace") != Some(&Value::Boolean(true)));
    own.map(|(name, _)| {
        format!(
            "{}: the version of {name} belongs into the root's Cargo.toml",
            file.path
        )
    })
    .collect()
}

/// The lock file of the fuzz targets. `make test` does not build them, so no compiler reports that it is out of date.
const FUZZ_LOCK: &str = "fuzz/Cargo.lock";

/// Returns the dependencies of our packages that the lock file of the fuzz targets lacks. `make fuzz` would build whatever
/// versions of them the registry has on that day.
pub(super) fn absent_from_fuzz_lock(files: &[File]) -> Vec<String> {
    let lock = files
        .iter()
        .find(|file| file.path == FUZZ_LOCK)
        .and_then(|file| file.text.parse::<Table>().ok());
    let locked = lock
        .as_ref()
        .and_then(|lock| lock.get("package")?.as_array());
    let manifests: Vec<Table> = files.iter().filter_map(manifest).collect();
    let ours = locked.into_iter().flatten().filter_map(Value::as_table);
    ours.flat_map(|locked| absent(locked, &manifests)).collect()
}

fn manifest(file: &File) -> Option<Table> {
    file.path
        .ends_with("Cargo.toml")
        .then(|| file.text.parse().ok())?
}

/// Returns the dependencies that the manifest of a locked package names beyond its entry.
fn absent(locked: &Table, manifests: &[Table]) -> Vec<String> {
    let name = locked.get("name");
    let named = |manifest: &&Table| {
        name.is_some() && manifest.get("package").and_then(|own| own.get("name")) == name
    };
    let Some(manifest) = manifests.iter().find(named) else {
        return Vec::new();
    };
    let entries: Vec<&str> = locked
        .get("dependencies")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        // Where two versions of a package are locked, an entry is its name and its version.
        .filter_map(|entry| entry.as_str()?.split(' ').next())
        .collect();
    let needed = ["dependencies", "build-dependencies"]
        .into_iter()
        .filter_map(|kind| manifest.get(kind)?.as_table());
    let absent = needed
        .flat_map(Table::keys)
        .filter(|key| !entries.contains(&key.as_str()));
    let name = name.and_then(Value::as_str).unwrap_or_default();
    let mend = "run `cargo update --workspace --manifest-path fuzz/Cargo.toml`";
    absent
        .map(|key| format!("{FUZZ_LOCK}: {name} needs {key}: {mend}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_that_the_lock_file_of_the_fuzz_targets_lacks_is_caught() {
        let manifest = "[package]\nname = \"c3po-x\"\n[dependencies]\naide = \"1\"\n[dev-dependencies]\nonly-tests = \"1\"\n";
        let lock = "[[package]]\nname = \"c3po-x\"\n[[package]]\nname = \"aide\"\n";
        let files = |lock: &str| {
            [
                File::new("x/Cargo.toml", manifest),
                File::new("fuzz/Cargo.lock", lock),
            ]
        };
        let absent = absent_from_fuzz_lock(&files(lock));
        assert_eq!(absent.len(), 1, "{absent:?}");
        assert!(
            absent
                .iter()
                .all(|complaint| complaint.starts_with("fuzz/Cargo.lock: c3po-x needs aide")),
            "{absent:?}"
        );
        let whole = lock.replacen("\n[[", "\ndependencies = [\"aide 1.0.0\"]\n[[", 1);
        assert!(absent_from_fuzz_lock(&files(&whole)).is_empty());
    }

    #[test]
    fn arrows_between_packages_are_caught() {
        let proxy = "[dependencies]\nc3po-shared.workspace = true\nserde.workspace = true\n";
        assert!(forbidden_arrows(&File::new("proxy/Cargo.toml", proxy)).is_empty());
        assert_eq!(
            forbidden_arrows(&File::new("shared/Cargo.toml", proxy)).len(),
            1
        );
        let dev = "[dev-dependencies]\nc3po-coordinator = { workspace = true }\n";
        assert_eq!(
            forbidden_arrows(&File::new("proxy/Cargo.toml", dev)).len(),
            1
        );
        assert_eq!(
            forbidden_arrows(&File::new("tests/harness/Cargo.toml", dev)).len(),
            1
        );
        assert!(forbidden_arrows(&File::new("tests/inside/Cargo.toml", dev)).is_empty());
    }

    #[test]
    fn a_runtime_in_shared_and_versions_outside_the_root_are_caught() {
        let manifest = "[dependencies]\ntokio-util.workspace = true\nserde = \"1\"\n";
        assert_eq!(
            runtime_in_shared(&File::new("shared/Cargo.toml", manifest)).len(),
            1
        );
        assert!(runtime_in_shared(&File::new("proxy/Cargo.toml", manifest)).is_empty());
        assert_eq!(
            version_outside_root(&File::new("proxy/Cargo.toml", manifest)).len(),
            1
        );
        assert!(version_outside_root(&File::new("Cargo.toml", manifest)).is_empty());
    }
}
