//! Output of whole reports: widths, marks, exports.

use std::collections::BTreeSet;

use crate::inserts::{series_csv, steps_csv};
use crate::model::Report;
use crate::terminal::{TerminalOptions, render};
use crate::{html, sample};

fn drawn(report: &Report, width: usize) -> String {
    render(report, &TerminalOptions { width, color: false, three_groups: false, details: false })
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
        "repeat 1: write stalls in 6 seconds",
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
    insta::assert_snapshot!(part.join("\n"));
}

#[test]
fn names_that_differ_at_the_end_are_distinct() {
    let names = ["postgresql-of-debian-14", "postgresql-of-debian-15", "postgresql-of-debian-18"];
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
fn exports_have_their_columns_in_every_line() {
    let report = sample::inserts();
    let insert = report.insert.unwrap();
    for (text, columns) in [(steps_csv(&insert), 48), (series_csv(&insert), 25)] {
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        assert_eq!(reader.headers().unwrap().len(), columns);
        let lines = reader.records().map(Result::unwrap).count();
        assert!(lines >= 3 * 3 * 2, "{lines}");
    }
    let first = steps_csv(&insert);
    assert!(first.starts_with("step,candidate,repeat,clients,tables,rows,seconds,ips,qps,"));
    assert!(series_csv(&insert).starts_with("step,candidate,repeat,second,"));
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
