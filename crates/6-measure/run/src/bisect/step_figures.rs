//! What the run of a step measured.

use std::path::Path;

use dbdyno_results::{FailureRecord, ResultsError, Role, RunReader};
use dbdyno_spec::experiment::Experiment;
use dbdyno_stats::{Estimate, Weight};
use dbdyno_units::{Nanos, Share};

use crate::plan::cases::slice_length;
use crate::plan::cases::{MicrobenchmarkCase, cases};
use crate::plan::stopping_rule::StoppingRule;
use crate::record::figures::Figures;
use dbdyno_types::Metric;

/// The figures of a run.
pub(crate) struct StepFigures {
    pub cases: Vec<MicrobenchmarkCase>,
    /// By case.
    rules: Vec<StoppingRule>,
    /// By candidate.
    is_server: Vec<bool>,
    control: Option<u32>,
    /// How often the run was extended.
    pub extensions: usize,
    /// Failures that invalidate the results of a candidate.
    pub failures: Vec<FailureRecord>,
}

impl StepFigures {
    /// Reads a run.
    pub fn read(directory: &Path, experiment: &Experiment) -> Result<Self, ResultsError> {
        let run = RunReader::open(directory)?;
        let cases = cases(experiment);
        let schedule = &experiment.schedule;
        let rule = |(id, case): (u32, &MicrobenchmarkCase)| {
            let slice = slice_length(schedule, &case.microbenchmark);
            Ok(StoppingRule::of(&run.slices(id)?, schedule, slice))
        };
        let candidates = run.candidates()?;
        let control = candidates.iter().position(|one| one.role == Role::Control);
        Ok(Self {
            rules: (0..).zip(&cases).map(rule).collect::<Result<_, ResultsError>>()?,
            cases,
            is_server: candidates.iter().map(|one| !one.is_embedded()).collect(),
            control: control.map(|number| number as u32),
            extensions: run.extensions()?,
            failures: run.failures()?.into_iter().filter(FailureRecord::is_invalidating).collect(),
        })
    }

    /// Time of the counted slices, over all candidates.
    pub fn time(&self) -> Nanos {
        self.rules.iter().map(StoppingRule::time).sum()
    }

    /// A contrast of candidates; `None` with too few blocks.
    pub fn contrast(&self, case: usize, metric: Metric, weights: &[Weight]) -> Option<Estimate> {
        self.rules[case].contrast_of(metric, weights, &self.is_server)
    }

    /// The noise floor of a microbenchmark; `None` with too few blocks of the control.
    pub fn noise_floor(&self, case: usize, metric: Metric) -> Option<Share> {
        let own = self.control_estimate(case, metric).map(|estimate| estimate.median);
        self.noise_floor_of_run(metric).map(|floor| floor.for_row(own))
    }
}

impl Figures for StepFigures {
    fn cases(&self) -> &[MicrobenchmarkCase] {
        &self.cases
    }

    fn rule(&self, case: usize) -> &StoppingRule {
        &self.rules[case]
    }

    fn is_server(&self) -> &[bool] {
        &self.is_server
    }

    fn control(&self) -> Option<u32> {
        self.control
    }
}
