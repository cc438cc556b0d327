//! The state of the run.

use dbdyno_results::{CandidateRecord, ExtensionRecord, InsertStepRecord, ResultsError, RunWriter};
use dbdyno_spec::experiment::Experiment;

use super::insert_record::step_count;
use crate::cases::{MicrobenchmarkCase, cases, instance_count};
use crate::slice_history::SliceHistory;
use crate::timing::slice_length;

/// The state of the run: read from the run directory when a session starts, and from then on
/// updated with what the session stores.
pub(super) struct RunState {
    /// Whether each microbenchmark is done.
    pub done: Vec<bool>,
    /// The slices of each microbenchmark.
    pub histories: Vec<SliceHistory>,
    /// The microbenchmark that earlier sessions measured last.
    pub last_measured: Option<u32>,
    /// The stored candidates; empty until the first session has resolved them.
    pub candidates: Vec<CandidateRecord>,
    /// The steps of the insert benchmark that earlier sessions stored.
    pub insert_steps: Vec<InsertStepRecord>,
}

impl RunState {
    /// Reads what earlier sessions stored.
    pub fn read(results: &RunWriter, experiment: &Experiment) -> Result<Self, ResultsError> {
        let reader = results.reader()?;
        let instances = instance_count(experiment);
        let done: Vec<bool> = reader.microbenchmarks()?.into_iter().map(|(_, done)| done).collect();
        let schedule = &experiment.schedule;
        let history = |(id, case): (u32, &MicrobenchmarkCase)| {
            let slice = slice_length(schedule, &case.microbenchmark);
            Ok(SliceHistory::of(&reader.slices(id)?, schedule, slice, instances))
        };
        let cases = cases(experiment);
        let mut state = Self {
            histories: (0..done.len() as u32)
                .zip(&cases)
                .map(history)
                .collect::<Result<_, ResultsError>>()?,
            done,
            last_measured: reader.last_measured()?,
            candidates: reader.candidates()?,
            insert_steps: reader.insert_steps()?,
        };
        state.set_goals(&reader.extension()?.unwrap_or_default());
        Ok(state)
    }

    /// Begins an extension.
    pub fn begin(&mut self, extension: &ExtensionRecord) {
        for id in extension.goals.keys() {
            self.done[*id as usize] = false;
        }
        self.set_goals(extension);
    }

    fn set_goals(&mut self, extension: &ExtensionRecord) {
        for (id, goal) in &extension.goals {
            if let Some(history) = self.histories.get_mut(*id as usize) {
                history.rule.set_goal(*goal);
            }
        }
    }

    /// Whether anything is measured.
    pub fn has_measured(&self) -> bool {
        self.histories.iter().any(|history| !history.is_empty())
            || self.insert_steps.iter().any(|step| step.measured.is_some())
    }

    /// Whether everything is measured.
    pub fn is_complete(&self, experiment: &Experiment) -> bool {
        let steps = self.insert_steps.iter().filter(|step| step.measured.is_some()).count();
        self.done.iter().all(|done| *done) && steps >= step_count(experiment)
    }
}
