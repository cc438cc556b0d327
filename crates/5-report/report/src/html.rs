//! The report as a self-contained HTML page that works offline and without scripts.
//!
//! Charts are inline SVG generated here: SVG from a chart library has fixed colours and cannot
//! follow dark mode, the toggles or the keyboard. All markup is written with maud, which escapes
//! text. The toggles are radio buttons evaluated by CSS, so they work without scripts; the script
//! only shows the details of a microbenchmark in a dialog and moves the focus with the arrow keys.
//! It reads the page's own elements, so that no data is in the page twice.

mod candidates;
pub(crate) mod charts;
mod details;
pub(crate) mod document;
mod inserts;
pub(crate) mod page;
mod results;
mod sweep;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::metric::Grouping;
use crate::model::{Metric, Report};
use crate::sections::builds::builds;
use crate::sections::key_results::summaries;
use crate::sections::operations::counters;
use crate::sections::overview::{optimizations, state_snapshots};
use crate::sections::series::{comes_first, effects, series};
use crate::sections::{Output, Section, groups};
use document::with_heading;
use page::{POLICY, SCRIPT, STYLE};

pub fn render(report: &Report) -> String {
    let page = |of: fn(&Report, Output) -> Section| document::section(&of(report, Output::Page));
    let results = if report.insert.is_some() { "#inserts" } else { "#comparison" };
    let body = html! {
        a.skip href=(results) { "Skip to the results" }
        (page::header(report))
        main {
            (page::failures_and_warnings(report))
            @if let Some(insert) = &report.insert {
                (page::legend_bar(report))
                (inserts::render(insert))
            } @else {
                (page::toolbar(report))
                @if !comes_first(report) { (results::render(report)) }
            }
            @if !report.microbenchmarks.is_empty() { (results_of_microbenchmarks(report)) }
            (page(builds))
            (candidates::render(report))
            (page(optimizations))
            (document::section(&state_snapshots(report)))
            (candidates::environment(report))
        }
        (page::footer(report))
        script { (PreEscaped(SCRIPT)) }
    };
    document(&report.name, body).into_string()
}

/// A complete HTML document with this body.
pub(crate) fn document(title: &str, body: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(*POLICY);
                meta name="color-scheme" content="light dark";
                link rel="icon" href="data:,";
                title { (title) " – dbdyno" }
                style { (PreEscaped(STYLE)) }
            }
            body { (document::definitions()) (body) }
        }
    }
}

/// All tables and charts of a run of microbenchmarks.
fn results_of_microbenchmarks(report: &Report) -> Markup {
    let page = |of: fn(&Report, Output) -> Section| document::section(&of(report, Output::Page));
    let tables = html! {
        (page::how_to_read(report))
        @for view in views(report) {
            div class=(view.class()) {
                (document::blocks(&groups::groups(report, view.metric, view.grouping)))
            }
        }
    };
    html! {
        (page(series))
        (sweep::render(report))
        (page(effects))
        @if comes_first(report) {
            @let all = html! { details { summary { "Every candidate relative to the baseline" } (tables) } };
            (with_heading("comparison", "Microbenchmarks", all))
        } @else {
            (with_heading("comparison", "Microbenchmarks", tables))
        }
        (group_summaries(report))
        (page(counters))
        (details::render(report))
    }
}

/// The summaries of groups, by view.
fn group_summaries(report: &Report) -> Markup {
    let content = html! {
        @for view in views(report) {
            @let section = summaries(report, view.metric, view.grouping, Output::Page);
            @if !section.blocks.is_empty() {
                div class=(view.class()) { (document::blocks(&section.blocks)) }
            }
        }
    };
    if content.0.is_empty() { content } else { with_heading("groups", "Groups", content) }
}

/// A combination of the two toggles.
#[derive(Clone, Copy)]
struct View {
    grouping: Grouping,
    metric: Metric,
}

impl View {
    /// The CSS classes that hide and show it.
    const fn class(self) -> &'static str {
        match (self.grouping, self.metric) {
            (Grouping::Five, Metric::Qps) => "view five qps",
            (Grouping::Five, Metric::Cpu) => "view five cpu",
            (Grouping::Three, Metric::Qps) => "view three qps",
            (Grouping::Three, Metric::Cpu) => "view three cpu",
        }
    }

    /// The same for content that does not depend on the metric.
    const fn class_of_grouping(self) -> &'static str {
        match self.grouping {
            Grouping::Five => "view five",
            Grouping::Three => "view three",
        }
    }
}

const VIEWS: [View; 4] = [
    View { grouping: Grouping::Five, metric: Metric::Qps },
    View { grouping: Grouping::Five, metric: Metric::Cpu },
    View { grouping: Grouping::Three, metric: Metric::Qps },
    View { grouping: Grouping::Three, metric: Metric::Cpu },
];

/// The views with data: without CPU times there is only one metric.
fn views(report: &Report) -> impl Iterator<Item = View> {
    VIEWS.into_iter().filter(|view| report.has(view.metric))
}

#[cfg(test)]
mod tests;
