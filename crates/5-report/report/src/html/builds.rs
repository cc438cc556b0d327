//! Builds: what compilers recorded, and how command lines differ.

use dbdyno_results::{CommandLineDifference, CommandLinesRecord};
use dbdyno_units::Bytes;
use maud::{Markup, html};

use super::elements::{breakable, or_dash, scrollable, section};
use super::marker::Marker;
use crate::builds::{Audited, Property, Value, audited, files, relative, signed, unmatched};
use crate::model::Report;
use crate::words::{NO_COMMON_FILE, SAME_FLAGS, build_remarks};

pub(super) fn render(report: &Report) -> Markup {
    let builds = audited(report);
    if builds.is_empty() {
        return Markup::default();
    }
    let content = html! {
        p.muted {
            "Compiler settings recorded in the objects of each build. Small text below a value \
             lists settings of only some of the objects. Sizes are relative to the baseline’s."
        }
        (table(report, &builds))
        @if builds.iter().any(|build| build.audit.against_baseline.is_some()) {
            h3 { "Command lines compared with " (report.baseline) }
            div.lines {
                @for build in &builds {
                    @if let Some(lines) = &build.audit.against_baseline {
                        h4 { (label(report, build)) }
                        (differences(lines))
                    }
                }
            }
        }
    };
    section("builds", "Builds", content)
}

fn label(report: &Report, build: &Audited<'_>) -> Markup {
    let candidate = build.candidate;
    Marker::of(report, &candidate.name, candidate.role).label(&candidate.name)
}

fn table(report: &Report, builds: &[Audited<'_>]) -> Markup {
    let is_number = |property| property == Property::Objects;
    let baseline = builds.first().map(|baseline| baseline.build);
    let content = html! {
        table.builds {
            thead { tr {
                th scope="col" { "Candidate" }
                @for property in Property::ALL {
                    th.num[is_number(property)] scope="col" { (property.title()) }
                }
                @for title in ["text", "stripped"] { th.num scope="col" { (title) } }
            } }
            tbody {
                @for (index, build) in builds.iter().enumerate() {
                    @let other = baseline.filter(|_| index > 0);
                    @let (text, stripped) = (Some(build.build.text_size), build.build.stripped_size);
                    tr {
                        th scope="row" {
                            (label(report, build))
                            @for remark in build_remarks(build) { small { (remark) } }
                        }
                        @for property in Property::ALL {
                            @let Value { most, rest } = property.of(build.audit);
                            td.num[is_number(property)] {
                                (most)
                                @for text in rest { small { (text) } }
                            }
                        }
                        (size(text, other.map(|other| other.text_size)))
                        (size(stripped, other.and_then(|other| other.stripped_size)))
                    }
                }
            }
        }
    };
    scrollable("Builds", content)
}

/// A size: relative to the baseline's where that is known, with the absolute one below.
fn size(own: Option<Bytes>, baseline: Option<Bytes>) -> Markup {
    html! {
        td.num {
            @match relative(own, baseline) {
                Some(relative) => { (relative) small { (or_dash(own)) } }
                None => { (or_dash(own)) }
            }
        }
    }
}

/// How one build's command lines differ from the baseline's.
fn differences(lines: &CommandLinesRecord) -> Markup {
    let CommandLinesRecord { compared, same, only_here, only_in_baseline, kinds } = lines;
    let row = |count: &str, what: Markup| {
        html! { tr { th scope="row" { (count) } td { (what) } } }
    };
    html! {
        table.kinds { tbody {
            @if *compared == 0 {
                (row("–", html! { (NO_COMMON_FILE) }))
            }
            @if *same > 0 { (row(&files(*same), html! { (SAME_FLAGS) })) }
            @for kind in kinds { (row(&files(kind.files), flags(kind, *compared))) }
            @if let Some(text) = unmatched(*only_here, *only_in_baseline) {
                (row("–", html! { (text) }))
            }
        } }
    }
}

/// The flags that differ; names of files if it is at most half of them.
fn flags(kind: &CommandLineDifference, compared: u64) -> Markup {
    html! {
        @for (sign, flag) in signed(kind) { code { (sign) " " (flag) } " " }
        @if kind.files * 2 <= compared {
            small {
                @for (index, file) in kind.examples.iter().enumerate() {
                    @if index > 0 { ", " }
                    (breakable(file))
                }
                @if (kind.examples.len() as u64) < kind.files { ", …" }
            }
        }
    }
}
