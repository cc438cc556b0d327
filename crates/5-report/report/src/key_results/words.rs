//! Findings in words, those of neighbouring numbers of clients joined if they are the same.

use dbdyno_units::{Ratio, Share};

use super::KeyResult;
use super::finding::{Finding, Outcome};
use crate::figures::{percent, ratio, size_of};
use crate::metric::clients;
use crate::model::{Metric, Verdict};

impl Finding {
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
                let size = match self.without_background.as_deref().filter(|_| self.reads) {
                    Some(without) => {
                        format!("{}; with it {}", without.of_slices(true), self.size())
                    }
                    None => self.size(),
                };
                format!("{size}{}{}", self.exceptions(), self.caution())
            }
            Outcome::NoDifference => {
                let within = self.within.map_or_else(String::new, percent);
                let rest = self.by_chance() + &self.unknown();
                format!("{what}: no difference found (within {within}){rest}")
            }
            Outcome::TooNoisy => {
                let noisy = format!("too noisy to tell{}", self.possible());
                match self.without_background.as_deref() {
                    Some(without) if without.outcome == Outcome::TooNoisy => {
                        format!("{what}: {noisy}, also without background work")
                    }
                    Some(without) if self.reads => {
                        format!("{}; with it {noisy}", without.of_slices(true))
                    }
                    _ => format!("{what}: {noisy}{}", self.background()),
                }
            }
            Outcome::Mixed => match self.range {
                Some(range) => format!("{}; {}", self.depends(range, false), self.tally()),
                None => {
                    let ratio = self.ratio.filter(|ratio| size_of(*ratio) != size_of(Ratio::ONE));
                    let median = ratio
                        .map(|ratio| format!(" (median {})", change(ratio)))
                        .unwrap_or_default();
                    format!("{what}: {}{median}{}", self.tally(), self.equality())
                }
            },
            Outcome::NoInterval => {
                let median = self.ratio.map_or_else(String::new, ratio);
                let value = match self.range {
                    Some((least, most)) => format!(
                        "{} to {} times the baseline's, depending on the microbenchmark (median \
                         {median})",
                        ratio(least),
                        ratio(most)
                    ),
                    None => format!("{median} of the baseline's"),
                };
                format!("{what}: {value}, too few values for an interval")
            }
            Outcome::ClientBound => format!("{what}: client-bound, limited by the load generator"),
            Outcome::Failed => format!("{what}: failed"),
            Outcome::TooFewBlocks => format!("{what}: too few blocks"),
        }
    }

    /// `; 1 of 9 faster, which may be chance`, if there is no other difference.
    pub(super) fn by_chance(&self) -> String {
        match self.better + self.worse {
            0 => String::new(),
            _ => format!("; {}, which may be chance", self.differing()),
        }
    }

    /// `; 1 of 3 too noisy to tell`
    pub(super) fn unknown(&self) -> String {
        match self.too_noisy {
            0 => String::new(),
            some => format!("; {some} of {} too noisy to tell", self.count),
        }
    }

    /// That the control, which is equal to the baseline, differs in the same way or may do so, or that the difference is in
    /// work between the slices.
    pub(super) fn caution(&self) -> String {
        let control = match (self.control, self.noisy_control()) {
            (Some(control), _) => {
                let difference = size_of(control);
                let word = if control > Ratio::ONE { "more" } else { "less" };
                format!("; may be noise, as the control has {difference} {word}")
            }
            (None, Some(noisy)) => format!("; may be noise, as {noisy}"),
            (None, None) => String::new(),
        };
        let background = if self.reads { String::new() } else { self.background() };
        control + self.equality() + &background
    }

    /// [`control_interval`](Self::control_interval) in words, unless the control has the same difference.
    pub(crate) fn noisy_control(&self) -> Option<String> {
        let (low, high) = self.control_interval.filter(|_| self.control.is_none())?;
        Some(format!("the control is too noisy to tell ({} to {})", change(low), change(high)))
    }

    const fn equality(&self) -> &'static str {
        match self.is_as_baseline {
            true => "; may be noise, as all its settings have the baseline's values",
            false => "",
        }
    }

    fn background(&self) -> String {
        let without = self.without_background.as_deref();
        without.map_or_else(String::new, |without| format!("; {}", without.of_slices(false)))
    }

    /// A finding without background work: `3% less CPU per query (2% to 4%) without background work`. What is no
    /// difference has the quantity before it only if it comes first.
    fn of_slices(&self, is_first: bool) -> String {
        let what = self.metric.quantity();
        let what = if is_first { format!("{what}: ") } else { String::new() };
        match self.outcome {
            Outcome::Better | Outcome::Worse => {
                format!("{} without background work{}", self.size(), self.exceptions())
            }
            Outcome::NoDifference => {
                let within = self.within.map_or_else(String::new, percent);
                format!("{what}no certain difference without background work (within {within})")
            }
            Outcome::TooNoisy => {
                format!("{what}too noisy to tell without background work{}", self.possible())
            }
            _ => format!("{} without background work", self.words_alone()),
        }
    }

    /// ` (45% less to 97% more)`: the differences that the interval and the noise floor permit.
    pub(super) fn possible(&self) -> String {
        let Some((low, high)) = self.interval else { return String::new() };
        let noise = self.noise.map_or(0.0, Share::as_fraction);
        let low = Ratio::new(low.get().min(1.0 - noise.min(1.0)));
        let high = Ratio::new(high.get().max(1.0 + noise));
        format!(" ({} to {})", change(low), change(high))
    }

    /// `15% to 30% less QPS, depending on the microbenchmark (median 24%)`.
    fn depends(&self, (least, most): (Ratio, Ratio), with_median: bool) -> String {
        let what = self.metric.quantity();
        let same_side = least >= Ratio::ONE || most <= Ratio::ONE;
        let (sizes, median) = if same_side {
            let ratio = self.ratio.unwrap_or(least);
            let ([low, high, median], word) =
                in_words(most, [least, most], (ratio, ratio), QUANTITY);
            (format!("{low} to {high} {word} {what}"), median)
        } else {
            let median = self.ratio.map_or_else(String::new, change);
            (format!("{what}: {} to {}", change(least), change(most)), median)
        };
        let median = if with_median { format!(" (median {median})") } else { String::new() };
        format!("{sizes}, {DEPENDING}{median}")
    }

    /// `2.1% more QPS (1.8% to 2.5%)`; from twice the baseline's `2.31 times the QPS (2.20 to 2.40)`.
    fn size(&self) -> String {
        let what = self.metric.quantity();
        let (Some(middle), Some((low, high))) = (self.ratio, self.interval) else {
            return what.to_owned();
        };
        if let Some(range) = self.range {
            return self.depends(range, true);
        }
        sized(middle, Some((low, high)), what)
    }

    /// Microbenchmarks that do not have the difference of their group.
    pub(super) fn exceptions(&self) -> String {
        let all = self.better == self.count || self.worse == self.count;
        if all { String::new() } else { format!("; {}", self.tally()) }
    }

    /// `6 of 9 faster, 1 slower`.
    fn differing(&self) -> String {
        let (better, worse) = match self.metric {
            Metric::Qps => ("faster", "slower"),
            Metric::Cpu => ("with less", "with more"),
        };
        let count = self.count;
        match (self.better, self.worse) {
            (some, 0) => format!("{some} of {count} {better}"),
            (0, some) => format!("{some} of {count} {worse}"),
            (some, other) => format!("{some} of {count} {better}, {other} {worse}"),
        }
    }

    /// The same with the others: `1 of 3 faster, 1 too noisy to tell, no difference in the others`.
    fn tally(&self) -> String {
        let Self { count, better, worse, too_noisy, .. } = *self;
        let noisy = match too_noisy {
            0 => String::new(),
            some => format!(", {some} too noisy to tell"),
        };
        let has_both = better.min(worse) > 0;
        let others = match count.saturating_sub(better + worse + too_noisy) {
            rest if has_both || rest == 0 => "",
            1 => ", no difference in the other",
            _ => ", no difference in the others",
        };
        format!("{}{noisy}{others}", self.differing())
    }
}

/// That the median of a group is not the result of its microbenchmarks.
pub(super) const DEPENDING: &str = "depending on the microbenchmark";

/// A ratio as a change: `5.5% less`, `12% more`, `7.14 times`.
pub(crate) fn change(ratio: Ratio) -> String {
    match ratio.get() {
        value if value >= 2.0 => format!("{value:.2} times"),
        value if value < 1.0 => format!("{} less", size_of(ratio)),
        _ => format!("{} more", size_of(ratio)),
    }
}

/// A difference with its interval, if that is known: `2.1% more QPS (1.8% to 2.5%)`; from twice the
/// baseline's `2.31 times the QPS (2.20 to 2.40)`.
pub(crate) fn sized(ratio: Ratio, interval: Option<(Ratio, Ratio)>, what: &str) -> String {
    let ([middle], word) = in_words(ratio, [ratio], (ratio, ratio), QUANTITY);
    let interval = interval.map(|interval| format!(" ({})", ends_in_words(ratio, interval)));
    format!("{middle} {word} {what}{}", interval.unwrap_or_default())
}

/// The ends of a difference's interval, the one nearer to 1 first: `1.8% to 2.5%`.
pub(crate) fn ends_in_words(ratio: Ratio, interval: (Ratio, Ratio)) -> String {
    let ([_, least, most], _) = in_words(ratio, [ratio], interval, QUANTITY);
    format!("{least} to {most}")
}

/// Words for more, for less, and for a multiple.
const QUANTITY: [&str; 3] = ["more", "less", "times the"];

/// Ratios as changes in percent, or as multiples if the greatest is at least 2, then the ends of their
/// interval, the one nearer to 1 first; and the word for it.
pub(super) fn in_words<const N: usize, const M: usize>(
    greatest: Ratio,
    mut ratios: [Ratio; N],
    (low, high): (Ratio, Ratio),
    [more, less, times]: [&'static str; 3],
) -> ([String; M], &'static str) {
    let mut ends = [low, high];
    let is_more = ratios.last().is_some_and(|last| *last > Ratio::ONE);
    if !is_more {
        ratios.reverse();
        ends.reverse();
    }
    let is_multiple = greatest.get() >= 2.0;
    let write = |at: usize| {
        let ratio = *ratios.iter().chain(&ends).nth(at).unwrap_or(&Ratio::ONE);
        if is_multiple { format!("{:.2}", ratio.get()) } else { size_of(ratio) }
    };
    let word = match (is_multiple, is_more) {
        (true, _) => times,
        (false, true) => more,
        (false, false) => less,
    };
    (std::array::from_fn(write), word)
}

/// Neighbouring numbers of clients of one candidate and group.
pub(crate) struct Steps<'r, 'a>(&'r [KeyResult<'a>]);

/// Whether all microbenchmarks have the outcome of the group.
fn are_alike(finding: &Finding) -> bool {
    match finding.is_difference() {
        true => [finding.better, finding.worse].contains(&finding.count),
        false => finding.better + finding.worse == 0,
    }
}

/// The results of one candidate and group, as few steps as they allow.
pub(crate) fn steps<'r, 'a>(
    results: &'r [KeyResult<'a>],
) -> impl Iterator<Item = Steps<'r, 'a>> + use<'r, 'a> {
    let finding = |result: &KeyResult<'_>| -> Vec<_> {
        result.findings().iter().map(|one| (one.metric, one.outcome)).collect()
    };
    // Tallies of microbenchmarks cannot be joined, nor what holds only for some of the steps.
    let can_be_joined = |result: &KeyResult<'_>| {
        let joined = |one: &&Finding| {
            !matches!(one.outcome, Outcome::Mixed | Outcome::NoInterval)
                && are_alike(one)
                && !one.is_of_control()
                && !one.is_as_baseline
                && one.without_background.is_none()
                && one.range.is_none()
                && one.part.is_none()
        };
        result.findings().iter().all(joined)
    };
    results
        .chunk_by(move |a, b| can_be_joined(a) && can_be_joined(b) && finding(a) == finding(b))
        .map(Steps)
}

impl Steps<'_, '_> {
    /// `4 to 16 clients`
    pub(crate) fn clients(&self) -> String {
        let (first, last) = (self.0[0].clients, self.0[self.0.len() - 1].clients);
        if first == last { clients(first) } else { format!("{first} to {}", clients(last)) }
    }

    /// The findings in words, the one to trust first, with the verdict that sets the colour.
    pub(crate) fn findings(&self) -> Vec<(String, Verdict)> {
        let of_each: Vec<Vec<&Finding>> = self.0.iter().map(KeyResult::findings).collect();
        (0..of_each[0].len())
            .map(|at| {
                let findings: Vec<&Finding> = of_each.iter().map(|of_one| of_one[at]).collect();
                (joined(&findings), findings[0].verdict())
            })
            .collect()
    }
}

/// Findings with the same outcome in words: `3.1% to 5.4% more QPS (2.0% to 6.1%)`, where the intervals
/// are within the parentheses.
fn joined(findings: &[&Finding]) -> String {
    let [first, _, ..] = findings else { return findings[0].words() };
    let what = first.metric.quantity();
    let low = ends(findings, |one| Some(one.interval?.0), f64::min);
    let high = ends(findings, |one| Some(one.interval?.1), f64::max);
    match first.outcome {
        Outcome::NoDifference | Outcome::TooNoisy => {
            let within = findings.iter().filter_map(|one| Some(one.within?.as_fraction()));
            let within = within.reduce(f64::max).map(Share::from_fraction);
            let too_noisy = findings.iter().map(|one| one.too_noisy).max().unwrap_or(0);
            let interval = low.zip(high);
            Finding { within, interval, too_noisy, ..(*first).clone() }.words()
        }
        Outcome::Better | Outcome::Worse => {
            let least = ends(findings, |one| one.ratio, f64::min);
            let most = ends(findings, |one| one.ratio, f64::max);
            let (Some(least), Some(most), Some(low), Some(high)) = (least, most, low, high) else {
                return first.words();
            };
            let ([least, most, low, high], word) =
                in_words(most, [least, most], (low, high), QUANTITY);
            format!("{least} to {most} {word} {what} ({low} to {high})")
        }
        _ => first.words(),
    }
}

/// The least or greatest of a ratio of several findings.
fn ends(
    findings: &[&Finding],
    of: fn(&Finding) -> Option<Ratio>,
    choose: fn(f64, f64) -> f64,
) -> Option<Ratio> {
    findings.iter().filter_map(|one| of(one)).map(Ratio::get).reduce(choose).map(Ratio::new)
}
