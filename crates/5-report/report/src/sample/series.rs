//! Releases in order.

use dbdyno_units::Ratio;

use super::{interval, names, report};
use crate::model::{
    CandidateRecord, Report, Role, Series, SeriesCell, SeriesChange, SeriesGroup, SeriesPoint,
    SeriesRow, Verdict,
};
use crate::sections::series::sort_by_group;

/// Throughput of a release on a microbenchmark: it changes with every fifth release.
fn ratio(microbenchmark: usize, release: usize) -> f64 {
    let steps = (0..=release / 5).map(|step| ((microbenchmark * 7 + step * 5) % 13) as f64 - 6.0);
    1.0 + steps.skip(1).sum::<f64>() / 60.0
}

/// The sample with this many releases in a series.
#[must_use]
pub fn series(releases: usize) -> Report {
    let mut report = report();
    let candidates: Vec<String> =
        (0..releases).map(|n| format!("ma10.{}.{}_rel_withdbg.z12a", 2 + n / 4, n % 4)).collect();
    let template = report.candidates[1].clone();
    report.candidates = (0..releases)
        .map(|n| CandidateRecord {
            name: candidates[n].clone(),
            role: if n == 0 { Role::Baseline } else { Role::Candidate },
            ..template.clone()
        })
        .collect();
    report.baseline = candidates[0].clone();
    let estimate = |ratio: f64| {
        interval(Ratio::new(ratio), Ratio::new(ratio - 0.01), Ratio::new(ratio + 0.01))
    };
    let mut rows: Vec<SeriesRow> = Vec::new();
    let mut changes = Vec::new();
    for (index, one) in report.microbenchmarks.iter().enumerate() {
        let cell = |n| {
            let value = ratio(index, n);
            let verdict = match value {
                ..0.99 => Verdict::Worse,
                1.01.. => Verdict::Better,
                _ => Verdict::WithinNoise,
            };
            let relative_qps = (n > 0).then(|| estimate(value));
            Some(SeriesCell { ratio: Ratio::new(value), relative_qps, verdict })
        };
        rows.push(SeriesRow {
            microbenchmark: one.name.clone(),
            clients: one.clients,
            group: one.group.clone(),
            cells: (0..releases).map(cell).collect(),
        });
        for n in (5..releases).step_by(5) {
            let value = ratio(index, n) / ratio(index, n - 1);
            let verdict = if value > 1.0 { Verdict::Better } else { Verdict::Worse };
            changes.push(SeriesChange {
                microbenchmark: one.name.clone(),
                clients: one.clients,
                group: one.group.clone(),
                from: candidates[n - 1].clone(),
                to: candidates[n].clone(),
                ratio: Ratio::new(value),
                relative_qps: Some(estimate(value)),
                verdict: if (value - 1.0).abs() < 0.01 { Verdict::WithinNoise } else { verdict },
                blocks: 40,
            });
        }
    }
    sort_by_group(&mut rows);
    changes.sort_by(|a: &SeriesChange, b| {
        b.certainty().cmp(&a.certainty()).then(b.size().total_cmp(&a.size()))
    });
    let mut known: Vec<&str> = names::ALL.iter().map(|(_, group, ..)| *group).collect();
    known.sort_unstable();
    known.dedup();
    let groups = known.iter().map(|group| {
        let of: Vec<&SeriesRow> = rows.iter().filter(|row| row.group == *group).collect();
        let point = |n: usize| {
            let logs = of.iter().filter_map(|row| Some(row.cells[n]?.ratio.get().ln()));
            let mean = (logs.sum::<f64>() / of.len() as f64).exp();
            let ends = [mean - 0.004, mean + 0.004].map(Ratio::new);
            Some(SeriesPoint { ratio: Ratio::new(mean), interval: Some((ends[0], ends[1])) })
        };
        let points = (0..releases).map(point).collect();
        SeriesGroup { group: (*group).to_owned(), clients: rows[0].clients, points }
    });
    let groups = groups.collect();
    report.series = vec![Series { name: "mariadb".to_owned(), candidates, rows, groups, changes }];
    report
}
