//! The destination of the log: standard error or a file, never standard output.

use std::io::IsTerminal;
use std::sync::Mutex;

use c3po_shared::logs::{field, quieted};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::debug_fn;

use crate::config::{Config, private};

/// The filter in place of a malformed one.
const DEFAULT_FILTER: &str = "warn,rmcp=error";

/// Starts logging for this process.
pub fn start(config: &Config) {
    let filter =
        EnvFilter::try_new(quieted(&config.log)).unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let file = config.log_file.as_ref().and_then(|path| {
        let opened = private::append(path);
        opened
            .inspect_err(|error| {
                eprintln!("c3po: cannot write the log to {}: {error}", path.display())
            })
            .ok()
    });
    let fields =
        debug_fn(|writer, name, value| writer.write_str(&field(name.name(), value))).delimited(" ");
    let logger = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        // An error is printed to standard error, which may be the stream that failed: that panics.
        .log_internal_errors(false)
        .fmt_fields(fields);
    // A second start in one process, as in tests, keeps the first logger.
    let _ = match file {
        Some(file) => logger
            .with_ansi(false)
            .with_writer(Mutex::new(file))
            .try_init(),
        None => logger
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr)
            .try_init(),
    };
}
