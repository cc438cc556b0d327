//! Response times of a script's statements, relative to the baseline's.

use dbdyno_text::{Cell, Column, Row, Table, cut, decimals};

use super::{Output, Section, by_microbenchmark, csv_of_rows, estimated};
use crate::figures::{compact, micros, number, ratio, signed};
use crate::model::Row as Compared;
use crate::model::{Estimate, MicrobenchmarkRows, RelativeStatement, Report, Role};

/// So many statements have a row of their own; the others share one.
const SHOWN: usize = 12;

pub(crate) const KEY: &str = "statements: mean response times, from sending a statement to its whole answer, timed before \
     the timed part of slices, or in it if an event takes 10 ms or more; `adds` is what the statement adds to the time of \
     an event, in µs. They say where the time is, not where CPU is used; with several clients they include the wait \
     for a CPU. Intervals are of this run, over its starts: they do not contain what changes from run to run, such as \
     newly loaded data.";

/// The tables of all scripts, and what they mean.
pub(crate) fn statements(report: &Report, output: Output) -> Section {
    let about = ("response times of its statements", KEY);
    by_microbenchmark(report, "statements", about, |member| {
        table(report, member, output).into_iter().collect()
    })
}

/// The statement with the largest part of the difference of each script and candidate, where it certainly differs. Alone
/// it would hide another one that takes back some of it, or adds about as much: that is named, too.
pub(crate) fn largest_differences(report: &Report) -> Vec<String> {
    let of_row = |row: &Compared| {
        let (first, others) =
            row.statements.split_first().filter(|_| row.role == Role::Candidate)?;
        let (takes, most) = certain(first)?;
        let adds = signed(most, compact);
        let name = &row.candidate;
        let text = format!("{name}: {takes}, the largest difference: {adds} µs per event");
        let counts =
            |(_, adds): &(String, f64)| adds * most < 0.0 || adds.abs() >= most.abs() / 2.0;
        Some(match others.iter().filter_map(certain).find(counts) {
            Some((takes, adds)) => {
                let word = if adds * most < 0.0 { "but" } else { "also" };
                format!("{text}; {word} {takes}: {} µs", signed(adds, compact))
            }
            None => text,
        })
    };
    report.microbenchmarks.iter().flat_map(|one| &one.rows).filter_map(of_row).collect()
}

/// How much longer a statement takes that certainly differs, in words, and what it adds to an event in µs.
fn certain(one: &RelativeStatement) -> Option<(String, f64)> {
    let Estimate { median, low, high, .. } = one.relative.filter(|_| one.verdict.is_certain())?;
    let text = cut(&one.statement, LONGEST_IN_TEXT);
    let [times, low, high] = [median, low, high].map(ratio);
    let takes = format!("{text} takes {times} times as long (95%: {low} to {high})");
    Some((takes, one.difference_us_per_event?))
}

/// Longer statements are shortened in sentences, and in tables of a terminal.
const LONGEST_IN_TEXT: usize = 90;
const LONGEST_IN_TABLE: usize = 40;

/// The statements of one script; `None` if they are unknown.
pub(crate) fn table(report: &Report, member: &MicrobenchmarkRows, output: Output) -> Option<Table> {
    let is_page = output == Output::Page;
    let [per_event, base, adds] = match is_page {
        true => ["Executions per event", "Baseline µs", "Adds to an event, µs"],
        false => ["per event", "base µs", "adds"],
    };
    let numbers = [per_event, base, "ratio", adds].map(Column::number);
    let mut table =
        Table::new([Column::name("statement").most(LONGEST_IN_TABLE)].into_iter().chain(numbers))
            .class("facts operations")
            .caption("Response times of statements");
    let write = if output == Output::Terminal { compact } else { micros };
    let compared = |row: &&Compared| row.role == Role::Candidate && !row.statements.is_empty();
    for row in member.rows.iter().filter(compared) {
        table.part(format!("{} relative to {}, below 1 is better", row.candidate, report.baseline));
        // A row for one other statement would be as long.
        let all = &row.statements;
        let shown = if all.len() > SHOWN + 1 { SHOWN } else { all.len() };
        for one in &all[..shown] {
            table.push(Row::new([
                Cell::text(&one.statement),
                Cell::number(one.executions_per_event.map(compact)),
                Cell::number(one.baseline_us.map(write)),
                relative(one),
                Cell::number(one.difference_us_per_event.map(|adds| signed(adds, write))),
            ]));
        }
        let others = &all[shown..];
        if !others.is_empty() {
            let per_event: f64 = others.iter().filter_map(|one| one.executions_per_event).sum();
            let adds: f64 = others.iter().filter_map(|one| one.difference_us_per_event).sum();
            table.push(Row::new([
                Cell::text(format!("{} others", others.len())),
                Cell::text(compact(per_event)),
                Cell::dash(),
                Cell::dash(),
                Cell::text(signed(adds, write)),
            ]));
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

fn relative(one: &RelativeStatement) -> Cell {
    let cell = match one.relative {
        Some(estimate) => estimated(estimate),
        None if one.baseline_us.is_none() || one.response_us.is_none() => return Cell::dash(),
        None => Cell::text("few"),
    };
    cell.verdict(one.verdict.tone(), one.verdict.name())
}

/// One line per script, candidate and statement.
pub(crate) fn statements_csv(report: &Report) -> String {
    csv_of_rows(report, |row| row.statements.iter())
        .column("statement", |(.., one)| one.statement.clone())
        .column("executions_per_event", |(.., one)| decimals(one.executions_per_event, 6))
        .column("baseline_us", |(.., one)| number(one.baseline_us))
        .column("response_time_us", |(.., one)| number(one.response_us))
        .ratios(["relative", "ci_low", "ci_high"], |(.., one)| one.relative)
        .column("difference_us_per_event", |(.., one)| number(one.difference_us_per_event))
        .column("verdict", |(.., one)| one.verdict.name().to_owned())
        .text()
}

#[cfg(test)]
mod tests {
    use dbdyno_text::{Paint, terminal};
    use dbdyno_units::Ratio;

    use super::*;
    use crate::export::tables;
    use crate::model::Verdict;
    use crate::sample;
    use crate::sample::statement;

    fn report(count: usize) -> Report {
        let mut report = sample::servers_of(&["insert_range=100"]);
        let row = &mut report.microbenchmarks[0].rows[0];
        row.statements = vec![
            statement(
                "SELECT c FROM sbtestN WHERE id BETWEEN ? AND ? ORDER BY c",
                10.0,
                52.0,
                1.41,
                Verdict::Worse,
            ),
            statement(
                "SELECT DISTINCT c FROM sbtestN WHERE id BETWEEN ? AND ? ORDER BY c",
                1.0,
                310.0,
                0.951,
                Verdict::Better,
            ),
            statement("COMMIT", 1.0, 8.0, 1.0, Verdict::WithinNoise),
        ];
        let more = (row.statements.len()..count).map(|number| RelativeStatement {
            relative: None,
            ..statement(&format!("SET a = {number}"), 0.01, 20.0, 1.0, Verdict::Unknown)
        });
        row.statements.extend(more);
        report
    }

    fn drawn(report: &Report) -> String {
        terminal(&[statements(report, Output::Terminal)], 80, Paint::new(false))
    }

    #[test]
    fn statements_fit_80_columns() {
        insta::assert_snapshot!(drawn(&report(3)).trim(), @"
        insert_range=100  response times of its statements
        statement                                per event base µs ratio          adds
        ──────────────────────────────────────────────────────────────────────────────
        myrocks relative to innodb, below 1 is better
        SELECT c FROM sbtest… ? AND ? ORDER BY c      10.0    52.0 1.410 - ±1.0%  +213
        SELECT DISTINCT c FR… ? AND ? ORDER BY c      1.00     310 0.951 + ±1.0% −15.2
        COMMIT                                        1.00    8.00 1.000 ~ ±1.0% +0.00
        statements: mean response times, from sending a statement to its whole answer,
        timed before the timed part of slices, or in it if an event takes 10 ms or more;
        `adds` is what the statement adds to the time of an event, in µs. They say where
        the time is, not where CPU is used; with several clients they include the wait
        for a CPU. Intervals are of this run, over its starts: they do not contain what
        changes from run to run, such as newly loaded data.
        ");
        assert!(drawn(&sample::servers()).is_empty());
    }

    #[test]
    fn answer_names_the_statement_with_the_largest_difference() {
        let select = "SELECT c FROM sbtestN WHERE id BETWEEN ? AND ? ORDER BY c";
        let distinct = "SELECT DISTINCT c FROM sbtestN WHERE id BETWEEN ? AND ? ORDER BY c";
        let first = format!(
            "myrocks: {select} takes 1.410 times as long (95%: 1.400 to 1.420), the largest difference: +213 µs per \
             event"
        );
        let less = "takes 0.951 times as long (95%: 0.941 to 0.961): −15.2 µs";
        let mut other = report(3);
        assert_eq!(largest_differences(&other), [format!("{first}; but {distinct} {less}")]);
        let second = |report: &mut Report, ratio: f64| {
            let more = statement("COMMIT", 1.0, 310.0, ratio, Verdict::Worse);
            report.microbenchmarks[0].rows[0].statements[1] = more;
            largest_differences(report).remove(0)
        };
        let more = "takes 1.500 times as long (95%: 1.490 to 1.510): +155 µs";
        assert_eq!(second(&mut other, 1.5), format!("{first}; also COMMIT {more}"));
        assert_eq!(second(&mut other, 1.2), first, "less than half");
        other.microbenchmarks[0].rows[0].statements[1].verdict = Verdict::WithinNoise;
        assert_eq!(largest_differences(&other), [first]);
        let mut equal = report(3);
        equal.microbenchmarks[0].rows[0].statements[0].verdict = Verdict::WithinNoise;
        assert!(largest_differences(&equal).is_empty());
    }

    #[test]
    fn rare_statements_share_a_row() {
        let text = drawn(&report(13));
        assert!(text.contains("SET a = 12") && !text.contains("others"), "{text}");
        let text = drawn(&report(20));
        assert!(!text.contains("SET a = 12") && text.contains("8 others"), "{text}");
        let (name, csv) = tables(&report(20)).pop().unwrap();
        assert_eq!((name, csv.lines().count()), ("statements.csv", 1 + 20));
        let mut without = report(3);
        without.microbenchmarks[0].rows[0].statements.clear();
        assert!(tables(&without).iter().all(|(name, _)| *name != "statements.csv"));
    }

    #[test]
    fn statement_of_one_side_has_no_ratio() {
        let mut report = report(1);
        let one = &mut report.microbenchmarks[0].rows[0].statements[0];
        (one.baseline_us, one.relative) = (None, None);
        assert_eq!(relative(one), Cell::dash());
        one.baseline_us = Some(1.0);
        assert_eq!(relative(one).text, "few");
        one.relative = Some(sample::interval(Ratio::new(2.0), Ratio::new(1.9), Ratio::new(2.1)));
        assert_eq!(relative(one).text, "2.000");
    }
}
