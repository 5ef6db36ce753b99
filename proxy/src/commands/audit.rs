//! `c3po audit`: what happened, in order, with who and why.

use std::time::Duration;

use c3po_shared::audit::{AuditPage, AuditQuery, Entry};
use c3po_shared::ids::AgentId;
use c3po_shared::limits::AUDIT_PAGE_MAX;
use c3po_shared::text::harmless;
use c3po_shared::time::{Span, Timestamp};

use super::completions;
use super::failure::Failure;
use super::print::Printer;
use super::rest;
use crate::config::Config;

/// How often it is looked whether something happened.
const LOOK: Duration = Duration::from_millis(500);

/// Which part of it.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Go on with what happens from now on; Ctrl-C ends it
    #[arg(long)]
    follow: bool,
    /// Only what happened since: a time such as 2026-01-15T10:30:00Z, or how long ago, such as 10m, 2h or 3d
    #[arg(long)]
    since: Option<Since>,
    /// Only what this agent did, or what was done to it
    #[arg(long, value_name = "NAME", add = completions::agents())]
    agent: Option<AgentId>,
}

/// From when on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Since(Timestamp);

impl std::str::FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<Span>() {
            Ok(ago) => Ok(Self(before(Timestamp::now(), ago.duration()))),
            Err(_) => text.parse().map(Self).map_err(|_| {
                "it is neither a time such as 2026-01-15T10:30:00Z nor how long ago, such as 30s, 10m, 2h or 3d"
                    .to_owned()
            }),
        }
    }
}

fn before(now: Timestamp, ago: Duration) -> Timestamp {
    let ago = u64::try_from(ago.as_millis()).unwrap_or(u64::MAX);
    Timestamp::from_millis(now.millis().saturating_sub(ago))
}

pub(super) async fn run(config: Config, printer: &Printer, arguments: Arguments) -> Result<(), Failure> {
    let Arguments { follow, since, agent } = arguments;
    let since = since.map(|Since(since)| since).or(follow.then(Timestamp::now));
    let query = AuditQuery { after: None, since, agent, limit: Some(AUDIT_PAGE_MAX) };
    tokio::select! {
        ended = every_page(&config, printer, query, follow) => ended,
        pressed = tokio::signal::ctrl_c() => {
            pressed.map_err(|error| Failure::Usage(format!("cannot listen for Ctrl-C: {error}")))
        }
    }
}

/// Prints page after page, until there is no more.
async fn every_page(config: &Config, printer: &Printer, mut query: AuditQuery, follow: bool) -> Result<(), Failure> {
    let mut is_away = false;
    loop {
        let page: AuditPage = match rest::get(config, "/api/audit", &query).await {
            Ok(answer) => answer.read,
            // What began to follow goes on when the coordinator is back.
            Err(Failure::NoCoordinator(refusal)) if follow && query.after.is_some() => {
                if !is_away {
                    eprintln!("c3po: {}; it is asked again until it answers", harmless(&refusal.to_string(), false));
                }
                is_away = true;
                tokio::time::sleep(LOOK).await;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        is_away = false;
        for entry in &page.entries {
            if printer.json { printer.document(entry) } else { printer.line(&line(printer, entry)) }?;
        }
        query.after = Some(page.next);
        match (page.complete, follow) {
            (true, false) => return Ok(()),
            (true, true) => tokio::time::sleep(LOOK).await,
            (false, _) => {}
        }
    }
}

/// Returns an entry as a line: when, what, who to whom, then whatever else there is.
fn line(printer: &Printer, entry: &Entry) -> String {
    let mut words = vec![printer.moment(entry.at), entry.event.to_string()];
    words.extend(entry.agent.as_ref().map(AgentId::to_string));
    words.extend(entry.to.as_ref().map(|to| format!("-> {to}")));
    words.extend(entry.verb.as_ref().map(|verb| harmless(verb, false)));
    words.extend(entry.stage.map(|stage| stage.to_string()));
    words.extend(entry.via.map(|via| format!("via {via}")));
    words.extend(entry.message_id.as_ref().map(ToString::to_string));
    words.extend(entry.about.as_ref().map(|about| format!("answers {about}")));
    words.extend(entry.key.as_ref().map(|key| format!("key {}", harmless(key, false))));
    words.extend(entry.count.map(|count| format!("{count} entries are missing here")));
    words.extend(entry.why.as_ref().map(|why| format!("({})", harmless(why, false))));
    words.join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use c3po_shared::audit::Event;

    #[test]
    fn since_is_a_time_or_how_long_ago() {
        let time = "2026-01-15T10:30:00Z".parse::<Since>().expect("a time");
        assert_eq!(time.0.to_string(), "2026-01-15T10:30:00.000Z");
        assert!("yesterday".parse::<Since>().is_err());
        let (now, since) = (Timestamp::now(), "2h".parse::<Since>().expect("how long ago").0);
        assert!(now.since(since) <= Duration::from_secs(7_200) && now.since(since) > Duration::from_secs(7_100));
        assert!("30000d".parse::<Since>().is_ok_and(|since| since.0.millis() == 0), "before all times");
    }

    #[test]
    fn a_line_says_everything_and_nothing_it_says_can_hurt_a_terminal() {
        let id = |text: &str| text.parse().expect("an id");
        let entry = Entry {
            at: Timestamp::from_millis(0),
            ..Entry::new(Event::Denied).by(&id("a")).to(&id("b")).verb("message").because("no\u{1b}[2J")
        };
        let text = line(&Printer::of_status_line(false, false), &entry);
        assert!(text.contains("denied  a  -> b  message  (no"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
