//! Quantiles of Student's t distribution.

/// 97.5% points for 1 to 12 degrees of freedom, from the standard tables.
const TABLE: [f64; 12] =
    [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179];

/// The 97.5% point of Student's t with `freedom` degrees of freedom; `None` for 0.
///
/// Beyond the table, uses the Cornish-Fisher expansion around the normal point (Abramowitz and
/// Stegun, 26.7.5), which is accurate to four digits there.
pub(crate) fn t_quantile(freedom: usize) -> Option<f64> {
    const Z: f64 = 1.959_964;
    let index = freedom.checked_sub(1)?;
    Some(TABLE.get(index).copied().unwrap_or_else(|| {
        let n = freedom as f64;
        let first = (Z.powi(3) + Z) / 4.0;
        let second = (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0;
        Z + first / n + second / (n * n)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t_quantile_agrees_with_the_tables() {
        assert_eq!(t_quantile(0), None);
        for (freedom, expected) in [(1, 12.706), (5, 2.571), (13, 2.160), (30, 2.042), (120, 1.980)]
        {
            let t = t_quantile(freedom).unwrap();
            assert!((t - expected).abs() < 0.001, "{t} for {freedom}");
        }
    }
}
