//! Sentences of the history, shared by the terminal and the page.

use std::collections::BTreeSet;

use dbdyno_stats::{ChangePoint, Level, Quotient};
use dbdyno_units::Ratio;

use super::runs::{labels, version};
use super::{FALSE_DISCOVERIES, Figure, FigureHistory, History, HistoryRun};
use crate::figures::{percent_change, plus_minus_percent, ratio};
use crate::metric::clients;
use crate::model::{Report, RunStatus};
use crate::words::{TABLES_ROWS, readable_time, status};

/// Most names to list in a sentence.
const LISTED: usize = 4;

/// Some names, and the number of the others.
pub(super) fn some_of(names: &[&str]) -> String {
    let mut text = names.iter().take(LISTED).copied().collect::<Vec<_>>().join(", ");
    if names.len() > LISTED {
        text.push_str(&format!(" and {} more", names.len() - LISTED));
    }
    text
}

/// Differences between the runs that limit what changes mean.
pub(super) fn notes(reports: &[&Report], figures: &[FigureHistory]) -> Vec<String> {
    let labels = labels(reports);
    let mut notes = Vec::new();
    let mut changing = |what: &str, of: &dyn Fn(&Report) -> Option<String>| {
        let mut values: Vec<(String, &str)> = Vec::new();
        for (report, label) in reports.iter().zip(&labels) {
            let value = of(report).unwrap_or_else(|| "not recorded".to_owned());
            if values.last().is_none_or(|(known, _)| *known != value) {
                values.push((value, label.as_str()));
            }
        }
        if values.len() > 1 {
            let values: Vec<String> =
                values.iter().map(|(value, from)| format!("{value} from {from}")).collect();
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            notes.push(format!("{what}: {}", some_of(&values)));
        }
    };
    changing(
        "the baseline is not the same program in all runs, which changes all ratios",
        &|report| report.candidates.first().map(version),
    );
    changing("the data is not the same in all runs", &|report| setting(report, TABLES_ROWS));
    changing("the runs have experiments of different names", &|report| Some(report.name.clone()));
    changing("the runs are not of the same machine", &|report| {
        let fact = |(label, _): &&(String, String)| label.eq_ignore_ascii_case("CPU");
        report.host.iter().find(fact).map(|(_, value)| value.clone())
    });
    let incomplete: Vec<String> = reports
        .iter()
        .zip(&labels)
        .filter(|(report, _)| report.status == RunStatus::Incomplete)
        .map(|(report, label)| format!("{label} ({})", status(report)))
        .collect();
    if !incomplete.is_empty() {
        let names: Vec<&str> = incomplete.iter().map(String::as_str).collect();
        notes.push(format!("not complete, only what was measured is used: {}", some_of(&names)));
    }
    notes.extend(missing(reports, &labels, figures));
    notes
}

fn setting(report: &Report, wanted: &str) -> Option<String> {
    report.settings.iter().find(|(label, _)| label == wanted).map(|(_, value)| value.clone())
}

/// Candidates and microbenchmarks that some runs lack.
fn missing(reports: &[&Report], labels: &[String], figures: &[FigureHistory]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut about = |name: &str, has: &dyn Fn(&Report) -> bool| {
        let without = reports.iter().zip(labels).filter(|(report, _)| !has(report));
        let without: Vec<&str> = without.map(|(_, label)| label.as_str()).collect();
        if !without.is_empty() {
            notes.push(format!("{name} is missing in {}", some_of(&without)));
        }
    };
    let candidates: BTreeSet<&str> =
        figures.iter().map(|one| one.figure.candidate.as_str()).collect();
    for name in candidates {
        about(name, &|report| report.candidates.iter().any(|one| one.name == name));
    }
    let names: BTreeSet<&str> =
        figures.iter().filter_map(|one| one.figure.microbenchmark.as_deref()).collect();
    for name in names {
        about(name, &|report| report.microbenchmarks.iter().any(|one| one.name == name));
    }
    notes
}

/// What was searched, and what chance explains.
pub(super) fn about(history: &History) -> String {
    let tested = history.tested();
    let start = match history.changes.len() {
        0 => format!("No change found in {tested} figures"),
        1 => format!("1 change in {tested} figures"),
        count => format!("{count} changes in {tested} figures"),
    };
    let chance = match history.changes.len() {
        0 => String::new(),
        _ => format!(
            " In at most about {:.0}% of the figures with a change nothing changed: a figure needs \
             p ≤ {}, which allows for their number.",
            100.0 * FALSE_DISCOVERIES,
            significance_level(history.significance_level)
        ),
    };
    format!(
        "{start}: relative QPS and CPU per query of each candidate, by microbenchmark and group. \
         Changes that the noise floor or a single run explains are not listed.{chance}"
    )
}

/// The runs that were left out of figures; `None` if there are none.
pub(super) fn left_out(history: &History) -> Option<String> {
    let count = |run: usize| {
        let tested = history.figures.iter().filter(|one| one.is_tested());
        tested.filter(|one| one.outliers.contains(&run)).count()
    };
    let runs: Vec<String> = (0..history.runs.len())
        .map(|run| (&history.runs[run].label, count(run)))
        .filter(|(_, count)| *count > 0)
        .map(|(label, count)| match count {
            1 => format!("{label} (1 figure)"),
            count => format!("{label} ({count} figures)"),
        })
        .collect();
    let runs: Vec<&str> = runs.iter().map(String::as_str).collect();
    let what = "Left out of figures because they are far from the runs before and after";
    (!runs.is_empty()).then(|| format!("{what}: {}.", some_of(&runs)))
}

/// What a level and its interval are.
pub(super) const LEVELS: &str = "The level is the mean ratio to the baseline since the last change, with its 95% interval. A group \
     is the geometric mean of its microbenchmarks.";

/// A figure in words: `rel, scan_range=100`.
pub(super) fn subject(figure: &Figure, is_sweep: bool) -> String {
    let what = match &figure.microbenchmark {
        Some(name) => name.clone(),
        None => format!("{} as a whole", figure.group),
    };
    let clients = if is_sweep { format!(", {}", clients(figure.clients)) } else { String::new() };
    format!("{}, {what}{clients}", figure.candidate)
}

/// The size of a change: `+2.1%`.
pub(super) fn size(point: &ChangePoint) -> String {
    percent_change(point.ratio.ratio)
}

/// Its interval: `+1.8% to +2.5%`.
pub(super) fn interval(point: &ChangePoint) -> String {
    let Quotient { low, high, .. } = point.ratio;
    format!("{} to {}", percent_change(low), percent_change(high))
}

/// A p-value with one significant digit: `0.003`.
pub(super) fn p_value(p: f64) -> String {
    match p {
        ..0.000_1 => "<0.0001".to_owned(),
        0.1.. => format!("{p:.1}"),
        _ => {
            let decimals = (-p.log10()).ceil() as usize;
            format!("{p:.decimals$}")
        }
    }
}

/// A significance level with two significant digits, rounded down: `0.00015`.
fn significance_level(level: f64) -> String {
    let decimals = (1.0 - level.log10().floor()).clamp(2.0, 17.0) as usize;
    let scale = 10_f64.powi(decimals as i32);
    // Rounding errors of the product must not change the last digit.
    let text = format!("{:.decimals$}", (level * scale * (1.0 + 1e-12)).floor() / scale);
    text.trim_end_matches('0').to_owned()
}

/// A p-value with its letter: `p < 0.0001`, `p = 0.003`.
pub(super) fn with_p(p: f64) -> String {
    let text = p_value(p);
    text.strip_prefix('<').map_or_else(|| format!("p = {text}"), |limit| format!("p < {limit}"))
}

/// A run in words: its directory and its start.
pub(super) fn run(run: &HistoryRun) -> String {
    format!("{}, {}", run.label, readable_time(&run.started))
}

/// The 95% interval of the position, unless it is exactly the two runs.
pub(super) fn position(history: &History, point: &ChangePoint) -> Option<String> {
    if (point.earliest, point.latest) == (point.before, point.after) {
        return None;
    }
    let of = |index: usize| {
        let run = &history.runs[index];
        format!("{} ({})", run.label, run.date())
    };
    Some(format!(
        "95% interval: after {}, at the latest in {}",
        of(point.earliest),
        of(point.latest)
    ))
}

/// The baseline's programs around a change if it is not the same: then the change may be its.
pub(super) fn baseline(history: &History, point: &ChangePoint) -> Option<String> {
    let version = |index: usize| {
        let known = history.runs[index].version_of(&history.baseline);
        known.unwrap_or("unknown").to_owned()
    };
    let (before, after) = (version(point.before), version(point.after));
    (before != after).then(|| format!("{before} → {after}; the change may be the baseline's"))
}

/// A level with its interval: `1.034 ±0.4%`.
pub(super) fn level(level: &Level) -> String {
    format!("{} {}", ratio(level.ratio.ratio), reach(level.ratio))
}

/// The last change of a figure with its interval: `+2.1% ±0.4%`.
pub(super) fn last_change(of: &FigureHistory) -> String {
    of.points.last().map_or_else(
        || "none found".to_owned(),
        |point| format!("{} {}", size(point), reach(point.ratio)),
    )
}

/// The distance to the farther end of an interval, in percent of the baseline.
fn reach(of: Quotient) -> String {
    let Quotient { ratio, low, high } = of;
    plus_minus_percent(100.0 * (high.get() - ratio.get()).max(ratio.get() - low.get()))
}

/// A ratio as text, with its interval if there is one.
pub(super) fn with_interval(value: Ratio, interval: Option<(Ratio, Ratio)>) -> String {
    match interval {
        Some((low, high)) => format!("{} ({} to {})", ratio(value), ratio(low), ratio(high)),
        None => ratio(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_values_have_one_digit() {
        let shown = [0.000_01, 0.000_12, 0.0034, 0.05, 0.2, 1.0].map(p_value);
        assert_eq!(shown, ["<0.0001", "0.0001", "0.003", "0.05", "0.2", "1.0"]);
        assert_eq!([0.000_01, 0.01].map(with_p), ["p < 0.0001", "p = 0.01"]);
    }

    #[test]
    fn significance_level_is_rounded_down_to_two_digits() {
        // Of 1222, 658 and 10 figures.
        let shown = [0.05 / 1222.0, 0.05 * 2.0 / 658.0, 0.05 / 10.0, 0.05].map(significance_level);
        assert_eq!(shown, ["0.00004", "0.00015", "0.005", "0.05"]);
        for digit in 10..100 {
            let level = f64::from(digit) / 1e4;
            assert_eq!(significance_level(level), level.to_string());
        }
    }

    #[test]
    fn long_lists_are_shortened() {
        assert_eq!(some_of(&["a", "b"]), "a, b");
        assert_eq!(some_of(&["a", "b", "c", "d", "e", "f"]), "a, b, c, d and 2 more");
    }
}
