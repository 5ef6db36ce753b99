//! The next step after a refusal, for a person at a terminal: commands, not tools.

use c3po_shared::ids::AgentId;
use c3po_shared::refusal::{Advice, Refusal};
use c3po_shared::text::shell_word;
use serde_json::Value;
use tokio_tungstenite::tungstenite::http::Uri;

use crate::link::is_loopback;

/// The coordinator of a refusal.
struct Addressed {
    url: String,
    host: String,
    port: u16,
}

impl Addressed {
    fn of(refusal: &Refusal) -> Option<Self> {
        let url = refusal.details.get("coordinator")?.as_str()?;
        let uri: Uri = url.parse().ok()?;
        let port = uri
            .port_u16()
            .unwrap_or(if uri.scheme_str() == Some("https") {
                443
            } else {
                80
            });
        Some(Self {
            url: url.to_owned(),
            host: uri.host()?.to_owned(),
            port,
        })
    }

    /// Returns the machine on which commands for the coordinator are typed.
    fn there(&self) -> String {
        if is_loopback(&self.host) {
            "on this host".to_owned()
        } else {
            format!("on {}", self.host)
        }
    }
}

/// Returns the note of a command that acts under another name than the wished one.
pub(super) fn other_name(agent: &AgentId, wished: &AgentId) -> String {
    format!("c3po: acting as {agent}, because only a login acts as {wished}: see c3po login --help")
}

/// Returns a person's next step.
pub(super) fn suggestion(refusal: &Refusal) -> String {
    let Some(advice) = refusal.advice else {
        return refusal.suggestion.clone();
    };
    match Addressed::of(refusal) {
        Some(place) => of_place(advice, &place).unwrap_or_else(|| general(advice, refusal)),
        None => general(advice, refusal),
    }
}

/// Returns the next step at or about a certain coordinator.
fn of_place(advice: Advice, place: &Addressed) -> Option<String> {
    let (Addressed { host, port, .. }, there) = (place, place.there());
    let (url, name) = (shell_word(&place.url), shell_word(host));
    Some(match advice {
        Advice::NothingListens => format!(
            "Nothing listens on port {port} of {host}. Check {there} whether the coordinator runs (`systemctl status \
             c3po-coordinator`, or `docker compose ps`), or correct the port: `c3po doctor` names the file."
        ),
        Advice::NoAnswer => format!(
            "Check that {host} is up (`ping -c 1 {name}`). If it is, a firewall drops the packets to port {port}: open \
             that port {there}."
        ),
        Advice::SaysNothing => format!(
            "The program on port {port} hangs, or is not the coordinator. Check {there} which one it is: `ss -ltnp \
             'sport = :{port}'`; if it is the coordinator, restart it."
        ),
        Advice::NoRoute => {
            format!(
                "This host has no route to {host}. Check its network or VPN; `ping -c 1 {name}` tests the route."
            )
        }
        Advice::NoSuchHost => format!(
            "The host name {host} does not resolve. Correct it (`c3po doctor` names the file), or use an IP address; \
             `getent hosts {name}` tests the name."
        ),
        Advice::AnotherProgram => format!(
            "Correct the port (`c3po doctor` names the file), or stop that program {there}: `ss -ltnp 'sport = \
             :{port}'` names it."
        ),
        Advice::WriteHttp => format!(
            "If the coordinator should use TLS, start it {there} with `--tls auto`. If not, join this host again with \
             the command that `c3po-coordinator invite` prints there; until then nothing is sent to {url}."
        ),
        Advice::AnotherCertificate => format!(
            "If the coordinator was set up again, run `c3po join {url}` and enter the code that `c3po-coordinator \
             invite` prints {there}. If not, this may be a man-in-the-middle attack."
        ),
        Advice::UnknownCertificate => format!(
            "If the coordinator made its certificate itself, run `c3po join {url}` and enter the code that \
             `c3po-coordinator invite` prints {there}, or set C3PO_FINGERPRINT to the fingerprint in the coordinator's \
             log."
        ),
        Advice::JoinAgain => format!(
            "Join this host: run `c3po join {url}` and enter the code that `c3po-coordinator invite` prints {there}."
        ),
        Advice::StoreAway => format!(
            "Nothing was lost. Check {there} whether its Redis or disk works; the coordinator's log has more \
             (`journalctl -u c3po-coordinator -n 20`, or `docker compose logs coordinator`). It recovers automatically."
        ),
        Advice::StoreFull => format!(
            "Make room {there}: free disk space (`df -h`), or raise maxmemory of its Redis. Reading still works, and \
             nothing was lost."
        ),
        _ => return None,
    })
}

fn general(advice: Advice, refusal: &Refusal) -> String {
    let nearest: Vec<_> = refusal
        .details
        .get("nearest")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .collect();
    match advice {
        Advice::ListAgents if nearest.is_empty() => {
            "Check the spelling of the agent id; `c3po agents` lists all agents."
        }
        Advice::ListAgents => {
            let names: Vec<_> = nearest.into_iter().filter_map(Value::as_str).collect();
            return format!("Did you mean {}? `c3po agents` lists all agents.", names.join(" or "));
        }
        Advice::NameRecipient => "Use an agent id, id@host, or @role; `c3po agents` lists all agents.",
        Advice::Broadcast => "`c3po broadcast TEXT` sends to all agents; @ROLE is all agents with that role.",
        Advice::AskAnother => "Ask another agent (`c3po agents`), try later, or send it with --priority urgent.",
        Advice::UseWholeId => {
            "Use the full id as it was printed; `c3po inbox` shows the messages in your inbox with their ids."
        }
        Advice::ReadThread => {
            "Nothing to do: the sender already has an answer. `c3po thread ID` shows it; to add to it, use `c3po send \
             AGENT TEXT`."
        }
        Advice::AnswerIt => "Answer it with `c3po reply ID TEXT`.",
        Advice::AnswerFirst => "First answer the message of that agent: it is waiting for you.",
        Advice::SendAgain => "Send it again in a few seconds.",
        Advice::ListTools => "`c3po --help` lists the commands.",
        Advice::CoveredName => {
            return format!(
                "Use a name that the key covers, with --as, or get a key for more names: `c3po-coordinator invite \
                 --agents {}` on the coordinator's machine.",
                wanted(refusal).unwrap_or_else(|| "NAME,NAME".to_owned())
            );
        }
        Advice::StartOne
        | Advice::WriteHttps
        | Advice::WriteHttp
        | Advice::AnotherCertificate
        | Advice::UnknownCertificate
        | Advice::JoinAgain
        | Advice::StoreAway
        | Advice::StoreFull
        | Advice::WorkOn
        | Advice::NothingListens
        | Advice::NoAnswer
        | Advice::SaysNothing
        | Advice::NoRoute
        | Advice::NoSuchHost
        | Advice::AnotherProgram => connection(advice),
    }
    .to_owned()
}

/// Returns the next step for a connection or a store that fails.
fn connection(advice: Advice) -> &'static str {
    match advice {
        Advice::StartOne => {
            "Start a coordinator with `make up`, or join this host to one on the network, with the command that \
             `c3po-coordinator invite` prints there. For one without keys at another address, set C3PO_COORDINATOR_URL."
        }
        Advice::WriteHttps => "Use https:// instead of http://; `c3po doctor` names the file.",
        Advice::WriteHttp => {
            "If the coordinator should not use TLS, write http:// instead of https://; `c3po doctor` names the file."
        }
        Advice::AnotherCertificate => {
            "If the coordinator was set up again, join again with the command that `c3po-coordinator invite` prints on \
             its machine. If not, this may be a man-in-the-middle attack."
        }
        Advice::UnknownCertificate => {
            "If the coordinator made its certificate itself, join with the command that `c3po-coordinator invite` \
             prints, or set C3PO_FINGERPRINT to the fingerprint in the coordinator's log."
        }
        Advice::JoinAgain => {
            "Join this host with the command that `c3po-coordinator invite` prints on the coordinator's machine."
        }
        Advice::StoreAway => {
            "Try again in a few seconds; if it keeps failing, check the coordinator's Redis or disk."
        }
        Advice::StoreFull => {
            "The coordinator's store needs more space: its disk, or maxmemory of its Redis. Reading still works."
        }
        _ => "`c3po doctor` reports what is wrong; nothing was lost.",
    }
}

/// Returns the globs of a key that would cover the refused name in addition to those of the present key, quoted for a shell.
fn wanted(refusal: &Refusal) -> Option<String> {
    let globs = refusal
        .details
        .get("agents")?
        .as_array()?
        .iter()
        .filter_map(Value::as_str);
    let globs: Vec<_> = globs
        .chain(refusal.details.get("agent").and_then(Value::as_str))
        .collect();
    Some(shell_word(&globs.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use c3po_shared::catalogue::listing;
    use c3po_shared::refusal::ErrorCode;

    #[test]
    fn no_suggestion_names_a_tool_to_a_person() {
        let mut refusals: Vec<_> = ErrorCode::ALL
            .iter()
            .map(|code| Refusal::new(*code, "no"))
            .collect();
        refusals.extend(
            Advice::ALL
                .iter()
                .map(|advice| Refusal::invalid("no").advise(*advice)),
        );
        let at = |advice: &Advice| {
            Refusal::invalid("no")
                .advise(*advice)
                .detail("coordinator", "https://nas:8420")
        };
        refusals.extend(Advice::ALL.iter().map(at));
        for refusal in refusals {
            let said = suggestion(&refusal);
            for listed in listing() {
                let tool = listed.tool.name();
                assert!(
                    !tool.contains('_') || !said.contains(tool),
                    "{}: {said}",
                    refusal.code
                );
            }
            assert!(
                !said.contains("session") && !said.contains("tools/list"),
                "{}: {said}",
                refusal.code
            );
        }
        let found = suggestion(&Refusal::agent_not_found("a", &["b".parse().unwrap()]));
        assert_eq!(found, "Did you mean b? `c3po agents` lists all agents.");
    }

    #[test]
    fn a_host_name_runs_nothing_in_a_command_of_a_suggestion() {
        let (host, url) = ("$(id).example", "https://$(id).example:8420");
        let mut named = 0;
        for advice in Advice::ALL {
            let refusal = Refusal::invalid("no").advise(*advice);
            let said = suggestion(&refusal.detail("coordinator", url));
            for command in said.split('`').skip(1).step_by(2) {
                let rest = [host, url]
                    .map(shell_word)
                    .iter()
                    .fold(command.to_owned(), |rest, word| rest.replace(word, ""));
                assert!(!rest.contains("$(id)"), "{command}");
                named += usize::from(rest != command);
            }
        }
        assert!(named >= 3, "{named}");
    }

    #[test]
    fn only_a_host_of_its_own_is_advised_to_start_a_coordinator() {
        for advice in Advice::ALL
            .iter()
            .filter(|advice| **advice != Advice::StartOne)
        {
            let refusal = Refusal::invalid("no")
                .advise(*advice)
                .detail("coordinator", "https://127.0.0.1:8420");
            assert!(!suggestion(&refusal).contains("make up"), "{advice}");
        }
    }
}
