//! Optimizations by the live optimizer, with names instead of numbers.

use dbdyno_results::RunReader;
use dbdyno_results::{CandidateRecord, MicrobenchmarkRecord, OptimizationRecord, ResultsError};

use crate::model::Optimization;

pub(super) fn all(
    run: &RunReader,
    candidates: &[CandidateRecord],
) -> Result<Vec<Optimization>, ResultsError> {
    let records = run.optimizations()?;
    if records.is_empty() {
        return Ok(Vec::new());
    }
    let microbenchmarks = run.microbenchmarks()?;
    let microbenchmarks: Vec<_> = microbenchmarks.into_iter().map(|(record, _)| record).collect();
    let sweep = microbenchmarks.windows(2).any(|pair| pair[0].clients != pair[1].clients);
    let name = |id: u32| name(&microbenchmarks, id, sweep);
    Ok(records.into_iter().map(|record| optimization(record, candidates, &name)).collect())
}

fn name(microbenchmarks: &[MicrobenchmarkRecord], id: u32, sweep: bool) -> String {
    match microbenchmarks.get(id as usize) {
        Some(MicrobenchmarkRecord { name, clients, .. }) if sweep => {
            format!("{name}, {clients} {}", if *clients == 1 { "client" } else { "clients" })
        }
        Some(record) => record.name.clone(),
        None => id.to_string(),
    }
}

fn optimization(
    record: OptimizationRecord,
    candidates: &[CandidateRecord],
    name: &dyn Fn(u32) -> String,
) -> Optimization {
    let OptimizationRecord {
        candidate,
        trained_with,
        measured_next,
        after_restart,
        refused,
        layout,
    } = record;
    let candidate = candidates
        .get(candidate as usize)
        .map_or_else(|| candidate.to_string(), |candidate| candidate.name.clone());
    let (trained_with, measured_next) = (name(trained_with), name(measured_next));
    Optimization { candidate, trained_with, measured_next, after_restart, refused, layout }
}
