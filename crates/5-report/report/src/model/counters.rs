//! Counter figures and their names.

use dbdyno_units::Ratio;
use serde::Serialize;

use super::Role;

/// A figure calculated from counters of the system under test over the counted slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CounterFigure {
    /// Instructions per statement.
    InstructionsPerQuery,
    /// Clock cycles per statement.
    CyclesPerQuery,
    /// Instructions per clock cycle: IPC.
    InstructionsPerCycle,
    /// First-level instruction cache misses per 1,000 instructions.
    #[serde(rename = "l1i_misses_per_1000_instructions")]
    L1iMissesPer1000Instructions,
    /// Instruction TLB misses per 1,000 instructions.
    #[serde(rename = "itlb_misses_per_1000_instructions")]
    ItlbMissesPer1000Instructions,
    /// Branches per statement.
    BranchesPerQuery,
    /// Branch misses per 1,000 instructions.
    #[serde(rename = "branch_misses_per_1000_instructions")]
    BranchMissesPer1000Instructions,
    /// Events of the microbenchmark, such as transactions, per million clock cycles.
    EventsPerMillionCycles,
    /// Minor page faults per statement.
    MinorFaultsPerQuery,
    /// Major page faults per statement.
    MajorFaultsPerQuery,
    /// CPU migrations per statement.
    CpuMigrationsPerQuery,
    /// Energy of the CPU packages per statement, in microjoules.
    MicrojoulesPerQuery,
}

impl CounterFigure {
    /// All figures.
    pub const ALL: [Self; 12] = [
        Self::InstructionsPerQuery,
        Self::CyclesPerQuery,
        Self::InstructionsPerCycle,
        Self::L1iMissesPer1000Instructions,
        Self::ItlbMissesPer1000Instructions,
        Self::BranchesPerQuery,
        Self::BranchMissesPer1000Instructions,
        Self::EventsPerMillionCycles,
        Self::MinorFaultsPerQuery,
        Self::MajorFaultsPerQuery,
        Self::CpuMigrationsPerQuery,
        Self::MicrojoulesPerQuery,
    ];

    /// The figures that are summarised by group.
    pub(crate) const OF_GROUPS: [Self; 3] =
        [Self::InstructionsPerQuery, Self::CyclesPerQuery, Self::InstructionsPerCycle];

    /// The figures that sweeps show over the number of clients.
    pub(crate) const OF_SWEEPS: [Self; 5] = [
        Self::InstructionsPerCycle,
        Self::EventsPerMillionCycles,
        Self::L1iMissesPer1000Instructions,
        Self::ItlbMissesPer1000Instructions,
        Self::BranchMissesPer1000Instructions,
    ];

    /// The name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InstructionsPerQuery => "instructions_per_query",
            Self::CyclesPerQuery => "cycles_per_query",
            Self::InstructionsPerCycle => "instructions_per_cycle",
            Self::L1iMissesPer1000Instructions => "l1i_misses_per_1000_instructions",
            Self::ItlbMissesPer1000Instructions => "itlb_misses_per_1000_instructions",
            Self::BranchesPerQuery => "branches_per_query",
            Self::BranchMissesPer1000Instructions => "branch_misses_per_1000_instructions",
            Self::EventsPerMillionCycles => "events_per_million_cycles",
            Self::MinorFaultsPerQuery => "minor_faults_per_query",
            Self::MajorFaultsPerQuery => "major_faults_per_query",
            Self::CpuMigrationsPerQuery => "cpu_migrations_per_query",
            Self::MicrojoulesPerQuery => "microjoules_per_query",
        }
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

    /// The column heading.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::InstructionsPerQuery => "instructions",
            Self::CyclesPerQuery => "cycles",
            Self::InstructionsPerCycle => "instructions per cycle",
            Self::L1iMissesPer1000Instructions => "L1 instruction-cache misses per 1,000 instr.",
            Self::ItlbMissesPer1000Instructions => "iTLB misses per 1,000 instr.",
            Self::BranchesPerQuery => "branches",
            Self::BranchMissesPer1000Instructions => "branch misses per 1,000 instr.",
            Self::EventsPerMillionCycles => "events per million cycles",
            Self::MinorFaultsPerQuery => "minor page faults",
            Self::MajorFaultsPerQuery => "major page faults",
            Self::CpuMigrationsPerQuery => "CPU migrations",
            Self::MicrojoulesPerQuery => "energy of the package, µJ",
        }
    }
}

/// The ratios of one figure over the microbenchmarks of a group.
#[derive(Clone, Debug, Serialize)]
pub struct CounterSummary {
    /// The group's name.
    pub group: String,
    /// Number of clients.
    pub clients: u32,
    /// The candidate's name.
    pub candidate: String,
    /// The candidate's role.
    pub role: Role,
    pub figure: CounterFigure,
    /// Microbenchmarks counted.
    pub count: usize,
    /// Minimum ratio.
    pub min: Ratio,
    /// Maximum ratio.
    pub max: Ratio,
    /// Arithmetic mean.
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
    /// How to make it available.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_the_json_names() {
        for figure in CounterFigure::ALL {
            let json = serde_json::to_string(&figure).unwrap();
            assert_eq!(json, format!("\"{}\"", figure.name()));
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
