//! The two metrics of the comparison with the baseline, and when a difference counts.

use dbdyno_stats::{Estimate, NoiseFloor};
use dbdyno_types::Work;
use dbdyno_units::{Ratio, Share};
use serde::{Deserialize, Serialize};

use crate::cases::MicrobenchmarkCase;

/// A metric of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Throughput: above 1 is better.
    Qps,
    /// CPU time per statement: below 1 is better.
    Cpu,
}

impl Metric {
    /// The metric to trust: as in reports, except that no throughput is known to be that of the load
    /// generator.
    pub(crate) fn trusted(
        case: &MicrobenchmarkCase,
        on_server: bool,
        cpu_is_known: impl FnOnce() -> bool,
    ) -> Self {
        let MicrobenchmarkCase { microbenchmark, clients } = case;
        let work = Work {
            writes: microbenchmark.writes(),
            clients: *clients,
            on_server,
            client_bound: false,
        };
        if work.trusts_cpu() && cpu_is_known() { Self::Cpu } else { Self::Qps }
    }

    /// The name in reports.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Qps => "relative QPS",
            Self::Cpu => "relative CPU per query",
        }
    }
}

/// The noise floor of one microbenchmark; `None` without a control.
pub(crate) fn floor_of(control: Option<Ratio>, floor: Option<&NoiseFloor>) -> Option<Share> {
    floor.map(|floor| floor.for_row(control))
}

/// Whether a ratio differs from 1: its interval excludes 1, and it is farther from 1 than the noise
/// floor, if that is known.
pub(crate) fn is_difference(estimate: &Estimate, floor: Option<Share>) -> bool {
    let is_beyond = |floor: Share| estimate.median.distance() > floor.as_fraction();
    !estimate.contains_one() && floor.is_none_or(is_beyond)
}
