//! What leaving out each setting of the baseline changes, in a run whose candidates are the baseline without some of
//! its settings.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::iter;

use dbdyno_stats::{is_too_noisy, possible_difference};
use dbdyno_units::Share;

use crate::figures::percent;
use crate::key_results::{Finding, Measured};
use crate::metric::with_clients;
use crate::model::{Metric, MicrobenchmarkRows, Report, Role};
use crate::words::{beside_defaults, joined};

/// What a candidate changes, over all microbenchmarks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OptionEffect {
    pub candidate: String,
    /// The microbenchmarks with a difference, and its size in words.
    pub found: Vec<(String, String)>,
    /// Whether one of these differences is no noise: the control does not have it, too.
    pub counts: bool,
    /// The largest difference that may be hidden in the intervals of the others; `None` if nothing could be judged.
    pub within: Option<Share>,
    /// The metrics of which these are the intervals.
    pub metrics: BTreeSet<&'static str>,
    /// The microbenchmarks of which a metric could not be judged, with the reasons.
    pub unknown: Vec<String>,
    /// Of which settings it has dbdyno's own values, which a reader may take for the server's.
    pub beside_defaults: Vec<String>,
}

impl OptionEffect {
    /// Differences up to this are hidden, or none at all is known.
    pub fn is_too_noisy(&self) -> bool {
        self.within.is_none_or(is_too_noisy)
    }

    pub fn within_words(&self) -> String {
        Self::hidden(iter::once(self)).unwrap_or_default()
    }

    /// The largest difference that may be hidden in any of these, and in which metrics: `2.1% in QPS`; `None` without any.
    pub fn hidden<'a>(effects: impl Iterator<Item = &'a Self> + Clone) -> Option<String> {
        let widest = effects
            .clone()
            .max_by(|a, b| a.within.partial_cmp(&b.within).unwrap_or(Ordering::Equal))?;
        let metrics: BTreeSet<&str> = effects.flat_map(|one| &one.metrics).copied().collect();
        let metrics = metrics.into_iter().collect::<Vec<_>>().join(" or ");
        Some(match widest.within {
            Some(within) => format!("{} in {metrics}", percent(within)),
            None => "unknown".to_owned(),
        })
    }
}

/// The effect of each candidate except the control. A difference has an interval that excludes 1 also as one of all
/// intervals of the run: of many, some exclude 1 by chance.
pub fn option_effects(report: &Report) -> Vec<OptionEffect> {
    let candidates = report.candidates.iter().filter(|one| one.role == Role::Candidate);
    let comparisons = candidates.clone().count() * report.microbenchmarks.len().max(1);
    candidates
        .map(|candidate| {
            let mut effect = OptionEffect {
                candidate: candidate.name.clone(),
                beside_defaults: beside_defaults(report, candidate),
                ..OptionEffect::default()
            };
            report.microbenchmarks.iter().for_each(|one| effect.add(report, one, comparisons));
            effect
        })
        .collect()
}

impl OptionEffect {
    fn add(&mut self, report: &Report, one: &MicrobenchmarkRows, comparisons: usize) {
        let on = with_clients(&one.name, one.clients, report.is_sweep());
        let Some(row) = one.row(&self.candidate) else {
            return self.unknown.push(format!("{on}: not measured"));
        };
        let floor = |metric| report.floor_of(metric, one);
        let trusted = row.trusted_metric;
        let mut metrics = vec![trusted, Metric::Qps];
        metrics.dedup();
        let measured = [Measured { microbenchmark: one, row }];
        let finding = |metric| Finding::beside(&measured, metric, floor(metric));
        let findings: Vec<Finding> = metrics.into_iter().map(finding).collect();
        let words = |of: &dyn Fn(&&Finding) -> bool| {
            joined(findings.iter().filter(of).map(Finding::words), " and ")
        };
        let certain = |metric| row.estimate(metric)?.one_of(comparisons).difference(None);
        let is_found = |one: &&Finding| one.is_difference() && certain(one.metric).is_some();
        self.counts |= findings.iter().filter(is_found).any(|one| !one.may_be_noise());
        if let Some(found) = words(&is_found) {
            return self.found.push((on, found));
        }
        let unknown = words(&|one| !one.verdict().has_interval());
        self.unknown.extend(unknown.map(|why| format!("{on}: {why}")));
        let judged = row.estimate(trusted).filter(|_| row.verdict_of(trusted).has_interval());
        self.metrics.extend(judged.map(|_| trusted.quantity()));
        let within = judged.map(|one| possible_difference((one.low, one.high), floor(trusted)));
        self.within = if within > self.within { within } else { self.within };
    }
}

#[cfg(test)]
mod tests {
    use dbdyno_units::Ratio;

    use super::*;
    use crate::model::{NoiseFloor, Verdict};
    use crate::sample;

    fn effect(ends: [f64; 3]) -> OptionEffect {
        let mut report = sample::no_control(&["scan_range=100"]);
        report.candidates.truncate(2);
        let [low, median, high] = ends.map(Ratio::new);
        let estimate = sample::interval(median, low, high);
        for member in &mut report.microbenchmarks {
            member.rows.truncate(1);
            let row = &mut member.rows[0];
            row.trusted_metric = Metric::Qps;
            row.relative_qps = Some(estimate);
            row.verdict = Verdict::of_estimate(Metric::Qps, &estimate, None);
        }
        sample::refresh(&mut report);
        option_effects(&report).remove(0)
    }

    #[test]
    fn difference_counts_and_others_have_a_limit() {
        let OptionEffect { found, counts, .. } = effect([0.53, 0.55, 0.57]);
        let words = "45% less QPS (43% to 47%)".to_owned();
        assert_eq!((found, counts), (vec![("scan_range=100".to_owned(), words)], true));
        let none = effect([0.97, 1.0, 1.05]);
        assert!(none.found.is_empty() && !none.is_too_noisy(), "{none:?}");
        assert_eq!(none.within_words(), "5% in QPS");
        assert!(effect([0.4, 1.0, 2.5]).is_too_noisy());
        let of_cpu = OptionEffect {
            within: Some(Share::from_percent(8.0)),
            metrics: [Metric::Cpu.quantity()].into(),
            ..OptionEffect::default()
        };
        let hidden = OptionEffect::hidden([&none, &of_cpu].into_iter());
        assert_eq!(hidden.as_deref(), Some("8% in CPU per query or QPS"));
        assert_eq!(OptionEffect::hidden(iter::empty()), None);
    }

    #[test]
    fn settings_beside_defaults_of_dbdyno_are_named() {
        let mut report = sample::no_control(&["scan_range=100"]);
        report.candidates.truncate(2);
        report.candidates[0].configuration.push(("flush".to_owned(), "1".to_owned()));
        report.candidates[1].in_force.notable_defaults = sample::pairs(&[("flush", "2")]);
        let found = option_effects(&report).remove(0).beside_defaults;
        assert!(found.len() == 1 && found[0].contains(" sets flush = 1; "), "{found:?}");
    }

    #[test]
    fn row_that_was_not_judged_is_unknown() {
        let names = ["scan_range=100", "point-query_range=100"];
        let mut report = sample::no_control(&names);
        report.candidates.truncate(2);
        for member in &mut report.microbenchmarks {
            member.rows.truncate(1);
            let row = &mut member.rows[0];
            row.trusted_metric = Metric::Qps;
            row.relative_qps =
                Some(sample::interval(Ratio::ONE, Ratio::new(0.97), Ratio::new(1.05)));
            row.relative_cpu = None;
            row.verdict = Verdict::WithinNoise;
        }
        report.microbenchmarks[0].rows[0].verdict = Verdict::ClientBound;
        report.microbenchmarks[0].rows[0].relative_qps =
            Some(sample::interval(Ratio::ONE, Ratio::new(0.5), Ratio::new(2.0)));
        sample::refresh(&mut report);
        let bound = option_effects(&report).remove(0);
        assert_eq!(bound.within_words(), "5% in QPS");
        let why = "QPS: client-bound, limited by the load generator";
        assert_eq!(bound.unknown, [format!("{}: {why}", names[0])]);
        report.microbenchmarks[1].rows.clear();
        let nothing = option_effects(&report).remove(0);
        assert_eq!((nothing.within, nothing.unknown.len()), (None, 2), "{nothing:?}");
    }

    #[test]
    fn difference_that_the_control_has_too_may_be_noise() {
        let mut report = sample::report_of(&["scan_range=100"]);
        for row in &mut report.microbenchmarks[0].rows {
            let ([low, median, high], verdict) = match row.role {
                Role::Control => ([0.4, 0.7, 1.2], Verdict::TooNoisy),
                _ => ([0.53, 0.55, 0.57], Verdict::Worse),
            };
            let [low, median, high] = [low, median, high].map(Ratio::new);
            row.relative_qps = Some(sample::interval(median, low, high));
            (row.trusted_metric, row.verdict) = (Metric::Qps, verdict);
        }
        let OptionEffect { found, counts, .. } = option_effects(&report).remove(0);
        let words = "45% less QPS (43% to 47%); may be noise, as the control has 30% less";
        assert_eq!((found, counts), (vec![("scan_range=100".to_owned(), words.to_owned())], false));
    }

    #[test]
    fn limit_is_at_least_the_noise_floor_of_the_microbenchmark() {
        let mut report = sample::report_of(&["scan_range=100"]);
        let same = sample::interval(Ratio::ONE, Ratio::new(0.99), Ratio::new(1.01));
        for row in &mut report.microbenchmarks[0].rows {
            row.relative_qps = Some(match row.role {
                Role::Control => {
                    sample::interval(Ratio::new(1.06), Ratio::new(0.9), Ratio::new(1.1))
                }
                _ => same,
            });
            row.verdict = Verdict::WithinNoise;
        }
        let mut noise = NoiseFloor::clone(report.noise.as_ref().unwrap());
        noise.typical = Share::from_percent(2.0);
        report.noise = Some(noise);
        assert_eq!(option_effects(&report)[0].within_words(), "6% in QPS");
    }
}
