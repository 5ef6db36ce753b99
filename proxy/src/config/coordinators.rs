//! The coordinators' URLs and certificates, this host's key, and whether they get requests of the client: the part of the
//! configuration that a running proxy reads again.

use c3po_shared::join::Fingerprint;
use serde::Deserialize;

use super::Secret;
use super::places::relays;
use super::target::{DEFAULT_URL, are_among, targets};

/// The coordinators' URLs and certificates, this host's key, and whether they get requests of the client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coordinators {
    /// The URLs as `ws://…/acp` or `wss://…/acp`, in the order in which they are tried.
    ///
    /// `C3PO_COORDINATOR_URL`, `coordinator_url`; default [`DEFAULT_URL`].
    pub urls: Vec<String>,
    /// The key of this host: `C3PO_TOKEN`, `token`; default none.
    pub token: Option<Secret>,
    /// The certificates that identify coordinators: `C3PO_FINGERPRINT`, `fingerprint`; default none, which means that the
    /// system's authorities and the name in the certificate decide.
    pub fingerprints: Vec<Fingerprint>,
    /// Where the URLs and certificates come from.
    pub source: Source,
    /// Whether the environment has another key than the file, such as one of another host.
    pub replaces_key: bool,
    /// Whether requests of the client are relayed: `C3PO_RELAY_PERMISSIONS`, or `relay_permissions` with a terminal.
    pub relays: bool,
}

/// Where the URLs and certificates of the coordinators come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Source {
    /// From the file or the defaults; the environment names no others.
    #[default]
    File,
    /// From the environment; the file names none.
    Environment,
    /// From the environment, which names others than the file does.
    Overridden,
}

impl Source {
    /// Returns whether requests are relayed to coordinators of this source, by the variable and by the file. Verdicts come from
    /// the coordinators of the host, and a project may have set the variables.
    fn relays(self, by_variable: Option<bool>, by_file: bool) -> bool {
        match self {
            Self::File => by_variable.unwrap_or(by_file),
            Self::Environment => by_variable == Some(true),
            Self::Overridden => false,
        }
    }
}

/// Their values in the file.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) urls: Option<String>,
    pub(super) token: Option<Secret>,
    pub(super) fingerprints: Option<Fingerprints>,
    /// Whether the file turns the relay on, and whether it does so for this process.
    pub(super) relay_is_on: bool,
    pub(super) relays: bool,
    /// Whether the file cannot be used, so that its values are not known.
    pub(super) is_refused: bool,
}

/// Fingerprints as the file has them: one text, or a list.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Fingerprints {
    /// One, or several separated by commas.
    One(String),
    Several(Vec<String>),
}

impl Fingerprints {
    pub(super) fn texts(&self) -> Vec<&str> {
        let texts = match self {
            Self::One(text) => text.split(',').collect::<Vec<_>>(),
            Self::Several(texts) => texts.iter().map(String::as_str).collect(),
        };
        texts
            .into_iter()
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .collect()
    }

    /// Returns whether each of them is in the file too.
    fn are_among(&self, file: Option<&Self>) -> bool {
        let written = file.map(Self::texts).unwrap_or_default();
        self.texts()
            .iter()
            .all(|text| written.iter().any(|known| known.eq_ignore_ascii_case(text)))
    }
}

/// Parses the named fingerprints.
fn read_all(named: Option<&Fingerprints>, problems: &mut Vec<String>) -> Vec<Fingerprint> {
    let texts = named
        .map(Fingerprints::texts)
        .unwrap_or_default()
        .into_iter();
    let parsed = texts.map(|text| {
        text.parse()
            .map_err(|error| problems.push(format!("C3PO_FINGERPRINT is '{text}': {error}")))
    });
    parsed.filter_map(Result::ok).collect()
}

impl Coordinators {
    /// Reads them from the environment, else from the file. The file's token is for the coordinators of the file: a project's
    /// environment may name another one, and must not send the token there.
    pub(super) fn read(
        variable: &dyn Fn(&str) -> Option<String>,
        file: Written,
        problems: &mut Vec<String>,
    ) -> Self {
        let file_names_any = file.urls.is_some() || file.fingerprints.is_some() || file.is_refused;
        let written = file.urls.unwrap_or_else(|| DEFAULT_URL.to_owned());
        let named = variable("C3PO_COORDINATOR_URL");
        let is_named = named.is_some();
        let mut urls = targets(named.as_deref().unwrap_or(&written)).unwrap_or_else(|problem| {
            problems.push(problem);
            Vec::new()
        });
        if file.is_refused {
            // The file may name a coordinator and its certificate, and any user of this machine may run the default one.
            urls.clear();
        }
        // One without a fingerprint, such as ",", must not remove those of the file.
        let pinned = variable("C3PO_FINGERPRINT")
            .map(Fingerprints::One)
            .filter(|pinned| !pinned.texts().is_empty());
        let is_of_file = named.is_none_or(|_| are_among(&urls, &written))
            && pinned
                .as_ref()
                .is_none_or(|pinned| pinned.are_among(file.fingerprints.as_ref()));
        let pinned = pinned.or(file.fingerprints);
        let fingerprints = read_all(pinned.as_ref(), problems);
        if pinned.is_some_and(|pinned| pinned.texts().len() > fingerprints.len()) {
            // Without its fingerprint, any server with a certificate of the authorities would get the key.
            urls.clear();
        }
        if !fingerprints.is_empty()
            && let Some(plain) = urls.iter().find(|url| url.starts_with("ws://"))
        {
            // The key would be sent in the clear, to any server there.
            problems.push(format!(
                "{plain} does not use TLS, but this host has the fingerprint of a certificate: write https://, or \
                 remove C3PO_FINGERPRINT (fingerprint in config.toml)"
            ));
            urls.retain(|url| !url.starts_with("ws://"));
        }
        let of_variable = variable("C3PO_TOKEN").map(|text| Secret(text.trim().to_owned()));
        let replaces_key =
            of_variable.is_some() && file.token.is_some() && of_variable != file.token;
        let of_file = file.token.filter(|_| is_of_file);
        let token = of_variable.or(of_file);
        // Any user of this machine may run the default coordinator.
        let is_counted = file_names_any || is_named || file.relay_is_on;
        let by_variable = relays(variable).filter(|on| !on || is_counted);
        let source = match is_of_file {
            true => Source::File,
            false if file_names_any => Source::Overridden,
            false => Source::Environment,
        };
        Self {
            urls,
            token,
            fingerprints,
            source,
            replaces_key,
            relays: source.relays(by_variable, file.relays),
        }
    }

    /// Returns the warning about the variable for relayed requests if it does not count for these coordinators.
    pub(super) fn problem_of_relay(
        &self,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Option<String> {
        let is_ignored = relays(variable) == Some(true) && !self.relays;
        is_ignored.then(|| {
            "C3PO_RELAY_PERMISSIONS is set, but does not count: config.toml names no coordinator and turns no relay on, \
             or the environment names another one"
                .to_owned()
        })
    }

    /// Returns these for a file that is gone or invalid since: it turns no relay on.
    pub(super) fn without_file(self, variable: &dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            relays: self.relays && relays(variable) == Some(true),
            ..self
        }
    }

    /// Returns whether all those others are among these, by URLs and certificates.
    pub fn cover(&self, others: &Self) -> bool {
        let accepts = |print| self.fingerprints.contains(print);
        others.urls.iter().all(|url| self.urls.contains(url))
            && others.fingerprints.iter().all(accepts)
            // Without a fingerprint, the authorities accepted the certificate.
            && others.fingerprints.is_empty() == self.fingerprints.is_empty()
    }

    /// Returns the id in the host's key; `None` without a key.
    pub fn key_id(&self) -> Option<&str> {
        self.token
            .as_ref()?
            .expose()
            .strip_prefix(KEY_PREFIX)?
            .split_once('_')
            .map(|(id, _)| id)
    }

    /// Returns whether they are the default one, at its own place.
    pub(super) fn are_default(&self) -> bool {
        targets(DEFAULT_URL).is_ok_and(|default| default == self.urls)
    }

    /// Returns whether this host has joined a coordinator. Such a coordinator is not started by this host.
    pub fn is_joined(&self) -> bool {
        self.key_id().is_some() || !self.fingerprints.is_empty()
    }
}

/// The first characters of every key.
const KEY_PREFIX: &str = "c3po_";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)], file: &str) -> (Coordinators, Vec<String>) {
        let variable = |name: &str| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        };
        let (mut problems, file) = (
            Vec::new(),
            toml::from_str::<super::super::File>(file).unwrap(),
        );
        let read = Coordinators::read(&variable, file.coordinators(true), &mut problems);
        (read, problems)
    }

    fn print(digits: &str) -> String {
        format!("sha256:{}", digits.repeat(32))
    }

    #[test]
    fn a_fingerprint_is_one_or_a_problem_and_no_use_without_tls() {
        let url = ("C3PO_COORDINATOR_URL", "https://nas:8420");
        let (found, problems) = read(
            &[url, ("C3PO_FINGERPRINT", &print("ab"))],
            "fingerprint = \"sha256:no\"\n",
        );
        assert_eq!(
            found
                .fingerprints
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
            [print("ab")]
        );
        assert_eq!(problems, Vec::<String>::new());
        let (found, problems) = read(&[url], "fingerprint = \"sha256:no\"\n");
        assert!(found.fingerprints.is_empty() && problems[0].contains("64 hexadecimal digits"));
        assert_eq!(found.urls, Vec::<String>::new(), "no server gets the key");
        let urls = (
            "C3PO_COORDINATOR_URL",
            "http://nas:8420,https://laptop:8420",
        );
        let (found, problems) = read(&[urls, ("C3PO_FINGERPRINT", &print("ab"))], "");
        assert!(
            problems[0].contains("ws://nas:8420/acp does not use TLS"),
            "{problems:?}"
        );
        assert_eq!(
            found.urls,
            ["wss://laptop:8420/acp"],
            "the key would be said in the clear"
        );
    }

    #[test]
    fn several_fingerprints_are_a_list_or_stand_between_commas() {
        let (one, other) = (print("ab"), print("cd"));
        let check = |variables: &[(&str, &str)], file: &str| {
            let url = [(
                "C3PO_COORDINATOR_URL",
                "https://nas:8420,https://laptop:8420",
            )];
            let (found, problems) = read(&[url.as_slice(), variables].concat(), file);
            let found: Vec<_> = found.fingerprints.iter().map(ToString::to_string).collect();
            assert_eq!(
                (found, problems),
                (vec![one.clone(), other.clone()], Vec::new()),
                "{file}"
            );
        };
        check(&[], &format!("fingerprint = [\"{one}\", \"{other}\"]\n"));
        check(&[], &format!("fingerprint = \"{one},{other}\"\n"));
        check(
            &[("C3PO_FINGERPRINT", &format!("{one}, {other}"))],
            "fingerprint = \"sha256:no\"\n",
        );
    }

    #[test]
    fn a_token_of_the_file_is_for_the_coordinators_of_the_file() {
        let (own, other) = (print("ab"), print("cd"));
        let file = format!(
            "coordinator_url = \"https://nas:8420\"\nfingerprint = \"{own}\"\ntoken = \"t\"\n"
        );
        let check = |variables: &[(&str, &str)], file: &str, expected: Option<&str>| {
            let token = read(variables, file).0.token;
            assert_eq!(
                token.as_ref().map(Secret::expose),
                expected,
                "{variables:?} {file}"
            );
        };
        let (url, pin, token) = ("C3PO_COORDINATOR_URL", "C3PO_FINGERPRINT", "C3PO_TOKEN");
        check(&[], &file, Some("t"));
        check(&[(url, "https://NAS:8420/")], &file, Some("t"));
        check(&[(pin, &own)], &file, Some("t"));
        check(&[(url, "https://evil:8420")], &file, None);
        check(&[(url, "https://nas:8420,https://evil:8420")], &file, None);
        check(&[(url, "https://evil:8420"), (pin, &other)], &file, None);
        check(&[(pin, &other)], &file, None);
        check(
            &[(url, "https://evil:8420"), (token, "mine")],
            &file,
            Some("mine"),
        );
        check(
            &[(pin, &other)],
            "coordinator_url = \"https://nas:8420\"\ntoken = \"t\"\n",
            None,
        );
        check(&[(url, DEFAULT_URL)], "token = \"t\"\n", Some("t"));
        check(&[(url, "http://evil:8420")], "token = \"t\"\n", None);
    }

    #[test]
    fn the_source_is_known() {
        let (own, other) = (print("ab"), print("cd"));
        let pinned = format!("fingerprint = \"{own}\"\n");
        let (url, pin) = ("C3PO_COORDINATOR_URL", "C3PO_FINGERPRINT");
        let check = |variables: &[(&str, &str)], file: &str, expected: Source| {
            assert_eq!(
                read(variables, file).0.source,
                expected,
                "{variables:?} {file}"
            );
        };
        check(&[], "", Source::File);
        check(&[(url, "http://nas:8420")], "", Source::Environment);
        check(&[(pin, &other)], "", Source::Environment);
        check(&[(pin, &own)], &pinned, Source::File);
        check(&[(pin, &other)], &pinned, Source::Overridden);
        check(&[(pin, ",")], &pinned, Source::File);
        assert_eq!(read(&[(pin, ",")], &pinned).0.fingerprints.len(), 1);
        let file = "coordinator_url = \"https://nas:8420\"\n";
        check(&[(pin, &own)], file, Source::Overridden);
        check(&[(url, "https://box:8420")], file, Source::Overridden);
    }

    #[test]
    fn others_are_covered_by_their_urls_and_certificates() {
        let (one, two) = (print("ab"), print("cd"));
        let of = |urls: &str, prints: &str| {
            let url = ("C3PO_COORDINATOR_URL", urls);
            read(&[url, ("C3PO_FINGERPRINT", prints)], "").0
        };
        let nas = of("https://nas:1", &one);
        let both = of("https://box:2,https://nas:1", &format!("{two},{one}"));
        assert!(nas.cover(&nas) && both.cover(&nas) && !nas.cover(&both));
        assert!(!of("https://box:2", &one).cover(&nas), "another URL");
        assert!(
            !of("https://nas:1", &two).cover(&nas),
            "another certificate"
        );
        let by_authorities = of("https://nas:1", "");
        assert!(by_authorities.cover(&by_authorities));
        assert!(!nas.cover(&by_authorities) && !by_authorities.cover(&nas));
    }

    #[test]
    fn the_key_names_its_id() {
        let id = |token: &str| {
            read(&[("C3PO_TOKEN", token)], "")
                .0
                .key_id()
                .map(str::to_owned)
        };
        assert_eq!(id("c3po_0a1b2c3d_secret_x"), Some("0a1b2c3d".to_owned()));
        assert_eq!((id("a token of everybody"), id("c3po_")), (None, None));
    }
}
