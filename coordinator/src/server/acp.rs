//! `GET /acp`: the upgrade to a link.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::HeaderValue;
use axum::http::header::SEC_WEBSOCKET_PROTOCOL;
use axum::response::{IntoResponse, Response};
use c3po_shared::refusal::Refusal;
use c3po_shared::wire::SUBPROTOCOL;
use tokio_tungstenite::tungstenite::handshake::server::create_response_with_body;

use super::AppState;
use super::endpoint::Refused;
use crate::auth::{Principal, Right};
use crate::request::check_right;
use crate::session;

/// Upgrades an admitted request and serves the link in its own task.
///
/// axum's extractor is not used, because its socket has the same message size limit before and after `hello`.
pub(super) async fn upgrade(
    State(server): State<AppState>,
    Extension(principal): Extension<Arc<Principal>>,
    mut request: Request,
) -> Response {
    let stay = match check_right(&server.services, &principal, Right::Speak)
        .and_then(|()| Principal::enter(&principal))
    {
        Ok(stay) => stay,
        Err(refusal) => return Refused::from(refusal).into_response(),
    };
    let mut response = match create_response_with_body(&request, Body::empty) {
        Ok(response) => response,
        Err(error) => {
            let refusal = Refusal::invalid(format!("this request does not open a link: {error}"));
            return Refused::from(refusal).into_response();
        }
    };
    if offers_ours(&request) {
        response.headers_mut().insert(
            SEC_WEBSOCKET_PROTOCOL,
            HeaderValue::from_static(SUBPROTOCOL),
        );
    }
    let upgrading = hyper::upgrade::on(&mut request);
    let AppState {
        services,
        tasks,
        stop,
        ..
    } = server;
    tasks.clone().spawn(async move {
        // The client may be gone before the response was written.
        let Ok(upgraded) = upgrading.await else {
            return;
        };
        // In its own task, because the task of the upgrade would hold the socket several times.
        tasks.spawn(session::serve(upgraded, stay, services, stop));
    });
    response
}

/// Returns whether the client offers the subprotocol of the link.
fn offers_ours(request: &Request) -> bool {
    let offers = request.headers().get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    offers
        .flat_map(|offer| offer.as_bytes().split(|byte| *byte == b','))
        .any(|offer| offer.trim_ascii() == SUBPROTOCOL.as_bytes())
}
