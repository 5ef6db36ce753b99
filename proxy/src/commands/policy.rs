//! `c3po policy`: the coordinator's rules, and their decision about a case.

use c3po_shared::ids::AgentId;
use c3po_shared::policy::{Effect, PolicyAnswer, PolicyInForce, PolicyParty, PolicyQuestion, Verb};
use c3po_shared::text::harmless;
use clap::Subcommand;
use serde_json::json;

use super::completions;
use super::failure::Failure;
use super::print::{Printer, Tone};
use super::rest::{self, RestReply};
use crate::config::Config;

/// Questions about the policy.
#[derive(Debug, Subcommand)]
pub(super) enum PolicyAction {
    /// Show the rules in force, and where their file is
    Show,
    /// Show whether FROM may do VERB to TO, and by which rule; exit code 1 if not
    Check {
        /// The sender
        #[arg(add = completions::agents())]
        from: AgentId,
        /// The recipient
        #[arg(add = completions::agents())]
        to: AgentId,
        /// The verb: message, reply or broadcast
        verb: Verb,
    },
}

pub(super) async fn run(
    config: Config,
    printer: &Printer,
    action: PolicyAction,
) -> Result<(), Failure> {
    match action {
        PolicyAction::Show => show(&config, printer).await,
        PolicyAction::Check { from, to, verb } => {
            check(&config, printer, PolicyQuestion { from, to, verb }).await
        }
    }
}

async fn show(config: &Config, printer: &Printer) -> Result<(), Failure> {
    let RestReply {
        read: policy, raw, ..
    } = rest::get::<PolicyInForce>(config, "/api/policy", &json!({})).await?;
    if printer.json {
        return printer.document(&raw);
    }
    warn(policy.outdated.as_deref());
    printer.line(&summary(&policy))?;
    if policy.text.is_empty() {
        Ok(())
    } else {
        printer.line(harmless(&policy.text, true).trim_end())
    }
}

/// Returns the summary as a comment, so that the whole output is a valid file of rules.
fn summary(policy: &PolicyInForce) -> String {
    let path = harmless(&policy.path, false);
    match (policy.rules, policy.text.is_empty()) {
        (_, true) => format!(
            "# no rules are in force; the policy file would be {path} on the coordinator's machine"
        ),
        (1, false) => format!("# 1 rule is in force, from {path} on the coordinator's machine"),
        (count, false) => {
            format!("# {count} rules are in force, from {path} on the coordinator's machine")
        }
    }
}

/// Warns on standard error that the present version of the file is not in force.
fn warn(outdated: Option<&str>) {
    if let Some(why) = outdated {
        let why = harmless(why, false);
        eprintln!(
            "c3po: the current policy file is invalid: {why}; the previous rules stay in force"
        );
    }
}

async fn check(
    config: &Config,
    printer: &Printer,
    question: PolicyQuestion,
) -> Result<(), Failure> {
    let RestReply {
        read: answer, raw, ..
    } = rest::get::<PolicyAnswer>(config, "/api/policy/check", &question).await?;
    let is_allowed = answer.effect == Effect::Allow;
    if printer.json {
        printer.document(&raw)?;
    } else {
        warn(answer.outdated.as_deref());
        explain(printer, &answer)?;
    }
    if is_allowed { Ok(()) } else { Err(Failure::No) }
}

fn explain(printer: &Printer, answer: &PolicyAnswer) -> Result<(), Failure> {
    let tone = if answer.effect == Effect::Allow {
        Tone::Good
    } else {
        Tone::Alarm
    };
    let effect = printer.tinted(tone, answer.effect.as_str());
    let (from, to) = (party(&answer.from), party(&answer.to));
    printer.line(&format!("{effect}  {} from {from} to {to}", answer.verb))?;
    let who = answer
        .rule
        .map_or_else(|| "default".to_owned(), |rule| format!("rule {rule}"));
    let reason = harmless(&answer.reason, false);
    printer.line(format!("  {who}: {reason}").trim_end_matches([':', ' ']))
}

/// Returns a side of the question with the coordinator's facts about it.
fn party(party: &PolicyParty) -> String {
    if !party.known {
        return format!("{} (no agent has that name yet)", party.id);
    }
    let role = party
        .role
        .as_ref()
        .map(|role| format!("role {}", harmless(role, false)));
    let host = party
        .host
        .as_ref()
        .map(|host| format!("host {}", harmless(host, false)));
    let known: Vec<_> = role.into_iter().chain(host).collect();
    if known.is_empty() {
        party.id.to_string()
    } else {
        format!("{} ({})", party.id, known.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_shown_below_their_number_and_their_file() {
        let summary = |rules, text: &str| {
            summary(&PolicyInForce {
                rules,
                path: "/data/policy.toml".into(),
                text: text.into(),
                outdated: None,
            })
        };
        assert_eq!(
            summary(2, "x"),
            "# 2 rules are in force, from /data/policy.toml on the coordinator's machine"
        );
        assert_eq!(
            summary(1, "x"),
            "# 1 rule is in force, from /data/policy.toml on the coordinator's machine"
        );
        assert_eq!(
            summary(0, ""),
            "# no rules are in force; the policy file would be /data/policy.toml on the coordinator's machine"
        );
    }
}
