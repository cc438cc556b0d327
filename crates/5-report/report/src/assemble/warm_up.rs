//! Warnings about ratios that change within starts, because a server was not warm when counting began.

use dbdyno_results::{CandidateRecord, Role};
use dbdyno_stats::{Estimate, mean_with_half_width, median};
use dbdyno_units::{Ratio, Share};

use super::Measured;
use crate::metric::with_clients;
use crate::model::{Metric, MicrobenchmarkRows, Verdict, Warning};

/// Minimum number of starts with enough blocks.
const LEAST_STARTS: usize = 4;

/// Minimum number of blocks of a start.
const LEAST_BLOCKS: usize = 12;

/// Smaller changes are not reported, however certain.
const LEAST_CHANGE: f64 = 0.01;

/// The change of a ratio within starts.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Change {
    /// The ratio in the first and in the last third of the blocks of a start: medians over the starts.
    from: f64,
    to: f64,
    /// The median of the logarithms of the changes, without sign.
    size: f64,
}

impl Change {
    /// The change of ratios by start and block; `None` if its 95% interval over the starts, as one of so many comparisons,
    /// contains no change, or if it is not larger than this half-width of the estimate.
    fn of(starts: &[Vec<f64>], half_width: Share, comparisons: usize) -> Option<Self> {
        let ends = |blocks: &Vec<f64>| {
            let third = blocks.len() / 3;
            Some((median(&blocks[..third])?, median(&blocks[blocks.len() - third..])?))
        };
        let long = starts.iter().filter(|blocks| blocks.len() >= LEAST_BLOCKS);
        let (first, last): (Vec<f64>, Vec<f64>) = long.filter_map(ends).unzip();
        if first.len() < LEAST_STARTS {
            return None;
        }
        let changes: Vec<f64> =
            first.iter().zip(&last).map(|(from, to)| (from / to).ln()).collect();
        let (mean, half) = mean_with_half_width(&changes)?;
        let [median_change, low, high] =
            [mean, mean - half, mean + half].map(|change| Ratio::new(change.exp()));
        let (blocks, starts) = (changes.len(), Some(changes.len()));
        let change = Estimate { median: median_change, low, high, blocks, starts };
        let size = median(&changes)?.abs();
        let is_clear = !change.one_of(comparisons).contains_one()
            && size > LEAST_CHANGE.max(half_width.as_fraction());
        is_clear.then_some(Self { from: median(&first)?, to: median(&last)?, size })
    }
}

/// A warning for each candidate whose ratio, of the metric to trust, changes within the starts of microbenchmarks that
/// only read: writes change the data.
pub(super) fn warnings(
    measured: &[Measured],
    microbenchmarks: &[MicrobenchmarkRows],
    candidates: &[CandidateRecord],
    sweep: bool,
) -> Vec<Warning> {
    let compared = candidates.iter().enumerate().filter(|(_, one)| one.role == Role::Candidate);
    let compared: Vec<(usize, &CandidateRecord)> = compared.collect();
    let comparisons = compared.len() * microbenchmarks.iter().filter(|one| !one.writes).count();
    let warning = |(number, candidate): (usize, &CandidateRecord)| {
        let change = |(one, of): (&Measured, &MicrobenchmarkRows)| {
            let row = of.row(&candidate.name)?;
            let metric = row.trusted_metric;
            let is_usable = !of.writes && row.verdict_of(metric) != Verdict::Failed;
            let estimate = row.estimate(metric).filter(|_| is_usable)?;
            let ratios = match metric {
                Metric::Qps => one.qps_ratios(number),
                Metric::Cpu => one.cpu_ratios(number),
            };
            let change = Change::of(&ratios, estimate.half_width(), comparisons)?;
            Some((with_clients(&of.name, of.clients, sweep), metric, change))
        };
        let changes: Vec<(String, Metric, Change)> =
            measured.iter().zip(microbenchmarks).filter_map(change).collect();
        let largest = changes.iter().max_by(|a, b| a.2.size.total_cmp(&b.2.size));
        let (name, metric, Change { from, to, .. }) = largest?;
        let more = match changes.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(Warning {
            what: format!(
                "{} on {name}{more}: {} changes from {from:.3} to {to:.3} of the baseline's within starts: \
                 one of them is not warm when counting begins",
                candidate.name,
                metric.quantity()
            ),
            advice:
                "Raise `warmup_blocks` in [schedule] (of compare: in the file that --save writes)."
                    .to_owned(),
        })
    };
    compared.into_iter().filter_map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts with ratios of 1 and of `early` in the first blocks, with some noise.
    fn starts(count: usize, blocks: usize, early: f64) -> Vec<Vec<f64>> {
        let ratio = |start: usize, block: usize| {
            let noise = 1.0 + 0.001 * ((7 * start + 5 * block) % 11) as f64;
            if block < blocks / 3 { early * noise } else { noise }
        };
        (0..count).map(|start| (0..blocks).map(|block| ratio(start, block)).collect()).collect()
    }

    #[test]
    fn change_within_starts_is_found_if_it_is_clear() {
        let half_width = Share::from_percent(0.7);
        let change = Change::of(&starts(6, 80, 1.025), half_width, 84).unwrap();
        assert!((change.from / change.to - 1.025).abs() < 0.003, "{change:?}");
        assert!(Change::of(&starts(6, 80, 0.97), half_width, 84).is_some(), "in both directions");
        for (steady, why) in [
            (starts(6, 80, 1.0), "no change"),
            (starts(6, 80, 1.006), "small"),
            (starts(3, 80, 1.025), "few starts"),
            (starts(6, 11, 1.025), "few blocks"),
        ] {
            assert_eq!(Change::of(&steady, half_width, 1), None, "{why}");
        }
        let drifting = starts(6, 80, 1.025);
        assert_eq!(Change::of(&drifting, Share::from_percent(3.0), 1), None, "within the interval");
        let mut both = starts(6, 80, 1.025);
        both.extend(starts(6, 80, 0.975));
        assert_eq!(Change::of(&both, half_width, 1), None, "starts disagree");
        let of_start = |(start, early): (usize, &f64)| starts(6, 80, *early).swap_remove(start);
        let early = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05];
        let varying: Vec<Vec<f64>> = early.iter().enumerate().map(of_start).collect();
        assert!(Change::of(&varying, half_width, 1).is_some());
        assert_eq!(Change::of(&varying, half_width, 84), None, "chance explains one of many");
    }
}
