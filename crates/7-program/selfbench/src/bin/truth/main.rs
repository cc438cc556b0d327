//! Whether dbdyno reports the truth: differences of known size, and a build or server against
//! itself.

mod delays;
mod equal;
mod planted;
mod samples;

use std::process::ExitCode;

use clap::Parser;
use dbdyno_report::gate::{Comparison, Rule, judge};
use dbdyno_selfbench::harness::{ExperimentArgs, ExperimentFile, Harness, main as harness_main};
use dbdyno_selfbench::output::{Outcome, Table};

/// Checks that reported figures and intervals are right.
#[derive(Parser)]
#[command(name = "truth")]
enum Command {
    /// Compares reported relative QPS with injected delays of known size (experiments/truth.toml).
    Delays(ExperimentArgs),
    Coverage(equal::CoverageArgs),
    /// Measures two servers of one kind against each other (experiments/control.toml).
    Control(ExperimentArgs),
    Gate(GateArgs),
    Planted(planted::Args),
    Samples(samples::Args),
    /// Is the server of `samples`
    #[command(hide = true)]
    Answer,
}

fn main() -> ExitCode {
    harness_main(|| match Command::parse() {
        Command::Delays(args) => delays::run(&args),
        Command::Coverage(args) => equal::coverage(&args),
        Command::Control(args) => equal::control(&args),
        Command::Gate(args) => gate(&args),
        Command::Planted(args) => planted::run(&args),
        Command::Samples(args) => samples::run(&args),
        Command::Answer => samples::answer(),
    })
}

/// One false alarm in so many runs is accepted.
const RUNS_PER_FALSE_ALARM: u64 = 20;

/// Counts how often `slower 2%` is broken by a candidate that is 5% slower, and by one that is equal
/// (experiments/gate.toml).
#[derive(clap::Args)]
struct GateArgs {
    /// Number of runs, each with its own seed and new instances
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// The rule
    #[arg(long, default_value = "slower 2%")]
    rule: Rule,
    #[command(flatten)]
    experiment: ExperimentArgs,
}

fn gate(args: &GateArgs) -> anyhow::Result<Outcome> {
    let mut file = ExperimentFile::read("gate", &args.experiment)?;
    let harness = Harness::new()?;
    let mut table = Table::new(&["run", "slower", "equal"]);
    let (mut found, mut false_alarms) = (0, 0);
    let rules = [args.rule.clone()];
    harness.repeat(&mut file, args.runs, |run, report| {
        let judged = judge(report, &rules, false)?;
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
