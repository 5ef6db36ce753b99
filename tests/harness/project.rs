//! The folder of the whole project, for tests that read its files.

use std::path::Path;

/// Returns the folder that has the root's `Cargo.toml` in it.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
