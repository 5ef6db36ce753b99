//! The image is built from a part of the tree, which must contain every file that the build reads.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::tree::File;

/// Returns the top-level folders and files that `.dockerignore` includes in the build context.
pub(super) fn context(root: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(root.join(".dockerignore")).context("reading .dockerignore")?;
    Ok(text
        .lines()
        .filter_map(|line| line.strip_prefix('!'))
        .map(str::to_owned)
        .collect())
}

/// Returns the files that a source file of the image includes although they are not in its build context.
pub(super) fn outside_context(file: &File, context: &[String]) -> Vec<String> {
    if !file.is_rust() || file.is_test() || file.path.starts_with("fuzz/") {
        return Vec::new();
    }
    let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
    let missing = included(&file.text)
        .map(|path| flat(&folder.join(path)))
        .filter(|path| !is_in(path, context));
    missing
        .map(|path| format!("{}: .dockerignore leaves out {}", file.path, path.display()))
        .collect()
}

/// Returns the reason why cargo cannot read the workspace from the build context alone. Cargo reads the manifest of every
/// member, and needs the targets that it names.
pub(super) fn unreadable_workspace(files: &[File], context: &[String]) -> Result<Option<String>> {
    let copy = tempfile::tempdir()?;
    for file in files
        .iter()
        .filter(|file| is_in(Path::new(&file.path), context))
    {
        let path = copy.path().join(&file.path);
        fs::create_dir_all(path.parent().context("a file without a folder")?)?;
        fs::write(path, &file.text)?;
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args([
            "metadata",
            "--offline",
            "--no-deps",
            "--format-version",
            "1",
        ])
        .current_dir(copy.path());
    let output = cargo.output().context("running cargo")?;
    Ok((!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned()))
}

fn included(text: &str) -> impl Iterator<Item = &str> {
    let starts = ["include_str!(\"", "include_bytes!(\""]
        .into_iter()
        .flat_map(|call| text.split(call).skip(1));
    starts.filter_map(|rest| rest.split_once('"').map(|(path, _)| path))
}

/// Resolves `..` without accessing the file system.
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
        let context = |parts: &[&str]| {
            parts
                .iter()
                .map(|&part| part.to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            outside_context(&file, &context(&["proxy"])),
            ["proxy/src/a.rs: .dockerignore leaves out plugin/a.json"]
        );
        assert!(outside_context(&file, &context(&["proxy", "plugin"])).is_empty());
        let files = [
            File::new("Cargo.toml", "[workspace]\nmembers = [\"lab\"]"),
            File::new(
                "lab/Cargo.toml",
                "[package]\nname = \"lab\"\n[[bin]]\nname = \"lab\"\npath = \"main.rs\"",
            ),
        ];
        let without = unreadable_workspace(&files, &context(&["Cargo.toml"]))?
            .context("the manifest is missing")?;
        assert!(without.contains("lab/Cargo.toml"), "{without}");
        assert_eq!(
            unreadable_workspace(&files, &context(&["Cargo.toml", "lab/Cargo.toml"]))?,
            None
        );
        Ok(())
    }
}
