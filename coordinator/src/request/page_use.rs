//! The use of pages by people: pushes of questions to a person who uses one wait.

use std::time::Duration;

use c3po_shared::limits::PAGE_USED_WITHIN;
use c3po_shared::refusal::Refusal;
use c3po_shared::time::Timestamp;

use super::{Services, begin_call};
use crate::auth::Principal;
use crate::clock;
use crate::store::StoreError;

/// Records that the person of a login has just used a page. Returns until when that counts, or `None` without a login.
///
/// Errors: those of the store.
pub(crate) async fn record(
    services: &Services,
    principal: &Principal,
) -> Result<Option<Timestamp>, Refusal> {
    let name = principal.login_id().and_then(|_| principal.answers_as());
    let Some(name) = name.map(key) else {
        return Ok(None);
    };
    let _place = begin_call(principal).await?;
    services.store.use_page(&name, PAGE_USED_WITHIN).await?;
    Ok(Some(clock::now() + PAGE_USED_WITHIN))
}

/// Returns for how long the latest use of a page by the person of this name counts yet.
pub(crate) async fn left(services: &Services, name: &str) -> Result<Duration, StoreError> {
    services.store.page_use(&key(name)).await
}

/// The name of a login and that in `notify.toml` may differ in case.
fn key(name: &str) -> String {
    name.to_lowercase()
}
