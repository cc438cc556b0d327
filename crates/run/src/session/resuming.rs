//! Going on where an earlier session stopped: with the same candidates, on data as it was.

use dbdyno_results::{CandidateRecord, OriginRecord, RunReader};

use super::Session;
use crate::candidates::Contender;
use crate::data;
use crate::error::RunError;
use crate::instances::Site;
use crate::plan::units;
use crate::progress::Event;

impl Session<'_> {
    /// Stores who takes part, or checks that it is who took part before.
    pub(super) fn store_candidates(&mut self, contenders: &[Contender]) -> Result<(), RunError> {
        let baseline = &contenders[0];
        let records: Vec<_> =
            contenders.iter().map(|contender| contender.record(baseline)).collect();
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
        site: &Site<'_>,
        contenders: &[Contender],
    ) -> Result<(), RunError> {
        let progress = self.options.progress;
        let reader = self.results.reader()?;
        let written = self.wrote_before(&reader)?;
        if written && data::from_baseline(site, contenders, self.had_shrunk_tables(&reader)?)? {
            return Ok(());
        }
        if written {
            progress(Event::Stage(
                "going on from newly loaded data: that of the interrupted run cannot be used"
                    .into(),
            ));
        }
        data::fresh(site, contenders, progress)
    }

    /// Whether an earlier session changed the data.
    fn wrote_before(&self, reader: &RunReader) -> Result<bool, RunError> {
        for (id, unit) in (0..).zip(units(self.experiment)) {
            if unit.microbenchmark.writes() && !reader.slices(id)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether an earlier session was ended while the tables were smaller than what follows needs:
    /// what they had before was kept then.
    fn had_shrunk_tables(&self, reader: &RunReader) -> Result<bool, RunError> {
        let done = self.done()?;
        let next = (0..).zip(units(self.experiment)).find(|(id, _)| !done[*id as usize]);
        Ok(match next {
            Some((id, unit)) if self.keeps_data(&unit) => !reader.slices(id)?.is_empty(),
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
