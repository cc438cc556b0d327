//! The insert benchmark: figures of each step, response times, and throughput over time.

mod charts;
mod export;
mod findings;
mod step;

use dbdyno_text::{Cell, Column, Mark, Row, Table};

use super::{Output, Section};
use crate::figures::compact;
use crate::model::{
    CandidateStep, INSERT_METRICS, InsertReport, Role, StepReport, StepRun, by_key, distinct,
};
use crate::words;
use crate::words::joined;

pub(crate) use export::{series_csv, steps_csv};
pub(crate) use findings::{Extent, conclusions, findings, key_results, rates, stalls};
pub(crate) use step::{remarks, step};

/// Maximum width of a candidate's name on a terminal.
const NAME: usize = 16;

/// What a reader must know before figures are compared.
pub(crate) fn introduction(report: &InsertReport, output: Output) -> Section {
    let mut section = Section::new("inserts", "");
    let orders: Vec<String> =
        report.order.iter().filter(|names| names.len() > 1).map(|names| names.join(", ")).collect();
    let about = words::insert_benchmark(report);
    if output == Output::Page {
        let order = joined(orders, "; then ");
        let order = order.map(|order| format!(" Order, drawn from the seed: {order}."));
        let order = order.unwrap_or_default();
        section.note(format!(
            "{about}{order} Background work that an engine defers in one step therefore slows down \
             only its own later steps."
        ));
        return section;
    }
    section.note(about);
    for (number, names) in (1..).zip(orders) {
        section.note(format!("Order {number}: {names}"));
    }
    section
}

type Steps<'a> = Vec<(&'a StepReport, &'a CandidateStep)>;

/// The steps of each candidate.
fn by_candidate(report: &InsertReport) -> Vec<(&str, Steps<'_>)> {
    by_key(report.steps.iter().flat_map(|step| {
        step.candidates.iter().map(move |one| (one.candidate.as_str(), (step, one)))
    }))
}

pub(crate) const fn mark(candidate: &CandidateStep) -> Mark {
    match candidate.role {
        Role::Baseline => Mark::Baseline,
        Role::Candidate => Mark::Candidate(candidate.index),
        Role::Control => Mark::Control,
    }
}

/// The runs of a step, those of a candidate one after another.
fn runs(step: &StepReport) -> impl Iterator<Item = (&CandidateStep, &StepRun)> {
    step.candidates.iter().flat_map(|one| one.repeats.iter().map(move |run| (one, run)))
}

pub(crate) fn name(candidate: &CandidateStep) -> Cell {
    Cell::text(&candidate.candidate).mark(mark(candidate))
}

pub(crate) fn key(report: &InsertReport) -> String {
    let metrics = INSERT_METRICS.iter().map(|one| format!("{}: {}. ", one.name, one.what));
    metrics.collect::<String>() + &words::insert_definitions(report)
}

/// The throughput of each step and candidate, for Markdown.
pub(crate) fn markdown(report: &InsertReport) -> Section {
    let mut section = Section::new("inserts", "Insert benchmark");
    let all = report.steps.iter().flat_map(|step| &step.candidates);
    let names = distinct(all.map(|one| one.candidate.as_str()));
    let labels = [Column::name("step"), Column::text("work"), Column::text("metric")];
    let mut table =
        Table::new(labels.into_iter().chain(names.iter().map(|one| Column::number(*one))));
    for step in &report.steps {
        for metric in ["ips", "qps", "maxop", "cpupq"] {
            let value = |name: &&str| {
                let candidate = step.candidates.iter().find(|one| one.candidate == **name)?;
                let value = compact(candidate.figures.get(metric)?);
                let ratio = candidate.relative.as_ref().and_then(|relative| relative.get(metric));
                let ratio = ratio.map_or_else(String::new, |ratio| format!(" ({ratio:.2})"));
                Some(format!("{value}{ratio}"))
            };
            let values: Vec<Option<String>> = names.iter().map(value).collect();
            if values.iter().any(Option::is_some) {
                let labels = [step.name.as_str(), &step.what, metric].map(Cell::text);
                table
                    .push(Row::new(labels.into_iter().chain(values.into_iter().map(Cell::number))));
            }
        }
    }
    section.note(words::insert_benchmark(report));
    section.push(table);
    section.note(
        "Ratios to the baseline in parentheses. ips: rows inserted per second; qps: queries per \
         second; maxop: the longest response time in seconds; cpupq: µs of CPU per query or row.",
    );
    section
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::model::Report;
    use crate::terminal::{TerminalOptions, render};
    use crate::{html, sample};

    fn drawn(report: &Report, width: usize) -> String {
        render(
            report,
            &TerminalOptions { width, color: false, three_groups: false, details: false },
        )
    }

    #[test]
    fn nothing_is_wider_than_the_terminal() {
        let report = sample::inserts();
        for width in [80, 100, 132] {
            for line in drawn(&report, width).lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn the_report_says_what_must_be_known_before_figures_are_compared() {
        let text = drawn(&sample::inserts(), 80);
        let words: Vec<&str> = text.split_whitespace().collect();
        let text = words.join(" ");
        for said in [
            "Candidates ran one after another",
            "Order 2: myrocks-with-a-long-name, postgresql, innodb",
            "! myrocks-with-a-long-name, repeat 1: the rate was not sustained",
            "its qps cannot be compared",
            "repeat 1: inserts stalled in 6 seconds; the longest insert took 1.9 s",
            "! myrocks-with-a-long-name, repeat 1: queries stalled in 6 seconds",
            "queries did not stall, the longest took 4 ms",
            "key results compared with innodb",
            "61.3% more rows/s (59.9% to 62.8%); 37.9% less CPU per row",
            "postgresql, repeat 2: went on after an interruption",
            "greatest",
        ] {
            assert!(text.contains(said), "`{said}` is missing in\n{text}");
        }
        // Candidates without a problem have no mark.
        assert!(!text.contains("! innodb,") && !text.contains("! postgresql,"));
    }

    #[test]
    fn a_table_in_80_columns() {
        let text = drawn(&sample::inserts(), 80);
        let part: Vec<&str> =
            text.lines().skip_while(|line| !line.starts_with("l.i1")).take(16).collect();
        insta::assert_snapshot!(part.join("\n"), @r#"
l.i1: each client inserts 1600000 rows, 50 per commit
absolute            ips    p50    p99  maxop  cpupq  ccpupq  cspq   rps  rmbps
──────────────────────────────────────────────────────────────────────────────
innodb            20.2k  20.2k  18.6k  0.029   37.2    2.98  0.47  14.6   0.16
myrocks-…ng-name  32.5k  33.1k    659   1.90   23.1    1.84  0.29  14.7   0.16
postgresql        25.2k  25.2k  23.6k  0.029   29.8    2.38  0.38  14.6   0.16
relative
myrocks-…ng-name   1.61   1.64   0.04   65.5   0.62    0.62  0.62  1.01   1.00
  least            1.61   1.64   0.04   65.5   0.62    0.62  0.62  0.99   1.00
  greatest         1.61   1.64   0.04   65.5   0.62    0.62  0.62  1.02   1.00
postgresql         1.25   1.25   1.27   1.00   0.80    0.80  0.80  1.00   1.00
  least            1.25   1.25   1.27   1.00   0.80    0.80  0.80  0.99   1.00
  greatest         1.25   1.25   1.27   1.00   0.80    0.80  0.80  1.00   1.00
absolute           wps  wmbps   rpq   rkbpq    wpi  wkbpi   csps  cpups  dbgb
─────────────────────────────────────────────────────────────────────────────
innodb             810   36.3  7e-4  0.0081  0.040   1.80  9.51k   75.1  3.35
"#);
    }

    #[test]
    fn names_that_differ_at_the_end_are_distinct() {
        let names =
            ["postgresql-of-debian-14", "postgresql-of-debian-15", "postgresql-of-debian-18"];
        let mut report = sample::inserts();
        let steps = &mut report.insert.as_mut().unwrap().steps;
        for one in steps.iter_mut().flat_map(|step| step.candidates.iter_mut().zip(names)) {
            one.0.candidate = one.1.to_owned();
        }
        let text = drawn(&report, 80);
        let labels = |of: &dyn Fn(&&str) -> bool| -> BTreeSet<String> {
            text.lines().filter(of).map(|line| line.chars().take(16).collect()).collect()
        };
        let bars = labels(&|line| line.contains('█') || line.contains('▇'));
        assert_eq!(bars.len(), names.len(), "{bars:?}");
        for kind in [" inserts ", " queries "] {
            let shares = labels(&|line| line.contains('…') && line.contains(kind));
            assert_eq!(shares.len(), names.len(), "{shares:?} in\n{text}");
        }
    }

    #[test]
    fn page_has_a_line_per_repeat_and_a_marker_per_stall() {
        let page = html::render(&sample::inserts());
        let step = page.split("id=\"step-q1000\"").nth(1).unwrap();
        let chart = step.split("<figure>").nth(1).unwrap().split("</figure>").next().unwrap();
        assert_eq!(chart.matches("<polyline").count(), 6);
        // Two charts of inserts, with six stalls in each of two repeats, in two steps.
        assert_eq!(page.matches("class=\"stall\"").count(), 2 * 2 * 6 * 2);
        assert!(page.contains("rate not sustained"));
    }
}
