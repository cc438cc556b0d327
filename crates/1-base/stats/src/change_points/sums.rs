//! Weighted means and sums of squares of parts of a series.

/// Cumulative sums of a weighted series.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    /// The first value: distances to it are summed, because squares of the values themselves would
    /// cancel out.
    origin: f64,
    /// The sums of all values before each position.
    before: Vec<Sum>,
    /// The least variance around the levels, relative to the reciprocals of the weights.
    least_scale: f64,
    /// The least number of values at a level.
    least_level: usize,
}

/// The sums of some values.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    pub(super) weight: f64,
    values: f64,
    products: f64,
}

impl Sums {
    /// Of values with their weights, in order.
    pub(super) fn of(values: &[(f64, f64)], least_scale: f64, least_level: usize) -> Self {
        let origin = values.first().map_or(0.0, |(value, _)| *value);
        let mut sum = Sum::default();
        let mut before = vec![sum];
        for (value, weight) in values {
            let distance = value - origin;
            sum.weight += weight;
            sum.values += weight * distance;
            sum.products += weight * distance * distance;
            before.push(sum);
        }
        Self { origin, before, least_scale, least_level }
    }

    /// The sums from one position to before another.
    pub(super) fn part(&self, from: usize, to: usize) -> Sum {
        self.before[to].without(self.before[from])
    }

    /// The mean from one position to before another.
    pub(super) fn mean(&self, from: usize, to: usize) -> f64 {
        self.origin + self.part(from, to).mean()
    }

    pub(super) const fn least_level(&self) -> usize {
        self.least_level
    }

    pub(super) const fn least_scale(&self) -> f64 {
        self.least_scale
    }

    /// The variance around levels, relative to the reciprocals of the weights: `starts` has the start of
    /// each level, and the end.
    pub(super) fn scale(&self, starts: &[usize]) -> f64 {
        let rest: f64 = starts.windows(2).map(|two| self.part(two[0], two[1]).squares()).sum();
        let values = starts.last().zip(starts.first()).map_or(0, |(end, start)| end - start);
        let freedom = (values + 1).saturating_sub(starts.len()).max(1);
        (rest / freedom as f64).max(self.least_scale)
    }
}

impl Sum {
    /// The sums without those of some of the values.
    pub(super) fn without(self, other: Self) -> Self {
        Self {
            weight: self.weight - other.weight,
            values: self.values - other.values,
            products: self.products - other.products,
        }
    }

    /// The mean as a distance from the origin.
    pub(super) fn mean(self) -> f64 {
        self.values / self.weight
    }

    /// The weighted squares of the distances to the mean.
    pub(super) fn squares(self) -> f64 {
        (self.products - self.values * self.values / self.weight).max(0.0)
    }
}
