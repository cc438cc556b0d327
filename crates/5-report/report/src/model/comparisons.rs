//! Results relative to others: counters, response times, effects, series, and numbers of clients.

use dbdyno_types::MatrixLevel;
use dbdyno_units::{Nanos, Qps, Ratio};
use serde::{Serialize, Serializer};

use super::{Estimate, LatencySummary, Role, Row, Verdict};

/// A figure calculated from counters of the system under test over the counted slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CounterFigure {
    InstructionsPerQuery,
    CyclesPerQuery,
    /// Instructions per clock cycle: IPC.
    InstructionsPerCycle,
    L1iMissesPer1000Instructions,
    ItlbMissesPer1000Instructions,
    BranchesPerQuery,
    BranchMissesPer1000Instructions,
    /// Events of the microbenchmark, such as transactions, per million clock cycles.
    EventsPerMillionCycles,
    MinorFaultsPerQuery,
    MajorFaultsPerQuery,
    CpuMigrationsPerQuery,
    /// Energy of the CPU packages per statement, in microjoules.
    MicrojoulesPerQuery,
}

impl CounterFigure {
    /// Each with its name in files, in the order of the variants.
    const TABLE: [(Self, &str); 12] = [
        (Self::InstructionsPerQuery, "instructions_per_query"),
        (Self::CyclesPerQuery, "cycles_per_query"),
        (Self::InstructionsPerCycle, "instructions_per_cycle"),
        (Self::L1iMissesPer1000Instructions, "l1i_misses_per_1000_instructions"),
        (Self::ItlbMissesPer1000Instructions, "itlb_misses_per_1000_instructions"),
        (Self::BranchesPerQuery, "branches_per_query"),
        (Self::BranchMissesPer1000Instructions, "branch_misses_per_1000_instructions"),
        (Self::EventsPerMillionCycles, "events_per_million_cycles"),
        (Self::MinorFaultsPerQuery, "minor_faults_per_query"),
        (Self::MajorFaultsPerQuery, "major_faults_per_query"),
        (Self::CpuMigrationsPerQuery, "cpu_migrations_per_query"),
        (Self::MicrojoulesPerQuery, "microjoules_per_query"),
    ];

    pub fn all() -> impl Iterator<Item = Self> {
        Self::TABLE.into_iter().map(|(figure, _)| figure)
    }

    /// The figures that are summarised by group.
    pub(crate) const OF_GROUPS: [Self; 3] =
        [Self::InstructionsPerQuery, Self::CyclesPerQuery, Self::InstructionsPerCycle];

    /// The figures that sweeps show over the number of clients, with their titles.
    pub(crate) const OF_SWEEPS: [(Self, &str); 5] = [
        (Self::InstructionsPerCycle, "instructions per cycle"),
        (Self::EventsPerMillionCycles, "events per million cycles"),
        (Self::L1iMissesPer1000Instructions, "L1 instruction-cache misses per 1,000 instr."),
        (Self::ItlbMissesPer1000Instructions, "iTLB misses per 1,000 instr."),
        (Self::BranchMissesPer1000Instructions, "branch misses per 1,000 instr."),
    ];

    /// The name in files.
    pub const fn name(self) -> &'static str {
        Self::TABLE[self as usize].1
    }

    /// Whether it uses hardware counters, which may be multiplexed.
    pub(crate) const fn is_of_cpu(self) -> bool {
        !matches!(
            self,
            Self::MinorFaultsPerQuery
                | Self::MajorFaultsPerQuery
                | Self::CpuMigrationsPerQuery
                | Self::MicrojoulesPerQuery
        )
    }
}

impl Serialize for CounterFigure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The ratios of one figure over the microbenchmarks of a group.
#[derive(Clone, Debug, Serialize)]
pub struct CounterSummary {
    pub group: String,
    pub clients: u32,
    pub candidate: String,
    pub role: Role,
    pub figure: CounterFigure,
    pub count: usize,
    pub min: Ratio,
    pub max: Ratio,
    pub avg: Ratio,
    pub median: Ratio,
}

/// An unavailable counter or group of counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotCounted {
    /// Its name, such as `hardware counters`.
    pub what: String,
    /// The affected candidates; empty for all.
    pub candidates: Vec<String>,
    pub reason: String,
    pub advice: Option<String>,
}

impl NotCounted {
    /// The text for a report, in one line.
    pub(crate) fn line(&self) -> String {
        let whose = match self.candidates.as_slice() {
            [] => String::new(),
            names => format!(" of {}", names.join(", ")),
        };
        format!("{}{whose}: not available here: {}", self.what, self.reason)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Percentile {
    P50,
    P95,
    P99,
}

#[derive(Clone, Debug, Serialize)]
pub struct RelativePercentile {
    pub percentile: Percentile,
    /// The ratio: below 1 is better. `None` with too few blocks or events.
    pub relative: Option<Estimate>,
    pub verdict: Verdict,
}

/// A statement of a script, relative to the baseline's. Times are means, from sending it to its whole answer.
#[derive(Clone, Debug, Serialize)]
pub struct RelativeStatement {
    /// Its normalized text.
    pub statement: String,
    pub executions_per_event: Option<f64>,
    /// The baseline's response time; `None` if only the candidate has the statement.
    pub baseline_us: Option<f64>,
    /// The candidate's response time; `None` if only the baseline has the statement.
    pub response_us: Option<f64>,
    /// The ratio: below 1 is better. `None` with too few blocks.
    pub relative: Option<Estimate>,
    /// How much longer than the baseline's an event takes because of it.
    pub difference_us_per_event: Option<f64>,
    pub verdict: Verdict,
}

impl Percentile {
    /// All, in ascending order.
    pub const ALL: [Self; 3] = [Self::P50, Self::P95, Self::P99];

    /// Their shares of the events, in the same order.
    pub const SHARES: [f64; 3] = [0.50, 0.95, 0.99];

    pub const fn name(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P95 => "p95",
            Self::P99 => "p99",
        }
    }

    pub const fn of(self, times: &LatencySummary) -> Nanos {
        match self {
            Self::P50 => times.p50,
            Self::P95 => times.p95,
            Self::P99 => times.p99,
        }
    }

    /// Its value relative to the baseline's; `None` if response times are unknown.
    pub fn relative_of(self, row: &Row) -> Option<&RelativePercentile> {
        row.response_times.iter().find(|one| one.percentile == self)
    }
}

/// The effect of a setting of a matrix on one microbenchmark: throughput with one value, divided by
/// throughput with the first value, as the geometric mean over all combinations of the other settings.
///
/// With [`Self::with`] it is an interaction: the effect with another value of the second setting,
/// divided by the effect with the second setting's first value.
#[derive(Clone, Debug, Serialize)]
pub struct Effect {
    pub matrix: String,
    pub microbenchmark: String,
    pub clients: u32,
    pub group: String,
    #[serde(flatten)]
    pub change: Change,
    /// The second setting of an interaction, with its values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with: Option<Change>,
    /// The ratio; `None` with too few blocks, or if a candidate of the matrix failed.
    pub relative_qps: Option<Estimate>,
    /// The same for CPU time per query: below 1 is better.
    pub relative_cpu: Option<Estimate>,
    pub verdict: Verdict,
    /// Number of blocks in which all candidates of the matrix were measured.
    pub blocks: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    pub setting: String,
    pub value: String,
    /// The first value in the matrix, which it is compared with.
    pub reference: String,
}

impl Change {
    /// From one level to another of the same setting.
    pub(crate) fn new(reference: &MatrixLevel, level: &MatrixLevel) -> Self {
        Self {
            setting: level.setting.clone(),
            value: level.value.clone(),
            reference: reference.value.clone(),
        }
    }

    /// As a ratio: `innodb_doublewrite OFF/ON`.
    pub(crate) fn title(&self) -> String {
        format!("{} {}/{}", self.setting, self.value, self.reference)
    }
}

/// Candidates in an order, such as the releases of a server.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Its name in the experiment; `imported` for imported results.
    pub name: String,
    /// Its candidates, in order.
    pub candidates: Vec<String>,
    /// Throughput relative to the first candidate, one row per microbenchmark and number of clients.
    pub rows: Vec<SeriesRow>,
    /// Throughput relative to the first candidate, one line per group and number of clients.
    pub groups: Vec<SeriesGroup>,
    /// Differences between neighbours, the largest certain one first.
    pub changes: Vec<SeriesChange>,
}

#[derive(Clone, Debug, Serialize)]
pub struct SeriesRow {
    pub microbenchmark: String,
    pub clients: u32,
    pub group: String,
    /// By candidate, the first included; `None` if it was not measured.
    pub cells: Vec<Option<SeriesCell>>,
}

/// Throughput relative to the first candidate of a series.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SeriesCell {
    /// The ratio; of the first candidate 1.
    pub ratio: Ratio,
    /// The ratio with its interval; `None` with too few blocks, and for the first candidate.
    pub relative_qps: Option<Estimate>,
    pub verdict: Verdict,
}

#[derive(Clone, Debug, Serialize)]
pub struct SeriesGroup {
    pub group: String,
    pub clients: u32,
    /// By candidate; `None` if one of the group's microbenchmarks was not measured.
    pub points: Vec<Option<SeriesPoint>>,
}

/// The geometric mean of a group's ratios.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SeriesPoint {
    pub ratio: Ratio,
    /// Both ends of its 95% interval, from those of the microbenchmarks; `None` if one has none.
    pub interval: Option<(Ratio, Ratio)>,
}

/// A difference between neighbours in a series.
#[derive(Clone, Debug, Serialize)]
pub struct SeriesChange {
    pub microbenchmark: String,
    pub clients: u32,
    pub group: String,
    pub from: String,
    pub to: String,
    /// Throughput of the later one relative to the earlier one.
    pub ratio: Ratio,
    /// The ratio with its interval; `None` with too few blocks.
    pub relative_qps: Option<Estimate>,
    pub verdict: Verdict,
    /// Number of blocks in which both were measured.
    pub blocks: u64,
}

impl SeriesChange {
    /// Whether it is listed: certain, or without an interval that could say so.
    pub(crate) const fn is_listed(&self) -> bool {
        self.verdict.is_certain() || matches!(self.verdict, Verdict::NoInterval)
    }

    /// The order in lists: those that are more than noise first, then those without an interval.
    pub(crate) const fn certainty(&self) -> u8 {
        self.verdict.is_certain() as u8 + self.is_listed() as u8
    }

    /// Its size regardless of its direction: equal for a ratio and its reciprocal.
    pub fn size(&self) -> f64 {
        self.ratio.get().ln().abs()
    }
}

/// One candidate on one microbenchmark with one number of clients.
#[derive(Clone, Debug, Serialize)]
pub struct ScalingRow {
    pub microbenchmark: String,
    pub group: String,
    /// Its group in the older scheme with three groups.
    pub three_group: String,
    /// The candidate, also the baseline.
    pub candidate: String,
    pub role: Role,
    pub clients: u32,
    /// Throughput, in the microbenchmark's unit.
    pub qps: Option<Qps>,
    pub p99: Option<Nanos>,
    /// Relative to the next smaller number of clients; `None` for the smallest.
    pub to_previous: Option<ScalingRatio>,
    /// Relative to the smallest number of clients; `None` for the smallest.
    pub to_smallest: Option<ScalingRatio>,
}

/// Results with more clients divided by those with fewer, of the same candidate.
#[derive(Clone, Debug, Serialize)]
pub struct ScalingRatio {
    /// The smaller number of clients.
    pub than_clients: u32,
    /// Whether blocks with both numbers took turns. Otherwise one was measured after the other, and
    /// drift of the machine is not in the intervals.
    pub interleaved: bool,
    /// Throughput: above 1 is better.
    pub relative_qps: Option<Estimate>,
    pub verdict: Verdict,
    /// 99th percentile of the response times: below 1 is better.
    pub relative_p99: Option<Estimate>,
    pub p99_verdict: Verdict,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_figures_are_in_the_order_of_their_table() {
        for (at, figure) in CounterFigure::all().enumerate() {
            assert_eq!(figure as usize, at);
        }
    }

    #[test]
    fn line_has_counter_candidates_and_reason() {
        let mut one = NotCounted {
            what: "hardware counters".to_owned(),
            candidates: Vec::new(),
            reason: "no PMU".to_owned(),
            advice: None,
        };
        assert_eq!(one.line(), "hardware counters: not available here: no PMU");
        one.candidates = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(one.line(), "hardware counters of a, b: not available here: no PMU");
    }
}
