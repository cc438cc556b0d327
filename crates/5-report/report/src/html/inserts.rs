//! The insert benchmark on the page: throughput of all steps relative to the baseline as bars, then
//! tables and charts of each step.

use dbdyno_text::{Cell, Column, Row, Table};
use maud::{Markup, html};

use super::document::{self, with_heading};
use crate::charts::{self, Scale, colour, percent};
use crate::figures::tiny;
use crate::metric::clients;
use crate::model::{CandidateStep, INSERT_METRICS, InsertReport, Role, StepReport};
use crate::sections::Output;
use crate::sections::inserts::{findings, introduction, mark, name, remarks, step};
use crate::words;

pub(super) fn render(report: &InsertReport) -> Markup {
    let content = html! {
        (document::blocks(&introduction(report, Output::Page).blocks))
        @if report.steps.is_empty() { p { (words::NOTHING_MEASURED) } }
        (relative_bars(report))
        @for step in &report.steps { (step_section(step)) }
    };
    html! {
        @if !report.steps.is_empty() { (with_heading("key", "Key results", key_results(report))) }
        (with_heading("inserts", "Insert benchmark", content))
        @if !report.steps.is_empty() { (with_heading("metrics", "Metrics", definitions(report))) }
    }
}

/// What was found about each candidate in each step, in the colour of its throughput.
fn key_results(report: &InsertReport) -> Markup {
    html! {
        div.findings {
            @for (candidate, findings) in findings(report) {
                h3 { (document::label(mark(candidate), &candidate.candidate)) }
                ul {
                    @for finding in &findings {
                        li.(finding.tone.map_or("noise", charts::class)) {
                            span.group { (finding.step) } " "
                            div {
                                @if !finding.words.is_empty() { b { (finding.words) } }
                                @if !finding.words.is_empty() && !finding.stalls.is_empty() { "; " }
                                (finding.stalls)
                            }
                        }
                    }
                }
            }
        }
    }
}

fn step_section(one: &StepReport) -> Markup {
    let name = &one.name;
    let remarks = remarks(one);
    html! {
        section.step id={ "step-" (name) } aria-labelledby={ "h-step-" (name) } {
            h3 id={ "h-step-" (name) } { (name) " " small { (one.what) } }
            @if !remarks.is_empty() {
                div.note.warning { ul {
                    @for remark in &remarks { li { (remark.trim_start_matches("! ")) } }
                } }
            }
            (document::blocks(&step(one, Output::Page, 0).blocks))
        }
    }
}

fn definitions(report: &InsertReport) -> Markup {
    html! {
        dl.pairs.meanings {
            @for metric in INSERT_METRICS { div { dt { (metric.name) } dd { (metric.what) } } }
        }
        p.muted { (words::insert_definitions(report)) }
    }
}

const ROW: u32 = 22;

/// A bar per step and candidate; nothing with a baseline only.
fn relative_bars(report: &InsertReport) -> Markup {
    let bars: Vec<Bar<'_>> = report.steps.iter().flat_map(bars).collect();
    if bars.is_empty() {
        return Markup::default();
    }
    let values = bars.iter().flat_map(|bar| {
        let (low, high) = bar.range.unwrap_or((bar.ratio, bar.ratio));
        [bar.ratio, low, high]
    });
    let scale = Scale::covering(values);
    let tables = if report.tables == 1 { "table" } else { "tables" };
    let title = "Throughput relative to the baseline";
    let columns = [Column::group("Step"), Column::name("Candidate"), Column::number("Ratio")];
    let mut table = Table::new(columns).class("relatives").caption(title);
    for bar in &bars {
        let step = Cell::text(bar.step).link(format!("step-{}", bar.step)).note(bar.unit);
        let mut ratio = Cell::text(tiny(bar.ratio));
        if !bar.sustained {
            ratio = ratio.note("rate not sustained");
        }
        table.push(Row::new([step, name(bar.candidate), ratio]));
    }
    let charts = bars.iter().map(|bar| bar.chart(&scale)).collect();
    html! {
        h3 { (title) ", " (clients(report.clients)) " on " (report.tables) " " (tables) }
        (document::table_with_charts(&table, Some((charts::column_head(&scale), charts))))
    }
}

struct Bar<'a> {
    step: &'a str,
    unit: &'static str,
    candidate: &'a CandidateStep,
    ratio: f64,
    /// The least and the greatest ratio of the repeats.
    range: Option<(f64, f64)>,
    /// Whether the rate of inserts was sustained by the candidate and the baseline.
    sustained: bool,
}

fn bars(step: &StepReport) -> Vec<Bar<'_>> {
    let Some(unit) = step.throughput() else { return Vec::new() };
    let all = step.candidates.iter();
    let baseline_missed = all.clone().any(|one| one.role == Role::Baseline && one.misses_rate());
    let bars = all.filter_map(|candidate| {
        let range = candidate.relative_spread.as_ref();
        Some(Bar {
            step: &step.name,
            unit,
            candidate,
            ratio: candidate.relative.as_ref()?.get(unit)?,
            range: range.and_then(|(low, high)| Some((low.get(unit)?, high.get(unit)?))),
            sustained: !baseline_missed && !candidate.misses_rate(),
        })
    });
    bars.collect()
}

impl Bar<'_> {
    fn chart(&self, scale: &Scale) -> Markup {
        let (one, end) = (scale.clamped(1.0), scale.clamped(self.ratio));
        let width = (end - one).abs().max(0.15);
        html! {
            svg.lanes aria-hidden="true" {
                (scale.grid(None))
                g.{ (colour(mark(self.candidate))) } {
                    rect.value x=(percent(one.min(end))) width=(percent(width)) y="4"
                        height=(ROW - 8) {}
                    @if let Some((low, high)) = self.range {
                        line.whisker x1=(percent(scale.clamped(low)))
                            x2=(percent(scale.clamped(high))) y1=(ROW / 2) y2=(ROW / 2) {}
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Report;
    use crate::sample;

    #[test]
    fn only_the_difference_has_the_colour_of_the_throughput() {
        let Report { insert: Some(report), .. } = sample::inserts() else { panic!("no report") };
        let page = key_results(&report).into_string();
        assert!(
            page.contains(
                "</b>; inserts stalled in 12 of 600 seconds, the longest insert took 1.9 s"
            ),
            "{page}"
        );
    }
}
