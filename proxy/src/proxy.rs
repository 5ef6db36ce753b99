//! The process beside a session: MCP on stdio, the link to the coordinator, and an end within 100 ms.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use c3po_shared::text::harmless;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::deliver::{self, Arrivals, LastHop};
use crate::link::{self, Link};
use crate::local::{self, Rendezvous};
use crate::mcp;
use crate::relay::{FrontDesk, Incoming, Relay, Verdicts};

/// How long the end may take: clients kill a server that is still there after 100 ms.
const END_MAX: Duration = Duration::from_millis(70);

/// Runs the proxy until the client leaves or a signal arrives. An absent coordinator never ends it.
pub async fn run(config: Config) -> anyhow::Result<()> {
    for warning in config.warnings.iter().chain(&config.problems) {
        // On standard error whatever the log filter: it is the only place where a person looks for it.
        // A client that closed it loses the warning, not the session.
        let _ = writeln!(std::io::stderr(), "c3po: {}", harmless(warning, true));
    }
    let stop = CancellationToken::new();
    let settings = mcp::Settings {
        timeout: config.timeout,
        channel: config.channel,
        dialogs: !config.headless && !config.one_shot,
    };
    let place = Rendezvous::beside(config.client, &config.sockets);
    let arrivals = Arc::new(Arrivals::new(&config));
    let verdicts = Arc::new(Verdicts::default());
    let incoming = Incoming::new(verdicts.clone(), arrivals.clone());
    let tracker = TaskTracker::new();
    let link = Link::of_session(config.clone(), Arc::new(incoming));
    let hop = LastHop::new(arrivals, link.clone());
    let relay = Relay::new(
        &config,
        link.clone(),
        verdicts,
        tracker.clone(),
        stop.clone(),
    );
    tracker.spawn(relay.clone().run());
    let desk = FrontDesk::new(hop.clone(), relay);
    let mut signals = Signals::listen().context("listening for signals")?;
    tracker.spawn(link::run(link.clone(), stop.clone()));
    tracker.spawn(link::leftovers::send(link.clone(), stop.clone()));
    tracker.spawn(link::count_questions(link.clone(), stop.clone()));
    tracker.spawn(deliver::run(hop.clone(), stop.clone()));
    match place {
        Ok(place) => {
            let (desk, sockets) = (Arc::new(desk), config.sockets.clone());
            tracker.spawn(local::serve(desk, place, sockets, stop.clone()));
        }
        Err(error) => tracing::warn!("the hooks of this session get no answers: {error}"),
    }
    let serving = tracker.spawn(mcp::serve(link, hop, settings, stop.clone()));
    tracker.close();
    tokio::select! {
        () = stop.cancelled() => {}
        name = signals.next() => tracing::debug!("{name}: ending"),
    }
    stop.cancel();
    if tokio::time::timeout(END_MAX, tracker.wait()).await.is_err() {
        tracing::debug!("some work is still in progress; ending without it");
        return Ok(());
    }
    serving.await.context("serving MCP")?
}

/// The signals that end a session.
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.hang_up.recv() => "SIGHUP",
        }
    }
}
