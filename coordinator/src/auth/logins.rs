//! Making, spending, extending and revoking logins of people.

use std::net::IpAddr;

use c3po_shared::audit::{Entry, Event};
use c3po_shared::join::{PERSON_PATTERN, check_person};
use c3po_shared::limits::{LABEL_MAX, LOGIN_CODE_LIFE, LOGIN_CODES_MAX, LOGIN_LIFE, LOGINS_MAX};
use c3po_shared::login::{LoginRecord, LoginRequest};
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::{LoginScope, Validity};
use http::Uri;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::issue::{CHANGE_TRIES, unchanged};
use super::secret::{self, Fresh};
use super::{Auth, Principal, login_ended};
use crate::clock;
use crate::store::{Login, LoginCode, Store, StoreError};

/// The properties of a new login.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewLogin {
    /// The name of the person.
    #[schemars(length(max = LABEL_MAX), regex(pattern = PERSON_PATTERN))]
    pub(crate) name: String,
    /// The largest scope of the login.
    #[serde(default = "for_people")]
    pub(crate) scope: LoginScope,
}

fn for_people() -> LoginScope {
    LoginScope::Person
}

/// Returns whether no one else can read tokens on the way to a coordinator on that address. A public URL leads through a proxy,
/// which ends TLS if the URL is https; one of this machine leads through none.
pub(super) fn are_safe(has_tls: bool, listen: IpAddr, public_url: Option<&str>) -> bool {
    let is_local = public_url.is_none_or(is_of_this_machine) && listen.is_loopback();
    has_tls || is_local || public_url.is_some_and(|url| url.starts_with("https://"))
}

/// Returns whether the host of a URL is a loopback address. `localhost` is two of them, and another user may hold the other.
fn is_of_this_machine(url: &str) -> bool {
    let url = url.parse::<Uri>().ok();
    let host = url.as_ref().and_then(Uri::host).unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    address.is_ok_and(|address| address.is_loopback())
}

/// Returns the entry in the log for a change of a login or its code, which has that scope and is for that person.
fn entry(verb: &str, id: &str, (scope, name): (LoginScope, &str), by: &str) -> Entry {
    let entry = Entry::new(Event::LoginChanged).verb(verb);
    Entry {
        login: Some(id.to_owned()),
        ..entry.because(format!("{scope} for {name}, by {by}"))
    }
}

fn entry_about(verb: &str, login: &Login, by: &str) -> Entry {
    entry(verb, &login.id, (login.scope, &login.name), by)
}

/// Makes a code for one login. Returns it with its text, which is not stored.
pub(crate) async fn offer(
    store: &dyn Store,
    new: NewLogin,
    by: &Principal,
) -> Result<(LoginCode, String), Refusal> {
    check_person("name", &new.name)?;
    let text = secret::login_code()?;
    let code = LoginCode {
        id: secret::id()?,
        hash: secret::hash(&text),
        name: new.name,
        scope: new.scope,
        made_by: by.name().to_owned(),
        login: by.login_id().map(str::to_owned),
        expires_at: clock::now() + LOGIN_CODE_LIFE,
    };
    let entry = entry("offered", &code.id, (code.scope, &code.name), &code.made_by);
    for is_last in [false, true] {
        let put = store.put_login_code(&code, LOGIN_CODES_MAX, Some(&entry));
        if put.await? {
            return Ok((code, text));
        }
        if is_last || !forget_ended_codes(store).await? {
            break;
        }
    }
    let error = format!("the limit of {LOGIN_CODES_MAX} open codes of logins is reached");
    Err(Refusal::new(ErrorCode::Conflict, error)
        .suggest("Use the codes, or wait: each ends after 15 minutes."))
}

/// Deletes the codes whose logins have ended. Returns whether there were any.
async fn forget_ended_codes(store: &dyn Store) -> Result<bool, Refusal> {
    // First: the login of a code that is read here has ended if it is missing afterwards.
    let codes = store.login_codes().await.map_err(unchanged)?;
    let (logins, now) = (store.logins().await.map_err(unchanged)?, clock::now());
    let has_ended = |id: &String| valid(&logins, id, now).is_none();
    let ended: Vec<_> = codes
        .into_iter()
        .filter(|code| code.login.as_ref().is_some_and(has_ended))
        .collect();
    for code in &ended {
        let forgotten = store.forget_login_code(&code.hash).await;
        forgotten.map_err(unchanged)?;
    }
    Ok(!ended.is_empty())
}

/// Spends a code: one atomic step makes the login. Returns the login with its token; `None` if the code never existed, was
/// spent or has expired, or if the login that made it has ended.
pub(crate) async fn spend(
    store: &dyn Store,
    request: &LoginRequest,
) -> Result<Option<(Login, String)>, Refusal> {
    request.check()?;
    let hash = secret::hash(&request.plain_code());
    for _ in 0..CHANGE_TRIES {
        let Some(code) = store.login_code(&hash).await.map_err(unchanged)? else {
            return Ok(None);
        };
        let (logins, now) = (store.logins().await.map_err(unchanged)?, clock::now());
        let made_with = match &code.login {
            None => None,
            Some(id) => match valid(&logins, id, now) {
                None => return Ok(None),
                maker => maker,
            },
        };
        if let Some(ended) = in_the_way(&logins, now)? {
            store.forget_login(ended).await.map_err(unchanged)?;
        }
        let (login, token) = draft(code, request, now)?;
        let entry = entry_about("logged_in", &login, &login.made_by);
        let spent = store.spend_login_code(&hash, &login, made_with, LOGINS_MAX, Some(&entry));
        if spent.await? {
            return Ok(Some((login, token)));
        }
        // A concurrent call spent the code, used its maker, or took the last room for a login.
    }
    Err(Refusal::new(
        ErrorCode::Conflict,
        "other people are logging in at the same time; try again",
    ))
}

fn draft(
    code: LoginCode,
    request: &LoginRequest,
    now: Timestamp,
) -> Result<(Login, String), Refusal> {
    let fresh = Fresh::make(secret::LOGIN_PREFIX)?;
    let scope = request
        .scope
        .map_or(code.scope, |wished| wished.min(code.scope));
    let login = Login {
        id: fresh.id,
        hash: secret::hash(&fresh.text),
        name: code.name,
        scope,
        created_at: now,
        expires_at: now + LOGIN_LIFE,
        revoked_at: None,
        made_by: code.made_by,
        device: request.device.clone(),
        revision: 1,
    };
    Ok((login, fresh.text))
}

/// Returns every login, the newest first.
pub(crate) async fn all(store: &dyn Store) -> Result<Vec<Login>, StoreError> {
    let mut logins = store.logins().await?;
    logins.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
    Ok(logins)
}

/// Returns the login of that id.
///
/// Errors: `LOGIN_NOT_FOUND`.
pub(crate) async fn find(store: &dyn Store, id: &str) -> Result<Login, Refusal> {
    of_id(&store.logins().await?, id)
}

fn of_id(logins: &[Login], id: &str) -> Result<Login, Refusal> {
    let found = logins.iter().find(|login| login.id == id).cloned();
    found.ok_or_else(|| {
        let id: String = id.chars().take(LABEL_MAX).collect();
        Refusal::new(ErrorCode::LoginNotFound, format!("there is no login {id}"))
    })
}

/// Revokes a login and returns it. An ended login stays unchanged, and false is returned with it.
pub(crate) async fn revoke(
    store: &dyn Store,
    id: &str,
    by: &Principal,
) -> Result<(Login, bool), Refusal> {
    for _ in 0..CHANGE_TRIES {
        let (logins, now) = (store.logins().await.map_err(unchanged)?, clock::now());
        let login = of_id(&logins, id).map_err(unchanged)?;
        if !login.is_valid(now) {
            return Ok((login, false));
        }
        let made_with = vouching(&logins, by, now)?;
        let revoked = Login {
            revoked_at: Some(now),
            revision: login.revision + 1,
            ..login
        };
        let entry = entry_about("revoked", &revoked, by.name());
        if store.put_login(&revoked, made_with, Some(&entry)).await? {
            return Ok((revoked, true));
        }
    }
    let error = format!("the login {id} is being changed by another request; try again");
    Err(Refusal::new(ErrorCode::Conflict, error))
}

/// Checks a request that changes something against the store, because the cached logins may be two seconds old.
///
/// Errors: `UNAUTHORIZED` if the principal is a login that has ended.
pub(crate) async fn vouch(store: &dyn Store, principal: &Principal) -> Result<(), Refusal> {
    if principal.login_id().is_none() {
        return Ok(());
    }
    let logins = store.logins().await.map_err(unchanged)?;
    vouching(&logins, principal, clock::now()).map(drop)
}

/// Checks a request that made a new secret again, before the secret is returned. The revocation of its login may have listed
/// before what the request made, which is of no use without the secret.
///
/// Errors: `UNAUTHORIZED` if the principal is a login that has ended.
pub(crate) async fn vouch_again(store: &dyn Store, principal: &Principal) -> Result<(), Refusal> {
    if principal.login_id().is_none() {
        return Ok(());
    }
    vouching(&store.logins().await?, principal, clock::now()).map(drop)
}

/// Returns the login of the principal if it is still valid; `None` if it has none.
///
/// Errors: `UNAUTHORIZED` if the login has ended.
fn vouching<'a>(
    logins: &'a [Login],
    principal: &Principal,
    now: Timestamp,
) -> Result<Option<&'a Login>, Refusal> {
    let Some(id) = principal.login_id() else {
        return Ok(None);
    };
    valid(logins, id, now).map(Some).ok_or_else(login_ended)
}

/// Extends the logins that were used here.
pub(super) async fn extend_used(
    auth: &Auth,
    store: &dyn Store,
    now: Timestamp,
) -> Result<(), StoreError> {
    for login in auth.logins.of_used(now, Login::extended) {
        // If another coordinator changed it meanwhile, it is newer there.
        store.put_login(&login, None, None).await?;
    }
    Ok(())
}

/// Returns a login as lists show it, without its hash.
pub(crate) fn shown(login: Login) -> LoginRecord {
    let is_valid = login.is_valid(clock::now());
    LoginRecord {
        state: Validity::of(is_valid, login.revoked_at.is_some()),
        id: login.id,
        name: login.name,
        scope: login.scope,
        created_at: login.created_at,
        expires_at: login.expires_at,
        revoked_at: login.revoked_at,
        made_by: login.made_by,
        device: login.device,
    }
}

fn valid<'a>(logins: &'a [Login], id: &str, now: Timestamp) -> Option<&'a Login> {
    logins
        .iter()
        .find(|login| login.id == id && login.is_valid(now))
}

/// Returns the login to delete before another one can be stored: the one that ended first.
///
/// Errors: `CONFLICT` if all logins are valid.
fn in_the_way(logins: &[Login], now: Timestamp) -> Result<Option<&Login>, Refusal> {
    if logins.len() < LOGINS_MAX {
        return Ok(None);
    }
    let ended = logins
        .iter()
        .filter_map(|login| login.ended_at(now).map(|end| (end, login)));
    let (_, oldest) = ended.min_by_key(|(end, _)| *end).ok_or_else(|| {
        let error = format!("the limit of {LOGINS_MAX} valid logins is reached");
        Refusal::new(ErrorCode::Conflict, error).suggest(
            "Revoke unused logins: `c3po-coordinator logins list`, then `c3po-coordinator logins revoke ID`.",
        )
    })?;
    Ok(Some(oldest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Fleet;
    use crate::store::LoginStore;
    use crate::store::sqlite::SqliteStore;

    #[tokio::test]
    async fn codes_of_a_login_that_has_ended_take_no_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c3po.db");
        let store = SqliteStore::open(&path, &Fleet::default()).await;
        let (store, local) = (store.expect("a store"), Principal::local());
        let make = async |by: &Principal| {
            let new = NewLogin {
                name: "ann".into(),
                scope: LoginScope::Admin,
            };
            offer(&store, new, by).await
        };
        let (_, code) = make(&local).await.expect("a code");
        let request = LoginRequest {
            code,
            device: None,
            scope: None,
        };
        let spent = spend(&store, &request).await.expect("spent");
        let (login, _) = spent.expect("a login");
        let thief = Principal::login(&login.id, &login.name, login.scope);
        for _ in 0..LOGIN_CODES_MAX {
            make(&thief).await.expect("a code");
        }
        let refused = make(&local).await.map_err(|refusal| refusal.code);
        assert_eq!(refused.err(), Some(ErrorCode::Conflict));
        revoke(&store, &login.id, &local).await.expect("revoked");
        make(&local).await.expect("a code");
        assert_eq!(store.login_codes().await.expect("codes").len(), 1);
    }

    #[test]
    fn tokens_travel_only_where_nobody_reads_them() {
        let check = |has_tls, listen: &str, public_url, expected| {
            let found = are_safe(has_tls, listen.parse().expect("an address"), public_url);
            assert_eq!(found, expected, "{has_tls} {listen} {public_url:?}");
        };
        check(true, "0.0.0.0", None, true);
        check(false, "127.0.0.1", None, true);
        check(false, "::1", Some("http://nas"), false);
        check(false, "127.0.0.1", Some("http://nas:8080"), false);
        check(false, "127.0.0.1", Some("http://127.0.0.1:8420"), true);
        check(true, "127.0.0.1", Some("http://nas"), true);
        check(false, "127.0.0.1", Some("http://127.evil.example"), false);
        check(false, "127.0.0.1", Some("http://localhost:8420"), false);
        check(false, "::1", Some("http://[::1]:8420"), true);
        check(false, "0.0.0.0", None, false);
        check(false, "0.0.0.0", Some("http://nas"), false);
        check(false, "0.0.0.0", Some("https://nas"), true);
    }
}
