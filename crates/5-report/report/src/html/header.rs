//! The top of the page: name, status, a strip of facts, the toggles and the legend.

use maud::{Markup, html};

use super::marker::Marker;
use crate::metric::{Metric, clients, compared};
use crate::model::{Report, Role, RunStatus};
use crate::words::{self, readable_time};

pub(super) fn header(report: &Report) -> Markup {
    let class = match report.status {
        RunStatus::Complete => "complete",
        RunStatus::Incomplete => "incomplete",
    };
    html! {
        header {
            p.brand { "dbdyno " (report.version) }
            h1 { (report.name) }
            p.status.(class) { (words::status(report)) }
            dl.strip {
                @for (label, value) in facts(report) { div { dt { (label) } dd { (value) } } }
            }
        }
    }
}

fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let baseline = report.candidates.iter().find(|candidate| candidate.role == Role::Baseline);
    let count = compared(report).iter().filter(|one| one.role == Role::Candidate).count();
    let candidates = match count {
        1 => "1 candidate".to_owned(),
        count => format!("{count} candidates"),
    };
    let (work, spread) = match &report.insert {
        Some(insert) => {
            let spread = match insert.repeats {
                1 => "unknown: one repeat".to_owned(),
                repeats => format!("over {repeats} repeats, in every table"),
            };
            ("insert benchmark".to_owned(), ("Spread", spread))
        }
        None => {
            let noise = match &report.noise {
                Some(noise) => format!("{} typical, {} at most", noise.typical, noise.greatest),
                None if report.has_control() => "unknown: no interval of the control".to_owned(),
                None => "unknown: no control".to_owned(),
            };
            (microbenchmarks(report), ("Noise floor", noise))
        }
    };
    let times = report.times().map_or_else(
        || "unknown".to_owned(),
        |(measuring, elapsed)| match elapsed {
            Some(elapsed) => format!("{measuring} of {elapsed}"),
            None => measuring.to_string(),
        },
    );
    let mut facts = vec![("Started", readable_time(&report.started)), ("Time measured", times)];
    // Six facts fill the strip at every width.
    let system = baseline.map_or_else(String::new, |baseline| baseline.system_title());
    let compared = ("Compared", format!("{candidates}, {work}"));
    match words::workload(report) {
        Some(workload) => {
            let baseline = ("Baseline", format!("{}, {system}", report.baseline));
            facts.extend([baseline, compared, ("Workload", workload)]);
        }
        None => {
            let baseline = ("Baseline", report.baseline.clone());
            facts.extend([baseline, ("System", system), compared]);
        }
    }
    facts.push(spread);
    facts
}

/// The number of microbenchmarks, with the numbers of clients in a sweep.
fn microbenchmarks(report: &Report) -> String {
    let mut names: Vec<&str> = report.microbenchmarks.iter().map(|m| m.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let count = match names.len() {
        1 => "1 microbenchmark".to_owned(),
        count => format!("{count} microbenchmarks"),
    };
    let steps = report.clients();
    match &steps[..] {
        [first, .., last] => format!("{count}, {first} to {}", clients(*last)),
        _ => count,
    }
}

/// The toggles and the legend, which stay in view.
pub(super) fn toolbar(report: &Report) -> Markup {
    html! {
        div.toolbar {
            @if Metric::Cpu.is_known(report) {
                @let leading = usize::from(Metric::leading(report) == Metric::Cpu);
                @let metrics = [("t-qps", "QPS"), ("t-cpu", "CPU per query")];
                (toggle("Metric", "metric", metrics, leading))
            }
            (toggle("Groups", "groups", [("t-five", "five"), ("t-three", "three")], 0))
            (legend(report))
        }
    }
}

/// A choice of two, with the one at `set`.
fn toggle(label: &str, name: &str, choices: [(&str, &str); 2], set: usize) -> Markup {
    html! {
        fieldset {
            legend { (label) }
            @for (index, (id, text)) in choices.into_iter().enumerate() {
                input type="radio" name=(name) id=(id) checked[index == set];
                label for=(id) { (text) }
            }
        }
    }
}

/// The legend of an insert benchmark, which has no toggles.
pub(super) fn legend_bar(report: &Report) -> Markup {
    html! { div.toolbar { (legend(report)) } }
}

/// The candidates' markers; in an insert benchmark the baseline has its own lines, too.
fn legend(report: &Report) -> Markup {
    html! {
        ul.legend aria-label="Markers of the candidates" {
            @if report.insert.is_some() {
                li { (Marker::new(0, Role::Baseline).inline()) (report.baseline) " (baseline)" }
            }
            @for (index, candidate) in compared(report).into_iter().enumerate() {
                li { (Marker::new(index, candidate.role).inline()) (candidate.name) }
            }
        }
    }
}
