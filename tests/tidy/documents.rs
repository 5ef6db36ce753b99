//! The documents name every variable and every crate, and only tests, files and headings that exist. Dockerfile and Makefile
//! set the same variables as the tests.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use harness::project::root;

fn file(path: &str) -> Result<String> {
    std::fs::read_to_string(root().join(path)).with_context(|| path.to_owned())
}

/// Returns the string literals that are names of c3po's variables.
fn variables(source: &str) -> Vec<&str> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let quoted = code.split('"').skip(1).step_by(2);
    quoted
        .filter(|text| {
            text.starts_with("C3PO_") && text.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
        })
        .collect()
}

#[test]
fn every_variable_stands_in_the_configuration() -> Result<()> {
    let document = file("docs/CONFIGURATION.md")?;
    for config in ["proxy/src/config/mod.rs", "coordinator/src/config.rs"] {
        let source = file(config)?;
        let variables = variables(&source);
        assert!(
            variables.len() > 4,
            "{config} reads more variables than {variables:?}"
        );
        for name in variables {
            assert!(
                document.contains(&format!("`{name}")),
                "docs/CONFIGURATION.md: {name} of {config} is missing"
            );
        }
    }
    Ok(())
}

#[test]
fn every_dependency_has_its_sentence() -> Result<()> {
    let table = file("docs/DEPENDENCIES.md")?;
    let manifest: toml::Table = file("Cargo.toml")?.parse()?;
    let workspace = manifest["workspace"]["dependencies"]
        .as_table()
        .context("no dependencies")?;
    let mut named: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    for name in workspace.keys().filter(|name| !name.starts_with("c3po")) {
        let quoted = format!("`{name}`");
        let rows = named
            .iter()
            .filter(|row| {
                row.split('|')
                    .nth(1)
                    .is_some_and(|cell| cell.contains(&quoted))
            })
            .count();
        assert_eq!(rows, 1, "docs/DEPENDENCIES.md: {name} has one row");
    }
    named.retain(|row| {
        let names = row
            .split('|')
            .nth(1)
            .unwrap_or_default()
            .split('`')
            .skip(1)
            .step_by(2);
        names.into_iter().any(|name| !workspace.contains_key(name))
    });
    assert!(
        named.is_empty(),
        "docs/DEPENDENCIES.md: not in Cargo.toml any more: {named:?}"
    );
    Ok(())
}

/// Adds the text of all Rust files below a folder.
fn add_sources(folder: &Path, sources: &mut String) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            add_sources(&path, sources)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&std::fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// Returns the texts in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_test_that_holds_an_invariant_exists() -> Result<()> {
    let text = file("ARCHITECTURE.md")?;
    let invariants = text
        .split("\n## Invariants\n")
        .nth(1)
        .and_then(|rest| rest.split("\n## ").next());
    let invariants = invariants.context("ARCHITECTURE.md has no section Invariants")?;
    let mut sources = String::new();
    for folder in [
        "allocator",
        "shared",
        "proxy",
        "coordinator",
        "lab",
        "tests",
    ] {
        add_sources(&root().join(folder), &mut sources)?;
    }
    let is_test = |name: &&str| {
        name.matches('_').count() > 1 && name.chars().all(|c| c == '_' || c.is_alphanumeric())
    };
    let names: Vec<_> = quoted(invariants)
        .filter_map(|text| text.rsplit("::").next())
        .filter(is_test)
        .collect();
    assert!(
        names.len() > 20,
        "ARCHITECTURE.md, Invariants: where are the tests? {names:?}"
    );
    let decisions = file("docs/DECISIONS.md")?;
    let of_decisions =
        quoted(&decisions).filter(|name| name.matches('_').count() > 3 && is_test(name));
    for name in names.into_iter().chain(of_decisions) {
        assert!(
            sources.contains(&format!("fn {name}(")),
            "there is no test {name}, which a document names"
        );
    }
    Ok(())
}

/// Returns the documents for people: those at the root and in `docs`.
fn documents() -> Result<Vec<PathBuf>> {
    let mut documents = Vec::new();
    for folder in [root().to_owned(), root().join("docs")] {
        for entry in std::fs::read_dir(&folder)? {
            documents.push(entry?.path());
        }
    }
    documents.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    assert!(
        documents.len() > 12,
        "where are the documents? {documents:?}"
    );
    Ok(documents)
}

/// Returns the anchors of a document's headings, as web pages of repositories make them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter_map(|line| line.strip_prefix('#'));
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let anchor = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        heading
            .chars()
            .filter(kept)
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn every_link_of_a_document_leads_to_a_file_and_a_heading() -> Result<()> {
    let mut broken = Vec::new();
    for document in documents()? {
        let text = std::fs::read_to_string(&document)?;
        let links = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.starts_with("http")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = document.parent().context("a folder")?.join(path);
            let target = if path.is_empty() {
                document.clone()
            } else {
                target
            };
            let leads = match std::fs::read_to_string(&target) {
                Ok(text) => {
                    anchor.is_empty() || anchors(&text).iter().any(|heading| heading == anchor)
                }
                Err(_) => anchor.is_empty() && target.exists(),
            };
            if !leads {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(
        broken.is_empty(),
        "links that lead nowhere:\n{}",
        broken.join("\n")
    );
    Ok(())
}

#[test]
fn every_file_that_a_document_names_exists() -> Result<()> {
    let folders = [
        "shared/",
        "proxy/",
        "coordinator/",
        "plugin/",
        "lab/",
        "tests/",
        "docs/",
        "dist/",
    ];
    for document in documents()? {
        let text = std::fs::read_to_string(&document)?;
        // A path may stand in bold as well as in backticks; whole commands hold spaces.
        let paths =
            quoted(&text).filter(|path| folders.iter().any(|folder| path.starts_with(folder)));
        for path in paths.filter(|path| !path.contains(' ')) {
            assert!(
                root().join(path).exists(),
                "{} names {path}, which does not exist",
                document.display()
            );
        }
    }
    Ok(())
}

#[test]
fn both_scripts_that_install_a_program_find_the_kind_of_machine_by_the_same_lines() -> Result<()> {
    let kind = |path: &str| -> Result<String> {
        let text = file(path)?;
        let (_, from) = text
            .split_once("    arch=$(uname -m)\n")
            .with_context(|| format!("{path}: the processor"))?;
        let (lines, _) = from
            .split_once("    machine=$os-$arch\n")
            .with_context(|| format!("{path}: the machine"))?;
        Ok(lines.to_owned())
    };
    assert_eq!(
        kind("dist/install.sh")?,
        kind("coordinator/src/server/join.sh")?
    );
    Ok(())
}
