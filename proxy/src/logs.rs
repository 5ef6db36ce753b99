//! The destination of the log: standard error or a file, never standard output.

use std::io::IsTerminal;
use std::sync::Mutex;

use c3po_shared::logs::{field, quieted};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{Config, private};

/// The filter in place of a malformed one.
const DEFAULT_FILTER: &str = "warn,rmcp=error";

/// Starts logging for this process.
pub fn start(config: &Config) {
    let filter: Targets = quieted(&config.log)
        .parse()
        .or_else(|_| DEFAULT_FILTER.parse())
        .expect("the default filter is well-formed");
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
    let coloured = file.is_none() && std::io::stderr().is_terminal();
    let writer = match file {
        Some(file) => BoxMakeWriter::new(Mutex::new(file)),
        None => BoxMakeWriter::new(std::io::stderr),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_target(false)
        // An error is printed to standard error, which may be the stream that failed: that panics.
        .log_internal_errors(false)
        .fmt_fields(fields)
        .with_ansi(coloured)
        .with_writer(writer);
    let logger = tracing_subscriber::registry().with(lines).with(filter);
    // A second start in one process, as in tests, keeps the first logger.
    let _ = logger.try_init();
}
