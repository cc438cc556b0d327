//! Summaries of counter figures by group.

use std::collections::BTreeSet;

use dbdyno_stats::Summary;
use dbdyno_units::Ratio;

use crate::metric::Grouping;
use crate::model::{
    CandidateRecord, CounterFigure, CounterSummary, MicrobenchmarkRows, Role, Verdict,
};

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
    use crate::model::Report;
    use crate::sample;

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
