//! `c3po policy check`: what the coordinator's rules say of a case, and which of them.

use c3po_shared::ids::AgentId;
use c3po_shared::policy::{Effect, PolicyAnswer, PolicyParty, PolicyQuestion, Verb};
use c3po_shared::text::harmless;
use clap::Subcommand;

use super::completions;
use super::failure::Failure;
use super::print::{Printer, Tone};
use super::rest::{self, Answer};
use crate::config::Config;

/// What can be asked of the policy.
#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Show whether FROM may do VERB to TO, and by which rule; the exit code is 1 where not
    Check {
        /// Who would do it
        #[arg(add = completions::agents())]
        from: AgentId,
        /// To whom
        #[arg(add = completions::agents())]
        to: AgentId,
        /// What: message, reply or broadcast
        verb: Verb,
    },
}

pub(super) async fn run(config: Config, printer: &Printer, action: Action) -> Result<(), Failure> {
    let Action::Check { from, to, verb } = action;
    let question = PolicyQuestion { from, to, verb };
    let Answer { read: answer, raw, .. } = rest::get::<PolicyAnswer>(&config, "/api/policy/check", &question).await?;
    let is_allowed = answer.effect == Effect::Allow;
    if printer.json {
        printer.document(&raw)?;
    } else {
        explain(printer, &answer)?;
    }
    if is_allowed { Ok(()) } else { Err(Failure::No) }
}

fn explain(printer: &Printer, answer: &PolicyAnswer) -> Result<(), Failure> {
    let tone = if answer.effect == Effect::Allow { Tone::Good } else { Tone::Alarm };
    let effect = printer.tinted(tone, answer.effect.as_str());
    let (from, to) = (party(&answer.from), party(&answer.to));
    printer.line(&format!("{effect}  {} from {from} to {to}", answer.verb))?;
    let who = answer.rule.map_or_else(|| "default".to_owned(), |rule| format!("rule {rule}"));
    let reason = harmless(&answer.reason, false);
    printer.line(format!("  {who}: {reason}").trim_end_matches([':', ' ']))
}

/// Returns a side of the question with what the coordinator knows of it.
fn party(party: &PolicyParty) -> String {
    if !party.known {
        return format!("{} (nobody has that name yet)", party.id);
    }
    let role = party.role.as_ref().map(|role| format!("role {}", harmless(role, false)));
    let host = party.host.as_ref().map(|host| format!("host {}", harmless(host, false)));
    let known: Vec<_> = role.into_iter().chain(host).collect();
    if known.is_empty() { party.id.to_string() } else { format!("{} ({})", party.id, known.join(", ")) }
}
