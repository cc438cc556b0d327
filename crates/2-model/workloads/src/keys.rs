//! Random keys from 1 to N.

use rand_core::Rng;
use rand_distr::{Distribution as _, Zipf};

use crate::definition::Distribution;

/// A distribution over the keys 1..N, ready to draw from.
#[derive(Clone, Copy, Debug)]
pub enum KeyDistribution {
    /// Every key with the same probability.
    Uniform {
        /// The largest key.
        n: u64,
    },
    /// Small keys with a higher probability.
    Zipf(Zipf<f64>),
}

impl KeyDistribution {
    /// `distribution` over 1..`n`.
    ///
    /// # Panics
    /// If `n` is 0 or an exponent is negative; definitions are checked when they are read.
    pub fn new(distribution: Distribution, n: u64) -> Self {
        match distribution {
            Distribution::Uniform => Self::Uniform { n },
            Distribution::Zipf(exponent) => {
                Self::Zipf(Zipf::new(n as f64, exponent).expect("n >= 1 and exponent >= 0"))
            }
        }
    }

    /// Draws one key.
    #[inline]
    pub fn draw(&self, rng: &mut impl Rng) -> i64 {
        match self {
            Self::Uniform { n } => below(rng, *n) as i64 + 1,
            Self::Zipf(zipf) => zipf.sample(rng) as i64,
        }
    }
}

/// A random number in `0..n`, by Lemire's multiplication without its rejection step. For the size
/// of a table (`n` below 2^40) the bias is below 2^-24, which is negligible here.
#[inline]
pub fn below(rng: &mut impl Rng, n: u64) -> u64 {
    ((u128::from(rng.next_u64()) * u128::from(n)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    fn counts(distribution: Distribution, n: u64, draws: usize) -> Vec<f64> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(42);
        let keys = KeyDistribution::new(distribution, n);
        let mut counts = vec![0.0; n as usize];
        for _ in 0..draws {
            counts[keys.draw(&mut rng) as usize - 1] += 1.0;
        }
        counts
    }

    #[test]
    fn uniform_keys_cover_the_table_evenly() {
        let counts = counts(Distribution::Uniform, 10, 100_000);
        assert!(counts.iter().all(|count| (9_500.0..10_500.0).contains(count)), "{counts:?}");
    }

    #[test]
    fn zipfian_keys_follow_their_exponent() {
        let counts = counts(Distribution::Zipf(0.8), 1_000, 400_000);
        let ratio = counts[0] / counts[9];
        let expected = 10f64.powf(0.8);
        assert!((ratio / expected - 1.0).abs() < 0.1, "{ratio} is not near {expected}");
    }
}
