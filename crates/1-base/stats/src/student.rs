//! Quantiles of Student's t and the normal distribution.

use crate::estimate::Z;

/// 97.5% points for 1 to 12 degrees of freedom, from the standard tables.
const TABLE: [f64; 12] =
    [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179];

/// The 97.5% point of Student's t with `freedom` degrees of freedom; `None` below 1.
///
/// In the table, interpolated linearly in 1/`freedom`. Beyond it, an expansion that is accurate to four
/// digits there.
pub(crate) fn t_quantile(freedom: f64) -> Option<f64> {
    if freedom.is_nan() || freedom < 1.0 {
        return None;
    }
    let whole = freedom.floor();
    let (below, above) = (TABLE.get(whole as usize - 1), TABLE.get(whole as usize));
    Some(match (below, above) {
        (Some(below), _) if freedom <= whole => *below,
        (Some(below), Some(above)) => {
            let share = (whole.recip() - freedom.recip()) / (whole.recip() - (whole + 1.0).recip());
            below + (above - below) * share
        }
        _ => around_normal(Z, freedom),
    })
}

/// The factor by which 95% intervals become wider so that, in 95% of cases, those of `comparisons`
/// estimates all contain their value (Bonferroni's inequality). `freedom`: degrees of freedom of
/// Student's t; `None` for the normal distribution. Too small below 5 degrees of freedom: with 2, by a
/// tenth for 5 comparisons.
pub(crate) fn widening(comparisons: usize, freedom: Option<f64>) -> f64 {
    let point = |z: f64| match freedom {
        Some(freedom) => around_normal(z, freedom) + third_term(z) / freedom.powi(3),
        None => z,
    };
    point(normal_quantile(0.025 / comparisons.max(1) as f64)) / point(Z)
}

/// The point of Student's t with the tail of the normal distribution beyond `z`, by the first terms of
/// the Cornish-Fisher expansion (Abramowitz and Stegun, 26.7.5).
fn around_normal(z: f64, freedom: f64) -> f64 {
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    z + first / freedom + second / (freedom * freedom)
}

/// The next term of that expansion, which counts for small tails.
fn third_term(z: f64) -> f64 {
    (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0
}

/// The value that a standard normal variable exceeds with this probability, below 0.5; accurate to
/// 0.0005 (Abramowitz and Stegun, 26.2.23).
fn normal_quantile(probability: f64) -> f64 {
    let t = (-2.0 * probability.ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - above / below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t_quantile_agrees_with_the_tables() {
        assert_eq!(t_quantile(0.9), None);
        assert_eq!(t_quantile(f64::NAN), None);
        let expected = [
            (1.0, 12.706),
            (2.5, 3.558),
            (5.0, 2.571),
            (12.5, 2.169),
            (13.0, 2.160),
            (30.0, 2.042),
            (120.0, 1.980),
            (f64::INFINITY, 1.960),
        ];
        for (freedom, expected) in expected {
            let t = t_quantile(freedom).unwrap();
            assert!((t / expected - 1.0).abs() < 0.025, "{t} for {freedom}");
            assert!(freedom.fract() > 0.0 || (t - expected).abs() < 0.001, "{t} for {freedom}");
        }
    }

    #[test]
    fn normal_quantile_agrees_with_the_tables() {
        for (probability, expected) in [(0.025, 1.960), (0.005, 2.576), (0.000_5, 3.291)] {
            assert!((normal_quantile(probability) - expected).abs() < 0.001);
        }
    }

    #[test]
    fn widening_is_that_of_the_points_in_the_tables() {
        assert!((widening(1, Some(5.0)) - 1.0).abs() < 0.001);
        for (comparisons, freedom, expected) in [
            (5, None, 2.576 / 1.960),
            (5, Some(5.0), 4.032 / 2.571),
            (50, Some(10.0), 4.587 / 2.228),
            (25, Some(23.0), 3.485 / 2.069),
        ] {
            let factor = widening(comparisons, freedom);
            assert!((factor / expected - 1.0).abs() < 0.01, "{factor}, not {expected}");
        }
    }
}
