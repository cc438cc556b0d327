//! Where a candidate needs another CPU time per query than the baseline, by samples of stacks.

use std::collections::BTreeMap;

use dbdyno_units::{Nanos, Ratio, Share};
use serde::Serialize;

/// What sampling stacks or recording waits costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ProfilingCost {
    /// CPU time per query meanwhile, relative to that in slices among them in which nothing was sampled or recorded, or in
    /// runs of earlier versions to that in measured slices.
    pub relative_cpu: Ratio,
    /// Its 95% interval over starts; `None` with a single start.
    pub interval: Option<[Ratio; 2]>,
}

/// Arrays of two are of the candidate and the baseline. Times are CPU time per query in µs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProfileDifference {
    /// In slices that were not sampled.
    pub total_us: [f64; 2],
    /// The 95% interval of their difference; `None` with too few blocks.
    pub interval_us: Option<[f64; 2]>,
    pub samples: [u64; 2],
    /// Share of the samples whose stacks were not followed to their start.
    pub cut: Share,
    /// Samples of any process that were lost because a buffer was full.
    pub lost: u64,
    /// Of sampling stacks.
    pub cost: [Option<ProfilingCost>; 2],
    /// CPU time in slices that were sampled, in ns.
    pub sampled_cpu: [Nanos; 2],
    /// CPU time of each that was to be sampled, in ns; `None` if it is unknown.
    pub asked_cpu: Option<Nanos>,
    /// All layers, the largest difference first. They add up to the total, as functions do.
    pub layers: Vec<ProfileRow>,
    /// The time in the kernel by system call, or by what else leads into it, the largest difference first.
    pub system_calls: Vec<ProfileRow>,
    /// The functions that something was sampled in, without what they call, the largest difference first.
    pub functions: Vec<ProfileRow>,
    /// Functions with what they call; of recursive ones, a stack counts once. Those that take little time and do not
    /// certainly differ are left out.
    pub with_callees: Vec<ProfileRow>,
    /// The part of the differences of functions, without their signs, in those with neither a name nor a source file.
    pub unknown: Share,
    /// Share of the CPU time in functions without a name, in files of which the other does not run the same build: they
    /// may be functions that the other has names of.
    pub unnamed: [Share; 2],
    pub least: LeastCertain,
    /// What the functions execute; `None` if it was not to be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Instructions>,
    /// Not in `run.json`; none of the control.
    #[serde(skip)]
    pub stacks: [Stacks; 2],
}

/// Instructions that functions execute per query, counted exactly. Pairs are of the candidate and the baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Instructions {
    /// Share of the CPU time outside of the kernel in functions that were counted; `None` if none were.
    pub covered: [Option<Share>; 2],
    /// Why they were not counted; `None` if they were.
    pub not_counted: [Option<String>; 2],
    /// Per query, without what a function calls, by name as in [`ProfileDifference::functions`]; `None` for a function
    /// that was not counted.
    pub functions: BTreeMap<String, [Option<f64>; 2]>,
}

/// CPU time per query in a layer or a function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProfileRow {
    /// The layer, or the function: without a name by its source file or its program.
    pub name: String,
    /// 0 if nothing was sampled in it, as is `baseline_us`.
    pub us: f64,
    pub baseline_us: f64,
    /// Half of the 95% interval of the difference.
    pub half_width_us: f64,
    /// Whether the difference is certain, with 5% false discoveries among all rows that are, and larger than the
    /// control's.
    pub certain: bool,
    /// Of a function: whether the other side spends that time elsewhere below the nearest caller that both have, so that
    /// it moved between the functions that this caller calls.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub moved: bool,
}

/// From this share of a side's CPU time in functions without a name on, samples on one side only tell little.
const MUCH_UNNAMED: f64 = 0.05;

impl ProfileDifference {
    /// Whether functions of the other side may be in those without a name, of the candidate and the baseline.
    pub(crate) fn lacks_names(&self) -> [bool; 2] {
        self.unnamed.map(|share| share.as_fraction() > MUCH_UNNAMED)
    }
}

impl ProfileRow {
    pub fn difference(&self) -> f64 {
        self.us - self.baseline_us
    }
}

/// The smallest differences of functions that would be certain with as many samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LeastCertain {
    /// The time of a function that the baseline does not have.
    pub new_us: f64,
    /// The change of a function that takes [`LeastCertain::SHARE`] of the baseline's time.
    pub change_us: f64,
}

impl LeastCertain {
    pub const SHARE: f64 = 0.05;
}

/// Sampled stacks without rare calls, which belong to their callers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stacks {
    /// Names, in ascending order.
    pub functions: Vec<String>,
    /// In ascending order of their frames.
    pub stacks: Vec<CpuStack>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CpuStack {
    /// Indices of functions, the outermost first; empty for all stacks that begin with a rare function.
    pub frames: Vec<u32>,
    pub samples: u64,
    /// CPU time per query in the innermost function.
    pub us: f64,
}
