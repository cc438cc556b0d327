//! Main effects of the settings of matrices, and certain interactions.

use maud::{Markup, html};

use super::elements::{breakable, scrollable, section};
use super::verdict::{class, sign};
use crate::effects::{EffectTable, KEY, tables};
use crate::figures::{plus_minus, ratio};
use crate::metric::Metric;
use crate::model::{Effect, Report};

/// The section; nothing without a matrix.
pub(super) fn render(report: &Report) -> Markup {
    let tables = tables(report);
    if tables.is_empty() {
        return Markup::default();
    }
    let content = html! {
        p.muted { (KEY) }
        @for one in &tables {
            h3 {
                "Settings of " (breakable(one.matrix))
                " " small { "ratios of QPS, above 1 is better" }
            }
            (table(one))
            @for sentence in &one.interactions { p { (sentence) } }
        }
    };
    section("effects", "Effects of settings", content)
}

fn table(of: &EffectTable<'_>) -> Markup {
    let means = of.means();
    let content = html! {
        table.groups {
            caption.hidden { "Effects of the settings of " (of.matrix) " by microbenchmark" }
            thead { tr {
                th scope="col" { "Microbenchmark" }
                @for change in &of.changes {
                    th.num scope="col" {
                        (breakable(&change.setting)) " " (change.value) "/" (change.reference)
                    }
                }
            } }
            tbody {
                @for (name, effects) in &of.rows {
                    tr {
                        th scope="row" { (breakable(name)) }
                        @for effect in effects { td.num { (cell(effect)) } }
                    }
                }
                @if means.iter().any(Option::is_some) {
                    tr {
                        th scope="row" { "Geometric mean" }
                        @for mean in &means {
                            td.num { @if let Some(mean) = mean { (ratio(*mean)) } }
                        }
                    }
                }
            }
        }
    };
    scrollable(&format!("Effects of the settings of {}", of.matrix), content)
}

fn cell(effect: &Effect) -> Markup {
    html! {
        span class=(class(effect.verdict)) {
            @if let Some(estimate) = effect.relative_qps { b { (ratio(estimate.median)) } }
            " " (sign(effect.verdict, Metric::Qps))
        }
        @if let Some(estimate) = effect.relative_qps { small { " " (plus_minus(estimate)) } }
    }
}
