//! Metrics of the published reports: names, definitions, and whether more or less is better.

use serde::{Serialize, Serializer};

/// One metric of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsertMetric {
    /// The published name.
    pub name: &'static str,
    /// Definition and unit.
    pub what: &'static str,
    /// Whether more or less is better.
    pub better: Better,
}

/// Whether more or less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    More,
    Less,
    /// Neither: it is an amount of work.
    Neither,
}

const fn metric(name: &'static str, what: &'static str, better: Better) -> InsertMetric {
    InsertMetric { name, what, better }
}

/// Number of metrics.
pub(crate) const COUNT: usize = 21;

/// All metrics, in the order of the published tables. Reads and writes are those of the device.
pub const INSERT_METRICS: [InsertMetric; COUNT] = [
    metric("ips", "rows inserted per second", Better::More),
    metric("qps", "queries per second", Better::More),
    metric("rps", "reads from storage per second", Better::Neither),
    metric("rmbps", "MB read from storage per second", Better::Neither),
    metric("wps", "writes to storage per second", Better::Neither),
    metric("wmbps", "MB written to storage per second", Better::Neither),
    metric("rpq", "reads per query (in l. steps: per row inserted)", Better::Less),
    metric("rkbpq", "KB read per query (in l. steps: per row inserted)", Better::Less),
    metric("wpi", "writes per row inserted", Better::Less),
    metric("wkbpi", "KB written per row inserted", Better::Less),
    metric("csps", "context switches per second", Better::Neither),
    metric("cpups", "CPU of the system under test in percent; 100 is one CPU", Better::Neither),
    metric("cspq", "context switches per query (in l. steps: per row inserted)", Better::Less),
    metric("cpupq", "µs of CPU per query (in l. steps: per row inserted)", Better::Less),
    metric("ccpupq", "the same of the load generator, beside the system under test", Better::Less),
    metric("dbgb", "size of the database in GB at the end", Better::Less),
    metric("rss", "memory in use in GB at the end", Better::Less),
    metric("maxop", "the longest response time, in seconds", Better::Less),
    metric("p50", "throughput that half of the seconds reach", Better::More),
    metric("p99", "throughput that 99% of the seconds reach", Better::More),
    metric("dps", "rows deleted per second", Better::Neither),
];

/// The index of a metric in [`INSERT_METRICS`].
///
/// # Panics
/// There is no metric of this name.
fn index_of(name: &str) -> usize {
    INSERT_METRICS
        .iter()
        .position(|metric| metric.name == name)
        .expect("metrics are named in this crate")
}

/// A value of each metric; `None` if unknown or meaningless in this step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InsertFigures([Option<f64>; COUNT]);

impl InsertFigures {
    /// The value of a metric, by its published name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0[index_of(name)]
    }

    /// All values, in the order of [`INSERT_METRICS`].
    #[must_use]
    pub const fn all(&self) -> &[Option<f64>; COUNT] {
        &self.0
    }

    pub(crate) fn set(&mut self, name: &str, value: Option<f64>) {
        self.0[index_of(name)] = value.filter(|value| value.is_finite());
    }

    /// Aggregate each metric with `of`; `None` for metrics that are unknown in one of `all`.
    pub(crate) fn over(all: &[&Self], of: impl Fn(&mut Vec<f64>) -> Option<f64>) -> Self {
        let mut figures = Self::default();
        for (index, figure) in figures.0.iter_mut().enumerate() {
            let values: Option<Vec<f64>> = all.iter().map(|one| one.0[index]).collect();
            *figure = values.filter(|values| !values.is_empty()).and_then(|mut v| of(&mut v));
        }
        figures
    }

    /// Each value divided by the baseline's.
    pub(crate) fn relative_to(&self, baseline: &Self) -> Self {
        let mut figures = Self::default();
        for (index, figure) in figures.0.iter_mut().enumerate() {
            *figure = match (self.0[index], baseline.0[index]) {
                (Some(own), Some(base)) if base > 0.0 => Some(own / base),
                _ => None,
            };
        }
        figures
    }
}

/// Serialized as an object with the published names.
impl Serialize for InsertFigures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(INSERT_METRICS.iter().map(|metric| metric.name).zip(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_names_are_unique() {
        for (at, metric) in INSERT_METRICS.iter().enumerate() {
            assert_eq!(index_of(metric.name), at);
        }
    }

    #[test]
    fn ratio_needs_both_values_and_a_nonzero_baseline() {
        let (mut own, mut base) = (InsertFigures::default(), InsertFigures::default());
        own.set("ips", Some(3.0));
        base.set("ips", Some(2.0));
        own.set("rpq", Some(1.0));
        base.set("rpq", Some(0.0));
        own.set("qps", Some(f64::NAN));
        let ratio = own.relative_to(&base);
        assert_eq!(ratio.get("ips"), Some(1.5));
        assert_eq!((ratio.get("rpq"), ratio.get("qps")), (None, None));
    }
}
