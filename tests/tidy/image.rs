//! The image is built from a part of the tree: every file that the build reads has to be in it.

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

use super::tree::File;

/// The folders and files at the root that `.dockerignore` lets into the build context.
pub(super) fn context(root: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(root.join(".dockerignore")).context("reading .dockerignore")?;
    Ok(text.lines().filter_map(|line| line.strip_prefix('!')).map(str::to_owned).collect())
}

/// Returns the files that a source file of the image includes and that are not in its build context.
pub(super) fn outside_context(file: &File, context: &[String]) -> Vec<String> {
    if !file.is_rust() || file.is_test() || file.path.starts_with("fuzz/") {
        return Vec::new();
    }
    let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
    let missing = included(&file.text).map(|path| flat(&folder.join(path))).filter(|path| !is_in(path, context));
    missing.map(|path| format!("{}: .dockerignore leaves out {}", file.path, path.display())).collect()
}

/// Returns the workspace members that are not in the build context: cargo reads the manifest of each.
pub(super) fn members_outside_context(manifest: &str, context: &[String]) -> Result<Vec<String>> {
    let manifest: toml::Table = manifest.parse().context("reading Cargo.toml")?;
    let members = manifest["workspace"]["members"].as_array().context("there are no members")?;
    let members = members.iter().filter_map(toml::Value::as_str).map(Path::new);
    let missing = members.filter(|member| !is_in(member, context));
    Ok(missing.map(|member| format!("Cargo.toml: .dockerignore leaves out {}", member.display())).collect())
}

fn included(text: &str) -> impl Iterator<Item = &str> {
    let starts = ["include_str!(\"", "include_bytes!(\""].into_iter().flat_map(|call| text.split(call).skip(1));
    starts.filter_map(|rest| rest.split_once('"').map(|(path, _)| path))
}

/// Resolves `..` without asking the file system.
fn flat(path: &Path) -> PathBuf {
    let mut flat = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                flat.pop();
            }
            part => flat.push(part),
        }
    }
    flat
}

fn is_in(path: &Path, context: &[String]) -> bool {
    context.iter().any(|part| path.starts_with(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_the_build_context_lacks_is_caught() -> Result<()> {
        let text = "const A: &str = include_str!(\"../../plugin/a.json\");\nconst B: &str = include_str!(\"b.sql\");";
        let file = File::new("proxy/src/a.rs", text);
        let context = |parts: &[&str]| parts.iter().map(|&part| part.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            outside_context(&file, &context(&["proxy"])),
            ["proxy/src/a.rs: .dockerignore leaves out plugin/a.json"]
        );
        assert!(outside_context(&file, &context(&["proxy", "plugin"])).is_empty());
        let members = "[workspace]\nmembers = [\"shared\", \"lab\"]";
        assert_eq!(
            members_outside_context(members, &context(&["shared"]))?,
            ["Cargo.toml: .dockerignore leaves out lab"]
        );
        Ok(())
    }
}
