//! Quantiles of Student's t distribution.

use crate::estimate::Z;

/// 97.5% points for 1 to 12 degrees of freedom, from the standard tables.
const TABLE: [f64; 12] =
    [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179];

/// The 97.5% point of Student's t with `freedom` degrees of freedom; `None` below 1.
///
/// In the table, interpolated linearly in 1/`freedom`. Beyond it, uses the Cornish-Fisher expansion
/// around the normal point (Abramowitz and Stegun, 26.7.5), which is accurate to four digits there.
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
        _ => {
            let first = (Z.powi(3) + Z) / 4.0;
            let second = (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0;
            Z + first / freedom + second / (freedom * freedom)
        }
    })
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
}
