//! How well samples show which blocks of code are executed.
//!
//! A layout treats blocks without a sample as never executed. The share of the execution in such blocks
//! can be estimated from the samples alone (Good and Turing, 1953): it is about the share of the samples
//! that are the only one in their block.

use serde::Serialize;

/// Too few samples: a layout would treat executed code as code that is never executed.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum TooFewSamples {
    /// There are too few to estimate anything.
    #[error(
        "too few samples: {found} in functions that can be moved, at least {required} are required"
    )]
    Few {
        /// Samples in functions that can be moved.
        found: u64,
        /// Required number.
        required: u64,
    },
    /// Too much of the execution is in blocks without a sample.
    #[error(
        "too few samples: with {found}, about {:.1}% of the execution is in blocks of code without a \
         sample, which would be treated as never executed; at most {:.0}% are accepted",
        unsampled * 100.0,
        accepted * 100.0
    )]
    Sparse {
        /// Samples in functions that can be moved.
        found: u64,
        /// Estimated share of the execution in blocks without a sample, 0 to 1.
        unsampled: f64,
        /// Highest accepted share.
        accepted: f64,
    },
}

/// The samples in the blocks of functions that can be moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SamplePrecision {
    /// Number of samples; with branch records also of recorded branches.
    pub samples: u64,
    /// Blocks with at least one sample.
    pub blocks_sampled: u64,
    /// Blocks with exactly one sample.
    pub blocks_sampled_once: u64,
}

/// How good samples must be for a layout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleRequirement {
    /// Minimum number of samples in functions that can be moved.
    pub samples: u64,
    /// Maximum estimated share of the execution in blocks without a sample, 0 to 1.
    pub unsampled: f64,
}

impl Default for SampleRequirement {
    /// With 1,000 samples, a share of 5% is estimated to ±1.4 percentage points.
    fn default() -> Self {
        Self { samples: 1_000, unsampled: 0.05 }
    }
}

impl SamplePrecision {
    /// Adds the number of samples in each block of a function.
    pub(crate) fn add(&mut self, blocks: &[u64]) {
        self.samples += blocks.iter().sum::<u64>();
        self.blocks_sampled += blocks.iter().filter(|samples| **samples > 0).count() as u64;
        self.blocks_sampled_once += blocks.iter().filter(|samples| **samples == 1).count() as u64;
    }

    /// Estimated share of the execution in blocks without a sample, 0 to 1; `None` without samples.
    #[must_use]
    pub fn unsampled(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.blocks_sampled_once as f64 / self.samples as f64)
    }
}

impl SampleRequirement {
    /// Checks samples.
    ///
    /// # Errors
    /// There are too few.
    pub fn check(&self, found: &SamplePrecision) -> Result<(), TooFewSamples> {
        if found.samples < self.samples {
            return Err(TooFewSamples::Few { found: found.samples, required: self.samples });
        }
        match found.unsampled() {
            Some(unsampled) if unsampled > self.unsampled => Err(TooFewSamples::Sparse {
                found: found.samples,
                unsampled,
                accepted: self.unsampled,
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn execution_without_samples_is_estimated_from_blocks_with_one_sample() {
        // 4,000 blocks, each executed half as often as the one before it in groups of 400.
        let weights: Vec<f64> = (0..4_000).map(|block| 0.5_f64.powi(block / 400)).collect();
        let all: f64 = weights.iter().sum();
        let mut state = 1_u64;
        let mut draw = || {
            // Numerical Recipes' linear congruential generator.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let mut at = (state >> 11) as f64 / (1_u64 << 53) as f64 * all;
            let found = weights.iter().position(|weight| {
                at -= weight;
                at < 0.0
            });
            found.unwrap_or(weights.len() - 1)
        };
        for samples in [2_000, 10_000, 50_000] {
            let mut counts = vec![0; weights.len()];
            (0..samples).for_each(|_| counts[draw()] += 1);
            let mut precision = SamplePrecision::default();
            precision.add(&counts);
            let unsampled = weights.iter().zip(&counts).filter(|(_, count)| **count == 0);
            let share = unsampled.map(|(weight, _)| weight).sum::<f64>() / all;
            let estimate = precision.unsampled().unwrap();
            assert!((estimate - share).abs() < 0.02, "{samples}: {estimate} {share}");
        }
    }

    #[test]
    fn few_and_sparse_samples_are_refused() {
        let required = SampleRequirement::default();
        let check = |samples, blocks_sampled_once| {
            let found = SamplePrecision { samples, blocks_sampled: 500, blocks_sampled_once };
            required.check(&found).map_err(|error| error.to_string())
        };
        assert_eq!(check(1_000, 50), Ok(()));
        assert!(check(999, 0).unwrap_err().contains("999 in functions that can be moved"));
        assert!(check(1_000, 60).unwrap_err().contains("about 6.0% of the execution"));
        assert_eq!(SamplePrecision::default().unsampled(), None);
    }
}
