//! State snapshots: a table per point of the run.

use dbdyno_units::grouped;
use maud::{Markup, html};

use super::elements::{breakable, or_dash, scrollable, section};
use crate::model::{Report, StateSnapshots};

pub(super) fn render(report: &Report) -> Markup {
    if report.state_snapshots.is_empty() {
        return Markup::default();
    }
    let content = html! {
        p.muted {
            "What every instance reported about its data after settling. Candidates are \
             comparable if they were measured from similar states."
        }
        @for (index, snapshots) in report.state_snapshots.iter().enumerate() {
            details.figures open[index == 0] {
                summary { (snapshots.at) }
                (table(snapshots))
            }
        }
    };
    section("state-snapshots", "State snapshots", content)
}

fn table(snapshots: &StateSnapshots) -> Markup {
    let content = html! {
        table.facts {
            thead { tr {
                th scope="col" { "State" }
                @for candidate in &snapshots.candidates {
                    th.num scope="col" { (breakable(candidate)) }
                }
            } }
            tbody {
                @for (name, values) in &snapshots.state {
                    tr {
                        th scope="row" { (breakable(name)) }
                        @for value in values { td.num { (or_dash(value.map(grouped))) } }
                    }
                }
            }
        }
    };
    scrollable(&format!("States {}", snapshots.at), content)
}
