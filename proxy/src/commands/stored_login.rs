//! The login that is stored on this host: how it is found in its file, and ended at its coordinators.

use std::io;

use c3po_shared::login;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::text::harmless;

use super::failure::Failure;
use crate::config::{Config, PERSON_FILE, PersonLogin, as_written};
use crate::link::Trust;
use crate::link::http::delete;

/// Returns the content of the file, and the configuration with its login, if it has another content now.
///
/// Errors: it cannot be read.
pub(super) fn changed(config: &Config, before: &[u8]) -> io::Result<Option<(Config, Vec<u8>)>> {
    let content = config.places.settings.own_content(PERSON_FILE)?;
    let content = content.filter(|content| content != before);
    Ok(content.map(|content| (config.with_present_login(), content)))
}

/// Returns the login of the file with that text, or each one in it if the file is not accepted or had another text when the
/// configuration was read.
pub(super) fn stored(config: &Config, text: &str) -> Vec<PersonLogin> {
    let login = config.person.login.as_ref();
    let known = login.filter(|login| text.contains(login.token.expose()));
    known.map_or_else(
        || PersonLogin::refused(text, &config.coordinators),
        |login| vec![login.clone()],
    )
}

/// Returns whether these are all logins of the file with that text, as far as they can be read.
pub(super) fn are_all(logins: &[PersonLogin], text: &str) -> bool {
    let is_some = !logins.is_empty() || text.trim().is_empty();
    is_some && logins.len() < PersonLogin::REFUSED_MAX
}

/// How the end of a login went.
#[derive(Debug)]
pub(super) enum Ended {
    /// It is revoked now.
    Now,
    /// Each of its coordinators has answered that it has no such login.
    Before,
    /// A coordinator gave another answer or none, or got no token.
    Not(Failure),
}

impl Ended {
    /// Returns whether the login has ended. A token in a file that is not accepted may be damaged, so its refusal does not
    /// show that.
    pub(super) fn is_over(&self, config: &Config) -> bool {
        match self {
            Self::Now => true,
            Self::Before => config.person.login.is_some(),
            Self::Not(_) => false,
        }
    }

    /// Returns why it has not ended, if that is known.
    pub(super) fn failure(self) -> Option<Failure> {
        match self {
            Self::Not(failure) => Some(failure),
            Self::Now | Self::Before => None,
        }
    }
}

/// How to find a login whose id is not known.
pub(super) const LISTED: &str = "`c3po-coordinator logins list` on the coordinator's machine shows this host's logins, and `c3po-coordinator \
                      logins revoke ID` ends one.";

/// Returns how to revoke a login on the machine of the coordinator. Several are in a file that is not accepted only, and then
/// others may have written their ids.
pub(super) fn by_hand(logins: &[PersonLogin]) -> String {
    let [login] = logins else {
        return LISTED.to_owned();
    };
    let command = revocation(login);
    format!("run `{command}` on the coordinator's machine.")
}

/// Returns the command that revokes a login on the machine of its coordinator.
pub(super) fn revocation(login: &PersonLogin) -> String {
    let id = harmless(id_of(login), false);
    format!("c3po-coordinator logins revoke {id}")
}

fn id_of(person: &PersonLogin) -> &str {
    let token = person.token.expose();
    let rest = token.strip_prefix(login::TOKEN_PREFIX);
    rest.and_then(|rest| rest.split_once('_'))
        .map_or("", |(id, _)| id)
}

/// Revokes the login at the first of its coordinators that has it.
pub(super) async fn end(person: &PersonLogin) -> Ended {
    let urls = person.urls();
    if urls.is_empty() {
        return Ended::Not(Failure::Stopped {
            why: "no coordinator got the token: its file is not accepted or names none, and config.toml names none, \
                  or none that stands in that file, or the environment another one"
                .to_owned(),
            advice: LISTED.to_owned(),
        });
    }
    let path = format!("{}/{}", login::LOGINS_PATH, id_of(person));
    let bearer = format!("Bearer {}", person.token.expose());
    let mut ended = Ended::Before;
    for target in &urls {
        let url = as_written(target);
        let trust = Trust::new(person.certificates().to_vec());
        let refused = match delete(&url, &trust, &path, &[("Authorization", &bearer)]).await {
            Ok((200, _)) => return Ended::Now,
            Ok((status, answer)) => refusal(&url, status, &answer),
            // No coordinator has answered: a wrong certificate is UNAUTHORIZED too.
            Err(away) => {
                ended = Ended::Not(away.into());
                continue;
            }
        };
        if !matches!(
            refused.code,
            ErrorCode::Unauthorized | ErrorCode::LoginNotFound
        ) {
            ended = Ended::Not(refused.into());
        }
    }
    ended
}

pub(super) fn refusal(url: &str, status: u16, answer: &str) -> Refusal {
    serde_json::from_str(answer).unwrap_or_else(|_| {
        let error = format!("{url} answers, but not as a coordinator with logins: HTTP {status}");
        Refusal::new(ErrorCode::NotSupported, error)
            .suggest("Check the URL and the version of the coordinator.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_login_of_a_text_is_the_one_that_stands_in_it() {
        let mut config = Config::of_file("coordinator_url = \"https://nas:8420\"\n");
        let text = |token: &str| {
            format!("coordinator_url = \"https://nas:8420\"\ntoken = \"c3po-login_{token}\"\n")
        };
        let (older, newer) = (text("0a1b2c3d_old"), text("0a1b2c3e_new"));
        config.person.login = stored(&config, &older).pop();
        for (text, id) in [(&older, "0a1b2c3d"), (&newer, "0a1b2c3e")] {
            let found = stored(&config, text);
            assert_eq!(found.iter().map(id_of).collect::<Vec<_>>(), [id]);
        }
    }
}
