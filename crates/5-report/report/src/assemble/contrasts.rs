//! Comparisons over several rows: effects of the settings of matrices, series, which are candidates in
//! an order, such as the releases of a server, and results with more clients relative to those with fewer.

use std::collections::BTreeSet;

use dbdyno_results::{CandidateRecord, Role, RunReader};
use dbdyno_stats::{
    MIN_BLOCKS, NoiseFloor, Pairing, Point, Weight, contrast, geometric_mean, main_effect, median,
    paired_ratios, percentile_ratios, unpaired_ratio,
};
use dbdyno_types::{MatrixCell, MatrixLevel};
use dbdyno_units::Ratio;
use serde::Deserialize;

use super::absolute::{SystemKind, Times, times_of_candidate};
use super::{Measured, floor_of, judged};
use crate::model::{
    Change, Effect, Metric, Percentile, ScalingRatio, ScalingRow, Series, SeriesCell, SeriesChange,
    SeriesGroup, SeriesPoint, SeriesRow, Verdict, by_key, distinct,
};
use crate::sections::series::sort_by_group;

/// The part of a stored experiment that says which candidates are of a matrix, and which of a
/// series, in which order.
#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredExperiment {
    candidates: Vec<StoredCandidate>,
}

#[derive(Deserialize)]
struct StoredCandidate {
    name: String,
    matrix: Option<MatrixCell>,
    series: Option<String>,
}

pub(super) fn effects(
    run: &RunReader,
    measured: &[Measured],
    candidates: &[CandidateRecord],
    qps: Option<&NoiseFloor>,
) -> Vec<Effect> {
    // Imported runs have no experiment.
    let stored: StoredExperiment = run.experiment().unwrap_or_default();
    let mut effects = Vec::new();
    let names: Vec<&str> = candidates.iter().map(|candidate| candidate.name.as_str()).collect();
    for matrix in matrices(stored, &names) {
        let contrasts = matrix.contrasts();
        for one in measured {
            effects.extend(contrasts.iter().map(|contrast| matrix.effect(contrast, one, qps)));
        }
    }
    effects
}

struct Matrix {
    name: String,
    /// The values of each setting, the reference first.
    settings: Vec<Vec<MatrixLevel>>,
    /// The number of each candidate with its levels.
    cells: Vec<(u32, Vec<MatrixLevel>)>,
}

struct Contrast {
    change: Change,
    with: Option<Change>,
    weights: Vec<Weight>,
}

/// The matrices of an experiment, in its order.
fn matrices(stored: StoredExperiment, candidates: &[&str]) -> Vec<Matrix> {
    let cells = stored.candidates.into_iter().filter_map(|one| {
        let number = candidates.iter().position(|name| *name == one.name)?;
        let MatrixCell { matrix, levels } = one.matrix?;
        Some((matrix, (number as u32, levels)))
    });
    let matrix = |(name, cells): (String, Vec<(u32, Vec<MatrixLevel>)>)| {
        let values =
            |at: usize| distinct(cells.iter().filter_map(|(_, levels)| levels.get(at).cloned()));
        let settings = (0..cells[0].1.len()).map(values).collect();
        Matrix { name, settings, cells }
    };
    by_key(cells).into_iter().map(matrix).collect()
}

impl Matrix {
    fn with(&self, levels: &[&MatrixLevel]) -> Vec<u32> {
        let has = |cell: &[MatrixLevel]| levels.iter().all(|level| cell.contains(level));
        self.cells.iter().filter(|(_, cell)| has(cell)).map(|(number, _)| *number).collect()
    }

    /// Main effects, then interactions of two settings.
    fn contrasts(&self) -> Vec<Contrast> {
        let mut contrasts = Vec::new();
        for (reference, level) in self.settings.iter().flat_map(|levels| changes(levels)) {
            let weights = main_effect(&self.with(&[level]), &self.with(&[reference]));
            contrasts.push(Contrast { change: Change::new(reference, level), with: None, weights });
        }
        for (index, first) in self.settings.iter().enumerate() {
            for second in &self.settings[index + 1..] {
                for (a, b) in changes(first) {
                    for (c, d) in changes(second) {
                        contrasts.push(self.interaction((a, b), (c, d)));
                    }
                }
            }
        }
        contrasts
    }

    fn interaction(
        &self,
        (a, b): (&MatrixLevel, &MatrixLevel),
        (c, d): (&MatrixLevel, &MatrixLevel),
    ) -> Contrast {
        let changed = main_effect(&self.with(&[b, d]), &self.with(&[a, d]));
        let unchanged = main_effect(&self.with(&[a, c]), &self.with(&[b, c]));
        Contrast {
            change: Change::new(a, b),
            with: Some(Change::new(c, d)),
            weights: [changed, unchanged].concat(),
        }
    }

    fn effect(&self, of: &Contrast, measured: &Measured, qps: Option<&NoiseFloor>) -> Effect {
        let candidates: Vec<usize> = of.weights.iter().map(|one| one.candidate as usize).collect();
        let failed = measured.failed(&candidates);
        let ratios = contrast(&measured.qps_points(&candidates), &of.weights);
        let of_cpu = contrast(&measured.cpu_points(&candidates), &of.weights);
        let estimate = measured.estimate(&ratios).filter(|_| !failed);
        let floor = floor_of(qps, measured.usable_qps());
        Effect {
            matrix: self.name.clone(),
            microbenchmark: measured.record.name.clone(),
            clients: measured.record.clients,
            group: measured.record.group.clone(),
            change: of.change.clone(),
            with: of.with.clone(),
            relative_qps: estimate,
            relative_cpu: measured.estimate(&of_cpu).filter(|_| !failed),
            verdict: measured.judge(Metric::Qps, estimate, floor, &candidates),
            blocks: ratios.iter().map(Vec::len).sum::<usize>() as u64,
        }
    }
}

/// The reference with each other value.
fn changes(levels: &[MatrixLevel]) -> impl Iterator<Item = (&MatrixLevel, &MatrixLevel)> {
    let (reference, others) = levels.split_at(1.min(levels.len()));
    others.iter().filter_map(move |level| Some((reference.first()?, level)))
}

/// The name of the series of imported results.
const IMPORTED: &str = "imported";

/// Imported results with at least this many candidates are a series: tables of fewer are read side by
/// side.
const FEWEST_IMPORTED: usize = 5;

/// All series with at least two candidates, in the order of the experiment.
pub(super) fn series_of(
    run: &RunReader,
    measured: &[Measured],
    candidates: &[CandidateRecord],
    qps: Option<&NoiseFloor>,
) -> Vec<Series> {
    // Runs that earlier versions imported have no candidates here.
    let stored: StoredExperiment = run.experiment().unwrap_or_default();
    let name_of = |number: u32| candidates[number as usize].name.clone();
    let series = |(name, members): (String, Vec<u32>)| {
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
                compared(one, member, first, qps).map(|(cell, _)| cell)
            });
            rows.push(SeriesRow {
                microbenchmark: one.record.name.clone(),
                clients: one.record.clients,
                group: one.record.group.clone(),
                cells: cells.collect(),
            });
            for pair in members.windows(2) {
                let (from, to) = (pair[0], pair[1]);
                let Some((cell, blocks)) = compared(one, to, from, qps) else { continue };
                let SeriesCell { ratio, relative_qps, verdict } = cell;
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
    };
    members(&stored, candidates).into_iter().map(series).collect()
}

/// The names of the series with the numbers of their candidates.
fn members(stored: &StoredExperiment, candidates: &[CandidateRecord]) -> Vec<(String, Vec<u32>)> {
    let mut all =
        by_key(stored.candidates.iter().filter_map(|StoredCandidate { name, series, .. }| {
            let number = candidates.iter().position(|candidate| candidate.name == *name)?;
            Some((series.clone()?, number as u32))
        }));
    if all.is_empty() {
        let imported = (0..).zip(candidates).filter(|(_, one)| {
            SystemKind::of(one) == SystemKind::Imported && one.role != Role::Control
        });
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

/// Throughput of one candidate relative to another, and the number of blocks; `None` if they were not
/// measured together.
fn compared(
    measured: &Measured,
    candidate: u32,
    other: u32,
    qps: Option<&NoiseFloor>,
) -> Option<(SeriesCell, u64)> {
    let both = [candidate as usize, other as usize];
    let ratios = contrast(&measured.qps_points(&both), &main_effect(&[candidate], &[other]));
    let estimate = measured.estimate(&ratios);
    let single = || median(&ratios.concat()).map(Ratio::new);
    let ratio = estimate.map(|estimate| estimate.median).or_else(single)?;
    let floor = floor_of(qps, measured.usable_qps());
    let is_imported = both.iter().all(|one| measured.own[*one].kind == SystemKind::Imported);
    let verdict = match measured.judge(Metric::Qps, estimate, floor, &both) {
        Verdict::Unknown if measured.client_bound(&both) => Verdict::ClientBound,
        Verdict::Unknown if is_imported => Verdict::NoInterval,
        known => known,
    };
    let blocks = ratios.iter().map(Vec::len).sum::<usize>() as u64;
    Some((SeriesCell { ratio, relative_qps: estimate, verdict }, blocks))
}

fn groups(rows: &[SeriesRow]) -> Vec<SeriesGroup> {
    let group = |((group, clients), members): ((&String, u32), Vec<&SeriesRow>)| {
        let points = (0..members[0].cells.len()).map(|number| point(&members, number)).collect();
        SeriesGroup { group: group.clone(), clients, points }
    };
    by_key(rows.iter().map(|row| ((&row.group, row.clients), row))).into_iter().map(group).collect()
}

/// The geometric mean of a column, and of the ends of its intervals: the errors of different microbenchmarks are not
/// independent, as one start measures all of them. `None` if a microbenchmark has no ratio of the candidate's own work.
fn point(rows: &[&SeriesRow], number: usize) -> Option<SeriesPoint> {
    let own = |row: &&SeriesRow| row.cells[number].filter(|cell| cell.verdict.is_of_own_work());
    let cells: Vec<SeriesCell> = rows.iter().map(own).collect::<Option<_>>()?;
    let of_all = |value: fn(&SeriesCell) -> Option<Ratio>| {
        geometric_mean(&cells.iter().map(value).collect::<Option<Vec<Ratio>>>()?)
    };
    let low = of_all(|cell| Some(cell.relative_qps?.low));
    let high = of_all(|cell| Some(cell.relative_qps?.high));
    let is_bounded = |(low, high): &(Ratio, Ratio)| low.get() > 0.0 && high.get().is_finite();
    Some(SeriesPoint {
        ratio: of_all(|cell| Some(cell.ratio))?,
        interval: low.zip(high).filter(is_bounded),
    })
}

/// The rows of a sweep: for each microbenchmark and candidate the numbers of clients in ascending
/// order. Empty without a sweep.
pub(super) fn rows(measured: &[Measured], candidates: &[CandidateRecord]) -> Vec<ScalingRow> {
    let mut rows = Vec::new();
    for (_, mut steps) in by_key(measured.iter().map(|one| (&one.record.name, one))) {
        steps.sort_by_key(|step| step.record.clients);
        if let [smallest, _, ..] = steps[..] {
            for (number, candidate) in candidates.iter().enumerate() {
                for (index, step) in steps.iter().enumerate() {
                    let Some(absolute) = &step.own[number].absolute else { continue };
                    let before = index.checked_sub(1).map(|before| steps[before]);
                    let ratio = |than| ratio(step, than, number, steps.len());
                    let to_previous = before.map(ratio);
                    let to_smallest = match index {
                        0 | 1 => to_previous.clone(),
                        _ => Some(ratio(smallest)),
                    };
                    rows.push(ScalingRow {
                        microbenchmark: step.record.name.clone(),
                        group: step.record.group.clone(),
                        three_group: step.record.three_group.clone(),
                        candidate: candidate.name.clone(),
                        role: candidate.role,
                        clients: step.record.clients,
                        qps: absolute.qps,
                        p99: absolute.latency.map(|times| times.p99),
                        to_previous,
                        to_smallest,
                    });
                }
            }
        }
    }
    rows
}

fn ratio(more: &Measured, fewer: &Measured, candidate: usize, numbers: usize) -> ScalingRatio {
    let common = common_blocks(more, fewer, numbers);
    let shorter = more.order.len().min(fewer.order.len());
    let interleaved = common.len() >= MIN_BLOCKS
        && 2 * common.len() >= shorter
        && !more.record.writes
        && take_turns(&common, more, fewer);
    let planned = more.planned_restarts;
    let is_used = |at: (u32, u32)| !interleaved || common.contains(&at);
    let points = [more, fewer].map(|measured| {
        let all = measured.qps_points(&[candidate]).into_iter();
        all.filter(|one| is_used((one.restart, one.block))).collect::<Vec<Point>>()
    });
    let times = [more, fewer].map(|measured| {
        let all = times_of_candidate(&measured.slices, candidate).into_iter();
        all.filter(|one| is_used((one.restart, one.block))).collect::<Vec<Times<'_>>>()
    });
    let (relative_qps, pairing) = if interleaved {
        let sides = (0..).zip(&points).flat_map(|(side, points)| {
            points.iter().map(move |point| Point { candidate: side, ..*point })
        });
        let points: Vec<Point> = sides.collect();
        (more.estimate(&paired_ratios(&points, 0, 1)), Pairing::ByBlock)
    } else {
        let [own, other] = points.map(|points| by_restart(&points));
        (unpaired_ratio(&own, &other, planned), Pairing::Unpaired)
    };
    let p99 = [Percentile::SHARES[2]];
    let [relative_p99] = percentile_ratios(&times[0], &times[1], pairing, planned, p99);
    let failed = more.failed(&[candidate]) || fewer.failed(&[candidate]);
    let client_bound = more.client_bound(&[candidate]) || fewer.client_bound(&[candidate]);
    let verdict = |metric, estimate| judged(metric, estimate, None, [failed, client_bound]);
    ScalingRatio {
        than_clients: fewer.record.clients,
        interleaved,
        relative_qps,
        verdict: verdict(Metric::Qps, relative_qps),
        relative_p99,
        // As for CPU time, less is better.
        p99_verdict: verdict(Metric::Cpu, relative_p99),
    }
}

/// The blocks of the same round: of the same restart and number, and measured close to each other.
/// In runs of earlier versions, and of writes, blocks of the same number may be far apart.
fn common_blocks(more: &Measured, fewer: &Measured, numbers: usize) -> BTreeSet<(u32, u32)> {
    let slices_of_round = numbers * more.own.len();
    let is_close = |a: &i64, b: &i64| a.abs_diff(*b) <= 2 * slices_of_round as u64;
    let both = more.order.iter().filter_map(|(at, a)| Some((*at, a, fewer.order.get(at)?)));
    both.filter(|(_, a, b)| is_close(a, b)).map(|(at, ..)| at).collect()
}

/// Whether the order changes between the two numbers of clients as often as there are common blocks: in
/// each round it changes at least once. Visits of several blocks, one after the other, change more
/// rarely, however close they are.
fn take_turns(common: &BTreeSet<(u32, u32)>, more: &Measured, fewer: &Measured) -> bool {
    let slices = |of: &Measured| -> Vec<i64> {
        of.order.iter().filter(|(at, _)| common.contains(at)).map(|(_, slice)| *slice).collect()
    };
    let mut order: Vec<(i64, bool)> = slices(more).into_iter().map(|slice| (slice, true)).collect();
    order.extend(slices(fewer).into_iter().map(|slice| (slice, false)));
    order.sort_unstable();
    let changes = order.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
    changes >= common.len()
}

/// The values of points in the order of restarts; one list per restart.
fn by_restart(points: &[Point]) -> Vec<Vec<f64>> {
    let restarts = points.chunk_by(|a, b| a.restart == b.restart);
    restarts.map(|points| points.iter().map(|point| point.value).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(cells: &[(&str, &str, &str)]) -> StoredExperiment {
        let level = |setting: &str, value: &str| MatrixLevel {
            setting: setting.to_owned(),
            value: value.to_owned(),
        };
        let candidates = cells.iter().map(|(name, a, b)| StoredCandidate {
            name: (*name).to_owned(),
            matrix: Some(MatrixCell {
                matrix: "m".to_owned(),
                levels: vec![level("a", a), level("b", b)],
            }),
            series: None,
        });
        StoredExperiment { candidates: candidates.collect() }
    }

    #[test]
    fn contrasts_are_main_effects_and_interactions() {
        let names = ["00", "01", "10", "11", "20", "21"];
        let cells: Vec<_> = names.iter().map(|name| (*name, &name[..1], &name[1..])).collect();
        let matrices = matrices(stored(&cells), &names);
        let contrasts = matrices[0].contrasts();
        let titles: Vec<String> = contrasts
            .iter()
            .map(|one| match &one.with {
                None => one.change.title(),
                Some(with) => format!("{} with {}", one.change.title(), with.title()),
            })
            .collect();
        assert_eq!(titles, ["a 1/0", "a 2/0", "b 1/0", "a 1/0 with b 1/0", "a 2/0 with b 1/0"]);
        let weights = |index: usize| {
            let weights = contrasts[index].weights.iter();
            weights.map(|one| (one.candidate, one.weight)).collect::<Vec<_>>()
        };
        assert_eq!(weights(0), [(2, 0.5), (3, 0.5), (0, -0.5), (1, -0.5)]);
        assert_eq!(weights(3), [(3, 1.0), (1, -1.0), (0, 1.0), (2, -1.0)]);
    }

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
    fn line_of_a_group_is_the_geometric_mean_of_ratios_and_of_ends() {
        let all = groups(&[row("a", &[Some(1.0), Some(0.5)]), row("b", &[Some(1.0), Some(2.0)])]);
        assert_eq!(all.len(), 1);
        let point = all[0].points[1].unwrap();
        assert!((point.ratio.get() - 1.0).abs() < 1e-9);
        let (low, high) = point.interval.unwrap();
        assert!(
            (low.get() - 0.96).abs() < 1e-3 && (high.get() - 1.04).abs() < 1e-3,
            "{low} {high}"
        );
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
            matrix: None,
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
