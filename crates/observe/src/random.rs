/// Random numbers for drawing samples: the same seed gives the same numbers on every machine.
///
/// `SplitMix64` (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014):
/// 64 bits of state, every seed good, period 2^64, passes `BigCrush`. It is ten lines, so it costs
/// less than a dependency; it is not for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Starts the sequence of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 up to, not including, `end`, each with the same chance.
    ///
    /// # Panics
    ///
    /// When `end` is 0: there is nothing to choose from.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "expected something to choose from");
        // Lemire, "Fast random integer generation in an interval", ACM TOMACS 29, 2019: the high
        // half of the product is the number; low halves below 2^64 mod `end` would favour some
        // numbers and are drawn again.
        let threshold = end.wrapping_neg() % end;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(end);
            let [high, low] = halves(product);
            if low >= threshold {
                return high;
            }
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the halves are what is wanted"
)]
const fn halves(number: u128) -> [u64; 2] {
    [(number >> 64) as u64, number as u64]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_that_of_the_reference_code() {
        // https://prng.di.unimi.it/splitmix64.c with seed 1234567.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn numbers_below_a_limit_are_evenly_spread() {
        let mut random = Random::new(1);
        let mut counts = [0u32; 6];
        for _ in 0..60_000 {
            counts[usize::try_from(random.below(6)).unwrap()] += 1;
        }
        // 6 standard deviations (√(60,000 · 1/6 · 5/6) = 91) either side.
        assert!(
            counts.iter().all(|count| (9_450..10_550).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn limits_of_any_size_are_kept() {
        let mut random = Random::new(2);
        assert_eq!(random.below(1), 0);
        for end in [3, u64::MAX / 2 + 2, u64::MAX] {
            assert!((0..100).all(|_| random.below(end) < end));
        }
    }
}
