//! `lab`: demonstrates, loads, measures and breaks real coordinators and proxies. `make demo`, `make bench` and others run it.

#![expect(
    clippy::print_stdout,
    reason = "a person or a program reads what it prints"
)]

mod bench;
mod beside;
mod chaos;
mod demo;
mod hostile;
mod load;
mod record;
mod siege;
mod soak;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use tokio::runtime::{Builder, Runtime};

/// Shows, loads, measures and breaks real coordinators and proxies
#[derive(Debug, Parser)]
#[command(name = "lab")]
enum Lab {
    /// Two agents, through two real proxies, ask and answer
    Demo,
    /// Two real sessions that ask and answer, as an animated picture for the documentation
    Record(record::Options),
    /// Many agents on one coordinator: how long they take to connect, their cost, how fast messages reach them
    Load(load::Options),
    /// Mixed load on two coordinators and one Redis: memory and descriptors over time
    Soak(soak::Options),
    /// Many messages while coordinators, their store, proxies and links are killed: none may be lost or shown twice
    Chaos(chaos::Options),
    /// Real sessions of Claude Code with a scripted model and random user input: no message may be lost, no receipt wrong
    Hostile(hostile::Options),
    /// Malformed, oversized, slow, incomplete and random input to every interface, and its effect on a good client
    Siege(siege::Options),
    /// The cost of c3po, compared with the minimum for the same work on this machine
    Bench(bench::Options),
    /// Runs a command beside a coordinator, whose address it finds in C3PO_COORDINATOR_URL
    Beside(beside::Options),
    /// A process that another subcommand starts
    #[command(hide = true, subcommand)]
    Part(bench::Part),
}

/// The store of a coordinator.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Store {
    /// A redis-server of its own, appendfsync everysec
    Redis,
    /// The embedded store
    Sqlite,
}

fn main() -> ExitCode {
    match run(Lab::parse()) {
        Ok(code) => code,
        Err(error) => {
            say(&format!("lab: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(lab: Lab) -> Result<ExitCode> {
    match lab {
        Lab::Demo => threads()?.block_on(demo::run()),
        Lab::Record(options) => threads()?.block_on(record::run(&options)),
        Lab::Load(options) => thread()?.block_on(load::run(&options)),
        Lab::Soak(options) => thread()?.block_on(soak::run(&options)),
        Lab::Chaos(options) => threads()?.block_on(chaos::run(&options)),
        Lab::Hostile(options) => threads()?.block_on(hostile::run_day(&options)),
        Lab::Siege(options) => threads()?.block_on(siege::run(&options)),
        Lab::Bench(options) => bench::run(&options),
        Lab::Beside(options) => threads()?.block_on(beside::run(&options)),
        Lab::Part(part) => bench::play(&part),
    }
}

/// A runtime for a program that measures: its own work uses one core and leaves the others alone.
fn thread() -> Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime")
}

fn threads() -> Result<Runtime> {
    Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting the runtime")
}

/// Reports progress to a person.
fn say(line: &str) {
    // A closed standard error leaves no way to report.
    let _ = writeln!(std::io::stderr(), "{line}");
}
