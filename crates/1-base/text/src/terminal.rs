//! Text for a terminal: the most detailed arrangement that fits the width.

use std::collections::BTreeSet;

use super::width::{break_name, cut, left, longest_part, plain, right, width, wrap};
use super::{Block, Cell, Column, Facts, Kind, Row, Section, SpanKind, Style, Table, Text, Tone};

const BOLD: &str = "1";
const DIM: &str = "2";
const BETTER: &str = "32";
const WORSE: &str = "31";
const FAILED: &str = "1;31";
const END: &str = "0";

/// The codes of all ANSI colours in the text for terminals: escape sequences `ESC [ CODE m`.
pub const COLOR_CODES: [&str; 6] = [BOLD, DIM, BETTER, WORSE, FAILED, END];

/// Adds ANSI colours if enabled.
#[derive(Clone, Copy)]
pub struct Paint {
    color: bool,
}

impl Paint {
    pub const fn new(color: bool) -> Self {
        Self { color }
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.color && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[{END}m")
        } else {
            text.to_owned()
        }
    }

    pub fn bold(self, text: &str) -> String {
        self.with(BOLD, text)
    }

    pub fn dim(self, text: &str) -> String {
        self.with(DIM, text)
    }

    pub fn better(self, text: &str) -> String {
        self.with(BETTER, text)
    }

    pub fn worse(self, text: &str) -> String {
        self.with(WORSE, text)
    }

    pub fn tone(self, tone: Tone, text: &str) -> String {
        match tone {
            Tone::Better => self.better(text),
            Tone::Worse => self.worse(text),
            Tone::Failed => self.with(FAILED, text),
            Tone::Bound | Tone::Alone => text.to_owned(),
            Tone::Noise | Tone::Unknown => self.dim(text),
        }
    }

    pub fn style(self, style: Style, text: &str) -> String {
        match style {
            Style::Plain => text.to_owned(),
            Style::Strong => self.bold(text),
            Style::Dim => self.dim(text),
            Style::Tone(tone) => self.tone(tone, text),
        }
    }
}

/// The sections that have content, each below a blank line and its title.
pub fn terminal<C>(sections: &[Section<C>], room: usize, paint: Paint) -> String {
    let mut out = String::new();
    for section in sections.iter().filter(|section| !section.blocks.is_empty()) {
        title(&mut out, &section.title, &section.about, (room, paint));
        write_blocks(&mut out, &section.blocks, room, paint);
    }
    out
}

/// The blocks one below the other.
pub fn write_blocks<C>(out: &mut String, blocks: &[Block<C>], room: usize, paint: Paint) {
    for block in blocks {
        match block {
            Block::Table(table) => Drawing { table, room, paint }.draw(out),
            Block::Text(text) => paragraph(out, text, room, paint),
            Block::Facts(one) => facts(out, one, room, paint),
            Block::Title(text, about) => title(out, text, about, (room, paint)),
            Block::Details(_, inner) => write_blocks(out, inner, room, paint),
            Block::Chart(_) => {}
        }
    }
}

fn title(out: &mut String, title: &str, about: &str, (room, paint): (usize, Paint)) {
    if title.is_empty() {
        return;
    }
    let (mut lines, about) = (wrap(&plain(title), room), plain(about));
    let last = lines.pop().unwrap_or_default();
    out.push('\n');
    for line in lines {
        out.push_str(&format!("{}\n", paint.bold(&line)));
    }
    out.push_str(&paint.bold(&last));
    if !about.is_empty() && width(&last) + 2 + width(&about) <= room {
        out.push_str(&paint.dim(&format!("  {about}")));
    } else {
        for line in wrap(&about, room) {
            out.push_str(&format!("\n{}", paint.dim(&line)));
        }
    }
    out.push('\n');
}

fn paragraph(out: &mut String, text: &Text, room: usize, paint: Paint) {
    let words = plain(&text.words());
    let is_command = text.spans.iter().any(|span| span.kind == SpanKind::Code);
    for line in if is_command { vec![words] } else { wrap(&words, room) } {
        out.push_str(&format!("{}\n", paint.style(text.style, &line)));
    }
}

/// Least width of the text beside labels.
const LEAST_TEXT: usize = 20;

fn facts(out: &mut String, facts: &Facts, room: usize, paint: Paint) {
    let labels = facts.rows.iter().map(|fact| width(&plain(&fact.label))).max().unwrap_or(0);
    let labels = labels.max(facts.least);
    let start = facts.indent + labels + facts.gap;
    // Without labels it is a list: lines after the first of an entry are indented.
    let hang = if labels == 0 { 2 } else { 0 };
    let mut before = None;
    for fact in &facts.rows {
        let lines = wrap(&plain(&fact.text), room.saturating_sub(start + hang).max(LEAST_TEXT));
        for (number, line) in lines.iter().enumerate() {
            // Neighbours share a label.
            let is_new = number == 0 && (facts.repeats || before != Some(&fact.label));
            let label = if is_new { plain(&fact.label) } else { String::new() };
            let hang = if number == 0 { 0 } else { hang };
            let space = " ".repeat(labels - width(&label) + facts.gap + hang);
            let label = paint.style(fact.label_style, &label);
            let line = paint.style(fact.style, line);
            out.push_str(&format!("{:1$}{label}{space}{line}\n", "", facts.indent));
        }
        before = Some(&fact.label).filter(|label| !label.is_empty());
    }
}

/// Least width of names that are shortened.
const LEAST_NAME: usize = 9;

/// Least width of the parts of a broken title.
const LEAST_TITLE: usize = 7;

struct Drawing<'a> {
    table: &'a Table,
    room: usize,
    paint: Paint,
}

/// The widths of a column: of values, of signs and of intervals, each with the space before it.
#[derive(Clone, Copy, Default)]
struct Widths {
    value: usize,
    sign: usize,
    interval: usize,
    /// Least total width, so that the title fits.
    title: usize,
}

impl Widths {
    fn content(&self) -> usize {
        self.value + self.sign + self.interval
    }

    fn total(&self) -> usize {
        self.content().max(self.title)
    }
}

struct Layout {
    columns: Vec<Widths>,
    gap: usize,
    /// Columns of each part, if not all fit beside each other.
    parts: Vec<Vec<usize>>,
}

impl Drawing<'_> {
    fn draw(&self, out: &mut String) {
        let layout = self.layout();
        for part in &layout.parts {
            self.heading(out, &layout, part);
            let mut before: Option<&Row> = None;
            for row in &self.table.rows {
                match &row.part {
                    Some(title) => {
                        out.push_str(&format!("{}\n", self.paint.dim(&plain(title))));
                        before = None;
                    }
                    None => {
                        self.row(out, &layout, part, row, before);
                        before = Some(row);
                    }
                }
            }
        }
    }

    fn layout(&self) -> Layout {
        let mut columns: Vec<Widths> =
            (0..self.table.columns.len()).map(|at| self.widths(at)).collect();
        let all: Vec<usize> = (0..columns.len()).collect();
        let used = |columns: &[Widths], gap: usize| {
            let widths: usize = columns.iter().map(Widths::total).sum();
            widths + gap * columns.len().saturating_sub(1)
        };
        for gap in [2, 1] {
            if used(&columns, gap) <= self.room {
                return Layout { columns, gap, parts: vec![all] };
            }
        }
        let whole = columns.clone();
        let is_name = |at: &usize| self.table.columns[*at].kind == Kind::Name;
        // Titles break inside of words only if there is no room otherwise.
        for least_title in [longest_part, |_: &str| 0] {
            columns.clone_from(&whole);
            for (widths, column) in columns.iter_mut().zip(&self.table.columns) {
                if !column.is_label() {
                    let least = least_title(&plain(&column.title)).max(LEAST_TITLE);
                    widths.title = widths.title.min(widths.content().max(least));
                }
            }
            for gap in [2, 1] {
                if used(&columns, gap) <= self.room {
                    return Layout { columns, gap, parts: vec![all] };
                }
            }
            // The widest name is shortened first.
            let mut excess = used(&columns, 1).saturating_sub(self.room);
            while excess > 0 {
                let names = all.iter().copied().filter(is_name);
                let Some(widest) = names.max_by_key(|at| columns[*at].total()) else { break };
                let least = self.least(widest).max(whole[widest].value * 2 / 3);
                if columns[widest].total() <= least.max(columns[widest].title) {
                    break;
                }
                columns[widest].value -= 1;
                excess -= 1;
            }
            if excess == 0 {
                return Layout { columns, gap: 1, parts: vec![all] };
            }
        }
        let labels = self.table.columns.iter().filter(|column| column.is_label()).count();
        // Below each other there is mostly room for whole names.
        for most in [self.room / (labels + 1), LEAST_NAME] {
            for at in all.iter().copied().filter(is_name) {
                columns[at].value = whole[at].value.min(most.max(self.least(at)));
            }
            let parts = self.parts(&columns);
            for gap in [2, 1] {
                let width_of = |part: &Vec<usize>| {
                    part.iter()
                        .map(|at| columns[*at].total() + gap)
                        .sum::<usize>()
                        .saturating_sub(gap)
                };
                if parts.iter().map(width_of).all(|width| width <= self.room) {
                    return Layout { parts, columns, gap };
                }
            }
        }
        Layout { parts: self.parts(&columns), columns, gap: 1 }
    }

    /// The least width of the names of a column: two different ones must not look alike.
    fn least(&self, at: usize) -> usize {
        let cells = self.table.rows.iter().filter_map(|row| row.cells.get(at));
        let names: BTreeSet<String> = cells.map(shown).collect();
        let are_distinct = |columns: &usize| {
            names.iter().map(|name| cut(name, *columns)).collect::<BTreeSet<_>>().len()
                == names.len()
        };
        let labels = self.table.columns.iter().filter(|column| column.is_label()).count();
        let most = self.room / (labels + 1);
        (LEAST_NAME..most).find(are_distinct).unwrap_or(most.max(LEAST_NAME))
    }

    /// The labels with as many other columns as fit.
    fn parts(&self, columns: &[Widths]) -> Vec<Vec<usize>> {
        let labels = self.table.columns.iter().take_while(|column| column.is_label()).count();
        let start: Vec<usize> = (0..labels).collect();
        let of_labels: usize = columns[..labels].iter().map(|one| one.total() + 2).sum();
        let mut parts = Vec::new();
        let (mut part, mut used) = (start.clone(), of_labels);
        for (at, widths) in columns.iter().enumerate().skip(labels) {
            if part.len() > labels && used + widths.total() > self.room {
                parts.push(std::mem::replace(&mut part, start.clone()));
                used = of_labels;
            }
            part.push(at);
            used += widths.total() + 2;
        }
        parts.push(part);
        parts
    }

    fn widths(&self, at: usize) -> Widths {
        let column = &self.table.columns[at];
        let mut widths = Widths { title: width(&plain(&column.title)), ..Widths::default() };
        for cell in self.table.rows.iter().filter_map(|row| row.cells.get(at)) {
            widths.value = widths.value.max(width(&shown(cell)));
            if cell.verdict.is_some() {
                widths.sign = 2;
            }
            let interval = cell.interval.as_ref().map_or(0, |one| width(&one.plus_minus));
            widths.interval = widths.interval.max(interval + usize::from(interval > 0));
        }
        if widths.value > column.most {
            widths.value = column.most.max(self.least(at)).min(widths.value);
        }
        widths
    }

    fn heading(&self, out: &mut String, layout: &Layout, part: &[usize]) {
        let title = |at: &usize| plain(&self.table.columns[*at].title);
        let broken = |at: &usize| break_name(&title(at), layout.columns[*at].total());
        let titles: Vec<Vec<String>> = part.iter().map(broken).collect();
        let lines = titles.iter().map(Vec::len).max().unwrap_or(0);
        for line in 0..lines {
            let mut pieces = Pieces::default();
            for (title, at) in titles.iter().zip(part) {
                let (column, widths) = (&self.table.columns[*at], &layout.columns[*at]);
                // Bottom-aligned: the last part of a title is directly above the rule.
                let text = (line + title.len()).checked_sub(lines).map_or("", |at| &title[at]);
                let text = text.trim_end();
                let above_values = column.kind == Kind::Number && width(text) <= widths.value;
                let after = if above_values { widths.sign + widths.interval } else { 0 };
                let text = match column.kind {
                    Kind::Number => right(text, widths.total() - after) + &" ".repeat(after),
                    _ => left(text, widths.total()),
                };
                pieces.gap(layout.gap * usize::from(Some(at) != part.first()));
                pieces.add(&text, |text| text.to_owned());
            }
            out.push_str(&format!("{}\n", pieces.text));
        }
        let widths: usize = part.iter().map(|at| layout.columns[*at].total()).sum();
        let rule = "─".repeat(widths + layout.gap * part.len().saturating_sub(1));
        out.push_str(&format!("{}\n", self.paint.dim(&rule)));
    }

    fn row(
        &self,
        out: &mut String,
        layout: &Layout,
        part: &[usize],
        row: &Row,
        before: Option<&Row>,
    ) {
        let mut pieces = Pieces::default();
        let mut is_repeated = before.is_some();
        for at in part {
            let (column, widths) = (&self.table.columns[*at], &layout.columns[*at]);
            let empty = Cell::empty();
            let cell = row.cells.get(*at).unwrap_or(&empty);
            pieces.gap(layout.gap * usize::from(Some(at) != part.first()));
            let text = cut(&shown(cell), widths.value.max(widths.title));
            is_repeated &= column.kind == Kind::Group
                && before.and_then(|row| row.cells.get(*at)).is_some_and(|one| one == cell);
            let text = if is_repeated { "" } else { text.as_str() };
            self.cell(&mut pieces, (column, widths), cell, text, row);
        }
        out.push_str(&format!("{}\n", pieces.text));
    }

    fn cell(
        &self,
        pieces: &mut Pieces,
        (column, widths): (&Column, &Widths),
        cell: &Cell,
        text: &str,
        row: &Row,
    ) {
        let paint = self.paint;
        let tone = cell.verdict.map(|(tone, _)| tone).or(cell.tone);
        let style = |text: &str| match (tone, row.faint) {
            (_, true) => paint.dim(text),
            (Some(tone), false) => paint.tone(tone, text),
            (None, false) => text.to_owned(),
        };
        if column.kind != Kind::Number {
            let sign =
                cell.verdict.map_or_else(String::new, |(tone, _)| format!(" {}", tone.sign()));
            pieces.add(&left(&format!("{text}{sign}"), widths.total()), style);
            return;
        }
        let sign = match cell.verdict {
            Some((tone, _)) => format!(" {}", tone.sign()),
            None => " ".repeat(widths.sign),
        };
        let is_long = width(text) > widths.value;
        let value = right(text, if is_long { 0 } else { widths.value });
        let pad = widths.total().saturating_sub(width(&value) + widths.sign + widths.interval);
        pieces.gap(pad);
        pieces.add(&format!("{value}{sign}"), style);
        let interval = cell.interval.as_ref().map_or("", |one| one.plus_minus.as_str());
        pieces.add(&right(interval, widths.interval), |text| paint.dim(text));
    }
}

fn shown(cell: &Cell) -> String {
    plain(&cell.text)
}

/// A line without spaces at its end, and with spaces outside of colours.
#[derive(Default)]
struct Pieces {
    text: String,
    spaces: usize,
}

impl Pieces {
    const fn gap(&mut self, columns: usize) {
        self.spaces += columns;
    }

    fn add(&mut self, text: &str, paint: impl Fn(&str) -> String) {
        let content = text.trim_matches(' ');
        if content.is_empty() {
            self.spaces += width(text);
            return;
        }
        let start = width(text) - width(text.trim_start_matches(' '));
        self.text.push_str(&" ".repeat(self.spaces + start));
        self.text.push_str(&paint(content));
        self.spaces = width(text) - start - width(content);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fact, Interval};

    fn ratio(value: &str, half: &str) -> Cell {
        let interval = Interval { ends: String::new(), plus_minus: half.to_owned() };
        Cell::text(value).verdict(Tone::Better, "faster").interval(Some(interval))
    }

    fn table() -> Table {
        let mut table = Table::new([
            Column::group("group"),
            Column::name("candidate"),
            Column::number("relative QPS"),
            Column::number("p99"),
        ]);
        table.push(Row::new([
            Cell::text("point"),
            Cell::text("a-rather-long-name"),
            ratio("1.038", "±0.4%"),
            Cell::number(Some(12)),
        ]));
        table.push(Row::new([
            Cell::text("point"),
            Cell::text("b"),
            ratio("10.20", "±11%"),
            Cell::dash(),
        ]));
        table
    }

    fn drawn(room: usize) -> String {
        let mut section: Section = Section::new("t", "title").about("about it");
        section.push(table());
        terminal(&[section], room, Paint::new(false))
    }

    #[test]
    fn values_signs_and_intervals_are_aligned() {
        assert_eq!(
            drawn(60),
            "\ntitle  about it\n\
             group  candidate            relative QPS  p99\n\
             ─────────────────────────────────────────────\n\
             point  a-rather-long-name  1.038 + ±0.4%   12\n\
             \x20      b                   10.20 +  ±11%    –\n"
        );
    }

    #[test]
    fn names_are_shortened_and_then_columns_go_below() {
        let narrow = drawn(36);
        assert!(narrow.contains("a-rath…-name"), "{narrow}");
        assert!(narrow.lines().all(|line| width(line) <= 36), "{narrow}");
        let parts = drawn(30);
        assert_eq!(parts.matches("candidate").count(), 2, "{parts}");
        assert!(parts.lines().all(|line| width(line) <= 30), "{parts}");
    }

    #[test]
    fn titles_break_inside_of_words_only_if_nothing_else_fits() {
        let drawn = |room: usize| {
            let names = [Column::name("component"), Column::number("offending")];
            let mut table = Table::new(names.into_iter().chain([Column::number("all units")]));
            table.push(Row::new([
                Cell::text("sql/a-long-name-of-a-part"),
                Cell::number(Some(1)),
                Cell::number(Some(2)),
            ]));
            let mut out = String::new();
            write_blocks::<crate::NoChart>(&mut out, &[table.into()], room, Paint::new(false));
            assert!(out.lines().all(|line| width(line) <= room), "{out}");
            out
        };
        for room in [44, 40, 36] {
            assert!(drawn(room).contains("offending"), "{}", drawn(room));
        }
        drawn(20);
    }

    #[test]
    fn shortened_names_stay_different() {
        let mut table = Table::new([Column::name("test").most(9), Column::number("QPS")]);
        let names = ["points-covered-pk_range=100", "points-covered-si_range=100"];
        for name in names {
            table.push(Row::new([Cell::text(name), Cell::number(Some("12345"))]));
        }
        let mut out = String::new();
        write_blocks::<crate::NoChart>(&mut out, &[table.into()], 60, Paint::new(false));
        assert!(out.contains("points-cove…i_range=100"), "{out}");
    }

    #[test]
    fn facts_are_wrapped_beside_their_labels() {
        let facts = Facts::new([
            Fact::new("warning", "one two three four five six"),
            Fact::new("warning", "seven"),
            Fact::new("x", "\x1b[31m"),
        ]);
        let mut out = String::new();
        write_blocks::<crate::NoChart>(&mut out, &[facts.into()], 29, Paint::new(false));
        assert_eq!(
            out,
            "warning  one two three four\n         five six\n         seven\nx        ␛[31m\n"
        );
    }

    #[test]
    fn colours_leave_out_the_spaces() {
        let mut out = String::new();
        let table: Block = table().into();
        write_blocks(&mut out, &[table], 60, Paint::new(true));
        assert!(out.contains("\x1b[32m1.038 +\x1b[0m \x1b[2m±0.4%\x1b[0m   12\n"), "{out:?}");
    }
}
