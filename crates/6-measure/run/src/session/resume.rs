//! Resuming and extending a stored run: what is done, and what must be the same as before.

use std::path::Path;

use dbdyno_results::{
    CandidateRecord, ExtensionRecord, InsertStepRecord, OriginRecord, ResultsError, Role,
    RunReader, RunWriter, Warning,
};
use dbdyno_spec::experiment::Experiment;
use dbdyno_units::Nanos;

use crate::candidates::{ResolvedCandidate, server_process};
use crate::error::RunError;
use crate::instance::context::RunContext;
use crate::instance::data;
use crate::measure::slice_history::SliceHistory;
use crate::plan::cases::{
    MicrobenchmarkCase, cases, instance_count, is_read_after_writes, slice_length,
};
use crate::plan::stopping_rule::Figures;
use crate::session::Session;
use crate::session::extension::{Extension, Measured};
use crate::session::insert_benchmark::step_count;
use crate::session::stored_run::remove_data;

impl Session<'_> {
    /// Stores the candidates, or checks that they are those of the earlier sessions.
    pub(super) fn store_candidates(
        &mut self,
        candidates: &[ResolvedCandidate],
    ) -> Result<(), RunError> {
        let baseline = &candidates[0];
        let records: Vec<_> =
            candidates.iter().map(|candidate| candidate.record(baseline)).collect();
        if self.state.candidates.is_empty() {
            self.recorder.results.add_candidates(&records)?;
            self.state.candidates = records;
            return Ok(());
        }
        for (before, now) in self.state.candidates.iter().zip(&records) {
            let (was, is) = (identity(before), identity(now));
            if was != is {
                return Err(RunError::changed(&now.name, &was, &is));
            }
        }
        Ok(())
    }

    /// Finds the processes of existing servers; some may have been restarted since the first session.
    pub(super) fn find_server_processes(
        &mut self,
        candidates: &mut [ResolvedCandidate],
    ) -> Result<(), RunError> {
        let sessions = self.recorder.results.reader()?.sessions()?;
        let run_started = match &sessions[..] {
            [first, _, ..] => Some(first.started.as_str()),
            _ => None,
        };
        let (warnings, found) = server_process::find_all(candidates, run_started)?;
        found.into_iter().for_each(|line| self.recorder.stage(line));
        self.warn(warnings)
    }

    /// Gives every candidate data: a copy of the baseline's current data if an earlier session
    /// wrote to it, else a copy of the loaded data.
    pub(super) fn prepare_data(
        &mut self,
        context: &RunContext<'_>,
        candidates: &[ResolvedCandidate],
    ) -> Result<(), RunError> {
        if self.has_written() && !self.needs_new_data {
            if data::from_baseline(context, candidates, self.has_shrunk_tables())? {
                return Ok(());
            }
            self.recorder.stage(
                "continuing without the writes of the earlier sessions: their data is gone or cannot be copied",
            );
            self.warn(self.new_data_warning().into_iter().collect())?;
        }
        data::fresh(context, candidates, self.options.progress)
    }

    /// A warning if microbenchmarks after the writes are left: on new data, these writes are not made.
    fn new_data_warning(&self) -> Option<Warning> {
        let cases = cases(self.experiment);
        let left = reads_after_writes(&cases, &self.state.done);
        let titles: Vec<String> = left.iter().map(|case| case.title(self.experiment)).collect();
        new_data_warning(&titles)
    }

    /// The warning that a resumed run would begin with if this session ended now.
    pub(super) fn warning_if_resumed(&self) -> Option<Warning> {
        if self.has_written() && self.record.loses_data { self.new_data_warning() } else { None }
    }

    /// Whether an earlier session wrote to the data.
    fn has_written(&self) -> bool {
        let mut all = cases(self.experiment).into_iter().zip(&self.state.histories);
        all.any(|(case, history)| case.microbenchmark.writes() && !history.is_empty())
    }

    /// Whether an earlier session ended in a microbenchmark that shrinks the tables and for which
    /// instances keep a copy of their data.
    fn has_shrunk_tables(&self) -> bool {
        let cases = cases(self.experiment);
        let last = self.state.last_measured.and_then(|index| cases.get(index as usize));
        last.is_some_and(|case| self.keeps_copy(case))
    }
}

/// The cases that read after the writes and are not done.
fn reads_after_writes<'c>(
    cases: &'c [MicrobenchmarkCase],
    done: &[bool],
) -> Vec<&'c MicrobenchmarkCase> {
    let is_left = |index: &usize| {
        is_read_after_writes(cases, *index) && !done.get(*index).copied().unwrap_or_default()
    };
    (0..cases.len()).filter(is_left).map(|index| &cases[index]).collect()
}

/// The warning about these microbenchmarks on new data; `None` if there are none.
fn new_data_warning(titles: &[String]) -> Option<Warning> {
    let (first, rest) = (titles.first()?, titles.len() - 1);
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    Some(Warning {
        what: format!(
            "it continues with the loaded data, without the writes of its earlier sessions, before \
             {first}{more}, which should be measured after these writes"
        ),
        advice: "only a new run has all results with these writes".to_owned(),
    })
}

/// What identifies the program of a candidate.
fn identity(record: &CandidateRecord) -> String {
    match (&record.build, &record.origin) {
        (Some(build), _) => format!("build {}", build.fingerprint),
        (None, Some(OriginRecord::Program { path, sha256, .. })) => {
            format!("{path} with SHA-256 {sha256}")
        }
        (None, Some(OriginRecord::Server { address })) => format!("the server at {address}"),
        (None, Some(OriginRecord::Imported { file })) => format!("imported from {file}"),
        (None, None) => "unknown".to_owned(),
    }
}

/// The extension of a complete run by this measuring time.
pub(super) fn plan_extension(
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
    let state = RunState::read(&results.reader()?, experiment)?;
    if !state.is_complete(experiment) {
        let reason = format!(
            "it is not complete; first resume it with: dbdyno run --resume {}",
            path.display()
        );
        return Err(not_extendable(path, reason));
    }
    let numbers = |role: Role| -> Vec<u32> {
        let all = (0..).zip(&state.candidates);
        all.filter(|(_, one)| one.role == role).map(|(number, _)| number).collect()
    };
    let mut candidates = numbers(Role::Candidate);
    if candidates.is_empty() {
        candidates = numbers(Role::Control);
    }
    let figures = state.figures(experiment);
    let instances = instance_count(experiment) as u64;
    let block = |case: &MicrobenchmarkCase| {
        slice_length(&experiment.schedule, &case.microbenchmark).times(instances)
    };
    let shortest: Vec<Nanos> = figures.cases.iter().map(block).collect();
    let measured = Measured { figures, candidates: &candidates, shortest: &shortest };
    Extension::plan(more, &measured).map_err(|reason| not_extendable(path, reason))
}

fn not_extendable(path: &Path, reason: impl Into<String>) -> RunError {
    RunError::Refused(format!("{} cannot be extended: {}", path.display(), reason.into()))
}

impl Session<'_> {
    /// Begins the extension, if there is one: from new data, because what `--keep-data` kept has been
    /// written to.
    pub(super) fn begin_extension(&mut self) -> Result<(), RunError> {
        let Some(Extension { record, summary }) = self.extension.take() else { return Ok(()) };
        let results = &mut self.recorder.results;
        remove_data(results, self.experiment, &self.options.worker, true)?.complete()?;
        self.recorder.results.extend(&record, &summary)?;
        self.state.begin(&record);
        self.needs_new_data = true;
        self.recorder.stage(format!("extending {summary}"));
        self.report_planned();
        Ok(())
    }
}

/// The state of the run as stored; in a session updated with what it stores.
pub(crate) struct RunState {
    pub done: Vec<bool>,
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
    pub fn read(reader: &RunReader, experiment: &Experiment) -> Result<Self, ResultsError> {
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

    pub fn figures(self, experiment: &Experiment) -> Figures {
        let rules = self.histories.into_iter().map(|history| history.rule).collect();
        Figures::of(cases(experiment), rules, &self.candidates)
    }

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

#[cfg(test)]
mod tests {
    use dbdyno_spec::parse;

    use super::*;

    #[test]
    fn reads_after_writes_on_new_data_are_named_in_a_warning() {
        let text = "name = \"test\"\nbaseline = \"a\"\n[workload]\nmicrobenchmarks = \
                    [\"point-query*\", \"update-index*\", \"scan*\"]\n\
                    [[candidate]]\nname = \"a\"\nsystem = \"mariadb\"\n\
                    [[candidate]]\nname = \"b\"\nsystem = \"mariadb\"\n";
        let experiment = parse("test.toml", text).unwrap_or_else(|problems| panic!("{problems}"));
        let cases = cases(&experiment);
        let titles = |done: &[bool]| -> Vec<String> {
            let left = reads_after_writes(&cases, done);
            left.iter().map(|case| case.title(&experiment)).collect()
        };
        let left = titles(&vec![false; cases.len()]);
        assert!(!left.is_empty());
        let writes = cases.iter().rposition(|case| case.microbenchmark.writes()).unwrap();
        for title in &left {
            let at = cases.iter().position(|case| case.title(&experiment) == *title);
            assert!(at > Some(writes), "{title}");
        }
        let warning = new_data_warning(&left).unwrap();
        assert!(warning.what.contains(&left[0]), "{}", warning.what);
        assert_eq!(titles(&vec![true; cases.len()]), Vec::<String>::new());
        assert_eq!(new_data_warning(&[]), None);
    }
}
