//! The CSV tables.

use dbdyno_units::{Nanos, Qps, Ratio, Share};

use crate::metric::{Metric, response_times};
use crate::model::{Absolute, Change, Percentile, Report, Row, ScalingRatio};

/// The columns of `relative.csv`.
pub const RELATIVE_HEADER: [&str; 24] = [
    "microbenchmark",
    "group",
    "candidate",
    "baseline",
    "relative_qps",
    "ci_low",
    "ci_high",
    "verdict",
    "blocks",
    "qps",
    "baseline_qps",
    "relative_cpu",
    "cpu_us_per_query",
    "errors",
    "clients",
    "relative_cs",
    "client_cpu_us_per_query",
    "cs_per_query",
    "user_us_per_query",
    "system_us_per_query",
    "relative_cpu_ci_low",
    "relative_cpu_ci_high",
    "cpu_verdict",
    "trusted_metric",
];

/// The columns of `summary.csv`.
pub const SUMMARY_HEADER: [&str; 11] = [
    "group",
    "candidate",
    "count",
    "min",
    "max",
    "avg",
    "median",
    "stddev",
    "worst",
    "best",
    "clients",
];

/// The columns of `counters.csv`.
pub const COUNTERS_HEADER: [&str; 11] = [
    "microbenchmark",
    "group",
    "clients",
    "candidate",
    "baseline",
    "figure",
    "value",
    "relative",
    "ci_low",
    "ci_high",
    "counted_time",
];

/// The columns of `latency.csv`.
pub const LATENCY_HEADER: [&str; 11] = [
    "microbenchmark",
    "group",
    "clients",
    "candidate",
    "baseline",
    "percentile",
    "response_time_us",
    "relative",
    "ci_low",
    "ci_high",
    "verdict",
];

/// The columns of `scaling.csv`.
pub const SCALING_HEADER: [&str; 16] = [
    "microbenchmark",
    "group",
    "candidate",
    "clients",
    "than_clients",
    "qps",
    "relative_qps",
    "ci_low",
    "ci_high",
    "verdict",
    "p99_us",
    "relative_p99",
    "p99_ci_low",
    "p99_ci_high",
    "p99_verdict",
    "interleaved",
];

/// Each number of clients relative to the next smaller one, then relative to the smallest one.
pub(super) fn scaling(report: &Report) -> Result<String, csv::Error> {
    table(&SCALING_HEADER, |writer| {
        for row in &report.scaling {
            let to_smallest = row.to_smallest.as_ref().filter(|smallest| {
                row.to_previous
                    .as_ref()
                    .is_some_and(|one| one.than_clients != smallest.than_clients)
            });
            let ratios = [row.to_previous.as_ref(), to_smallest];
            for compared in ratios.into_iter().flatten() {
                let ScalingRatio { relative_qps: qps, relative_p99: p99, .. } = compared;
                writer.write_record([
                    row.microbenchmark.clone(),
                    row.group.clone(),
                    row.candidate.clone(),
                    row.clients.to_string(),
                    compared.than_clients.to_string(),
                    number(row.qps.map(Qps::per_second)),
                    ratio(qps.map(|estimate| estimate.median)),
                    ratio(qps.map(|estimate| estimate.low)),
                    ratio(qps.map(|estimate| estimate.high)),
                    compared.verdict.name().to_owned(),
                    number(row.p99.map(Nanos::as_micros_f64)),
                    ratio(p99.map(|estimate| estimate.median)),
                    ratio(p99.map(|estimate| estimate.low)),
                    ratio(p99.map(|estimate| estimate.high)),
                    compared.p99_verdict.name().to_owned(),
                    if compared.interleaved { "yes" } else { "no" }.to_owned(),
                ])?;
            }
        }
        Ok(())
    })
}

pub(super) fn latency(report: &Report) -> Result<String, csv::Error> {
    table(&LATENCY_HEADER, |writer| {
        for microbenchmark in &report.microbenchmarks {
            for (candidate, times, row) in response_times(report, microbenchmark) {
                for percentile in Percentile::ALL {
                    let compared = row.and_then(|row| percentile.relative_of(row));
                    let relative = compared.and_then(|compared| compared.relative);
                    writer.write_record([
                        microbenchmark.name.clone(),
                        microbenchmark.group.clone(),
                        microbenchmark.clients.to_string(),
                        candidate.name.clone(),
                        report.baseline.clone(),
                        percentile.name().to_owned(),
                        number(Some(percentile.of(times).as_micros_f64())),
                        ratio(relative.map(|estimate| estimate.median)),
                        ratio(relative.map(|estimate| estimate.low)),
                        ratio(relative.map(|estimate| estimate.high)),
                        compared.map_or_else(String::new, |one| one.verdict.name().to_owned()),
                    ])?;
                }
            }
        }
        Ok(())
    })
}

/// The columns of `effects.csv`.
pub const EFFECTS_HEADER: [&str; 18] = [
    "matrix",
    "microbenchmark",
    "group",
    "clients",
    "setting",
    "value",
    "reference",
    "with_setting",
    "with_value",
    "with_reference",
    "relative_qps",
    "ci_low",
    "ci_high",
    "verdict",
    "blocks",
    "relative_cpu",
    "cpu_ci_low",
    "cpu_ci_high",
];

pub(super) fn effects(report: &Report) -> Result<String, csv::Error> {
    table(&EFFECTS_HEADER, |writer| {
        for effect in &report.effects {
            let (qps, cpu) = (effect.relative_qps, effect.relative_cpu);
            let with = |part: fn(&Change) -> &String| {
                effect.with.as_ref().map_or_else(String::new, |with| part(with).clone())
            };
            writer.write_record([
                effect.matrix.clone(),
                effect.microbenchmark.clone(),
                effect.group.clone(),
                effect.clients.to_string(),
                effect.change.setting.clone(),
                effect.change.value.clone(),
                effect.change.reference.clone(),
                with(|with| &with.setting),
                with(|with| &with.value),
                with(|with| &with.reference),
                ratio(qps.map(|estimate| estimate.median)),
                ratio(qps.map(|estimate| estimate.low)),
                ratio(qps.map(|estimate| estimate.high)),
                effect.verdict.name().to_owned(),
                effect.blocks.to_string(),
                ratio(cpu.map(|estimate| estimate.median)),
                ratio(cpu.map(|estimate| estimate.low)),
                ratio(cpu.map(|estimate| estimate.high)),
            ])?;
        }
        Ok(())
    })
}

/// The columns of `changes.csv`.
pub const CHANGES_HEADER: [&str; 11] = [
    "series",
    "microbenchmark",
    "group",
    "clients",
    "from",
    "to",
    "relative_qps",
    "ci_low",
    "ci_high",
    "verdict",
    "blocks",
];

pub(super) fn changes(report: &Report) -> Result<String, csv::Error> {
    table(&CHANGES_HEADER, |writer| {
        for series in &report.series {
            for change in &series.changes {
                let estimate = change.relative_qps;
                writer.write_record([
                    series.name.clone(),
                    change.microbenchmark.clone(),
                    change.group.clone(),
                    change.clients.to_string(),
                    change.from.clone(),
                    change.to.clone(),
                    ratio(Some(change.ratio)),
                    ratio(estimate.map(|estimate| estimate.low)),
                    ratio(estimate.map(|estimate| estimate.high)),
                    change.verdict.name().to_owned(),
                    change.blocks.to_string(),
                ])?;
            }
        }
        Ok(())
    })
}

pub(super) fn counters(report: &Report) -> Result<String, csv::Error> {
    table(&COUNTERS_HEADER, |writer| {
        for microbenchmark in &report.microbenchmarks {
            let rows = microbenchmark.rows.iter();
            let baseline = (&report.baseline, &microbenchmark.baseline, None);
            let all: Vec<(&String, &Absolute, Option<&Row>)> = std::iter::once(baseline)
                .chain(rows.map(|row| (&row.candidate, &row.absolute, Some(row))))
                .collect();
            for (candidate, absolute, row) in all {
                for (figure, value) in &absolute.counters {
                    let estimate = row.and_then(|row| row.relative_counters.get(figure));
                    let turns = absolute.counted_time.filter(|_| figure.is_of_cpu());
                    writer.write_record([
                        microbenchmark.name.clone(),
                        microbenchmark.group.clone(),
                        microbenchmark.clients.to_string(),
                        candidate.clone(),
                        report.baseline.clone(),
                        figure.name().to_owned(),
                        decimals(Some(*value), 6),
                        ratio(estimate.map(|estimate| estimate.median)),
                        ratio(estimate.map(|estimate| estimate.low)),
                        ratio(estimate.map(|estimate| estimate.high)),
                        decimals(turns.map(Share::as_fraction), 4),
                    ])?;
                }
            }
        }
        Ok(())
    })
}

pub(super) fn relative(report: &Report) -> Result<String, csv::Error> {
    table(&RELATIVE_HEADER, |writer| {
        for microbenchmark in &report.microbenchmarks {
            for row in &microbenchmark.rows {
                let qps = row.relative_qps;
                writer.write_record([
                    microbenchmark.name.clone(),
                    microbenchmark.group.clone(),
                    row.candidate.clone(),
                    report.baseline.clone(),
                    ratio(Metric::Qps.ratio(row)),
                    ratio(qps.map(|estimate| estimate.low)),
                    ratio(qps.map(|estimate| estimate.high)),
                    row.verdict.name().to_owned(),
                    row.blocks.to_string(),
                    number(row.absolute.qps.map(Qps::per_second)),
                    number(microbenchmark.baseline.qps.map(Qps::per_second)),
                    ratio(row.relative_cpu.map(|estimate| estimate.median)),
                    number(row.absolute.cpu_us_per_query),
                    row.absolute.errors.to_string(),
                    microbenchmark.clients.to_string(),
                    ratio(row.relative_cs.map(|estimate| estimate.median)),
                    number(row.absolute.client_cpu_us_per_query),
                    decimals(row.absolute.cs_per_query, 6),
                    number(row.absolute.user_us_per_query),
                    number(row.absolute.system_us_per_query),
                    ratio(row.relative_cpu.map(|estimate| estimate.low)),
                    ratio(row.relative_cpu.map(|estimate| estimate.high)),
                    cpu_verdict(row),
                    row.trusted_metric.name().to_owned(),
                ])?;
            }
        }
        Ok(())
    })
}

pub(super) fn summary(report: &Report) -> Result<String, csv::Error> {
    table(&SUMMARY_HEADER, |writer| {
        for summary in &report.groups {
            writer.write_record([
                summary.group.clone(),
                summary.candidate.clone(),
                summary.count.to_string(),
                ratio(Some(summary.min)),
                ratio(Some(summary.max)),
                ratio(Some(summary.avg)),
                ratio(Some(summary.median)),
                decimals(summary.stddev, 6),
                summary.worst.clone(),
                summary.best.clone(),
                summary.clients.to_string(),
            ])?;
        }
        Ok(())
    })
}

pub(crate) fn table(
    header: &[&str],
    fill: impl FnOnce(&mut csv::Writer<&mut Vec<u8>>) -> Result<(), csv::Error>,
) -> Result<String, csv::Error> {
    let mut bytes = Vec::new();
    {
        let mut writer = csv::Writer::from_writer(&mut bytes);
        writer.write_record(header)?;
        fill(&mut writer)?;
        writer.flush()?;
    }
    // All fields were strings, so this is valid UTF-8.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Empty if CPU time is unknown.
fn cpu_verdict(row: &Row) -> String {
    let is_measured = Metric::Cpu.is_measured(row);
    if is_measured { Metric::Cpu.word(row.cpu_verdict).to_owned() } else { String::new() }
}

/// Ratios have six decimals in every row, which is more precise than any interval.
fn ratio(ratio: Option<Ratio>) -> String {
    decimals(ratio.map(Ratio::get), 6)
}

/// Values with a unit have three decimals.
fn number(number: Option<f64>) -> String {
    decimals(number, 3)
}

pub(crate) fn decimals(number: Option<f64>, decimals: usize) -> String {
    number
        .filter(|number| number.is_finite())
        .map_or_else(String::new, |number| format!("{number:.decimals$}"))
}
