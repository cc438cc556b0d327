//! Results with more clients relative to those with fewer.

use std::collections::BTreeSet;

use dbdyno_results::{CandidateRecord, SliceRecord};
use dbdyno_stats::{
    BlockTimes, MIN_BLOCKS, Pairing, Point, paired_ratios, percentile_ratios, unpaired_ratio,
};

use super::Measured;
use super::absolute::times_of_candidate;
use crate::metric::Metric;
use crate::model::{Estimate, ScalingRatio, ScalingRow, Verdict};

/// The share of p99.
const P99: f64 = 0.99;

/// The rows of a sweep: for each microbenchmark and candidate the numbers of clients in ascending
/// order. Empty without a sweep.
pub(super) fn rows(measured: &[Measured], candidates: &[CandidateRecord]) -> Vec<ScalingRow> {
    let mut rows = Vec::new();
    let mut seen = BTreeSet::new();
    for first in measured {
        if !seen.insert(&first.record.name) {
            continue;
        }
        let mut steps: Vec<&Measured> =
            measured.iter().filter(|one| one.record.name == first.record.name).collect();
        steps.sort_by_key(|step| step.record.clients);
        if let [smallest, _, ..] = steps[..] {
            for (number, candidate) in candidates.iter().enumerate() {
                for (index, step) in steps.iter().enumerate() {
                    let Some(absolute) = &step.own[number].absolute else { continue };
                    let before = index.checked_sub(1).map(|before| steps[before]);
                    let ratio = |than| ratio(step, than, number, steps.len());
                    let to_previous = before.map(ratio);
                    let to_smallest = match index {
                        0 | 1 => to_previous.clone(),
                        _ => Some(ratio(smallest)),
                    };
                    rows.push(ScalingRow {
                        microbenchmark: step.record.name.clone(),
                        group: step.record.group.clone(),
                        three_group: step.record.three_group.clone(),
                        candidate: candidate.name.clone(),
                        role: candidate.role,
                        clients: step.record.clients,
                        qps: absolute.qps,
                        p99: absolute.latency.map(|times| times.p99),
                        to_previous,
                        to_smallest,
                    });
                }
            }
        }
    }
    rows
}

fn ratio(more: &Measured, fewer: &Measured, candidate: usize, numbers: usize) -> ScalingRatio {
    let common = common_blocks(more, fewer, numbers);
    let shorter = more.order.len().min(fewer.order.len());
    let interleaved = common.len() >= MIN_BLOCKS
        && 2 * common.len() >= shorter
        && !more.record.writes
        && take_turns(&common, more, fewer);
    let planned = more.planned_restarts;
    let (relative_qps, relative_p99) = if interleaved {
        let is_common = |slice: &SliceRecord| common.contains(&(slice.restart, slice.block));
        let mut points = points(fewer, candidate, 0, is_common);
        points.extend(self::points(more, candidate, 1, is_common));
        let times = |measured| -> Vec<BlockTimes<'_>> {
            let all = times_of_candidate(measured, candidate).into_iter();
            all.filter(|one| common.contains(&(one.restart, one.block))).collect()
        };
        (
            more.estimate(&paired_ratios(&points, 1, 0)),
            p99_ratio(&times(&more.slices), &times(&fewer.slices), Pairing::ByBlock, planned),
        )
    } else {
        let times = |measured: &'_ Measured| -> Vec<Vec<f64>> { by_restart(measured, candidate) };
        (
            unpaired_ratio(&times(more), &times(fewer), planned),
            p99_ratio(
                &times_of_candidate(&more.slices, candidate),
                &times_of_candidate(&fewer.slices, candidate),
                Pairing::Unpaired,
                planned,
            ),
        )
    };
    let verdict = |metric: Metric, estimate: Option<Estimate>| {
        let own = [&more.own[candidate], &fewer.own[candidate]];
        match estimate {
            _ if own.iter().any(|own| own.failed) => Verdict::Failed,
            None => Verdict::Unknown,
            Some(_) if own.iter().any(|own| own.client_bound) => Verdict::ClientBound,
            Some(estimate) => metric.verdict_of_estimate(&estimate, None),
        }
    };
    ScalingRatio {
        than_clients: fewer.record.clients,
        interleaved,
        relative_qps,
        verdict: verdict(Metric::Qps, relative_qps),
        relative_p99,
        // As for CPU time, less is better.
        p99_verdict: verdict(Metric::Cpu, relative_p99),
    }
}

/// The blocks of the same round: of the same restart and number, and measured close to each other.
/// In runs of earlier versions, and of writes, blocks of the same number may be far apart.
fn common_blocks(more: &Measured, fewer: &Measured, numbers: usize) -> BTreeSet<(u32, u32)> {
    let slices_of_round = numbers * more.own.len();
    let is_close = |a: &i64, b: &i64| a.abs_diff(*b) <= 2 * slices_of_round as u64;
    let both = more.order.iter().filter_map(|(at, a)| Some((*at, a, fewer.order.get(at)?)));
    both.filter(|(_, a, b)| is_close(a, b)).map(|(at, ..)| at).collect()
}

/// Whether the order changes between the two numbers of clients as often as there are common blocks: in
/// each round it changes at least once. Visits of several blocks, one after the other, change more
/// rarely, however close they are.
fn take_turns(common: &BTreeSet<(u32, u32)>, more: &Measured, fewer: &Measured) -> bool {
    let slices = |of: &Measured| -> Vec<i64> {
        of.order.iter().filter(|(at, _)| common.contains(at)).map(|(_, slice)| *slice).collect()
    };
    let mut order: Vec<(i64, bool)> = slices(more).into_iter().map(|slice| (slice, true)).collect();
    order.extend(slices(fewer).into_iter().map(|slice| (slice, false)));
    order.sort_unstable();
    let changes = order.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
    changes >= common.len()
}

fn points(
    measured: &Measured,
    candidate: usize,
    side: u32,
    is_used: impl Fn(&SliceRecord) -> bool,
) -> Vec<Point> {
    let of = |slice: &SliceRecord| {
        let value = slice.measured.throughput?.per_second();
        let SliceRecord { restart, block, .. } = *slice;
        Some(Point { restart, block, candidate: side, value })
    };
    let own = measured.slices.iter().filter(|slice| slice.candidate as usize == candidate);
    own.filter(|slice| is_used(slice)).filter_map(of).collect()
}

/// Throughput of all blocks; one list per restart.
fn by_restart(measured: &Measured, candidate: usize) -> Vec<Vec<f64>> {
    let points = points(measured, candidate, 0, |_| true);
    let restarts = points.chunk_by(|a, b| a.restart == b.restart);
    restarts.map(|points| points.iter().map(|point| point.value).collect()).collect()
}

fn p99_ratio(
    more: &[BlockTimes<'_>],
    fewer: &[BlockTimes<'_>],
    pairing: Pairing,
    planned: Option<u32>,
) -> Option<Estimate> {
    let [p99] = percentile_ratios(more, fewer, pairing, planned, [P99]);
    p99
}
