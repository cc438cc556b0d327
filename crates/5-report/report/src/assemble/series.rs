//! Series: candidates in an order, such as the releases of a server.

use dbdyno_results::{CandidateRecord, OriginRecord, Role, RunReader};
use dbdyno_stats::{contrast, main_effect, median};
use dbdyno_units::Ratio;
use serde::Deserialize;

use super::{Controls, Measured};
use crate::metric::Metric;
use crate::model::{
    Estimate, Series, SeriesCell, SeriesChange, SeriesGroup, SeriesPoint, SeriesRow, Verdict,
};
use crate::sections::series::sort_by_group;

/// The name of the series of imported results.
const IMPORTED: &str = "imported";

/// Imported results with at least this many candidates are a series: tables of fewer are read side by
/// side.
const FEWEST_IMPORTED: usize = 5;

/// The part of a stored experiment that says which candidates are of a series, and in which order.
#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredExperiment {
    candidates: Vec<StoredCandidate>,
}

#[derive(Deserialize)]
struct StoredCandidate {
    name: String,
    #[serde(default)]
    series: Option<String>,
}

/// All series with at least two candidates, in the order of the experiment.
pub(super) fn all(
    run: &RunReader,
    measured: &[Measured],
    candidates: &[CandidateRecord],
    qps: &Controls,
) -> Vec<Series> {
    // Runs that earlier versions imported have no candidates here.
    let stored: StoredExperiment = run.experiment().unwrap_or_default();
    let members = members(&stored, candidates);
    members
        .into_iter()
        .map(|(name, members)| of(name, &members, measured, candidates, qps))
        .collect()
}

/// The names of the series with the numbers of their candidates.
fn members(stored: &StoredExperiment, candidates: &[CandidateRecord]) -> Vec<(String, Vec<u32>)> {
    let mut all: Vec<(String, Vec<u32>)> = Vec::new();
    for StoredCandidate { name, series } in &stored.candidates {
        let number = candidates.iter().position(|candidate| candidate.name == *name);
        let (Some(number), Some(series)) = (number, series) else { continue };
        match all.iter_mut().find(|(known, _)| known == series) {
            Some((_, members)) => members.push(number as u32),
            None => all.push((series.clone(), vec![number as u32])),
        }
    }
    if all.is_empty() {
        let is_imported = |candidate: &CandidateRecord| {
            matches!(candidate.origin, Some(OriginRecord::Imported { .. }))
        };
        let imported =
            (0..).zip(candidates).filter(|(_, one)| is_imported(one) && one.role != Role::Control);
        let mut imported: Vec<u32> = imported.map(|(number, _)| number).collect();
        // The baseline may be any column, but is the first candidate.
        imported.sort_by_key(|&number| {
            let name = &candidates[number as usize].name;
            stored.candidates.iter().position(|column| column.name == *name)
        });
        if imported.len() >= FEWEST_IMPORTED {
            all.push((IMPORTED.to_owned(), imported));
        }
    }
    all.retain(|(_, members)| members.len() > 1);
    all
}

fn of(
    name: String,
    members: &[u32],
    measured: &[Measured],
    candidates: &[CandidateRecord],
    qps: &Controls,
) -> Series {
    let name_of = |number: u32| candidates[number as usize].name.clone();
    let mut rows = Vec::new();
    let mut changes = Vec::new();
    for one in measured {
        let first = members[0];
        let cells = members.iter().map(|&member| {
            if member == first {
                let own = &one.own[first as usize];
                own.absolute.as_ref()?;
                let verdict = if own.failed { Verdict::Failed } else { Verdict::WithinNoise };
                return Some(SeriesCell { ratio: Ratio::ONE, relative_qps: None, verdict });
            }
            let (ratio, relative_qps, verdict, _) = compared(one, member, first, qps)?;
            Some(SeriesCell { ratio, relative_qps, verdict })
        });
        rows.push(SeriesRow {
            microbenchmark: one.record.name.clone(),
            clients: one.record.clients,
            group: one.record.group.clone(),
            cells: cells.collect(),
        });
        for pair in members.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            let Some((ratio, relative_qps, verdict, blocks)) = compared(one, to, from, qps) else {
                continue;
            };
            changes.push(SeriesChange {
                microbenchmark: one.record.name.clone(),
                clients: one.record.clients,
                group: one.record.group.clone(),
                from: name_of(from),
                to: name_of(to),
                ratio,
                relative_qps,
                verdict,
                blocks,
            });
        }
    }
    sort_by_group(&mut rows);
    changes.sort_by(|a: &SeriesChange, b| {
        b.certainty().cmp(&a.certainty()).then(b.size().total_cmp(&a.size()))
    });
    let groups = groups(&rows);
    let candidates = members.iter().map(|&member| name_of(member)).collect();
    Series { name, candidates, rows, groups, changes }
}

/// Throughput of one candidate relative to another: the ratio, its interval, the verdict and the
/// number of blocks; `None` if they were not measured together.
fn compared(
    measured: &Measured,
    candidate: u32,
    other: u32,
    qps: &Controls,
) -> Option<(Ratio, Option<Estimate>, Verdict, u64)> {
    let ratios = contrast(&measured.qps_points(), &main_effect(&[candidate], &[other]));
    let own = [candidate, other].map(|number| &measured.own[number as usize]);
    let estimate = measured.estimate(&ratios);
    let single = || median(&ratios.concat()).map(Ratio::new);
    let ratio = estimate.map(|estimate| estimate.median).or_else(single)?;
    let floor = qps.floor_of(measured.control.usable_qps());
    let verdict = match estimate {
        _ if own.iter().any(|one| one.failed) => Verdict::Failed,
        _ if own.iter().any(|one| one.client_bound) => Verdict::ClientBound,
        Some(estimate) => Metric::Qps.verdict_of_estimate(&estimate, floor),
        None if own.iter().all(|one| one.kind == super::SystemKind::Imported) => {
            Verdict::NoInterval
        }
        None => Verdict::Unknown,
    };
    let blocks = ratios.iter().map(Vec::len).sum::<usize>() as u64;
    Some((ratio, estimate, verdict, blocks))
}

/// A line per group and number of clients.
fn groups(rows: &[SeriesRow]) -> Vec<SeriesGroup> {
    let mut all: Vec<SeriesGroup> = Vec::new();
    for row in rows {
        let known = all.iter().any(|one| one.group == row.group && one.clients == row.clients);
        if known {
            continue;
        }
        let members: Vec<&SeriesRow> = rows
            .iter()
            .filter(|other| other.group == row.group && other.clients == row.clients)
            .collect();
        let points = (0..row.cells.len()).map(|number| point(&members, number)).collect();
        all.push(SeriesGroup { group: row.group.clone(), clients: row.clients, points });
    }
    all
}

/// The geometric mean of a column. The errors of different microbenchmarks are independent, so the
/// squares of their intervals' widths add up. `None` if a microbenchmark has no ratio of the candidate's
/// own work.
fn point(rows: &[&SeriesRow], number: usize) -> Option<SeriesPoint> {
    let is_own =
        |cell: &SeriesCell| !matches!(cell.verdict, Verdict::Failed | Verdict::ClientBound);
    let cells: Vec<SeriesCell> =
        rows.iter().map(|row| row.cells[number].filter(is_own)).collect::<Option<_>>()?;
    let count = cells.len() as f64;
    let mean = cells.iter().map(|cell| cell.ratio.get().ln()).sum::<f64>() / count;
    let reach = |end: fn(&Estimate) -> Ratio| -> Option<f64> {
        let mut squares = 0.0;
        for cell in &cells {
            let distance = end(cell.relative_qps.as_ref()?).get().ln() - cell.ratio.get().ln();
            squares += distance * distance;
        }
        Some(squares.sqrt() / count)
    };
    let ends = reach(|estimate| estimate.low).zip(reach(|estimate| estimate.high));
    let interval = ends
        .filter(|(low, high)| low.is_finite() && high.is_finite())
        .map(|(low, high)| (Ratio::new((mean - low).exp()), Ratio::new((mean + high).exp())));
    Some(SeriesPoint { ratio: Ratio::new(mean.exp()), interval })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, ratios: &[Option<f64>]) -> SeriesRow {
        let cell = |ratio: f64| {
            let [low, high] = [ratio * 0.96, ratio * 1.04].map(Ratio::new);
            let relative_qps = Some(crate::sample::interval(Ratio::new(ratio), low, high));
            SeriesCell { ratio: Ratio::new(ratio), relative_qps, verdict: Verdict::Better }
        };
        SeriesRow {
            microbenchmark: name.to_owned(),
            clients: 1,
            group: "point-1".to_owned(),
            cells: ratios.iter().map(|ratio| ratio.map(cell)).collect(),
        }
    }

    #[test]
    fn line_of_a_group_is_the_geometric_mean_with_a_narrower_interval() {
        let all = groups(&[row("a", &[Some(1.0), Some(0.5)]), row("b", &[Some(1.0), Some(2.0)])]);
        assert_eq!(all.len(), 1);
        let point = all[0].points[1].unwrap();
        assert!((point.ratio.get() - 1.0).abs() < 1e-9);
        let (low, high) = point.interval.unwrap();
        // Half of the widths' sum is 4%; of independent ones it is 4% / √2.
        assert!((low.get() - 0.9715).abs() < 1e-3 && (high.get() - 1.028).abs() < 1e-3);
        let all = groups(&[row("a", &[Some(1.0), None]), row("b", &[Some(1.0), Some(2.0)])]);
        assert!(all[0].points[1].is_none());
    }

    #[test]
    fn failed_and_client_bound_rows_are_not_in_the_line_of_a_group() {
        for verdict in [Verdict::Failed, Verdict::ClientBound] {
            let mut fast = row("b", &[Some(1.0), Some(4.0)]);
            fast.cells[1].as_mut().unwrap().verdict = verdict;
            let all = groups(&[row("a", &[Some(1.0), Some(0.5)]), fast]);
            assert!(all[0].points[0].is_some() && all[0].points[1].is_none());
        }
    }

    #[test]
    fn series_keep_the_order_of_the_experiment() {
        let stored = |name: &str, series: Option<&str>| StoredCandidate {
            name: name.to_owned(),
            series: series.map(str::to_owned),
        };
        let candidates: Vec<CandidateRecord> = ["c", "a", "b"]
            .iter()
            .map(|name| CandidateRecord {
                name: (*name).to_owned(),
                ..crate::sample::servers_of(&[]).candidates[0].clone()
            })
            .collect();
        let names = [stored("a", Some("s")), stored("b", None), stored("c", Some("s"))];
        let found = members(&StoredExperiment { candidates: names.into() }, &candidates);
        assert_eq!(found, [("s".to_owned(), vec![1, 0])]);
        assert!(members(&StoredExperiment::default(), &candidates).is_empty());
    }
}
