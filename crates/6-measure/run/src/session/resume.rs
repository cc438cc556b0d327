//! Resuming a run: with the same candidates, on data in the same state.

use dbdyno_results::{CandidateRecord, OriginRecord, Warning};

use super::Session;
use crate::cases::{MicrobenchmarkCase, cases, is_read_after_writes};
use crate::context::RunContext;
use crate::data;
use crate::error::RunError;
use crate::progress::RunEvent;
use crate::resolved_candidate::ResolvedCandidate;
use crate::server_process;

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
                return Err(RunError::Changed { candidate: now.name.clone(), was, is });
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
        self.recorder.report(RunEvent::Warnings(&warnings));
        self.record.warnings.extend(warnings);
        Ok(self.recorder.results.update_session(&self.record)?)
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
            self.recorder.stage("loading new data: that of the interrupted run cannot be used");
            self.warn_of_new_data()?;
        }
        data::fresh(context, candidates, self.options.progress)
    }

    /// Stores a warning if microbenchmarks after the writes are left, which are now measured on data to which
    /// these writes are not made.
    fn warn_of_new_data(&mut self) -> Result<(), RunError> {
        let cases = cases(self.experiment);
        let left = reads_after_writes(&cases, &self.state.done);
        let titles: Vec<String> = left.iter().map(|case| case.title(self.experiment)).collect();
        let Some(warning) = new_data_warning(&titles) else { return Ok(()) };
        self.recorder.report(RunEvent::Warnings(std::slice::from_ref(&warning)));
        self.record.warnings.push(warning);
        Ok(self.recorder.results.update_session(&self.record)?)
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
            "the resumed run has loaded new data, without the writes of its earlier sessions, before {first}{more}, \
             which should be measured after these writes"
        ),
        advice: "results on written and on new data are mixed: start a new run".to_owned(),
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
