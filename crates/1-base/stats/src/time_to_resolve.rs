//! How much longer to measure for a narrower interval.

use dbdyno_units::{Nanos, Share};

use crate::estimate::{Estimate, t_quantile};

/// More starts than anybody can wait for.
const MOST_STARTS: usize = 100_000;

/// The additional time after which the interval of `estimate` is expected to be at most
/// ±`difference` of the estimate: then a difference of this size excludes 1 from it.
///
/// `spent` is the time it took so far, of any kind that grows with the number of blocks and starts;
/// the result is of the same kind. Zero if the interval is narrow enough. `None` if it cannot be
/// known: no difference or no time is given, or more time than a clock can show would be needed.
///
/// The width of an interval over blocks is proportional to 1/√n. That of an interval over R starts
/// is proportional to t/√R, with Student's t for R − 1 degrees of freedom, so that the first
/// additional starts help more. The spread is assumed to stay as it is. The noise floor may be
/// larger than the difference; more time does not change that if the control differs from the
/// baseline.
pub fn time_to_resolve(estimate: &Estimate, difference: Share, spent: Nanos) -> Option<Nanos> {
    let narrower = difference.as_fraction() / estimate.half_width().as_fraction();
    if difference.as_fraction() <= 0.0 || spent == Nanos::ZERO || narrower.is_nan() {
        return None;
    }
    if narrower >= 1.0 {
        return Some(Nanos::ZERO);
    }
    let factor = match estimate.starts {
        None => narrower.powi(-2),
        Some(starts) => {
            let width = width_over_starts(starts)?;
            let needed = starts_with_width(width * narrower)?;
            needed as f64 / starts as f64
        }
    };
    let seconds = spent.as_secs_f64() * (factor - 1.0);
    (seconds < Nanos::from_nanos(u64::MAX).as_secs_f64()).then(|| Nanos::from_secs_f64(seconds))
}

/// Half the width of an interval over this many starts, in standard deviations of a start.
fn width_over_starts(starts: usize) -> Option<f64> {
    let starts = starts as f64;
    Some(t_quantile(starts - 1.0)? / starts.sqrt())
}

/// The smallest number of starts with at most this width.
fn starts_with_width(width: f64) -> Option<usize> {
    let is_narrow = |starts: &usize| width_over_starts(*starts).is_some_and(|w| w <= width);
    if !is_narrow(&MOST_STARTS) {
        return None;
    }
    let (mut wide, mut narrow) = (1, MOST_STARTS);
    while narrow - wide > 1 {
        let middle = wide.midpoint(narrow);
        if is_narrow(&middle) { narrow = middle } else { wide = middle }
    }
    Some(narrow)
}

#[cfg(test)]
mod tests {
    use dbdyno_units::Ratio;

    use super::*;
    use crate::estimate::median;
    use crate::estimate::tests::autoregressive;
    use crate::restarts::restarts_with_interval;

    const MINUTE: Nanos = Nanos::from_secs(60);

    fn estimate(percent: f64, starts: Option<usize>) -> Estimate {
        Estimate {
            median: Ratio::new(1.0),
            low: Ratio::new(1.0 - percent / 100.0),
            high: Ratio::new(1.0 + percent / 100.0),
            blocks: 20,
            starts,
        }
    }

    fn more(estimate: &Estimate, percent: f64) -> Option<f64> {
        time_to_resolve(estimate, Share::from_percent(percent), MINUTE).map(Nanos::as_secs_f64)
    }

    #[test]
    fn half_the_width_over_blocks_needs_three_times_more() {
        let needed = more(&estimate(4.0, None), 2.0).unwrap();
        assert!((needed - 180.0).abs() < 1e-3, "{needed}");
    }

    #[test]
    fn first_additional_starts_narrow_the_interval_most() {
        // 3 starts: t/√R is 2.48; 6 starts: 1.05.
        assert_eq!(more(&estimate(2.484, Some(3)), 1.05), Some(60.0));
        // 12 starts: 0.635.
        assert_eq!(more(&estimate(1.049, Some(6)), 0.636), Some(60.0));
    }

    #[test]
    fn narrow_interval_needs_no_more_time() {
        assert_eq!(more(&estimate(2.0, None), 2.5), Some(0.0));
        assert_eq!(more(&estimate(0.0, Some(6)), 0.1), Some(0.0));
    }

    #[test]
    fn what_cannot_be_known_is_none() {
        let wide = estimate(8.0, None);
        assert_eq!(more(&wide, 0.0), None);
        assert_eq!(more(&wide, -1.0), None);
        assert_eq!(more(&wide, f64::NAN), None);
        assert_eq!(more(&wide, 1e-9), None, "longer than a clock can show");
        assert_eq!(more(&estimate(8.0, Some(6)), 1e-9), None);
        assert_eq!(more(&estimate(f64::NAN, None), 1.0), None);
        assert_eq!(time_to_resolve(&wide, Share::from_percent(1.0), Nanos::ZERO), None);
    }

    #[test]
    fn interval_after_the_additional_time_is_as_narrow_as_predicted() {
        let starts = |seed: u64, count| -> Vec<Vec<f64>> {
            (0..count)
                .map(|start| {
                    let noise = autoregressive(seed * 1_000 + start, 0.0, 20);
                    noise.iter().map(|noise| 1.0 + 0.01 * noise).collect()
                })
                .collect()
        };
        let reached: Vec<f64> = (0..200)
            .map(|seed| {
                let before = restarts_with_interval(&starts(seed, 6), None).unwrap();
                let wanted = Share::from_fraction(before.half_width().as_fraction() / 1.6);
                let more = time_to_resolve(&before, wanted, MINUTE).unwrap();
                let starts_after = 6 + (6.0 * more.as_secs_f64() / 60.0).round() as u64;
                let after = restarts_with_interval(&starts(seed, starts_after), None).unwrap();
                after.half_width().as_fraction() / wanted.as_fraction()
            })
            .collect();
        let typical = median(&reached).unwrap();
        assert!((0.9..=1.1).contains(&typical), "{typical}");
    }
}
