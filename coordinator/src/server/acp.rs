//! `GET /acp`: the upgrade to a link.

use std::sync::Arc;

use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use c3po_shared::limits::FRAME_MAX;
use c3po_shared::wire::SUBPROTOCOL;

use super::Server;
use super::endpoint::Refused;
use crate::auth::{Principal, Right};
use crate::request::check_right;
use crate::session::{self, READ_BUFFER, WRITE_BUFFER};

/// Upgrades an admitted request and serves the link in a task of its own.
pub(super) async fn upgrade(
    State(server): State<Server>,
    Extension(principal): Extension<Arc<Principal>>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let stay = match check_right(&server.office, &principal, Right::Speak).and_then(|()| Principal::enter(&principal)) {
        Ok(stay) => stay,
        Err(refusal) => return Refused::from(refusal).into_response(),
    };
    upgrade
        .protocols([SUBPROTOCOL])
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER)
        .max_message_size(FRAME_MAX)
        .max_frame_size(FRAME_MAX)
        .on_upgrade(async move |socket| {
            let Server { office, tasks, stop, .. } = server;
            // In a task of its own: the task of the upgrade would hold the socket several times over.
            tasks.spawn(session::serve(socket, stay, office, stop));
        })
}
