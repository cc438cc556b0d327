//! Throughput relative to the baseline, step by step: one bar per candidate.

use maud::{Markup, html};

use crate::html::elements::scrollable;
use crate::html::marker::Marker;
use crate::html::scale::{Scale, percent};
use crate::inserts::terminal::ratio_text;
use crate::metric::clients;
use crate::model::Role;
use crate::model::{InsertReport, StepReport};

/// Pixels of a bar's row.
const ROW: u32 = 22;

/// Draws the chart; nothing with a baseline only.
pub(super) fn render(report: &InsertReport) -> Markup {
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
