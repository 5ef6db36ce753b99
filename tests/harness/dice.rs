//! Repeatable randomness: the same seed gives the same numbers.

use std::time::Duration;

/// A random generator. SplitMix64: eight lines, and good enough for disturbing things.
#[derive(Debug, Clone)]
pub struct Dice {
    state: u64,
}

impl Dice {
    /// Creates dice from a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns dice that depend only on this seed and on `which`, not on earlier throws.
    #[must_use]
    pub fn of(seed: u64, which: u64) -> Self {
        let mut dice = Self::new(seed ^ which.wrapping_mul(0xA076_1D64_78BD_642F));
        Self::new(dice.throw())
    }

    /// Returns a random number.
    pub fn throw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a random number below `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX);
        usize::try_from(self.throw() % end).unwrap_or_default()
    }

    /// Returns true in `chance` percent of all cases.
    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// Returns a random time between two limits in milliseconds.
    pub fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.throw() % (to - from).max(1))
    }

    /// Shuffles things.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_itself_and_another_does_not() {
        let throws = |seed| {
            (0..20)
                .map(|which| Dice::of(seed, which).below(1_000))
                .collect::<Vec<_>>()
        };
        assert_eq!(throws(7), throws(7));
        assert_ne!(throws(7), throws(8));
        let mut cards: Vec<_> = (0..50).collect();
        Dice::new(1).shuffle(&mut cards);
        assert_ne!(cards, (0..50).collect::<Vec<_>>());
        cards.sort_unstable();
        assert_eq!(cards, (0..50).collect::<Vec<_>>());
    }
}
