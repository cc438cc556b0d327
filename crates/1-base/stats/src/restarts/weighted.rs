//! Starts of different lengths: a weighted mean of their values.

use crate::estimate::t_quantile;

use super::LogInterval;

/// A random-effects model of the values of starts: that of a start with n blocks has the variance
/// τ² + σ²/n, where τ² is the variance between starts and σ² that of the value of one block. The
/// weights are the inverse of it, so that a short start has a small weight if blocks vary more than
/// starts, and nearly the same weight as others if starts vary more.
pub(super) struct WeightedStarts<'a> {
    values: &'a [f64],
    /// Number of blocks of each start.
    blocks: &'a [f64],
    within: f64,
    between: f64,
}

impl<'a> WeightedStarts<'a> {
    /// The model of these starts; `None` if they cannot have one.
    ///
    /// τ² is estimated by the method of moments (`DerSimonian` and Laird, *Meta-analysis in clinical
    /// trials*, 1986).
    pub fn of(values: &'a [f64], blocks: &'a [f64], within: f64) -> Option<Self> {
        let mut model = Self { values, blocks, within, between: 0.0 };
        let weights = model.weights();
        let total: f64 = weights.iter().sum();
        let squares: f64 = weights.iter().map(|weight| weight * weight).sum();
        let surplus = model.deviation(&weights) - (model.count() - 1.0);
        model.between = (surplus / (total - squares / total)).max(0.0);
        model.between.is_finite().then_some(model)
    }

    fn count(&self) -> f64 {
        self.values.len() as f64
    }

    fn weights(&self) -> Vec<f64> {
        self.blocks.iter().map(|blocks| 1.0 / (self.between + self.within / blocks)).collect()
    }

    fn mean(&self, weights: &[f64]) -> f64 {
        let total: f64 = weights.iter().sum();
        weights.iter().zip(self.values).map(|(weight, value)| weight * value).sum::<f64>() / total
    }

    /// The weighted sum of squared distances from the mean.
    fn deviation(&self, weights: &[f64]) -> f64 {
        let mean = self.mean(weights);
        weights.iter().zip(self.values).map(|(weight, value)| weight * (value - mean).powi(2)).sum()
    }

    /// The interval from the observed spread of the values around their weighted mean, with R−1
    /// degrees of freedom (Hartung and Knapp, *A refined method for the meta-analysis*, 2001). With
    /// starts of equal length, the half-width is t·s/√R. Its coverage is nominal for any τ.
    pub fn interval_over_starts(&self) -> Option<LogInterval> {
        let weights = self.weights();
        let freedom = self.count() - 1.0;
        let variance = self.deviation(&weights) / freedom / weights.iter().sum::<f64>();
        let half = t_quantile(freedom)? * variance.sqrt();
        Some(LogInterval { centre: self.mean(&weights), half, over_starts: true })
    }

    /// The interval from the variances of the model. Its degrees of freedom are those of the blocks
    /// if starts do not differ, R−1 if blocks vary little compared with them (Satterthwaite, *An
    /// approximate distribution of estimates of variance components*, 1946). Much narrower than an
    /// interval over three or four starts if these do not differ; if they differ, with less
    /// coverage.
    pub fn interval_over_blocks_and_starts(&self) -> Option<LogInterval> {
        let weights = self.weights();
        let total: f64 = weights.iter().sum();
        let variance = 1.0 / total;
        let squared_shares = || weights.iter().map(|weight| (weight / total).powi(2));
        let of_blocks: f64 =
            squared_shares().zip(self.blocks).map(|(w, blocks)| w * self.within / blocks).sum();
        let of_starts: f64 = squared_shares().map(|share| share * self.between).sum();
        let freedom_of_blocks = (self.blocks.iter().sum::<f64>() - self.count()).max(1.0);
        let freedom = variance.powi(2)
            / (of_starts.powi(2) / (self.count() - 1.0) + of_blocks.powi(2) / freedom_of_blocks);
        let half = t_quantile(freedom)? * variance.sqrt();
        let over_starts = of_starts > of_blocks;
        Some(LogInterval { centre: self.mean(&weights), half, over_starts })
    }
}
