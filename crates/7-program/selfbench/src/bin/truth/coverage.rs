//! Coverage of the confidence intervals: many short runs of a build against itself.

use anyhow::Context;
use dbdyno_report::model::{Estimate, Report, Role};
use dbdyno_selfbench::figures::{Case, write_csv};
use dbdyno_selfbench::harness::{ExperimentArgs, ExperimentFile, Harness};
use dbdyno_selfbench::intervals::{contains_one, distance, half_width, quantile, sorted};
use dbdyno_selfbench::outcome::Outcome;
use dbdyno_selfbench::table::{Table, print};

/// The minimum number of intervals for a verdict: with 200, 0.95 is known to ±0.03.
const ENOUGH: usize = 200;
/// The nominal coverage.
const NOMINAL: f64 = 0.95;
/// Accepted share of intervals that contain 1: below, they are too narrow; above, too wide.
const GOAL: std::ops::RangeInclusive<f64> = 0.92..=0.98;

/// Counts how often the 95% interval of a build against itself contains 1
/// (experiments/coverage.toml).
#[derive(clap::Args)]
pub struct Args {
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

/// Runs the benchmark.
///
/// # Errors
/// It could not be run.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let mut file = ExperimentFile::read("coverage", &args.experiment)?;
    let harness = Harness::new()?;
    let mut intervals: Vec<Intervals> = Vec::new();
    harness.repeat(&mut file, args.runs, |_, report| collect(report, &mut intervals))?;
    conclude(&intervals)
}

/// Adds what the control of this run shows.
fn collect(report: &Report, intervals: &mut Vec<Intervals>) -> anyhow::Result<()> {
    for rows in &report.microbenchmarks {
        let name = &rows.name;
        let control = rows.rows.iter().find(|row| row.role == Role::Control);
        let estimate = control
            .and_then(|row| row.relative_qps)
            .with_context(|| format!("the control of {name} has no interval"))?;
        match intervals.iter_mut().find(|one| one.name == *name) {
            Some(one) => one.estimates.push(estimate),
            None => intervals.push(Intervals { name: name.clone(), estimates: vec![estimate] }),
        }
    }
    Ok(())
}

fn share_of<'a>(estimates: impl Iterator<Item = &'a Estimate> + Clone) -> f64 {
    estimates.clone().filter(|one| contains_one(one)).count() as f64 / estimates.count() as f64
}

fn conclude(intervals: &[Intervals]) -> anyhow::Result<Outcome> {
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
        table.row([
            name.to_owned(),
            estimates.len().to_string(),
            format!("{share:.3}"),
            NOMINAL.to_string(),
            goal.to_owned(),
            format!("{:.2}%", quantile(&sorted(of, half_width), 0.5)),
            format!("{:.2}%", quantile(&distances, 0.5)),
            format!("{:.2}%", quantile(&distances, 1.0)),
        ]);
        cases.push(Case::new(name, "share", share, NOMINAL));
    };
    for one in intervals {
        add(&one.name, &one.estimates.iter().collect::<Vec<_>>(), "");
    }
    let goal = format!("{} to {}", GOAL.start(), GOAL.end());
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
    Ok(Outcome::of(GOAL.contains(&share), || {
        let count = all.len();
        let few = if count < ENOUGH { " (too few for a verdict)" } else { "" };
        format!("{share:.3} of {count} 95% intervals contain 1, not {goal}{few}")
    }))
}
