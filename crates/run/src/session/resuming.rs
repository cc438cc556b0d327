//! Going on where an earlier session stopped: with the same candidates, on data as it was.

use dbdyno_results::{CandidateRecord, OriginRecord, RunReader};

use super::Session;
use crate::candidates::ResolvedCandidate;
use crate::data;
use crate::error::RunError;
use crate::instances::RunContext;
use crate::plan::cases;
use crate::progress::RunEvent;

impl Session<'_> {
    /// Stores who takes part, or checks that it is who took part before.
    pub(super) fn store_candidates(
        &mut self,
        candidates: &[ResolvedCandidate],
    ) -> Result<(), RunError> {
        let baseline = &candidates[0];
        let records: Vec<_> =
            candidates.iter().map(|candidate| candidate.record(baseline)).collect();
        let before = self.results.reader()?.candidates()?;
        if before.is_empty() {
            self.results.add_candidates(&records)?;
            return Ok(());
        }
        for (before, now) in before.iter().zip(&records) {
            let (was, is) = (identity(before), identity(now));
            if was != is {
                return Err(RunError::Changed { candidate: now.name.clone(), was, is });
            }
        }
        Ok(())
    }

    /// Gives everybody data: as the baseline's stood, where writes had begun, else freshly loaded.
    pub(super) fn prepare_data(
        &self,
        context: &RunContext<'_>,
        candidates: &[ResolvedCandidate],
    ) -> Result<(), RunError> {
        let progress = self.options.progress;
        let reader = self.results.reader()?;
        let written = self.wrote_before(&reader)?;
        if written && data::from_baseline(context, candidates, self.had_shrunk_tables(&reader)?)? {
            return Ok(());
        }
        if written {
            progress(RunEvent::Stage(
                "going on from newly loaded data: that of the interrupted run cannot be used"
                    .into(),
            ));
        }
        data::fresh(context, candidates, progress)
    }

    /// Whether an earlier session changed the data.
    fn wrote_before(&self, reader: &RunReader) -> Result<bool, RunError> {
        for (id, case) in (0..).zip(cases(self.experiment)) {
            if case.microbenchmark.writes() && !reader.slices(id)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether an earlier session was ended while the tables were smaller than what follows needs:
    /// what they had before was kept then.
    fn had_shrunk_tables(&self, reader: &RunReader) -> Result<bool, RunError> {
        let done = self.done()?;
        let next = (0..).zip(cases(self.experiment)).find(|(id, _)| !done[*id as usize]);
        Ok(match next {
            Some((id, case)) if self.keeps_data(&case) => !reader.slices(id)?.is_empty(),
            _ => false,
        })
    }
}

/// What identifies what a candidate ran.
fn identity(record: &CandidateRecord) -> String {
    match (&record.build, &record.origin) {
        (Some(build), _) => format!("build {}", build.fingerprint),
        (None, Some(OriginRecord::Program { path, sha256, .. })) => {
            format!("{path} with SHA-256 {sha256}")
        }
        (None, Some(OriginRecord::Server { address })) => format!("the server at {address}"),
        (None, Some(OriginRecord::Imported { file })) => format!("read from {file}"),
        (None, None) => "nothing".to_owned(),
    }
}
