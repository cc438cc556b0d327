//! Runs of one experiment on different days.

use dbdyno_units::Ratio;

use super::{interval, refresh, report_of};
use crate::model::{Estimate, Report, Role};

/// A value between −1 and 1 that looks random.
fn scatter(seed: usize) -> f64 {
    (seed as f64 * 12.9898).sin() * 43_758.545_3 % 1.0
}

/// The sample with these microbenchmarks, measured on this many days. At two thirds of them `rel` becomes
/// a newer version with 4% less throughput on scans, and more CPU time; `rel_native` has one run that is
/// far off.
#[must_use]
pub fn history(microbenchmarks: &[&str], runs: usize) -> Vec<Report> {
    let release = 2 * runs / 3;
    let run = |number: usize| {
        let mut report = report_of(microbenchmarks);
        report.started = format!("2026-{:02}-{:02}T09:30:00Z", 3 + number / 28, 1 + number % 28);
        report.directory = format!("results/night-{:02}", number + 1).into();
        report.warnings.clear();
        let is_new = number >= release;
        if is_new {
            report.candidates[1].version = "3.51.0".to_owned();
        }
        for (index, one) in report.microbenchmarks.iter_mut().enumerate() {
            let scan = one.name.starts_with("scan");
            for (column, row) in one.rows.iter_mut().enumerate() {
                let mut factor = 1.0 + 0.006 * scatter(1 + number * 101 + index * 17 + column * 7);
                if row.role == Role::Candidate {
                    factor *= if scan && is_new && row.candidate == "rel" { 0.96 } else { 1.0 };
                    factor *= if row.candidate == "rel_native" && number == 4 { 0.8 } else { 1.0 };
                }
                row.relative_qps = row.relative_qps.map(|estimate| scaled(&estimate, factor));
                row.relative_cpu = row.relative_cpu.map(|estimate| scaled(&estimate, 1.0 / factor));
            }
        }
        refresh(&mut report);
        report
    };
    (0..runs).map(run).collect()
}

fn scaled(estimate: &Estimate, factor: f64) -> Estimate {
    let times = |ratio: Ratio| Ratio::new(ratio.get() * factor);
    interval(times(estimate.median), times(estimate.low), times(estimate.high))
}
