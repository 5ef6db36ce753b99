//! The login of this host's person, in `person.toml` beside `config.toml`.

use c3po_shared::join::Fingerprint;
use c3po_shared::login::TOKEN_PREFIX;
use serde::Deserialize;

use super::coordinators::{Fingerprints, Source};
use super::folder::{PERSON_FILE, SettingsFolder};
use super::target::{are_among, as_written, targets};
use super::{Coordinators, Secret, private};

/// The advice for a login that others could read.
const NEW_LOGIN: &str = "log in again, which ends this login";

/// The person of this host.
#[derive(Debug, Clone, Default)]
pub struct Person {
    /// The login, if there is one.
    pub login: Option<PersonLogin>,
    /// Whether links and requests use it in place of the host's key.
    pub speaks: bool,
}

impl Person {
    /// Returns the coordinators with the credential for reading people's questions there: the login, or none. A host's key does
    /// not read them.
    pub fn reads_at(&self, coordinators: &Coordinators) -> Option<Coordinators> {
        let coordinators = coordinators.clone();
        let coordinators = match &self.login {
            Some(login) => login.at(coordinators),
            None => coordinators,
        };
        let is_login = |token: &Secret| token.expose().starts_with(TOKEN_PREFIX);
        let may_read = coordinators.token.as_ref().is_none_or(is_login);
        may_read.then_some(coordinators)
    }

    /// Returns the coordinators with the credential to use there.
    pub(super) fn at(&self, coordinators: Coordinators) -> Coordinators {
        match &self.login {
            Some(login) if self.speaks => login.at(coordinators),
            _ => coordinators,
        }
    }
}

/// The login of this host's person.
#[derive(Debug, Clone)]
pub struct PersonLogin {
    /// Its token, for the commands that act as `human`.
    pub token: Secret,
    /// The coordinators that accept it, as written.
    urls: String,
    /// Their certificates when it was made.
    fingerprints: Vec<Fingerprint>,
}

/// The file `person.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PersonFile {
    coordinator_url: String,
    fingerprint: Option<Fingerprints>,
    token: Secret,
}

impl PersonLogin {
    /// Reads the file. A file without a valid login counts as missing, with a warning unless it is empty.
    pub(super) fn read(settings: &SettingsFolder, warnings: &mut Vec<String>) -> Option<Self> {
        let text = settings.own_text(PERSON_FILE).unwrap_or_else(|problem| {
            warnings.push(problem);
            None
        })?;
        if text.trim().is_empty() {
            return None;
        }
        let path = settings.path_of(PERSON_FILE);
        let login = Self::of(&text)
            .map_err(|why| warnings.push(format!("{}: {why}", path.display())))
            .ok()?;
        warnings.extend(private::readable(&path, NEW_LOGIN));
        Some(login)
    }

    /// Parses the text of the file. Errors: it has no login, and why.
    pub fn of(text: &str) -> Result<Self, String> {
        let file: PersonFile = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        if !file.token.expose().starts_with(TOKEN_PREFIX) {
            return Err("its token is not that of a login".to_owned());
        }
        let texts = file.fingerprint.iter().flat_map(Fingerprints::texts);
        let fingerprints =
            texts.map(|text| text.parse().map_err(|error| format!("{text}: {error}")));
        Ok(Self {
            token: file.token,
            urls: file.coordinator_url,
            fingerprints: fingerprints.collect::<Result<_, String>>()?,
        })
    }

    /// How many logins are looked for in a file that is not accepted. Other users may have written any number into it.
    pub const REFUSED_MAX: usize = 8;

    /// Returns the first logins in the text of a file that is not accepted, to be revoked: every token, wherever it stands.
    /// They are for the coordinators of the host's file alone, because other users may have written this one, and a project the
    /// environment. Only one whose certificate stands in this file gets them, or else its address: the host may have joined
    /// another fleet since.
    pub fn refused(text: &str, coordinators: &Coordinators) -> Vec<Self> {
        let lower = text.to_ascii_lowercase();
        // A part of a longer address is another one.
        let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',');
        let stands = |part: &str| {
            let part = part.to_ascii_lowercase();
            let mut rests = lower.split(&part).skip(1);
            rests.any(|rest| rest.is_empty() || rest.starts_with(ends))
        };
        let certificates = coordinators.fingerprints.iter().copied();
        let fingerprints: Vec<_> = certificates
            .filter(|print| stands(&print.to_string()))
            .collect();
        let is_known = |url: &&String| match coordinators.fingerprints.is_empty() {
            // One with certificates is for no coordinator without those.
            true => stands(&as_written(url)) && !lower.contains("sha256:"),
            false => !fingerprints.is_empty(),
        };
        let urls: Vec<_> = match coordinators.source {
            Source::File => coordinators.urls.iter().filter(is_known).cloned().collect(),
            Source::Environment | Source::Overridden => Vec::new(),
        };
        let urls = urls.join(",");
        let is_of_token = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let mut secrets: Vec<&str> = Vec::new();
        for rest in text.split(TOKEN_PREFIX).skip(1) {
            let secret = rest.split(|c| !is_of_token(c)).next().unwrap_or_default();
            let has_id = secret.split_once('_').is_some_and(|(id, _)| !id.is_empty());
            if has_id && !secrets.contains(&secret) && secrets.len() < Self::REFUSED_MAX {
                secrets.push(secret);
            }
        }
        let login = |secret| Self {
            token: Secret(format!("{TOKEN_PREFIX}{secret}")),
            urls: urls.clone(),
            fingerprints: fingerprints.clone(),
        };
        secrets.into_iter().map(login).collect()
    }

    /// Returns the coordinators that accept it, as link URLs.
    pub fn urls(&self) -> Vec<String> {
        targets(&self.urls).unwrap_or_default()
    }

    /// Returns the certificates that identify its coordinators. Those of the host's file may be of another fleet since.
    pub fn certificates(&self) -> &[Fingerprint] {
        &self.fingerprints
    }

    /// Returns whether the login was made with all of these certificates, or neither has any.
    fn accepts(&self, certificates: &[Fingerprint]) -> bool {
        let is_own = |print| self.fingerprints.contains(print);
        certificates.iter().all(is_own) && certificates.is_empty() == self.fingerprints.is_empty()
    }

    /// Returns the warning about a login that goes to none of these coordinators because of their certificates, if the host's
    /// file names them.
    pub(super) fn unused_at(&self, coordinators: &Coordinators) -> Option<String> {
        let is_unused = coordinators.source == Source::File
            && are_among(&coordinators.urls, &self.urls)
            && !self.accepts(&coordinators.fingerprints);
        is_unused.then(|| {
            format!(
                "the login in {PERSON_FILE} is for other certificates than config.toml has, so it is not sent: `c3po logout` \
                 ends it, and `c3po login` makes another"
            )
        })
    }

    /// Returns whether all of these coordinators, of which there is one, accept the login.
    pub fn is_for(&self, urls: &[String], certificates: &[Fingerprint]) -> bool {
        !urls.is_empty() && are_among(urls, &self.urls) && self.accepts(certificates)
    }

    /// Returns the coordinators with this login in place of the host's key, if all of them accept it. Otherwise a project's
    /// environment could name another one, or another certificate, whose server would get the token.
    fn at(&self, coordinators: Coordinators) -> Coordinators {
        if !self.is_for(&coordinators.urls, &coordinators.fingerprints) {
            return coordinators;
        }
        Coordinators {
            token: Some(self.token.clone()),
            ..coordinators
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_login_is_for_its_coordinators_alone() {
        let text =
            "coordinator_url = \"https://nas:8420,https://box:8420\"\ntoken = \"c3po-login_a_b\"\n";
        let login = PersonLogin::of(text).expect("a login");
        let check = |urls: &[&str], expected: Option<&str>| {
            let coordinators = Coordinators {
                urls: urls.iter().map(|url| (*url).to_owned()).collect(),
                ..Coordinators::default()
            };
            let token = login.at(coordinators).token;
            assert_eq!(token.as_ref().map(Secret::expose), expected, "{urls:?}");
        };
        check(&["wss://nas:8420/acp"], Some("c3po-login_a_b"));
        check(
            &["wss://box:8420/acp", "wss://nas:8420/acp"],
            Some("c3po-login_a_b"),
        );
        check(&["ws://nas:8420/acp"], None);
        check(&["wss://nas:8420/acp", "wss://evil:8420/acp"], None);
        check(&[], None);
    }

    #[test]
    fn the_login_is_for_its_certificates_alone() {
        let print = |digit: u8| Fingerprint::of([digit; 32]);
        let text = format!(
            "coordinator_url = \"https://nas:8420\"\nfingerprint = \"{}\"\ntoken = \"c3po-login_a_b\"\n",
            print(1)
        );
        let login = PersonLogin::of(&text).expect("a login");
        let check = |source, fingerprints: &[u8], expected: bool| {
            let coordinators = Coordinators {
                urls: vec!["wss://nas:8420/acp".to_owned()],
                fingerprints: fingerprints.iter().copied().map(print).collect(),
                source,
                ..Coordinators::default()
            };
            let is_sent = login.at(coordinators).token.is_some();
            assert_eq!(is_sent, expected, "{source:?} {fingerprints:?}");
        };
        check(Source::File, &[1], true);
        check(Source::Environment, &[1], true);
        for source in [Source::File, Source::Environment, Source::Overridden] {
            check(source, &[2], false);
            check(source, &[1, 2], false);
            check(source, &[], false);
        }
    }

    #[test]
    fn the_login_of_a_refused_file_goes_to_the_coordinator_of_the_host_alone() {
        let prints = |digits: &[u8]| {
            let prints = digits.iter().map(|digit| Fingerprint::of([*digit; 32]));
            prints.collect::<Vec<_>>()
        };
        let check = |file: (&str, &[u8]), host: (&str, &[u8]), source, expected: bool| {
            let coordinators = Coordinators {
                urls: targets(host.0).expect("a URL"),
                fingerprints: prints(host.1),
                source,
                ..Coordinators::default()
            };
            let pinned = prints(file.1);
            let pinned = pinned
                .iter()
                .map(|print| format!("fingerprint = \"{print}\"\n"));
            let pinned: String = pinned.collect();
            let text = format!(
                "x\ncoordinator_url = \"{}\"\n{pinned}token = \"c3po-login_a_b\"\n",
                file.0
            );
            let logins = PersonLogin::refused(&text, &coordinators);
            let [login] = logins.as_slice() else {
                panic!("{logins:?}");
            };
            assert_eq!(login.token.expose(), "c3po-login_a_b");
            let urls = if expected {
                coordinators.urls
            } else {
                Vec::new()
            };
            assert_eq!(login.urls(), urls, "{file:?} {host:?} {source:?}");
        };
        let (nas, evil, plain) = ("https://nas:8420", "https://evil:8420", "http://nas:8420");
        check((nas, &[1]), (nas, &[1]), Source::File, true);
        check((evil, &[1]), (nas, &[1, 2]), Source::File, true);
        check((nas, &[1]), (nas, &[2]), Source::File, false);
        check((nas, &[1]), (nas, &[]), Source::File, false);
        check((nas, &[]), (nas, &[]), Source::File, true);
        check((nas, &[]), (evil, &[]), Source::File, false);
        check((nas, &[1]), (plain, &[]), Source::File, false);
        check((nas, &[]), (plain, &[]), Source::File, false);
        check((plain, &[]), (plain, &[]), Source::File, true);
        let longer = ["http://nas:84200", "http://nas:8420/b", "http://nas:8420_2"];
        for longer in longer {
            check((longer, &[]), (plain, &[]), Source::File, false);
        }
        check((nas, &[1]), (nas, &[1]), Source::Environment, false);
        check((nas, &[1]), (nas, &[1]), Source::Overridden, false);
    }

    #[test]
    fn the_questions_of_people_are_read_with_a_login_or_without_a_credential() {
        let login =
            PersonLogin::of("coordinator_url = \"http://nas:8420\"\ntoken = \"c3po-login_a_b\"\n");
        let logged_in = Person {
            login: login.ok(),
            speaks: false,
        };
        let check =
            |person: &Person, url: &str, key: Option<&str>, expected: Option<Option<&str>>| {
                let coordinators = Coordinators {
                    urls: vec![url.to_owned()],
                    token: key.map(|key| Secret(key.to_owned())),
                    ..Coordinators::default()
                };
                let read = person.reads_at(&coordinators);
                let token = read
                    .as_ref()
                    .map(|read| read.token.as_ref().map(Secret::expose));
                assert_eq!(token, expected, "{url} {key:?}");
            };
        let (here, other, key) = ("ws://nas:8420/acp", "ws://evil:8420/acp", Some("c3po_a_b"));
        check(&logged_in, here, key, Some(Some("c3po-login_a_b")));
        check(&logged_in, other, key, None);
        check(&logged_in, other, None, Some(None));
        check(&Person::default(), here, key, None);
        check(&Person::default(), here, None, Some(None));
    }

    #[test]
    fn a_file_without_a_token_of_a_login_is_none() {
        for text in [
            "coordinator_url = \"http://nas\"",
            "token = \"c3po-login_a_b\"",
            "coordinator_url = \"http://nas\"\ntoken = \"c3po_a_b\"",
            "coordinator_url = \"http://nas\"\ntoken = \"c3po-login_a_b\"\nmore = 1",
        ] {
            assert!(PersonLogin::of(text).is_err(), "{text}");
        }
    }
}
