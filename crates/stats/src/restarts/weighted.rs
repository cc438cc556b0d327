//! Starts of different lengths: a weighted mean of their medians.

use crate::autocorrelation::variance_inflation;
use crate::estimate::median;
use crate::student::t_quantile;

use super::Interval;

/// Minimum number of neighbouring blocks for the variance of a block.
const MIN_NEIGHBOURS: usize = 5;

/// A random-effects model of the medians of starts: that of a start with n blocks has the variance
/// τ² + σ²/n, where τ² is the variance between starts and σ² that of a median of one block. The
/// weights are the inverse of it, so that a short start has a small weight if blocks vary more than
/// starts, and nearly the same weight as others if starts vary more.
pub(super) struct WeightedStarts {
    medians: Vec<f64>,
    /// Number of blocks of each start.
    blocks: Vec<f64>,
    /// σ².
    within: f64,
    /// τ².
    between: f64,
}

impl WeightedStarts {
    /// The model of these starts; `None` if the variance of the blocks is unknown or zero.
    ///
    /// τ² is estimated by the method of moments (`DerSimonian` and Laird, *Meta-analysis in clinical
    /// trials*, 1986).
    pub fn of(starts: &[&[f64]]) -> Option<Self> {
        let medians: Vec<f64> = starts.iter().filter_map(|blocks| median(blocks)).collect();
        let blocks: Vec<f64> = starts.iter().map(|blocks| blocks.len() as f64).collect();
        let within = block_variance(starts, &medians)?;
        let mut model = Self { medians, blocks, within, between: 0.0 };
        let weights = model.weights();
        let total: f64 = weights.iter().sum();
        let squares: f64 = weights.iter().map(|weight| weight * weight).sum();
        let surplus = model.deviation(&weights) - (model.count() - 1.0);
        model.between = (surplus / (total - squares / total)).max(0.0);
        Some(model)
    }

    fn count(&self) -> f64 {
        self.medians.len() as f64
    }

    fn weights(&self) -> Vec<f64> {
        self.blocks.iter().map(|blocks| 1.0 / (self.between + self.within / blocks)).collect()
    }

    fn mean(&self, weights: &[f64]) -> f64 {
        let total: f64 = weights.iter().sum();
        weights.iter().zip(&self.medians).map(|(weight, m)| weight * m).sum::<f64>() / total
    }

    /// The weighted sum of squared distances from the mean.
    fn deviation(&self, weights: &[f64]) -> f64 {
        let mean = self.mean(weights);
        weights.iter().zip(&self.medians).map(|(weight, m)| weight * (m - mean).powi(2)).sum()
    }

    /// The interval from the observed spread of the medians around their weighted mean, with R−1
    /// degrees of freedom (Hartung and Knapp, *A refined method for the meta-analysis*, 2001). With
    /// starts of equal length, the half-width is t·s/√R. Its coverage is nominal for any τ.
    pub fn interval_over_starts(&self) -> Option<Interval> {
        let weights = self.weights();
        let freedom = self.count() - 1.0;
        let variance = self.deviation(&weights) / freedom / weights.iter().sum::<f64>();
        let half = t_quantile(freedom)? * variance.sqrt();
        Some(Interval { centre: self.mean(&weights), half, over_starts: true })
    }

    /// The interval from the variances of the model. Its degrees of freedom are those of the blocks
    /// if starts do not differ, R−1 if blocks vary little compared with them (Satterthwaite, *An
    /// approximate distribution of estimates of variance components*, 1946). Much narrower than an
    /// interval over three or four starts if these do not differ; if they differ, with less
    /// coverage.
    pub fn interval_over_blocks_and_starts(&self) -> Option<Interval> {
        let weights = self.weights();
        let total: f64 = weights.iter().sum();
        let variance = 1.0 / total;
        let squared_shares = || weights.iter().map(|weight| (weight / total).powi(2));
        let of_blocks: f64 =
            squared_shares().zip(&self.blocks).map(|(w, blocks)| w * self.within / blocks).sum();
        let of_starts: f64 = squared_shares().map(|share| share * self.between).sum();
        let freedom_of_blocks = (self.blocks.iter().sum::<f64>() - self.count()).max(1.0);
        let freedom = variance.powi(2)
            / (of_starts.powi(2) / (self.count() - 1.0) + of_blocks.powi(2) / freedom_of_blocks);
        let half = t_quantile(freedom)? * variance.sqrt();
        let over_starts = of_starts > of_blocks;
        Some(Interval { centre: self.mean(&weights), half, over_starts })
    }
}

/// The variance of the median of one block, σ²: a median of n blocks has σ²/n. `None` if unknown or
/// zero.
///
/// From the differences of neighbouring blocks, which outliers, drift and the levels of starts
/// barely affect; π/2 is the variance of a median relative to that of a mean. Inflated for the
/// correlation of neighbours.
fn block_variance(starts: &[&[f64]], medians: &[f64]) -> Option<f64> {
    /// The median of the absolute difference of two standard normal values.
    const DIFFERENCE: f64 = 0.953_873;
    let differences: Vec<f64> = starts
        .iter()
        .flat_map(|blocks| blocks.windows(2).map(|pair| (pair[1] - pair[0]).abs()))
        .collect();
    if differences.len() < MIN_NEIGHBOURS {
        return None;
    }
    let deviation = median(&differences)? / DIFFERENCE;
    let residuals: Vec<f64> = starts
        .iter()
        .zip(medians)
        .flat_map(|(blocks, median)| blocks.iter().map(move |block| block - median))
        .collect();
    let variance = std::f64::consts::FRAC_PI_2 * deviation.powi(2);
    Some(variance * variance_inflation(&residuals, 0.0)).filter(|variance| *variance > 0.0)
}
