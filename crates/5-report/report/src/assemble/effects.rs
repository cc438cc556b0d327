//! Main effects and interactions of the settings of matrices.

use dbdyno_results::{CandidateRecord, RunReader};
use dbdyno_stats::{Weight, contrast, main_effect};
use dbdyno_types::{MatrixCell, MatrixLevel};
use serde::Deserialize;

use super::{Controls, Measured};
use crate::metric::Metric;
use crate::model::{Change, Effect, Verdict};

/// The part of a stored experiment that says which candidates are of a matrix.
#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredExperiment {
    candidates: Vec<StoredCandidate>,
}

#[derive(Deserialize)]
struct StoredCandidate {
    name: String,
    #[serde(default)]
    matrix: Option<MatrixCell>,
}

/// The effects of all matrices, by matrix, microbenchmark and setting.
pub(super) fn all(
    run: &RunReader,
    measured: &[Measured],
    candidates: &[CandidateRecord],
    qps: &Controls,
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

/// A matrix with its candidates.
struct Matrix {
    name: String,
    /// The values of each setting, the reference first.
    settings: Vec<Vec<MatrixLevel>>,
    /// The number of each candidate with its levels.
    cells: Vec<(u32, Vec<MatrixLevel>)>,
}

/// What is estimated.
struct Contrast {
    change: Change,
    with: Option<Change>,
    weights: Vec<Weight>,
}

/// The matrices of an experiment, in its order.
fn matrices(stored: StoredExperiment, candidates: &[&str]) -> Vec<Matrix> {
    let mut matrices: Vec<Matrix> = Vec::new();
    for StoredCandidate { name, matrix } in stored.candidates {
        let number = candidates.iter().position(|candidate| **candidate == name);
        let (Some(number), Some(MatrixCell { matrix, levels })) = (number, matrix) else {
            continue;
        };
        let known = matrices.iter().position(|one| one.name == matrix);
        let index = known.unwrap_or_else(|| {
            let settings = vec![Vec::new(); levels.len()];
            matrices.push(Matrix { name: matrix, settings, cells: Vec::new() });
            matrices.len() - 1
        });
        let matrix = &mut matrices[index];
        for (level, known) in levels.iter().zip(&mut matrix.settings) {
            if !known.contains(level) {
                known.push(level.clone());
            }
        }
        matrix.cells.push((number as u32, levels));
    }
    matrices
}

impl Matrix {
    /// The candidates with all of these levels.
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

    fn effect(&self, of: &Contrast, measured: &Measured, qps: &Controls) -> Effect {
        let candidates: Vec<usize> = of.weights.iter().map(|one| one.candidate as usize).collect();
        let failed = candidates.iter().any(|number| measured.own[*number].failed);
        let client_bound = candidates.iter().any(|number| measured.own[*number].client_bound);
        let ratios = contrast(&measured.qps_points(), &of.weights);
        let of_cpu = contrast(&measured.cpu_points(&candidates), &of.weights);
        let estimate = measured.estimate(&ratios).filter(|_| !failed);
        let floor = qps.floor_of(measured.control.usable_qps());
        Effect {
            matrix: self.name.clone(),
            microbenchmark: measured.record.name.clone(),
            clients: measured.record.clients,
            group: measured.record.group.clone(),
            change: of.change.clone(),
            with: of.with.clone(),
            relative_qps: estimate,
            relative_cpu: measured.estimate(&of_cpu).filter(|_| !failed),
            verdict: match estimate {
                _ if failed => Verdict::Failed,
                None => Verdict::Unknown,
                Some(_) if client_bound => Verdict::ClientBound,
                Some(estimate) => Metric::Qps.verdict_of_estimate(&estimate, floor),
            },
            blocks: ratios.iter().map(Vec::len).sum::<usize>() as u64,
        }
    }
}

/// The reference with each other value.
fn changes(levels: &[MatrixLevel]) -> impl Iterator<Item = (&MatrixLevel, &MatrixLevel)> {
    let (reference, others) = levels.split_at(1.min(levels.len()));
    others.iter().filter_map(move |level| Some((reference.first()?, level)))
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
}
