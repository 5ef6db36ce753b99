//! Invites over HTTP: making, listing and revoking them. Only the reply to making one contains a code.

use axum::Json;
use axum::extract::State;
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::Scope;
use schemars::JsonSchema;
use serde::Serialize;

use super::AppState;
use super::endpoint::{Body, By, InPath, RestAnswer};
use super::join::Invited;
use super::keys::{Named, unsure};
use crate::auth::invites::{self, NewInvite};
use crate::auth::logins::vouch_again;
use crate::store::Invite;

/// An invite as lists show it, without its hash. The code cannot be recovered.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Invite")]
pub(super) struct ListedInvite {
    /// The id of the invite.
    id: String,
    /// The scope of the keys made with it.
    scope: Scope,
    /// The agents that these keys cover, as globs.
    agents: Vec<String>,
    /// The host that it admits, whatever name the client sends. Null for any host.
    host: Option<String>,
    /// How many hosts it can still admit.
    uses: u32,
    /// When it expires.
    expires_at: Timestamp,
    /// The creator: a key's id, `local`, `token` or `start`. Null if unknown.
    made_by: Option<String>,
}

/// The open invites.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Invites {
    /// All open invites, ordered by expiry.
    invites: Vec<ListedInvite>,
}

/// `GET /api/invites`
pub(super) async fn list(State(server): State<AppState>) -> RestAnswer<Invites> {
    let invites = invites::invites(server.services.store.as_ref()).await?;
    Ok(Json(Invites {
        invites: invites.into_iter().map(shown).collect(),
    }))
}

/// `POST /api/invites`: returns the lines to run on a new host.
pub(super) async fn create(
    State(server): State<AppState>,
    By(principal): By,
    Body(new, _held): Body<NewInvite>,
) -> RestAnswer<Invited> {
    let by = principal.name();
    let made = server
        .joins
        .invite(
            server.services.store.as_ref(),
            new,
            by,
            principal.presented(),
        )
        .await;
    let invite = made.inspect_err(|refusal| unsure(&server, "invited", None, by, refusal))?;
    tracing::info!(
        "the invite {} was made by {by} and ends at {}",
        invite.id,
        invite.expires_at
    );
    vouch_again(server.services.store.as_ref(), &principal).await?;
    Ok(Json(invite))
}

/// `DELETE /api/invites/{id}`
pub(super) async fn revoke(
    State(server): State<AppState>,
    By(principal): By,
    InPath(Named { id }): InPath<Named>,
) -> RestAnswer<ListedInvite> {
    let by = principal.name();
    let ended = invites::revoke_invite(server.services.store.as_ref(), &id, &principal).await;
    let invite = ended.inspect_err(|refusal| unsure(&server, "revoked", Some(&id), by, refusal))?;
    tracing::info!("the invite {id} was revoked by {by}");
    Ok(Json(shown(invite)))
}

fn shown(
    Invite {
        id,
        scope,
        agents,
        host,
        uses,
        expires_at,
        made_by,
        ..
    }: Invite,
) -> ListedInvite {
    ListedInvite {
        id,
        scope,
        agents,
        host,
        uses,
        expires_at,
        made_by,
    }
}
