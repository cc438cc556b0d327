//! The engines' own counters that differ from the baseline's.

use dbdyno_text::{Cell, Column, Row, Table};

use super::{Output, Section, by_microbenchmark, csv_of_rows, estimated};
use crate::figures::{compact, number};
use crate::model::{MicrobenchmarkRows, RelativeCounter, Report};

/// So many counters of a candidate are shown; the table in CSV has all.
const SHOWN: usize = 8;

const LONGEST_IN_TABLE: usize = 40;

pub(crate) const KEY: &str = "counters: the engine's own, per query, read before and after some slices; those that certainly \
     differ from the baseline's, by more than the control's; those whose ratio is farthest beyond noise come first. No \
     ratio: one of them never counts it. Counted by one only: counters that the other's engine does not have, the most \
     even first. They say what the engine does more often, not what it costs.";

/// The tables of all microbenchmarks, and what they mean.
pub(crate) fn engine_counters(report: &Report, output: Output) -> Section {
    let about = ("counters of the engine that differ", KEY);
    by_microbenchmark(report, "engine-counters", about, |member| tables(report, member, output))
}

/// The counters of one microbenchmark that differ, and those that only one engine has; empty tables are left out.
pub(crate) fn tables(report: &Report, member: &MicrobenchmarkRows, output: Output) -> Vec<Table> {
    [false, true].into_iter().filter_map(|of_one| table(report, member, output, of_one)).collect()
}

fn table(
    report: &Report,
    member: &MicrobenchmarkRows,
    output: Output,
    of_one: bool,
) -> Option<Table> {
    let [base, own] = match output {
        Output::Page => ["Baseline per query", "Per query"],
        _ => ["base/query", "per query"],
    };
    let numbers = [base, own, "ratio"].map(Column::number);
    let mut table =
        Table::new([Column::name("counter").most(LONGEST_IN_TABLE)].into_iter().chain(numbers))
            .class("facts operations")
            .caption(if of_one { "Counted by one engine only" } else { "Counters of the engine" });
    for row in &member.rows {
        let counters = row.engine_counters.iter().filter(|one| one.only_one_has_it == of_one);
        let counters: Vec<&RelativeCounter> = counters.collect();
        if counters.is_empty() {
            continue;
        }
        table.part(match of_one {
            true => format!("counted by {} only, or by {} only", row.candidate, report.baseline),
            false => format!("{} relative to {}", row.candidate, report.baseline),
        });
        // Those of one only are few already.
        let shown = if of_one { counters.len() } else { SHOWN };
        for one in counters.iter().take(shown) {
            table.push(Row::new([
                Cell::text(&one.counter),
                Cell::text(compact(one.baseline_per_query)),
                Cell::text(compact(one.per_query)),
                one.relative.map_or_else(Cell::dash, estimated),
            ]));
        }
        let others = counters.len().saturating_sub(shown);
        if others > 0 {
            let more = format!("{others} others: engine_counters.csv");
            table.push(Row::new([Cell::text(more), Cell::dash(), Cell::dash(), Cell::dash()]));
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

/// One line per microbenchmark, candidate and counter.
pub(crate) fn engine_counters_csv(report: &Report) -> String {
    csv_of_rows(report, |row| row.engine_counters.iter())
        .column("counter", |(.., one)| one.counter.clone())
        .column("baseline_per_query", |(.., one)| number(Some(one.baseline_per_query)))
        .column("per_query", |(.., one)| number(Some(one.per_query)))
        .ratios(["relative", "ci_low", "ci_high"], |(.., one)| one.relative)
        .column("only_one_has_it", |(.., one)| one.only_one_has_it.to_string())
        .text()
}
