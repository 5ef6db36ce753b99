//! The folder of the whole project, for tests that read its files.

use std::path::Path;

/// Returns the folder with the root's `Cargo.toml`.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
