//! The coordinator's program: settings, store, listener, signals.

use std::io::{IsTerminal, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context, bail};
use c3po_coordinator::cli::{Action, CommandLine, Origin, ask_health, back_up, restore};
use c3po_coordinator::config::{Config, ServeFlags};
use c3po_coordinator::log::LimitedLog;
use c3po_coordinator::{
    listen as listen_on, prepare_data_folder, raise_descriptor_limit, run, store,
};
use c3po_shared::logs::{field, quieted};
use c3po_shared::text::harmless;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

fn main() -> ExitCode {
    c3po_allocator::hold_little();
    let command_line = CommandLine::parse();
    match start(command_line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "c3po-coordinator: {}",
                harmless(&format!("{error:#}"), true)
            );
            ExitCode::FAILURE
        }
    }
}

fn start(command_line: CommandLine) -> anyhow::Result<()> {
    let settings = command_line.settings;
    if let Some(action) = command_line.action {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        return runtime
            .context("starting the runtime")?
            .block_on(ask(&action, settings));
    }
    let filter: Targets = quieted(&settings.log).parse().context("reading --log")?;
    let coloured = std::io::stderr().is_terminal();
    let fields =
        debug_fn(|writer, name, value| writer.write_str(&field(name.name(), value))).delimited(" ");
    let lines = tracing_subscriber::fmt::layer()
        .fmt_fields(fields)
        .with_writer(LimitedLog::default())
        .with_ansi(coloured);
    tracing_subscriber::registry()
        .with(lines)
        .with(filter)
        .init();
    raise_descriptor_limit();
    let listen = settings.listen;
    let config = settings.into_config()?;
    prepare_data_folder(&config)?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime
        .worker_threads(workers())
        .enable_all()
        .build()
        .context("starting the runtime")?;
    let outcome = runtime.block_on(async {
        let stop = CancellationToken::new();
        tokio::select! {
            outcome = serve(listen, config, stop.clone()) => outcome?,
            outcome = stop_on_signals(&stop) => outcome?,
        }
        tracing::info!("stopped");
        Ok(())
    });
    // At most a DNS lookup is left, which cannot be cancelled and may take many seconds.
    runtime.shutdown_background();
    outcome
}

/// Opens the store, which may wait for Redis until `stop` is cancelled, and serves.
async fn serve(listen: SocketAddr, config: Config, stop: CancellationToken) -> anyhow::Result<()> {
    let listener = listen_on(listen).map_err(|error| refused_to_listen(listen, error))?;
    let address = listener.local_addr().context("reading the address")?;
    let Some(store) = stop
        .run_until_cancelled(store::open_within(
            &config.store,
            &config.fleet,
            config.store_max,
        ))
        .await
    else {
        return Ok(());
    };
    let store = store.with_context(|| format!("opening {}", config.store))?;
    let admission = match (config.is_open, listen.ip().is_loopback()) {
        (false, _) => "clients need a key",
        (true, true) => "open to this machine",
        (true, false) => "OPEN to the network: anyone on it can act as any agent",
    };
    tracing::info!(
        "serving the fleet {} on {address} with {}; {admission}",
        config.fleet,
        config.store
    );
    run(listener, config, store, stop).await
}

fn refused_to_listen(listen: SocketAddr, error: std::io::Error) -> anyhow::Error {
    let advice = match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!(
                ": another coordinator or program listens there; `ss -ltnp 'sport = :{}'` names it; stop that one, or \
                 choose another port with --listen",
                listen.port()
            )
        }
        std::io::ErrorKind::AddrNotAvailable => {
            ": that is not an address of this machine; 0.0.0.0 means all of its addresses"
                .to_owned()
        }
        _ => String::new(),
    };
    anyhow::Error::new(error).context(format!("cannot listen on {listen}{advice}"))
}

/// Performs an action other than serving, and prints the result.
async fn ask(action: &Action, settings: ServeFlags) -> anyhow::Result<()> {
    let answer = match action {
        Action::Health => {
            eprintln!("{}", harmless(&ask_health(&settings).await?, true));
            return Ok(());
        }
        Action::Backup { file } => back_up(settings, file)?,
        Action::Restore { file, trust_file } => {
            let origin = if *trust_file {
                Origin::Any
            } else {
                Origin::Own
            };
            restore(settings, file, origin)?
        }
        Action::Notify(command) => {
            let report = |line: &str| eprintln!("{}", harmless(line, true));
            command.run(&settings, report).await?
        }
        Action::Audit(audit) => audit.ask(&settings.data_dir()?, settings.listen).await?,
        Action::Admin(request) => {
            request
                .ask(
                    &settings.data_dir()?,
                    settings.listen,
                    settings.command.as_deref(),
                )
                .await?
        }
    };
    match writeln!(std::io::stdout(), "{}", harmless(&answer, true)) {
        // A reader such as `head` has closed the pipe early.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("printing the answer"),
    }
}

/// Returns the number of worker threads. One core is left to the store, and a single worker needs no wake-ups of others.
fn workers() -> usize {
    std::thread::available_parallelism()
        .map_or(1, |cores| cores.get() - 1)
        .max(1)
}

/// Cancels `stop` at the first SIGTERM or SIGINT; returns an error at the second one without waiting.
async fn stop_on_signals(stop: &CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    for _ in 0..2 {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        stop.cancel();
    }
    bail!("stopped immediately by a second signal")
}
