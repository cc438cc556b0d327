//! Percentiles of response times relative to the baseline's.

use dbdyno_results::SliceRecord;
use dbdyno_stats::{BlockTimes, Estimate, Pairing, percentile_ratios};

use super::Measured;
use crate::model::Percentile;

/// The ratios of p50, p95 and p99.
pub(super) type PercentileRatios = [Option<Estimate>; 3];

/// Response times by block.
pub(super) fn block_times<'a>(slices: &[&'a SliceRecord]) -> Vec<BlockTimes<'a>> {
    slices
        .iter()
        .map(|slice| BlockTimes {
            restart: slice.restart,
            block: slice.block,
            counts: slice.measured.latencies.counts(),
        })
        .collect()
}

/// The response times of one candidate, by block.
pub(super) fn times_of_candidate(slices: &[SliceRecord], candidate: usize) -> Vec<BlockTimes<'_>> {
    let of = slices.iter().filter(|slice| slice.candidate as usize == candidate);
    block_times(&of.collect::<Vec<_>>())
}

impl Measured {
    /// Percentiles of a candidate relative to the baseline's, by block.
    pub(super) fn percentile_ratios(&self, candidate: usize) -> PercentileRatios {
        let (own, baseline) =
            (times_of_candidate(&self.slices, candidate), times_of_candidate(&self.slices, 0));
        let planned = self.planned_restarts;
        percentile_ratios(&own, &baseline, Pairing::ByBlock, planned, Percentile::SHARES)
    }
}
