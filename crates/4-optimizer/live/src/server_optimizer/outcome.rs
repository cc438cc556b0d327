//! The record of an optimization.

use dbdyno_types::{BlockCounts, NewLayout};
use dbdyno_units::{Bytes, Nanos, Share};

use crate::{CountingReport, LiveError, MemberOutcome, Optimized, SampleSource, Switched};

pub(super) fn new_layout(
    source: String,
    done: &Optimized,
    processes: Processes,
    took: Nanos,
) -> NewLayout {
    let statistics = &done.statistics;
    let covered = (statistics.samples > 0)
        .then(|| statistics.samples_moved as f64 / statistics.samples as f64);
    NewLayout {
        source,
        samples: statistics.samples,
        covered: covered.map(Share::from_fraction),
        counts: None,
        functions: statistics.functions_moved,
        skipped: statistics
            .rejected
            .iter()
            .map(|(reason, count)| (reason.name().replace('_', " "), *count))
            .collect(),
        files: done.modules.iter().map(|(file, _)| file.clone()).collect(),
        hot: Bytes::from_bytes(statistics.hot_bytes),
        cold: Bytes::from_bytes(statistics.cold_bytes),
        added: Bytes::from_bytes(done.added),
        processes: processes.changed,
        unchanged: processes.unchanged,
        longest_pause: processes.longest_stop,
        threads: processes.threads,
        took,
    }
}

pub(super) fn block_counts(report: &CountingReport) -> BlockCounts {
    match &report.fallback {
        Some(reason) => BlockCounts::Estimated { reason: reason.clone() },
        None => BlockCounts::Counted { executions: report.executions, lost: report.lost() },
    }
}

pub(super) const fn source_name(source: SampleSource) -> &'static str {
    match source {
        SampleSource::Branches => "branches",
        SampleSource::Cycles => "cycles",
        SampleSource::Clock => "clock",
    }
}

/// Outcomes of the processes of a server.
pub(super) struct Processes {
    changed: u32,
    unchanged: Option<(u32, String)>,
    longest_stop: Nanos,
    threads: u32,
}

impl Processes {
    pub fn of(first: &Switched) -> Self {
        let mut all = Self { changed: 1, unchanged: None, longest_stop: Nanos::ZERO, threads: 0 };
        all.stopped(first);
        all
    }

    fn stopped(&mut self, switched: &Switched) {
        self.longest_stop = self.longest_stop.max(switched.longest_stop);
        self.threads = self.threads.max(switched.threads as u32);
    }

    pub fn add(&mut self, outcome: Result<MemberOutcome, LiveError>) {
        match outcome {
            Ok(joined) => {
                self.changed += 1;
                if let MemberOutcome::Switched(switched) = joined {
                    self.stopped(&switched);
                }
            }
            Err(error) => {
                let before = self.unchanged.take().map_or(0, |(count, _)| count);
                self.unchanged = Some((before + 1, error.to_string()));
            }
        }
    }
}
