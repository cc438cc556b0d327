//! Where a candidate needs another CPU time per query than the baseline.
//!
//! Shares of functions come from samples, and the CPU time per query from slices in which nothing was sampled, of the same
//! start: so the rows add up to what was measured. Samples of a function vary as counts do; how much more they vary
//! between starts is estimated over all functions together, because few starts tell little of a single one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::f64::consts::SQRT_2;

use dbdyno_profile::{Layers, Titles};
use dbdyno_results::{CandidateRecord, ProfileRecord, Role};
use dbdyno_stats::false_discovery_level;
use dbdyno_types::profile::Function;
use dbdyno_units::{Ratio, Share};

use super::{Measured, cpu_per_query};
use crate::model::{ProfileDifference, ProfileRow};

/// Share of false discoveries among the differences that are called certain.
const FALSE_DISCOVERIES: f64 = 0.05;

/// Samples of a function on both sides with which its variation tells something.
const ENOUGH: f64 = 10.0;

/// The two-sided 95% quantile of the normal distribution.
const NORMAL: f64 = 1.959_964;

/// Degrees of freedom with which the variation of a single function tells something.
const FREEDOM: f64 = 3.0;

/// What was sampled of one candidate in one start.
pub(crate) struct Start {
    /// CPU time per query in µs, in slices that were not sampled.
    pub cpu: f64,
    pub samples: f64,
    /// Samples by function or layer.
    pub of: BTreeMap<String, f64>,
}

impl Measured {
    /// `None` without samples of both in a common start.
    pub(super) fn profile_difference(
        &self,
        candidate: usize,
        [own, baseline]: [&CandidateRecord; 2],
    ) -> Option<ProfileDifference> {
        let records = |number: usize| {
            self.profiles.iter().filter(move |one| one.candidate as usize == number)
        };
        if own.role == Role::Baseline || records(candidate).next().is_none() {
            return None;
        }
        let layers = [own, baseline].map(|one| self.layers_of(&one.system));
        let both = [candidate, 0].into_iter().flat_map(records);
        let titles = Titles::of(both.map(|one| &one.profile));
        let starts = |by_layer: bool| -> Vec<[Start; 2]> {
            let pairs = records(candidate).filter_map(|record| {
                let base = records(0).find(|one| one.restart == record.restart)?;
                let layers = |of: usize| by_layer.then_some(&layers[of]);
                let own = self.start(candidate, record, layers(0), &titles)?;
                Some([own, self.start(0, base, layers(1), &titles)?])
            });
            pairs.collect()
        };
        let by_function = starts(false);
        if by_function.is_empty() {
            return None;
        }
        let samples = [candidate, 0]
            .map(|number| records(number).map(|one| one.profile.samples).sum::<u64>());
        let cut: u64 =
            [candidate, 0].into_iter().flat_map(records).map(|one| one.profile.cut).sum();
        Some(ProfileDifference {
            samples,
            cut: Share::from_fraction(cut as f64 / samples.iter().sum::<u64>().max(1) as f64),
            cost: [candidate, 0].map(|number| self.cost(number)),
            layers: rows(&starts(true)),
            functions: rows(&by_function),
            instructions: self.instructions(candidate, &titles),
        })
    }

    /// The rules for layers of a system, the user's first. Those of a damaged run are left out.
    fn layers_of(&self, system: &str) -> Layers {
        let rules = self.layer_rules.as_deref();
        let own = rules.and_then(|rules| Layers::with_own(rules, system).ok());
        own.unwrap_or_else(|| Layers::of(system))
    }

    /// CPU time per query in µs of a candidate in a start, without samples.
    fn cpu_of_start(&self, candidate: usize, restart: u32) -> Option<f64> {
        let kind = self.own.get(candidate)?.kind;
        let slices = self.slices.iter();
        let slices =
            slices.filter(|one| one.candidate as usize == candidate && one.restart == restart);
        let (mut statements, mut sum) = (0.0, 0.0);
        for slice in slices {
            let count = slice.measured.statements as f64;
            sum += cpu_per_query(&slice.measured, kind)? * count;
            statements += count;
        }
        (statements > 0.0).then(|| sum / statements)
    }

    /// The CPU time per query in slices that were sampled relative to that in others.
    fn cost(&self, candidate: usize) -> Option<Ratio> {
        let of = self.profiles.iter().filter(|one| one.candidate as usize == candidate);
        let (mut sampled, mut others) = (0.0, 0.0);
        for record in of {
            sampled += record.cpu.as_micros_f64();
            others += self.cpu_of_start(candidate, record.restart)? * record.statements as f64;
        }
        (others > 0.0).then(|| Ratio::new(sampled / others))
    }

    fn start(
        &self,
        candidate: usize,
        record: &ProfileRecord,
        layers: Option<&Layers>,
        titles: &Titles,
    ) -> Option<Start> {
        let cpu = self.cpu_of_start(candidate, record.restart)?;
        let profile = &record.profile;
        let mut of: BTreeMap<String, f64> = BTreeMap::new();
        match layers {
            Some(layers) => {
                for (layer, samples) in layers.add_up(&profile.functions, &profile.stacks) {
                    of.insert(layer.to_owned(), samples as f64);
                }
            }
            None => {
                let mut names: HashMap<u32, String> = HashMap::new();
                for stack in &profile.stacks {
                    let Some(innermost) = stack.frames.first() else { continue };
                    let function = profile.functions.get(*innermost as usize)?;
                    let name = names.entry(*innermost).or_insert_with(|| titles.title(function));
                    *of.entry(name.clone()).or_default() += stack.samples as f64;
                }
            }
        }
        (profile.samples > 0).then_some(Start { cpu, samples: profile.samples as f64, of })
    }
}

pub(super) fn is_in_kernel(function: &Function) -> bool {
    function.module == "[k]"
}

/// The CPU time per query and its variance if samples were counts.
fn time_of(start: &Start, name: &str) -> (f64, f64) {
    let samples = start.of.get(name).copied().unwrap_or_default();
    let of_sample = start.cpu / start.samples;
    // A function that is never seen may have been seen once.
    (samples * of_sample, samples.max(1.0) * of_sample * of_sample)
}

fn rows(starts: &[[Start; 2]]) -> Vec<ProfileRow> {
    let names = names(starts);
    let (times, differences): (Vec<[f64; 2]>, Vec<Difference>) =
        names.iter().map(|name| mean(starts, name)).unzip();
    let all = names.into_iter().zip(times).zip(judged(&differences));
    let rows = all.map(|((name, [us, baseline_us]), (half_width_us, certain))| ProfileRow {
        name: name.to_owned(),
        us,
        baseline_us,
        half_width_us,
        certain,
    });
    let mut rows: Vec<ProfileRow> = rows.collect();
    rows.sort_by(|a, b| b.difference().abs().total_cmp(&a.difference().abs()));
    rows
}

/// The functions or layers in which something was sampled.
pub(crate) fn names(starts: &[[Start; 2]]) -> BTreeSet<&str> {
    starts.iter().flatten().flat_map(|start| start.of.keys()).map(String::as_str).collect()
}

/// A difference in CPU time per query, the mean of some starts.
pub(crate) struct Difference {
    pub us: f64,
    /// Its variance if samples were counts.
    variance: f64,
    /// The sum of squares between starts relative to what counts make, and its degrees of freedom.
    scatter: (f64, f64),
    /// How many times as large the variance is at least.
    inflation: f64,
}

impl Difference {
    /// What it is more than in earlier starts. How much a function varies between runs is estimated of itself, too: days
    /// apart, a machine changes some of them more than others.
    pub fn since(&self, before: &Self) -> Self {
        let scatter = (self.scatter.0 + before.scatter.0, self.scatter.1 + before.scatter.1);
        let own = if scatter.1 >= FREEDOM { scatter.0 / scatter.1 } else { 1.0 };
        let (us, variance) = (self.us - before.us, self.variance + before.variance);
        Self { us, variance, scatter, inflation: own.max(1.0) }
    }
}

/// The mean CPU time per query in µs of a function or layer on both sides, and its difference.
pub(crate) fn mean(starts: &[[Start; 2]], name: &str) -> ([f64; 2], Difference) {
    let count = starts.len() as f64;
    let mut sums = (0.0, 0.0, 0.0);
    let mut differences = Vec::new();
    for [own, base] in starts {
        let ((us, of_own), (baseline_us, of_base)) = (time_of(own, name), time_of(base, name));
        sums = (sums.0 + us, sums.1 + baseline_us, sums.2 + of_own + of_base);
        differences.push(us - baseline_us);
    }
    let us = differences.iter().sum::<f64>() / count;
    let variance = sums.2 / count;
    let samples: f64 = starts.iter().flatten().filter_map(|start| start.of.get(name)).sum();
    let squares: f64 = differences.iter().map(|one| (one - us).powi(2)).sum();
    let is_enough = samples >= ENOUGH * 2.0 * count;
    let scatter = if is_enough { (squares / variance, count - 1.0) } else { (0.0, 0.0) };
    let difference = Difference { us, variance: variance / count, scatter, inflation: 1.0 };
    ([sums.0 / count, sums.1 / count], difference)
}

/// Half of the 95% interval of each difference in µs, and whether it is certain among all of them.
pub(crate) fn judged(differences: &[Difference]) -> Vec<(f64, bool)> {
    let squares: f64 = differences.iter().map(|one| one.scatter.0).sum();
    let freedom: f64 = differences.iter().map(|one| one.scatter.1).sum();
    let inflation = if freedom > 0.0 { (squares / freedom).max(1.0) } else { 1.0 };
    let deviation = |one: &Difference| (one.variance * inflation.max(one.inflation)).sqrt();
    let p_values: Vec<f64> =
        differences.iter().map(|one| two_sided(one.us / deviation(one))).collect();
    let level = false_discovery_level(&p_values, FALSE_DISCOVERIES);
    let all = differences.iter().zip(p_values);
    all.map(|(one, p)| (NORMAL * deviation(one), p <= level)).collect()
}

/// The probability of a value at least as far from 0 in a normal distribution.
fn two_sided(value: f64) -> f64 {
    libm::erfc(value.abs() / SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(cpu: f64, of: &[(&str, f64)]) -> Start {
        let of: BTreeMap<String, f64> =
            of.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        Start { cpu, samples: of.values().sum(), of }
    }

    #[test]
    fn probabilities_are_those_of_the_normal_distribution() {
        for (value, p) in [(0.0, 1.0), (1.0, 0.317_311), (-1.959_964, 0.05), (4.0, 6.334e-5)] {
            assert!((two_sided(value) - p).abs() < 1e-6, "{value}: {}", two_sided(value));
        }
    }

    #[test]
    fn rows_add_up_to_the_difference_and_the_certain_one_is_found() {
        let starts: Vec<[Start; 2]> = (0..4)
            .map(|number| {
                let noise = f64::from(number % 2) * 20.0;
                let same = [("parse", 1_000.0 + noise), ("read", 2_000.0 - noise)];
                let slower = [&same[..], &[("memcmp", 1_500.0)]].concat();
                let base = [&same[..], &[("memcmp", 1_000.0)]].concat();
                [start(45.0, &slower), start(40.0, &base)]
            })
            .collect();
        let rows = rows(&starts);
        let sum: f64 = rows.iter().map(ProfileRow::difference).sum();
        assert!((sum - 5.0).abs() < 1e-9, "{rows:?}");
        assert_eq!((rows[0].name.as_str(), rows[0].certain), ("memcmp", true));
        assert!(rows[1..].iter().all(|row| !row.certain), "{rows:?}");
        assert!(rows[0].half_width_us < 0.5, "{rows:?}");
    }
}
