//! The gate for continuous integration: a slower candidate breaks its rule, an equal one does not.

use dbdyno_report::gate::{Comparison, Rule, judge};
use dbdyno_selfbench::harness::{ExperimentArgs, ExperimentFile, Harness};
use dbdyno_selfbench::output::{Outcome, Table};

/// One false alarm in so many runs is accepted.
const RUNS_PER_FALSE_ALARM: u64 = 20;

/// Counts how often `slower 2%` is broken by a candidate that is 5% slower, and by one that is equal
/// (experiments/gate.toml).
#[derive(clap::Args)]
pub struct Args {
    /// Number of runs, each with its own seed and new instances
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// The rule
    #[arg(long, default_value = "slower 2%")]
    rule: Rule,
    #[command(flatten)]
    experiment: ExperimentArgs,
}

pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let mut file = ExperimentFile::read("gate", &args.experiment)?;
    let harness = Harness::new()?;
    let mut table = Table::new(&["run", "slower", "equal"]);
    let (mut found, mut false_alarms) = (0, 0);
    let rules = [args.rule.clone()];
    harness.repeat(&mut file, args.runs, |run, report| {
        let judged = judge(report, &rules)?;
        let broken = |candidate: &str| {
            let comparisons = judged[0].comparisons.iter();
            let of_candidate = comparisons.filter(|one| one.candidate == candidate);
            of_candidate.filter(|one| Comparison::is_broken(one)).count()
        };
        let (slower, equal) = (broken("slower"), broken("equal"));
        table.row([run.to_string(), slower.to_string(), equal.to_string()]);
        found += u64::from(slower > 0);
        false_alarms += u64::from(equal > 0);
        Ok(())
    })?;
    table.print();
    let is_good = found == args.runs && false_alarms * RUNS_PER_FALSE_ALARM <= args.runs;
    Ok(Outcome::of(is_good, || {
        format!(
            "of {} runs the slower candidate was found in {found}, with {false_alarms} false alarms",
            args.runs
        )
    }))
}
