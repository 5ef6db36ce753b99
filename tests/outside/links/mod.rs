//! Links that break silently, and links that break repeatedly.

mod ending;
mod outdated;
mod to_coordinator;
mod to_redis;

use anyhow::Result;

/// One test, because each part spends most of its time waiting for the same 45 seconds.
#[tokio::test]
async fn a_link_that_breaks_without_a_word_is_noticed_within_45_seconds_and_nothing_comes_twice()
-> Result<()> {
    tokio::try_join!(
        to_coordinator::breaks_without_a_word(),
        to_redis::breaks_without_a_word(),
        ending::hundreds_fall_silent(),
        outdated::is_given_nothing(),
    )?;
    Ok(())
}
