//! Findings in words.

use dbdyno_units::{Ratio, Share};

use super::{Finding, KeyResult, Outcome};
use crate::figures::{percent, ratio};
use crate::metric::{Metric, with_clients};

/// No difference within 100% or more is no knowledge.
pub(super) fn is_too_wide(within: Share) -> bool {
    within.as_fraction() >= 1.0
}

impl Metric {
    /// The name in sentences.
    pub(crate) const fn quantity(self) -> &'static str {
        match self {
            Self::Qps => "QPS",
            Self::Cpu => "CPU per query",
        }
    }
}

impl KeyResult<'_> {
    /// The group, with the number of clients in a sweep.
    pub(crate) fn group_label(&self, is_sweep: bool) -> String {
        with_clients(self.group, self.clients, is_sweep)
    }

    /// The findings in the order in which they are shown: by the metric to trust first, unless only
    /// throughput differs with certainty.
    pub(crate) fn findings(&self) -> Vec<&Finding> {
        let mut findings: Vec<&Finding> =
            [Some(&self.finding), self.throughput.as_ref()].into_iter().flatten().collect();
        findings.sort_by_key(|finding| !(finding.is_difference() || self.finding.is_difference()));
        findings
    }
}

impl Finding {
    pub(super) const fn is_difference(&self) -> bool {
        matches!(self.outcome, Outcome::Better | Outcome::Worse)
    }

    /// `2.1% more QPS (1.8% to 2.5%)`, `CPU per query: no difference found (within 8.8%)`; of a part of the
    /// group with its name.
    pub(crate) fn words(&self) -> String {
        let words = self.words_alone();
        match &self.part {
            Some(part) => format!("{part}: {words}"),
            None => words,
        }
    }

    /// The same without the part.
    pub(super) fn words_alone(&self) -> String {
        let what = self.metric.quantity();
        match self.outcome {
            Outcome::Better | Outcome::Worse => {
                format!("{}{}{}", self.size(), self.exceptions(), self.caution())
            }
            Outcome::NoDifference if self.within.is_some_and(is_too_wide) => {
                let high = self.interval.map_or_else(String::new, |(_, high)| ratio(high));
                format!("{what}: unknown, up to {high} times the baseline's")
            }
            Outcome::NoDifference => {
                let within = self.within.map_or_else(String::new, percent);
                format!("{what}: no difference found (within {within})")
            }
            Outcome::Mixed => format!("{what}: {}", self.tally()),
            Outcome::NoInterval => {
                let median = self.ratio.map_or_else(String::new, ratio);
                format!("{what}: {median} of the baseline's, too few values for an interval")
            }
            Outcome::ClientBound => format!("{what}: client-bound, limited by the load generator"),
            Outcome::Failed => format!("{what}: failed"),
            Outcome::TooFewBlocks => format!("{what}: too few blocks"),
        }
    }

    /// That the control, which is equal to the baseline, differs in the same way.
    pub(super) fn caution(&self) -> String {
        let Some(control) = self.control else { return String::new() };
        let difference = percent(Share::from_fraction(control.distance()));
        let word = if control > Ratio::ONE { "more" } else { "less" };
        format!("; may be noise, as the control has {difference} {word}")
    }

    /// `2.1% more QPS (1.8% to 2.5%)`; from twice the baseline's `2.31 times the QPS (2.20 to 2.40)`.
    fn size(&self) -> String {
        let what = self.metric.quantity();
        let (Some(middle), Some((low, high))) = (self.ratio, self.interval) else {
            return what.to_owned();
        };
        if middle.get() >= 2.0 {
            let times = |ratio: Ratio| format!("{:.2}", ratio.get());
            return format!(
                "{} times the {what} ({} to {})",
                times(middle),
                times(low),
                times(high)
            );
        }
        let change = |ratio: Ratio| percent(Share::from_fraction(ratio.distance()));
        let (word, least, most) = match middle > Ratio::ONE {
            true => ("more", low, high),
            false => ("less", high, low),
        };
        format!("{} {word} {what} ({} to {})", change(middle), change(least), change(most))
    }

    /// Microbenchmarks that do not have the difference of their group.
    pub(super) fn exceptions(&self) -> String {
        let all = self.better == self.count || self.worse == self.count;
        if all { String::new() } else { format!("; {}", self.tally()) }
    }

    /// `6 of 9 faster, 1 slower`.
    fn tally(&self) -> String {
        let (better, worse) = match self.metric {
            Metric::Qps => ("faster", "slower"),
            Metric::Cpu => ("with less", "with more"),
        };
        let Self { count, .. } = *self;
        match (self.better, self.worse) {
            (some, 0) => format!("{some} of {count} {better}, no difference in the others"),
            (0, some) => format!("{some} of {count} {worse}, no difference in the others"),
            (some, other) => format!("{some} of {count} {better}, {other} {worse}"),
        }
    }
}
