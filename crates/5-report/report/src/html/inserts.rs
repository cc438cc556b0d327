//! The insert benchmark on the page: throughput of all steps relative to the baseline as bars, then
//! tables and charts of each step.

use maud::{Markup, html};

use super::charts::{Scale, percent};
use super::document;
use super::elements::{Marker, scrollable, section};
use crate::metric::clients;
use crate::model::{INSERT_METRICS, InsertReport, Role, StepReport};
use crate::sections::Output;
use crate::sections::inserts::{introduction, ratio_text, remarks, step};
use crate::words;

pub(super) fn render(report: &InsertReport) -> Markup {
    let content = html! {
        @for text in introduction(report, Output::Page) { p.muted { (document::spans(&text)) } }
        @if report.steps.is_empty() { p { (words::NOTHING_MEASURED) } }
        (relative_bars(report))
        @for step in &report.steps { (step_section(step)) }
    };
    html! {
        (section("inserts", "Insert benchmark", content))
        @if !report.steps.is_empty() { (section("metrics", "Metrics", definitions(report))) }
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

/// Pixels of a bar's row.
const ROW: u32 = 22;

/// Draws the chart; nothing with a baseline only.
fn relative_bars(report: &InsertReport) -> Markup {
    let steps: Vec<(&StepReport, Vec<Bar<'_>>)> = report
        .steps
        .iter()
        .map(|step| (step, bars(step)))
        .filter(|(_, bars)| !bars.is_empty())
        .collect();
    if steps.is_empty() {
        return Markup::default();
    }
    let values = steps.iter().flat_map(|(_, bars)| bars).flat_map(|bar| {
        let (low, high) = bar.range.unwrap_or((bar.ratio, bar.ratio));
        [bar.ratio, low, high]
    });
    let scale = Scale::covering(values);
    let tables = if report.tables == 1 { "table" } else { "tables" };
    let content = html! {
        table.relatives {
            caption {
                "Throughput relative to the baseline, " (clients(report.clients)) " on "
                (report.tables) " " (tables)
            }
            thead { tr {
                th scope="col" { "Step" }
                th scope="col" { "Candidate" }
                th.num scope="col" { "Ratio" }
                th.chart scope="col" {
                    span.hidden { "Chart of the ratios" }
                    svg.axis aria-hidden="true" { (scale.labels(13)) }
                }
            } }
            @for (step, bars) in &steps {
                tbody {
                    @for (index, bar) in bars.iter().enumerate() {
                        tr {
                            @if index == 0 {
                                th.group scope="rowgroup" rowspan=(bars.len()) {
                                    a href={ "#step-" (step.name) } { (step.name) }
                                    " " small { (bar.unit) }
                                }
                            }
                            (bar.cells(&scale))
                        }
                    }
                }
            }
        }
    };
    scrollable("Throughput relative to the baseline", content)
}

struct Bar<'a> {
    unit: &'static str,
    candidate: &'a str,
    marker: Marker,
    ratio: f64,
    /// The least and the greatest ratio of the repeats.
    range: Option<(f64, f64)>,
    /// Whether the rate of inserts was sustained by the candidate and the baseline.
    sustained: bool,
}

fn bars(step: &StepReport) -> Vec<Bar<'_>> {
    let Some(unit) = step.throughput() else { return Vec::new() };
    let baseline_sustained = !step
        .candidates
        .iter()
        .any(|one| one.role == Role::Baseline && one.sustained() == Some(false));
    step.candidates
        .iter()
        .filter_map(|candidate| {
            let range = candidate.relative_spread.as_ref();
            Some(Bar {
                unit,
                candidate: &candidate.candidate,
                marker: Marker::new(candidate.index, candidate.role),
                ratio: candidate.relative.as_ref()?.get(unit)?,
                range: range.and_then(|(low, high)| Some((low.get(unit)?, high.get(unit)?))),
                sustained: baseline_sustained && candidate.sustained() != Some(false),
            })
        })
        .collect()
}

impl Bar<'_> {
    fn cells(&self, scale: &Scale) -> Markup {
        html! {
            td { (self.marker.label(self.candidate)) }
            td.num {
                b { (ratio_text(self.ratio)) }
                @if !self.sustained {
                    " " abbr.worse title="the insert rate was not sustained" { "!" }
                }
            }
            td.chart { (self.chart(scale)) }
        }
    }

    fn chart(&self, scale: &Scale) -> Markup {
        let (one, end) = (scale.clamped(1.0), scale.clamped(self.ratio));
        let width = (end - one).abs().max(0.15);
        html! {
            svg.lanes aria-hidden="true" {
                (scale.grid(None))
                g.{ (self.marker.class()) } {
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
