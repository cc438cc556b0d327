//! What was measured, compared with the baseline.

use dbdyno_stats::{ControlRow, Estimate, NoiseFloor};
use dbdyno_types::{Metric, Work};

use crate::plan::cases::MicrobenchmarkCase;
use crate::plan::stopping_rule::StoppingRule;

/// The figures of a run.
pub(crate) trait Figures {
    fn cases(&self) -> &[MicrobenchmarkCase];

    /// The slices of a case.
    fn rule(&self, case: usize) -> &StoppingRule;

    /// Whether it is a server, by candidate.
    fn is_server(&self) -> &[bool];

    /// The control's number.
    fn control(&self) -> Option<u32>;

    /// The ratio of a candidate to the baseline; `None` with too few blocks.
    fn estimate(&self, case: usize, metric: Metric, candidate: u32) -> Option<Estimate> {
        self.rule(case).estimate_of(metric, candidate, self.is_server())
    }

    /// The ratio of the control to the baseline; `None` with too few blocks.
    fn control_estimate(&self, case: usize, metric: Metric) -> Option<Estimate> {
        self.estimate(case, metric, self.control()?)
    }

    /// The metric to trust for a candidate.
    fn trusted_metric(&self, case: usize, candidate: u32) -> Metric {
        let is_server = |number: u32| self.is_server().get(number as usize) == Some(&true);
        let on_server = is_server(0) || is_server(candidate);
        let cpu_is_known = || self.estimate(case, Metric::Cpu, candidate).is_some();
        let MicrobenchmarkCase { microbenchmark, clients } = &self.cases()[case];
        let writes = microbenchmark.writes();
        // No throughput is known to be that of the load generator.
        let work = Work { writes, clients: *clients, on_server, client_bound: false };
        Metric::trusted(work, cpu_is_known)
    }

    /// The noise floor of the run; `None` without a control.
    fn noise_floor_of_run(&self, metric: Metric) -> Option<NoiseFloor> {
        let control = |(case, of): (usize, &MicrobenchmarkCase)| {
            let microbenchmark = of.microbenchmark.name.clone();
            Some(ControlRow { microbenchmark, estimate: self.control_estimate(case, metric)? })
        };
        let controls: Vec<ControlRow> =
            self.cases().iter().enumerate().filter_map(control).collect();
        NoiseFloor::of(&controls)
    }
}
