//! Series of candidates: a line per group, a heat table, and the list of changes.

use maud::{Markup, html};

use super::elements::{breakable, scrollable, section};
use super::marker::Marker;
use super::plot::{Plot, coordinate, polyline};
use super::scale::Scale;
use super::verdict::{class, sign};
use crate::figures::percent_change;
use crate::metric::{Metric, clients};
use crate::model::{Report, Role, Series, SeriesCell, SeriesChange, SeriesGroup, SeriesRow};
pub(super) use crate::series::comes_first;
use crate::series::{KEY, LISTED, difference, in_words, interval};
use crate::terminal::paint::cut;

/// Wide and low: names of releases are below the axis.
const PLOT: Plot =
    Plot { width: 900.0, height: 286.0, left: 46.0, right: 888.0, top: 10.0, bottom: 200.0 };

/// The section; nothing without a series.
pub(super) fn render(report: &Report) -> Markup {
    if report.series.is_empty() {
        return Markup::default();
    }
    let content = html! {
        p.muted { (KEY) }
        @for series in &report.series {
            @if report.series.len() > 1 { h3 { (breakable(&series.name)) } }
            (lines(report, series))
            (heat_table(report, series))
            (changes(report, series))
        }
    };
    section("series", "In order", content)
}

/// A line per group; a chart per number of clients.
fn lines(report: &Report, series: &Series) -> Markup {
    html! {
        @for count in report.clients() {
            @let groups: Vec<&SeriesGroup> =
                series.groups.iter().filter(|group| group.clients == count).collect();
            @if !groups.is_empty() {
                (legend(&groups))
                (chart(report, series, &groups, count))
            }
        }
    }
}

fn legend(groups: &[&SeriesGroup]) -> Markup {
    html! {
        ul.legend {
            @for (index, group) in groups.iter().enumerate() {
                li { (marker(index).label(&group.group)) }
            }
        }
    }
}

fn marker(index: usize) -> Marker {
    Marker::new(index, Role::Candidate)
}

fn chart(report: &Report, series: &Series, groups: &[&SeriesGroup], count: u32) -> Markup {
    let points = || groups.iter().flat_map(|group| group.points.iter().flatten());
    let scale = Scale::covering(points().map(|point| point.ratio.get()));
    let names = series.short_names();
    let y = |value: f64| PLOT.y(scale.clamped(value) / 100.0);
    let x = |number: usize| {
        let share = number as f64 / (names.len() - 1).max(1) as f64;
        PLOT.left + FIRST + share * (PLOT.right - PLOT.left - FIRST - 12.0)
    };
    let noise = report.noise.as_ref().map(|noise| noise.typical.as_fraction());
    let content = html! {
        @if let Some(noise) = noise {
            @let (top, bottom) = (y(1.0 + noise), y(1.0 - noise));
            rect.band x=(PLOT.left) width=(PLOT.right - PLOT.left) y=(coordinate(top))
                height=(coordinate(bottom - top)) {}
        }
        @for (value, label) in scale.ticks() {
            (PLOT.horizontal(scale.line_class(value), y(value), &label))
        }
        @for (number, name) in names.iter().enumerate() {
            (PLOT.vertical(x(number)))
            (slanted(x(number), name))
        }
        @for (index, group) in groups.iter().enumerate() {
            @let marker = marker(index);
            @let known = || group.points.iter().enumerate()
                .filter_map(|(number, point)| Some((number, (*point)?)));
            g.(marker.class()) {
                (polyline(known().map(|(number, point)| (x(number), y(point.ratio.get())))))
                @for (number, point) in known() {
                    @let at = coordinate(x(number));
                    g {
                        title { (group.group) ", " (series.candidates[number]) ": "
                            (percent_change(point.ratio)) }
                        @if let Some((low, high)) = point.interval {
                            line.whisker x1=(at) x2=(at) y1=(coordinate(y(low.get())))
                                y2=(coordinate(y(high.get()))) {}
                        }
                        use href=(marker.shape()) x=(at) y=(coordinate(y(point.ratio.get()))) {}
                    }
                }
            }
        }
    };
    let title = match report.is_sweep() {
        true => format!("Throughput relative to {}, {}", series.candidates[0], clients(count)),
        false => format!("Throughput relative to {}", series.candidates[0]),
    };
    let words: Vec<String> = groups
        .iter()
        .filter_map(|group| {
            let last = group.points.last()?.as_ref()?;
            Some(format!("{} {} at the end", group.group, percent_change(last.ratio)))
        })
        .collect();
    PLOT.figure(&title, &format!("{title}: {}", words.join("; ")), content)
}

/// Distance of the first candidate from the axis: its name is slanted to the left.
const FIRST: f64 = 44.0;

/// Characters of a name below the axis for which there is room in [`PLOT`].
const LONGEST_NAME: usize = 16;

/// A name below the axis, turned so that thirty of them fit.
fn slanted(x: f64, name: &str) -> Markup {
    let (x, y) = (coordinate(x), coordinate(PLOT.bottom + 12.0));
    html! {
        text x=(x) y=(y) text-anchor="end" transform={ "rotate(-40 " (x) " " (y) ")" } {
            title { (name) }
            (cut(name, LONGEST_NAME))
        }
    }
}

fn heat_table(report: &Report, series: &Series) -> Markup {
    let names = series.short_names();
    let content = html! {
        table.heat {
            caption.hidden { "Throughput relative to " (series.candidates[0]) " in percent" }
            thead { tr {
                th scope="col" { "Microbenchmark" }
                @for (name, full) in names.iter().zip(&series.candidates) {
                    th.turned scope="col" title=(full) { span { (name) } }
                }
            } }
            @for rows in series.rows.chunk_by(|a, b| a.group == b.group) {
                tbody {
                    tr { th.group scope="rowgroup" colspan=(names.len() + 1) { (rows[0].group) } }
                    @for row in rows { (heat_row(report, row)) }
                }
            }
        }
    };
    scrollable("Throughput over the series", content)
}

fn heat_row(report: &Report, row: &SeriesRow) -> Markup {
    html! {
        tr {
            th scope="row" {
                (breakable(&row.microbenchmark))
                @if report.is_sweep() { small { " " (clients(row.clients)) } }
            }
            @for (number, cell) in row.cells.iter().enumerate() {
                @match cell {
                    None => td { "–" }
                    Some(_) if number == 0 => td.first { "0" }
                    Some(cell) => (heat_cell(cell))
                }
            }
        }
    }
}

fn heat_cell(cell: &SeriesCell) -> Markup {
    let percent = 100.0 * (cell.ratio.get() - 1.0);
    html! {
        td.(heat(cell.ratio.get())).(class(cell.verdict))
            title={ (percent_change(cell.ratio)) ", " (Metric::Qps.word(cell.verdict)) } {
            // Without the sign of percent, so that thirty columns fit.
            (format!("{percent:+.0}").replace('-', "−").replace("+0", "0").replace("−0", "0"))
        }
    }
}

/// The class that colours a ratio: equal steps for a ratio and its reciprocal.
fn heat(ratio: f64) -> &'static str {
    let classes = match ratio.ln().abs() {
        ..0.01 => ["even", "even"],
        ..0.03 => ["up1", "down1"],
        ..0.08 => ["up2", "down2"],
        ..0.20 => ["up3", "down3"],
        _ => ["up4", "down4"],
    };
    classes[usize::from(ratio < 1.0)]
}

fn changes(report: &Report, series: &Series) -> Markup {
    let listed = series.listed();
    let (first, rest) = listed.split_at(listed.len().min(LISTED));
    html! {
        h3 { "Largest changes" }
        p.muted { (series.about_changes(report)) }
        @if !first.is_empty() { (change_table(report, series, first)) }
        @if !rest.is_empty() {
            details {
                summary { (rest.len()) " more changes" }
                (change_table(report, series, rest))
            }
        }
    }
}

fn change_table(report: &Report, series: &Series, changes: &[&SeriesChange]) -> Markup {
    let names = series.short_names();
    let short = |name: &str| {
        let at = series.candidates.iter().position(|one| one == name);
        at.map_or_else(|| name.to_owned(), |at| names[at].clone())
    };
    let content = html! {
        table.changes {
            caption.hidden { "Changes between neighbours in the series" }
            thead { tr {
                th scope="col" { "Microbenchmark" }
                th scope="col" { "From" }
                th scope="col" { "To" }
                th.num scope="col" { "QPS" }
                th scope="col" { "95% interval" }
            } }
            tbody {
                @for change in changes {
                    tr title=(in_words(change)) {
                        th scope="row" {
                            (breakable(&change.microbenchmark))
                            @if report.is_sweep() { small { " " (clients(change.clients)) } }
                        }
                        td { (short(&change.from)) }
                        td { (short(&change.to)) }
                        td.num.(class(change.verdict)) {
                            b { (difference(change)) } " " (sign(change.verdict, Metric::Qps))
                        }
                        td { (interval(change)) }
                    }
                }
            }
        }
    };
    scrollable("Changes between neighbours in the series", content)
}
