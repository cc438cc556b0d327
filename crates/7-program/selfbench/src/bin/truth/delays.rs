//! Reported relative QPS compared with injected delays of known size.

use anyhow::Context;
use dbdyno_report::model::{Estimate, Report};
use dbdyno_selfbench::harness::{ExperimentArgs, ExperimentFile, Harness};
use dbdyno_selfbench::output::{Case, Outcome, Table, print, write_csv};
use dbdyno_units::Share;

/// The maximum error of a relative QPS, in percentage points.
const GOAL: f64 = 0.5;
/// The minimum share of figures that are within it: 90 of 96.
const WITHIN: f64 = 0.9375;
/// The maximum mean error of all figures with the same delay, in percentage points.
const MEAN: f64 = 0.1;

/// One candidate on one microbenchmark.
struct Line {
    microbenchmark: String,
    delay: Share,
    reported: Estimate,
}

impl Line {
    /// The relative QPS of a candidate that takes longer by the delay.
    fn truth(&self) -> f64 {
        1.0 / (1.0 + self.delay.as_fraction())
    }

    /// The error in percentage points.
    fn error(&self) -> f64 {
        (self.reported.median.get() - self.truth()) * 100.0
    }

    fn is_within_goal(&self) -> bool {
        self.error().abs() <= GOAL
    }

    fn contains_truth(&self) -> bool {
        (self.reported.low.get()..=self.reported.high.get()).contains(&self.truth())
    }
}

pub fn run(args: &ExperimentArgs) -> anyhow::Result<Outcome> {
    let file = ExperimentFile::read("truth", args)?;
    let harness = Harness::new()?;
    let report = harness.run_with_progress(&file)?;
    conclude(&lines(&report)?)
}

fn lines(report: &Report) -> anyhow::Result<Vec<Line>> {
    let mut lines = Vec::new();
    for rows in &report.microbenchmarks {
        for row in &rows.rows {
            let summary = report.candidates.iter().find(|one| one.name == row.candidate);
            let Some(delay) = summary.and_then(|one| one.injected_delay) else { continue };
            let microbenchmark = rows.name.clone();
            let reported = row.relative_qps.with_context(|| {
                format!("{microbenchmark} has too few blocks for {}", row.candidate)
            })?;
            lines.push(Line { microbenchmark, delay, reported });
        }
    }
    Ok(lines)
}

fn conclude(lines: &[Line]) -> anyhow::Result<Outcome> {
    let headings =
        ["microbenchmark", "delay", "true", "reported", "95% interval", "error", "goal", "met"];
    let mut table = Table::new(&headings);
    let mut cases = Vec::new();
    for line in lines {
        let Line { microbenchmark, delay, reported } = line;
        table.row([
            microbenchmark.clone(),
            delay.to_string(),
            format!("{:.4}", line.truth()),
            format!("{:.4}", reported.median),
            format!("{:.4} to {:.4}", reported.low, reported.high),
            format!("{:+.2} pp", line.error()),
            format!("±{GOAL} pp"),
            if line.is_within_goal() { "yes" } else { "no" }.to_owned(),
        ]);
        let case = format!("{microbenchmark}, delay {delay}");
        cases.push(Case::new(case, "relative QPS", reported.median.get(), line.truth()));
    }
    table.print();
    let worst = lines
        .iter()
        .max_by(|a, b| a.error().abs().total_cmp(&b.error().abs()))
        .context("no candidate has an injected delay")?;
    let share = |count: usize| format!("{count} of {}", lines.len());
    let within = lines.iter().filter(|line| line.is_within_goal()).count();
    let containing = lines.iter().filter(|line| line.contains_truth()).count();
    let mut missed = Vec::new();
    let mut summary = Table::new(&["", "figure", "goal"]);
    for (delay, errors) in by_delay(lines) {
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        let what = format!("mean error, delay {delay}");
        summary.row([what.clone(), format!("{mean:+.2} pp"), format!("±{MEAN} pp")]);
        if mean.abs() > MEAN {
            missed.push(format!("{what}: {mean:+.2} percentage points"));
        }
    }
    summary.row([
        "maximum error".to_owned(),
        format!("{:+.2} pp ({}, {})", worst.error(), worst.microbenchmark, worst.delay),
        String::new(),
    ]);
    let least = (WITHIN * lines.len() as f64).ceil() as usize;
    let within_goal = format!("within {GOAL} percentage points");
    summary.row([within_goal.clone(), share(within), format!("≥ {least}")]);
    summary.row([
        "95% interval contains the true value".to_owned(),
        share(containing),
        String::new(),
    ]);
    summary.print();
    print(&format!("written to {}\n", write_csv("truth", &cases)?.display()));
    if within < least {
        missed.push(format!("{within_goal}: {}, not {least}", share(within)));
    }
    Ok(Outcome::of(missed.is_empty(), || missed.join("; ")))
}

/// The errors in percentage points, by delay.
fn by_delay(lines: &[Line]) -> Vec<(Share, Vec<f64>)> {
    let mut all: Vec<(Share, Vec<f64>)> = Vec::new();
    for line in lines {
        match all.iter_mut().find(|(delay, _)| *delay == line.delay) {
            Some((_, errors)) => errors.push(line.error()),
            None => all.push((line.delay, vec![line.error()])),
        }
    }
    all
}
