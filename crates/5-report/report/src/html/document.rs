//! Sections of a document as parts of the page, and its elements: headings, names, markers of candidates,
//! signs of verdicts.

use dbdyno_text::{
    Block, Cell, Column, Kind, Mark, Row, Section, SpanKind, Style, Table, Text, Tone,
};
use maud::{Markup, html};

use crate::charts::{self, Lane, Scale, class, colour, shape};
use crate::figures::percent_change;
use crate::metric::clients;
use crate::model::{Estimate, Metric, Series, SeriesCell, SeriesRow};
use crate::sections::Chart;

/// A section with its heading; nothing if it has no content.
pub(crate) fn section(section: &Section<Chart>) -> Markup {
    if section.blocks.is_empty() {
        return Markup::default();
    }
    if section.id.is_empty() {
        return html! {
            section {
                h2 {
                    (breakable(&section.title))
                    @if !section.about.is_empty() { " " small { (section.about) } }
                }
                (blocks(&section.blocks))
            }
        };
    }
    with_heading(section.id, &section.title, blocks(&section.blocks))
}

pub(crate) fn blocks(blocks: &[Block<Chart>]) -> Markup {
    html! { @for block in blocks { (self::block(block)) } }
}

fn block(block: &Block<Chart>) -> Markup {
    html! {
        @match block {
            Block::Table(one) => { (table(one)) }
            Block::Text(text) => { (paragraph(text)) }
            Block::Title(title, about) => {
                h3 { (breakable(title)) @if !about.is_empty() { " " small { (about) } } }
            }
            Block::Facts(facts) => {
                @if facts.rows.iter().all(|fact| fact.label.is_empty()) {
                    ul { @for fact in &facts.rows { li { (fact.text) } } }
                } @else {
                    dl.pairs {
                        @for fact in &facts.rows {
                            div { dt { (breakable(&fact.label)) } dd { (fact.text) } }
                        }
                    }
                }
            }
            Block::Details(summary, inner) => { details { summary { (summary) } (blocks(inner)) } }
            Block::Chart(one) => { (chart(one)) }
        }
    }
}

fn chart(chart: &Chart) -> Markup {
    html! {
        @match chart {
            Chart::Lanes(table, rows, noise) => { (with_lanes(table, rows, *noise)) }
            Chart::Legend(names) => {
                (legend(names.iter().map(|(mark, name)| (*mark, name.as_str()))))
            }
            Chart::Wide(chart) => { (chart.draw()) }
            Chart::Lines(charts) => {
                @if !charts.is_empty() {
                    div.charts.overtime { @for chart in charts { (chart.draw()) } }
                }
            }
            Chart::Heat(series, is_sweep) => { (heat_table(series, *is_sweep)) }
            Chart::Flame(flame) => { (flame.draw()) }
        }
    }
}

/// What markers stand for.
pub(crate) fn legend<'n>(names: impl Iterator<Item = (Mark, &'n str)>) -> Markup {
    html! { ul.legend { @for (mark, name) in names { li { (label(mark, name)) } } } }
}

fn with_lanes(table: &Table, rows: &[Vec<Option<Lane>>], noise: Option<f64>) -> Markup {
    let estimates: Vec<Estimate> =
        rows.iter().flatten().flatten().map(|lane| lane.estimate).collect();
    let scale = Scale::of_estimates(&estimates);
    let charts = rows.iter().map(|row| charts::chart(&scale, noise, row)).collect();
    table_with_charts(table, Some((charts::column_head(&scale), charts)))
}

fn paragraph(text: &Text) -> Markup {
    let class = match text.style {
        Style::Dim => Some("muted"),
        Style::Tone(Tone::Worse) => Some("worse"),
        _ => None,
    };
    html! {
        p class=[class] {
            @for span in &text.spans {
                @match span.kind {
                    SpanKind::Plain => { (span.text) }
                    SpanKind::Strong => { strong { (span.text) } }
                    SpanKind::Code => { code { (span.text) } }
                }
            }
        }
    }
}

pub(crate) fn table(table: &Table) -> Markup {
    table_with_charts(table, None)
}

/// The same with a column of charts before those of the candidates, or at the end: its heading, and a
/// chart for each row.
pub(crate) fn table_with_charts(table: &Table, charts: Option<(Markup, Vec<Markup>)>) -> Markup {
    let (head, charts) = charts.unzip();
    let mut charts = charts.unwrap_or_default().into_iter();
    let columns = &table.columns;
    let place = columns.iter().position(|column| column.mark.is_some()).unwrap_or(columns.len());
    // Rows of a group and rows below a title are a body of their own.
    let starts_body = |before: &Row, row: &Row| {
        row.part.is_some()
            || columns.first().is_some_and(|column| column.kind == Kind::Group)
                && before.part.is_none()
                && before.cells.first() != row.cells.first()
    };
    let content = html! {
        table class=[(!table.class.is_empty()).then_some(table.class)] {
            @if !table.caption.is_empty() { caption.hidden { (table.caption) } }
            thead { tr {
                @for column in &columns[..place] { (heading(column)) }
                @if let Some(head) = &head { (head) }
                @for column in &columns[place..] { (heading(column)) }
            } }
            @for rows in table.rows.chunk_by(|a, b| !starts_body(a, b)) {
                tbody {
                    @for at in 0..rows.len() {
                        (row(table, rows, at, charts.next().map(|chart| (place, chart))))
                    }
                }
            }
        }
    };
    scrollable(table.frame, &table.caption, content)
}

fn heading(column: &Column) -> Markup {
    html! {
        th class=[(column.kind == Kind::Number).then_some("num")] scope="col" {
            @match column.mark {
                Some(mark) => { (label(mark, &column.title)) }
                None if column.what.is_empty() => { (breakable(&column.title)) }
                None => { abbr title=(column.what) { (column.title) } }
            }
        }
    }
}

fn row(table: &Table, rows: &[Row], at: usize, chart: Option<(usize, Markup)>) -> Markup {
    let (columns, row) = (&table.columns, &rows[at]);
    if let Some(part) = &row.part {
        let span = columns.len();
        return html! { tr { th.block scope="rowgroup" colspan=(span) { (breakable(part)) } } };
    }
    // Rows that share this group's label, and those of the groups before it.
    let same = |a: &Row, b: &Row, to: usize| a.part.is_none() && a.cells[..=to] == b.cells[..=to];
    let chart = |number: usize| {
        let chart = chart.as_ref().filter(|(place, _)| *place == number);
        html! { @if let Some((_, chart)) = chart { td.chart { (chart) } } }
    };
    html! {
        tr {
            @for (number, (column, cell)) in columns.iter().zip(&row.cells).enumerate() {
                (chart(number))
                @match column.kind {
                    Kind::Group => {
                        @if at == 0 || !same(&rows[at - 1], row, number) {
                            @let span = rows[at..].iter().take_while(|one| same(one, row, number)).count();
                            th.group scope="rowgroup" rowspan=[(span > 1).then_some(span)] {
                                (content(cell, false))
                            }
                        }
                    }
                    Kind::Name => { th scope="row" { (content(cell, false)) } }
                    Kind::Text | Kind::Number => { (data(column, cell, !table.frame.is_empty())) }
                }
            }
            (chart(columns.len()))
        }
    }
}

/// In a framed table, whose rows are cards on a narrow screen, each cell names its column.
fn data(column: &Column, cell: &Cell, is_framed: bool) -> Markup {
    let tone = cell.verdict.map(|(tone, _)| tone).or(cell.tone).map_or("", class);
    let classes = [if column.kind == Kind::Number { "num" } else { "" }, tone, cell.class];
    let classes: Vec<&str> = classes.into_iter().filter(|class| !class.is_empty()).collect();
    let classes = (!classes.is_empty()).then(|| classes.join(" "));
    let title = Some(&cell.title).filter(|title| !title.is_empty());
    html! { td class=[classes] title=[title] data-c=[is_framed.then_some(&column.title)] {
        (content(cell, column.kind == Kind::Number))
    } }
}

/// The content of a cell; names may break after their separators, numbers not.
fn content(cell: &Cell, is_number: bool) -> Markup {
    let text = html! {
        @match cell.mark {
            Some(mark) => { (label(mark, &cell.text)) }
            None if is_number => { (cell.text) }
            None => { (breakable(&cell.text)) }
        }
    };
    let ends = cell.interval.as_ref().map_or("", |interval| interval.ends.as_str());
    html! {
        @if !cell.link.is_empty() { a.open href={ "#" (cell.link) } { (text) } }
        @else if !cell.text.is_empty() && (cell.verdict.is_some() || cell.tone.is_some() || cell.interval.is_some()) { b { (text) } }
        @else { (text) }
        @if let Some((tone, word)) = cell.verdict { " " (sign(tone, word)) }
        @if !ends.is_empty() { small { (ends) } }
        @for note in &cell.notes { " " small { (note) } }
    }
}

/// The sign with its word as a tooltip and for screen readers.
pub(crate) fn sign(tone: Tone, word: &str) -> Markup {
    let sign = match tone.sign() {
        '-' => '−',
        other => other,
    };
    html! {
        span.sign title=(word) aria-hidden="true" { (sign) }
        span.hidden { (word) }
    }
}

/// A name in which lines may break after `_`, `-`, `.`, `+` and `/`, and nowhere else.
pub(crate) fn breakable(name: &str) -> Markup {
    html! {
        @for (index, part) in name.split_inclusive(['_', '-', '.', '+', '/']).enumerate() {
            @if index > 0 { wbr; }
            (part)
        }
    }
}

/// A section with a heading that names it for screen readers.
pub(crate) fn with_heading(id: &str, title: &str, content: Markup) -> Markup {
    html! {
        section id=(id) aria-labelledby={ "h-" (id) } {
            h2 id={ "h-" (id) } { (title) }
            (content)
        }
    }
}

/// A box with content that may be wider than the window, with a class. `label` names it for screen
/// readers.
pub(crate) fn scrollable(class: &str, label: &str, content: Markup) -> Markup {
    let space = if class.is_empty() { "" } else { " " };
    html! {
        div class={ "scroll" (space) (class) } tabindex="0" role="region" aria-label=(label) {
            (content)
        }
    }
}

/// A list of labels with their values.
pub(crate) fn pairs<L: AsRef<str>>(pairs: &[(L, String)]) -> Markup {
    html! {
        @for (label, value) in pairs {
            div { dt { (breakable(label.as_ref())) } dd { (value) } }
        }
    }
}

pub(crate) fn label(mark: Mark, name: &str) -> Markup {
    html! { (inline(mark)) (breakable(name)) }
}

/// The marker as part of a line of text.
pub(crate) fn inline(mark: Mark) -> Markup {
    html! {
        svg.mark.{ (colour(mark)) } viewBox="-7 -7 14 14" aria-hidden="true" {
            use href=(shape(mark)) {}
        }
    }
}

pub(crate) fn heat_table(series: &Series, is_sweep: bool) -> Markup {
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
                    @for row in rows { (heat_row(row, is_sweep)) }
                }
            }
        }
    };
    scrollable("", "Throughput over the series", content)
}

fn heat_row(row: &SeriesRow, is_sweep: bool) -> Markup {
    html! {
        tr {
            th scope="row" {
                (breakable(&row.microbenchmark))
                @if is_sweep { small { " " (clients(row.clients)) } }
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
        td.(heat(cell.ratio.get())).(class(cell.verdict.tone()))
            title={ (percent_change(cell.ratio)) ", " (cell.verdict.word(Metric::Qps)) } {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breakable_name_is_escaped_and_keeps_its_text() {
        let markup = breakable("a<b_c+d").into_string();
        assert_eq!(markup, "a&lt;b_<wbr>c+<wbr>d");
    }
}
