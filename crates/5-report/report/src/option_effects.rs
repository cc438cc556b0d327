//! What leaving out each setting of the baseline changes, in a run whose candidates are the baseline without some of
//! its settings.

use dbdyno_stats::{is_too_noisy, possible_difference};
use dbdyno_units::Share;

use crate::figures::percent;
use crate::key_results::{Finding, Outcome};
use crate::metric::clients;
use crate::model::{Metric, Report, Role, Row};

/// What a candidate changes, over all microbenchmarks.
#[derive(Clone, Debug, PartialEq)]
pub struct OptionEffect {
    pub candidate: String,
    /// The microbenchmarks with a difference, and its size in words.
    pub found: Vec<(String, String)>,
    /// The largest difference that may be hidden in the intervals of the others; `None` if nothing could be judged.
    pub within: Option<Share>,
}

impl OptionEffect {
    /// Differences up to this are hidden, or none at all is known.
    pub fn is_too_noisy(&self) -> bool {
        self.within.is_none_or(is_too_noisy)
    }

    pub fn within_words(&self) -> String {
        self.within.map_or_else(|| "unknown".to_owned(), percent)
    }
}

/// The effect of each candidate except the control. A difference has an interval that excludes 1 also as one of all
/// intervals of the run: of many, some exclude 1 by chance.
pub fn option_effects(report: &Report) -> Vec<OptionEffect> {
    let candidates = report.candidates.iter().filter(|one| one.role == Role::Candidate);
    let comparisons = candidates.clone().count() * report.microbenchmarks.len().max(1);
    candidates
        .map(|candidate| {
            let mut effect =
                OptionEffect { candidate: candidate.name.clone(), found: Vec::new(), within: None };
            for microbenchmark in &report.microbenchmarks {
                let Some(row) = microbenchmark.row(&candidate.name) else { continue };
                let of = |metric| found(report, row, metric, comparisons);
                let mut metrics = vec![row.trusted_metric];
                metrics.extend((row.trusted_metric != Metric::Qps).then_some(Metric::Qps));
                let mut name = microbenchmark.name.clone();
                if report.is_sweep() {
                    name = format!("{name} with {}", clients(microbenchmark.clients));
                }
                let words: Vec<String> = metrics.into_iter().filter_map(of).collect();
                if !words.is_empty() {
                    effect.found.push((name, words.join(" and ")));
                } else if within(report, row) > effect.within {
                    effect.within = within(report, row);
                }
            }
            effect
        })
        .collect()
}

/// The difference of a row in words, if there is one.
fn found(report: &Report, row: &Row, metric: Metric, comparisons: usize) -> Option<String> {
    let finding = Finding::of(metric, &[row], report.noise_of(metric));
    let is_difference = matches!(finding.outcome, Outcome::Better | Outcome::Worse);
    let is_certain = !row.estimate(metric)?.one_of(comparisons).contains_one();
    (is_difference && is_certain).then(|| finding.words())
}

/// The largest difference that the interval and the noise floor permit.
fn within(report: &Report, row: &Row) -> Option<Share> {
    let metric = row.trusted_metric;
    let estimate = row.estimate(metric)?;
    Some(possible_difference((estimate.low, estimate.high), report.noise_of(metric)))
}

#[cfg(test)]
mod tests {
    use dbdyno_units::Ratio;

    use super::*;
    use crate::model::Verdict;
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
        let found = effect([0.53, 0.55, 0.57]).found;
        let words = "45% less QPS (43% to 47%)".to_owned();
        assert_eq!(found, [("scan_range=100".to_owned(), words)]);
        let none = effect([0.97, 1.0, 1.05]);
        assert!(none.found.is_empty() && !none.is_too_noisy(), "{none:?}");
        assert_eq!(none.within_words(), "5%");
        assert!(effect([0.4, 1.0, 2.5]).is_too_noisy());
    }
}
