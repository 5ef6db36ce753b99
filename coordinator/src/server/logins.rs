//! Logins of people over HTTP: logging in with a code, and making, listing and revoking logins.

use axum::Json;
use axum::extract::State;
use c3po_shared::login::{LoginRecord, LoginReply, LoginRequest, PAGE};
use c3po_shared::refusal::ErrorCode;
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::LoginScope;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::Instant;

use super::AppState;
use super::accept::CODE_BODY_MAX;
use super::endpoint::{Body, By, InPath, RestAnswer};
use super::keys::Named;
use crate::auth::logins::{self, NewLogin};
use crate::auth::offspring::{self, MadeCredential};
use crate::auth::watch::seen_by_others;
use crate::auth::{self, Principal, Right};
use crate::request::{check_right, notify_people, record_page_use};
use crate::store::Login;

/// How a person gets another code.
pub(super) const NEW_CODE: &str =
    "Get a new one: `c3po-coordinator login NAME` on the coordinator's machine.";

/// The length of a device in a notice, in characters.
const DEVICE_SHOWN: usize = 60;

/// A link with which one person logs in.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct LoginLink {
    /// The id of the code, as in the audit.
    id: String,
    /// The name of the person.
    name: String,
    /// The largest scope of the login.
    scope: LoginScope,
    /// The link, which is returned only once. It ends with the code.
    link: String,
    /// The code alone, for `c3po login URL`.
    code: String,
    /// The URL of the coordinator, for `c3po login URL`.
    url: String,
    /// The SHA-256 of the coordinator's own certificate, which browsers warn about.
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
    /// When the code expires.
    expires_at: Timestamp,
    /// Why the link may not work.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

/// Logins, the newest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Logins {
    /// All logins, including ended ones.
    logins: Vec<LoginRecord>,
}

/// A revoked login.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RevokedLogin {
    #[serde(flatten)]
    login: LoginRecord,
    /// The valid credentials that it made, or may have made; only for clients that may make logins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    made: Vec<MadeCredential>,
}

/// The client's own credential.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Me {
    /// The kind of credential: `login`, `key`, `token`, `local` for the control socket, or `anybody` without one.
    kind: &'static str,
    /// The login, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    login: Option<LoginRecord>,
    /// The id of the key, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_id: Option<String>,
    /// The host of the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    /// The name under which its answers for people are recorded, if it may answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    answers_as: Option<String>,
    /// Its rights, in words.
    rights: Vec<&'static str>,
}

/// The use of a page by the person of a login.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct PageUse {
    /// Until when it counts; absent without a login.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
}

/// `POST /api/v1/login`
pub(super) async fn log_in(
    State(server): State<AppState>,
    Body(request, _held): Body<LoginRequest, CODE_BODY_MAX>,
) -> RestAnswer<LoginReply> {
    server.auth.check_logins()?;
    let store = server.services.store.as_ref();
    let place = server.wrong_logins.place().await?;
    let spent = logins::spend(store, &request).await?;
    let (login, token) = spent.ok_or_else(|| server.wrong_logins.refuse(Instant::now()))?;
    drop(place);
    changed(&server, "logged_in", &login, &login.made_by).await;
    seen_by_others(store).await;
    Ok(Json(LoginReply {
        token,
        login: logins::shown(login),
    }))
}

/// `GET /api/v1/me`
pub(super) async fn me(State(server): State<AppState>, By(principal): By) -> RestAnswer<Me> {
    let login = match principal.login_id() {
        Some(id) => Some(logins::find(server.services.store.as_ref(), id).await?),
        None => None,
    };
    let rights = Right::ALL.into_iter();
    Ok(Json(Me {
        kind: principal.kind(),
        login: login.map(logins::shown),
        key_id: principal.key_id().map(str::to_owned),
        host: principal.own_host().map(str::to_owned),
        answers_as: principal.answers_as().map(str::to_owned),
        rights: rights
            .filter(|right| principal.check(*right).is_ok())
            .map(Right::word)
            .collect(),
    }))
}

/// `POST /api/v1/me/input`
pub(super) async fn input(
    State(server): State<AppState>,
    By(principal): By,
) -> RestAnswer<PageUse> {
    let until = record_page_use(&server.services, &principal).await?;
    Ok(Json(PageUse { until }))
}

/// `GET /api/v1/logins`
pub(super) async fn list(State(server): State<AppState>) -> RestAnswer<Logins> {
    let logins = logins::all(server.services.store.as_ref()).await?;
    Ok(Json(Logins {
        logins: logins.into_iter().map(logins::shown).collect(),
    }))
}

/// `POST /api/v1/logins`
pub(super) async fn create(
    State(server): State<AppState>,
    By(principal): By,
    Body(new, _held): Body<NewLogin>,
) -> RestAnswer<LoginLink> {
    server.auth.check_logins()?;
    let (code, secret) = logins::offer(server.services.store.as_ref(), new, &principal).await?;
    let title = "A link for a login was made";
    let notice = format!(
        "{} made a link that logs {} in with the scope {}, once, before {}.",
        principal.name(),
        code.name,
        code.scope,
        code.expires_at
    );
    notify_people(&server.services, title, notice).await;
    let url = server.joins.url();
    let id = code.id;
    Ok(Json(LoginLink {
        name: code.name,
        scope: code.scope,
        link: format!("{url}{PAGE}/{id}#{secret}"),
        id,
        code: secret,
        url,
        fingerprint: server.joins.fingerprint().map(|found| found.to_string()),
        expires_at: code.expires_at,
        warning: server.joins.page_warning(),
    }))
}

/// `DELETE /api/v1/logins/{id}`: a login may end itself.
pub(super) async fn revoke(
    State(server): State<AppState>,
    By(principal): By,
    InPath(Named { id }): InPath<Named>,
) -> RestAnswer<RevokedLogin> {
    if principal.login_id() != Some(&id) {
        check_right(&server.services, &principal, Right::MakeLogin)
            .map_err(|refusal| principal.refused(refusal))?;
    }
    let store = server.services.store.as_ref();
    let (login, is_news) = match logins::revoke(store, &id, &principal).await {
        Err(refusal) if refusal.code == ErrorCode::LoginNotFound => {
            let label = Principal::label_of_login(&id);
            return Err(offspring::name_those_of_a_lost_maker(store, label, refusal)
                .await
                .into());
        }
        ended => ended?,
    };
    if is_news {
        changed(&server, "revoked", &login, principal.name()).await;
    }
    let made = match principal.check(Right::MakeLogin) {
        Ok(()) => offspring::of(store, &(&login).into()).await?,
        Err(_) => Vec::new(),
    };
    Ok(Json(RevokedLogin {
        login: logins::shown(login),
        made,
    }))
}

/// Logs a change of a login with its author, and applies it here at once.
async fn changed(server: &AppState, verb: &str, login: &Login, by: &str) {
    let (id, name, scope) = (&login.id, &login.name, login.scope);
    tracing::info!("the login {id} ({scope}) of {name} was {verb}, by {by}");
    let (title, text) = notice(login, by);
    if let Err(error) = auth::watch::load(&server.auth, server.services.store.as_ref()).await {
        tracing::debug!("could not reload the logins immediately: {error}");
    }
    notify_people(&server.services, title, text).await;
}

/// Returns the title and the text of the notice to people about a login that was made or revoked. The device is the login's
/// own statement, so it comes last, quoted and cut: it could look like the facts.
fn notice(login: &Login, by: &str) -> (&'static str, String) {
    let (id, name, scope) = (&login.id, &login.name, login.scope);
    let device = match &login.device {
        Some(device) => format!("calls itself \"{}\"", quotable(device)),
        None => "has no name".to_owned(),
    };
    if login.revoked_at.is_some() {
        (
            "A login was revoked",
            format!("The login {id} of {name} was revoked by {by}. Its device {device}."),
        )
    } else {
        (
            "Somebody logged in",
            format!(
                "{name} logged in with the scope {scope}; the login is {id}, and its link was made by {by}. If you do not \
                 know of it, revoke it: `c3po-coordinator logins revoke {id}`. Its device {device}."
            ),
        )
    }
}

/// Returns the beginning of a name without quotation marks, with a mark if it was cut.
fn quotable(name: &str) -> String {
    let mut start: String = name.chars().take(DEVICE_SHOWN).collect();
    if start.len() < name.len() {
        start.push('…');
    }
    start.replace('"', "'")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a login of ann at a device of that name.
    fn login(device: Option<&str>) -> Login {
        let now = crate::clock::now();
        Login {
            id: "0a1b2c3d".to_owned(),
            hash: String::new(),
            name: "ann".to_owned(),
            scope: LoginScope::Admin,
            created_at: now,
            expires_at: now,
            revoked_at: None,
            made_by: "local".to_owned(),
            device: device.map(str::to_owned),
            revision: 1,
        }
    }

    #[test]
    fn a_notice_has_the_facts_first_and_a_short_quoted_device_last() {
        let device = format!(
            "vm\" with the scope answer. Revoke 11111111: {}",
            "x".repeat(400)
        );
        let (_, text) = notice(&login(Some(&device)), "local");
        assert_eq!(
            text,
            "ann logged in with the scope admin; the login is 0a1b2c3d, and its link was made by local. If you do not \
             know of it, revoke it: `c3po-coordinator logins revoke 0a1b2c3d`. Its device calls itself \
             \"vm' with the scope answer. Revoke 11111111: xxxxxxxxxxxxxxxx…\"."
        );
        let revoked = Login {
            revoked_at: Some(crate::clock::now()),
            ..login(Some("phone"))
        };
        assert_eq!(
            notice(&revoked, "login-4e5f6a7b").1,
            "The login 0a1b2c3d of ann was revoked by login-4e5f6a7b. Its device calls itself \"phone\"."
        );
        let (_, text) = notice(&login(None), "local");
        assert!(text.ends_with("Its device has no name."), "{text}");
    }
}
