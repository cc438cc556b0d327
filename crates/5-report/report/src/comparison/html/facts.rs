//! What differs between the runs: settings, versions, builds, the machine.

use maud::{Markup, html};

use crate::comparison::{Comparison, Fact};
use crate::html::elements::{breakable, or_dash, section};

/// Nothing for a comparison without runs.
pub(super) fn render(comparison: &Comparison) -> Markup {
    let facts = &comparison.facts;
    let content = html! {
        @if facts.different.is_empty() {
            p { "No recorded setting, version, build or fact about the machine differs." }
        } @else {
            (table(comparison, "What differs", &facts.different))
        }
        @if !facts.momentary.is_empty() {
            h3 { "State of the machines at the start" }
            (table(comparison, "State of the machines", &facts.momentary))
        }
        @if !facts.equal.is_empty() {
            p.muted { "Equal: " (facts.equal.join("; ")) "." }
        }
        @if !facts.incomplete.is_empty() {
            p.muted { "Recorded by some of the runs only: " (facts.incomplete.join("; ")) "." }
        }
    };
    html! {
        @if !comparison.runs.is_empty() { (section("differences", "What differs", content)) }
    }
}

fn table(comparison: &Comparison, label: &str, facts: &[Fact]) -> Markup {
    html! {
        div.scroll.cards tabindex="0" role="region" aria-label=(label) {
            table.groups.differing {
                thead { tr {
                    th scope="col" { "Fact" }
                    @for run in &comparison.runs { th scope="col" { (run.label) } }
                } }
                tbody {
                    @for fact in facts {
                        tr {
                            th scope="row" { (breakable(&fact.what)) }
                            @for (run, value) in comparison.runs.iter().zip(&fact.values) {
                                td.at data-c=(run.label) { (path(&or_dash(value.as_ref()))) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A text in which lines may also break after `/`.
pub(super) fn path(text: &str) -> Markup {
    html! {
        @for (index, part) in text.split_inclusive('/').enumerate() {
            @if index > 0 { wbr; }
            (breakable(part))
        }
    }
}
