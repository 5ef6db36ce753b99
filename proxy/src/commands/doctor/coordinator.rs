//! Checks the coordinator, and sends real messages through it to a session that the doctor simulates.

use std::time::{Duration, Instant};

use c3po_shared::catalogue::{Call, Nothing, Pong};
use c3po_shared::ids::AgentId;
use c3po_shared::limits::CLOCK_SKEW;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::time::Timestamp;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::canary::{Canary, CanaryOutcome};
use super::report::Report;
use crate::commands::failure::Failure;
use crate::commands::rest;
use crate::commands::session::CommandSession;
use crate::commands::words;
use crate::config::{Config, Coordinators, as_written};
use crate::link::{Trust, http};

/// How long removing an agent may take.
const FORGET_MAX: Duration = Duration::from_secs(2);

/// The advice about a policy file that is not in force.
const OUTDATED: &str = "`c3po policy show` with a key of scope operator, or the coordinator's log, reports the reason. \
                        Fix the file; it is read again within a second.";

/// The advice about pushes that fail.
const PUSHES: &str = "Run `c3po-coordinator notify test` on the coordinator's machine; its log reports the reason, too.";

/// The part of `GET /api/health` that is checked.
#[derive(Deserialize)]
struct HealthChecked {
    #[serde(default)]
    policy_outdated: bool,
    #[serde(default)]
    pushes_fail: bool,
}

/// The name of each way into a session.
const RUNGS: [&str; 3] = ["by a wait", "by a hook", "by a waiter"];

pub(super) async fn examine(config: &Config, report: &mut Report<'_>) -> Result<(), Failure> {
    if config.coordinators.urls.len() > 1 {
        each(config, report).await?;
    }
    settings(config, report).await?;
    let mark = Uuid::new_v4().simple().to_string();
    let played = AgentId::from_any(&format!("doctor-{}", &mark[..8]))
        .expect("a word and digits are an agent id");
    let outcome = CommandSession::with(config.clone(), false, async |session| {
        let coordinator = tell_coordinator(session, report, &config.host).await?;
        let outcomes = canaries(session, &played).await;
        Ok((coordinator, outcomes))
    });
    let (coordinator, outcomes) = match outcome.await {
        Ok(found) => found,
        // The key's names matter for sessions, which report that themselves.
        Err(Failure::Refused(refusal)) if refusal.code == ErrorCode::Forbidden => {
            report.ok(
                "coordinator",
                "it answers, and accepts the key of this host",
            )?;
            let why = format!("not with this key: {}", refusal.error);
            return RUNGS.iter().try_for_each(|rung| report.skip(rung, &why));
        }
        Err(Failure::NoCoordinator(refusal) | Failure::Refused(refusal)) => {
            report.fail(
                "coordinator",
                refusal.to_string(),
                &words::suggestion(&refusal),
            )?;
            return RUNGS
                .iter()
                .try_for_each(|rung| report.skip(rung, "needs a coordinator"));
        }
        Err(failure) => return Err(failure),
    };
    // An agent that is not forgotten stays on the list as an offline name and does no harm.
    let _ = timeout(FORGET_MAX, forget(config, &coordinator, &played)).await;
    for (rung, outcome) in RUNGS.into_iter().zip(outcomes) {
        match outcome {
            CanaryOutcome::Seen(found) => report.ok(rung, found)?,
            CanaryOutcome::Lost(found) => report.fail(rung, &found, about(&found))?,
            CanaryOutcome::Untried(why) => report.skip(rung, why)?,
        }
    }
    Ok(())
}

/// Warns if the coordinator's policy file is not in force, or if pushes to people fail. The following checks find other
/// problems.
async fn settings(config: &Config, report: &mut Report<'_>) -> Result<(), Failure> {
    match rest::get::<HealthChecked>(config, "/api/health", &json!({})).await {
        Ok(answer) => {
            if answer.read.policy_outdated {
                let found = "the coordinator's current policy file is invalid; the previous rules stay in force";
                report.warn("policy", found, OUTDATED)?;
            }
            if answer.read.pushes_fail {
                let found = "pushes to the phone of a person fail, or notify.toml is invalid";
                report.warn("pushes", found, PUSHES)?;
            }
            Ok(())
        }
        Err(_) => Ok(()),
    }
}

/// Returns the next step for a message that was lost on its way.
fn about(found: &str) -> &'static str {
    if found.contains(ErrorCode::RateLimited.as_str()) {
        "Nothing is broken: wait a minute, then run `c3po doctor` again."
    } else {
        "See the lines above; `C3PO_LOG=debug c3po doctor` logs more."
    }
}

/// Tests every coordinator alone: all of them must work, since one replaces another.
async fn each(config: &Config, report: &mut Report<'_>) -> Result<(), Failure> {
    for target in &config.coordinators.urls {
        let coordinators = Coordinators {
            urls: vec![target.clone()],
            ..config.coordinators.clone()
        };
        let only = Config {
            coordinators,
            ..config.clone()
        };
        let url = as_written(target);
        match CommandSession::with(only, false, async |_| Ok(())).await {
            Ok(()) => report.ok("url", format!("{url} answers, and accepts this host"))?,
            // The key's names do not matter here.
            Err(Failure::Refused(refusal)) if refusal.code == ErrorCode::Forbidden => {
                report.ok(
                    "url",
                    format!("{url} answers, and accepts the key of this host"),
                )?;
            }
            Err(Failure::NoCoordinator(refusal) | Failure::Refused(refusal)) => {
                report.fail(
                    "url",
                    format!("{url}: {refusal}"),
                    &words::suggestion(&refusal),
                )?;
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

/// Reports the coordinator and its round-trip time; returns its URL.
async fn tell_coordinator(
    session: &CommandSession,
    report: &mut Report<'_>,
    said: &str,
) -> Result<String, Failure> {
    // The first call is slower than all others.
    session.call::<Pong>(Call::Ping(Nothing {})).await?;
    let (began, sent) = (Instant::now(), Timestamp::now());
    let (pong, _) = session.call::<Pong>(Call::Ping(Nothing {})).await?;
    let round_trip = began.elapsed();
    let middle = Timestamp::from_millis(
        sent.millis() + u64::try_from(round_trip.as_millis() / 2).unwrap_or(0),
    );
    let coordinator = session.status().coordinator;
    let round_trip_ms = round_trip.as_secs_f64() * 1e3;
    report.ok(
        "coordinator",
        format!(
            "{coordinator}, {}, round trip {round_trip_ms:.2} ms",
            pong.coordinator
        ),
    )?;
    if let Some(host) = session
        .status()
        .welcome
        .and_then(|welcome| welcome.host)
        .filter(|host| *host != said)
    {
        report.ok(
            "host",
            format!("{host}, from its key; the name {said} is ignored"),
        )?;
    }
    let ahead_ms = middle.millis_ahead_of(pong.timestamp);
    let found = clock(ahead_ms, round_trip);
    if apart(ahead_ms) > CLOCK_SKEW {
        report.warn(
            "clock",
            found,
            "Set both clocks by NTP: times in receipts are the coordinator's.",
        )?;
    } else {
        report.ok("clock", found)?;
    }
    Ok(coordinator)
}

/// Returns the difference between two clocks.
fn apart(ahead_ms: i64) -> Duration {
    Duration::from_millis(ahead_ms.unsigned_abs())
}

/// Returns which clock is behind the other and by how much, if the difference exceeds the uncertainty of the round trip.
fn clock(ahead_ms: i64, round_trip: Duration) -> String {
    let apart = apart(ahead_ms);
    if apart <= round_trip + Duration::from_millis(1) {
        return "this host's agrees with the coordinator's".to_owned();
    }
    let (behind, ahead) = if ahead_ms < 0 {
        ("this host's", "the coordinator's")
    } else {
        ("the coordinator's", "this host's")
    };
    format!("{behind} is {} behind {ahead}", length(apart))
}

/// Returns a duration as text, in its two largest units.
fn length(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        0 => format!("{} ms", time.as_millis()),
        1..120 => format!("{:.1} s", time.as_secs_f64()),
        120..7_200 => format!("{minutes} min {} s", seconds % 60),
        7_200..172_800 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// Sends a message by each way into our own session. If one is lost, the next is tested all the same.
async fn canaries(session: &CommandSession, played: &AgentId) -> [CanaryOutcome; 3] {
    let mut canary = match Canary::start(played).await {
        Ok(canary) => canary,
        Err(why) if format!("{why:#}").contains(ErrorCode::Forbidden.as_str()) => {
            let untried =
                || CanaryOutcome::Untried(format!("the key of this host does not cover {played}"));
            return [untried(), untried(), untried()];
        }
        Err(why) => {
            let untried = || CanaryOutcome::Untried("needs a proxy".to_owned());
            return [
                CanaryOutcome::Lost(format!("a test proxy: {why:#}")),
                untried(),
                untried(),
            ];
        }
    };
    let outcomes = [
        canary.by_wait(session).await,
        canary.by_hook(session).await,
        canary.by_waiter(session).await,
    ]
    .map(CanaryOutcome::from);
    canary.end().await;
    outcomes
}

/// Removes an agent from the coordinator's list, as soon as its session has ended there too.
async fn forget(config: &Config, coordinator: &str, agent: &AgentId) -> Result<(), Refusal> {
    /// How long the coordinator has to read the goodbye.
    const PAUSE: Duration = Duration::from_millis(10);
    let trust = Trust::new(config.coordinators.fingerprints.clone());
    let bearer = config
        .coordinators
        .token
        .as_ref()
        .map(|token| format!("Bearer {}", token.expose()));
    let mut headers = vec![("X-Agent-ID", agent.as_str())];
    headers.extend(bearer.as_deref().map(|bearer| ("Authorization", bearer)));
    while http::post_json(coordinator, &trust, "/api/unregister", &headers, "")
        .await?
        .0
        == 409
    {
        sleep(PAUSE).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_that_is_behind_is_named() {
        let check = |ahead_ms, expected: &str| {
            assert_eq!(clock(ahead_ms, Duration::from_millis(10)), expected)
        };
        check(11, "this host's agrees with the coordinator's");
        check(-11, "this host's agrees with the coordinator's");
        check(12, "the coordinator's is 12 ms behind this host's");
        check(-7_260, "this host's is 7.3 s behind the coordinator's");
        check(
            -3_600_000,
            "this host's is 60 min 0 s behind the coordinator's",
        );
        check(
            90_000_000,
            "the coordinator's is 25 h 0 min behind this host's",
        );
        check(
            i64::from(u32::MAX) * 1_000,
            "the coordinator's is 49710 d 6 h behind this host's",
        );
    }
}
