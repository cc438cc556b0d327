//! The engines' own counters relative to the baseline's.

use std::collections::BTreeSet;

use dbdyno_results::{CandidateRecord, EngineCountsRecord, Role};
use dbdyno_stats::{Estimate, Point, paired_ratios};

use super::Measured;
use crate::model::RelativeCounter;

/// Counters that grow less per query are left out: they are of the background.
const LEAST_PER_QUERY: f64 = 0.001;

/// The smallest difference that is reported, as a logarithm: what costs nothing explains nothing.
const LEAST_DIFFERENCE: f64 = 0.01;

/// A difference must be this many times that of the control.
const BEYOND_CONTROL: f64 = 2.0;

/// A counter that only one side has is reported if it grows by at least so much per query,
const LEAST_OF_ONE: f64 = 0.01;

/// if its growth varies by at most this share from slice to slice,
const MOST_VARIATION: f64 = 0.25;

/// and if the other side has at most this share of it, which is of the background.
const MOST_OF_OTHER: f64 = 0.01;

/// So many of them are reported.
const MOST_OF_ONE: usize = 10;

/// The beginnings of the names of counters that only one storage engine has.
const OF_ENGINES: [&str; 3] = ["innodb", "rocksdb", "aria"];

/// How a counter grows in the slices in which counters were read.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Growth {
    Never,
    /// In some slices; the mean growth per query.
    Sometimes(f64),
    /// In each slice; the mean growth per query, and its standard deviation between slices relative to that.
    Always(f64, f64),
}

impl Growth {
    const fn mean(self) -> f64 {
        match self {
            Self::Never => 0.0,
            Self::Sometimes(mean) | Self::Always(mean, _) => mean,
        }
    }

    /// Whether it is worth to be reported where the other side does not count this.
    fn is_of_one(self, other: Self) -> bool {
        let Self::Always(mean, variation) = self else { return false };
        let is_background = other.mean() <= MOST_OF_OTHER * mean;
        mean >= LEAST_OF_ONE && variation <= MOST_VARIATION && is_background
    }
}

impl Measured {
    /// The counters of a candidate that certainly grow otherwise than the baseline's: by more than in pairs of blocks of
    /// the control. Then the largest of those that only one of their engines or systems has. Levels are left out.
    pub(super) fn engine_counters(
        &self,
        candidate: usize,
        (own, baseline): (&CandidateRecord, &CandidateRecord),
    ) -> Vec<RelativeCounter> {
        if own.role != Role::Candidate {
            return Vec::new();
        }
        let all = || self.engine_counts.iter().flat_map(|one| &one.counts.growth);
        let levels: BTreeSet<&str> =
            all().filter(|(_, growth)| **growth < 0).map(|(name, _)| name.as_str()).collect();
        let names: BTreeSet<&str> = all().map(|(name, _)| name.as_str()).collect();
        let compared = names.difference(&levels).filter_map(|name| {
            let growths = [candidate, 0].map(|number| self.growth(number, name));
            let [of_own, of_base] = growths;
            let has_both = has_both(name, own, baseline);
            let relative = match growths {
                _ if !has_both => {
                    let is_of_one = of_own.is_of_one(of_base) || of_base.is_of_one(of_own);
                    is_of_one.then_some(None)?
                }
                [Growth::Always(..), Growth::Always(..)] => {
                    Some(self.certain_ratio(candidate, name)?)
                }
                [Growth::Always(..), Growth::Never] | [Growth::Never, Growth::Always(..)] => None,
                _ => return None,
            };
            let (per_query, baseline_per_query) = (of_own.mean(), of_base.mean());
            (per_query.max(baseline_per_query) >= LEAST_PER_QUERY).then_some(RelativeCounter {
                counter: (*name).to_owned(),
                baseline_per_query,
                per_query,
                relative,
                only_one_has_it: !has_both,
            })
        });
        let (mut only, mut found): (Vec<RelativeCounter>, Vec<RelativeCounter>) =
            compared.partition(|one| one.only_one_has_it);
        let size = |one: &RelativeCounter| {
            let ratio = one.relative.map_or(f64::INFINITY, |ratio| ratio.median.get().ln().abs());
            (ratio, one.per_query.max(one.baseline_per_query))
        };
        found.sort_by(|a, b| {
            let ((a, of_a), (b, of_b)) = (size(a), size(b));
            b.total_cmp(&a).then(of_b.total_cmp(&of_a))
        });
        only.sort_by(|a, b| size(b).1.total_cmp(&size(a).1));
        found.extend(only.into_iter().take(MOST_OF_ONE));
        found
    }

    fn growth(&self, candidate: usize, name: &str) -> Growth {
        let readings = self.engine_counts.iter().filter(|one| one.candidate as usize == candidate);
        let (mut statements, mut sum, mut grew) = (0.0, 0.0, 0);
        let mut slices = Vec::new();
        for EngineCountsRecord { counts, .. } in readings {
            let growth = counts.growth.get(name).copied().unwrap_or_default();
            statements += counts.statements as f64;
            sum += growth as f64;
            grew += usize::from(growth > 0);
            slices.push(growth as f64 / (counts.statements as f64).max(1.0));
        }
        let mean = sum / statements;
        match grew {
            _ if statements == 0.0 => Growth::Sometimes(0.0),
            0 => Growth::Never,
            grew if grew == slices.len() => {
                let squares: f64 = slices.iter().map(|one| (one - mean).powi(2)).sum();
                Growth::Always(mean, (squares / slices.len() as f64).sqrt() / mean)
            }
            _ => Growth::Sometimes(mean),
        }
    }

    /// The ratio to the baseline, if it certainly is not 1 and the control's is.
    fn certain_ratio(&self, candidate: usize, name: &str) -> Option<Estimate> {
        let ratio = self.counter_ratio(candidate, name)?;
        let size = |estimate: Estimate| estimate.median.get().ln().abs();
        let of_control = match self.control.map(|control| self.counter_ratio(control, name)) {
            Some(Some(control)) if !control.contains_one() => return None,
            Some(control) => control.map_or(0.0, size),
            None => 0.0,
        };
        let least = LEAST_DIFFERENCE.max(BEYOND_CONTROL * of_control);
        (!ratio.contains_one() && size(ratio) >= least).then_some(ratio)
    }

    fn counter_ratio(&self, candidate: usize, name: &str) -> Option<Estimate> {
        let readings = self.engine_counts.iter();
        let point = |one: &EngineCountsRecord| {
            let growth = one.counts.growth.get(name).copied().unwrap_or_default();
            (growth > 0 && one.counts.statements > 0).then(|| Point {
                restart: one.restart,
                block: one.block,
                candidate: one.candidate,
                value: growth as f64 / one.counts.statements as f64,
            })
        };
        let points: Vec<Point> = readings.filter_map(point).collect();
        self.estimate(&paired_ratios(&points, candidate as u32, 0))
    }
}

/// Whether both would count the same if they did the same.
fn has_both(name: &str, own: &CandidateRecord, baseline: &CandidateRecord) -> bool {
    let name = name.to_lowercase();
    let is_of_engine = OF_ENGINES.iter().any(|engine| name.starts_with(engine));
    own.system == baseline.system && (own.engine == baseline.engine || !is_of_engine)
}
