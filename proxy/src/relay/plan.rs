//! The file of a plan that people decide about. The client reads it after the verdict, whatever the verdict was about.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The longest plan that is compared, in bytes: more than any request may have.
const LONGEST: u64 = 1 << 20;

/// Returns whether the file that a request names has another plan than the request has. A missing file counts as unchanged.
/// `claude_dir` is the folder of the client's settings.
pub(super) fn has_changed(input: &Value, claude_dir: &Path) -> bool {
    let (Some(named), Some(plan)) = (input["planFilePath"].as_str(), input["plan"].as_str()) else {
        return false;
    };
    match read(&file(named, claude_dir)) {
        Ok(Some(written)) => written.trim_end() != plan.trim_end(),
        Ok(None) => false,
        Err(_) => true,
    }
}

/// Returns the file: the client writes `~` in place of the home folder.
fn file(named: &str, claude_dir: &Path) -> PathBuf {
    let named = Path::new(named);
    match named.file_name() {
        Some(name) if named.is_relative() => claude_dir.join("plans").join(name),
        _ => named.to_owned(),
    }
}

/// Reads a text; `None` if there is no file.
///
/// Errors: it is a folder or the like, too long or not UTF-8, or cannot be read.
fn read(path: &Path) -> std::io::Result<Option<String>> {
    let metadata = match path.metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        metadata => metadata?,
    };
    if !metadata.is_file() || metadata.len() > LONGEST {
        return Err(ErrorKind::InvalidInput.into());
    }
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(LONGEST)
        .read_to_string(&mut text)?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_plan_that_its_file_no_longer_has_is_recognised() {
        let folder = tempfile::tempdir().expect("a folder");
        let plans = folder.path().join("plans");
        std::fs::create_dir(&plans).expect("made");
        std::fs::write(plans.join("one.md"), "# Add a test.\n").expect("written");
        let check = |plan: &str, named: &str, expected: bool| {
            let input = json!({"plan": plan, "planFilePath": named});
            assert_eq!(
                has_changed(&input, folder.path()),
                expected,
                "{plan} {named}"
            );
        };
        let absolute = plans.join("one.md").display().to_string();
        for named in ["~/.claude/plans/one.md", absolute.as_str()] {
            check("# Add a test.", named, false);
            check("# Add no test.", named, true);
        }
        check("# Add a test.", "~/.claude/plans/two.md", false);
        check("# Add a test.", &plans.display().to_string(), true);
        assert!(!has_changed(&json!({"plan": "x"}), folder.path()));
    }
}
