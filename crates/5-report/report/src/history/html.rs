//! The history as a self-contained HTML page, styled like a report.

mod chart;

use maud::{Markup, html};

use super::{Figure, FigureChange, FigureHistory, History, words};
use crate::html::document;
use crate::html::elements::{breakable, scrollable, section};
use crate::html::marker::Marker;
use crate::html::notes::note;
use crate::html::verdict::{class, sign};
use crate::metric::{Metric, clients};
use crate::model::Role;
use crate::words::readable_time;

/// Render the page.
#[must_use]
pub fn html(history: &History) -> String {
    let notes = html! { @for note in &history.notes { li { (note) } } };
    let body = html! {
        header {
            p.brand { "dbdyno" }
            h1 { "History of " (breakable(&history.name)) }
        }
        main.history {
            (note("warning", "notes", "Differences between the runs", notes))
            (section("changes", "Changes", changes(history)))
            (section("groups", "Groups", groups(history)))
            (changed_microbenchmarks(history))
            (section("runs", "Runs", runs(history)))
        }
    };
    document(&format!("History of {}", history.name), body).into_string()
}

/// Colour and shape of a candidate.
fn marker(history: &History, candidate: &str) -> Marker {
    let index = history.candidates().iter().position(|name| *name == candidate);
    Marker::new(index.unwrap_or(0), Role::Candidate)
}

fn changes(history: &History) -> Markup {
    html! {
        p.muted { (words::about(history)) }
        @if let Some(text) = words::left_out(history) { p.muted { (text) } }
        @if !history.changes.is_empty() {
            div.scroll.cards tabindex="0" role="region" aria-label="Changes" {
                table.groups {
                    thead { tr {
                        th scope="col" { "Figure" }
                        th.num scope="col" { "Change" }
                        th.num scope="col" { "95% interval" }
                        th.num scope="col" { "p" }
                        th scope="col" { "Before" }
                        th scope="col" { "After" }
                    } }
                    @for change in &history.changes { tbody { (change_row(history, change)) } }
                }
            }
        }
    }
}

fn change_row(history: &History, change: &FigureChange) -> Markup {
    let FigureChange { figure, verdict, point } = change;
    let remarks = [
        words::position(history, point).map(|position| format!("position, {position}")),
        words::baseline(history, point).map(|versions| format!("baseline: {versions}")),
    ];
    html! {
        tr {
            th scope="row" {
                (marker(history, &figure.candidate).inline())
                (breakable(&words::subject(figure, history.is_sweep())))
            }
            td.num.(class(*verdict)) {
                b { (words::size(point)) } " " (figure.metric.quantity()) " "
                (sign(*verdict, figure.metric))
            }
            td.num data-c="95%" { (words::interval(point)) }
            td.num data-c="p" { (words::p_value(point.p_value)) }
            td.at data-c="before" { (run_of(history, point.before, figure)) }
            td.at data-c="after" {
                (run_of(history, point.after, figure))
                @for remark in remarks.iter().flatten() { small { (remark) } }
            }
        }
    }
}

/// A run with the version of the figure's candidate.
fn run_of(history: &History, index: usize, figure: &Figure) -> Markup {
    let run = &history.runs[index];
    html! {
        (breakable(&words::run(run)))
        @if let Some(version) = run.version_of(&figure.candidate) { small { (version) } }
    }
}

fn legend(history: &History) -> Markup {
    html! {
        ul.legend {
            @for candidate in history.candidates() {
                li { (marker(history, candidate).label(candidate)) }
            }
        }
    }
}

/// A table of the levels, and a chart per group, for each metric.
fn groups(history: &History) -> Markup {
    html! {
        p.muted {
            (words::LEVELS) " Charts show each run with its 95% interval, the levels as lines, changes as dashed \
             lines between two runs, and single runs that were left out as hollow markers."
        }
        (legend(history))
        @for metric in [Metric::Qps, Metric::Cpu] {
            @let all: Vec<&FigureHistory> =
                history.groups().filter(|group| group.figure.metric == metric).collect();
            @if !all.is_empty() {
                h3 { (heading(metric)) }
                (charts(history, &all))
                (levels(history, &all))
            }
        }
    }
}

fn heading(metric: Metric) -> Markup {
    let title = match metric {
        Metric::Qps => "Relative QPS",
        Metric::Cpu => "Relative CPU per query",
    };
    html! { (title) " " small { (metric.better()) } }
}

/// A chart per group or microbenchmark and number of clients, with a line per candidate.
fn charts(history: &History, all: &[&FigureHistory]) -> Markup {
    let mut charts: Vec<(String, Vec<&FigureHistory>)> = Vec::new();
    for one in all {
        let Figure { group, microbenchmark, clients: count, .. } = &one.figure;
        let mut title = microbenchmark.clone().unwrap_or_else(|| group.clone());
        if history.is_sweep() {
            title.push_str(&format!(", {}", clients(*count)));
        }
        match charts.iter_mut().find(|(known, _)| *known == title) {
            Some((_, lines)) => lines.push(one),
            None => charts.push((title, vec![one])),
        }
    }
    html! {
        div.lines { div.charts {
            @for (title, lines) in &charts { (chart::draw(history, title, lines)) }
        } }
    }
}

fn levels(history: &History, all: &[&FigureHistory]) -> Markup {
    let content = html! {
        table.changes {
            thead { tr {
                th scope="col" { "Candidate" }
                th scope="col" { "Group" }
                th.num scope="col" { "Level" }
                th scope="col" { "Since" }
                th.num scope="col" { "Last change" }
            } }
            tbody {
                @for one in all.iter().filter(|one| !one.levels.is_empty()) {
                    @let last = one.points.last();
                    tr {
                        th scope="row" {
                            (marker(history, &one.figure.candidate).label(&one.figure.candidate))
                        }
                        td {
                            (one.figure.group)
                            @if history.is_sweep() { small { (clients(one.figure.clients)) } }
                        }
                        td.num { @if let Some(level) = one.levels.last() { (words::level(level)) } }
                        td { (last.map_or("–", |point| history.runs[point.after].date())) }
                        td.num.(last.map_or("noise", |point| class(one.verdict(point)))) {
                            (words::last_change(one))
                            @if let Some(point) = last {
                                " " (sign(one.verdict(point), one.figure.metric))
                            }
                        }
                    }
                }
            }
        }
    };
    scrollable("Levels of groups", content)
}

/// Charts of the microbenchmarks that changed, with all candidates.
fn changed_microbenchmarks(history: &History) -> Markup {
    let key = |one: &FigureHistory| {
        let Figure { microbenchmark, clients, metric, .. } = &one.figure;
        (microbenchmark.clone(), *clients, *metric)
    };
    let changed: Vec<_> =
        history.figures.iter().filter(|one| !one.points.is_empty()).map(key).collect();
    let shown = |one: &&FigureHistory| !one.is_of_group() && changed.contains(&key(one));
    let all: Vec<&FigureHistory> = history.figures.iter().filter(shown).collect();
    if all.is_empty() {
        return Markup::default();
    }
    let content = html! {
        (legend(history))
        @for metric in [Metric::Qps, Metric::Cpu] {
            @let all: Vec<&FigureHistory> =
                all.iter().filter(|one| one.figure.metric == metric).copied().collect();
            @if !all.is_empty() {
                h3 { (heading(metric)) }
                (charts(history, &all))
            }
        }
    };
    section("microbenchmarks", "Microbenchmarks with a change", content)
}

/// The runs, with the versions of candidates where they change.
fn runs(history: &History) -> Markup {
    let names: Vec<&str> =
        std::iter::once(history.baseline.as_str()).chain(history.candidates()).collect();
    html! {
        p.muted { "Versions are in the first run that has them." }
        div.scroll.cards tabindex="0" role="region" aria-label="Runs" {
            table.groups {
                thead { tr {
                    th scope="col" { "Run" }
                    th scope="col" { "Started" }
                    @for name in &names { th scope="col" { (breakable(name)) } }
                } }
                tbody {
                    @for (number, run) in history.runs.iter().enumerate() {
                        tr {
                            th scope="row" { (breakable(&run.label)) }
                            td.at data-c="started" { (readable_time(&run.started)) }
                            @for name in &names { (version(history, number, name)) }
                        }
                    }
                }
            }
        }
    }
}

/// The version of a candidate, if it is not that of the run before.
fn version(history: &History, number: usize, name: &str) -> Markup {
    let of = |number: usize| history.runs[number].version_of(name);
    let version = of(number);
    if number > 0 && of(number - 1) == version {
        return html! { td {} };
    }
    html! { td.at data-c=(name) { (version.unwrap_or("–")) } }
}
