//! The next step after a refusal, for a person at a terminal: commands, not tools.

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
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        Some(Self { url: url.to_owned(), host: uri.host()?.to_owned(), port })
    }

    /// Returns the machine on which commands for the coordinator are typed.
    fn there(&self) -> String {
        if is_loopback(&self.host) { "on this host".to_owned() } else { format!("on {}", self.host) }
    }
}

/// Returns a person's next step.
pub(super) fn suggestion(refusal: &Refusal) -> String {
    let Some(advice) = refusal.advice else { return refusal.suggestion.clone() };
    match Addressed::of(refusal) {
        Some(place) => of_place(advice, &place).unwrap_or_else(|| general(advice, refusal)),
        None => general(advice, refusal),
    }
}

/// Returns the next step at or about a certain coordinator.
fn of_place(advice: Advice, place: &Addressed) -> Option<String> {
    let (Addressed { host, port, .. }, there) = (place, place.there());
    let url = shell_word(&place.url);
    Some(match advice {
        Advice::NothingListens => format!(
            "Nothing listens on port {port} of {host}. See {there} whether the coordinator runs (`systemctl status \
             c3po-coordinator`, or `docker compose ps`), or correct the port: `c3po doctor` names the file."
        ),
        Advice::NoAnswer => format!(
            "Is {host} on (`ping -c 1 {host}`)? If so, a firewall drops what is sent to its port {port}: open it {there}."
        ),
        Advice::SaysNothing => format!(
            "What listens on port {port} hangs, or is another program. Look {there}: `ss -ltnp 'sport = :{port}'`; if it is \
             the coordinator, start it again."
        ),
        Advice::NoRoute => {
            format!("This host has no way to {host}: is its network up, or its VPN? `ping -c 1 {host}` tries it.")
        }
        Advice::NoSuchHost => format!(
            "No host is known here as {host}. Correct the name (`c3po doctor` names the file), or write its address; \
             `getent hosts {host}` tries it."
        ),
        Advice::AnotherProgram => format!(
            "Correct the port (`c3po doctor` names the file), or end that program {there}: `ss -ltnp 'sport = :{port}'` \
             names it."
        ),
        Advice::WriteHttp => format!(
            "If the coordinator is to speak TLS, start it {there} with `--tls auto`; if not, let this host in anew with a \
             line of `c3po-coordinator invite` there, and until then nothing is sent to {url}."
        ),
        Advice::AnotherCertificate => format!(
            "If the coordinator was set up anew, `c3po join {url}` asks for the code that `c3po-coordinator invite` prints \
             {there}; if not, somebody may be in between."
        ),
        Advice::UnknownCertificate => format!(
            "If it is the coordinator's own, `c3po join {url}` asks for the code that `c3po-coordinator invite` prints {there}, \
             or set C3PO_FINGERPRINT to the value in the coordinator's log."
        ),
        Advice::JoinAgain => format!(
            "Let this host in: `c3po join {url}` asks for the code that `c3po-coordinator invite` prints {there}."
        ),
        Advice::StoreAway => format!(
            "Nothing was lost. Look {there} whether its Redis or disk is well; the coordinator's log says more \
             (`journalctl -u c3po-coordinator -n 20`, or `docker compose logs coordinator`). It goes on by itself."
        ),
        Advice::StoreFull => format!(
            "Make room {there}: on the disk (`df -h`), or raise Redis' maxmemory. Reading goes on meanwhile, and nothing was \
             lost."
        ),
        _ => return None,
    })
}

fn general(advice: Advice, refusal: &Refusal) -> String {
    let nearest: Vec<_> = refusal.details.get("nearest").and_then(Value::as_array).into_iter().flatten().collect();
    match advice {
        Advice::ListAgents if nearest.is_empty() => "Check the agent's spelling; `c3po agents` lists all of them.",
        Advice::ListAgents => {
            let names: Vec<_> = nearest.into_iter().filter_map(Value::as_str).collect();
            return format!("Did you mean {}? `c3po agents` lists all of them.", names.join(" or "));
        }
        Advice::NameRecipient => "Use an agent id, id@host, or @role; `c3po agents` lists them.",
        Advice::Broadcast => "`c3po broadcast TEXT` sends to all; @role is everybody with a role.",
        Advice::AskAnother => "Ask another agent (`c3po agents`), try later, or send it with --priority urgent.",
        Advice::UseWholeId => "Use the full id as it was printed; `c3po inbox` shows those that wait.",
        Advice::ReadThread => {
            "Nothing to do: the sender has an answer. `c3po thread ID` shows it; `c3po send AGENT TEXT` adds to it."
        }
        Advice::AnswerIt => "Answer it with `c3po reply ID TEXT`.",
        Advice::AnswerFirst => "Answer first the message that is named: its sender waits for you.",
        Advice::SendAgain => "Send it again in a moment.",
        Advice::ListTools => "`c3po --help` lists what there is.",
        Advice::StartOne => {
            "Start one with `make up`, or let this host in at one on the network, with the line that `c3po-coordinator invite` \
             prints there. C3PO_COORDINATOR_URL names another one without a key."
        }
        Advice::WorkOn
        | Advice::NothingListens
        | Advice::NoAnswer
        | Advice::SaysNothing
        | Advice::NoRoute
        | Advice::NoSuchHost
        | Advice::AnotherProgram => "`c3po doctor` reports what is wrong; nothing was lost.",
        Advice::WriteHttps => "Write https:// for http://: `c3po doctor` names the file.",
        Advice::WriteHttp => "Write http:// for https://, if that is meant: `c3po doctor` names the file.",
        Advice::AnotherCertificate => {
            "If the coordinator was set up anew, join with a new line (`c3po-coordinator invite` on its machine); if not, \
             somebody may be in between."
        }
        Advice::UnknownCertificate => {
            "If it is the coordinator's own, join with a line of `c3po-coordinator invite`, or set C3PO_FINGERPRINT to the \
             value in the coordinator's log."
        }
        Advice::JoinAgain => "Let this host in, with a line from `c3po-coordinator invite` on the coordinator's machine.",
        Advice::CoveredName => {
            return format!(
                "Use a name that it covers, with --as, or ask for a key of further names: `c3po-coordinator invite --agents \
                 {}` on the coordinator's machine.",
                wanted(refusal).unwrap_or_else(|| "NAME,NAME".to_owned())
            );
        }
        Advice::StoreAway => "Try again in a few seconds; if it keeps failing, check the coordinator's Redis or disk.",
        Advice::StoreFull => "The coordinator's store needs room: its disk, or maxmemory of its Redis. Reading goes on.",
    }
    .to_owned()
}

/// Returns the globs of a key that would cover the refused name in addition to those of the present key, quoted for a shell.
fn wanted(refusal: &Refusal) -> Option<String> {
    let globs = refusal.details.get("agents")?.as_array()?.iter().filter_map(Value::as_str);
    let globs: Vec<_> = globs.chain(refusal.details.get("agent").and_then(Value::as_str)).collect();
    Some(shell_word(&globs.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use c3po_shared::catalogue::listing;
    use c3po_shared::refusal::ErrorCode;

    #[test]
    fn no_suggestion_names_a_tool_to_a_person() {
        let mut refusals: Vec<_> = ErrorCode::ALL.iter().map(|code| Refusal::new(*code, "no")).collect();
        refusals.extend(Advice::ALL.iter().map(|advice| Refusal::invalid("no").advise(*advice)));
        let at = |advice: &Advice| Refusal::invalid("no").advise(*advice).detail("coordinator", "https://nas:8420");
        refusals.extend(Advice::ALL.iter().map(at));
        for refusal in refusals {
            let said = suggestion(&refusal);
            for listed in listing() {
                let tool = listed.tool.name();
                assert!(!tool.contains('_') || !said.contains(tool), "{}: {said}", refusal.code);
            }
            assert!(!said.contains("session") && !said.contains("tools/list"), "{}: {said}", refusal.code);
        }
        let found = suggestion(&Refusal::agent_not_found("a", &["b".parse().unwrap()]));
        assert_eq!(found, "Did you mean b? `c3po agents` lists all of them.");
    }

    #[test]
    fn only_a_host_of_its_own_is_advised_to_start_a_coordinator() {
        for advice in Advice::ALL.iter().filter(|advice| **advice != Advice::StartOne) {
            let refusal = Refusal::invalid("no").advise(*advice).detail("coordinator", "https://127.0.0.1:8420");
            assert!(!suggestion(&refusal).contains("make up"), "{advice}");
        }
    }
}
