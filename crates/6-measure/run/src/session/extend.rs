//! Extending a complete run.

use std::path::Path;

use dbdyno_results::{Role, RunWriter};
use dbdyno_spec::experiment::Experiment;
use dbdyno_units::Nanos;

use super::Session;
use super::state::RunState;
use crate::cases::{cases, instance_count};
use crate::clean::remove_data;
use crate::error::RunError;
use crate::extension::{self, Extension, Measured};
use crate::timing::slice_length;

/// The extension of a complete run by this measuring time.
pub(super) fn plan(
    results: &RunWriter,
    experiment: &Experiment,
    more: Nanos,
) -> Result<Extension, RunError> {
    let path = results.directory().path();
    if experiment.insert_benchmark.is_some() {
        let reason = "an insert benchmark runs its steps once per repeat; start a new run with more \
                      `repeats`";
        return Err(not_extendable(path, reason));
    }
    let state = RunState::read(results, experiment)?;
    if !state.is_complete(experiment) {
        let reason = format!(
            "it is not complete; first resume it with: dbdyno run --resume {}",
            path.display()
        );
        return Err(not_extendable(path, reason));
    }
    let numbers = |roles: &[Role]| -> Vec<u32> {
        let all = (0..).zip(&state.candidates);
        all.filter(|(_, one)| roles.contains(&one.role)).map(|(number, _)| number).collect()
    };
    let (mut candidates, control) = (numbers(&[Role::Candidate]), numbers(&[Role::Control]));
    if candidates.is_empty() {
        candidates.clone_from(&control);
    }
    let is_server: Vec<bool> = state.candidates.iter().map(|one| !one.is_embedded()).collect();
    let cases = cases(experiment);
    let instances = instance_count(experiment) as u64;
    let block = |slice: Nanos| slice.times(instances);
    let shortest: Vec<Nanos> = cases
        .iter()
        .map(|case| block(slice_length(&experiment.schedule, &case.microbenchmark)))
        .collect();
    let measured = Measured {
        cases: &cases,
        histories: &state.histories,
        candidates: &candidates,
        control: control.first().copied(),
        is_server: &is_server,
        shortest: &shortest,
    };
    Extension::plan(more, &measured).map_err(|reason| not_extendable(path, reason))
}

fn not_extendable(path: &Path, reason: impl Into<String>) -> RunError {
    RunError::NotExtendable { path: path.to_owned(), reason: reason.into() }
}

impl Session<'_> {
    /// Begins the extension, if there is one: from new data, because what `--keep-data` kept has been
    /// written to.
    pub(super) fn begin_extension(&mut self) -> Result<(), RunError> {
        let Some(Extension { record, summary }) = self.extension.take() else { return Ok(()) };
        remove_data(&mut self.recorder.results, self.experiment, &self.options.worker, true)?;
        let setting = (extension::SETTING.to_owned(), summary.clone());
        self.recorder.results.extend(&record, setting)?;
        self.state.begin(&record);
        self.needs_new_data = true;
        self.recorder.stage(format!("extending {summary}"));
        Ok(())
    }
}
