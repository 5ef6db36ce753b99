//! `c3po doctor`: tests everything that has to work on this host, and reports how to fix failures.

mod canary;
mod coordinator;
mod host;
mod plugin;
mod report;
mod sessions;

use super::failure::Failure;
use super::print::Printer;
use crate::config::Config;
use report::Report;

pub(super) async fn run(config: &Config, printer: &Printer) -> Result<(), Failure> {
    let mut report = Report::new(printer);
    host::examine(config, &mut report)?;
    sessions::examine(config, &mut report)?;
    plugin::examine(config, &mut report).await?;
    if config.problems.is_empty() {
        coordinator::examine(config, &mut report).await?;
    } else {
        report.skip("coordinator", "needs a configuration")?;
    }
    report.end()
}
