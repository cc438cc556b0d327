//! Resuming a run: with the same candidates, on data in the same state.

use dbdyno_results::{CandidateRecord, OriginRecord};

use super::Session;
use crate::cases::cases;
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
        &self,
        context: &RunContext<'_>,
        candidates: &[ResolvedCandidate],
    ) -> Result<(), RunError> {
        if self.has_written() && !self.needs_new_data {
            if data::from_baseline(context, candidates, self.has_shrunk_tables())? {
                return Ok(());
            }
            self.recorder.stage("loading new data: that of the interrupted run cannot be used");
        }
        data::fresh(context, candidates, self.options.progress)
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
