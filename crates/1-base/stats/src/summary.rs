use dbdyno_units::Ratio;

use crate::estimate::median;

/// A summary of the ratios of one group and one candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Number of ratios.
    pub count: usize,
    /// Minimum.
    pub min: Ratio,
    /// Maximum.
    pub max: Ratio,
    /// Arithmetic mean, as in the published tables.
    pub avg: Ratio,
    pub median: Ratio,
    /// Sample standard deviation; `None` with fewer than two.
    pub stddev: Option<f64>,
    /// Index of the minimum.
    pub worst: usize,
    /// Index of the maximum.
    pub best: usize,
}

impl Summary {
    /// Summarizes `ratios`; `None` if empty.
    pub fn of(ratios: &[Ratio]) -> Option<Self> {
        let values: Vec<f64> = ratios.iter().map(|ratio| ratio.get()).collect();
        let by_value = |a: &usize, b: &usize| values[*a].total_cmp(&values[*b]);
        let worst = (0..values.len()).min_by(by_value)?;
        let best = (0..values.len()).max_by(by_value)?;
        let count = values.len();
        let avg = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|value| (value - avg).powi(2)).sum();
        Some(Self {
            count,
            min: ratios[worst],
            max: ratios[best],
            avg: Ratio::new(avg),
            median: Ratio::new(median(&values)?),
            stddev: (count > 1).then(|| (squares / (count - 1) as f64).sqrt()),
            worst,
            best,
        })
    }
}

/// `None` without any.
pub fn geometric_mean(ratios: &[Ratio]) -> Option<Ratio> {
    let logs: f64 = ratios.iter().map(|ratio| ratio.get().ln()).sum();
    (!ratios.is_empty()).then(|| Ratio::new((logs / ratios.len() as f64).exp()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometric_mean_of_inverse_ratios_is_1() {
        let mean = |ratios: &[f64]| {
            let ratios: Vec<Ratio> = ratios.iter().copied().map(Ratio::new).collect();
            geometric_mean(&ratios).map(Ratio::get)
        };
        assert!((mean(&[0.5, 2.0]).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!((mean(&[0.0, 2.0]), mean(&[])), (Some(0.0), None));
    }

    #[test]
    fn summary_matches_known_values() {
        let ratios = [1.0, 0.8, 1.2, 1.1].map(Ratio::new);
        let summary = Summary::of(&ratios).unwrap();
        assert_eq!((summary.worst, summary.best, summary.count), (1, 2, 4));
        assert_eq!((summary.min, summary.max), (ratios[1], ratios[2]));
        assert!((summary.avg.get() - 1.025).abs() < 1e-12);
        assert!((summary.median.get() - 1.05).abs() < 1e-12);
        assert!((summary.stddev.unwrap() - 0.170_783).abs() < 1e-6);
    }

    #[test]
    fn empty_input_has_no_summary_and_one_ratio_no_deviation() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[Ratio::ONE]).unwrap().stddev, None);
    }
}
