//! The engines' own counters relative to the baseline's.

use std::collections::{BTreeMap, BTreeSet};

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

/// A counter that one side never counts is as relevant as one with this ratio, if it grows evenly.
const RATIO_OF_NEVER: f64 = 1_000.0;

/// Words in the names of figures that grow without counting work: positions in a log, identifiers, and clocks.
const POSITIONS: [&str; 8] = ["lsn", "pos", "position", "offset", "seqno", "gtid", "id", "uptime"];

/// The beginnings of the names of counters that tell which features are used, not what they do.
const USAGE: [&str; 1] = ["option_tracker_usage"];

/// The ends of the names of levels, of the highest values and of means.
const LEVELS: [&str; 16] = [
    "_pages_data",
    "_pages_dirty",
    "_pages_free",
    "_pages_misc",
    "_pages_old",
    "_pages_total",
    "_bytes_data",
    "_bytes_dirty",
    "_memtable_total",
    "_memtable_unflushed",
    "_checkpoint_age",
    "_list_length",
    "_avg",
    "_max",
    "_peak",
    "memory_used",
];

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

    /// How much it varies, if it is worth to be reported where the other side does not count this.
    fn variation_of_one(self, other: Self) -> Option<f64> {
        let Self::Always(mean, variation) = self else { return None };
        let is_background = other.mean() <= MOST_OF_OTHER * mean;
        let is_reported = mean >= LEAST_OF_ONE && variation <= MOST_VARIATION && is_background;
        is_reported.then_some(variation)
    }
}

/// The counters that each candidate has, changed or not. Empty of one whose run does not tell them, as those of earlier
/// versions.
pub(super) struct KnownCounters<'a>(BTreeMap<usize, BTreeSet<&'a str>>);

impl<'a> KnownCounters<'a> {
    pub(super) fn of(all: &'a [Measured]) -> Self {
        let (mut known, mut told) = (BTreeMap::<usize, BTreeSet<&str>>::new(), BTreeSet::new());
        for record in all.iter().flat_map(|one| &one.engine_counts) {
            let candidate = record.candidate as usize;
            let growth = &record.counts.growth;
            known.entry(candidate).or_default().extend(growth.keys().map(String::as_str));
            told.extend(growth.values().any(|growth| *growth == 0).then_some(candidate));
        }
        known.retain(|candidate, _| told.contains(candidate));
        Self(known)
    }

    /// Not only if it certainly has it.
    fn may_have(&self, candidate: usize, name: &str) -> bool {
        self.0.get(&candidate).is_none_or(|known| known.contains(name))
    }
}

impl Measured {
    /// The counters of a candidate that certainly grow otherwise than the baseline's: by more than twice the difference
    /// of the control. Those whose ratio is farthest beyond noise come first: the size of a counter says nothing, because
    /// some count bytes and others statements. Then those that only one of their engines or systems has, the most even
    /// first. Levels, positions and the use of features are left out.
    pub(super) fn engine_counters(
        &self,
        candidate: usize,
        [own, baseline]: [&CandidateRecord; 2],
        known: &KnownCounters<'_>,
    ) -> Vec<RelativeCounter> {
        if own.role != Role::Candidate {
            return Vec::new();
        }
        let all = || self.engine_counts.iter().flat_map(|one| &one.counts.growth);
        let levels: BTreeSet<&str> =
            all().filter(|(_, growth)| **growth < 0).map(|(name, _)| name.as_str()).collect();
        let names: BTreeSet<&str> = all().map(|(name, _)| name.as_str()).collect();
        let names = names.difference(&levels).filter(|name| is_count_of_work(name));
        let compared = names.filter_map(|name| {
            let growths = [candidate, 0].map(|number| self.growth(number, name));
            let [of_own, of_base] = growths;
            let has_both = has_both(name, own, baseline)
                && [candidate, 0].into_iter().all(|number| known.may_have(number, name));
            let (relative, relevance) = match growths {
                _ if !has_both => {
                    let of_one = of_own.variation_of_one(of_base);
                    (None, -of_one.or_else(|| of_base.variation_of_one(of_own))?)
                }
                [Growth::Always(..), Growth::Always(..)] => {
                    let (ratio, beyond_noise) = self.certain_ratio(candidate, name)?;
                    (Some(ratio), beyond_noise)
                }
                [Growth::Always(_, variation), Growth::Never]
                | [Growth::Never, Growth::Always(_, variation)] => {
                    (None, RATIO_OF_NEVER.ln() * (1.0 - variation))
                }
                _ => return None,
            };
            let (per_query, baseline_per_query) = (of_own.mean(), of_base.mean());
            let counter = RelativeCounter {
                counter: (*name).to_owned(),
                baseline_per_query,
                per_query,
                relative,
                only_one_has_it: !has_both,
            };
            let is_large = per_query.max(baseline_per_query) >= LEAST_PER_QUERY;
            is_large.then_some((relevance, counter))
        });
        // By name if they are equally relevant.
        let mut compared: Vec<(f64, RelativeCounter)> = compared.collect();
        compared.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let (only, mut found): (Vec<RelativeCounter>, Vec<RelativeCounter>) =
            compared.into_iter().map(|(_, one)| one).partition(|one| one.only_one_has_it);
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

    /// The ratio to the baseline, if it certainly is not 1 and the control's is; and how far it is beyond the control's
    /// at least, as a logarithm.
    fn certain_ratio(&self, candidate: usize, name: &str) -> Option<(Estimate, f64)> {
        let ratio = self.counter_ratio(candidate, name)?;
        let size = |estimate: Estimate| estimate.median.get().ln().abs();
        let of_control = match self.control.map(|control| self.counter_ratio(control, name)) {
            Some(Some(control)) if !control.contains_one() => return None,
            Some(control) => control.map_or(0.0, size),
            None => 0.0,
        };
        let least = LEAST_DIFFERENCE.max(BEYOND_CONTROL * of_control);
        let nearest = ratio.low.get().ln().abs().min(ratio.high.get().ln().abs());
        let is_certain = !ratio.contains_one() && size(ratio) >= least;
        is_certain.then_some((ratio, nearest - of_control))
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

/// Whether a figure counts work, as far as its name tells.
fn is_count_of_work(name: &str) -> bool {
    let name = name.to_lowercase();
    let is_position = name.split(['_', '.', ' ']).any(|word| POSITIONS.contains(&word));
    let is_usage = USAGE.iter().any(|beginning| name.starts_with(beginning));
    !is_position && !is_usage && !LEVELS.iter().any(|end| name.ends_with(end))
}

/// Whether both would count the same if they did the same.
fn has_both(name: &str, own: &CandidateRecord, baseline: &CandidateRecord) -> bool {
    let name = name.to_lowercase();
    let is_of_engine = OF_ENGINES.iter().any(|engine| name.starts_with(engine));
    own.system == baseline.system && (own.engine == baseline.engine || !is_of_engine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_identifiers_levels_and_use_of_features_do_not_count_work() {
        for name in [
            "Innodb_lsn_current",
            "Innodb_redo_log_flushed_lsn",
            "Innodb_max_trx_id",
            "Binlog_snapshot_position",
            "Uptime",
            "Innodb_buffer_pool_pages_data",
            "Innodb_row_lock_time_max",
            "Memory_used",
            "innodb_metrics.log_lsn_checkpoint_age",
            "option_tracker_usage:Traditional Optimizer",
        ] {
            assert!(!is_count_of_work(name), "{name}");
        }
        for name in [
            "Handler_read_rnd",
            "Innodb_os_log_written",
            "Innodb_buffer_pool_pages_made_young",
            "Innodb_buffer_pool_wait_free",
            "Max_statement_time_exceeded",
            "pg_stat_user_tables.idx_tup_fetch",
            "Rocksdb_block_cache_bytes_read",
        ] {
            assert!(is_count_of_work(name), "{name}");
        }
    }
}
