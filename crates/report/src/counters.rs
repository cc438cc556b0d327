//! Counter figures and their names.

use std::collections::BTreeSet;

use dbdyno_stats::Summary;
use dbdyno_units::Ratio;
use serde::Serialize;

use crate::metric::Grouping;
use crate::model::{CandidateRecord, MicrobenchmarkRows, Report, Role, Verdict};

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
    /// The figure.
    pub figure: CounterFigure,
    /// Microbenchmarks counted.
    pub count: usize,
    /// Minimum ratio.
    pub min: Ratio,
    /// Maximum ratio.
    pub max: Ratio,
    /// Arithmetic mean.
    pub avg: Ratio,
    /// The median.
    pub median: Ratio,
}

/// An unavailable counter or group of counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotCounted {
    /// Its name, such as `hardware counters`.
    pub what: String,
    /// The affected candidates; empty for all.
    pub candidates: Vec<String>,
    /// The reason.
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

/// Whether the report has counter figures or unavailable counters.
pub(crate) fn is_any(report: &Report) -> bool {
    !report.not_counted.is_empty()
        || report.microbenchmarks.iter().any(|one| !one.baseline.counters.is_empty())
}

/// Summarise the ratios of instructions, cycles and instructions per cycle by group, number of
/// clients and candidate. Failed rows are left out.
pub(crate) fn summarise(
    microbenchmarks: &[MicrobenchmarkRows],
    candidates: &[CandidateRecord],
) -> Vec<CounterSummary> {
    let mut summaries = Vec::new();
    for (group, members) in Grouping::Five.groups(microbenchmarks) {
        let clients: BTreeSet<u32> = members.iter().map(|(_, member)| member.clients).collect();
        for clients in clients {
            let members = members.iter().filter(|(_, member)| member.clients == clients);
            let rows: Vec<_> = members.flat_map(|(_, member)| &member.rows).collect();
            for candidate in candidates.iter().filter(|one| one.role != Role::Baseline) {
                let own = rows.iter().filter(|row| {
                    row.candidate == candidate.name && row.cpu_verdict != Verdict::Failed
                });
                let of = |figure| {
                    let ratios = own.clone().filter_map(|row| row.relative_counters.get(&figure));
                    let ratios: Vec<Ratio> = ratios.map(|estimate| estimate.median).collect();
                    let summary = Summary::of(&ratios)?;
                    Some(CounterSummary {
                        group: group.to_owned(),
                        clients,
                        candidate: candidate.name.clone(),
                        role: candidate.role,
                        figure,
                        count: summary.count,
                        min: summary.min,
                        max: summary.max,
                        avg: summary.avg,
                        median: summary.median,
                    })
                };
                summaries.extend(CounterFigure::OF_GROUPS.into_iter().filter_map(of));
            }
        }
    }
    summaries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

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

    #[test]
    fn group_summaries_leave_out_failed_rows() {
        let mut report = sample::counted(&["scan_range=100", "range-covered-pk_range=100"]);
        let first = |report: &Report| {
            let all = summarise(&report.microbenchmarks, &report.candidates);
            let of = all.into_iter().find(|one| one.figure == CounterFigure::InstructionsPerCycle);
            of.unwrap()
        };
        let both = first(&report);
        let (group, candidate) = (both.group.clone(), both.candidate.clone());
        let members = report.microbenchmarks.iter().filter(|one| one.group == group).count();
        assert_eq!(both.count, members);
        let failed = report.microbenchmarks.iter_mut().rev().find(|one| one.group == group);
        let mut rows = failed.unwrap().rows.iter_mut();
        rows.find(|row| row.candidate == candidate).unwrap().cpu_verdict = Verdict::Failed;
        let after = summarise(&report.microbenchmarks, &report.candidates);
        let left = after.iter().find(|one| one.group == group && one.candidate == candidate);
        assert_eq!(left.map_or(0, |one| one.count), members - 1);
    }
}
