//! Absolute figures of the runs beside each other, and their quotients.
//!
//! Runs are not interleaved: a quotient also contains what changed on the machine between them. A
//! candidate that is equal in both runs shows how much that is, together with the effect of the
//! other candidates of the run, which share its caches.

use dbdyno_stats::{Direction, Quotient, RunValue, median, quotient};
use dbdyno_units::{Ratio, Share};
use serde::Serialize;

use super::candidates::{MatchedCandidate, are_equal};
use super::{Column, names};
use crate::assemble::client_bound;
use crate::figures;
use crate::metric::Metric;
use crate::model::{Absolute, Better, MicrobenchmarkRows, Report, Role, Verdict};

/// An absolute figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AbsoluteFigure {
    /// Throughput.
    Qps,
    /// CPU time of the system under test per statement, in µs.
    Cpu,
    /// 99th percentile of the response times of events, in µs.
    P99,
}

impl AbsoluteFigure {
    /// All figures, in display order.
    pub const ALL: [Self; 3] = [Self::Qps, Self::Cpu, Self::P99];

    /// The name in headings.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Qps => "QPS",
            Self::Cpu => "CPU µs/query",
            Self::P99 => "p99 µs",
        }
    }

    /// The text for a verdict on a quotient.
    #[must_use]
    pub const fn word(self, verdict: Verdict) -> &'static str {
        match (self, verdict) {
            (Self::Qps, Verdict::Better) => "higher",
            (Self::Qps, Verdict::Worse) => "lower",
            (Self::Cpu, _) => match verdict {
                Verdict::Better => "less CPU",
                Verdict::Worse => "more CPU",
                Verdict::WithinNoise => "not certain",
                _ => verdict.name(),
            },
            (Self::P99, Verdict::Better) => "shorter",
            (Self::P99, Verdict::Worse) => "longer",
            (_, Verdict::WithinNoise) => "not certain",
            _ => verdict.name(),
        }
    }

    fn of(self) -> &'static figures::Figure {
        figures::Figure::named(match self {
            Self::Qps => "qps",
            Self::Cpu => "cpu_us_per_query",
            Self::P99 => "p99_us",
        })
    }

    fn direction(self) -> Direction {
        match self.of().better {
            Better::Less => Direction::LessIsBetter,
            Better::More | Better::Neither => Direction::MoreIsBetter,
        }
    }

    fn value(self, absolute: &Absolute) -> Option<f64> {
        (self.of().of)(absolute)
    }

    fn interval(self, absolute: &Absolute) -> Option<(f64, f64)> {
        (self.of().interval)(absolute)
    }

    /// The noise floor of the run on this microbenchmark; `None` without a control.
    fn floor(self, report: &Report, microbenchmark: &MicrobenchmarkRows) -> Option<Share> {
        match self {
            Self::Qps => Metric::Qps.floor(report, microbenchmark),
            Self::Cpu => Metric::Cpu.floor(report, microbenchmark),
            Self::P99 => {
                let distances: Vec<f64> =
                    report.microbenchmarks.iter().filter_map(p99_of_control).collect();
                let own = p99_of_control(microbenchmark).unwrap_or_default();
                Some(Share::from_fraction(median(&distances)?.max(own)))
            }
        }
    }
}

/// The distance from 1 of the control's p99 to the baseline's.
fn p99_of_control(microbenchmark: &MicrobenchmarkRows) -> Option<f64> {
    let mut rows = microbenchmark.rows.iter();
    let control = rows.find(|row| row.role == Role::Control && row.verdict != Verdict::Failed)?;
    let p99 = |absolute| AbsoluteFigure::P99.value(absolute);
    Some(Ratio::of(p99(&control.absolute)?, p99(&microbenchmark.baseline)?)?.distance())
}

/// The absolute figures of one candidate on one microbenchmark, by column.
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

/// The absolute figures of one column.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AbsoluteCell {
    /// Throughput.
    pub qps: Option<Figure>,
    /// CPU time per statement, in µs.
    pub cpu_us_per_query: Option<Figure>,
    /// 99th percentile of the response times, in µs.
    pub p99_us: Option<Figure>,
}

impl AbsoluteCell {
    /// One figure; `None` if unknown.
    #[must_use]
    pub const fn figure(&self, figure: AbsoluteFigure) -> Option<&Figure> {
        match figure {
            AbsoluteFigure::Qps => self.qps.as_ref(),
            AbsoluteFigure::Cpu => self.cpu_us_per_query.as_ref(),
            AbsoluteFigure::P99 => self.p99_us.as_ref(),
        }
    }
}

/// A value with its interval, and its change from the column that it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    pub value: f64,
    /// Its 95% interval; `None` with too few slices.
    pub interval: Option<(f64, f64)>,
    /// The change; `None` for a column that is compared with no other one.
    pub change: Option<Change>,
}

/// A value divided by that of an earlier run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The quotient.
    pub ratio: Ratio,
    /// The quotient with its interval; `None` if one of the values has no interval.
    pub quotient: Option<Quotient>,
    /// Better or worse if the quotient is certain and farther from 1 than the interval of any other
    /// candidate that is equal in both runs.
    pub verdict: Verdict,
}

/// The changes of one candidate's QPS between two columns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangeSummary {
    pub candidate: String,
    /// The index of the column.
    pub column: usize,
    /// The index of the column that it is compared with.
    pub compared_with: usize,
    /// Whether program, configuration, data and number of clients are equal in both: then the
    /// changes are no effect of the candidate.
    pub is_equal: bool,
    /// Number of microbenchmarks with a quotient.
    pub count: usize,
    /// Their median, minimum and maximum.
    pub median: Ratio,
    /// Minimum.
    pub min: Ratio,
    /// Maximum.
    pub max: Ratio,
    /// Number of microbenchmarks with a certainly higher QPS.
    pub higher: usize,
    /// Number of microbenchmarks with a certainly lower QPS.
    pub lower: usize,
}

/// One candidate in one column on one microbenchmark.
struct Measured<'a> {
    report: &'a Report,
    microbenchmark: &'a MicrobenchmarkRows,
    absolute: &'a Absolute,
    failed: bool,
}

impl<'a> Measured<'a> {
    fn find(report: &'a Report, clients: u32, name: &str, candidate: &str) -> Option<Self> {
        let mut all = report.microbenchmarks.iter();
        let microbenchmark = all.find(|one| one.name == name && one.clients == clients)?;
        let (absolute, failed) = if candidate == report.baseline {
            // It has no row of its own.
            (&microbenchmark.baseline, microbenchmark.baseline_failed)
        } else {
            let row = microbenchmark.rows.iter().find(|row| row.candidate == candidate)?;
            (&row.absolute, row.verdict == Verdict::Failed)
        };
        Some(Self { report, microbenchmark, absolute, failed })
    }

    fn run_value(&self, figure: AbsoluteFigure) -> Option<RunValue> {
        let value = figure.value(self.absolute)?;
        let (low, high) = figure.interval(self.absolute)?;
        Some(RunValue { value, low, high, floor: figure.floor(self.report, self.microbenchmark) })
    }

    /// Its figure divided by that of `earlier`. `drift` is the distance from 1, as a logarithm,
    /// that a candidate which is equal in both runs shows.
    fn change(&self, earlier: &Self, figure: AbsoluteFigure, drift: f64) -> Option<Change> {
        let units = [self, earlier].map(|one| &one.microbenchmark.throughput_unit);
        if figure == AbsoluteFigure::Qps && units[0] != units[1] {
            return None;
        }
        let ratio = Ratio::of(figure.value(self.absolute)?, figure.value(earlier.absolute)?)?;
        let values = self.run_value(figure).zip(earlier.run_value(figure));
        let quotient = values.and_then(|(later, earlier)| quotient(&later, &earlier));
        let bound = figure == AbsoluteFigure::Qps
            && (client_bound(self.absolute) || client_bound(earlier.absolute));
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

/// The runs, their columns, and the candidates to compare.
pub(super) struct Sources<'a> {
    pub(super) reports: &'a [&'a Report],
    pub(super) columns: &'a [Column],
    pub(super) candidates: &'a [MatchedCandidate<'a>],
}

impl<'a> Sources<'a> {
    fn measured(
        &self,
        column: usize,
        microbenchmark: &str,
        candidate: &MatchedCandidate<'_>,
    ) -> Option<Measured<'a>> {
        let Column { run, clients, .. } = self.columns[column];
        Measured::find(self.reports[run], clients, microbenchmark, candidate.name_in(run)?)
    }

    /// Whether program, configuration, data and number of clients are equal in two columns.
    pub(super) fn is_equal(&self, candidate: &MatchedCandidate<'_>, a: usize, b: usize) -> bool {
        let [one, other] = [a, b].map(|column| &self.columns[column]);
        let records = candidate.records[one.run].zip(candidate.records[other.run]);
        one.clients == other.clients
            && one.data.is_some()
            && one.data == other.data
            && records.is_some_and(|(one, other)| are_equal(one, other))
    }

    /// The largest change of a figure that another candidate shows which is equal in both columns:
    /// the farther end of its interval, as a logarithm; 0 if there is none.
    fn drift(
        &self,
        own: &MatchedCandidate<'_>,
        (column, earlier): (usize, usize),
        microbenchmark: &str,
        figure: AbsoluteFigure,
    ) -> f64 {
        let of = |candidate: &MatchedCandidate<'_>| {
            let [later, earlier] =
                [column, earlier].map(|column| self.measured(column, microbenchmark, candidate));
            let change = later?.change(&earlier?, figure, 0.0)?;
            let usable = !matches!(change.verdict, Verdict::Failed | Verdict::ClientBound);
            let ends = change.quotient.map_or([change.ratio; 2], |one| [one.low, one.high]);
            usable.then(|| ends.map(|end| end.get().ln().abs()).into_iter().fold(0.0, f64::max))
        };
        self.candidates
            .iter()
            .filter(|candidate| candidate.name != own.name)
            .filter(|candidate| self.is_equal(candidate, column, earlier))
            .filter_map(of)
            .fold(0.0, f64::max)
    }

    fn cell(
        &self,
        column: usize,
        microbenchmark: &str,
        candidate: &MatchedCandidate<'_>,
    ) -> Option<AbsoluteCell> {
        let own = self.measured(column, microbenchmark, candidate)?;
        let compared_with = self.columns[column].compared_with;
        let figure = |figure: AbsoluteFigure| {
            let change = compared_with.and_then(|earlier| {
                let of_earlier = self.measured(earlier, microbenchmark, candidate)?;
                let drift = match self.is_equal(candidate, column, earlier) {
                    true => 0.0,
                    false => self.drift(candidate, (column, earlier), microbenchmark, figure),
                };
                own.change(&of_earlier, figure, drift)
            });
            let value = figure.value(own.absolute)?;
            Some(Figure { value, interval: figure.interval(own.absolute), change })
        };
        let [qps, cpu_us_per_query, p99_us] = AbsoluteFigure::ALL.map(figure);
        Some(AbsoluteCell { qps, cpu_us_per_query, p99_us })
    }

    /// The figures of all candidates on all microbenchmarks.
    pub(super) fn rows(&self) -> Vec<AbsoluteRow> {
        let mut rows = Vec::new();
        for candidate in self.candidates {
            for (group, microbenchmarks) in names(self.reports) {
                for name in microbenchmarks {
                    let cells: Vec<Option<AbsoluteCell>> = (0..self.columns.len())
                        .map(|column| self.cell(column, name, candidate))
                        .collect();
                    if cells.iter().any(Option::is_some) {
                        rows.push(AbsoluteRow {
                            candidate: candidate.name.clone(),
                            group: group.to_owned(),
                            microbenchmark: name.to_owned(),
                            throughput_unit: self.throughput_unit(name),
                            cells,
                        });
                    }
                }
            }
        }
        rows
    }

    fn throughput_unit(&self, microbenchmark: &str) -> String {
        let mut all = self.reports.iter().flat_map(|report| &report.microbenchmarks);
        all.find(|one| one.name == microbenchmark)
            .map_or_else(String::new, |one| one.throughput_unit.clone())
    }

    /// The changes of every candidate, by column.
    pub(super) fn summaries(&self, rows: &[AbsoluteRow]) -> Vec<ChangeSummary> {
        let mut summaries = Vec::new();
        for candidate in self.candidates {
            for (column, Column { compared_with, .. }) in self.columns.iter().enumerate() {
                let Some(compared_with) = *compared_with else { continue };
                let changes: Vec<Change> = rows
                    .iter()
                    .filter(|row| row.candidate == candidate.name)
                    .filter_map(|row| row.cells[column].as_ref()?.qps?.change)
                    .filter(|it| !matches!(it.verdict, Verdict::Failed | Verdict::ClientBound))
                    .collect();
                let mut ratios: Vec<f64> = changes.iter().map(|it| it.ratio.get()).collect();
                ratios.sort_unstable_by(f64::total_cmp);
                let (Some(middle), Some(min), Some(max)) =
                    (median(&ratios), ratios.first(), ratios.last())
                else {
                    continue;
                };
                let count = |verdict| changes.iter().filter(|it| it.verdict == verdict).count();
                summaries.push(ChangeSummary {
                    candidate: candidate.name.clone(),
                    column,
                    compared_with,
                    is_equal: self.is_equal(candidate, column, compared_with),
                    count: changes.len(),
                    median: Ratio::new(middle),
                    min: Ratio::new(*min),
                    max: Ratio::new(*max),
                    higher: count(Verdict::Better),
                    lower: count(Verdict::Worse),
                });
            }
        }
        summaries
    }
}
