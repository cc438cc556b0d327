//! Where and how the run was measured: host, settings, the experiment file.

use maud::{Markup, html};

use super::elements::{pairs, section};
use crate::model::Report;

pub(super) fn render(report: &Report) -> Markup {
    let title = if report.is_imported() { "Imported files" } else { "Experiment file" };
    html! {
        div.grid.two {
            (facts("host", "Host", &report.host))
            (facts("settings", "Settings", &report.settings))
        }
        (section("experiment", title, html! { pre tabindex="0" { (report.experiment_text) } }))
    }
}

fn facts(id: &str, title: &str, facts: &[(String, String)]) -> Markup {
    let content = html! {
        @if facts.is_empty() {
            p.muted { "Nothing recorded." }
        } @else {
            dl.pairs.card { (pairs(facts)) }
        }
    };
    section(id, title, content)
}
