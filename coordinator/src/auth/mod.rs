//! Authenticates requests, before any upgrade and before any body is read.

mod globs;
mod hosts;
pub(crate) mod invites;
pub(crate) mod issue;
mod keyring;
pub(crate) mod logins;
pub(crate) mod looks;
pub(crate) mod offspring;
mod places;
mod principal;
mod processes;
pub(crate) mod renames;
mod rights;
mod secret;
mod settling;
mod turns;
pub(crate) mod watch;
mod work;

use std::net::IpAddr;
use std::sync::Arc;

use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::time::Timestamp;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use subtle::ConstantTimeEq;

pub(crate) use self::hosts::check_free;
use self::keyring::{Found, Keyring};
#[cfg(test)]
pub(crate) use self::principal::Reach;
#[cfg(test)]
pub(crate) use self::principal::tests::key;
pub(crate) use self::principal::{NAMES_WITHOUT_KEY, Principal, Stay};
pub(crate) use self::rights::Right;
use self::rights::reach;
pub(crate) use self::turns::Turns;
pub(crate) use self::work::Work;
use crate::config::{Config, Secret, Tls};
use crate::store::{Key, Login};

/// The longest credential that is checked, in bytes.
const CREDENTIAL_MAX: usize = 512;

/// The authentication of requests.
#[derive(Debug)]
pub(crate) struct Auth {
    /// The principal of requests without a credential, if the coordinator is open.
    anybody: Option<Arc<Principal>>,
    token: Option<(Secret, Arc<Principal>)>,
    /// The keys of hosts.
    pub(crate) keyring: Keyring<Key>,
    /// The logins of people.
    pub(crate) logins: Keyring<Login>,
    /// Whether logins are accepted here: nobody else can read their tokens on the way.
    admits_logins: bool,
}

impl Auth {
    /// Accepts the credentials that the configuration of a coordinator on that address allows.
    pub(crate) fn new(config: &Config, listen: IpAddr) -> Self {
        let public_url = config.public_url.as_deref();
        let reach = reach(listen, public_url, config.answers_need_login);
        let anybody = || Arc::new(Principal::anybody(reach));
        let token = config.token.clone();
        Self {
            anybody: config.is_open.then(anybody),
            token: token.map(|token| (token, Arc::new(Principal::token()))),
            keyring: Keyring::default(),
            logins: Keyring::default(),
            admits_logins: logins::are_safe(config.tls != Tls::Off, listen, public_url),
        }
    }

    /// Returns whether no client can be admitted until there is an invite.
    pub(crate) fn demands_a_first_key(&self) -> bool {
        self.anybody.is_none() && self.token.is_none() && self.keyring.is_empty()
    }

    /// Returns the principal of requests without a credential, if they are admitted.
    pub(crate) fn anybody(&self) -> Option<&Principal> {
        self.anybody.as_deref()
    }

    /// Refuses logins if others could read their tokens on the way.
    pub(crate) fn check_logins(&self) -> Result<(), Refusal> {
        if self.admits_logins {
            return Ok(());
        }
        let error =
            "logins are accepted only over TLS, on loopback, or behind a proxy with an https URL";
        Err(Refusal::new(ErrorCode::Forbidden, error).suggest(
            "Start the coordinator with --tls auto, or with --public-url https://NAME if a proxy ends TLS.",
        ))
    }

    /// Returns the principal of the request, from `Authorization: Bearer` or `X-API-Key`. A login is accepted only from the
    /// first.
    ///
    /// Errors: `UNAUTHORIZED`, the same for a wrong, an expired and a revoked key. A credential with the prefix of our keys or
    /// logins must be a valid one even on an open coordinator, so that its holder notices a bad one.
    pub(crate) fn admit(
        &self,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Result<Arc<Principal>, Refusal> {
        let presented = presented(headers);
        if let Some(text) = presented.filter(|text| text.starts_with(secret::LOGIN_PREFIX)) {
            return self.admit_login(bearer(headers).is_some(), text, now);
        }
        let credential = presented.filter(|presented| presented.len() <= CREDENTIAL_MAX);
        let found = credential.map_or(Found::Nothing, |credential| {
            self.keyring.find(credential, now)
        });
        if let Found::Valid(principal) = found {
            return Ok(principal);
        }
        if let Some((token, principal)) = &self.token
            && credential.is_some_and(|credential| {
                bool::from(credential.as_bytes().ct_eq(token.reveal().as_bytes()))
            })
        {
            return Ok(Arc::clone(principal));
        }
        let claims_a_key =
            presented.is_some_and(|presented| presented.starts_with(secret::KEY_PREFIX));
        if claims_a_key && matches!(found, Found::NotRead) {
            // `UNAUTHORIZED` would be final for its host.
            return Err(Refusal::store_unavailable());
        }
        match &self.anybody {
            Some(anybody) if !claims_a_key => Ok(Arc::clone(anybody)),
            _ => Err(refusal(presented.is_some())),
        }
    }

    fn admit_login(
        &self,
        is_bearer: bool,
        text: &str,
        now: Timestamp,
    ) -> Result<Arc<Principal>, Refusal> {
        self.check_logins()?;
        if !is_bearer || text.len() > CREDENTIAL_MAX {
            return Err(login_ended());
        }
        match self.logins.find(text, now) {
            Found::Valid(principal) => Ok(principal),
            Found::Nothing => Err(login_ended()),
            Found::NotRead => Err(Refusal::store_unavailable()),
        }
    }
}

fn refusal(was_presented: bool) -> Refusal {
    let error = if was_presented {
        "the key is unknown, was revoked, or has expired"
    } else {
        "this request has no key"
    };
    Refusal::new(ErrorCode::Unauthorized, error)
}

/// Returns the refusal of a call whose credential ends while it runs.
pub(crate) fn ended() -> Refusal {
    Refusal::new(
        ErrorCode::Unauthorized,
        "the key was revoked or has expired",
    )
}

/// Returns the refusal of a token of a login that is unknown or no longer valid, the same for each reason.
fn login_ended() -> Refusal {
    Refusal::new(
        ErrorCode::Unauthorized,
        "the login is unknown, was revoked, or has expired",
    )
    .suggest(
        "Log in again: `c3po-coordinator login NAME` on the coordinator's machine prints a link.",
    )
}

fn presented(headers: &HeaderMap) -> Option<&str> {
    bearer(headers)
        .or_else(|| {
            headers
                .get("x-api-key")
                .and_then(|value| value.to_str().ok())
        })
        .map(str::trim)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    value.and_then(|value| value.strip_prefix("Bearer "))
}

#[cfg(test)]
mod tests {
    use c3po_shared::vocabulary::Scope;

    use super::secret::{Fresh, hash};
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn key() -> (Key, String) {
        let fresh = Fresh::make(secret::KEY_PREFIX).expect("random");
        let key = Key {
            id: fresh.id,
            hash: hash(&fresh.text),
            name: "nas2".into(),
            host: None,
            scope: Scope::Agent,
            agents: vec!["*".into()],
            created_at: Timestamp::from_millis(1),
            expires_at: None,
            revoked_at: None,
            made_by: "local".into(),
            awaits_host: false,
            revision: 1,
        };
        (key, fresh.text)
    }

    fn auth_of(token: Option<Secret>, is_open: bool) -> Auth {
        Auth {
            anybody: is_open.then(|| Arc::new(Principal::anybody(Reach::Network))),
            token: token.map(|token| (token, Arc::new(Principal::token()))),
            keyring: Keyring::default(),
            logins: Keyring::default(),
            admits_logins: true,
        }
    }

    fn auth(is_open: bool) -> (Auth, String) {
        let (auth, (key, text)) = (auth_of(TOKEN.parse().ok(), is_open), key());
        auth.keyring.replace(
            auth.keyring.begin(),
            1,
            vec![key],
            Timestamp::from_millis(2),
        );
        (auth, text)
    }

    fn admitted(auth: &Auth, name: &'static str, value: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().expect("a header"));
        auth.admit(&headers, Timestamp::from_millis(2))
            .ok()
            .map(|principal| principal.name().to_owned())
    }

    #[test]
    fn only_the_token_and_keys_admit() {
        let (auth, key) = auth(false);
        let id = key[5..13].to_owned();
        let check = |name, value: &str, expected: Option<&str>| {
            assert_eq!(
                admitted(&auth, name, value).as_deref(),
                expected,
                "{name}: {value}"
            );
        };
        check("authorization", &format!("Bearer {TOKEN}"), Some("token"));
        check("x-api-key", TOKEN, Some("token"));
        check("x-api-key", &key, Some(&id));
        check("authorization", &format!("Bearer {key}"), Some(&id));
        check("authorization", "Bearer 0123456789abcdeF", None);
        check("authorization", &format!("Basic {TOKEN}"), None);
        check("x-api-key", "", None);
        check("x-api-key", &format!("{key}x"), None);
        let refused = auth.admit(&HeaderMap::new(), Timestamp::from_millis(2));
        assert_eq!(
            refused.map_err(|refusal| refusal.code).err(),
            Some(ErrorCode::Unauthorized)
        );
    }

    #[test]
    fn a_key_is_refused_as_unknown_only_after_the_keys_were_read() {
        let auth = auth_of(None, false);
        let mut headers = HeaderMap::new();
        headers.insert("x-api-key", "c3po_0a1b2c3d_x".parse().expect("a header"));
        let code = || {
            auth.admit(&headers, Timestamp::from_millis(2))
                .map_err(|refusal| refusal.code)
                .err()
        };
        assert_eq!(code(), Some(ErrorCode::StoreUnavailable));
        auth.keyring.replace(
            auth.keyring.begin(),
            0,
            Vec::new(),
            Timestamp::from_millis(2),
        );
        assert_eq!(code(), Some(ErrorCode::Unauthorized));
    }

    #[test]
    fn no_valid_key_is_refused_while_the_keys_are_read_for_the_first_time() {
        let (key, text) = key();
        let mut headers = HeaderMap::new();
        headers.insert("x-api-key", text.parse().expect("a header"));
        for _ in 0..2_000 {
            let auth = auth_of(None, false);
            let (reading, keys) = (auth.keyring.begin(), vec![key.clone()]);
            let code = std::thread::scope(|scope| {
                let asks = scope.spawn(|| auth.admit(&headers, Timestamp::from_millis(2)));
                auth.keyring
                    .replace(reading, 1, keys, Timestamp::from_millis(2));
                asks.join()
                    .expect("it answers")
                    .map_err(|refusal| refusal.code)
                    .err()
            });
            assert!(
                [None, Some(ErrorCode::StoreUnavailable)].contains(&code),
                "{code:?}"
            );
        }
    }

    #[test]
    fn an_open_coordinator_still_refuses_a_wrong_key() {
        let (auth, key) = auth(true);
        assert!(
            auth.admit(&HeaderMap::new(), Timestamp::from_millis(2))
                .is_ok()
        );
        assert_eq!(
            admitted(&auth, "x-api-key", "whatever").as_deref(),
            Some("anybody")
        );
        assert_eq!(
            admitted(&auth, "x-api-key", &key).as_deref(),
            Some(&key[5..13])
        );
        assert_eq!(admitted(&auth, "x-api-key", &format!("{key}x")), None);
    }
}
