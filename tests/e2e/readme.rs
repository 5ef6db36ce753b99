//! README.md names every variable that the programs read and every crate that they are made of.

use anyhow::{Context, Result};

fn file(path: &str) -> Result<String> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the tests have no parent folder")?;
    std::fs::read_to_string(root.join(path)).with_context(|| path.to_owned())
}

/// Returns the texts in quotation marks that name a variable of c3po.
fn variables(source: &str) -> Vec<&str> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let quoted = code.split('"').skip(1).step_by(2);
    quoted
        .filter(|text| text.starts_with("C3PO_") && text.chars().all(|c| c == '_' || c.is_ascii_alphanumeric()))
        .collect()
}

#[test]
fn every_variable_stands_in_the_readme() -> Result<()> {
    let readme = file("README.md")?;
    for config in ["proxy/src/config.rs", "coordinator/src/config.rs"] {
        let source = file(config)?;
        let variables = variables(&source);
        assert!(variables.len() > 4, "{config} reads more variables than {variables:?}");
        for name in variables {
            assert!(readme.contains(&format!("`{name}")), "README.md, Configuration: {name} of {config} is missing");
        }
    }
    Ok(())
}

#[test]
fn every_dependency_has_its_sentence_in_the_readme() -> Result<()> {
    let readme = file("README.md")?;
    let table = readme.split("\n## Dependencies\n").nth(1).and_then(|rest| rest.split("\n## ").next());
    let table = table.context("README.md has no section Dependencies")?;
    let manifest: toml::Table = file("Cargo.toml")?.parse()?;
    let workspace = manifest["workspace"]["dependencies"].as_table().context("no dependencies")?;
    let mut named: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
    for name in workspace.keys().filter(|name| !name.starts_with("c3po")) {
        let quoted = format!("`{name}`");
        let rows = named.iter().filter(|row| row.split('|').nth(1).is_some_and(|cell| cell.contains(&quoted))).count();
        assert_eq!(rows, 1, "README.md, Dependencies: {name} has one row");
    }
    named.retain(|row| {
        let names = row.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2);
        names.into_iter().any(|name| !workspace.contains_key(name))
    });
    assert!(named.is_empty(), "README.md, Dependencies: not in Cargo.toml any more: {named:?}");
    Ok(())
}
