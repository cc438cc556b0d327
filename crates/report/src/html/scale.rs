//! From a ratio to a place on an axis.

/// An axis of ratios near 1, or of amounts from 0. Places are in percent of the axis's length, which
/// lets a chart grow with the page without stretching its marks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    step: f64,
    ratios: bool,
}

impl Scale {
    /// Covers 1 and every value; at least ±1%.
    pub(crate) fn covering(values: impl IntoIterator<Item = f64>) -> Self {
        let (mut low, mut high) = (0.99_f64, 1.01_f64);
        for value in values.into_iter().filter(|value| value.is_finite()) {
            low = low.min(value);
            high = high.max(value);
        }
        let margin = (high - low) * 0.04;
        let (low, high) = ((low - margin).max(0.0), high + margin);
        Self { low, high, step: step((high - low) / 7.0), ratios: true }
    }

    /// From 0 to the greatest value, and a little more.
    pub(crate) fn from_zero(values: impl IntoIterator<Item = f64>) -> Self {
        let greatest = values.into_iter().filter(|value| value.is_finite()).fold(0.0, f64::max);
        let high = if greatest > 0.0 { greatest * 1.04 } else { 1.0 };
        Self { low: 0.0, high, step: step(high / 6.0), ratios: false }
    }

    /// Whether 1 has a meaning on it.
    pub(crate) const fn is_of_ratios(&self) -> bool {
        self.ratios
    }

    /// Covers the medians, and the intervals as far as they do not squeeze the medians together.
    pub(crate) fn of_estimates(estimates: &[(f64, f64, f64)]) -> Self {
        let medians = Self::covering(estimates.iter().map(|(_, median, _)| *median));
        let reach = (medians.high - medians.low) / 2.0;
        Self::covering(estimates.iter().flat_map(|(low, median, high)| {
            [low.max(medians.low - reach), *median, high.min(medians.high + reach)]
        }))
    }

    /// The place of a value in percent; beyond the ends it is below 0 or above 100.
    pub(crate) fn place(&self, value: f64) -> f64 {
        100.0 * (value - self.low) / (self.high - self.low)
    }

    /// The place of a value, moved to the nearer end if it is beyond.
    pub(crate) fn clamped(&self, value: f64) -> f64 {
        self.place(value).clamp(0.0, 100.0)
    }

    /// Round values on the axis with their labels.
    pub(crate) fn ticks(&self) -> Vec<(f64, String)> {
        let decimals = (-self.step.log10().floor()).max(1.0) as usize;
        let first = (self.low / self.step).ceil() as i64;
        let last = (self.high / self.step).floor() as i64;
        (first..=last)
            .map(|n| n as f64 * self.step)
            .map(|value| (value, format!("{value:.decimals$}")))
            .collect()
    }

    /// Gridlines over the whole height, the line at 1, and the noise floor as a band around it.
    pub(crate) fn grid(&self, noise: Option<f64>) -> String {
        let mut out = String::new();
        if let Some(noise) = noise {
            let (low, high) = (self.clamped(1.0 - noise), self.clamped(1.0 + noise));
            out.push_str(&format!(
                "<rect class=\"band\" x=\"{low:.2}%\" width=\"{:.2}%\" height=\"100%\"/>",
                high - low
            ));
        }
        for (value, _) in self.ticks() {
            let class = if (value - 1.0).abs() < 1e-9 { "one" } else { "tick" };
            let x = self.place(value);
            out.push_str(&format!(
                "<line class=\"{class}\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y2=\"100%\"/>"
            ));
        }
        out
    }

    /// The labels below or above the axis. `bottom` is the text's base line in pixels.
    pub(crate) fn labels(&self, bottom: u32) -> String {
        let label = |(value, text): (f64, String)| {
            let class = if (value - 1.0).abs() < 1e-9 { " class=\"at-one\"" } else { "" };
            let x = self.place(value);
            // A label at an end would stick out of the chart.
            let anchor = match x {
                ..5.0 => "start",
                95.0.. => "end",
                _ => "middle",
            };
            format!(
                "<text{class} x=\"{x:.2}%\" y=\"{bottom}\" text-anchor=\"{anchor}\">{text}</text>"
            )
        };
        self.ticks().into_iter().map(label).collect()
    }
}

/// The round number (1, 2 or 5 times a power of ten) at or above `rough`.
fn step(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    factors.into_iter().map(|factor| factor * power).find(|step| *step >= rough).unwrap_or(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_is_near_one_and_has_a_tick_there() {
        let scale = Scale::covering([1.02, 1.08]);
        let labels: Vec<String> = scale.ticks().into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["1.00", "1.02", "1.04", "1.06", "1.08"]);
        assert!(scale.place(1.0) > 0.0 && scale.place(1.08) < 100.0);
    }

    #[test]
    fn a_wide_interval_does_not_squeeze_the_medians() {
        let scale = Scale::of_estimates(&[(0.99, 1.0, 1.01), (0.2, 1.04, 9.0)]);
        assert!(scale.place(1.04) - scale.place(1.0) > 25.0);
        assert_eq!(scale.clamped(9.0), 100.0);
    }

    #[test]
    fn amounts_start_at_zero_and_fit() {
        let scale = Scale::from_zero([12_345.0, 300.0, f64::NAN]);
        assert_eq!(scale.place(0.0), 0.0);
        assert!(scale.place(12_345.0) > 90.0 && scale.place(12_345.0) <= 100.0);
        let ticks: Vec<f64> = scale.ticks().into_iter().map(|(value, _)| value).collect();
        assert_eq!(ticks, [0.0, 5_000.0, 10_000.0]);
        assert_eq!(Scale::from_zero([]).place(0.5), 50.0);
    }

    #[test]
    fn nothing_measured_gives_a_usable_axis() {
        let scale = Scale::covering([f64::NAN]);
        assert!((scale.place(1.0) - 50.0).abs() < 1e-9);
    }
}
