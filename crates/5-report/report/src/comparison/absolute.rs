//! Absolute figures of the runs beside each other, and their quotients.
//!
//! Runs are not interleaved: a quotient also contains what changed on the machine between them. A
//! candidate that is equal in both runs shows how much that is, together with the effect of the
//! other candidates of the run, which share its caches.

use dbdyno_results::setting;
use dbdyno_stats::{Direction, Quotient, RunValue, median, quotient};
use dbdyno_units::{Ratio, Share};
use serde::{Serialize, Serializer};

use super::facts::{MatchedCandidate, are_equal};
use super::{Column, RunInfo};
use crate::assemble::client_bound;
use crate::figures::{Figure, ratio};
use crate::model::{Absolute, Metric, MicrobenchmarkRows, Report, Verdict, distinct, names_by};

#[derive(Debug)]
pub(super) struct ComparedFigure {
    pub name: &'static str,
    pub title: &'static str,
    /// The name of its change in exports.
    pub change: &'static str,
    /// For more and for less.
    words: [&'static str; 2],
    /// The metric with its noise floor.
    metric: Option<Metric>,
}

const fn compared(
    [name, title, change]: [&'static str; 3],
    words: [&'static str; 2],
    metric: Option<Metric>,
) -> ComparedFigure {
    ComparedFigure { name, title, change, words, metric }
}

pub(super) static COMPARED: [ComparedFigure; 3] = [
    compared(["qps", "QPS", "qps"], ["higher", "lower"], Some(Metric::Qps)),
    compared(
        ["cpu_us_per_query", "CPU µs/query", "cpu"],
        ["more CPU", "less CPU"],
        Some(Metric::Cpu),
    ),
    compared(["p99_us", "p99 µs", "p99"], ["longer", "shorter"], None),
];

impl ComparedFigure {
    fn figure(&self) -> &'static Figure {
        Figure::named(self.name)
    }

    pub fn is_throughput(&self) -> bool {
        self.metric == Some(Metric::Qps)
    }

    fn direction(&self) -> Direction {
        self.figure().better.unwrap_or(Direction::LessIsBetter)
    }

    /// The text for a verdict on a quotient.
    pub fn word(&self, verdict: Verdict) -> &'static str {
        match (verdict, self.direction()) {
            (Verdict::Better, Direction::MoreIsBetter)
            | (Verdict::Worse, Direction::LessIsBetter) => self.words[0],
            (Verdict::Better | Verdict::Worse, _) => self.words[1],
            (Verdict::WithinNoise | Verdict::TooNoisy, _) => "not certain",
            _ => verdict.name(),
        }
    }

    fn value(&self, absolute: &Absolute) -> Option<f64> {
        (self.figure().of)(absolute)
    }

    /// The noise floor of the run on this microbenchmark; `None` without a control.
    fn floor(&self, report: &Report, microbenchmark: &MicrobenchmarkRows) -> Option<Share> {
        if let Some(metric) = self.metric {
            return report.floor_of(metric, microbenchmark);
        }
        let distance = |one: &MicrobenchmarkRows| {
            let control = one.control().filter(|row| row.verdict != Verdict::Failed)?;
            let (own, base) = (self.value(&control.absolute)?, self.value(&one.baseline)?);
            Some(Ratio::of(own, base)?.distance())
        };
        let all: Vec<f64> = report.microbenchmarks.iter().filter_map(distance).collect();
        Some(Share::from_fraction(median(&all)?.max(distance(microbenchmark).unwrap_or_default())))
    }
}

/// The absolute figures of one candidate on one microbenchmark.
#[derive(Clone, Debug, Serialize)]
pub struct AbsoluteRow {
    /// The candidate; both names if single candidates with different names are compared.
    pub candidate: String,
    pub group: String,
    pub microbenchmark: String,
    /// Unit of throughput: `statements/s` or `million rows/s`.
    pub throughput_unit: String,
    /// By column; `None` if not measured.
    pub cells: Vec<Option<AbsoluteCell>>,
}

/// The absolute figures of one column: throughput, CPU time per statement and the 99th percentile of
/// the response times in µs; each `None` if it is unknown.
#[derive(Clone, Debug, PartialEq)]
pub struct AbsoluteCell([Option<AbsoluteValue>; COMPARED.len()]);

impl Serialize for AbsoluteCell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(COMPARED.iter().map(|figure| figure.name).zip(&self.0))
    }
}

/// A value with its interval, and its change from the column that it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AbsoluteValue {
    pub value: f64,
    /// Its 95% interval; `None` with too few slices.
    pub interval: Option<(f64, f64)>,
    /// The change; `None` for a column that is compared with no other one.
    pub change: Option<Change>,
}

/// A value divided by that of an earlier run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    pub ratio: Ratio,
    /// The quotient with its interval; `None` if one of the values has no interval.
    pub quotient: Option<Quotient>,
    /// Better or worse if the quotient is certain and farther from 1 than the interval of any other
    /// candidate that is equal in both runs.
    pub verdict: Verdict,
}

/// The changes of one candidate's QPS or CPU per query between two columns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangeSummary {
    pub candidate: String,
    pub metric: Metric,
    pub column: usize,
    /// The index of the column that it is compared with.
    pub compared_with: usize,
    /// Whether program, configuration, data, work and number of clients are equal in both: then the
    /// changes are no effect of the candidate.
    pub is_equal: bool,
    pub count: usize,
    pub median: Ratio,
    pub min: Ratio,
    pub max: Ratio,
    /// Number of microbenchmarks with a certainly higher figure.
    pub higher: usize,
    /// Number of microbenchmarks with a certainly lower figure.
    pub lower: usize,
}

impl AbsoluteRow {
    pub(super) fn value(&self, column: usize, figure: usize) -> Option<&AbsoluteValue> {
        self.cells[column].as_ref()?.0[figure].as_ref()
    }
}

/// One candidate in one column on one microbenchmark.
struct Measured<'a> {
    report: &'a Report,
    microbenchmark: &'a MicrobenchmarkRows,
    absolute: &'a Absolute,
    failed: bool,
}

impl Measured<'_> {
    fn run_value(&self, figure: &ComparedFigure) -> Option<RunValue> {
        let value = figure.value(self.absolute)?;
        let (low, high) = (figure.figure().interval)(self.absolute)?;
        Some(RunValue { value, low, high, floor: figure.floor(self.report, self.microbenchmark) })
    }

    /// Its figure divided by that of `earlier`. `drift` is the distance from 1, as a logarithm,
    /// that a candidate which is equal in both runs shows.
    fn change(&self, earlier: &Self, figure: &ComparedFigure, drift: f64) -> Option<Change> {
        let is_qps = figure.is_throughput();
        let units = [self, earlier].map(|one| &one.microbenchmark.throughput_unit);
        if is_qps && units[0] != units[1] {
            return None;
        }
        let ratio = Ratio::of(figure.value(self.absolute)?, figure.value(earlier.absolute)?)?;
        let values = self.run_value(figure).zip(earlier.run_value(figure));
        let quotient = values.and_then(|(later, earlier)| quotient(&later, &earlier));
        let bound = is_qps && (client_bound(self.absolute) || client_bound(earlier.absolute));
        let verdict = match quotient {
            _ if self.failed || earlier.failed => Verdict::Failed,
            _ if bound => Verdict::ClientBound,
            None => Verdict::NoInterval,
            Some(quotient) => {
                let exceeds_drift = ratio.get().ln().abs() > drift;
                let difference = quotient.difference().filter(|_| exceeds_drift);
                figure.direction().verdict(difference).into()
            }
        };
        Some(Change { ratio, quotient, verdict })
    }
}

fn is_usable(change: &Change) -> bool {
    change.verdict.is_of_own_work()
}

/// The runs, their columns, and the candidates to compare.
pub(super) struct Sources<'a> {
    pub reports: &'a [&'a Report],
    pub columns: &'a [Column],
    pub candidates: &'a [MatchedCandidate<'a>],
}

impl<'a> Sources<'a> {
    fn measured(
        &self,
        column: usize,
        microbenchmark: &str,
        candidate: &MatchedCandidate<'_>,
    ) -> Option<Measured<'a>> {
        let Column { run, clients, .. } = self.columns[column];
        let (report, candidate) = (self.reports[run], candidate.name_in(run)?);
        let microbenchmark = report.microbenchmark(microbenchmark, clients)?;
        let (absolute, failed) = if candidate == report.baseline {
            // It has no row of its own.
            (&microbenchmark.baseline, microbenchmark.baseline_failed)
        } else {
            let row = microbenchmark.row(candidate)?;
            (&row.absolute, row.verdict == Verdict::Failed)
        };
        Some(Measured { report, microbenchmark, absolute, failed })
    }

    /// Whether program, configuration, data, work and number of clients are equal in two columns.
    fn is_equal(&self, candidate: &MatchedCandidate<'_>, a: usize, b: usize) -> bool {
        let [one, other] = [a, b].map(|column| &self.columns[column]);
        let records = candidate.records[one.run].zip(candidate.records[other.run]);
        let [of_one, of_other] = [one, other].map(|column| &self.reports[column.run].settings);
        one.clients == other.clients
            && one.data.is_some()
            && one.data == other.data
            && setting::other_work(of_one, of_other).is_empty()
            && records.is_some_and(|(one, other)| are_equal(one, other))
    }

    /// The largest change of a figure that another candidate shows which is equal in both columns:
    /// the farther end of its interval, as a logarithm; 0 if there is none.
    fn drift(
        &self,
        own: &MatchedCandidate<'_>,
        (column, earlier): (usize, usize),
        microbenchmark: &str,
        figure: &ComparedFigure,
    ) -> f64 {
        let of = |candidate: &MatchedCandidate<'_>| {
            let [later, earlier] =
                [column, earlier].map(|column| self.measured(column, microbenchmark, candidate));
            let change = later?.change(&earlier?, figure, 0.0).filter(is_usable)?;
            let ends = change.quotient.map_or([change.ratio; 2], |one| [one.low, one.high]);
            Some(ends.map(|end| end.get().ln().abs()).into_iter().fold(0.0, f64::max))
        };
        let others = self.candidates.iter().filter(|candidate| candidate.name != own.name);
        let equal = others.filter(|candidate| self.is_equal(candidate, column, earlier));
        equal.filter_map(of).fold(0.0, f64::max)
    }

    fn cell(
        &self,
        column: usize,
        microbenchmark: &str,
        candidate: &MatchedCandidate<'_>,
    ) -> Option<AbsoluteCell> {
        let own = self.measured(column, microbenchmark, candidate)?;
        let change = |figure: &ComparedFigure| {
            let earlier = self.columns[column].compared_with?;
            let of_earlier = self.measured(earlier, microbenchmark, candidate)?;
            let drift = match self.is_equal(candidate, column, earlier) {
                true => 0.0,
                false => self.drift(candidate, (column, earlier), microbenchmark, figure),
            };
            own.change(&of_earlier, figure, drift)
        };
        let value = |figure: &ComparedFigure| {
            let value = figure.value(own.absolute)?;
            let interval = (figure.figure().interval)(own.absolute);
            Some(AbsoluteValue { value, interval, change: change(figure) })
        };
        Some(AbsoluteCell(COMPARED.each_ref().map(value)))
    }

    /// The figures of all candidates on all microbenchmarks.
    pub fn rows(&self) -> Vec<AbsoluteRow> {
        let names = names_by(self.reports, |one| one.group.as_str());
        let names =
            || names.iter().flat_map(|(group, all)| all.iter().map(move |one| (group, one)));
        let row = |candidate: &MatchedCandidate<'_>, group: &str, name: &str| {
            let cells: Vec<Option<AbsoluteCell>> =
                (0..self.columns.len()).map(|column| self.cell(column, name, candidate)).collect();
            let mut all = self.reports.iter().flat_map(|report| &report.microbenchmarks);
            let unit = all.find(|one| one.name == name).map(|one| one.throughput_unit.clone());
            cells.iter().any(Option::is_some).then(|| AbsoluteRow {
                candidate: candidate.name.clone(),
                group: group.to_owned(),
                microbenchmark: name.to_owned(),
                throughput_unit: unit.unwrap_or_default(),
                cells,
            })
        };
        let all = self.candidates.iter().flat_map(|one| names().map(move |at| (one, at)));
        all.filter_map(|(candidate, (group, name))| row(candidate, group, name)).collect()
    }

    /// The changes of every candidate, by column.
    pub fn summaries(&self, rows: &[AbsoluteRow]) -> Vec<ChangeSummary> {
        let summary = |candidate: &MatchedCandidate<'_>, column: usize, figure: usize| {
            let metric = COMPARED[figure].metric?;
            let compared_with = self.columns[column].compared_with?;
            let of_candidate = rows.iter().filter(|row| row.candidate == candidate.name);
            let changes = of_candidate.filter_map(|row| row.value(column, figure)?.change);
            let changes: Vec<Change> = changes.filter(is_usable).collect();
            let mut ratios: Vec<f64> = changes.iter().map(|it| it.ratio.get()).collect();
            ratios.sort_unstable_by(f64::total_cmp);
            let count = |verdict| changes.iter().filter(|it| it.verdict == verdict).count();
            let (higher, lower) = match metric {
                Metric::Qps => (Verdict::Better, Verdict::Worse),
                Metric::Cpu => (Verdict::Worse, Verdict::Better),
            };
            Some(ChangeSummary {
                candidate: candidate.name.clone(),
                metric,
                column,
                compared_with,
                is_equal: self.is_equal(candidate, column, compared_with),
                count: changes.len(),
                median: Ratio::new(median(&ratios)?),
                min: Ratio::new(*ratios.first()?),
                max: Ratio::new(*ratios.last()?),
                higher: count(higher),
                lower: count(lower),
            })
        };
        let mut summaries = Vec::new();
        for candidate in self.candidates {
            for column in 0..self.columns.len() {
                let figures = 0..COMPARED.len();
                summaries.extend(figures.filter_map(|figure| summary(candidate, column, figure)));
            }
        }
        summaries
    }

    /// Sentences about columns whose absolute figures are far from those of others with the same machine,
    /// data and number of clients, by the candidates that are equal in all of them: a node of a cluster that
    /// is slower than its equals.
    pub fn outliers(&self, runs: &[RunInfo], rows: &[AbsoluteRow]) -> Vec<String> {
        let kind = |column: &'a Column| (&column.machine, &column.data, column.clients);
        let mut notes = Vec::new();
        for kind_of_all in distinct(self.columns.iter().map(kind)) {
            let equal: Vec<usize> = (0..self.columns.len())
                .filter(|index| kind(&self.columns[*index]) == kind_of_all)
                .collect();
            let is_equal = |row: &&AbsoluteRow| {
                let candidate = self.candidates.iter().find(|one| one.name == row.candidate);
                candidate.is_some_and(|candidate| {
                    equal.iter().all(|column| self.is_equal(candidate, equal[0], *column))
                })
            };
            let qps = |row: &AbsoluteRow| -> Vec<Option<f64>> {
                equal.iter().map(|column| Some(row.value(*column, 0)?.value)).collect()
            };
            let figures: Vec<Vec<Option<f64>>> = rows.iter().filter(is_equal).map(qps).collect();
            for Outlier { column, ratio: of_median, deviations } in outliers(&figures, equal.len())
            {
                let column = &self.columns[equal[column]];
                let word = if of_median < 1.0 { "slower" } else { "faster" };
                notes.push(format!(
                    "{} ({}) is an outlier, {word} than its equals: its QPS is {} times the median of {} \
                     runs on equal machines, {deviations:.0} standard deviations away",
                    column.label,
                    runs[column.run].directory,
                    ratio(Ratio::new(of_median)),
                    equal.len(),
                ));
            }
        }
        notes
    }
}

/// The fewest runs of which one can be an outlier.
const FEWEST: usize = 3;

/// The limit of Iglewicz and Hoaglin.
const LIMIT: f64 = 3.5;

/// The median absolute deviation times this is the standard deviation of a normal distribution.
const MAD_TO_SIGMA: f64 = 1.4826;

/// The smallest spread: equal machines differ by about as much, and of few runs the spread may be 0 by
/// chance.
const SMALLEST_SPREAD: f64 = 0.01;

/// A run that is far from the others.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Outlier {
    /// Index among the columns that are compared.
    column: usize,
    /// Its QPS relative to the median of all.
    ratio: f64,
    /// Its distance from the median in standard deviations.
    deviations: f64,
}

/// The outliers among `columns`, from rows with a value for each of them.
///
/// The deviation of a run is the median of ln(QPS ÷ median QPS of all) over its candidates and
/// microbenchmarks. It is compared with the spread of these deviations, the median absolute deviation,
/// which an outlier does not change (Iglewicz and Hoaglin, 1993, with their limit of 3.5).
fn outliers(rows: &[Vec<Option<f64>>], columns: usize) -> Vec<Outlier> {
    if columns < FEWEST {
        return Vec::new();
    }
    let mut logarithms: Vec<Vec<f64>> = vec![Vec::new(); columns];
    for row in rows {
        let known: Vec<f64> = row.iter().flatten().copied().filter(|value| *value > 0.0).collect();
        // A row that some runs lack would compare each with others.
        if known.len() < columns {
            continue;
        }
        let Some(middle) = median(&known) else { continue };
        for (of_column, value) in logarithms.iter_mut().zip(&known) {
            of_column.push((value / middle).ln());
        }
    }
    let deviations: Option<Vec<f64>> = logarithms.iter().map(|of| median(of)).collect();
    let Some(deviations) = deviations else { return Vec::new() };
    let Some(middle) = median(&deviations) else { return Vec::new() };
    let distances: Vec<f64> = deviations.iter().map(|one| (one - middle).abs()).collect();
    let spread = median(&distances).unwrap_or_default() * MAD_TO_SIGMA;
    let spread = spread.max(SMALLEST_SPREAD);
    let outlier = |(column, deviation): (usize, &f64)| {
        let deviations = (deviation - middle).abs() / spread;
        (deviations > LIMIT).then(|| Outlier { column, ratio: deviation.exp(), deviations })
    };
    deviations.iter().enumerate().filter_map(outlier).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(factors: &[f64]) -> Vec<Vec<Option<f64>>> {
        let qps = [1000.0, 50.0, 20_000.0];
        // Some noise of each figure.
        let noise = |row: usize, column: usize| 1.0 + 0.002 * ((row * 7 + column * 3) % 5) as f64;
        (0..3)
            .map(|row| {
                let value =
                    |(column, factor): (usize, &f64)| Some(qps[row] * factor * noise(row, column));
                factors.iter().enumerate().map(value).collect()
            })
            .collect()
    }

    #[test]
    fn slow_node_among_equal_ones_is_an_outlier() {
        let found = outliers(&rows(&[1.0, 1.0, 0.8, 1.01, 0.99]), 5);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].column, 2);
        assert!((found[0].ratio - 0.8).abs() < 0.02, "{found:?}");
        let found = outliers(&rows(&[0.7, 1.0, 1.0]), 3);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn nodes_that_all_differ_or_are_few_have_no_outlier() {
        for factors in [&[1.0, 1.02, 0.98][..], &[0.8, 0.9, 1.0, 1.1, 1.2], &[0.5, 1.0]] {
            assert_eq!(outliers(&rows(factors), factors.len()), [], "{factors:?}");
        }
    }

    #[test]
    fn figures_that_one_run_lacks_are_not_used() {
        let mut all = rows(&[1.0, 1.0, 0.5]);
        for row in &mut all {
            row[0] = None;
        }
        assert_eq!(outliers(&all, 3), []);
    }
}
