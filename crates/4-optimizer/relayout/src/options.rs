//! Options of a layout, and the address space it is for.

use std::ops::Range;

use serde::Serialize;

#[derive(Debug, Clone)]
pub struct Options {
    /// Share of the samples in the modules' functions that the moved functions cover, 0 to 1.
    pub coverage: f64,
    /// Upper limit for the size of all regions together, in bytes.
    pub max_bytes: u64,
    /// Also copy the cold blocks of moved functions, separate from the hot ones. Otherwise a function
    /// that takes a cold path continues in the original code until it returns.
    pub copy_cold: bool,
    /// Reorder blocks. Otherwise they are copied in their original order.
    pub reorder_blocks: bool,
    pub function_order: FunctionOrder,
    /// Align hot loops, too.
    pub align_loops: bool,
    /// Copy jump tables whose bounds are proven, with targets in the copy.
    pub jump_tables: bool,
    /// Replace calls of linkage stubs by calls through the stub's slot, or of the target itself.
    pub bypass_plt: bool,
    /// Let virtual tables refer to the copies of functions, so that virtual calls need no entry jump.
    pub virtual_tables: bool,
    /// Address ranges whose functions are not moved, such as code that others have patched.
    pub exclude: Vec<Range<u64>>,
    /// Start addresses of functions whose copies were not equivalent, and which are not moved.
    pub unproven: Vec<u64>,
    /// How good the samples must be; `None`: any samples are used.
    pub required: Option<SampleRequirement>,
    /// Count the executions of blocks in the copies, as far as flags permit it.
    pub count: bool,
}

impl Options {
    /// The same with blocks and functions in their original order.
    pub fn in_original_order(self) -> Self {
        Self { reorder_blocks: false, function_order: FunctionOrder::Address, ..self }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionOrder {
    /// By address, as in the original code.
    Address,
    /// Callees follow their most frequent callers.
    Calls,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            coverage: 0.99,
            max_bytes: 16 << 20,
            copy_cold: true,
            reorder_blocks: true,
            function_order: FunctionOrder::Calls,
            align_loops: true,
            jump_tables: true,
            bypass_plt: true,
            virtual_tables: true,
            exclude: Vec::new(),
            unproven: Vec::new(),
            required: None,
            count: false,
        }
    }
}

/// A request for free addresses near a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionRequest {
    pub module: usize,
    /// Size in bytes, a multiple of 4096. An upper limit; the regions may become smaller.
    pub size: u64,
    pub earliest: u64,
    pub latest: u64,
    /// Size of the counters in bytes: writable memory, zeroed, for [`AddressSpace::counters`].
    pub counters: u64,
}

/// The address space of the process that the layout is for.
pub trait AddressSpace {
    /// The start of `request.size` free bytes, a multiple of 4096 in the requested range. Called once
    /// per module with functions to move. `None`: there is no space.
    fn reserve(&mut self, request: &RegionRequest) -> Option<u64>;

    /// The address of the memory for the counters of a module's copies, a multiple of 4, near the memory
    /// that was reserved for them. Called after [`reserve`](Self::reserve) if there are any. `None`: there
    /// is no space.
    fn counters(&self, _module: usize) -> Option<u64> {
        None
    }

    /// The 8 bytes at `address`, in memory that the loader has made read-only. `None`: unknown, which
    /// is always a valid answer.
    fn read_slot(&self, address: u64) -> Option<u64>;
}

/// Too few samples: a layout would treat executed code as code that is never executed.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum TooFewSamples {
    /// There are too few to estimate anything.
    #[error(
        "too few samples: {found} in functions that can be moved, at least {required} are required"
    )]
    Few { found: u64, required: u64 },
    /// Too much of the execution is in blocks without a sample.
    #[error(
        "too few samples: with {found}, about {:.1}% of the execution is in blocks of code without a \
         sample, which would be treated as never executed; at most {:.0}% are accepted",
        unsampled * 100.0,
        accepted * 100.0
    )]
    Sparse {
        found: u64,
        /// Estimated share of the execution in blocks without a sample, 0 to 1.
        unsampled: f64,
        /// Highest accepted share.
        accepted: f64,
    },
}

/// The samples in the blocks of functions that can be moved: how well they show which blocks are executed.
///
/// A layout treats blocks without a sample as never executed. The share of the execution in such blocks
/// can be estimated from the samples alone (Good and Turing, 1953): it is about the share of the samples
/// that are the only one in their block.
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

    /// Adds the samples of a function whose executions will be counted: no block of it will be missing, even if it has
    /// one sample only.
    pub(crate) fn add_counted(&mut self, samples: u64) {
        self.samples += samples;
        self.blocks_sampled += u64::from(samples > 0);
    }

    /// Estimated share of the execution in blocks without a sample, 0 to 1; `None` without samples.
    pub fn unsampled(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.blocks_sampled_once as f64 / self.samples as f64)
    }
}

impl SampleRequirement {
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
    fn functions_that_will_be_counted_miss_no_block() {
        let mut precision = SamplePrecision::default();
        precision.add_counted(1);
        assert_eq!((precision.samples, precision.unsampled()), (1, Some(0.0)));
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
