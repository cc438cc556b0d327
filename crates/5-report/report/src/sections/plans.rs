//! Statements that a candidate executes otherwise than the baseline.

use dbdyno_text::{Fact, Facts, cut};

use super::Section;
use crate::metric::with_clients;
use crate::model::{MicrobenchmarkRows, OtherPlan, Report};

/// Longer statements are shortened.
const LONGEST: usize = 90;

const CHANGES: &str = "; it differs between starts";

/// The plans of all microbenchmarks that differ.
pub(crate) fn plans(report: &Report) -> Section {
    let mut section = Section::new("plans", "");
    for member in &report.microbenchmarks {
        let facts = facts(report, member);
        if !facts.is_empty() {
            let title = with_clients(&member.name, member.clients, report.is_sweep());
            section.title(title, "statements that are executed otherwise");
            facts.into_iter().for_each(|facts| section.push(facts));
        }
    }
    section
}

/// Each statement of a microbenchmark that a candidate executes otherwise, with both plans.
pub(crate) fn facts(report: &Report, member: &MicrobenchmarkRows) -> Vec<Facts> {
    let of = |candidate: &str, one: &OtherPlan| {
        let changes = if one.changes { CHANGES } else { "" };
        Facts::new([
            Fact::new("SQL", cut(&one.sql, LONGEST)),
            Fact::new(report.baseline.clone(), one.baseline.join(" / ")),
            Fact::new(candidate, one.plan.join(" / ") + changes),
        ])
    };
    let rows = member.rows.iter();
    rows.flat_map(|row| row.plans.iter().map(|one| of(&row.candidate, one))).collect()
}

/// A sentence for each statement that is executed otherwise.
pub(crate) fn sentences(report: &Report) -> Vec<String> {
    let rows = report.microbenchmarks.iter().flat_map(|of| {
        of.rows.iter().flat_map(move |row| row.plans.iter().map(move |one| (of, row, one)))
    });
    rows.map(|(of, row, one)| {
        let (own, baseline) = (one.plan.join(" / "), one.baseline.join(" / "));
        let (name, candidate, base) = (&of.name, &row.candidate, &report.baseline);
        match one.changes {
            false => format!(
                "{name}: {candidate} has another plan than {base}: {own}, instead of {baseline}"
            ),
            true => format!("{name}: a plan of {candidate} or {base} differs between starts"),
        }
    })
    .collect()
}
