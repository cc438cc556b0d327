//! A build or a server against itself: how far the two are apart, and how often intervals contain 1.

use anyhow::Context;
use dbdyno_report::model::{Estimate, Report, Role};
use dbdyno_selfbench::harness::{ExperimentArgs, ExperimentFile, Harness};
use dbdyno_selfbench::nearest_rank;
use dbdyno_selfbench::output::{Case, Outcome, Table, print, write_csv};

/// The maximum distance from 1 that counts as near, in percent.
const NEAR: f64 = 1.0;
/// The minimum share of microbenchmarks that are near 1: 30 of 32.
const NEAR_GOAL: f64 = 0.93;
/// The minimum share of intervals that contain 1: 29 of 32.
const COVERAGE_GOAL: f64 = 0.9;

pub fn control(args: &ExperimentArgs) -> anyhow::Result<Outcome> {
    let file = ExperimentFile::read("control", args)?;
    let harness = Harness::new()?;
    let report = harness.run_with_progress(&file)?;
    conclude_control(&estimates(&report)?)
}

/// The control's relative QPS on each microbenchmark.
fn estimates(report: &Report) -> anyhow::Result<Vec<(&str, Estimate)>> {
    let of_rows = report.microbenchmarks.iter().map(|rows| {
        let control = rows.rows.iter().find(|row| row.role == Role::Control);
        let estimate = control.and_then(|row| row.relative_qps);
        let name = rows.name.as_str();
        Ok((name, estimate.with_context(|| format!("the control of {name} has no interval"))?))
    });
    of_rows.collect()
}

fn conclude_control(estimates: &[(&str, Estimate)]) -> anyhow::Result<Outcome> {
    let headings = ["microbenchmark", "relative QPS", "95% interval", "half-width", "contains 1"];
    let mut table = Table::new(&headings);
    let mut cases = Vec::new();
    for (name, estimate) in estimates {
        table.row([
            (*name).to_owned(),
            format!("{:.4}", estimate.median),
            format!("{:.4} to {:.4}", estimate.low, estimate.high),
            format!("{:.2}%", estimate.half_width().as_percent()),
            if estimate.contains_one() { "yes" } else { "no" }.to_owned(),
        ]);
        cases.push(Case::new(*name, "relative QPS", estimate.median.get(), 1.0));
    }
    table.print();

    let all = estimates.len();
    let count = |test: fn(&Estimate) -> bool| {
        estimates.iter().filter(|(_, estimate)| test(estimate)).count()
    };
    let counted = [
        (format!("within {NEAR}% of 1"), NEAR_GOAL, count(|estimate| distance(estimate) <= NEAR)),
        ("95% interval contains 1".to_owned(), COVERAGE_GOAL, count(Estimate::contains_one)),
    ];
    let mut summary = Table::new(&["", "microbenchmarks", "goal"]);
    let mut missed = Vec::new();
    for (what, goal, count) in counted {
        let least = (goal * all as f64).ceil() as usize;
        summary.row([what.clone(), format!("{count} of {all}"), format!("≥ {least}")]);
        if count < least {
            missed.push(format!("{what}: {count} of {all} microbenchmarks, not {least}"));
        }
        cases.push(Case::new(what, "microbenchmarks", count as f64, all as f64));
    }
    summary.print();
    print(&format!("written to {}\n", write_csv("control", &cases)?.display()));
    Ok(Outcome::of(missed.is_empty(), || missed.join("; ")))
}

/// The minimum number of intervals for a verdict: with 200, 0.95 is known to ±0.03.
const ENOUGH: usize = 200;
/// The nominal coverage.
const NOMINAL: f64 = 0.95;
/// Accepted share of intervals that contain 1: below, they are too narrow; above, too wide.
const CONTAINING: std::ops::RangeInclusive<f64> = 0.92..=0.98;

/// Counts how often the 95% interval of a build against itself contains 1
/// (experiments/coverage.toml).
#[derive(clap::Args)]
pub struct CoverageArgs {
    /// Number of runs, each with its own seed and new instances
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    #[command(flatten)]
    experiment: ExperimentArgs,
}

/// The intervals of one microbenchmark, one from each run.
struct Intervals {
    name: String,
    estimates: Vec<Estimate>,
}

pub fn coverage(args: &CoverageArgs) -> anyhow::Result<Outcome> {
    let mut file = ExperimentFile::read("coverage", &args.experiment)?;
    let harness = Harness::new()?;
    let mut intervals: Vec<Intervals> = Vec::new();
    harness.repeat(&mut file, args.runs, |_, report| collect(report, &mut intervals))?;
    conclude_coverage(&intervals)
}

/// Adds what the control of this run shows.
fn collect(report: &Report, intervals: &mut Vec<Intervals>) -> anyhow::Result<()> {
    for (name, estimate) in estimates(report)? {
        match intervals.iter_mut().find(|one| one.name == name) {
            Some(one) => one.estimates.push(estimate),
            None => intervals.push(Intervals { name: name.to_owned(), estimates: vec![estimate] }),
        }
    }
    Ok(())
}

fn share_of<'a>(estimates: impl Iterator<Item = &'a Estimate> + Clone) -> f64 {
    estimates.clone().filter(|one| one.contains_one()).count() as f64 / estimates.count() as f64
}

fn conclude_coverage(intervals: &[Intervals]) -> anyhow::Result<Outcome> {
    let headings = [
        "microbenchmark",
        "intervals",
        "contain 1",
        "nominal",
        "goal",
        "half-width (median)",
        "|ratio-1| (median)",
        "(greatest)",
    ];
    let mut table = Table::new(&headings);
    let mut cases = Vec::new();
    let all: Vec<&Estimate> = intervals.iter().flat_map(|one| &one.estimates).collect();
    let mut add = |name: &str, estimates: &[&Estimate], goal: &str| {
        let of = estimates.iter().copied();
        let share = share_of(of.clone());
        let distances = sorted(of.clone(), distance);
        let half_widths = sorted(of, |one| one.half_width().as_percent());
        table.row([
            name.to_owned(),
            estimates.len().to_string(),
            format!("{share:.3}"),
            NOMINAL.to_string(),
            goal.to_owned(),
            format!("{:.2}%", quantile(&half_widths, 0.5)),
            format!("{:.2}%", quantile(&distances, 0.5)),
            format!("{:.2}%", quantile(&distances, 1.0)),
        ]);
        cases.push(Case::new(name, "share", share, NOMINAL));
    };
    for one in intervals {
        add(&one.name, &one.estimates.iter().collect::<Vec<_>>(), "");
    }
    let goal = format!("{} to {}", CONTAINING.start(), CONTAINING.end());
    add("all", &all, &goal);
    table.print();

    let distances = sorted(all.iter().copied(), distance);
    let mut summary = Table::new(&["|ratio-1| of all", "at most"]);
    for share in [0.5, 0.75, 0.9, 0.95, 0.99, 1.0] {
        let row = format!("{:.0}% of comparisons", share * 100.0);
        summary.row([row, format!("{:.2}%", quantile(&distances, share))]);
    }
    summary.print();
    print(&format!("written to {}\n", write_csv("coverage", &cases)?.display()));
    let share = share_of(all.iter().copied());
    Ok(Outcome::of(CONTAINING.contains(&share), || {
        let count = all.len();
        let few = if count < ENOUGH { " (too few for a verdict)" } else { "" };
        format!("{share:.3} of {count} 95% intervals contain 1, not {goal}{few}")
    }))
}

/// The ratio's distance from 1, in percent.
fn distance(estimate: &Estimate) -> f64 {
    estimate.median.distance() * 100.0
}

/// A figure of each interval, in ascending order.
fn sorted<'a>(
    estimates: impl Iterator<Item = &'a Estimate>,
    figure: fn(&Estimate) -> f64,
) -> Vec<f64> {
    let mut values: Vec<f64> = estimates.map(figure).collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// The smallest value that at least `share` of the sorted values do not exceed; NaN if empty.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    nearest_rank(sorted, share).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_of_the_set() {
        let sorted = [1.0, 2.0, 3.0, 4.0];
        assert_eq!([0.0, 0.5, 0.75, 1.0].map(|s| quantile(&sorted, s)), [1.0, 2.0, 3.0, 4.0]);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
