//! How far two servers of one kind come out apart: MariaDB with InnoDB against itself.

use anyhow::Context;
use dbdyno_report::model::{Estimate, Report, Role};
use dbdyno_selfbench::figures::{Case, write_csv};
use dbdyno_selfbench::harness::{ExperimentArgs, ExperimentFile, Harness};
use dbdyno_selfbench::intervals::{contains_one, distance, half_width};
use dbdyno_selfbench::outcome::Outcome;
use dbdyno_selfbench::table::{Table, print};

/// The maximum distance from 1 that counts as near, in percent.
const NEAR: f64 = 1.0;
/// The minimum share of microbenchmarks that are near 1: 30 of 32.
const NEAR_GOAL: f64 = 0.93;
/// The minimum share of intervals that contain 1: 29 of 32.
const COVERAGE_GOAL: f64 = 0.9;

/// Measures two servers of one kind against each other (experiments/control.toml).
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    experiment: ExperimentArgs,
}

/// Runs the benchmark.
///
/// # Errors
/// It could not be run.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let file = ExperimentFile::read("control", &args.experiment)?;
    let harness = Harness::new()?;
    let report = harness.run_with_progress(&file)?;
    conclude(&estimates(&report)?)
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

fn conclude(estimates: &[(&str, Estimate)]) -> anyhow::Result<Outcome> {
    let headings = ["microbenchmark", "relative QPS", "95% interval", "half-width", "contains 1"];
    let mut table = Table::new(&headings);
    let mut cases = Vec::new();
    for (name, estimate) in estimates {
        table.row([
            (*name).to_owned(),
            format!("{:.4}", estimate.median),
            format!("{:.4} to {:.4}", estimate.low, estimate.high),
            format!("{:.2}%", half_width(estimate)),
            if contains_one(estimate) { "yes" } else { "no" }.to_owned(),
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
        ("95% interval contains 1".to_owned(), COVERAGE_GOAL, count(contains_one)),
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
