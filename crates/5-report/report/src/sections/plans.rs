//! Statements that a candidate executes otherwise than the baseline.

use dbdyno_text::{Fact, Facts, cut};

use super::{Block, Section, by_microbenchmark, rows};
use crate::model::{MicrobenchmarkRows, OtherPlan, Report};
use crate::words::joined;

/// Longer statements and lines of plans, such as those with the values of an `IN`, are shortened.
const LONGEST: usize = 90;

const CHANGES: &str = "; it differs between starts";

/// The plans of all microbenchmarks that differ.
pub(crate) fn plans(report: &Report) -> Section {
    let about = ("statements that are executed otherwise", "");
    by_microbenchmark(report, "plans", about, |member| facts(report, member))
}

/// Each statement of a microbenchmark that a candidate executes otherwise, with both plans.
pub(crate) fn facts(report: &Report, member: &MicrobenchmarkRows) -> Vec<Block> {
    let of = |candidate: &str, one: &OtherPlan| {
        let changes = if one.changes { CHANGES } else { "" };
        let facts = Facts::new([
            Fact::new("SQL", cut(&one.sql, LONGEST)),
            Fact::new(report.baseline.clone(), in_one_line(&one.baseline)),
            Fact::new(candidate, in_one_line(&one.plan) + changes),
        ]);
        Block::Facts(facts)
    };
    let rows = member.rows.iter();
    rows.flat_map(|row| row.plans.iter().map(|one| of(&row.candidate, one))).collect()
}

fn in_one_line(plan: &[String]) -> String {
    let lines = plan.iter().map(|line| cut(line.trim_start(), LONGEST));
    joined(lines, " / ").unwrap_or_default()
}

/// A sentence for each statement that is executed otherwise.
pub(crate) fn sentences(report: &Report) -> Vec<String> {
    let plans = rows(report).flat_map(|(of, row)| row.plans.iter().map(move |one| (of, row, one)));
    let sentences = plans.map(|(of, row, one)| {
        let (own, baseline) = (in_one_line(&one.plan), in_one_line(&one.baseline));
        let (name, candidate, base) = (&of.name, &row.candidate, &report.baseline);
        match one.changes {
            false => format!(
                "{name}: {candidate} has another plan than {base}: {own}, instead of {baseline}"
            ),
            true => format!("{name}: a plan of {candidate} or {base} differs between starts"),
        }
    });
    sentences.collect()
}
