//! Axes: from a value to its position in a chart.

use maud::{Markup, html};

use crate::figures::compact;
use crate::model::Estimate;

/// An axis of ratios near 1, or of amounts from 0. Positions are in percent of the axis's length,
/// so that a chart grows with the page without stretching its markers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    step: f64,
    /// Whether values are ratios, so that 1 stands for the baseline.
    ratios: bool,
}

impl Scale {
    /// A ratio axis that covers 1 and every value; at least ±1%.
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

    /// An axis from 0 to slightly above the greatest value.
    pub(crate) fn from_zero(values: impl IntoIterator<Item = f64>) -> Self {
        let greatest = values.into_iter().filter(|value| value.is_finite()).fold(0.0, f64::max);
        let high = if greatest > 0.0 { greatest * 1.04 } else { 1.0 };
        Self { low: 0.0, high, step: step(high / 6.0), ratios: false }
    }

    /// A ratio axis that covers all medians, and each interval up to half the range of the medians
    /// beyond it: one wide interval must not squeeze the medians together.
    pub(crate) fn of_estimates(estimates: &[Estimate]) -> Self {
        let medians = Self::covering(estimates.iter().map(|one| one.median.get()));
        let reach = (medians.high - medians.low) / 2.0;
        Self::covering(estimates.iter().flat_map(|Estimate { low, median, high, .. }| {
            let low = low.get().max(medians.low - reach);
            [low, median.get(), high.get().min(medians.high + reach)]
        }))
    }

    /// The position of a value in percent: below 0 or above 100 if it is beyond the ends.
    pub(crate) fn position(&self, value: f64) -> f64 {
        100.0 * (value - self.low) / (self.high - self.low)
    }

    /// The position of a value, moved to the nearer end if it is beyond.
    pub(crate) fn clamped(&self, value: f64) -> f64 {
        self.position(value).clamp(0.0, 100.0)
    }

    /// Round values on the axis with their labels, all with the same number of decimals.
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
    pub(crate) fn grid(&self, noise: Option<f64>) -> Markup {
        html! {
            @if let Some(noise) = noise {
                @let (low, high) = (self.clamped(1.0 - noise), self.clamped(1.0 + noise));
                rect.band x=(percent(low)) width=(percent(high - low)) height="100%" {}
            }
            @for (value, _) in self.ticks() {
                (vertical_line(self.line_class(value), self.position(value)))
            }
        }
    }

    /// The labels of an axis. `bottom` is the text's base line in pixels.
    pub(crate) fn labels(&self, bottom: u32) -> Markup {
        // A centred label at an end would stick out of the chart.
        let anchor = |x: f64| match x {
            ..5.0 => "start",
            95.0.. => "end",
            _ => "middle",
        };
        html! {
            @for (value, text) in self.ticks() {
                @let x = self.position(value);
                @let class = is_one(value).then_some("at-one");
                text class=[class] x=(percent(x)) y=(bottom) text-anchor=(anchor(x)) { (text) }
            }
        }
    }

    /// The class of the gridline at a value.
    pub(crate) fn line_class(&self, value: f64) -> &'static str {
        if self.ratios && is_one(value) { "one" } else { "tick" }
    }

    /// The label of a tick where labels have no fixed number of decimals.
    pub(crate) fn label(&self, value: f64, fixed: String) -> String {
        if self.ratios { fixed } else { axis_label(value) }
    }
}

fn is_one(value: f64) -> bool {
    (value - 1.0).abs() < 1e-9
}

/// A position as an attribute's value.
pub(crate) fn percent(position: f64) -> String {
    format!("{position:.2}%")
}

/// A line over the whole height of a chart.
fn vertical_line(class: &str, position: f64) -> Markup {
    let x = percent(position);
    html! { line class=(class) x1=(x) x2=(x) y2="100%" {} }
}

/// A round amount, without trailing zeros: `2.5k`, `0.25`.
pub(crate) fn axis_label(value: f64) -> String {
    let text = match value {
        0.0 => return "0".to_owned(),
        ..0.01 => format!("{value:.9}"),
        _ => compact(value),
    };
    let (digits, unit) =
        text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let digits = match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    };
    format!("{digits}{unit}")
}

/// The round number (1, 2 or 5 times a power of ten) at or above `rough`.
fn step(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    factors.into_iter().map(|factor| factor * power).find(|step| *step >= rough).unwrap_or(power)
}

#[cfg(test)]
mod tests {
    use dbdyno_units::Ratio;

    use super::*;

    #[test]
    fn ratio_axis_is_close_to_one_with_a_tick_there() {
        let scale = Scale::covering([1.02, 1.08]);
        let labels: Vec<String> = scale.ticks().into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["1.00", "1.02", "1.04", "1.06", "1.08"]);
        assert!(scale.position(1.0) > 0.0 && scale.position(1.08) < 100.0);
    }

    #[test]
    fn wide_interval_does_not_squeeze_the_medians() {
        let estimate = |low, median, high| {
            crate::sample::interval(Ratio::new(median), Ratio::new(low), Ratio::new(high))
        };
        let scale = Scale::of_estimates(&[estimate(0.99, 1.0, 1.01), estimate(0.2, 1.04, 9.0)]);
        assert!(scale.position(1.04) - scale.position(1.0) > 25.0);
        assert_eq!(scale.clamped(9.0), 100.0);
    }

    #[test]
    fn amounts_start_at_zero_and_fit() {
        let scale = Scale::from_zero([12_345.0, 300.0, f64::NAN]);
        assert_eq!(scale.position(0.0), 0.0);
        assert!(scale.position(12_345.0) > 90.0 && scale.position(12_345.0) <= 100.0);
        let ticks: Vec<f64> = scale.ticks().into_iter().map(|(value, _)| value).collect();
        assert_eq!(ticks, [0.0, 5_000.0, 10_000.0]);
        assert_eq!(Scale::from_zero([]).position(0.5), 50.0);
    }

    #[test]
    fn axis_without_values_is_usable() {
        let scale = Scale::covering([f64::NAN]);
        assert!((scale.position(1.0) - 50.0).abs() < 1e-9);
    }

    #[test]
    fn axis_labels_have_no_trailing_zeros() {
        let shown = [0.0, 0.002, 0.25, 50.0, 120.0, 2_500.0, 40_000.0, 1e6].map(axis_label);
        assert_eq!(shown, ["0", "0.002", "0.25", "50", "120", "2.5k", "40k", "1M"]);
    }
}
