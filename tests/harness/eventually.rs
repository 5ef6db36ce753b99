//! Waits for a condition: checks it repeatedly until it holds or the time is up.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

/// The least and the longest pause between two checks: each is a tenth of the time so far, because a check may cost as much
/// processor time as what it waits for.
const PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(50)];

/// Returns the result of `look` as soon as there is one.
///
/// Errors: there was none `within` the time; the error names the condition.
pub async fn eventually<T>(
    what: &str,
    within: Duration,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await {
            return Ok(found);
        }
        let waited = begun.elapsed();
        if waited >= within {
            bail!("after {within:?} still not: {what}");
        }
        sleep((waited / 10).clamp(PAUSES[0], PAUSES[1])).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_fact_that_comes_late_is_found_and_one_that_never_comes_is_named() -> Result<()> {
        let mut looks = 0;
        let found = eventually("three looks", Duration::from_secs(5), async || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found.await?, 3);

        let never = eventually(
            "a flying pig",
            Duration::from_millis(20),
            async || None::<()>,
        )
        .await;
        assert!(
            never
                .expect_err("never")
                .to_string()
                .contains("a flying pig")
        );
        Ok(())
    }
}
