//! The coordinators that a host knows before and after it joins: decisions without effects.

use c3po_shared::join::Fingerprint;

use crate::config::{Coordinators, as_written, targets};

/// The default port of a coordinator.
const PORT: u16 = 8420;

/// How a join relates to the coordinators that this host knew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    /// The host knew no coordinator.
    First,
    /// The host knew this coordinator.
    Again,
    /// The host knew others of the same fleet, and adds this one.
    Added,
    /// The host knew others, and replaces them by this one.
    Instead,
}

/// The coordinators of a host, as people write them, and their certificates. If `join` wrote them, there is one
/// certificate per coordinator, in the same order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KnownCoordinators {
    pub(super) urls: Vec<String>,
    pub(super) fingerprints: Vec<Fingerprint>,
}

impl KnownCoordinators {
    /// Returns the coordinators in a file; empty if it names none.
    pub(super) fn of(text: &str, coordinators: &Coordinators) -> Self {
        let names_one = text
            .parse::<toml::Table>()
            .is_ok_and(|table| table.contains_key("coordinator_url"));
        if !names_one {
            return Self::default();
        }
        let urls = coordinators
            .urls
            .iter()
            .map(|target| as_written(target))
            .collect();
        Self {
            urls,
            fingerprints: coordinators.fingerprints.clone(),
        }
    }

    /// Returns their lines in a file of the host.
    pub(super) fn values(&self) -> [(&'static str, Option<toml::Value>); 2] {
        let text = |fingerprint: &Fingerprint| toml::Value::from(fingerprint.to_string());
        let fingerprints = match self.fingerprints.as_slice() {
            [] => None,
            [one] => Some(text(one)),
            several => Some(several.iter().map(text).collect::<Vec<_>>().into()),
        };
        [
            ("coordinator_url", Some(self.urls.join(",").into())),
            ("fingerprint", fingerprints),
        ]
    }

    /// Returns the URLs of their links; empty if one of them is not a URL.
    pub(super) fn targets(&self) -> Vec<String> {
        targets(&self.urls.join(",")).unwrap_or_default()
    }

    /// Returns how a join at a URL relates to them; `same_fleet` is whether that fleet knows this host's key. Without that, another
    /// certificate at a known URL is another fleet.
    pub(super) fn relation(
        &self,
        url: &str,
        fingerprint: Option<Fingerprint>,
        same_fleet: bool,
    ) -> Relation {
        // Certificates apply to all of the coordinators, so either all are pinned or none.
        let fits = self.fingerprints.is_empty() == fingerprint.is_none();
        match (
            self.urls.is_empty(),
            self.urls.iter().any(|known| known == url),
        ) {
            (true, _) => Relation::First,
            (_, true) if !(same_fleet || self.accepts(fingerprint)) => Relation::Instead,
            (_, true) if fits || self.urls.len() == 1 => Relation::Again,
            (_, false) if same_fleet && fits => Relation::Added,
            _ => Relation::Instead,
        }
    }

    /// Returns whether the URL or the certificate of a join is none of these.
    pub(super) fn is_new(&self, url: &str, fingerprint: Option<Fingerprint>) -> bool {
        !self.accepts(fingerprint) || !self.urls.iter().any(|known| known == url)
    }

    /// Returns whether a certificate is one of these, or neither this host nor the coordinator has one of its own.
    fn accepts(&self, fingerprint: Option<Fingerprint>) -> bool {
        match fingerprint {
            Some(fingerprint) => self.fingerprints.contains(&fingerprint),
            None => self.fingerprints.is_empty(),
        }
    }

    /// Returns the known coordinators after a join at a URL with that certificate.
    pub(super) fn after(
        &self,
        url: &str,
        fingerprint: Option<Fingerprint>,
        relation: Relation,
    ) -> Self {
        let only = || Self {
            urls: vec![url.to_owned()],
            fingerprints: fingerprint.into_iter().collect(),
        };
        match relation {
            Relation::First | Relation::Instead => only(),
            Relation::Again if self.urls.len() == 1 => only(),
            Relation::Again => {
                let at = self.urls.iter().position(|known| known == url);
                self.with(fingerprint, self.urls.clone(), at)
            }
            Relation::Added => {
                let urls = [self.urls.as_slice(), &[url.to_owned()]].concat();
                self.with(fingerprint, urls, None)
            }
        }
    }

    /// Returns those URLs with the known certificates and this one. It replaces the certificate of the same URL, if that can
    /// be identified.
    fn with(&self, fingerprint: Option<Fingerprint>, urls: Vec<String>, at: Option<usize>) -> Self {
        let Some(fingerprint) = fingerprint else {
            return Self {
                urls,
                fingerprints: Vec::new(),
            };
        };
        let mut fingerprints = match self.fingerprints.as_slice() {
            [one] => vec![*one; self.urls.len()],
            several => several.to_vec(),
        };
        match at.filter(|_| fingerprints.len() == self.urls.len()) {
            Some(at) => fingerprints[at] = fingerprint,
            None => fingerprints.push(fingerprint),
        }
        Self { urls, fingerprints }
    }
}

/// Returns a URL in full: a bare name gets the scheme that fits its code, and the default port.
pub(super) fn completed(url: &str, has_certificate: bool) -> String {
    let url = url.trim_end_matches('/');
    if url.contains("://") {
        return url.to_owned();
    }
    let scheme = if has_certificate { "https" } else { "http" };
    let has_port = url.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']'))
    });
    if has_port {
        format!("{scheme}://{url}")
    } else {
        format!("{scheme}://{url}:{PORT}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAS: &str = "https://nas:8420";
    const LAPTOP: &str = "https://laptop:8420";

    fn print(byte: u8) -> Fingerprint {
        Fingerprint::of([byte; 32])
    }

    fn known(urls: &[&str], prints: &[u8]) -> KnownCoordinators {
        let urls = urls.iter().map(|url| (*url).to_owned()).collect();
        KnownCoordinators {
            urls,
            fingerprints: prints.iter().map(|byte| print(*byte)).collect(),
        }
    }

    #[test]
    fn a_name_alone_is_made_a_url() {
        let check =
            |url: &str, secure: bool, expected: &str| assert_eq!(completed(url, secure), expected);
        check("nas", true, "https://nas:8420");
        check("nas", false, "http://nas:8420");
        check("nas:8430/", true, "https://nas:8430");
        check("[fe80::1]", true, "https://[fe80::1]:8420");
        check("[fe80::1]:8430", true, "https://[fe80::1]:8430");
        check("https://nas/c3po/", true, "https://nas/c3po");
        check("http://nas:8420", true, "http://nas:8420");
    }

    /// Checks the relation of a join at that URL, with that certificate and proof, and the coordinators after it.
    #[track_caller]
    fn check_join(
        before: &KnownCoordinators,
        (url, byte, same_fleet): (&str, u8, bool),
        expected: Relation,
        after: &KnownCoordinators,
    ) {
        let relation = before.relation(url, Some(print(byte)), same_fleet);
        assert_eq!(relation, expected);
        assert_eq!(&before.after(url, Some(print(byte)), relation), after);
    }

    #[test]
    fn a_coordinator_of_the_same_fleet_is_added() {
        let (nas, both) = (known(&[NAS], &[1]), known(&[NAS, LAPTOP], &[1, 2]));
        let none = KnownCoordinators::default();
        check_join(&none, (NAS, 1, false), Relation::First, &nas);
        check_join(&nas, (LAPTOP, 2, true), Relation::Added, &both);
        let laptop = known(&[LAPTOP], &[2]);
        check_join(&nas, (LAPTOP, 2, false), Relation::Instead, &laptop);
        // One certificate for both, as after copying the folder.
        let (copied, changed) = (known(&[NAS, LAPTOP], &[1]), known(&[NAS, LAPTOP], &[1, 3]));
        check_join(&copied, (LAPTOP, 3, true), Relation::Again, &changed);
        let box_too = known(&[NAS, LAPTOP, "https://box:8420"], &[1, 1, 3]);
        let at_box = ("https://box:8420", 3, true);
        check_join(&copied, at_box, Relation::Added, &box_too);
    }

    #[test]
    fn another_certificate_at_a_known_url_is_another_fleet_without_proof() {
        let (nas, both) = (known(&[NAS], &[1]), known(&[NAS, LAPTOP], &[1, 2]));
        check_join(&nas, (NAS, 1, false), Relation::Again, &nas);
        let changed = known(&[NAS], &[3]);
        check_join(&nas, (NAS, 3, true), Relation::Again, &changed);
        check_join(&nas, (NAS, 3, false), Relation::Instead, &changed);
        check_join(&both, (NAS, 3, false), Relation::Instead, &changed);
        let changed = known(&[NAS, LAPTOP], &[1, 3]);
        check_join(&both, (LAPTOP, 3, true), Relation::Again, &changed);
    }

    #[test]
    fn another_url_or_certificate_is_new() {
        let check = |known: &KnownCoordinators, url: &str, byte: Option<u8>, expected: bool| {
            assert_eq!(
                known.is_new(url, byte.map(print)),
                expected,
                "{known:?} {url} {byte:?}"
            );
        };
        check(&KnownCoordinators::default(), NAS, Some(1), true);
        check(&KnownCoordinators::default(), NAS, None, true);
        let (nas, plain) = (known(&[NAS], &[1]), known(&[NAS], &[]));
        check(&nas, NAS, Some(1), false);
        check(&nas, NAS, Some(2), true);
        check(&nas, NAS, None, true);
        check(&nas, LAPTOP, Some(1), true);
        check(&plain, NAS, None, false);
        check(&plain, NAS, Some(1), true);
        check(&known(&[NAS, LAPTOP], &[1, 2]), LAPTOP, Some(2), false);
    }

    #[test]
    fn certificates_of_a_hosts_own_and_of_authorities_do_not_mix() {
        let (pinned, plain) = (known(&[NAS], &[1]), known(&["http://nas:8420"], &[]));
        assert_eq!(
            pinned.relation("https://public.example", None, true),
            Relation::Instead
        );
        assert_eq!(
            plain.relation(LAPTOP, Some(print(2)), true),
            Relation::Instead
        );
        let added = plain.relation("http://laptop:8420", None, true);
        assert_eq!(
            plain.after("http://laptop:8420", None, added),
            known(&["http://nas:8420", "http://laptop:8420"], &[])
        );
    }
}
