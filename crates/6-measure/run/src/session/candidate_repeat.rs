//! One candidate in one repeat of the insert benchmark, and the locations of its data.

use dbdyno_spec::experiment::InsertBenchmark;
use dbdyno_workloads::insert::Plan;

use crate::context::RunContext;
use crate::data_location::DataLocation;
use crate::error::RunError;
use crate::resolved_candidate::ResolvedCandidate;

/// One candidate in one repeat of the insert benchmark.
#[derive(Clone, Copy)]
pub(super) struct CandidateRepeat<'a> {
    pub benchmark: &'a InsertBenchmark,
    /// The repeat, from 0.
    pub repeat: u32,
    /// Position of the candidate in the repeat, from 0.
    pub position: u32,
    /// The candidate's number.
    pub number: usize,
    pub candidate: &'a ResolvedCandidate,
}

impl CandidateRepeat<'_> {
    pub fn plan(&self) -> &Plan {
        &self.benchmark.plan
    }

    pub fn is_last_repeat(&self) -> bool {
        self.repeat + 1 == self.benchmark.repeats
    }

    /// The location of its data: one per repeat, so that a resumed repeat does not continue with
    /// the data of another. That of the last repeat may be kept, under the candidate's name.
    pub fn data(&self, context: &RunContext<'_>) -> DataLocation {
        let name = &self.candidate.name;
        if self.is_last_repeat() {
            return context.data_location(self.candidate, name);
        }
        context.data_location(self.candidate, &format!(".repeat-{}-of-{name}", self.repeat))
    }

    /// The location of the copy that was made after `steps` steps.
    pub fn copy(&self, context: &RunContext<'_>, steps: usize) -> DataLocation {
        let Self { candidate, repeat, .. } = self;
        let name = format!(".after-{steps}-of-{repeat}-{}", candidate.name);
        context.data_location(candidate, &name)
    }

    /// The location of a copy that is being made.
    pub fn unfinished_copy(&self, context: &RunContext<'_>) -> DataLocation {
        context.data_location(self.candidate, &format!(".copying-{}", self.candidate.name))
    }

    /// Removes its data and all copies.
    pub fn remove(&self, context: &RunContext<'_>) -> Result<(), RunError> {
        for steps in 0..=self.plan().steps.len() {
            self.copy(context, steps).remove()?;
        }
        self.data(context).remove()
    }
}
