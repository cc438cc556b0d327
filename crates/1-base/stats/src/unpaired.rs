//! Ratios of series that were measured one after the other.

use crate::between_runs::{Quotient, RunValue, quotient};
use crate::estimate::Estimate;
use crate::restarts::restarts_with_interval;

/// The median of `own` divided by that of `other`, with a 95% interval; one list per restart; `planned` as for
/// [`restarts_with_interval`].
///
/// The intervals of both medians are combined as those of different runs ([`quotient`]). Drift of the
/// machine between the two series is not in the interval.
#[must_use]
pub fn unpaired_ratio(
    own: &[Vec<f64>],
    other: &[Vec<f64>],
    planned: Option<u32>,
) -> Option<Estimate> {
    let own = restarts_with_interval(own, planned)?;
    let other = restarts_with_interval(other, planned)?;
    let Quotient { ratio: median, low, high } =
        quotient(&RunValue::of(&own, None), &RunValue::of(&other, None))?;
    Some(Estimate {
        median,
        low,
        high,
        blocks: own.blocks.min(other.blocks),
        starts: own.starts.min(other.starts),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autocorrelation::tests::autoregressive;

    #[test]
    fn interval_has_nominal_coverage() {
        const TRIALS: u64 = 1_000;
        let series = |seed, level: f64| -> Vec<f64> {
            autoregressive(seed, 0.0, 30).iter().map(|noise| level + 5.0 * noise).collect()
        };
        let covered = (0..TRIALS).filter(|seed| {
            let (own, other) = (series(2 * seed, 120.0), series(2 * seed + 1, 100.0));
            let ratio = unpaired_ratio(&[own], &[other], None).unwrap();
            (ratio.low.get()..=ratio.high.get()).contains(&1.2)
        });
        let share = covered.count() as f64 / TRIALS as f64;
        assert!((0.93..=0.99).contains(&share), "{share}");
    }

    #[test]
    fn too_few_blocks_give_no_ratio() {
        assert_eq!(unpaired_ratio(&[vec![1.0; 5]], &[vec![1.0; 9]], None), None);
    }
}
