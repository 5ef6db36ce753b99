//! The price of frames: a link is read more slowly if it pipelines calls or sends long frames.
//!
//! Without it, links that send 50,000 characters as fast as possible raise the p99 of other links from 2.2 to 12.2 ms. A
//! flooding link raises it from 2.6 to 4.2 ms (`make bench ARGS=others`). Sequential calls are never throttled.

use std::time::Duration;

use super::bounds::{PER_SECOND, PIECE};

/// Returns the price of a frame of that length, as time of the link. `beside` is how many excess calls were running when it
/// arrived.
pub(super) fn price(bytes: usize, beside: usize) -> Duration {
    let pieces = u32::try_from(bytes / PIECE + beside).unwrap_or(u32::MAX);
    Duration::from_secs(1) / PER_SECOND * pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_frames_and_those_beside_other_calls_have_a_price() {
        let second = Duration::from_secs(1);
        for (bytes, beside, expected) in [
            (PIECE - 1, 0, Duration::ZERO),
            (10, 1, second / PER_SECOND),
            (PIECE * 50, 0, second / 5),
        ] {
            assert_eq!(price(bytes, beside), expected, "{bytes} {beside}");
        }
    }
}
