//! Figures, and number formats, shared by all outputs.

use dbdyno_stats::Direction;
use dbdyno_text::decimals;
use dbdyno_units::{Nanos, Ratio, Share, grouped};

use crate::model::{Absolute, CounterFigure, Estimate, Metric, Percentile, Row};
use crate::sections::Output;
use crate::sections::operations::Part;

/// A ratio in five characters: `1.038`, `12.40`, `124.0`.
pub(crate) fn ratio(ratio: Ratio) -> String {
    rounded(ratio.get(), 3, [9.9995, 99.995])
}

/// The distance from the median to the farther end of the interval, in percent of the baseline. Small distances have two
/// decimals: `±0.0%` would look like no uncertainty.
pub(crate) fn plus_minus(estimate: Estimate) -> String {
    plus_minus_percent(estimate.farther_end().as_percent())
}

/// A distance in percent, in at most five characters: `±0.8%`.
pub(crate) fn plus_minus_percent(percent: f64) -> String {
    match percent {
        ..0.005 => "<.01%".to_owned(),
        ..0.095 => format!("±{}%", &format!("{percent:.2}")[1..]),
        ..9.95 => format!("±{percent:.1}%"),
        ..999.5 => format!("±{percent:.0}%"),
        _ => ">999%".to_owned(),
    }
}

/// Both ends of the interval: `1.034, 1.042`.
pub(crate) fn ends(estimate: Estimate) -> String {
    format!("{}, {}", ratio(estimate.low), ratio(estimate.high))
}

/// A change in percent: `0.05%`, `2.1%`, `44.3%`, `120%`.
pub(crate) fn percent(share: Share) -> String {
    let text = rounded(share.as_percent(), 2, [0.095, 99.95]);
    let is_whole = !text.contains('.');
    let text = if is_whole { &text } else { text.trim_end_matches('0').trim_end_matches('.') };
    format!("{text}%")
}

/// The distance of a ratio from 1 in percent: `2.1%`.
pub(crate) fn size_of(ratio: Ratio) -> String {
    percent(Share::from_fraction(ratio.distance()))
}

/// A ratio as a signed change in percent: `+12.3%`, `−4%`, `0.0%`.
pub(crate) fn percent_change(ratio: Ratio) -> String {
    let percent = 100.0 * (ratio.get() - 1.0);
    let decimals = usize::from(percent.abs() < 99.95);
    let text = format!("{:.decimals$}%", percent.abs());
    let is_zero = text.chars().all(|c| !('1'..='9').contains(&c));
    match percent {
        _ if is_zero => text,
        0.0.. => format!("+{text}"),
        _ => format!("−{text}"),
    }
}

/// Three significant digits in at most five characters: `0.91`, `98.7`, `512k`, `1.23M`.
pub(crate) fn compact(value: f64) -> String {
    const STEPS: [(f64, &str); 3] = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    // Rounding may carry into the next unit: 999,700 is 1.00M, not 1000k.
    for (step, letter) in STEPS {
        if value >= step * 0.9995 {
            return format!("{}{letter}", rounded(value / step, 2, THREE_DIGITS));
        }
    }
    rounded(value, 2, THREE_DIGITS)
}

/// As [`compact`], but with a power of ten for very small values: `4e-4`.
pub(crate) fn tiny(value: f64) -> String {
    if value > 0.0 && value < 0.005 { format!("{value:.0e}") } else { compact(value) }
}

/// From these values on, three digits have one decimal, and none.
const THREE_DIGITS: [f64; 2] = [9.995, 99.95];

/// A value with so many decimals, with one less from each of these limits on.
fn rounded(value: f64, decimals: usize, limits: [f64; 2]) -> String {
    let decimals = decimals - limits.into_iter().filter(|limit| value >= *limit).count();
    format!("{value:.decimals$}")
}

/// Microseconds with digits that suit the size.
pub(crate) fn micros(micros: f64) -> String {
    match micros {
        ..10.0 => format!("{micros:.3}"),
        ..100.0 => format!("{micros:.2}"),
        ..1000.0 => format!("{micros:.1}"),
        _ => grouped(micros.round() as u64),
    }
}

/// Microseconds as a time with its unit: `5.31 µs`, `11.4 ms`.
pub(crate) fn duration(micros: f64) -> String {
    if micros > 0.0 { Nanos::from_secs_f64(micros / 1e6).to_string() } else { "0".to_owned() }
}

/// Microseconds in four or five characters: `0.046`, `5.31`, `36.9`.
pub(crate) fn us(micros: f64) -> String {
    if micros < 0.9995 { format!("{micros:.3}") } else { compact(micros) }
}

/// A difference with its sign: `+5.31`, `−0.046`.
pub(crate) fn signed(difference: f64, write: fn(f64) -> String) -> String {
    format!("{}{}", if difference < 0.0 { "−" } else { "+" }, write(difference.abs()))
}

/// A difference in microseconds with its sign.
pub(crate) fn signed_us(difference: f64) -> String {
    signed(difference, us)
}

/// A figure of a candidate on a microbenchmark. Tables, comparisons and exports take names, units and
/// values from [`FIGURES`].
pub(crate) struct Figure {
    /// The name in exports.
    pub(crate) name: &'static str,
    /// The name in narrow tables.
    pub(crate) short: &'static str,
    /// The name in wide tables, with the unit.
    pub(crate) title: &'static str,
    pub(crate) part: Part,
    /// The percentile of response times that it is.
    pub(crate) percentile: Option<Percentile>,
    pub(crate) better: Option<Direction>,
    pub(crate) of: fn(&Absolute) -> Option<f64>,
    /// The 95% interval of the value.
    pub(crate) interval: fn(&Absolute) -> Option<(f64, f64)>,
    /// The ratio to the baseline, compared slice by slice.
    paired: fn(&Row) -> Option<Estimate>,
    /// Whether the quotient of the two values is shown where no such ratio is known.
    quotient: bool,
}

const fn figure(
    name: &'static str,
    short: &'static str,
    title: &'static str,
    of: fn(&Absolute) -> Option<f64>,
) -> Figure {
    Figure {
        name,
        short,
        title,
        part: Part::Costs,
        percentile: None,
        better: Some(Direction::LessIsBetter),
        of,
        interval: |_| None,
        paired: |_| None,
        quotient: true,
    }
}

macro_rules! counter {
    ($short:literal, $title:literal, $figure:ident) => {
        Figure {
            part: Part::Counters,
            paired: |row| row.relative_counters.get(&CounterFigure::$figure).copied(),
            ..figure(CounterFigure::$figure.name(), $short, $title, |own| {
                own.counters.get(&CounterFigure::$figure).copied()
            })
        }
    };
}

macro_rules! percentile {
    ($name:literal, $title:literal, $percentile:ident) => {
        Figure {
            part: Part::ResponseTimes,
            percentile: Some(Percentile::$percentile),
            paired: |row| Percentile::$percentile.relative_of(row)?.relative,
            ..figure($name, Percentile::$percentile.name(), $title, |own| {
                Some(Percentile::$percentile.of(own.latency.as_ref()?).as_micros_f64())
            })
        }
    };
}

pub(crate) static FIGURES: [Figure; 24] = [
    Figure {
        better: Some(Direction::MoreIsBetter),
        interval: |own| own.qps_interval.map(|(low, high)| (low.per_second(), high.per_second())),
        paired: |row| row.relative_qps,
        quotient: false,
        ..figure("qps", "QPS", "QPS", |own| Some(own.qps?.per_second()))
    },
    Figure {
        better: Some(Direction::MoreIsBetter),
        ..figure("tps", "TPS", "TPS", |own| Some(own.tps?.per_second()))
    },
    Figure {
        interval: |own| own.cpu_interval,
        paired: |row| row.relative_cpu,
        quotient: false,
        ..figure("cpu_us_per_query", "cpu/q", "CPU µs", |own| own.cpu_us_per_query)
    },
    figure("user_us_per_query", "usr/q", "user µs", |own| own.user_us_per_query),
    figure("system_us_per_query", "sys/q", "system µs", |own| own.system_us_per_query),
    Figure {
        paired: |row| row.relative_cs,
        quotient: false,
        ..figure("cs_per_query", "cs/q", "context switches", |own| own.cs_per_query)
    },
    figure("page_faults_per_query", "pf/q", "page faults", |own| own.page_faults_per_query),
    figure("read_bytes_per_query", "rd/q", "bytes read", |own| own.read_bytes_per_query),
    figure("written_bytes_per_query", "wr/q", "bytes written", |own| own.written_bytes_per_query),
    figure("client_cpu_us_per_query", "client", "client's CPU µs", |own| {
        own.client_cpu_us_per_query
    }),
    Figure {
        better: None,
        quotient: false,
        ..figure("client_busy_percent", "busy", "client's CPUs, %", |own| {
            Some(own.client_busy?.as_percent())
        })
    },
    counter!("ins/q", "instructions", InstructionsPerQuery),
    counter!("cyc/q", "cycles", CyclesPerQuery),
    Figure {
        better: Some(Direction::MoreIsBetter),
        ..counter!("IPC", "instructions per cycle", InstructionsPerCycle)
    },
    counter!("L1i/k", "L1i misses per 1,000 instr.", L1iMissesPer1000Instructions),
    counter!("iTLB/k", "iTLB misses per 1,000 instr.", ItlbMissesPer1000Instructions),
    counter!("brm/k", "branch misses per 1,000 instr.", BranchMissesPer1000Instructions),
    counter!("minf/q", "minor page faults", MinorFaultsPerQuery),
    counter!("majf/q", "major page faults", MajorFaultsPerQuery),
    counter!("migr/q", "CPU migrations", CpuMigrationsPerQuery),
    counter!("µJ/q", "µJ of the package", MicrojoulesPerQuery),
    percentile!("p50_us", "p50 µs", P50),
    percentile!("p95_us", "p95 µs", P95),
    Figure {
        interval: |own| {
            own.p99_interval.map(|(low, high)| (low.as_micros_f64(), high.as_micros_f64()))
        },
        ..percentile!("p99_us", "p99 µs", P99)
    },
];

impl Figure {
    /// The figure with this name in exports.
    pub(crate) fn named(name: &str) -> &'static Self {
        let found = FIGURES.iter().find(|figure| figure.name == name);
        found.expect("figures are named in this crate")
    }

    /// The name in tables of an output.
    pub(crate) const fn title(&self, output: Output) -> &'static str {
        match output {
            Output::Terminal => self.short,
            Output::Page | Output::Markdown => self.title,
        }
    }

    /// The ratio to the baseline with its interval, compared slice by slice.
    pub(crate) fn relative(&self, row: &Row) -> Option<Estimate> {
        (self.paired)(row)
    }

    /// The ratio to the baseline: compared slice by slice where that is known, otherwise as a whole.
    pub(crate) fn ratio(&self, baseline: &Absolute, row: &Row) -> Option<f64> {
        let single = (self.name == "qps").then(|| row.ratio(Metric::Qps)).flatten();
        let paired = self.relative(row).map(|estimate| estimate.median).or(single);
        paired.map(Ratio::get).or_else(|| {
            let (own, base) = ((self.of)(&row.absolute)?, (self.of)(baseline)?);
            (self.quotient && base > 0.0).then_some(own / base)
        })
    }
}

/// Values with a unit have three decimals.
pub(crate) fn number(number: Option<f64>) -> String {
    decimals(number, 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_signs() {
        let shown =
            [1.1234, 0.96, 1.0001, 3.0, 0.001].map(|value| percent_change(Ratio::new(value)));
        assert_eq!(shown, ["+12.3%", "−4.0%", "0.0%", "+200%", "−99.9%"]);
    }

    fn estimate(low: f64, median: f64, high: f64) -> Estimate {
        crate::sample::interval(Ratio::new(median), Ratio::new(low), Ratio::new(high))
    }

    #[test]
    fn plus_minus_uses_the_farther_end() {
        assert_eq!(plus_minus(estimate(1.030, 1.038, 1.042)), "±0.8%");
        assert_eq!(plus_minus(estimate(0.5, 1.0, 1.1)), "±50%");
        assert_eq!(plus_minus(estimate(0.9, 0.9996, 1.0)), "±10%");
    }

    #[test]
    fn small_interval_is_not_written_as_zero() {
        assert_eq!(plus_minus(estimate(0.9996, 1.0, 1.0002)), "±.04%");
        assert_eq!(plus_minus(estimate(1.0, 1.0, 1.0)), "<.01%");
    }

    #[test]
    fn compact_numbers_have_at_most_five_characters() {
        let shown: Vec<String> = [0.912, 98.74, 999.6, 51_234.0, 999_700.0, 1_234_567.0]
            .into_iter()
            .map(compact)
            .collect();
        assert_eq!(shown, ["0.91", "98.7", "1.00k", "51.2k", "1.00M", "1.23M"]);
        let small: Vec<String> = [0.0, 0.000_41, 0.004_99, 0.005, 7.0].map(tiny).into();
        assert_eq!(small, ["0.00", "4e-4", "5e-3", "0.01", "7.00"]);
    }

    #[test]
    fn differences_in_microseconds_have_three_digits() {
        let shown: Vec<String> =
            [0.0463, -0.9996, 5.314, -36.92, 1_234.0].into_iter().map(signed_us).collect();
        assert_eq!(shown, ["+0.046", "−1.00", "+5.31", "−36.9", "+1.23k"]);
    }

    #[test]
    fn percentages_have_as_many_digits_as_they_need() {
        let shown: Vec<String> = [0.0, 0.051, 0.5, 2.04, 8.78, 44.32, 99.97, 120.0]
            .into_iter()
            .map(|value| percent(Share::from_percent(value)))
            .collect();
        assert_eq!(shown, ["0%", "0.05%", "0.5%", "2%", "8.8%", "44.3%", "100%", "120%"]);
    }

    #[test]
    fn ratios_have_five_characters() {
        let shown: Vec<String> =
            [0.4, 1.0384, 12.4, 124.0].into_iter().map(|r| ratio(Ratio::new(r))).collect();
        assert_eq!(shown, ["0.400", "1.038", "12.40", "124.0"]);
    }
}
