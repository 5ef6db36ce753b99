//! The extractors of REST. Each describes itself for the OpenAPI document, and rejects a request with a refusal.

use std::convert::Infallible;
use std::mem;
use std::sync::{Arc, OnceLock};

use aide::generate::GenContext;
use aide::openapi::{MediaType, Operation, RequestBody, SchemaObject};
use aide::operation::{
    OperationInput, ParamLocation, add_parameters, parameters_from_schema, set_body,
};
use axum::Json;
use axum::body::Body as HttpBody;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use bytes::{Bytes, BytesMut};
use c3po_shared::ids::AgentId;
use c3po_shared::numbers::make_integers;
use c3po_shared::refusal::{ErrorCode, Refusal};
use futures_util::StreamExt;
use http_body::Body as _;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, json_schema};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::answer::{JSON, Refused};
use crate::auth::{Principal, Right};
use crate::json::{BODY_VALUES_MAX, check_values, values_in};
use crate::request::{begin_call, check_host, check_name, check_reader};
use crate::server::AppState;
use crate::server::accept::{BODY_MAX, BODY_TIME_MAX};
use crate::server::credential::Credential;
use crate::server::http_session::{AGENT_HEADER, agent_header, host_header};
use crate::server::request_turns::RequestTurns;
use crate::unfinished::{Account, Charge};

/// The retry time of a request that found no room, in seconds.
const RETRY_AFTER: u64 = 5;

/// How much of a body is read before the next turn of its principal, in bytes.
const TURN_MAX: usize = 32 << 10;
/// The part of serde's error about a number with a fraction where an integer is expected.
const FRACTION: &str = "floating point";
/// The most JSON values of a body that is parsed again because of one: more than any body with integers has.
const VALUES_WITH_FRACTIONS: usize = 200;

/// The principal of the request.
#[derive(Debug)]
pub(in crate::server) struct By(pub(in crate::server) Arc<Principal>);

impl FromRequestParts<AppState> for By {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Refused> {
        let principal = parts.extensions.get().cloned();
        Ok(Self(principal.ok_or_else(|| {
            Refusal::new(ErrorCode::Internal, "nobody was admitted")
        })?))
    }
}

impl OperationInput for By {}

/// Whether the client of a public path also has the right to list agents.
#[derive(Debug)]
pub(in crate::server) struct MayLook(pub(in crate::server) bool);

impl FromRequestParts<AppState> for MayLook {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Infallible> {
        let principal = Credential::of(&parts.extensions);
        Ok(Self(principal.is_ok_and(|principal| {
            principal.check(Right::Look).is_ok()
        })))
    }
}

impl OperationInput for MayLook {}

/// The agent that a request reads as, with its principal: checked before the handler runs, and again after it. The
/// name may have become another host's meanwhile.
#[derive(Debug, Default)]
pub(super) struct ReadAs(pub(super) OnceLock<(Arc<Principal>, AgentId)>);

/// The agent named in the header, if the credential covers it.
#[derive(Debug)]
pub(in crate::server) struct Speaker(pub(in crate::server) AgentId);

impl FromRequestParts<AppState> for Speaker {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, server: &AppState) -> Result<Self, Refused> {
        // The error text of the first API reference, kept for a missing header.
        let missing = || Refusal::invalid(format!("Missing {AGENT_HEADER} header"));
        let agent = agent_header(&parts.headers)?.ok_or_else(missing)?;
        let By(principal) = By::from_request_parts(parts, server).await?;
        let host = principal.host(host_header(&parts.headers)?);
        // As for rights, a request that only reads leaves no entry in the audit.
        let checked = if agent.is_reserved() && !agent.is_human() {
            // The coordinator's own messages quote those of others.
            let error = format!("nothing acts as {agent}");
            Err(Refusal::new(ErrorCode::Forbidden, error))
        } else if parts.method.is_safe() {
            principal.speaks_as(&agent)
        } else {
            check_name(&server.services, &principal, &agent)
        };
        checked.map_err(|refusal| match principal.person(&agent, &host) {
            Some(person) => refusal.detail("person", person.as_str()),
            None => refusal,
        })?;
        let Some(host) = principal.own_host() else {
            return Ok(Self(agent));
        };
        let _place = begin_call(&principal).await?;
        if parts.method.is_safe() {
            check_reader(&server.services, &principal, &agent).await?;
            if let Some(read_as) = parts.extensions.get::<Arc<ReadAs>>() {
                let _ = read_as.0.set((Arc::clone(&principal), agent.clone()));
            }
        } else if let Some(known) = server
            .services
            .store
            .agent(&agent)
            .await
            .map_err(Refusal::from)?
        {
            check_host(&server.services, &principal, &known, host)?;
        }
        Ok(Self(agent))
    }
}

impl OperationInput for Speaker {
    fn operation_input(context: &mut GenContext, operation: &mut Operation) {
        let header = json_schema!({"properties": {AGENT_HEADER: schema::<AgentId>()}, "required": [AGENT_HEADER]});
        describe_parameters(context, operation, header, ParamLocation::Header);
    }
}

/// The query string.
#[derive(Debug)]
pub(in crate::server) struct Query<T>(pub(in crate::server) T);

impl<T: DeserializeOwned> FromRequestParts<AppState> for Query<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Refused> {
        let query = axum::extract::Query::try_from_uri(&parts.uri);
        Ok(query
            .map(|query| Self(query.0))
            .map_err(|error| Refusal::invalid(error.body_text()))?)
    }
}

impl<T: JsonSchema> OperationInput for Query<T> {
    fn operation_input(context: &mut GenContext, operation: &mut Operation) {
        describe_parameters(context, operation, schema::<T>(), ParamLocation::Query);
    }
}

/// The named parts of the path.
#[derive(Debug)]
pub(in crate::server) struct InPath<T>(pub(in crate::server) T);

impl<T: DeserializeOwned + Send> FromRequestParts<AppState> for InPath<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, server: &AppState) -> Result<Self, Refused> {
        let path = Path::from_request_parts(parts, server).await;
        Ok(path
            .map(|Path(path)| Self(path))
            .map_err(|error| Refusal::invalid(error.body_text()))?)
    }
}

impl<T: JsonSchema> OperationInput for InPath<T> {
    fn operation_input(context: &mut GenContext, operation: &mut Operation) {
        describe_parameters(context, operation, schema::<T>(), ParamLocation::Path);
    }
}

/// The body: a JSON object of at most `MAX` bytes, with its charge. That is held until the request is answered, because requests
/// without a credential wait for the store in any number.
#[derive(Debug)]
pub(in crate::server) struct Body<T, const MAX: usize = BODY_MAX>(
    pub(in crate::server) T,
    pub(in crate::server) Option<Charge>,
);

impl<T: DeserializeOwned, const MAX: usize> FromRequest<AppState> for Body<T, MAX> {
    type Rejection = Refused;

    async fn from_request(mut request: Request, server: &AppState) -> Result<Self, Refused> {
        let media = request
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|media| media.to_str().ok())
            .unwrap_or_default();
        if !media
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .eq_ignore_ascii_case(JSON)
        {
            return Err(Refusal::invalid(format!(
                "the body must be JSON: send it with Content-Type: {JSON}"
            ))
            .into());
        }
        // The head would take more memory than most bodies while the rest arrives.
        drop(mem::take(request.headers_mut()));
        let (bytes, held) = read_body(server, &mut request, MAX).await?;
        let turns = request.extensions().get::<RequestTurns>().cloned();
        let _turn = match &turns {
            Some(turns) => turns.turns().next_if_busy().await,
            None => None,
        };
        // serde would accept an array as the fields of an object in order.
        if !bytes.trim_ascii_start().starts_with(b"{") {
            return Err(Refusal::invalid("the body must be a JSON object").into());
        }
        check_values(&bytes, BODY_VALUES_MAX)
            .map_err(|error| Refusal::new(ErrorCode::PayloadTooLarge, error))?;
        let body = Json::from_bytes(&bytes).map(|Json(body)| body);
        let body = body.map_err(|error| error.body_text());
        let body = body.or_else(|error| with_integers(&error, &bytes).ok_or(error));
        Ok(body
            .map(|body| Self(body, held))
            .map_err(Refusal::invalid)?)
    }
}

impl<T: JsonSchema, const MAX: usize> OperationInput for Body<T, MAX> {
    fn operation_input(context: &mut GenContext, operation: &mut Operation) {
        let schema = SchemaObject {
            json_schema: schema::<T>(),
            external_docs: None,
            example: None,
        };
        let content = [(
            JSON.to_owned(),
            MediaType {
                schema: Some(schema),
                ..MediaType::default()
            },
        )]
        .into();
        set_body(
            context,
            operation,
            RequestBody {
                content,
                required: true,
                ..RequestBody::default()
            },
        );
    }
}

/// Parses a short body in which whole numbers are written with a fraction, as 30.0; `None` if that is not its error, or it is
/// malformed.
fn with_integers<T: DeserializeOwned>(error: &str, bytes: &[u8]) -> Option<T> {
    if !error.contains(FRACTION) || values_in(bytes) > VALUES_WITH_FRACTIONS {
        return None;
    }
    let mut body = serde_json::from_slice(bytes).ok()?;
    (make_integers(&mut body) > 0).then(|| serde_json::from_value(body).ok())?
}

/// Returns the schema of an input with all definitions inlined, because the document's shared definitions describe outputs.
fn schema<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    let settings =
        settings.with(|settings| (settings.inline_subschemas, settings.meta_schema) = (true, None));
    settings.into_generator().into_root_schema_for::<T>()
}

fn describe_parameters(
    context: &mut GenContext,
    operation: &mut Operation,
    of: Schema,
    location: ParamLocation,
) {
    let parameters = parameters_from_schema(context, of, location);
    add_parameters(context, operation, parameters);
}

/// A body that was read before its request had a place. Its charge is held for as long as the request lasts.
#[derive(Debug, Clone)]
pub(in crate::server) struct WholeBody(pub(in crate::server) Bytes);

/// Reads the whole body, unless the credential ends or the coordinator stops first. Returns it with its charge, or without one
/// if it was read before: a second charge would wait behind all bodies that are not read yet.
///
/// Errors: `INVALID_REQUEST`, `PAYLOAD_TOO_LARGE`, `TIMEOUT`, `UNAUTHORIZED`, `COORD_DOWN`.
pub(in crate::server) async fn read_body(
    server: &AppState,
    request: &mut Request,
    limit: usize,
) -> Result<(Bytes, Option<Charge>), Refusal> {
    if let Some(WholeBody(bytes)) = request.extensions_mut().remove() {
        return Ok((bytes, None));
    }
    let principal = request.extensions().get::<Arc<Principal>>().cloned();
    let budget = &server.services.unfinished;
    let mut account = match &principal {
        Some(principal) => budget.account(principal.room(), limit),
        None => budget.account_of_stranger(limit),
    };
    let turns = request.extensions().get::<RequestTurns>().cloned();
    let body = mem::take(request.body_mut());
    let reading = in_time(body, limit, &mut account, turns.as_ref());
    let reading = async {
        match principal {
            Some(principal) => principal.unless_ended(reading).await?,
            None => reading.await,
        }
    };
    let bytes = server
        .stop
        .run_until_cancelled(reading)
        .await
        .unwrap_or_else(|| Err(stopping()))?;
    let held = account.settle(bytes.len(), bytes.len());
    Ok((bytes, held))
}

/// Reads a body. The deadline also counts waits for the budget, so that every read ends.
async fn in_time(
    body: HttpBody,
    limit: usize,
    account: &mut Account,
    turns: Option<&RequestTurns>,
) -> Result<Bytes, Refusal> {
    let mut waits_for_room = false;
    match timeout(
        BODY_TIME_MAX,
        read_whole(body, limit, account, turns, &mut waits_for_room),
    )
    .await
    {
        Ok(read) => read,
        Err(_) if waits_for_room => Err(no_room()),
        Err(_) => {
            let error = format!(
                "the request was not complete within {} s",
                BODY_TIME_MAX.as_secs()
            );
            Err(Refusal::new(ErrorCode::Timeout, error)
                .suggest("Check the network and send it again."))
        }
    }
}

async fn read_whole(
    body: HttpBody,
    limit: usize,
    account: &mut Account,
    turns: Option<&RequestTurns>,
    waits_for_room: &mut bool,
) -> Result<Bytes, Refusal> {
    let announced = body.size_hint().lower();
    let (mut pieces, mut whole) = (body.into_data_stream(), BytesMut::new());
    let mut until = TURN_MAX;
    while let Some(piece) = pieces.next().await {
        if let Some(turns) = turns.filter(|_| whole.len() > until) {
            // Not held: the next piece comes when its client sends it.
            turns.turns().next_if_busy().await;
            until = whole.len() + TURN_MAX;
        }
        let piece = piece.map_err(|_| Refusal::invalid("the body is incomplete"))?;
        let length = whole.len() + piece.len();
        if length > limit {
            return Err(too_long(announced, limit));
        }
        *waits_for_room = true;
        account.hold(length).await;
        *waits_for_room = false;
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

fn stopping() -> Refusal {
    Refusal::new(
        ErrorCode::CoordDown,
        "the coordinator is shutting down and had not received the whole request; nothing was done",
    )
    .detail("applied", "no")
}

fn no_room() -> Refusal {
    let error = "the limit of bytes in unfinished requests is reached, for this key or for the coordinator; nothing \
                 was done";
    Refusal::new(ErrorCode::CoordDown, error)
        .suggest("Send it again in a few seconds.")
        .detail("applied", "no")
        .detail("retry_after_seconds", RETRY_AFTER)
}

/// Returns the refusal of a long body; `announced` is its length from the request, or 0 if unknown.
fn too_long(announced: u64, limit: usize) -> Refusal {
    let refusal = Refusal::new(
        ErrorCode::PayloadTooLarge,
        format!("the body has more than the {limit} bytes allowed"),
    )
    .suggest("Send a shorter request.")
    .detail("limit", limit);
    if announced > 0 {
        refusal.detail("count", announced)
    } else {
        refusal
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use futures_util::{poll, stream};

    use super::*;
    use crate::auth::Turns;
    use crate::unfinished::Budget;

    #[tokio::test]
    async fn a_long_body_of_a_busy_principal_is_read_in_turns() {
        let turns = RequestTurns::OfStrangers(Arc::new(Turns::of_strangers()));
        turns.turns().note(Duration::from_secs(10));
        let budget = Budget::within(None);
        for (pieces, is_long) in [(2, false), (4, true)] {
            let piece = |_| Ok::<_, Infallible>(Bytes::from(vec![b' '; TURN_MAX / 2]));
            let body = HttpBody::from_stream(stream::iter((0..pieces).map(piece)));
            let turn = turns.turns().next_if_busy().await;
            let (mut account, mut waits) = (budget.account_of_stranger(BODY_MAX), false);
            let reading = read_whole(body, BODY_MAX, &mut account, Some(&turns), &mut waits);
            let mut reading = pin!(reading);
            let early = poll!(&mut reading);
            assert_eq!(early.is_pending(), is_long);
            drop(turn);
            if is_long {
                let whole = reading.await.expect("a body");
                assert_eq!(whole.len(), pieces * TURN_MAX / 2);
            }
        }
    }

    #[test]
    fn only_a_short_body_with_a_fraction_is_parsed_again() {
        let check = |body: &str, expected: Option<u64>| {
            let parsed: serde_json::Result<Vec<u64>> = serde_json::from_str(body);
            let error = parsed.expect_err("an error").to_string();
            let again = with_integers::<Vec<u64>>(&error, body.as_bytes());
            assert_eq!(again.map(|values| values.iter().sum()), expected, "{error}");
        };
        let of = |length: usize| format!("[{}1]", "1.0,".repeat(length - 1));
        check(&of(VALUES_WITH_FRACTIONS - 1), Some(199));
        check(&of(VALUES_WITH_FRACTIONS + 1), None);
        check(r#"["x", 1.0]"#, None);
        check("[1.5]", None);
    }
}
