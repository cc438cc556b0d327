//! Results of one column, or of all columns together: groups down, candidates across.

use crate::metric::{Grouping, Metric, summarise};
use crate::model::{GroupSummary, MicrobenchmarkRows, Report, Role};

use super::Comparison;

/// Summaries of relative QPS by group and candidate.
pub(super) struct MachineTable<'a> {
    pub candidates: Vec<&'a str>,
    /// Groups of several microbenchmarks, with a summary for each candidate that has one.
    pub groups: Vec<(&'a str, Vec<Option<&'a GroupSummary>>)>,
}

impl<'a> MachineTable<'a> {
    /// `None` if there are no groups of several microbenchmarks.
    fn of(summaries: impl Iterator<Item = &'a GroupSummary>) -> Option<Self> {
        let is_shown = |one: &&GroupSummary| one.role == Role::Candidate && one.count > 1;
        let summaries: Vec<&GroupSummary> = summaries.filter(is_shown).collect();
        let (mut candidates, mut names): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
        for one in &summaries {
            if !candidates.contains(&one.candidate.as_str()) {
                candidates.push(&one.candidate);
            }
            if !names.contains(&one.group.as_str()) {
                names.push(&one.group);
            }
        }
        names.sort_unstable();
        let of = |group: &str, candidate: &str| {
            let is_it = |one: &&&GroupSummary| one.group == group && one.candidate == candidate;
            summaries.iter().find(is_it).copied()
        };
        let row = |group| (group, candidates.iter().map(|one| of(group, one)).collect());
        let groups: Vec<_> = names.into_iter().map(row).collect();
        (!groups.is_empty()).then_some(Self { candidates, groups })
    }
}

impl Comparison {
    /// The results in a column.
    pub(super) fn machine(&self, column: usize) -> Option<MachineTable<'_>> {
        MachineTable::of(self.groups.iter().filter_map(|row| row.cells.get(column)?.as_ref()))
    }

    /// The results of all columns together, if the runs are parts of one.
    pub(super) fn whole(&self) -> Option<MachineTable<'_>> {
        MachineTable::of(self.merged.iter())
    }
}

/// Summaries over all runs, if no microbenchmark is in two of them, as those of shards; empty otherwise.
/// Each ratio is to the baseline of its own run.
pub(super) fn merged(reports: &[&Report]) -> Vec<GroupSummary> {
    let Some((first, others)) = reports.split_first() else { return Vec::new() };
    if others.is_empty() || others.iter().any(|one| one.baseline != first.baseline) {
        return Vec::new();
    }
    let mut all: Vec<MicrobenchmarkRows> = Vec::new();
    for one in reports.iter().flat_map(|report| &report.microbenchmarks) {
        if all.iter().any(|known| (&known.name, known.clients) == (&one.name, one.clients)) {
            return Vec::new();
        }
        all.push(one.clone());
    }
    // A sweep has the numbers of clients in columns.
    if all.windows(2).any(|pair| pair[0].clients != pair[1].clients) {
        return Vec::new();
    }
    summarise(Metric::Qps, &all, &first.candidates, Grouping::Five)
}
