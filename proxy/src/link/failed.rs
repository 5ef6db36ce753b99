//! Why a connection to a coordinator failed: a sentence, and advice for its cause.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use c3po_shared::refusal::{Advice, ErrorCode, Refusal};
use tokio_tungstenite::tungstenite::http::Uri;

use crate::config::Coordinators;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    /// The coordinator's own refusal.
    #[error("{0}")]
    Refused(Refusal),
    /// The coordinator was unreachable, or did not speak our protocol.
    #[error("{why}")]
    Failed { why: String, advice: Advice },
}

impl DialError {
    pub(super) fn failed(why: impl Into<String>, advice: Advice) -> Self {
        Self::Failed {
            why: why.into(),
            advice,
        }
    }

    /// Returns the cause of a connection that could not be made.
    pub(super) fn of_connecting(error: &io::Error) -> Self {
        let advice = match error.kind() {
            io::ErrorKind::ConnectionRefused => Advice::NothingListens,
            // A host that is off on the same network is unreachable; a missing route is a fault of the network.
            io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable => Advice::NoAnswer,
            io::ErrorKind::NetworkUnreachable | io::ErrorKind::NetworkDown => Advice::NoRoute,
            _ => Advice::WorkOn,
        };
        Self::failed(error.to_string(), advice)
    }

    /// Returns the refusal for a caller of the coordinator at that URL.
    pub(super) fn into_refusal(self, url: &str) -> Refusal {
        let refusal = match self {
            Self::Refused(refusal) if refusal.code == ErrorCode::StoreUnavailable => {
                of_store(refusal, url)
            }
            Self::Refused(refusal) => refusal,
            Self::Failed { why, advice } => {
                let refusal = Refusal::new(
                    ErrorCode::CoordDown,
                    format!("no coordinator at {url}: {why}"),
                );
                refusal.advise(advice).detail("last_error", why)
            }
        };
        refusal.detail("coordinator", url)
    }
}

/// Returns the refusal of a coordinator that cannot use its store, and so admits no client: no call was sent yet.
pub(crate) fn of_store(refusal: Refusal, url: &str) -> Refusal {
    let error = match refusal.advice {
        Some(Advice::StoreFull) => {
            format!("the store of the coordinator at {url} is full; nothing was done")
        }
        _ => format!("the coordinator at {url} cannot reach its store; nothing was done"),
    };
    Refusal { error, ..refusal }.detail("applied", "no")
}

/// Returns a refusal with the advice to start a coordinator, if the URL is on this host and no coordinator was joined.
pub(crate) fn for_host(refusal: Refusal, coordinators: &Coordinators) -> Refusal {
    let url = refusal
        .details
        .get("coordinator")
        .and_then(|url| url.as_str()?.parse::<Uri>().ok());
    let is_here = url.as_ref().and_then(Uri::host).is_some_and(is_loopback);
    if refusal.advice == Some(Advice::NothingListens) && is_here && !coordinators.is_joined() {
        return refusal.advise(Advice::StartOne);
    }
    refusal
}

/// Returns whether the host of a URL is a loopback address.
pub(crate) fn is_loopback(host: &str) -> bool {
    let address = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// The progress of an attempt to reach a coordinator, for the error of an abandoned one.
#[derive(Debug, Default)]
pub(super) struct Stage(AtomicU8);

impl Stage {
    const CONNECTING: u8 = 1;
    const TALKING: u8 = 2;

    /// Records that the host's addresses are resolved.
    pub(super) fn is_resolved(&self) {
        self.0.store(Self::CONNECTING, Ordering::Relaxed);
    }

    /// Records that the connection is made.
    pub(super) fn is_connected(&self) {
        self.0.store(Self::TALKING, Ordering::Relaxed);
    }

    /// Returns the error for an attempt that made no progress in that time.
    pub(super) fn gave_up(&self, after: Duration) -> DialError {
        let seconds = after.as_secs();
        match self.0.load(Ordering::Relaxed) {
            Self::TALKING => {
                let why =
                    format!("it accepted the connection, but did not answer within {seconds} s");
                DialError::failed(why, Advice::SaysNothing)
            }
            Self::CONNECTING => {
                DialError::failed(format!("no answer within {seconds} s"), Advice::NoAnswer)
            }
            _ => {
                let why = format!("its name was not resolved within {seconds} s");
                DialError::failed(why, Advice::NoSuchHost)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_host_that_joined_nowhere_is_advised_to_start_a_coordinator() {
        let check = |url: &str, token: Option<&str>, expected: Advice| {
            let token = token.map(|token| serde_json::from_value(token.into()).unwrap());
            let coordinators = Coordinators {
                token,
                ..Coordinators::default()
            };
            let refusal =
                DialError::failed("Connection refused", Advice::NothingListens).into_refusal(url);
            assert_eq!(
                for_host(refusal, &coordinators).advice,
                Some(expected),
                "{url}"
            );
        };
        check("http://127.0.0.1:8420", None, Advice::StartOne);
        check("http://[::1]:8420", None, Advice::StartOne);
        check(
            "http://localhost:8420",
            Some("a token of everybody"),
            Advice::StartOne,
        );
        check(
            "https://127.0.0.1:8420",
            Some("c3po_0a1b2c3d_secret"),
            Advice::NothingListens,
        );
        check("http://nas:8420", None, Advice::NothingListens);
    }

    #[test]
    fn a_store_that_is_away_is_not_a_coordinator_that_is_down() {
        let check = |refusal: Refusal, expected: &str| {
            let told = DialError::Refused(refusal).into_refusal("https://nas:8420");
            assert_eq!(
                (told.code, told.error.as_str()),
                (ErrorCode::StoreUnavailable, expected)
            );
            assert_eq!(told.details["applied"], "no");
        };
        check(
            Refusal::store_unavailable(),
            "the coordinator at https://nas:8420 cannot reach its store; nothing was done",
        );
        check(
            Refusal::store_full(),
            "the store of the coordinator at https://nas:8420 is full; nothing was done",
        );
    }

    #[test]
    fn the_error_after_a_timeout_names_the_awaited_message() {
        let (stage, why) = (Stage::default(), |stage: &Stage| {
            match stage.gave_up(Duration::from_secs(5)) {
                DialError::Failed { why, advice } => (why, advice),
                DialError::Refused(refusal) => panic!("{refusal}"),
            }
        });
        assert_eq!(
            why(&stage),
            (
                "its name was not resolved within 5 s".to_owned(),
                Advice::NoSuchHost
            )
        );
        stage.is_resolved();
        assert_eq!(
            why(&stage),
            ("no answer within 5 s".to_owned(), Advice::NoAnswer)
        );
        stage.is_connected();
        let hung = "it accepted the connection, but did not answer within 5 s".to_owned();
        assert_eq!(why(&stage), (hung, Advice::SaysNothing));
    }
}
